"""The table of operations on a handoff, read by the command line, MCP, files, notifier and router.

A row is data: the event that an operation signs, who may do it, its arguments and its effects. ``content`` turns the
arguments into events, and the ledger decides whether the operation is allowed now.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from shlex import join, quote
from typing import Any, Final, Literal, NamedTuple, TypeAlias, get_args

from msgspec.structs import replace

from deedbook.consumers.sdk import operations
from deedbook.consumers.sdk.operations import Argument
from deedbook.ledger.client.client import Ask
from deedbook.ledger.errors import Refused
from deedbook.ledger.events import KIND_OF, KINDS
from deedbook.ledger.events import handoff as kinds
from deedbook.ledger.format.forms import UnlockAt
from deedbook.ledger.lifecycle.handoff_status import FINAL
from deedbook.ledger.lifecycle.rules import NONE, Row, rules_of
from deedbook.projections.handoffs.answers import Action

# In the order in which the MCP tool lists them; ``supersede`` exists on the command line only.
ToolVerb: TypeAlias = Literal[
    "create",
    "amend",
    "claim",
    "check",
    "ask_waiver",
    "ask",
    "answer",
    "settle",
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


class Operation(operations.Operation, frozen=True):
    """One operation: the data it signs, its arguments and its help. ``proto/rules`` says who may do it, and when.

    The operation ends the waits ``ends`` of its handoff. ``readies``: after the operation, the handoff, or one that
    depends on it, may be ready to be claimed.
    """

    ends: frozenset[Action] = frozenset()
    readies: bool = False

    @property
    def rows(self) -> tuple[Row, ...]:
        """The rules of the operation's events."""
        return tuple(row for data in self.signs for row in _RULES.rows_of(KIND_OF[data]))

    @property
    def by(self) -> tuple[str, ...]:
        """The parties that may do the operation. Only the sender may create a handoff."""
        return tuple(dict.fromkeys(party for row in self.rows for party in row.by)) or ("sender",)

    @property
    def from_statuses(self) -> tuple[str, ...]:
        """The statuses of a handoff in which the operation is possible; empty if the operation creates the handoff."""
        states = [name for name in _RULES.states if any(name in row.from_states for row in self.rows)]
        return tuple(name for name in states if name != NONE and _RULES.states[name].status is None)

    @property
    def starts(self) -> str | None:
        """The only status in which the receiver can do the operation (also by editing the file's status), else None."""
        is_of_receiver = "receiver" in self.by and len(self.from_statuses) == 1 and self.leads is not None
        return self.from_statuses[0] if is_of_receiver else None

    @property
    def leads(self) -> str | None:
        """The status that the operation sets; None if it sets none, or if the status depends on the handoff."""
        statuses = {_RULES.status_after(row) for row in self.rows}
        return statuses.pop() if len(statuses) == 1 else None

    @property
    def usage(self) -> str:
        """A sentence that says which parties may do the operation, and in which statuses."""
        statuses = [name.replace("_", " ") for name in self.from_statuses]
        if not statuses:
            return ""
        is_always = set(_RULES.states) - {NONE} <= set().union(*(row.from_states for row in self.rows))
        when = "in every status" if is_always else f"while the handoff is {_any_of(statuses)}"
        return f"The {_any_of(self.by)} may do this {when}."


def _any_of(names: Sequence[str]) -> str:
    """Return names as a list: ``a, b or c``."""
    return " or ".join(filter(None, (", ".join(names[:-1]), names[-1])))


