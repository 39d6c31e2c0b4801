"""The report of an audit: problems by index, notes, and whether the verdict relies on anything but the ledger itself.

A different history that another root signed from entry 0 would also get a *self-asserted* verdict.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias, assert_never

import msgspec

from deedbook.ledger.admission.replay import MissingEntries, Replay
from deedbook.ledger.bundle.layout import blob_name
from deedbook.ledger.errors import DeedbookError, Refused
from deedbook.ledger.events.authority import AgentRegistered, EntryRedacted
from deedbook.ledger.format.forms import ROOT
from deedbook.ledger.home.trust import fingerprint
from deedbook.ledger.lifecycle.clock import clock_text
from deedbook.ledger.lifecycle.gate_state import GateState, gate_text
from deedbook.ledger.proof.checkpoint import Checkpoint, parse_checkpoint, verifiers_of, verify_checkpoint

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from deedbook.ledger.trust.store import TrustRecord

Outcome: TypeAlias = Literal["VALID", "VALID_WITH_ERASURES", "PARTIAL", "SUSPECT_KEY", "HISTORY_CHANGED", "INVALID"]
"""The verdict; the package's docstring explains it."""

missing_named_max: Final = 5
erased_named_max: Final = 20
problems_listed_max: Final = 1000
notes_listed_max: Final = 200
fingerprint_digits_min: Final = 32
_FINGERPRINT: Final = re.compile(rf"[0-9a-f]{{{fingerprint_digits_min},64}}")


class Problem(msgspec.Struct, frozen=True):
    """One problem or note of an audit.

    ``index`` is the entry it is about (None if it is about no entry); ``end`` the index after the last entry, if only a
    range is known; ``code`` one of ``ledger.errors.CODES``.
    """

    index: int | None
    code: str
    message: str
    end: int | None = None


class ErasedEntry(msgspec.Struct, frozen=True):
    """An entry whose body was erased: by whom, at which time of the ledger's clock, and the reason they gave."""

    entry: int
    by: str
    at: str
    reason: str


class AuditedAgent(msgspec.Struct, frozen=True):
    """An agent that could sign events: its roles, and its last identity key (hex).

    ``removed_index`` is the entry that removed the agent, None if it is still registered.
    """

    name: str
    roles: list[str]
    key: str
    removed_index: int | None


class AuditReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an audit.

    ``tree_head`` is the Merkle root (hex) of the entries; for a bundle of one stream, the root that its proofs lead to;
    None if an entry could not be read. ``signatures`` is the number of events whose signature was verified.
    ``problems`` lists at most ``problems_listed_max`` of ``problems_total``, by index; ``contradictions`` counts those
    that say that this is not the history that the auditor trusted before. ``is_root_right`` says whether the root key
    is the one that the auditor expects; None if they named none. ``suspects`` are the first of ``suspects_total``
    entries that were signed by a key since declared compromised. An earlier audit verified the entries before
    ``resumed_at``, and this one hashed them again: they are the same. ``trusted_size`` is the size of the auditor's
    checkpoint, if this ledger signed it, and ``is_continued`` says that the log begins with it. ``missing`` is what a
    bundle of one ``stream`` lacks, ``missing_files`` the blobs that entries need and that are not here, and the entries
    that the folder of an unpacked bundle lacks, by their names in a bundle. ``agents`` are those of a bundle, in the
    order of their registration. ``gate`` says whether somebody must enter a passphrase before anything is approved;
    None if an entry of authority is missing, or the ledger is not valid. ``erased`` are the first of ``erased_total``
    entries without a body whose remnant a redaction names. ``unread`` are the families without a usable package here,
    with the number of their entries: their fields and rules were not checked.
    """

    source: str
    ledger: str | None = None
    origin: str | None = None
    root_key: str | None = None
    root_fingerprint: str | None = None
    size: int = 0
    tree_head: str | None = None
    checkpoint_size: int | None = None
    signatures: int = 0
    kinds: dict[str, int] = {}
    problems: list[Problem] = []
    problems_total: int = 0
    contradictions: int = 0
    notes: list[Problem] = []
    notes_total: int = 0
    anchored: bool = False
    is_root_right: bool | None = None
    compromised_signatures: list[int] = []
    compromised_signatures_total: int = 0
    compromised_agents: list[str] = []
    resumed_at: int = 0
    trusted_size: int | None = None
    is_continued: bool = False
    stream: str | None = None
    missing: list[MissingEntries] = []
    missing_files: list[str] = []
    agents: list[AuditedAgent] = []
    gate: GateState | None = None
    erased: list[ErasedEntry] = []
    erased_total: int = 0
    unread: dict[str, int] = {}

    @property
    def outcomes(self) -> list[Outcome]:
        """Everything that keeps the ledger from being valid, the worst first.

        If nothing does, it is valid, perhaps with erasures.
        """
        found: dict[Outcome, int] = {
            "INVALID": self.problems_total - self.contradictions,
            "HISTORY_CHANGED": self.contradictions,
            "PARTIAL": len(self.missing_names),
            "SUSPECT_KEY": self.compromised_signatures_total,
        }
        return [outcome for outcome, count in found.items() if count] or [
            "VALID_WITH_ERASURES" if self.erased else "VALID"
        ]

    @property
    def outcome(self) -> Outcome:
        """The verdict as one word: the worst of ``outcomes``."""
        return self.outcomes[0]

    @property
    def missing_names(self) -> list[str]:
        """Names of everything that a bundle lacks, and of the packages that the auditor lacks."""
        families = [f"the package of the family {name} ({count} entries)" for name, count in self.unread.items()]
        return [*families, *self._uncompared, *map(str, self.missing), *self.missing_files]

    @property
    def _uncompared(self) -> list[str]:
        """The entries that a bundle lacks according to the auditor's checkpoint, or why the two cannot be compared."""
        if self.trusted_size is None or self.is_continued:
            return []
        if self.trusted_size > self.size:
            return [f"the last {self.trusted_size - self.size} of {self.trusted_size} entries"]
        return [f"a proof that the log continues the checkpoint of {self.trusted_size} entries"]

    @property
    def ok(self) -> bool:
        """Whether the verdict is VALID or VALID_WITH_ERASURES."""
        return self.outcome in ("VALID", "VALID_WITH_ERASURES")

    @property
    def trust(self) -> str:
        """The basis of the verdict: ``anchored``, ``self-asserted``, or that the root key is not the expected one."""
        if self.is_root_right is False:
            return "root key does not match"
        return "anchored" if self.anchored else "self-asserted"

    @property
    def verdict(self) -> str:
        """The report in one line."""
        scope = f"{self.size} entries"
        if self.stream is not None:
            scope = f"{self.stream} and authority as of head {self.size}"
        match self.outcome:
            case "INVALID":
                where = next((f" at entry {bad.index}" for bad in self.problems if bad.index is not None), "")
                why = f"{where}: {self.problems_total} problem{'s' * (self.problems_total != 1)}"
            case "HISTORY_CHANGED":
                why = ": this is not the history that was trusted before"
            case "PARTIAL":
                missing = self.missing_names
                why = f": {', '.join(missing[:missing_named_max])} missing"
                if len(missing) > missing_named_max:
                    why += f" and {len(missing) - missing_named_max} more"
                why += f"; {self._suspect}" if self.compromised_signatures_total else ""
            case "SUSPECT_KEY":
                why = f" at entry {self.compromised_signatures[0]}: {self._suspect}"
            case "VALID_WITH_ERASURES":
                why = f": {self._erased}"
            case "VALID":
                why = ""
            case _:
                assert_never(self.outcome)
        basis = f"{scope}, {self.signatures} signatures ({self.trust})"
        if self.is_continued and not self.problems_total:
            how = "continues" if self.missing_names else "complete up to"
            basis += f", {how} the checkpoint of {self.trusted_size} entries"
        return f"{self.outcome}{why}: {basis}"

    @property
    def gate_line(self) -> str:
        """The line about the gate. Each verdict is printed with it."""
        return gate_text(self.gate)

    @property
    def _erased(self) -> str:
        total = self.erased_total
        named = ", ".join(f"{one.entry} by {one.by}" for one in self.erased[:erased_named_max])
        more = f" and {total - erased_named_max} more" if total > erased_named_max else ""
        return f"the bodies of {'1 entry' if total == 1 else f'{total} entries'} were erased ({named}{more})"

    @property
    def _suspect(self) -> str:
        total = self.compromised_signatures_total
        count = "1 entry" if total == 1 else f"{total} entries"
        return f"{count} signed with stolen keys of {', '.join(self.compromised_agents)}"


