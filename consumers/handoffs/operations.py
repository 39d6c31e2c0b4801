"""The acts on a handoff, each written here once: the command line, MCP, files, notifier and router read this table.

A row says what an act signs, who may, what it takes and what follows from it. It is data: what an act does with its
arguments stands in ``content``, and whether it may happen now is the ledger's to decide.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from shlex import join
from typing import Any, Final, Literal, TypeAlias, get_args

import msgspec
from msgspec.structs import replace

from deedbook.ledger.client.client import Ask
from deedbook.ledger.errors import Refused
from deedbook.ledger.events import KIND_OF, KINDS
from deedbook.ledger.events import handoff as kinds
from deedbook.ledger.events.fields import EventData
from deedbook.ledger.lifecycle.handoff_status import Status

# In the order in which a tool names them; another handoff is put in the place of one on the command line alone.
ToolVerb: TypeAlias = Literal[
    "create",
    "amend",
    "claim",
    "check",
    "ask_waiver",
    "log",
    "block",
    "unblock",
    "release",
    "complete",
    "cancel",
    "approve",
    "reject",
    "waive",
    "verify",
    "request_changes",
]
Verb: TypeAlias = Literal[ToolVerb, "supersede"]
Party: TypeAlias = Literal["sender", "receiver", "reviewer"]
Wait: TypeAlias = Literal["approve", "claim", "continue", "amend", "unblock", "verify", "waive"]
Form: TypeAlias = Literal["text", "texts", "names", "number", "numbers", "flag"]


class Argument(msgspec.Struct, frozen=True):
    """What an act takes. An ``option`` without hyphens stands by its place; ``is_of_terminal``: only there."""

    name: str
    option: str
    form: Form = "text"
    words: str | None = None
    metavar: str | None = None
    is_needed: bool = False
    most: int | None = None
    choices: tuple[str, ...] = ()
    is_of_terminal: bool = False


class Act(msgspec.Struct, frozen=True):
    """One act: the data it signs, who may, its arguments and help.

    ``ends`` are the waits of the handoff that are over once it happened. ``leads`` is the status that it sets, and
    ``starts`` the one from which its receiver does so, also by editing the status in its file. ``readies`` tells
    whether the handoff, or one that depends on it, may be ready to be claimed after it.
    """

    signs: tuple[type[EventData], ...]
    by: tuple[Party, ...]
    words: str
    arguments: tuple[Argument, ...] = ()
    ends: frozenset[Wait] = frozenset()
    starts: Status | None = None
    leads: Status | None = None
    readies: bool = False


_EVERY_WAIT: Final = frozenset[Wait](get_args(Wait))
NOTES: Final = kinds.ReceiverNotes.__struct_fields__
_REASONING: Final = Argument("reasoning", "--reasoning", "names", "Reasonings behind it, as they are now.", "ID|REF")
_BODY: Final = (
    "What is to be done, in words: why belongs to reasoning; what your session tried, tested and touched goes along"
    " by itself."
)
_CONTENT: Final = (
    Argument("title", "--title", words="What it is, in one line.", is_needed=True),
    Argument("to", "--to", words="Who receives the work.", metavar="NAME", is_needed=True),
    Argument("reviewer", "--reviewer", words="Who approves it (default: default_reviewer).", metavar="NAME"),
    Argument("tasks", "--task", "texts", "A step of the work."),
    Argument("criteria", "--criterion", "texts", "An acceptance criterion."),
    Argument("depends_on", "--depends-on", "names", "Handoffs that must be done first.", "ID"),
    Argument("unlock_at", "--unlock-at", words="How far those must be first.", choices=get_args(kinds.UnlockAt)),
    Argument("body", "--body", words=_BODY, metavar="TEXT|@FILE"),
    Argument("context", "--context", words="What the receiver should know.", metavar="TEXT|@FILE"),
    Argument("tested_by", "--tested-by", "texts", "A command that tests it.", "CMD"),
    Argument("touches", "--touches", "texts", "A file or caller that the change reaches.", "PATH"),
    Argument("traps", "--trap", "texts", "What misleads, or is easily taken for something else."),
    Argument("tried", "--tried", "texts", "What was tried, and what came of it."),
    Argument("proposal", "--proposal", words="The proposal it belongs to.", metavar="PATH"),
    Argument("answers", "--answers", words="The handoff that this one is the return of.", metavar="ID"),
    _REASONING,
)
_SESSION: Final = "Whose dead ends, tests, files and unknowns go along (default: your open one; `none`)."
_CRITERION: Final = Argument(
    "criterion_numbers", "--criterion", "number", "The number of the criterion, from 1.", is_needed=True
)
_COMMENT: Final = Argument("comment", "--comment", words="A word for the log.")
_VERSION: Final = Argument(
    "version", "--version", words="The version you have read, as `show` prints it: needed off a terminal."
)
_IF_STILL: Final = Argument("version", "--version", words="The version you have read: only if it is still this one.")
_REASON: Final = Argument("reason", "--reason", words="Why.")
_NEEDED_REASON: Final = Argument("reason", "--reason", words="Why.", is_needed=True)

ACTS: Final[dict[Verb, Act]] = {
    "create": Act(
        (kinds.HandoffCreated,),
        ("sender",),
        "Create a handoff from the acting agent to NAME; it waits for its reviewer's approval.",
        (*_CONTENT, Argument("session", "--session", words=_SESSION, metavar="ID")),
        readies=True,
    ),
    "amend": Act(
        (kinds.HandoffAmended,),
        ("sender",),
        "Change a handoff before work on it begins: it then needs a new approval, and ticks are taken back. "
        "Its reviewer stays, unless he hands it over himself: --reviewer OTHER alone.",
        (*(replace(one, is_needed=False) for one in _CONTENT), _REASON),
        ends=_EVERY_WAIT - {"approve"},
        readies=True,
    ),
    "claim": Act(
        (kinds.HandoffClaimed,),
        ("receiver",),
        "Start work on a handoff that is approved and whose dependencies are done.",
        (
            Argument("lease_minutes", "--lease-minutes", "number", "Give it up unless completed by then.", most=43_200),
            _IF_STILL,
        ),
        ends=frozenset({"claim", "continue"}),
        starts="approved",
        leads="in_progress",
    ),
    "check": Act(
        (kinds.HandoffTaskChecked, kinds.HandoffCriterionChecked),
        ("receiver",),
        "Tick tasks and acceptance criteria.",
        (
            Argument("task_numbers", "--task", "numbers", "Tasks by number, as 1,2,4."),
            Argument("criterion_numbers", "--criterion", "numbers", "Criteria by number, as 1,2."),
            Argument("evidence", "--evidence", "texts", "What shows it: a command, its result; or one for each."),
            Argument("all_open", "--all", "flag", "Every task and criterion that is open."),
            Argument("undo", "--undo", "flag", "Take the tick back."),
        ),
    ),
    "ask_waiver": Act(
        (kinds.HandoffWaiverAsked,),
        ("receiver",),
        "Ask the reviewer to do without a criterion that cannot be met or checked here; it stays open until he does.",
        (_CRITERION, _NEEDED_REASON),
    ),
    "log": Act(
        (kinds.HandoffLogged,),
        ("sender", "receiver", "reviewer"),
        "Add a line to a handoff's log.",
        (Argument("text", "TEXT", words="The line.", is_needed=True),),
    ),
    "block": Act(
        (kinds.HandoffBlocked,),
        ("receiver",),
        "Say that the work cannot go on, and why.",
        (_NEEDED_REASON,),
        ends=frozenset({"continue"}),
        starts="in_progress",
        leads="blocked",
    ),
    "unblock": Act(
        (kinds.HandoffUnblocked,),
        ("receiver", "reviewer"),
        "Say that what blocked the work is gone.",
        (_COMMENT,),
        ends=frozenset({"unblock"}),
        starts="blocked",
        leads="in_progress",
    ),
    "release": Act(
        (kinds.HandoffReleased,),
        ("receiver",),
        "Give the work back.",
        (_REASON,),
        ends=frozenset({"continue"}),
        starts="in_progress",
        leads="approved",
        readies=True,
    ),
    "complete": Act(
        (kinds.HandoffCompleted,),
        ("receiver",),
        "Say that the work is done; every acceptance criterion must be checked or waived.",
        (
            Argument("summary", "--summary", words="What was done."),
            Argument("artifacts", "--artifact", "texts", "A file, commit or page that was made."),
            Argument("keep", "--keep", "flag", "Keep contents of artifacts that are files here.", is_of_terminal=True),
            _REASONING,
        ),
        ends=frozenset({"continue"}),
        starts="in_progress",
        leads="completed",
        readies=True,
    ),
    "cancel": Act(
        (kinds.HandoffCancelled,),
        ("sender", "reviewer"),
        "Call the work off.",
        (_NEEDED_REASON, _IF_STILL),
        ends=_EVERY_WAIT,
        leads="cancelled",
        readies=True,
    ),
    "approve": Act(
        (kinds.HandoffApproved,),
        ("reviewer",),
        "Approve exactly this version. The reviewer's identity key signs.",
        (_VERSION, _COMMENT),
        ends=frozenset({"approve"}),
        leads="approved",
        readies=True,
    ),
    "reject": Act(
        (kinds.HandoffRejected,),
        ("reviewer",),
        "Refuse a handoff.",
        (_NEEDED_REASON, _IF_STILL),
        ends=frozenset({"approve"}),
        leads="rejected",
        readies=True,
    ),
    "waive": Act(
        (kinds.HandoffCriterionWaived,),
        ("reviewer",),
        "Do without an acceptance criterion, as the reviewer.",
        (
            _CRITERION,
            _NEEDED_REASON,
            Argument("refuse", "--refuse", "flag", "Do not: it stays open, and its receiver reads why."),
        ),
        ends=frozenset({"waive"}),
    ),
    "verify": Act(
        (kinds.HandoffVerified,),
        ("reviewer",),
        "Accept the result of this version, as the reviewer.",
        (_VERSION, _COMMENT),
        ends=frozenset({"verify", "approve"}),
        leads="verified",
        readies=True,
    ),
    "request_changes": Act(
        (kinds.HandoffChangesRequested,),
        ("reviewer",),
        "Send completed work back, as the reviewer.",
        (Argument("reason", "--reason", "texts", "Why.", is_needed=True),),
        ends=frozenset({"verify", "continue"}),
        readies=True,
    ),
    "supersede": Act(
        (kinds.HandoffSuperseded,),
        ("sender",),
        "Put another handoff in the place of this one; what waits for this one must be amended to wait for the other.",
        (Argument("by", "--by", words="The handoff that takes its place.", metavar="ID", is_needed=True), _REASON),
        ends=_EVERY_WAIT,
        leads="superseded",
        readies=True,
    ),
}

# What they sign is a judgement of what was read, so whoever signs names its version, or is shown it first.
OF_WHAT_WAS_READ: Final[frozenset[Verb]] = frozenset(verb for verb, act in ACTS.items() if _VERSION in act.arguments)
REVIEWS: Final[frozenset[Verb]] = frozenset(verb for verb, act in ACTS.items() if act.by == ("reviewer",))
KINDS_OF_HANDOFFS: Final = frozenset(
    {"record.imported", *(name for name, one in KINDS.items() if one.stream == "handoff")}
)
# After these the handoff itself, or one that waits for it, may be ready. Whatever else makes one so, a sweep finds.
READY_KINDS: Final = frozenset(
    {"record.imported", *(KIND_OF[data] for act in ACTS.values() if act.readies for data in act.signs)}
)
# What each kind of event ends, of its own subject. Kinds that are not listed end nothing.
ENDS: Final[dict[str, frozenset[str]]] = {
    KIND_OF[data]: frozenset(act.ends) for act in ACTS.values() if act.ends for data in act.signs
} | {"review.answered": frozenset({"review"})}


def spelled(verb: str) -> str:
    """Return a verb as the command line spells it."""
    return verb.replace("_", "-")


def command_of(item: Mapping[str, Any], *, is_asked: bool = False) -> str:
    """Return an item's act as a command line for a shell; who is not asked there fills in the version he read."""
    words, id_ = ["handoff", spelled(item["act"])], item["id"]
    if item["kind"] == "review":
        words = ["review", "answer", "--approve"]
    for number in item["arguments"].get("criterion_numbers", ()):
        words += ["--criterion", str(number)]
    if item["act"] == "waive":
        words += ["--reason", "WHY"]
    if item["act"] in OF_WHAT_WAS_READ and not is_asked:
        words += ["--version", "VERSION"]
    return join(["deed", *words, "--as", item["agent"], id_])