_RULES: Final = rules_of("handoff")
_EVERY_WAIT: Final = frozenset[Action](get_args(Action))
NOTES: Final = kinds.ReceiverNotes.__struct_fields__
_REASONING: Final = Argument(
    "reasoning", "--reasoning", "names", "A reasoning that it cites, in its present version.", "ID|REF"
)
_ARTIFACT: Final = "A draft or output of yours. The content of a local file is stored."
_DRAFT: Final = Argument("artifacts", "--artifact", "texts", _ARTIFACT, "PATH|REF")
_BODY: Final = (
    "What to do, in prose. Reasons belong in a reasoning, and the records of your session are attached automatically."
)
_CONTENT: Final = (
    Argument("title", "--title", words="The title, in one line.", is_needed=True),
    Argument("to", "--to", words="The agent that receives the work.", metavar="NAME", is_needed=True),
    Argument(
        "reviewer",
        "--reviewer",
        words="The agent that approves it (default: default_reviewer, else the only human).",
        metavar="NAME",
    ),
    Argument("tasks", "--task", "texts", "A step of the work, to be ticked."),
    Argument("criteria", "--criterion", "texts", "How to see that it is done."),
    Argument("depends_on", "--depends-on", "names", "A handoff that must be done first.", "ID"),
    Argument(
        "unlock_at",
        "--unlock-at",
        words="The status that its dependencies must reach first.",
        choices=get_args(UnlockAt),
    ),
    Argument("body", "--body", words=_BODY, metavar="TEXT|@FILE"),
    Argument("context", "--context", words="Background that led here; it asks for no work.", metavar="TEXT|@FILE"),
    Argument("done", "--done", "texts", "A part that is done already, and where it lies."),
    Argument("found", "--found", "texts", "A fact with its place: src/auth.py:5 reads no time."),
    Argument("reproduce", "--reproduce", "texts", "How to see the problem: GET /x answers 500.", "HOW"),
    Argument("baseline", "--baseline", "texts", "Tests that fail already, and why: 5 of 812, no network."),
    Argument("tested_by", "--tested-by", "texts", "A command that tests it, or a test that pins it.", "CMD"),
    Argument("touches", "--touches", "texts", "A file or caller that the change affects.", "PATH"),
    Argument("traps", "--trap", "texts", "Something that misleads, or is easily mistaken."),
    Argument("tried", "--tried", "texts", "An attempt, and its result."),
    Argument("argued", "--argued", "texts", "A claim or remedy that nobody tried."),
    Argument("not_known", "--not-known", "texts", "A question that is still open."),
    Argument("not_part", "--not-part", "texts", "Something that this work leaves alone."),
    _DRAFT,
    Argument("proposal", "--proposal", words="The proposal it belongs to.", metavar="PATH"),
    Argument("answers", "--answers", words="The handoff that this one answers.", metavar="ID"),
    _REASONING,
)
_SESSION: Final = "The session whose records are attached (default: your open one; `none`: no session)."
_TOPIC: Final = "Attach only records of this topic; `all`: of every one. Needed if the session has several."
_CRITERION: Final = Argument(
    "criterion_numbers", "--criterion", "number", "The number of the criterion, from 1.", is_needed=True
)
_QUESTION: Final = Argument("question_numbers", "ID:N", "numbers", "Questions by number.", is_needed=True)
_LINE: Final = Argument("text", "TEXT|@FILE", words="The text.", is_needed=True)
_COMMENT: Final = Argument("comment", "--comment", words="A comment for the log.")
_VERSION: Final = Argument(
    "version",
    "--version",
    words="The version you read, as `show` prints it. Required unless you run this on a terminal.",
)
_RESULT: Final = Argument(
    "result",
    "--result",
    words="The result you read, as `show` prints it. Required unless you run this on a terminal.",
)
_IF_STILL: Final = Argument(
    "version", "--version", words="The version you read. The command is refused if it has changed."
)
_IF_READ: Final = Argument(
    "version",
    "--version",
    words="The version you read. Required, but on a terminal, if this approves an imported handoff.",
)
_REASON: Final = Argument("reason", "--reason", words="The reason.")
_NEEDED_REASON: Final = Argument("reason", "--reason", words="The reason.", is_needed=True)

