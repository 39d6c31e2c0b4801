"""The cosignatures of a checkpoint, and the policy that requires some of them (C2SP tlog-cosignature, tlog-policy).

A *witness* cosigns a checkpoint after a proof that the tree begins with the last one that it cosigned. So a log can
show two histories only if its witnesses lie, too. A *policy* is a file::

    log <vkey>
    witness one <vkey> [<url>]
    witness two <vkey> [<url>]
    group both all one two
    quorum both

It says which cosignatures are enough. The caller decides what happens otherwise: verifiers fail closed unless they have
``--fail-open``, and a node has ``fail = "open"`` or ``"closed"`` in its ``[witness]`` table, with no default.

Left out: ML-DSA-44, because no well-maintained library for it is available here. Its vkeys are refused by name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final, Self

import msgspec

from deedbook.ledger.errors import Corrupted, Refused
from deedbook.ledger.format.codec import decode_decimal
from deedbook.ledger.format.identity import verify
from deedbook.ledger.limits import policy_lines_max, policy_size_max_bytes, witness_clock_ahead_max_s
from deedbook.ledger.proof import checkpoint

_CONTROL: Final = re.compile(rb"[\x00-\x08\x0b-\x1f\x7f]")
_LINE: Final = {"log": (1, 2), "witness": (2, 3), "group": (3, policy_size_max_bytes), "quorum": (1, 1)}
_NONE: Final = "none"
_TIME_SIZE_BYTES: Final = 8
_TIME_MAX_S: Final = 2**63 - 1


class Witness(msgspec.Struct, frozen=True):
    """A witness: its key's name, its 32-byte Ed25519 key, and its URL for checkpoints (empty: none)."""

    name: str
    public_key: bytes
    url: str = ""

    def times(self, note: str) -> list[int]:
        """Return the times (Unix seconds) at which this witness cosigned a note, one for each line of its key.

        Raises Corrupted: such a line does not match the text, or has no valid time. Refused: it is not a note.
        """
        text, lines = checkpoint.split_note(note)
        id_ = checkpoint.key_id(self.name, checkpoint.COSIGNATURE_KEY, self.public_key)
        times = []
        for blob in [line.signature for line in lines if (line.name, line.key_id) == (self.name, id_)]:
            time_s = int.from_bytes(blob[:_TIME_SIZE_BYTES], "big")
            signed = f"cosignature/v1\ntime {time_s}\n{text}".encode()
            if not 0 < time_s <= _TIME_MAX_S or not verify(self.public_key, signed, blob[_TIME_SIZE_BYTES:]):
                message = f"a cosignature of the witness {self.name!r} does not match the checkpoint: it may be forged"
                raise Corrupted("VERIFICATION_FAILED", message, witness=self.name)
            times.append(time_s)
        return times


class WitnessResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a policy for a note: the log's size, its cosigners (``by``), the number of witnesses (``of``).

    ``time_s`` (Unix) is the time when the quorum was met; None if it is not, or if the policy has no quorum. ``times``
    are the last times of each cosigner.
    """

    size: int
    by: list[str]
    of: int
    is_met: bool
    time_s: int | None
    times: dict[str, int] = {}

    def __str__(self) -> str:
        count = f"{len(self.by)} of {self.of} ({self.size} entries)"
        if self.time_s is None:
            return f"witnessed by {count}" + ("" if self.is_met else ", which is not enough for the policy")
        return f"witnessed at {datetime.fromtimestamp(self.time_s, UTC):%Y-%m-%dT%H:%M:%SZ} by {count}"


class Policy(msgspec.Struct, frozen=True):
    """A parsed policy. ``groups`` are (number needed, members) by name, each after the groups that it names."""

    logs: tuple[checkpoint.CheckpointVerifier, ...]
    witnesses: Mapping[str, Witness]
    groups: Mapping[str, tuple[int, tuple[str, ...]]]
    quorum: str

    @classmethod
    def parse(cls, content: bytes) -> Self:
        """Return the policy in a file's bytes.

        Raises Refused: ``INVALID_FORMAT`` with the number of the wrong line; ``TOO_LARGE``.
        """
        if len(content) > policy_size_max_bytes or content.count(b"\n") > policy_lines_max:
            limits = f"{policy_size_max_bytes} bytes and {policy_lines_max} lines"
            raise Refused("TOO_LARGE", f"A policy must not exceed {limits}.", limit_bytes=policy_size_max_bytes)
        if _CONTROL.search(content):
            raise Refused("INVALID_FORMAT", "The policy contains a control character other than tab and newline.")
        reader = _Reader()
        # Only \n ends a line, and only spaces and tabs separate words: bytes beyond ASCII are opaque (Character set).
        for number, line in enumerate(content.decode("utf-8", "surrogateescape").split("\n"), 1):
            words = [word for word in re.split(r"[ \t]+", line) if word]
            if words and not words[0].startswith("#"):
                try:
                    reader.take(*words)
                except Refused as refusal:
                    message = f"line {number} of the policy: {refusal.message}"
                    raise Refused(refusal.code, message, **refusal.details, line=number) from refusal
        if reader.quorum is None:
            raise Refused("INVALID_FORMAT", "A policy must have one quorum line: `quorum NAME` or `quorum none`.")
        return cls(tuple(reader.logs), reader.witnesses, reader.groups, reader.quorum)

    def verify_log(self, note: str) -> checkpoint.CheckpointVerifier:
        """Return the key of the policy's log that signed a checkpoint.

        Raises Corrupted: no log of the policy signed it. Refused: it is not a checkpoint.
        """
        origin = checkpoint.parse_checkpoint(note).origin
        for verifier in self.logs:
            with suppress(Corrupted):  # another log, or another key of this one, may have signed it
                checkpoint.verify_checkpoint(note, verifier)
                return verifier
        raise Corrupted("VERIFICATION_FAILED", f"no log of the policy signed this note of {origin!r}", origin=origin)

    def judge(self, note: str, now_s: float) -> WitnessResult:
        """Return the result of the policy for a note at ``now_s`` (Unix seconds).

        Raises Corrupted: a witness's line does not match the note, or is from the future. Refused: it is not a
        checkpoint.
        """
        times = sorted((time_s, name) for name, witness in self.witnesses.items() for time_s in witness.times(note))
        if times and times[-1][0] > now_s + witness_clock_ahead_max_s:
            time_s, name = times[-1]
            message = f"the cosignature of the witness {name} is from the future: its clock or yours is wrong"
            raise Corrupted("VERIFICATION_FAILED", message, witness=name, time_s=time_s)
        by: set[str] = set()
        met_s: int | None = None
        for time_s, name in times:
            by.add(name)
            if met_s is None and self._is_met(by):
                met_s = time_s
        is_met = self.quorum == _NONE or met_s is not None
        size = checkpoint.parse_checkpoint(note).size
        last = {name: time_s for time_s, name in times}
        return WitnessResult(size=size, by=sorted(by), of=len(self.witnesses), is_met=is_met, time_s=met_s, times=last)

    def demand(self, note: str, now_s: float, *, fail_open: bool = False) -> WitnessResult:
        """Return the result of ``judge`` if the quorum is met, or in any case with ``fail_open``.

        Raises Corrupted: ``NOT_WITNESSED``; as ``judge``.
        """
        witnessed = self.judge(note, now_s)
        if not (witnessed.is_met or fail_open):
            message = f"the checkpoint is {witnessed}: to accept it anyway, use --fail-open"
            raise Corrupted("NOT_WITNESSED", message, witnessed=msgspec.to_builtins(witnessed))
        return witnessed

    def _is_met(self, by: set[str]) -> bool:
        met = set(by)
        for name, (needed, members) in self.groups.items():
            if len(met.intersection(members)) >= needed:
                met.add(name)
        return self.quorum in met


class _Reader:
    """The definitions in the lines of a policy so far."""

    def __init__(self) -> None:
        self.logs: list[checkpoint.CheckpointVerifier] = []
        self.witnesses: dict[str, Witness] = {}
        self.groups: dict[str, tuple[int, tuple[str, ...]]] = {}
        self.quorum: str | None = None
        self._members: set[str] = set()

    def take(self, line: str, *words: str) -> None:
        fewest, most = _LINE.get(line, (1, 0))
        _need(fewest <= len(words) <= most, f"A line `{line}` with {len(words)} words after it is not valid.")
        if line == "log":
            verifier = checkpoint.CheckpointVerifier.from_vkey(words[0])
            is_new = verifier.public_key not in [log.public_key for log in self.logs]
            _need(is_new, "Another log has the same key.")
            self.logs.append(verifier)
        elif line == "witness":
            self._define(words[0])
            witness = Witness(*checkpoint.parse_vkey(words[1], checkpoint.COSIGNATURE_KEY), *words[2:])
            keys = [other.public_key for other in self.witnesses.values()]
            _need(witness.public_key not in keys, "Another witness has the same key.")
            self.witnesses[words[0]] = witness
        elif line == "group":
            self._group(words[0], words[1], words[2:])
        else:
            _need(self.quorum is None, "A policy must have one quorum line, not two.")
            self.quorum = words[0] if words[0] == _NONE else self._defined(words[0])

    def _group(self, name: str, count: str, members: tuple[str, ...]) -> None:
        self._define(name)
        for member in members:
            _need(self._defined(member) not in self._members, f"{member!r} must not be a member of two groups.")
            self._members.add(member)
        words = {"all": len(members), "any": 1}
        needed = words[count] if count in words else decode_decimal(count, "group's number")
        _need(1 <= needed <= len(members), f"A group of {len(members)} members cannot require {needed}.")
        self.groups[name] = needed, members

    def _define(self, name: str) -> None:
        is_free = name != _NONE and name not in self.witnesses and name not in self.groups
        _need(is_free, f"The name {name!r} is already used.")

    def _defined(self, name: str) -> str:
        _need(name in self.witnesses or name in self.groups, f"{name!r} must be defined on an earlier line.")
        return name


def _need(is_so: bool, message: str) -> None:  # noqa: FBT001 - it reads as a sentence
    if not is_so:
        raise Refused("INVALID_FORMAT", message)
