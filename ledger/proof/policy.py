"""Who cosigned a checkpoint, and whose cosignatures are enough (C2SP tlog-cosignature, tlog-policy).

A *witness* cosigns a checkpoint after a proof that the tree begins with the last one it cosigned: a log that shows two
histories needs its witnesses to lie, too. A *policy* is a file::

    log <vkey>
    witness one <vkey> [<url>]
    witness two <vkey> [<url>]
    group both all one two
    quorum both

It says what is enough; what follows when it is not is for whoever asks: verifiers fail closed unless they were told
``--fail-open``, and a node says ``fail = "open"`` or ``"closed"`` in its ``[witness]`` table, with no default.

Left out: ML-DSA-44, for which there is no library here that is kept well; a vkey of that type is refused by name.
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
    """A witness: its key's name, 32 bytes of Ed25519, and where checkpoints are submitted to it (empty: nowhere)."""

    name: str
    public_key: bytes
    url: str = ""

    def times(self, note: str) -> list[int]:
        """Return when this witness cosigned a note (Unix seconds), once for each line of its key.

        Raises Corrupted: such a line does not fit the text, or says no time. Refused: it is no note.
        """
        text, lines = checkpoint.split_note(note)
        id_ = checkpoint.key_id(self.name, checkpoint.COSIGNATURE_KEY, self.public_key)
        times = []
        for blob in [line.signature for line in lines if (line.name, line.key_id) == (self.name, id_)]:
            time_s = int.from_bytes(blob[:_TIME_SIZE_BYTES], "big")
            signed = f"cosignature/v1\ntime {time_s}\n{text}".encode()
            if not 0 < time_s <= _TIME_MAX_S or not verify(self.public_key, signed, blob[_TIME_SIZE_BYTES:]):
                message = f"a cosignature of the witness {self.name!r} does not fit the checkpoint: somebody lies"
                raise Corrupted("VERIFICATION_FAILED", message, witness=self.name)
            times.append(time_s)
        return times


class Witnessed(msgspec.Struct, frozen=True, kw_only=True):
    """What a policy finds in a note of so many entries: who cosigned it, of how many, and since when that was enough.

    ``time_s`` (Unix) is None as long as the quorum is not met, and where none is asked for; ``times`` says when each of
    them cosigned it last.
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
            return f"witnessed by {count}" + ("" if self.is_met else ", which the policy does not call enough")
        return f"witnessed at {datetime.fromtimestamp(self.time_s, UTC):%Y-%m-%dT%H:%M:%SZ} by {count}"


class Policy(msgspec.Struct, frozen=True):
    """A parsed policy. ``groups`` are (how many, members) by name, each after those that it names."""

    logs: tuple[checkpoint.CheckpointVerifier, ...]
    witnesses: Mapping[str, Witness]
    groups: Mapping[str, tuple[int, tuple[str, ...]]]
    quorum: str

    @classmethod
    def parse(cls, content: bytes) -> Self:
        """Return the policy in a file's bytes.

        Raises Refused: ``INVALID_FORMAT`` with the number of the line that is wrong; ``TOO_LARGE``.
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
                    reader.take(*words)
                except Refused as refusal:
                    message = f"line {number} of the policy: {refusal.message}"
                    raise Refused(refusal.code, message, **refusal.details, line=number) from refusal
        if reader.quorum is None:
            raise Refused("INVALID_FORMAT", "A policy has one quorum line: `quorum NAME`, or `quorum none`.")
        return cls(tuple(reader.logs), reader.witnesses, reader.groups, reader.quorum)

    def verify_log(self, note: str) -> checkpoint.CheckpointVerifier:
        """Return the key of the policy's log that signed a checkpoint.

        Raises Corrupted: no log of the policy signed it. Refused: it is no checkpoint.
        """
        origin = checkpoint.parse_checkpoint(note).origin
        for verifier in self.logs:
            with suppress(Corrupted):  # another log, or another key of this one, may have signed it
                checkpoint.verify_checkpoint(note, verifier)
                return verifier
        raise Corrupted("VERIFICATION_FAILED", f"no log of the policy signed for {origin!r}", origin=origin)

    def judge(self, note: str, now_s: float) -> Witnessed:
        """Return what the policy's witnesses say of a note; a time ahead of ``now_s`` is no time that they know.

        Raises Corrupted: a witness' line does not fit the note, or is of the future. Refused: it is no checkpoint.
        """
        times = sorted((time_s, name) for name, one in self.witnesses.items() for time_s in one.times(note))
        if times and times[-1][0] > now_s + witness_clock_ahead_max_s:
            time_s, name = times[-1]
            message = f"the witness {name} says that it cosigned in the future: its clock is wrong, or yours"
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
        return Witnessed(size=size, by=sorted(by), of=len(self.witnesses), is_met=is_met, time_s=met_s, times=last)

    def demand(self, note: str, now_s: float, *, fail_open: bool = False) -> Witnessed:
        """Return the same, once the quorum is met; or anyway, for who said that it should ``fail_open``.

        Raises Corrupted: ``NOT_WITNESSED``; as ``judge``.
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
        self.logs: list[checkpoint.CheckpointVerifier] = []
        self.witnesses: dict[str, Witness] = {}
        self.groups: dict[str, tuple[int, tuple[str, ...]]] = {}
        self.quorum: str | None = None
        self._members: set[str] = set()

    def take(self, line: str, *words: str) -> None:
        fewest, most = _LINE.get(line, (1, 0))
        _need(fewest <= len(words) <= most, f"`{line}` is no line with {len(words)} words after it.")
        if line == "log":
            verifier = checkpoint.CheckpointVerifier.from_vkey(words[0])
            _need(verifier.public_key not in [log.public_key for log in self.logs], "The log's key is there twice.")
            self.logs.append(verifier)
        elif line == "witness":
            self._define(words[0])
            witness = Witness(*checkpoint.parse_vkey(words[1], checkpoint.COSIGNATURE_KEY), *words[2:])
            keys = [one.public_key for one in self.witnesses.values()]
            _need(witness.public_key not in keys, "The witness' key is there twice.")
            self.witnesses[words[0]] = witness
        elif line == "group":
            self._group(words[0], words[1], words[2:])
        else:
            _need(self.quorum is None, "There is one quorum line, not two.")
            self.quorum = words[0] if words[0] == _NONE else self._defined(words[0])

    def _group(self, name: str, count: str, members: tuple[str, ...]) -> None:
        self._define(name)
        for member in members:
            _need(self._defined(member) not in self._members, f"{member!r} is a member twice: it can count once only.")
            self._members.add(member)
        words = {"all": len(members), "any": 1}
        needed = words[count] if count in words else decode_decimal(count, "group's number")
        _need(1 <= needed <= len(members), f"{needed} of {len(members)} members cannot be asked for.")
        self.groups[name] = needed, members

    def _define(self, name: str) -> None:
        _need(name != _NONE and name not in self.witnesses and name not in self.groups, f"{name!r} is taken.")

    def _defined(self, name: str) -> str:
        _need(name in self.witnesses or name in self.groups, f"{name!r} is defined on no line before.")
        return name


def _need(is_so: bool, message: str) -> None:  # noqa: FBT001 - it reads as a sentence
    if not is_so:
        raise Refused("INVALID_FORMAT", message)