OPERATIONS: Final[dict[Verb, Operation]] = {
    "create": Operation(
        (kinds.HandoffCreated,),
        "Create a handoff from the acting agent to NAME; it waits for its reviewer's approval.",
        (
            *_CONTENT,
            Argument("session", "--session", words=_SESSION, metavar="ID"),
            Argument("topics", "--topic", "texts", _TOPIC, "NAME"),
        ),
        readies=True,
    ),
    "amend": Operation(
        (kinds.HandoffAmended,),
        "Change a handoff before work on it begins. It then needs a new approval, and its ticks are removed. "
        "Only its reviewer may name another one: --reviewer OTHER alone.",
        (*(replace(argument, is_needed=False) for argument in _CONTENT), _REASON, _IF_READ),
        ends=_EVERY_WAIT - {"approve"},
        readies=True,
    ),
    "claim": Operation(
        (kinds.HandoffClaimed,),
        "Start work on an approved handoff whose dependencies are done.",
        (
            Argument(
                "lease_minutes",
                "--lease-minutes",
                "number",
                "Release unfinished work after this number of minutes.",
                most=43_200,
            ),
            _IF_STILL,
        ),
        ends=frozenset({"claim", "continue"}),
    ),
    "check": Operation(
        (kinds.HandoffTaskChecked, kinds.HandoffCriterionChecked),
        "Tick tasks and acceptance criteria.",
        (
            Argument("task_numbers", "--task", "numbers", "Tasks by number, for example 1,2,4."),
            Argument("criterion_numbers", "--criterion", "numbers", "Criteria by number, for example 1,2."),
            Argument(
                "evidence",
                "--evidence",
                "texts",
                "The evidence: a command and its result, or why a task was done otherwise. "
                "Give it once for all, or once for each criterion.",
            ),
            Argument("all_open", "--all", "flag", "All open tasks and criteria."),
            Argument("undo", "--undo", "flag", "Remove the tick."),
        ),
    ),
    "ask_waiver": Operation(
        (kinds.HandoffWaiverAsked,),
        "Ask the reviewer to waive a criterion that cannot be met or checked here. It stays open until they do.",
        (_CRITERION, _NEEDED_REASON),
    ),
    "ask": Operation(
        (kinds.HandoffQuestionAsked,),
        "Ask another agent about a handoff. A question to its receiver must be settled before they can complete it.",
        (
            _LINE,
            Argument("to", "NAME", words="The agent that is asked.", is_needed=True),
            Argument("about", "--about", words="Its file, as PATH:LINE.", metavar="PATH[:LINE]"),
        ),
    ),
    "answer": Operation(
        (kinds.HandoffQuestionAnswered,),
        "Answer a question to you. It stays open until its author settles it.",
        (_QUESTION, _LINE),
        ends=frozenset({"answer"}),
    ),
    "settle": Operation(
        (kinds.HandoffQuestionSettled,),
        "Settle questions: accept their answers, or withdraw them. Their author may, and the reviewer of the handoff.",
        (_QUESTION, _COMMENT),
        ends=frozenset({"answer", "settle"}),
    ),
    "log": Operation(
        (kinds.HandoffLogged,),
        "Add a line to a handoff's log.",
        (_LINE,),
    ),
    "block": Operation(
        (kinds.HandoffBlocked,),
        "Report that the work cannot continue, and why.",
        (_NEEDED_REASON,),
        ends=frozenset({"continue"}),
    ),
    "unblock": Operation(
        (kinds.HandoffUnblocked,),
        "Report that the work can continue.",
        (_COMMENT,),
        ends=frozenset({"unblock"}),
    ),
    "release": Operation(
        (kinds.HandoffReleased,),
        "Release the work, so that it can be claimed again.",
        (_REASON,),
        ends=frozenset({"continue"}),
        readies=True,
    ),
    "complete": Operation(
        (kinds.HandoffCompleted,),
        "Report that the work is done. Every acceptance criterion must be checked or waived.",
        (
            Argument("summary", "--summary", words="A summary of the work."),
            replace(_DRAFT, words="A file, commit or page that the work made.", metavar=None),
            Argument(
                "keep",
                "--keep",
                "flag",
                "Store the content of each artifact that is a local file.",
                is_of_terminal=True,
            ),
            _REASONING,
        ),
        ends=frozenset({"continue"}),
        readies=True,
    ),
    "cancel": Operation(
        (kinds.HandoffCancelled,),
        "Cancel the work.",
        (_NEEDED_REASON, _IF_STILL),
        ends=_EVERY_WAIT,
        readies=True,
    ),
    "approve": Operation(
        (kinds.HandoffApproved,),
        "Approve this version before the work begins, as the reviewer. The reviewer's identity key signs.",
        (_VERSION, _COMMENT),
        ends=frozenset({"approve"}),
        readies=True,
    ),
    "reject": Operation(
        (kinds.HandoffRejected,),
        "Reject a handoff for good, as the reviewer.",
        (_NEEDED_REASON, _IF_STILL),
        ends=frozenset({"approve"}),
        readies=True,
    ),
    "waive": Operation(
        (kinds.HandoffCriterionWaived,),
        "Waive an acceptance criterion, as the reviewer.",
        (
            _CRITERION,
            _NEEDED_REASON,
            Argument("refuse", "--refuse", "flag", "Refuse the waiver: the criterion stays open."),
        ),
        ends=frozenset({"waive"}),
    ),
    "verify": Operation(
        (kinds.HandoffVerified,),
        "Accept exactly this result after the work is completed, as the reviewer.",
        (_RESULT, _COMMENT),
        ends=frozenset({"verify", "approve"}),
        readies=True,
    ),
    "request_changes": Operation(
        (kinds.HandoffChangesRequested,),
        "Send completed work back, as the reviewer. Its checked criteria are open again.",
        (_RESULT, Argument("reason", "--reason", "texts", "The reason.", is_needed=True)),
        ends=frozenset({"verify", "continue"}),
        readies=True,
    ),
    "supersede": Operation(
        (kinds.HandoffSuperseded,),
        "Replace this handoff by another one. Handoffs that depend on this one must be amended to depend on the other.",
        (Argument("by", "--by", words="The handoff that replaces it.", metavar="ID", is_needed=True), _REASON),
        ends=_EVERY_WAIT,
        readies=True,
    ),
}

