"""Validly signed, wrong logs, one for each rule of admission: as a gate without that rule would store them.

The last entry is the wrong one, unless a case names another.
"""

from __future__ import annotations

from typing import Final

from building import SALT
from forge import SESSION
from forged_steps import (
    ASKED,
    FINDING,
    WrongLog,
    batch_of,
    batch_swapped,
    checkpoint_rotated,
    checkpoint_signed_with,
    counted,
    deep,
    ended_with,
    example,
    finding,
    free,
    handed,
    imported,
    malleable,
    odd,
    reasoning,
    spelled,
    stored,
    then,
)
from wrong_authority import (
    HOW_A_LOG_IS_KEPT,
    WHAT_THE_LEDGER_SAYS,
    WHICH_KEY_SIGNS,
    WHO_CHANGES_KEYS,
    WHO_HOLDS_WHICH_ROLE,
    WHO_REGISTERS,
)
from wrong_declared import WRONG_DECLARED
from wrong_invitations import WHO_IS_A_NODE, WHO_IS_LET_IN
from wrong_redactions import WRONG_REDACTIONS

from deedbook.ledger.events.handoff import (
    HandoffApproved,
    HandoffCompleted,
    HandoffSuperseded,
)
from deedbook.ledger.events.review import ReviewAnswered

WHAT_AN_EVENT_IS: Final = (
    odd("a JSON key stands once", "DUPLICATE_KEY", '"finding":"x"', '"finding":"y","finding":"x"'),
    odd(
        "a JSON key stands once, however spelled", "DUPLICATE_KEY", '"finding":"x"', '"finding":"y","f\\u0069nding":"x"'
    ),
    odd("an integer is one that all readers hold", "INTEGER_OUT_OF_RANGE", "0.5", "9007199254740993"),
    odd("a number is finite", "INVALID_FORMAT", "0.5", "1e999"),
    odd("NaN is no number", "INVALID_FORMAT", "0.5", "NaN"),
    odd("a text is whole Unicode", "INVALID_FORMAT", '"finding":"x"', '"finding":"\\ud800"'),
    odd(
        "a text is whole Unicode, whatever else is wrong",
        "INVALID_FORMAT",
        '"finding":"x"',
        '"finding":"\\ud800","more":1',
    ),
    WrongLog(
        "JSON is UTF-8",
        "INVALID_FORMAT",
        lambda f: f.raw("alice", f.body("alice", SESSION, FINDING).replace(b"cold", b"\xff")),
    ),
    WrongLog("JSON is no deeper than its limit", "NESTING_TOO_DEEP", deep),
    odd("a field is known", "UNKNOWN_FIELD", '"finding":"x"', '"finding":"x","more":1'),
    odd("a kind is known", "UNKNOWN_KIND", "finding.logged", "finding.logged2"),
    odd("a field is of its type", "INVALID_FIELD", "0.5", '"0.5"'),
    odd("a field is in its range", "INVALID_FIELD", "0.5", "1.5"),
    odd("a field is not empty", "INVALID_FIELD", '"finding":"x"', '"finding":""'),
    odd("a field is there", "INVALID_FIELD", '"finding":"x",', ""),
    odd("a kind stands on streams of its family", "INVALID_FIELD", f'"stream":"{SESSION}"', '"stream":"handoff/x"'),
    odd("a day is in the calendar", "INVALID_FIELD", '"at":"20', '"at":"2026-02-30T10:00:00Z","corr":"20'),
    odd("a cause is a ref", "INVALID_FIELD", '"causes":[]', '"causes":["blake3:1"]'),
    odd("a name is of its form", "INVALID_FIELD", '"author":"alice"', '"author":"alice\\n"'),
    odd("a body has a salt", "INVALID_FIELD", f'"salt":"{SALT}",', ""),
    odd("a salt has 22 characters, not 21", "INVALID_FIELD", SALT, SALT[:21]),
    odd("a salt has 22 characters, not 23", "INVALID_FIELD", SALT, SALT + "A"),
    odd("a salt is base64url", "INVALID_FIELD", SALT, "+/" + SALT[2:]),
    odd("a salt has one encoding", "INVALID_FIELD", SALT, SALT[:21] + "B"),
    odd("a stream's name has an end", "TOO_LARGE", f'"stream":"{SESSION}"', '"stream":"session/' + "x" * 400 + '"'),
    WrongLog(
        "a body is no larger than its limit",
        "TOO_LARGE",
        lambda f: f.raw(
            "alice",
            f.body("alice", SESSION, FINDING) + b" " * (48 * 1024 - 128 - len(f.body("alice", SESSION, FINDING)) + 1),
        ),
    ),
    free("an integer is one that all readers hold, wherever it stands", "INTEGER_OUT_OF_RANGE", "9007199254740993"),
    free("a number is finite, wherever it stands", "INVALID_FORMAT", "-1e999"),
    free("a key stands once, wherever it stands", "DUPLICATE_KEY", '{"a":1,"\\u0061":2}'),
    free("nothing is nested deeper than its limit, wherever it stands", "NESTING_TOO_DEEP", "[" * 28 + "]" * 28),
    WrongLog("a blob's upload is no entry", "TRANSITION_NOT_ALLOWED", lambda f: f.submit(f.intent("alice", b"blob"))),
    WrongLog(
        "a record maps to what can be imported",
        "INVALID_FIELD",
        lambda f: f.emit("alice", "record/x", imported(mapped_kind="agent.registered")),
    ),
    WrongLog(
        "a record maps to the fields of its kind",
        "UNKNOWN_FIELD",
        lambda f: f.emit("alice", "session/x", imported(mapped_kind="session.started", mapped={"tasks": "x"})),
    ),
    WrongLog(
        "an unmapped record maps to nothing",
        "INVALID_FIELD",
        lambda f: f.emit("alice", "record/x", imported(mapped={"task": "x"})),
    ),
)

