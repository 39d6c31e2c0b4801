"""Every error Deedbook raises, and every code it answers with.

The tree is grouped by who must act:

    DeedbookError
    ├── Refused        the caller: the request cannot be accepted as it is
    ├── Unavailable    the operator: the store, the bus or a key cannot be used now
    └── Corrupted      nobody can repair it by retrying: stop, keep the evidence, audit

A code is stable: it is published in ``proto/errors.json`` (generated from ``CODES``), carried in every answer as
``{"code", "message", "recoverable", "details"}``, and decides the exit code of the command line. Foreign exceptions are
translated where the foreign call is made, so callers never see an ``lmdb`` or ``nats`` exception.

    >>> str(Refused("NOT_FOUND", "there is no handoff h9"))
    'NOT_FOUND: there is no handoff h9'

So a traceback shows the code; texts that show it elsewhere, or not at all, use ``message``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from enum import IntEnum
from typing import Any, Final, Self, TypeVar, assert_never

import msgspec

T = TypeVar("T")


class Exit(IntEnum):
    """Exit codes of the command line."""

    OK = 0
    UNEXPECTED = 1
    USAGE = 2
    NOT_FOUND = 3
    CONFLICT = 4
    GATED = 5
    UNVERIFIED = 6
    UNAVAILABLE = 7


class Code(msgspec.Struct, frozen=True):
    """What a code means: its exit code, whether the same request may succeed later, and one sentence."""

    exit: Exit
    recoverable: bool
    meaning: str


CODES: dict[str, Code] = {
    # The bytes or their form.
    "INVALID_FORMAT": Code(Exit.USAGE, False, "The bytes do not have the form that is required here."),
    "TOO_LARGE": Code(Exit.USAGE, False, "The event, request or blob is larger than its stated limit."),
    "NESTING_TOO_DEEP": Code(Exit.USAGE, False, "The JSON is nested deeper than the limit."),
    "DUPLICATE_KEY": Code(Exit.USAGE, False, "A JSON object has the same key twice."),
    "INTEGER_OUT_OF_RANGE": Code(Exit.USAGE, False, "An integer lies outside ±(2^53−1)."),
    "UNKNOWN_KIND": Code(Exit.USAGE, False, "The ledger knows no such kind of event."),
    "UNKNOWN_FIELD": Code(Exit.USAGE, False, "A field is not part of this kind of event."),
    "INVALID_FIELD": Code(Exit.USAGE, False, "A field is missing, or its value is not allowed."),
    "UNSUPPORTED_VERSION": Code(Exit.USAGE, False, "The data is of a format version this software does not read."),
    "USAGE": Code(Exit.USAGE, False, "The command was called in a way it cannot be run."),
    "NOT_ACCEPTABLE": Code(Exit.USAGE, False, "There is no answer in a form that the request accepts."),
    # Signature, key and author.
    "SIGNATURE_INVALID": Code(Exit.GATED, False, "The signature does not fit the bytes and the key."),
    "KEY_UNKNOWN": Code(Exit.GATED, False, "The signing key is not registered in this ledger."),
    "KEY_REVOKED": Code(Exit.GATED, False, "The signing key was revoked before this event."),
    "KEY_EXPIRED": Code(Exit.GATED, False, "The delegated key has expired."),
    "KEY_EXHAUSTED": Code(Exit.GATED, False, "The delegated key has signed as many events as it may."),
    "KEY_OUT_OF_SCOPE": Code(Exit.GATED, False, "The delegated key may not sign this kind or stream."),
    "KEY_EXISTS": Code(Exit.CONFLICT, False, "The key is registered already."),
    "KEY_LOCKED": Code(Exit.GATED, True, "The key is sealed with a passphrase that was not given or is wrong."),
    "KEY_FILE_MISSING": Code(Exit.NOT_FOUND, True, "There is no key file for this agent."),
    "KEY_FILE_MODE": Code(Exit.GATED, True, "The key file can be read by others."),
    "AUTHOR_MISMATCH": Code(Exit.GATED, False, "The author named in the event does not own the signing key."),
    "WRONG_LEDGER": Code(Exit.CONFLICT, False, "The event was made for another ledger."),
    # Order and repetition.
    "CHUNK_MISPLACED": Code(Exit.CONFLICT, True, "The chunk is not the next one of an upload that was begun."),
    "STREAM_CONFLICT": Code(Exit.CONFLICT, True, "The stream is not at the version the author expected."),
    "IDEMPOTENCY_CONFLICT": Code(Exit.CONFLICT, False, "The idempotency key was used for other content."),
    "PARTIAL_RETRY": Code(Exit.CONFLICT, False, "Some events of the submission are in the ledger already."),
    "DEPENDS_ON_REFUSED": Code(Exit.CONFLICT, True, "An earlier event of the same submission was refused."),
    "ALREADY_RECORDED": Code(Exit.CONFLICT, False, "The event is in the ledger, signed with another key."),
    "SECRET_DETECTED": Code(Exit.GATED, False, "A field or text holds what looks like a credential."),
    # Who may do what, in which state.
    "NOT_TRUSTED": Code(Exit.GATED, True, "This user has not trusted the ledger's folder, or a setting of it."),
    "TOKEN_INVALID": Code(Exit.GATED, False, "The bearer token is missing, unknown, expired or of nobody here."),
    "NOT_AUTHORIZED": Code(Exit.GATED, False, "The author does not have the role or part that this event needs."),
    "NOT_INVITED": Code(Exit.GATED, False, "No open invitation lets this agent register itself so."),
    "AGENT_EXISTS": Code(Exit.CONFLICT, False, "An agent of this name is registered already."),
    "AGENT_UNKNOWN": Code(Exit.NOT_FOUND, False, "No agent of this name is registered."),
    "TRANSITION_NOT_ALLOWED": Code(Exit.CONFLICT, False, "The event does not follow from the present state."),
    "NOTHING_CHANGED": Code(Exit.CONFLICT, False, "What the event would set is so already."),
    "NOT_APPROVED": Code(Exit.GATED, True, "The handoff has not been approved."),
    "SELF_APPROVAL": Code(Exit.GATED, False, "The sender or receiver of a handoff cannot review it."),
    "REVIEWER_REQUIRED": Code(Exit.GATED, False, "Only a human may create a handoff without a reviewer."),
    "VERSION_MISMATCH": Code(Exit.CONFLICT, False, "What was given names another version."),
    "ALREADY_CLAIMED": Code(Exit.CONFLICT, False, "The handoff was claimed first by somebody else or earlier."),
    "DEPENDENCY_PENDING": Code(Exit.GATED, True, "A handoff this one depends on has not unlocked it."),
    "DEPENDENCY_MISSING": Code(Exit.GATED, True, "A handoff this one depends on does not exist."),
    "DEPENDENCY_CYCLE": Code(Exit.CONFLICT, False, "The handoff would depend on itself."),
    "CRITERIA_OPEN": Code(Exit.GATED, True, "An acceptance criterion is neither checked nor waived."),
    "CLOCK_JUMPED": Code(Exit.GATED, True, "The clock is too far from the last entry's: root must set it."),
    "STEP_CONFLICT": Code(Exit.CONFLICT, False, "A reasoning step or dependency does not fit the steps before it."),
    "EDITED_BY_HAND": Code(Exit.CONFLICT, True, "A person changed what would be replaced or removed."),
    "EMBEDDER_MISMATCH": Code(Exit.CONFLICT, False, "Vectors of different embedders cannot be compared."),
    # Finding things.
    "PATTERN_NOT_SUPPORTED": Code(Exit.USAGE, False, "The pattern is no regular expression that RE2 takes."),
    "NOT_FOUND": Code(Exit.NOT_FOUND, False, "There is no such thing in this ledger."),
    "REF_AMBIGUOUS": Code(Exit.CONFLICT, False, "The shortened reference fits more than one thing."),
    "NO_LEDGER": Code(Exit.UNAVAILABLE, True, "There is no ledger in this folder or any above it."),
    "LEDGER_EXISTS": Code(Exit.CONFLICT, False, "There is a ledger in this folder already, or one with this root key."),
    # Store and bus.
    "STORE_UNAVAILABLE": Code(Exit.UNAVAILABLE, True, "The store cannot be opened or written."),
    "STORE_FULL": Code(Exit.UNAVAILABLE, True, "The store's map or disk is full."),
    "STORE_STOPPED": Code(Exit.UNAVAILABLE, True, "A write failed, and this process can use the store no more."),
    "STORE_IN_USE": Code(Exit.UNAVAILABLE, True, "Another process holds what this command needs alone."),
    "BUS_UNAVAILABLE": Code(Exit.UNAVAILABLE, True, "The bus did not answer."),
    "SPOOLED": Code(Exit.UNAVAILABLE, False, "The ledger is away: the operation is stored here, and not recorded yet."),
    "SPOOL_FULL": Code(Exit.UNAVAILABLE, True, "The ledger is away, and as much is kept here as may be."),
    "NOT_LEADER": Code(Exit.UNAVAILABLE, True, "Of several nodes of this ledger another one leads, or none does now."),
    "BUS_DENIED": Code(Exit.GATED, False, "The bus does not allow this agent to do that."),
    "BUS_DEGRADED": Code(Exit.UNAVAILABLE, True, "The stream on the bus is not what the ledger published."),
    "SERVER_MISSING": Code(Exit.UNAVAILABLE, True, "No suitable nats-server program was found."),
    "EXTRA_MISSING": Code(Exit.UNAVAILABLE, True, "An optional part of Deedbook that this needs is not installed."),
    "BUSY": Code(Exit.UNAVAILABLE, True, "Too many requests wait already."),
    "QUOTA_EXCEEDED": Code(Exit.UNAVAILABLE, True, "The agent has appended or stored as much as one agent may now."),
    "LLM_UNAVAILABLE": Code(Exit.UNAVAILABLE, True, "The language model cannot be asked now."),
    "LLM_INVALID": Code(Exit.UNAVAILABLE, True, "The language model's answer is not what was asked for."),
    # A Tree-of-Thoughts search.
    "GENERATION_FAILED": Code(Exit.UNAVAILABLE, True, "The thinker gave no usable candidates."),
    "EVALUATION_TIMEOUT": Code(Exit.UNAVAILABLE, True, "The evaluation took longer than it may."),
    "SEARCH_EXHAUSTED": Code(Exit.NOT_FOUND, False, "The search ended within its limits without a solution."),
    "SEARCH_STOPPED": Code(Exit.NOT_FOUND, False, "The search was ended for good by its user."),
    # Verification.
    "VERIFICATION_FAILED": Code(Exit.UNVERIFIED, False, "What was verified is not what it claims to be."),
    "HISTORY_CHANGED": Code(Exit.UNVERIFIED, False, "The log is not the one that was read before, or a shorter one."),
    "NOT_WITNESSED": Code(Exit.UNVERIFIED, True, "Too few witnesses have cosigned the checkpoint for the policy."),
    "CORRUPTED": Code(Exit.UNVERIFIED, False, "Stored data is damaged."),
    "UNEXPECTED": Code(Exit.UNEXPECTED, False, "An error nobody foresaw: please report it."),
}


# What to do with content that is too large for an event.
AS_A_BLOB: Final = "store it by `deed blob put FILE` (Python: ledger.put_blob(content)) and refer to it by its ref"


class DeedbookError(Exception):
    """The base of every error; carries a stable code and what a program needs to act on it."""

    def __init__(self, code: str, message: str, **details: Any) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message
        self.details = details

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"

    @property
    def exit_code(self) -> Exit:
        """The command line's exit code for this error."""
        return CODES[self.code].exit

    @property
    def recoverable(self) -> bool:
        """Whether the same request may succeed later."""
        return CODES[self.code].recoverable

    def to_dict(self) -> dict[str, Any]:
        """Return the published form ``{"code", "message", "recoverable", "details"}``."""
        return {"code": self.code, "message": self.message, "recoverable": self.recoverable, "details": self.details}

    @classmethod
    def from_dict(cls, answer: dict[str, Any]) -> DeedbookError:
        """Rebuild the error that ``to_dict`` published, as the class that fits its code."""
        code = str(answer.get("code", "UNEXPECTED"))
        if code not in CODES:
            code = "UNEXPECTED"
        kind = _class_of(code)
        return kind(code, str(answer.get("message", CODES[code].meaning)), **dict(answer.get("details") or {}))

    def with_details(self, **details: Any) -> Self:
        """Add details where the error passes somebody who knows more, and return it."""
        self.details |= details
        return self


