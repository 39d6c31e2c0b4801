"""Policies: which logs count, and whose cosignatures a checkpoint needs (C2SP tlog-policy).

::

    log <vkey>
    witness one <vkey> [<url>]
    witness two <vkey> [<url>]
    group both all one two
    quorum both

A policy says what is enough; what follows when it is not is for whoever asks: verifiers fail closed unless they were
told ``--fail-open``, and a node says ``fail = "open"`` or ``"closed"`` in its ``[witness]`` table, with no default.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Final, Self

import msgspec

from ledger.checkpoint import Checkpoint, CheckpointVerifier, parse_checkpoint, split_note, verify_checkpoint
from ledger.codec import decode_decimal
from ledger.cosignature import Cosigner
from ledger.errors import Corrupted, Refused
from ledger.limits import policy_lines_max, policy_size_max_bytes, witness_clock_ahead_max_s

_CONTROL: Final = re.compile(rb"[\x00-\x08\x0b-\x1f\x7f]")
_NONE: Final = "none"


class Witness(msgspec.Struct, frozen=True):
    """A witness of a policy, and where checkpoints are submitted to it (empty: nowhere)."""

    cosigner: Cosigner
    url: str = ""


class Witnessed(msgspec.Struct, frozen=True, kw_only=True):
    """What a policy finds in a note: who cosigned it, of how many, and since when that was enough (Unix seconds).

    ``size`` counts the entries; ``time_s`` is None as long as the quorum is not met, and where none is asked for.
    """

    size: int
    by: list[str]
    of: int
    is_met: bool
    time_s: int | None

    def __str__(self) -> str:
        count = f"{len(self.by)} of {self.of} ({self.size} entries)"
        if self.time_s is None:
            return f"witnessed by {count}" + ("" if self.is_met else ", which the policy does not call enough")
        return f"witnessed at {datetime.fromtimestamp(self.time_s, UTC):%Y-%m-%dT%H:%M:%SZ} by {count}"


class Policy(msgspec.Struct, frozen=True):
    """A parsed policy. ``groups`` are (how many, members) by name, each after those that it names."""

    logs: tuple[CheckpointVerifier, ...]
    witnesses: Mapping[str, Witness]
    groups: Mapping[str, tuple[int, tuple[str, ...]]]
    quorum: str

    @classmethod
    def parse(cls, content: bytes) -> Self:
        """Return the policy in a file's bytes.

        Raises:
            Refused: ``INVALID_FORMAT`` with the number of the line that is wrong; ``TOO_LARGE``.
        """
        if len(content) > policy_size_max_bytes or content.count(b"\n") > policy_lines_max:
            limits = f"{policy_size_max_bytes} bytes and {policy_lines_max} lines"
            raise Refused("TOO_LARGE", f"A policy has at most {limits}.", limit_bytes=policy_size_max_bytes)
        if _CONTROL.search(content):
            raise Refused("INVALID_FORMAT", "The policy contains a control character other than tab and newline.")
        reader = _Reader()
        # Only \n ends a line, and only spaces and tabs separate words: bytes beyond ASCII are opaque (Character set).
        for number, line in enumerate(content.decode("utf-8", "surrogateescape").split("\n"), 1):
            words = [word for word in re.split(r"[ \t]+", line) if word]
            if words and not words[0].startswith("#"):
                try:
                    reader.take(words)
                except Refused as refusal:
                    message = f"line {number} of the policy: {refusal.message}"
                    raise Refused(refusal.code, message, **refusal.details, line=number) from refusal
        if reader.quorum is None:
            raise Refused("INVALID_FORMAT", "A policy has one quorum line: `quorum NAME`, or `quorum none`.")
        return cls(tuple(reader.logs), reader.witnesses, reader.groups, reader.quorum)

    def verify_log(self, note: str) -> Checkpoint:
        """Return the checkpoint, signed by a log of the policy.

        Raises:
            Corrupted: no log of the policy signed it. Refused: it is no checkpoint.
        """
        origin = parse_checkpoint(note).origin
        failure = Corrupted("VERIFICATION_FAILED", f"the policy names no log {origin!r}", origin=origin)
        for verifier in self.logs:
            if verifier.origin == origin:
                try:
                    return verify_checkpoint(note, verifier)
                except Corrupted as error:  # another key of the same log may have signed it
                    failure = error
        raise failure

    def judge(self, note: str, now_s: float) -> Witnessed:
        """Return what the policy's witnesses say of a note; a time ahead of ``now_s`` is no time that they know.

        Raises:
            Corrupted: a witness' line does not fit the note, or is of the future. Refused: it is no note.
        """
        text, lines = split_note(note)
        times: list[tuple[int, str]] = []
        for name, witness in self.witnesses.items():
            cosigned = witness.cosigner.times(text, lines)
            if cosigned and max(cosigned) > now_s + witness_clock_ahead_max_s:
                message = f"the witness {name} says that it cosigned in the future: its clock is wrong, or yours"
                raise Corrupted("VERIFICATION_FAILED", message, witness=name, time_s=max(cosigned))
            times += [(time_s, name) for time_s in cosigned]
        by: set[str] = set()
        met_s: int | None = None
        for time_s, name in sorted(times):
            by.add(name)
            if met_s is None and self.quorum != _NONE and self._is_met(by):
                met_s = time_s
        is_met = self.quorum == _NONE or met_s is not None
        size = parse_checkpoint(note).size
        return Witnessed(size=size, by=sorted(by), of=len(self.witnesses), is_met=is_met, time_s=met_s)

    def demand(self, note: str, now_s: float, *, fail_open: bool = False) -> Witnessed:
        """Return the same, once the quorum is met; or anyway, for who said that it should ``fail_open``.

        Raises:
            Corrupted: ``NOT_WITNESSED``; as ``judge``.
        """
        witnessed = self.judge(note, now_s)
        if not (witnessed.is_met or fail_open):
            message = f"the checkpoint is {witnessed}; --fail-open would let it pass"
            raise Corrupted("NOT_WITNESSED", message, witnessed=msgspec.to_builtins(witnessed))
        return witnessed

    def _is_met(self, by: set[str]) -> bool:
        met = set(by)
        for name, (needed, members) in self.groups.items():
            if len(met.intersection(members)) >= needed:
                met.add(name)
        return self.quorum in met


class _Reader:
    """What the lines of a policy have defined so far."""

    def __init__(self) -> None:
        self.logs: list[CheckpointVerifier] = []
        self.witnesses: dict[str, Witness] = {}
        self.groups: dict[str, tuple[int, tuple[str, ...]]] = {}
        self.quorum: str | None = None
        self._members: set[str] = set()

    def take(self, words: list[str]) -> None:
        """Take the words of one line."""
        lines: dict[str, Callable[..., None]] = {
            "log": self._log,
            "witness": self._witness,
            "group": self._group,
            "quorum": self._quorum,
        }
        if words[0] not in lines:
            raise Refused("INVALID_FORMAT", f"{words[0]!r} begins no line: {', '.join(lines)} or # do.")
        try:
            lines[words[0]](*words[1:])
        except TypeError as error:
            raise Refused("INVALID_FORMAT", f"`{words[0]}` has too many words or too few.") from error

    def _log(self, vkey: str, _url: str = "") -> None:
        verifier = CheckpointVerifier.from_vkey(vkey)
        if verifier.public_key in [log.public_key for log in self.logs]:
            raise Refused("INVALID_FORMAT", f"The key of the log {verifier.origin!r} is there twice.")
        self.logs.append(verifier)

    def _witness(self, name: str, vkey: str, url: str = "") -> None:
        self._define(name)
        cosigner = Cosigner.from_vkey(vkey)
        if cosigner.public_key in [witness.cosigner.public_key for witness in self.witnesses.values()]:
            raise Refused("INVALID_FORMAT", f"The key of the witness {name!r} is there twice.")
        self.witnesses[name] = Witness(cosigner, url)

    def _group(self, name: str, count: str, first: str, *others: str) -> None:
        self._define(name)
        members = (first, *others)
        for member in members:
            if member not in self.witnesses and member not in self.groups:
                raise Refused("INVALID_FORMAT", f"{member!r} is defined on no line before.")
            if member in self._members:
                raise Refused("INVALID_FORMAT", f"{member!r} is a member twice: it can count in one way only.")
            self._members.add(member)
        words = {"all": len(members), "any": 1}
        needed = words[count] if count in words else decode_decimal(count, "group's number")
        if not 1 <= needed <= len(members):
            raise Refused("INVALID_FORMAT", f"{needed} of {len(members)} members cannot be asked for.")
        self.groups[name] = needed, members

    def _quorum(self, name: str) -> None:
        if self.quorum is not None:
            raise Refused("INVALID_FORMAT", "There is one quorum line, not two.")
        if name != _NONE and name not in self.witnesses and name not in self.groups:
            raise Refused("INVALID_FORMAT", f"The quorum {name!r} is defined on no line before.")
        self.quorum = name

    def _define(self, name: str) -> None:
        if name == _NONE or name in self.witnesses or name in self.groups:
            raise Refused("INVALID_FORMAT", f"The name {name!r} is taken.")
