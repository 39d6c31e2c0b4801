"""The table of operations on a session, read by the command line, MCP, files of entries and the Python interface."""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeAlias

import msgspec

from deedbook.consumers.sdk.operations import Operation, operation_on
from deedbook.ledger.events import session as kinds
from deedbook.ledger.events.fields import EventData, Statement

Verb: TypeAlias = Literal[
    "start", "assess", "finding", "unknown", "dead_end", "tool", "artifact", "retract", "resolve", "end"
]
EntryRef = Annotated[str, msgspec.Meta(min_length=1, description="The index or id of its entry.")]


class Retraction(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Takes back a finding or dead end."""

    ref: EntryRef
    reason: Annotated[Statement, msgspec.Meta(description="Why it is wrong.")]


class Resolution(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Answers an unknown."""

    ref: EntryRef
    answer: Annotated[Statement, msgspec.Meta(description="The answer.")]


OPERATIONS: Final[dict[Verb, Operation]] = {
    "start": operation_on(
        kinds.SessionStarted,
        "Start a session of the acting agent. Without ID one is generated.",
        task="--task TEXT|@FILE",
        resumes="--resumes ID",
    ),
    "assess": operation_on(
        kinds.AssessmentRecorded,
        "Assess your knowledge, ability and uncertainty at one phase of the work.",
        phase="PHASE",
        vectors="--vectors JSON|@FILE|-",
        reasoning="--reasoning TEXT|@FILE",
    ),
    "finding": operation_on(
        kinds.FindingLogged, "Record what you found out.", finding="TEXT|@FILE", evidence="--evidence PATH:LINE"
    ),
    "unknown": operation_on(kinds.UnknownLogged, "Record what you do not know yet.", unknown="TEXT|@FILE"),
    "dead_end": operation_on(
        kinds.DeadEndLogged,
        "Record an approach that failed, so that nobody tries it again.",
        approach="APPROACH|@FILE",
        why_failed="--why TEXT|@FILE",
    ),
    "tool": operation_on(kinds.ToolUsed, "Record a tool that you used to find something out.", tool="NAME"),
    "artifact": operation_on(
        kinds.ToolUsed,
        "In a file of `session record`: record a file that you made, and store its content.",
        tool="PATH",
    ),
    "retract": operation_on(
        Retraction,
        "Retract a finding or dead end of your session, also after its end. An admin may retract any.",
        signs=(kinds.FindingRetracted, kinds.DeadEndRetracted),
        ref="REF",
        reason="--reason TEXT|@FILE",
    ),
    "resolve": operation_on(
        Resolution,
        "Record the answer to an unknown of your session, also after its end.",
        signs=(kinds.UnknownResolved,),
        ref="REF",
        answer="--with TEXT|@FILE",
    ),
    "end": operation_on(
        kinds.SessionEnded,
        "End a session. If it has findings and no report, its report is made; without a task, it needs a summary.",
        summary="--summary TEXT|@FILE",
    ),
}

RECORDED: Final[tuple[Verb, ...]] = tuple(
    verb
    for verb, operation in OPERATIONS.items()
    if operation.form is not None
    and issubclass(operation.form, EventData)
    and not operation.arguments[0].option.startswith("--")
    and not operation.arguments[0].choices
    and verb != "artifact"  # only for files of entries, because it stores the file's content
)
"""The operations that record one thing: its text is their first argument. Each is a verb and a type of entry."""