def with_commands(answer: Mapping[str, Any], *, is_asked: bool = False) -> dict[str, Any]:
    """Return an answer of ``handoffs.next`` as people and programs read it: each item's act as its ``command``."""
    items = [
        {name: value for name, value in item.items() if name not in ("act", "arguments")}
        | {"command": command_of(item, is_asked=is_asked)}
        for item in answer["items"]
    ]
    return {**answer, "items": items}


def commands_on(view: Ask, why: Mapping[str, Any]) -> list[str]:
    """Return the commands with which a handoff, or the one that it waits for, goes on, by ``handoffs.why``."""
    chains = [reason["chain"] for reason in why["reasons"] if reason.get("status")]
    waits = why["waits"] or (view("handoffs.why", {"id": chains[0][-1]})["waits"] if chains else [])
    return [command_of(wait) for wait in waits]


_STATE_CODES: Final = frozenset(
    {
        "ALREADY_CLAIMED",
        "CRITERIA_OPEN",
        "DEPENDENCY_MISSING",
        "DEPENDENCY_PENDING",
        "NOT_APPROVED",
        "NOT_AUTHORIZED",
        "SELF_APPROVAL",
        "TRANSITION_NOT_ALLOWED",
    }
)


@contextmanager
def saying_way_on(view: Ask, id_: str) -> Iterator[None]:
    """Let a refusal of an act end with the commands with which its handoff does go on."""
    try:
        yield
    except Refused as refusal:
        if refusal.code in _STATE_CODES:
            with suppress(Refused):  # of a handoff that is not there, nothing goes on
                refusal.details["next"] = commands_on(view, view("handoffs.why", {"id": id_}))
                refusal.message += "".join(f"\n  next: {command}" for command in refusal.details["next"])
        raise


