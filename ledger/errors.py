"""Every error Deedbook raises, and every code it answers with.

The classes are grouped by who must act:

    DeedbookError
    ├── Refused        the caller: the request cannot be accepted as it is
    ├── Unavailable    the operator: the store, the bus or a key cannot be used now
    └── Corrupted      a retry does not repair it: stop, keep the evidence, audit

A code is stable. It is published in ``proto/errors.json`` (generated from ``CODES``), every answer carries it as
``{"code", "message", "recoverable", "details"}``, and it decides the exit code of the command line. Foreign exceptions
are translated where the foreign call is made, so callers never see an ``lmdb`` or ``nats`` exception.

    >>> str(Refused("NOT_FOUND", "there is no handoff h9"))
    'NOT_FOUND: there is no handoff h9'

So a traceback shows the code. Use ``message`` where the code is shown elsewhere, or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from enum import IntEnum
from functools import cache, cached_property
from itertools import chain
from typing import Any, Final, NoReturn, Self, TypeVar, assert_never

import msgspec

from deedbook.ledger import families

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
    NOT_INSTALLED = 8
    SPOOLED = 9


class Code(msgspec.Struct, frozen=True):
    """The meaning of a code: its exit code, whether it is recoverable, and one sentence.

    Recoverable means that repeating the same request can help: its cause can disappear by itself, or when another agent
    does its part. If the caller or its user must do something first (unseal a key, tick a criterion, install a
    package), the code is not recoverable. ``remedy`` is the next step for a reader of a family's code; ``REMEDIES`` has
    the steps for other codes.
    """

    exit: Exit
    recoverable: bool
    meaning: str
    remedy: str = ""


_CORE_CODES: Final[dict[str, Code]] = {
    # Format of the bytes.
    "INVALID_FORMAT": Code(Exit.USAGE, False, "The bytes are not in the required format."),
    "TOO_LARGE": Code(Exit.USAGE, False, "The event, request or blob is larger than its stated limit."),
    "NESTING_TOO_DEEP": Code(Exit.USAGE, False, "The JSON is nested deeper than the limit."),
    "DUPLICATE_KEY": Code(Exit.USAGE, False, "A JSON object contains the same key twice."),
    "INTEGER_OUT_OF_RANGE": Code(Exit.USAGE, False, "An integer is outside ±(2^53−1)."),
    "UNKNOWN_KIND": Code(Exit.USAGE, False, "The ledger has no event kind with this name."),
    "FAMILY_MISSING": Code(Exit.USAGE, False, "The kind is of a family whose package is not installed here."),
    "FAMILY_UNUSABLE": Code(Exit.USAGE, False, "The package of the kind's family is installed and cannot be used."),
    "UNKNOWN_FIELD": Code(Exit.USAGE, False, "There is no field or argument with this name."),
    "INVALID_FIELD": Code(Exit.USAGE, False, "A field is missing, or its value is not allowed."),
    "UNSUPPORTED_VERSION": Code(Exit.USAGE, False, "This software cannot read this format version."),
    "USAGE": Code(Exit.USAGE, False, "The call has wrong or missing arguments."),
    "NOT_ACCEPTABLE": Code(Exit.USAGE, False, "The server has no answer in a format that the request accepts."),
    # Signature, key and author.
    "SIGNATURE_INVALID": Code(Exit.GATED, False, "The signature does not match the bytes and the key."),
    "KEY_UNKNOWN": Code(Exit.GATED, False, "The signing key is not registered in this ledger."),
    "KEY_REVOKED": Code(Exit.GATED, False, "The signing key was revoked before this event."),
    "KEY_EXPIRED": Code(Exit.GATED, False, "The delegated key has expired."),
    "KEY_EXHAUSTED": Code(Exit.GATED, False, "The delegated key has signed as many events as it was allowed."),
    "KEY_OUT_OF_SCOPE": Code(Exit.GATED, False, "The delegated key may not sign this kind or stream."),
    "KEY_EXISTS": Code(Exit.CONFLICT, False, "The key is already registered."),
    "KEY_LOCKED": Code(Exit.GATED, False, "The key is sealed with a passphrase. The passphrase is missing or wrong."),
    "KEY_FILE_MISSING": Code(Exit.NOT_FOUND, False, "There is no key file for this agent."),
    "KEY_FILE_MODE": Code(Exit.GATED, False, "Other users can read the key file."),
    "SUBJECT_KEY_MISSING": Code(Exit.NOT_FOUND, False, "The key of this sealed content is not here."),
    "SUBJECT_KEY_WRONG": Code(Exit.GATED, False, "The subject's key here is not the one that sealed this content."),
    "SUBJECT_KEY_FIXED": Code(Exit.GATED, False, "The key service gives no key away and takes none."),
    "SUBJECT_ERASED": Code(Exit.GATED, False, "The subject was erased: its sealed content cannot be read any more."),
    "KEY_SERVICE_UNAVAILABLE": Code(Exit.UNAVAILABLE, True, "The service that has the subjects' keys cannot be used."),
    "AUTHOR_MISMATCH": Code(Exit.GATED, False, "The author named in the event does not own the signing key."),
    "WRONG_LEDGER": Code(Exit.CONFLICT, False, "The event was made for another ledger."),
    # Order and retries.
    "CHUNK_MISPLACED": Code(Exit.CONFLICT, False, "The chunk is not the next chunk of an upload in progress."),
    "STREAM_CONFLICT": Code(Exit.CONFLICT, True, "The stream is not at the version the author expected."),
    "IDEMPOTENCY_CONFLICT": Code(Exit.CONFLICT, False, "The idempotency key was already used for different content."),
    "PARTIAL_RETRY": Code(Exit.CONFLICT, False, "Some events of the submission are already in the ledger."),
    "DEPENDS_ON_REFUSED": Code(Exit.CONFLICT, False, "An earlier event of the same submission was refused."),
    "ALREADY_RECORDED": Code(Exit.CONFLICT, False, "The event is already in the ledger, signed with another key."),
    "SECRET_DETECTED": Code(Exit.GATED, False, "A field or text contains something that looks like a credential."),
    # Authorization and state.
    "NOT_TRUSTED": Code(Exit.GATED, False, "This user has not trusted the ledger's folder or one of its settings."),
    "TOKEN_INVALID": Code(Exit.GATED, False, "The bearer token is missing, unknown or expired, or belongs to nobody."),
    "NOT_AUTHORIZED": Code(Exit.GATED, False, "The author lacks the role or the part that this event needs."),
    "NOT_INVITED": Code(Exit.GATED, False, "No open invitation allows this registration."),
    "AGENT_EXISTS": Code(Exit.CONFLICT, False, "An agent with this name is already registered."),
    "AGENT_UNKNOWN": Code(Exit.NOT_FOUND, False, "No agent with this name is registered."),
    "KIND_EXISTS": Code(Exit.CONFLICT, False, "A kind with this name is declared already, and never changes."),
    "TRANSITION_NOT_ALLOWED": Code(Exit.CONFLICT, False, "The current state does not allow this event."),
    "NOTHING_CHANGED": Code(Exit.CONFLICT, False, "The event would change nothing."),
    "NOT_APPROVED": Code(Exit.GATED, True, "The handoff has not been approved."),
    "SELF_APPROVAL": Code(Exit.GATED, False, "Nobody reviews their own work."),
    "REVIEWER_REQUIRED": Code(Exit.GATED, False, "Only a human may create a handoff without a reviewer."),
    "VERSION_MISMATCH": Code(Exit.CONFLICT, False, "The request names a version that is not the current one."),
    "ALREADY_CLAIMED": Code(Exit.CONFLICT, False, "The handoff has already been claimed."),
    "DEPENDENCY_PENDING": Code(Exit.GATED, True, "The handoff waits for another handoff that is not finished."),
    "DEPENDENCY_MISSING": Code(Exit.GATED, False, "The handoff depends on a handoff that does not exist."),
    "DEPENDENCY_CYCLE": Code(Exit.CONFLICT, False, "The handoff would depend on itself."),
    "QUESTION_OPEN": Code(Exit.GATED, False, "A question to the receiver of the handoff is not settled."),
    "CRITERIA_OPEN": Code(Exit.GATED, False, "An acceptance criterion is neither checked nor waived."),
    "CLOCK_JUMPED": Code(Exit.GATED, False, "The clock is too far from the time of the last entry. Root must set it."),
    "STEP_CONFLICT": Code(Exit.CONFLICT, False, "A reasoning step or dependency conflicts with the steps before it."),
    "EDITED_BY_HAND": Code(Exit.CONFLICT, False, "A person changed the content that would be replaced or removed."),
    "FILE_EXISTS": Code(Exit.CONFLICT, False, "There is a file with this name, and it is not replaced unasked."),
    "EMBEDDER_MISMATCH": Code(Exit.CONFLICT, False, "Vectors from different embedders cannot be compared."),
    # Lookups.
    "PATTERN_NOT_SUPPORTED": Code(Exit.USAGE, False, "The pattern is not a regular expression that RE2 supports."),
    "NOT_FOUND": Code(Exit.NOT_FOUND, False, "The ledger does not contain the requested item."),
    "REF_AMBIGUOUS": Code(Exit.CONFLICT, False, "The shortened reference matches more than one item."),
    "NO_LEDGER": Code(Exit.UNAVAILABLE, False, "There is no ledger in this folder or any above it."),
    "LEDGER_EXISTS": Code(Exit.CONFLICT, False, "This folder has a ledger already, or one with this root key exists."),
    # Store and bus.
    "STORE_UNAVAILABLE": Code(Exit.UNAVAILABLE, True, "The store cannot be opened or written."),
    "STORE_FULL": Code(Exit.UNAVAILABLE, True, "The store's map or disk is full."),
    "STORE_STOPPED": Code(Exit.UNAVAILABLE, True, "A write failed, so this process can no longer use the store."),
    "STORE_IN_USE": Code(Exit.UNAVAILABLE, True, "Another process holds a lock that this command needs."),
    "BUS_UNAVAILABLE": Code(Exit.UNAVAILABLE, True, "The bus did not answer."),
    "SPOOLED": Code(Exit.SPOOLED, False, "The ledger cannot record the event now. It is spooled, not recorded."),
    "SPOOL_FULL": Code(Exit.UNAVAILABLE, True, "The ledger cannot record the event now, and the local spool is full."),
    "SPOOL_UNAVAILABLE": Code(Exit.UNAVAILABLE, True, "The files of the local spool cannot be read or written."),
    "SHARED_LOG": Code(Exit.UNAVAILABLE, False, "Several nodes share this log: only a running node writes to it."),
    "BUS_DENIED": Code(Exit.GATED, False, "The bus does not allow this agent to do that."),
    "BUS_DEGRADED": Code(Exit.UNAVAILABLE, True, "The stream on the bus differs from what the ledger published."),
    "SERVER_MISSING": Code(Exit.NOT_INSTALLED, False, "No suitable nats-server program was found."),
    "EXTRA_MISSING": Code(Exit.NOT_INSTALLED, False, "This needs an optional part of Deedbook that is not installed."),
    "BUSY": Code(Exit.UNAVAILABLE, True, "Too many requests are already waiting."),
    "QUOTA_EXCEEDED": Code(Exit.UNAVAILABLE, True, "The agent has used up its quota of appended or stored data."),
    "LLM_UNAVAILABLE": Code(Exit.UNAVAILABLE, True, "The language model is not available now."),
    "LLM_INVALID": Code(Exit.UNAVAILABLE, True, "The language model's answer does not have the requested form."),
    # Verification.
    "ERASED_BODY_SERVED": Code(Exit.UNVERIFIED, False, "The ledger still sends a body that its log says was erased."),
    "VERIFICATION_FAILED": Code(Exit.UNVERIFIED, False, "The verified data is not what it claims to be."),
    "HISTORY_CHANGED": Code(Exit.UNVERIFIED, False, "The log differs from the one read before, or is shorter."),
    "NOT_WITNESSED": Code(Exit.UNVERIFIED, True, "Too few witnesses have cosigned the checkpoint for the policy."),
    "CORRUPTED": Code(Exit.UNVERIFIED, False, "Stored data is damaged."),
    "UNEXPECTED": Code(Exit.UNEXPECTED, False, "An unforeseen error. Please report it."),
}

REMEDIES: dict[str, str] = {
    "INVALID_FORMAT": "Send the form that the message names; proto/README.md specifies each one.",
    "TOO_LARGE": "Store large content as a blob (`deed blob put`) and refer to it by its hash, or split it.",
    "NESTING_TOO_DEEP": "Make the JSON flatter.",
    "DUPLICATE_KEY": "Give each key of an object once.",
    "INTEGER_OUT_OF_RANGE": "Write the number as a text.",
    "UNKNOWN_KIND": "Use a kind that the message suggests, or update Deedbook: the kind may be newer.",
    "FAMILY_MISSING": "Install the package that the message names.",
    "FAMILY_UNUSABLE": "Repair or update the package that the message names.",
    "UNKNOWN_FIELD": "Use one of the names in `details.near`, or leave the field out.",
    "INVALID_FIELD": "Correct the field that the message names.",
    "UNSUPPORTED_VERSION": "Install a newer Deedbook.",
    "USAGE": "Read `--help` of the command, and correct the arguments.",
    "NOT_ACCEPTABLE": "Accept one of the formats that the message names.",
    "SIGNATURE_INVALID": "Sign exactly the bytes that are sent, with the author's key.",
    "KEY_UNKNOWN": "Register the agent (`deed agent add` or `deed join`), or use a key of `deed key list`.",
    "KEY_REVOKED": "Sign with the agent's present key.",
    "KEY_EXPIRED": "Delegate a new key: `deed key delegate`.",
    "KEY_EXHAUSTED": "Delegate a new key: `deed key delegate`.",
    "KEY_OUT_OF_SCOPE": "Sign with the identity key, or delegate a key with this scope.",
    "KEY_EXISTS": "Make a new key for this agent.",
    "KEY_LOCKED": "Enter the passphrase in a terminal, or give it with `--passphrase-fd`.",
    "KEY_FILE_MISSING": "Act on the machine that has the key, restore the key from a backup made with --keys, or "
    "replace the lost key: `deed key rotate --lost`.",
    "KEY_FILE_MODE": "Run `chmod 600` on the file. If somebody may have read it, report the key as compromised.",
    "SUBJECT_KEY_MISSING": "Ask somebody who has the key to run `deed seal export`, then run `deed seal import`.",
    "SUBJECT_KEY_WRONG": "Import the key of this subject from where the content was sealed.",
    "SUBJECT_KEY_FIXED": "Give the reader access to the token, as its maker describes.",
    "SUBJECT_ERASED": "Nothing brings the content back. Seal new content for another subject.",
    "KEY_SERVICE_UNAVAILABLE": "Repair what the message names in `[seal]` of `config.toml`, then try again.",
    "AUTHOR_MISMATCH": "Name the agent that owns the key as the author.",
    "WRONG_LEDGER": "Send it to the ledger that it names, or sign it again for this one.",
    "CHUNK_MISPLACED": "Send the chunk that the message names; an upload continues there.",
    "STREAM_CONFLICT": "Read the stream again, decide again, and sign with the new version.",
    "IDEMPOTENCY_CONFLICT": "Use a new idempotency key for different content.",
    "PARTIAL_RETRY": "Send again exactly the same submission, or only the events that are missing.",
    "DEPENDS_ON_REFUSED": "Correct the event that was refused first, and send the submission again.",
    "ALREADY_RECORDED": "Nothing: the event is in the ledger.",
    "SECRET_DETECTED": "Write where the secret is stored, not the secret. A human may allow text that is no secret.",
    "NOT_TRUSTED": "Run `deed trust`, read the settings, and agree if you want them.",
    "TOKEN_INVALID": "Create a new token: `deed token create`.",
    "NOT_AUTHORIZED": "Let an agent act who has the role; the message names it.",
    "NOT_INVITED": "Ask for a new code: `deed agent invite`.",
    "AGENT_EXISTS": "Choose another name. Names of removed agents are never used again.",
    "AGENT_UNKNOWN": "Look for the name in `deed agent list`, or register it.",
    "KIND_EXISTS": "Use the declared kind (`deed kind show`), or declare another name.",
    "TRANSITION_NOT_ALLOWED": "Look at the state (`deed handoff why`); the message says what is possible now.",
    "NOTHING_CHANGED": "Nothing: the state is already so.",
    "NOT_APPROVED": "Wait for the reviewer; `deed handoff why` says who it is.",
    "SELF_APPROVAL": "Let another agent or person review.",
    "REVIEWER_REQUIRED": "Name a reviewer with `--reviewer`.",
    "VERSION_MISMATCH": "Read the present version, and decide about that one.",
    "ALREADY_CLAIMED": "Take other work (`deed next`), or wait until the lease ends.",
    "DEPENDENCY_PENDING": "Wait for the handoff that the message names.",
    "DEPENDENCY_MISSING": "Correct the name: `deed handoff amend --depends-on`.",
    "DEPENDENCY_CYCLE": "Remove the dependency that leads back.",
    "QUESTION_OPEN": "Answer the question; who asked settles it.",
    "CRITERIA_OPEN": "Tick the criteria with evidence, or ask the reviewer to waive them.",
    "CLOCK_JUMPED": "Compare the clocks with `deed clock`; root runs `deed clock set` if the machine's is right.",
    "STEP_CONFLICT": "Read the reasoning again, and number the step by it.",
    "EDITED_BY_HAND": "Look at the change, and keep or remove it yourself.",
    "FILE_EXISTS": "Choose another name, or remove the file.",
    "EMBEDDER_MISMATCH": "Use the same embedder for both, such as the extra `semantic`.",
    "PATTERN_NOT_SUPPORTED": "Write the pattern without look-around and back-references (RE2).",
    "NOT_FOUND": "Check the name; `details.near` has similar ones.",
    "REF_AMBIGUOUS": "Give more characters of the reference.",
    "NO_LEDGER": "Go to the ledger's folder, name it with `--home`, or make one: `deed init`.",
    "LEDGER_EXISTS": "Use the ledger that is there, or choose another folder.",
    "STORE_UNAVAILABLE": "Read the message: free the file or repair the disk or server, then try again.",
    "STORE_FULL": "Free disk space, or raise `map_size_bytes`; the runbook has the steps.",
    "STORE_STOPPED": "Start the process again: it recovers by itself.",
    "STORE_IN_USE": "Wait until the other process ends, or stop it.",
    "BUS_UNAVAILABLE": "Start `deed serve`, or give its address: `deed join --address URL`. `--spool` stores reports.",
    "SPOOLED": "Do not send it again: the next operation that reaches the ledger sends it first.",
    "SPOOL_FULL": "Publish again when a node answers and the spool has been sent.",
    "SPOOL_UNAVAILABLE": "Repair the spool's folder, then publish again.",
    "SHARED_LOG": "Use `--server` with the addresses of the nodes.",
    "BUS_DENIED": "Check that the agent is registered and its bus key is the present one: `deed doctor`.",
    "BUS_DEGRADED": "Restart the node, or rebuild the stream; the runbook has the steps.",
    "SERVER_MISSING": "Run `pip install 'deedbook[server]'`, or name the program in `nats_server` of `config.toml`.",
    "EXTRA_MISSING": "Install the extra that the message names.",
    "BUSY": "Try again after a pause.",
    "QUOTA_EXCEEDED": "Wait, write less, or raise `[quota]` in `config.toml`.",
    "LLM_UNAVAILABLE": "Try again later; `deed doctor --llm` shows what the model answers.",
    "LLM_INVALID": "Try again, or use a model that follows the form.",
    "ERASED_BODY_SERVED": "Tell the node's operator: the node must erase the body.",
    "VERIFICATION_FAILED": "Do not rely on the data. The report names each fault; ask where it came from.",
    "HISTORY_CHANGED": "Stop, and keep both copies. Ask the operator for a signed history reset; see the runbook.",
    "NOT_WITNESSED": "Wait for the witnesses; `deed doctor` shows how far the log is witnessed.",
    "CORRUPTED": "Stop, keep the folder, and run `deed fsck`. Then restore a backup; see the runbook.",
    "UNEXPECTED": "Report it with the output of the same command under `DEEDBOOK_TRACEBACK=1`.",
}
"""The next step of somebody who reads a code of the core. A message says it for the case at hand."""


class _Codes(Mapping[str, Code]):
    """The core's codes, then those of the families that can be used."""

    def __getitem__(self, code: str) -> Code:
        known = _CORE_CODES.get(code)
        return _codes_of_families()[code] if known is None else known

    def __iter__(self) -> Iterator[str]:
        return chain(_CORE_CODES, _codes_of_families())

    def __len__(self) -> int:
        return len(_CORE_CODES) + len(_codes_of_families())