# These sign a judgement of a version or result. So the signer names the version or result, or reads it first at a
# terminal.
OF_WHAT_WAS_READ: Final[dict[str, str]] = {
    verb: argument.name
    for verb, operation in OPERATIONS.items()
    for argument in (_VERSION, _RESULT)
    if argument in operation.arguments
}
REVIEWS: Final[frozenset[Verb]] = frozenset(
    verb for verb, operation in OPERATIONS.items() if operation.by == ("reviewer",)
)
KINDS_OF_HANDOFFS: Final = frozenset(
    {"record.imported", *(name for name, kind in KINDS.items() if kind.stream == "handoff")}
)
# After an event of these kinds, the handoff itself, or one that waits for it, may be ready to be claimed. The router's
# sweep, every few seconds, finds the handoffs that are ready for another reason.
READY_KINDS: Final = frozenset(
    {
        "record.imported",
        *(KIND_OF[data] for operation in OPERATIONS.values() if operation.readies for data in operation.signs),
    }
)
# Maps each kind of event to the waits that it ends, for the handoff, review or question of the event. A kind that is
# not listed ends no wait.
ENDS: Final[dict[str, frozenset[str]]] = {
    KIND_OF[data]: frozenset(operation.ends)
    for operation in OPERATIONS.values()
    if operation.ends
    for data in operation.signs
} | {
    "review.answered": frozenset({"review"}),
    "question.answered": frozenset({"answer"}),
    "question.settled": frozenset({"answer", "settle"}),
}
QUESTIONS: Final = frozenset[Verb]({"ask", "answer", "settle"})
"""The operations on a question that are also verbs without a handoff: `deed ask`, not `deed handoff ask`."""


def spelled(verb: str) -> str:
    """Return a verb as the command line spells it."""
    return verb.replace("_", "-")


def command_of(item: Mapping[str, Any], *, is_asked: bool = False, shown: Mapping[str, Any] | None = None) -> str:
    """Return an item's operation as a shell command.

    An agent must read a version or result before judging it. ``shown`` is the handoff as they just read it; with
    ``is_asked``, the terminal shows it before it asks. Otherwise the returned command shows it.
    """
    id_, read = item["id"], OF_WHAT_WAS_READ.get(item["act"])
    command = ["handoff", spelled(item["act"]) if read is None or is_asked or shown else "show"]
    if item["kind"] == "review":
        command = ["review", "answer", "--approve"]
    elif item["act"] in QUESTIONS:
        numbers = item["arguments"].get("question_numbers", ())
        refs = [f"{id_}:{number}" for number in numbers] or [id_]
        return join(
            ["deed", item["act"], "--as", item["agent"], *refs, *(["ANSWER"] if item["act"] == "answer" else [])]
        )
    for name, option in (("task_numbers", "--task"), ("criterion_numbers", "--criterion")):
        command += [word for number in item["arguments"].get(name, ()) for word in (option, str(number))]
    if item["act"] == "waive":
        command += ["--reason", "WHY"]
    if item["act"] == "amend":
        command += ["--depends-on", "ID"]
    if read is not None and shown and not is_asked:
        command += [f"--{read}", shown[read]]
    return join(["deed", *command, "--as", item["agent"], id_])


def with_commands(answer: Mapping[str, Any], *, is_asked: bool = False) -> dict[str, Any]:
    """Return an answer of ``handoffs.next`` in which each item's operation is a ``command``."""
    items = [
        {name: value for name, value in item.items() if name not in ("act", "arguments")}
        | {"command": command_of(item, is_asked=is_asked)}
        for item in answer["items"]
    ]
    return {**answer, "items": items}


class NextCommand(NamedTuple):
    """A next command, and the agent who can run it."""

    agent: str
    command: str

    def led_by(self, acting: str | None) -> str:
        """Return the words before the command. They name the agent, unless it is the ``acting`` agent."""
        return "next: " if acting in (None, self.agent) else f"next, for {self.agent}: "