def hint(verb: Verb) -> str:
    """Return the command of an act, with the options that it needs left to be filled in.

    >>> hint("verify"), hint("request_changes"), hint("amend")
    ('verify', 'request-changes --reason …', 'amend …')
    """
    needed = [f"{one.option} …" for one in ACTS[verb].arguments if one.is_needed]
    return " ".join([spelled(verb), *needed, *(["…"] if verb == "amend" else [])])


def way(now: str, then: str) -> tuple[Verb, ...]:
    """Return the acts by which a receiver leads a handoff from one status to another: one, or two that begin the work.

    >>> way("blocked", "completed"), way("in_progress", "approved"), way("blocked", "approved")
    (('unblock', 'complete'), ('release',), ())
    """
    for last, act in ACTS.items():
        if act.leads == then and act.starts == now:
            return (last,)
    for last, act in ACTS.items():
        for first, begins in ACTS.items():
            # What was just begun is not given back at once.
            if act.leads == then != now and (begins.starts, begins.leads) == (now, act.starts) and last != "release":
                return first, last
    return ()


def setting(now: str, word: str) -> Verb | None:
    """Return by which act somebody other than the receiver sets the status that a word names, if by any."""
    if word == "changes_requested" or (now, word) == ("completed", "in_progress"):
        return "request_changes"
    return next((verb for verb, act in ACTS.items() if act.leads == word and act.starts is None), None)