class Findings:
    """Collects problems and notes up to their limits, and counts the rest."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.problems_total = 0
        self.contradictions = 0
        self.notes: list[Problem] = []
        self.notes_total = 0
        self.missing_files: list[str] = []

    def problem(self, index: int | None, code: str, message: str, *, end: int | None = None) -> None:
        """Record a problem."""
        self.problems_total += 1
        if len(self.problems) < problems_listed_max:
            self.problems.append(Problem(index, code, message, end))

    def contradiction(self, index: int | None, message: str, *, end: int | None = None) -> None:
        """Record that this is not the history that the auditor trusted before."""
        self.contradictions += 1
        self.problem(index, "HISTORY_CHANGED", message, end=end)

    def note(self, index: int | None, code: str, message: str) -> None:
        """Record a note."""
        self.notes_total += 1
        if len(self.notes) < notes_listed_max:
            self.notes.append(Problem(index, code, message))

    def missing_blob(self, ref: str, index: int) -> None:
        """Record that a blob is missing that the entry at ``index`` needs."""
        self.missing_files.append(blob_name(ref))
        self.note(index, "NOT_FOUND", f"blob {ref}, which entry {index} needs, is missing: copy it from a backup")

    def merge(self, other: Findings) -> None:
        """Add the findings of another pass."""
        self.problems = (self.problems + other.problems)[:problems_listed_max]
        self.notes = (self.notes + other.notes)[:notes_listed_max]
        self.problems_total += other.problems_total
        self.contradictions += other.contradictions
        self.missing_files += other.missing_files
        self.notes_total += other.notes_total

    def sorted_problems(self) -> list[Problem]:
        """Return the listed problems by index; those without an index come last."""
        return sorted(self.problems, key=lambda problem: (problem.index is None, problem.index or 0))


def fingerprint_in(text: str) -> str:
    """Return the digits that name a root key: its fingerprint, at least the first 32 digits of it, or the key itself.

    Raises Refused: ``USAGE``: the text cannot name a key.
    """
    wanted = text.strip().lower().removeprefix("blake3:")
    if not _FINGERPRINT.fullmatch(wanted):
        message = (
            "--root takes the fingerprint of the root key, as `deed init` printed it: 64 hex "
            f"digits, or at least the first {fingerprint_digits_min}"
        )
        raise Refused("USAGE", message)
    return wanted


def is_root(wanted: str, root_key: str) -> bool:
    """Return whether ``wanted`` (from ``fingerprint_in``) names the root key (hex).

    It does if it is the key itself, its fingerprint, or the beginning of its fingerprint.
    """
    return wanted == root_key or fingerprint(bytes.fromhex(root_key)).startswith(wanted)


class ReplayOutcome(NamedTuple):
    """The outcome of a replay, from which a report is made. ``root`` is None if any of the ``size`` entries is lost."""

    replay: Replay
    size: int
    root: bytes | None
    roots: dict[int, bytes]
    lost_from: int | None
    verified: int
    compromised_signatures: list[int]


def _gate_of(
    outcome: ReplayOutcome, missing: Sequence[MissingEntries], missing_files: Sequence[str]
) -> GateState | None:
    has_all = (
        outcome.lost_from is None
        and all(gap.stream is not None for gap in missing)
        and not any(name.startswith("entries/") for name in missing_files)
    )
    return outcome.replay.state.gate_state() if has_all and outcome.replay.created is not None else None


class Anchor:
    """The auditor's own knowledge: a root key, a trusted checkpoint, the heads in their trust stores, or nothing."""

    def __init__(self, findings: Findings, root: str | None, trusted_checkpoint: str | None) -> None:
        """Expect this root key and the log of this checkpoint; None expects nothing.

        Raises Refused: ``USAGE`` if ``root`` cannot name a key; ``INVALID_FORMAT`` if the note is no checkpoint.
        """
        self._findings = findings
        self._root = None if root is None else fingerprint_in(root)
        self._note = trusted_checkpoint
        self._trusted: Checkpoint | None = None if trusted_checkpoint is None else parse_checkpoint(trusted_checkpoint)
        self.trusted_records: list[TrustRecord] = []
        self.sizes = set() if self._trusted is None else {self._trusted.size}

    def report(
        self,
        source: str,
        outcome: ReplayOutcome,
        *,
        checkpoint: Checkpoint | None = None,
        stream: str | None = None,
        missing: Sequence[MissingEntries] = (),
        missing_files: Sequence[str] = (),
        resumed_at: int = 0,
    ) -> AuditReport:
        """Compare the expectations with a finished replay and return the report."""
        findings, replay = self._findings, outcome.replay
        created, head = replay.created, None if outcome.root is None else outcome.root.hex()
        is_root_right = self._check_root(None if created is None else created.root, head)
        trusted_size, is_continued = self._check_checkpoint(source, outcome)
        erased = _erased_of(replay)
        for index, done in replay.kept().items():
            message = f"the body of entry {index} is here, although {done.by} erased it with entry {done.index}"
            findings.note(index, "ERASED_BODY_SERVED", f"{message}: this copy of the ledger kept it")
        is_cut_off = trusted_size is not None and trusted_size > outcome.size
        return AuditReport(
            source=source,
            ledger=replay.ledger,
            origin=None if created is None else created.origin,
            root_key=None if created is None else created.root,
            root_fingerprint=None if created is None else fingerprint(bytes.fromhex(created.root)),
            size=outcome.size,
            tree_head=head,
            checkpoint_size=None if checkpoint is None else checkpoint.size,
            signatures=outcome.verified,
            kinds=dict(sorted(replay.kinds.items())),
            problems=findings.sorted_problems(),
            problems_total=findings.problems_total,
            contradictions=findings.contradictions,
            notes=findings.notes,
            notes_total=findings.notes_total,
            anchored=is_continued if is_root_right is None else is_root_right,
            is_root_right=is_root_right,
            compromised_signatures=outcome.compromised_signatures[:problems_listed_max],
            compromised_signatures_total=len(outcome.compromised_signatures),
            compromised_agents=_owners_of(replay, outcome.compromised_signatures),
            resumed_at=resumed_at,
            trusted_size=trusted_size,
            is_continued=is_continued,
            stream=stream,
            missing=list(missing),
            missing_files=[*dict.fromkeys([*missing_files, *findings.missing_files])],
            agents=_agents_of(replay) if source == "bundle" else [],
            erased=erased[:problems_listed_max],
            erased_total=len(erased),
            unread=dict(sorted(replay.unread.items())),
            gate=None if findings.problems_total or is_cut_off else _gate_of(outcome, missing, missing_files),
        )

    def _check_root(self, root_key: str | None, head: str | None) -> bool | None:
        if self._root is None:
            return None
        if root_key is not None and is_root(self._root, root_key):
            return True
        actual = "nothing" if root_key is None else fingerprint(bytes.fromhex(root_key))
        message = f"the root key has the fingerprint {actual}, not {self._root}: this is another history"
        if self._root == head:
            message = f"this is the tree head; the fingerprint of the root key is {actual}"
        self._findings.problem(0, "VERIFICATION_FAILED", message)
        return False

    def _check_checkpoint(self, source: str, outcome: ReplayOutcome) -> tuple[int | None, bool]:
        """Return the size of the trusted checkpoint, if this ledger signed it, and whether the log begins with it.

        A bundle may be older than the checkpoint, but a log may not.
        """
        if self._note is None or self._trusted is None:
            return None, False
        trusted, created = self._trusted, outcome.replay.created
        if created is None:
            message = "entry 0 names no checkpoint key, so the trusted checkpoint cannot be checked"
            self._findings.problem(0, "VERIFICATION_FAILED", message)
            return None, False
        try:
            keys = outcome.replay.state.checkpoint_keys().at(trusted.size)
            verify_checkpoint(self._note, *verifiers_of(created.origin, keys))
        except DeedbookError as error:
            self._findings.problem(0, error.code, f"the trusted checkpoint is not of this ledger: {error.message}")
            return None, False
        if outcome.size < trusted.size and source != "bundle":
            message = (
                f"the log was cut off: it has {outcome.size} entries, and had {trusted.size} at the trusted checkpoint"
            )
            self._findings.contradiction(outcome.size, message, end=trusted.size)
            return None, False
        if trusted.size not in outcome.roots:
            message = f"the trusted checkpoint was not compared: some of its {trusted.size} entries are not here"
            self._findings.note(None, "VERIFICATION_FAILED", message)
            return trusted.size, False
        if outcome.roots[trusted.size] != trusted.root:
            message = f"the history forked: the first {trusted.size} entries do not match the trusted checkpoint"
            self._findings.contradiction(0, message, end=trusted.size)
            return None, False
        return trusted.size, True