def next_on(
    why: Mapping[str, Any], refused: str | None = None, *, shown: Mapping[str, Any] | None = None
) -> list[NextCommand]:
    """Return the next commands for a handoff, from an answer of ``handoffs.why``.

    If nobody can act on the handoff itself, the commands are for the handoffs that it waits for.
    Reviews by the agent ``refused``, whose review was just refused, are left out. ``shown`` is the handoff if it was
    just displayed.
    """
    own = [wait for wait in why["waits"] if wait["id"] == why["id"]]
    commands = (
        NextCommand(
            wait["agent"], command_of(wait, shown=shown if shown is not None and wait["id"] == shown["id"] else None)
        )
        for wait in own or why["waits"]
        if (wait["act"] not in REVIEWS or wait["agent"] != refused)
        # the command would only show the handoff again
        and not (wait["act"] == "show" and shown is not None and wait["id"] == shown["id"])
    )
    return list(dict.fromkeys(commands))


def commands_on(
    why: Mapping[str, Any], refused: str | None = None, *, shown: Mapping[str, Any] | None = None
) -> list[str]:
    """Return the commands of ``next_on``."""
    return [following.command for following in next_on(why, refused, shown=shown)]


_STATE_CODES: Final = frozenset(
    {
        "ALREADY_CLAIMED",
        "CRITERIA_OPEN",
        "QUESTION_OPEN",
        "DEPENDENCY_MISSING",
        "DEPENDENCY_PENDING",
        "NOT_APPROVED",
        "NOT_AUTHORIZED",
        "SELF_APPROVAL",
        "TRANSITION_NOT_ALLOWED",
    }
)


_AUTHOR_CODES: Final = ("NOT_AUTHORIZED", "SELF_APPROVAL")
_INSTEAD: Final[dict[tuple[str, str], tuple[Verb, str]]] = {
    ("handoff.rejected", "approved"): ("cancel", "its sender or reviewer can end it"),
    ("handoff.amended", "in_progress"): ("release", "its receiver can release it, and it can be amended then"),
    ("handoff.amended", "blocked"): ("cancel", "its sender or reviewer can cancel it, and create another"),
}
"""By a kind and a status that forbids it: another operation that is possible, and a clause about who can do it."""


@contextmanager
def saying_way_on(view: Ask, id_: str, kind: str = "", *, acting: str | None = None) -> Iterator[None]:
    """Add to the refusal of an operation that signs ``kind``: an alternative, if any, and the next commands.

    Commands of agents other than the ``acting`` one name their agent, so that nobody acts for another.
    """
    try:
        yield
    except Refused as refusal:
        if refusal.code in _STATE_CODES:
            with suppress(Refused):  # a handoff that does not exist has no next step
                is_of_author, why = refusal.code in _AUTHOR_CODES, view("handoffs.why", {"id": id_})
                if is_of_author and why["status"] in FINAL:
                    refusal.message += f"; and {why['sentence'].rstrip('.')}"
                elif (instead := _INSTEAD.get((kind, why["status"]))) is not None and not is_of_author:
                    refusal.message += f"\n  {instead[1]}: `deed handoff {hint(instead[0])} {quote(id_)}`"
                cannot = refusal.details.get("name") if is_of_author else None
                following = next_on(why, cannot)
                refusal.details["next"] = [step.command for step in following]
                refusal.message += "".join(f"\n  {step.led_by(acting)}{step.command}" for step in following)
        raise


def hint(verb: Verb) -> str:
    """Return the command of an operation, with ``…`` for each option that it requires.

    >>> hint("verify"), hint("request_changes"), hint("amend")
    ('verify', 'request-changes --reason …', 'amend …')
    """
    needed = [f"{argument.option} …" for argument in OPERATIONS[verb].arguments if argument.is_needed]
    return " ".join([spelled(verb), *needed, *(["…"] if verb == "amend" else [])])


def path_between(now: str, then: str) -> tuple[Verb, ...]:
    """Return the one or two operations by which a receiver brings a handoff from one status to another.

    >>> path_between("blocked", "completed"), path_between("in_progress", "approved")
    (('unblock', 'complete'), ('release',))
    >>> path_between("blocked", "approved")
    ()
    """
    for last, operation in OPERATIONS.items():
        if operation.leads == then and operation.starts == now:
            return (last,)
    for last, operation in OPERATIONS.items():
        for first, begins in OPERATIONS.items():
            # No path starts or resumes work only to release it at once.
            if (
                operation.leads == then != now
                and (begins.starts, begins.leads) == (now, operation.starts)
                and last != "release"
            ):
                return first, last
    return ()


def verb_setting(now: str, status: str) -> Verb | None:
    """Return the operation by which a party other than the receiver sets a status, if there is one."""
    if status == "changes_requested" or (now, status) == ("completed", "in_progress"):
        return "request_changes"
    return next(
        (
            verb
            for verb, operation in OPERATIONS.items()
            if operation.leads == status != "in_progress" and not operation.starts
        ),
        None,
    )
