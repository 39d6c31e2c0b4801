"""What an auditor brings along, compared with the log: the root key's fingerprint, or a checkpoint kept from earlier.

Without either, a verdict is *self-asserted*: a second history, re-signed from entry 0 by another root, would pass it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from consumers.auditor.report import AuditReport
from ledger.bundle.layout import fingerprint
from ledger.checkpoint import Checkpoint, CheckpointVerifier, parse_checkpoint, verify_checkpoint
from ledger.errors import BatonError

if TYPE_CHECKING:
    from consumers.auditor.replay import Replay
    from consumers.auditor.report import Findings
    from consumers.auditor.stream_replay import StreamReplay

fingerprint_digits_min: Final = 32


def is_root(given: str, root_key: str) -> bool:
    """Return whether ``given`` names the root key (hex): its fingerprint (32 digits or more), or the key itself."""
    wanted = given.strip().lower().removeprefix("blake3:")
    found = fingerprint(bytes.fromhex(root_key))
    return wanted == root_key or (len(wanted) >= fingerprint_digits_min and found.startswith(wanted))


class Anchor:
    """The expectations of one audit."""

    def __init__(self, findings: Findings, root: str | None, trusted_checkpoint: str | None) -> None:
        """Expect this root key and the log of this checkpoint, each if given.

        Raises:
            Refused: ``INVALID_FORMAT`` when the trusted checkpoint is no checkpoint.
        """
        self._findings = findings
        self._root = root
        self._note = trusted_checkpoint
        self._trusted: Checkpoint | None = None if trusted_checkpoint is None else parse_checkpoint(trusted_checkpoint)
        self.sizes = set() if self._trusted is None else {self._trusted.size}

    def report(
        self,
        source: str,
        replay: Replay | StreamReplay,
        *,
        rules_replayed: bool = True,
        checkpoint_size: int | None = None,
    ) -> AuditReport:
        """Compare the expectations with a finished replay and return the report."""
        created = replay.created
        is_root_right = self._check_root(None if created is None else created.root)
        is_checkpoint_right = self._check_checkpoint(replay)
        findings, frontier = self._findings, replay.frontier
        return AuditReport(
            source=source,
            ledger=replay.ledger,
            origin=None if created is None else created.origin,
            root_key=None if created is None else created.root,
            root_fingerprint=None if created is None else fingerprint(bytes.fromhex(created.root)),
            size=replay.size,
            root=None if frontier is None else frontier.root().hex(),
            checkpoint_size=checkpoint_size,
            signatures=replay.verified,
            kinds=dict(sorted(replay.kinds.items())),
            problems=findings.sorted_problems(),
            problems_total=findings.problems_total,
            notes=findings.notes,
            notes_total=findings.notes_total,
            anchored=is_root_right or is_checkpoint_right,
            rules_replayed=rules_replayed,
        )

    def _check_root(self, root_key: str | None) -> bool:
        if self._root is None:
            return False
        if root_key is not None and is_root(self._root, root_key):
            return True
        found = "nothing" if root_key is None else fingerprint(bytes.fromhex(root_key))
        message = f"the root key has the fingerprint {found}, not {self._root}: this is another history"
        self._findings.problem(0, "VERIFICATION_FAILED", message)
        return False

    def _check_checkpoint(self, replay: Replay | StreamReplay) -> bool:
        if self._note is None or self._trusted is None:
            return False
        trusted, created = self._trusted, replay.created
        if created is None:
            self._findings.problem(
                0, "VERIFICATION_FAILED", "entry 0 names no checkpoint key to check the trusted one by"
            )
            return False
        try:
            verify_checkpoint(self._note, CheckpointVerifier(created.origin, bytes.fromhex(created.checkpoint_key)))
        except BatonError as error:
            self._findings.problem(0, error.code, f"the trusted checkpoint is not of this ledger: {error.message}")
            return False
        return self._compare(trusted, replay)

    def _compare(self, trusted: Checkpoint, replay: Replay | StreamReplay) -> bool:
        if replay.size < trusted.size:
            message = f"the log has {replay.size} entries, and had {trusted.size} at the trusted checkpoint: cut off"
            self._findings.problem(replay.size, "VERIFICATION_FAILED", message, end=trusted.size)
            return False
        if trusted.size not in replay.roots:
            message = f"the trusted checkpoint of {trusted.size} entries cannot be compared with what can be read"
            self._findings.note(None, "VERIFICATION_FAILED", message)
            return False
        if replay.roots[trusted.size] != trusted.root:
            message = f"the first {trusted.size} entries are not those of the trusted checkpoint: the history forked"
            self._findings.problem(0, "VERIFICATION_FAILED", message, end=trusted.size)
            return False
        return True