WHAT_AN_ENTRY_IS: Final = (
    WrongLog("an entry counts its stream, and not more", "VERIFICATION_FAILED", counted(stream_version=1)),
    WrongLog("an entry counts its stream, and not less", "VERIFICATION_FAILED", counted(stream_version=-1)),
    WrongLog("an entry counts authority, and not more", "VERIFICATION_FAILED", counted(authority_version=1)),
    WrongLog("an entry counts authority, and not less", "VERIFICATION_FAILED", counted(authority_version=-1)),
    WrongLog("counts begin with one", "INVALID_FORMAT", stored(stream_version=0)),
    WrongLog("an entry is of a known version", "UNSUPPORTED_VERSION", stored(version=2)),
    WrongLog("a signature is of a known algorithm", "UNSUPPORTED_VERSION", stored(alg=2)),
    WrongLog("a time has a date", "INVALID_FORMAT", stored(accepted_ms=253_402_300_800_000)),
    WrongLog("an event is within its batch", "INVALID_FORMAT", stored(batch_index=1)),
    WrongLog("a batch has a limit", "INVALID_FORMAT", stored(batch_size=257)),
    WrongLog("a key has its length", "INVALID_FORMAT", stored(key=bytes(31))),
    WrongLog("a signature has its length", "INVALID_FORMAT", stored(sig=bytes(65))),
    WrongLog("a number has one spelling", "INVALID_FORMAT", spelled(b"\x9a\x01", b"\x9a\xcc\x01")),
    WrongLog("an entry has ten items", "INVALID_FORMAT", spelled(b"\x9a", b"\x99")),
    WrongLog("an entry has one spelling", "INVALID_FORMAT", spelled(b"\x9a", b"\xdc\x00\x0a")),
    WrongLog("an event is signed", "SIGNATURE_INVALID", stored(sig=bytes(64))),
    WrongLog("a signature has one form", "SIGNATURE_INVALID", malleable),
    WrongLog("a batch has at most so many bytes", "TOO_LARGE", batch_of(20, 48_000), index=-20),
    WrongLog("a batch is in the order that was signed", "SIGNATURE_INVALID", batch_swapped, index=-2),
    WrongLog("nothing follows an entry", "INVALID_FORMAT", ended_with(b"\0")),
    WrongLog("an entry has numbers where numbers belong", "INVALID_FORMAT", spelled(b"\x9a\x01", b"\x9a\xc4\x01\x01")),
    WrongLog("a checkpoint is signed by its key", "VERIFICATION_FAILED", checkpoint_signed_with("root"), index=None),
    WrongLog("a replaced checkpoint key signs no checkpoint", "VERIFICATION_FAILED", checkpoint_rotated, index=None),
)

WHAT_A_KIND_ALLOWS: Final = (
    WrongLog("a handoff is created once", "TRANSITION_NOT_ALLOWED", handed("open")),
    WrongLog(
        "an approval is of the present version",
        "VERSION_MISMATCH",
        then(handed("x"), lambda f: f.emit("rita", "handoff/x", HandoffApproved(version="blake3:" + "1" * 64))),
    ),
    WrongLog(
        "a handoff is completed when its criteria are met",
        "CRITERIA_OPEN",
        then(lambda f: f.claim("open"), lambda f: f.emit("bob", "handoff/open", HandoffCompleted())),
    ),
    WrongLog(
        "handoffs do not wait for each other",
        "DEPENDENCY_CYCLE",
        then(handed("a", depends_on=["b"]), handed("b", depends_on=["a"])),
    ),
    WrongLog(
        "a handoff gives its place to one that is there",
        "NOT_FOUND",
        lambda f: f.emit("alice", "handoff/open", HandoffSuperseded(by="nothing")),
    ),
    WrongLog("a session is its owner's", "NOT_AUTHORIZED", lambda f: finding(f, "bob")),
    WrongLog("a step is added once", "STEP_CONFLICT", reasoning(1, 1)),
    WrongLog(
        "a snapshot is taken once",
        "TRANSITION_NOT_ALLOWED",
        then(*[lambda f: example(f, "alice", "snapshot/s", "snapshot.taken")] * 2),
    ),
    WrongLog(
        "a review is answered once",
        "TRANSITION_NOT_ALLOWED",
        then(
            lambda f: f.emit("alice", "review/v", ASKED),
            *[lambda f: f.emit("rita", "review/v", ReviewAnswered(verdict="approved"))] * 2,
        ),
    ),
)

WRONG_LOGS: Final = (
    *WHO_REGISTERS,
    *WHO_HOLDS_WHICH_ROLE,
    *WHICH_KEY_SIGNS,
    *WHO_CHANGES_KEYS,
    *WHAT_THE_LEDGER_SAYS,
    *HOW_A_LOG_IS_KEPT,
    *WHO_IS_LET_IN,
    *WHO_IS_A_NODE,
    *WHAT_AN_EVENT_IS,
    *WHAT_AN_ENTRY_IS,
    *WHAT_A_KIND_ALLOWS,
    *WRONG_REDACTIONS,
    *WRONG_DECLARED,
)