def _owners_of(replay: Replay, indexes: Collection[int]) -> list[str]:
    """Return the agents whose keys signed some of these entries."""
    wanted = frozenset(indexes)
    keys = [key.hex() for key, signed in replay.signed_by.items() if not wanted.isdisjoint(signed)]
    return sorted({record.agent for key in keys if (record := replay.state.key(key)) is not None})


def _erased_of(replay: Replay) -> list[ErasedEntry]:
    """Return the erased entries whose remnant a redaction names."""
    reasons = {index: data.reason for index, _, data in replay.authority if isinstance(data, EntryRedacted)}
    records = replay.redactions() if replay.erased else {}
    return [
        ErasedEntry(index, done.by, clock_text(replay.redacted_ms[done.index]), reasons[done.index])
        for index in sorted(replay.erased)
        if (done := records[index].done) is not None and records[index].found is None
    ]


def _agents_of(replay: Replay) -> list[AuditedAgent]:
    """Return the agents that the replayed events registered, root first."""
    names = [ROOT, *(data.name for _, _, data in replay.authority if isinstance(data, AgentRegistered))]
    records = [record for name in dict.fromkeys(names) if (record := replay.state.agent(name)) is not None]
    return [AuditedAgent(record.name, list(record.roles), record.key, record.removed_index) for record in records]