@cache
def _codes_of_families() -> dict[str, Code]:
    codes: dict[str, Code] = {}
    for family in families.installed():
        if family.codes:
            with suppress(Exception):  # a program that needs the family gets the error
                codes = families.load(family.codes) | codes
    return {code: meaning for code, meaning in codes.items() if code not in _CORE_CODES}


CODES: Final[Mapping[str, Code]] = _Codes()


# The next step for content that is too large for an event.
AS_A_BLOB: Final = "store large content with `deed blob put FILE` (Python: ledger.put_blob(content)) and name its ref"


def remedy_of(code: str) -> str:
    """Return the next step of somebody who reads a code."""
    return REMEDIES.get(code) or CODES[code].remedy


class DeedbookError(Exception):
    """The base of every error: a stable code, a message for people, and details for programs."""

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
        """Whether it can help to repeat the same request (``Code``)."""
        return CODES[self.code].recoverable

    def to_dict(self) -> dict[str, Any]:
        """Return the published form ``{"code", "message", "recoverable", "details"}``."""
        return {"code": self.code, "message": self.message, "recoverable": self.recoverable, "details": self.details}

    @classmethod
    def from_dict(cls, answer: dict[str, Any]) -> DeedbookError:
        """Rebuild the error that ``to_dict`` published, as the class of its code."""
        code = str(answer.get("code", "UNEXPECTED"))
        if code not in CODES:
            code = "UNEXPECTED"
        error_class = _class_of(code)
        return error_class(code, str(answer.get("message", CODES[code].meaning)), **dict(answer.get("details") or {}))

    def with_details(self, **details: Any) -> Self:
        """Add details that a caller higher up knows, and return the error."""
        self.details |= details
        return self