class Refused(DeedbookError):
    """The caller must act: what was asked for cannot be accepted as it is."""


class Unavailable(DeedbookError):
    """The operator must act: the store, the bus or a key cannot be used now."""


class Corrupted(DeedbookError):
    """Stored or exported data is not what was written: stop, and audit."""


def near(asked: str, names: Iterable[str]) -> list[str]:
    """Return the names, at most three, that are written much like the one that does not exist, the nearest first."""
    return get_close_matches(asked, {*names}, n=3, cutoff=0.65)


def did_you_mean(names: Sequence[str]) -> str:
    """Return the question that a refusal ends with where there are names ``near`` to what was asked for."""
    return f": did you mean {' or '.join(names)}?" if names else ""


def or_none(ask: Callable[..., T], *given: Any) -> T | None:
    """Return what is asked for; None where it is not there (``NOT_FOUND``)."""
    try:
        return ask(*given)
    except Refused as refusal:
        if refusal.code != "NOT_FOUND":
            raise
        return None


def message_of(error: BaseException) -> str:
    """Return what an exception says, without the code of ours."""
    return error.message if isinstance(error, DeedbookError) else str(error)


def _class_of(code: str) -> type[DeedbookError]:
    exit_code = CODES[code].exit
    match exit_code:
        case Exit.OK | Exit.USAGE | Exit.NOT_FOUND | Exit.CONFLICT | Exit.GATED:
            return Refused
        case Exit.UNAVAILABLE:
            return Unavailable
        case Exit.UNVERIFIED:
            return Corrupted
        case Exit.UNEXPECTED:
            return DeedbookError
        case _:
            assert_never(exit_code)