class Refused(DeedbookError):
    """The caller must act: the request cannot be accepted as it is."""


class Unavailable(DeedbookError):
    """The operator must act: the store, the bus or a key cannot be used now."""


class Corrupted(DeedbookError):
    """Stored or exported data differs from what was written: stop, and audit."""


def newer_version(what: str, version: object, known: object, otherwise: str = "") -> Refused:
    """Return the refusal to read a part of ``what``, which a newer Deedbook wrote."""
    message = f"{what} has version {version}, and this Deedbook reads version {known}: install a newer Deedbook"
    return Refused("UNSUPPORTED_VERSION", message + otherwise, version=version)


def near(name: str, names: Iterable[str]) -> list[str]:
    """Return up to three ``names`` that are spelled like the unknown ``name``, the nearest first.

    The name of a stream, TYPE/ID, is compared by its id with those of the same type, which alone makes nothing similar.

    >>> near("handoff/event-bs", ["handoff/event-bus", "handoff/for-leaver"]), near("handof/x", ["handoff/x"])
    (['handoff/event-bus'], ['handoff/x'])
    """
    kind = name[: name.find("/") + 1]
    same, others = set[str](), set[str]()
    for one in names:
        (same if kind and one.startswith(kind) else others).add(one)
    alike = get_close_matches(name[len(kind) :], {one[len(kind) :] for one in same}, n=3, cutoff=0.65)
    return [f"{kind}{one}" for one in alike] or get_close_matches(name, others, n=3, cutoff=0.65)


def did_you_mean(names: Sequence[str]) -> str:
    """Return the end of a refusal that suggests similar names; empty when there are none (see ``near``)."""
    return f": did you mean {' or '.join(names)}?" if names else ""


class UnknownName(Refused, AttributeError):
    """A program named an attribute that an object lacks; ``details`` has the similar names."""

    code = "UNKNOWN_FIELD"

    def __init__(self, owner: object, name: str) -> None:
        # Search for similar names only on demand, because ``getattr`` with a default ignores this error.
        AttributeError.__init__(self, owner, name)

    @cached_property
    def details(self) -> dict[str, Any]:  # type: ignore[override]  # it can be assigned, as in the base class
        """The unknown name, and the similar ones."""
        owner, name = self.args
        return {"field": name, "near": near(name, [known for known in dir(owner) if not known.startswith("_")])}

    @cached_property
    def message(self) -> str:  # type: ignore[override]
        """The refusal in words."""
        owner, name = self.args
        known = [known for known in dir(owner) if not known.startswith("_")]
        rest = did_you_mean(self.details["near"]) or f". It has {', '.join(known)}"
        return f"{type(owner).__name__} has no {name!r}{rest}"


def refuse_name(owner: object, name: str) -> NoReturn:
    """Refuse an attribute that an object lacks, and name similar ones; it is the ``__getattr__`` of public classes.

    Raises UnknownName: ``UNKNOWN_FIELD``. AttributeError: the name is private, so it is no misspelt public name.
    """
    if name[:1] == "_":
        raise AttributeError(f"{type(owner).__name__!r} object has no attribute {name!r}")
    raise UnknownName(owner, name)


def or_none(call: Callable[..., T], *args: Any) -> T | None:
    """Return the result of ``call(*args)``, or None if it raises ``NOT_FOUND``."""
    try:
        return call(*args)
    except Refused as refusal:
        if refusal.code != "NOT_FOUND":
            raise
        return None


def message_of(error: BaseException) -> str:
    """Return the message of an exception, without Deedbook's error code."""
    return error.message if isinstance(error, DeedbookError) else str(error)


def _class_of(code: str) -> type[DeedbookError]:
    exit_code = CODES[code].exit
    match exit_code:
        case Exit.OK | Exit.USAGE | Exit.NOT_FOUND | Exit.CONFLICT | Exit.GATED:
            return Refused
        case Exit.UNAVAILABLE | Exit.NOT_INSTALLED | Exit.SPOOLED:
            return Unavailable
        case Exit.UNVERIFIED:
            return Corrupted
        case Exit.UNEXPECTED:
            return DeedbookError
        case _:
            assert_never(exit_code)
