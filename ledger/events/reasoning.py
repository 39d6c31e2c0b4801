"""The kinds of a reasoning graph, recorded step by step: an agent at work adds each step with its own extension.

``domain`` is a field of ``reasoning.started`` because it decides how much a receiver must fetch. It is never part of
the graph's own ref.

A validator's report of a large graph does not fit into an entry. So ``counts`` is always complete, the lists begin with
the worst, ``omitted`` counts the lines left out, and ``whole`` is then the blob with all of them. A report never quotes
the checked files, because some of its readers may not read the files. It contains digests and numbers instead. A tree
is named by its commit, or by the digest of what the validator read; never by a path on the machine.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeAlias

import msgspec

from deedbook.ledger.events.brief import Brief, Part, Prose, Tokens
from deedbook.ledger.events.fields import (
    Count,
    EventData,
    Label,
    OptionalId,
    OptionalText,
    Passage,
    Ref,
    Statement,
    StepNumber,
    Text,
    Unit,
)

StepType = Literal["observation", "inference", "assumption", "hypothesis", "conclusion"]
ReasoningType = Literal["", "deductive", "inductive", "abductive", "analogical"]
EvidenceStatus: TypeAlias = Literal[
    "ok",
    "file_changed_line_same",
    "file_changed",
    "line_changed",
    "moved",
    "no_such_line",
    "gone",
    "unreadable",
    "outside",
    "private",
    "symlink",
    "directory",
    "not_a_file",
    "too_large",
    "malformed",
    "not_checked",
]
AssumptionStatus: TypeAlias = Literal["held", "refuted", "settled", "not_checked"]
InferenceStatus: TypeAlias = Literal["sound", "unlinked", "unsound"]
Opinion: TypeAlias = Literal["follows", "does_not_follow", "unsure"]
TreeType: TypeAlias = Literal["none", "folder", "commit"]

excerpt_max_chars = 300
listed_max = 500

Excerpt = Annotated[str, msgspec.Meta(max_length=excerpt_max_chars, description="A text. A longer one ends in ….")]
IssueCode = Annotated[str, msgspec.Meta(pattern=r"^[A-Z][A-Z_]{0,62}\Z", description="The fault as a code.")]
Commit = Annotated[
    str, msgspec.Meta(pattern=r"^([0-9a-f]{40}|[0-9a-f]{64})?\Z", description="A git commit's id, or empty.")
]
TextDigest = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^([0-9a-f]{16})?\Z",
        description="The first 16 hex digits of the text's SHA-256; empty if it was not read.",
    ),
]
MISSING: Final = "missing"
CitedDigest = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^([0-9a-f]{16}|missing)?\Z",
        description="The first 16 hex digits of the cited text's SHA-256; `missing` if there was no such text;"
        " empty if nobody looked.",
    ),
]

Confidence = Annotated[Unit, msgspec.Meta(description="Confidence, from 0 to 1.")]


class Step(EventData, frozen=True):
    """One step of a reasoning graph. ``evidence_digests`` are of the texts that its author's tool read as evidence."""

    step_number: StepNumber
    type: Annotated[StepType, msgspec.Meta(description="The type of step.")]
    content: Annotated[Text, msgspec.Meta(description="In words.")]
    reasoning_type: Annotated[ReasoningType, msgspec.Meta(description="The type of inference.")] = ""
    evidence: Annotated[list[Passage], msgspec.Meta(description="Such as src/auth.py:5-9.")] = []
    premises: Annotated[list[Passage], msgspec.Meta(description="A premise in words.")] = []
    alternatives_considered: Annotated[list[Passage], msgspec.Meta(description="What else it could be.")] = []
    assumptions: Annotated[list[Passage], msgspec.Meta(description="What it assumes.")] = []
    confidence: Confidence = 1.0
    needs_validation: Annotated[
        bool | None, msgspec.Meta(description="Whether somebody must check it (default: true for an assumption).")
    ] = None
    validation_method: Annotated[Passage | None, msgspec.Meta(description="How to check it.")] = None
    conclusion: Annotated[Text | None, msgspec.Meta(description="The step's own conclusion.")] = None
    evidence_digests: list[CitedDigest] | None = None


class ReasoningStarted(EventData, frozen=True):
    """Starts the reasoning named by the stream. From now on only its author extends it."""

    task: Annotated[Text, msgspec.Meta(description="The question or task.")]
    ai_id: Annotated[str, msgspec.Meta(description="A label of the model, such as claude-sonnet-4.5.")] = ""
    reasoning_strategy: Annotated[
        str, msgspec.Meta(description="The strategy, such as top-down, bottom-up or hypothesis-driven.")
    ] = ""
    domain: Annotated[
        str,
        msgspec.Meta(description="The domain. Graphs of security, medical and legal are always fetched in full."),
    ] = ""
    session: Annotated[OptionalId, msgspec.Meta(description="The session it belongs to.")] = ""


class ReasoningExtended(EventData, frozen=True):
    """The difference between two versions of a graph: new steps and their dependencies."""

    steps: list[Step] = []
    dependencies: dict[StepNumber, list[StepNumber]] = {}


class AssumptionSettled(EventData, frozen=True):
    """Says whether an assumption came out true or false. Any agent may settle it; the signature says who did.

    ``evidence_digests`` are of the texts that the signer's tool read as evidence.
    """

    step: Annotated[StepNumber, msgspec.Meta(description="The assumption's step.")]
    holds: Annotated[bool, msgspec.Meta(description="False: it is refuted.")]
    how: Annotated[Passage, msgspec.Meta(description="How it was settled.")]
    evidence: Annotated[list[Passage], msgspec.Meta(description="Such as config/logging.yaml:5.")] = []
    evidence_digests: list[CitedDigest] | None = None


class StepRetracted(EventData, frozen=True):
    """Takes a step out of the graph, and every link to it: its author was wrong. Earlier versions still have it."""

    step: Annotated[StepNumber, msgspec.Meta(description="The step's number.")]
    reason: Annotated[Statement, msgspec.Meta(description="Why it is wrong.")]


class ReasoningConcluded(EventData, frozen=True):
    """The conclusion of a reasoning. A second conclusion without confidence or limitations keeps the earlier ones."""

    conclusion: Annotated[Text, msgspec.Meta(description="The conclusion, in one sentence.")]
    confidence_in_reasoning: Annotated[
        Unit | None, msgspec.Meta(description="Confidence, from 0 to 1 (default: as before, at first 1).")
    ] = None
    known_limitations: Annotated[
        list[Passage] | None, msgspec.Meta(description="A limitation (default: as before).")
    ] = None


class ReasoningBriefed(EventData, frozen=True):
    """A brief that a compressor made of one version of a graph, with the prompt rendered at the level of the brief.

    If a language model is configured, ``prose`` is its summary of the same version; ``prose_missing`` is the reason if
    the model wrote none. Gates and fidelity use only the facts of the brief.
    """

    brief: Brief
    prompt: Text
    tokens: Tokens
    prose: Prose | None = None
    prose_missing: OptionalText = ""


class Issue(Part, frozen=True):
    """A reason why a reasoning does not pass. ``step`` is None if no single step is at fault."""

    code: IssueCode
    message: Excerpt
    step: StepNumber | None = None


class EvidenceCheck(Part, frozen=True):
    """One checked reference. ``file`` and ``line`` are digests that the validator computed itself."""

    step: StepNumber | None
    reference: Excerpt
    status: EvidenceStatus
    note: Excerpt = ""
    file: Ref | None = None
    line: TextDigest = ""


class AssumptionCheck(Part, frozen=True):
    """One checked assumption. ``check`` is the name of the check that was run, if any."""

    step: StepNumber | None
    text: Excerpt
    status: AssumptionStatus
    method: Excerpt = ""
    check: Excerpt = ""
    note: Excerpt = ""


class InferenceCheck(Part, frozen=True):
    """One checked inference, or the conclusion (``step`` is None), and a judge's opinion if there is one.

    It is ``unlinked`` if it names nothing that it rests on: then nobody can say whether it follows. This matters only
    if the conclusion rests on it (``is_ground``).
    """

    step: StepNumber | None
    status: InferenceStatus
    is_ground: bool = True
    method: Literal["structural", "judged"] = "structural"
    opinion: Opinion | None = None
    reason: Excerpt = ""


class JudgeMark(Part, frozen=True):
    """The judge that gave the opinions: the model, and the hash of its prompt."""

    model: Label
    prompt_hash: Ref


class CheckedTree(Part, frozen=True):
    """The files that the reasoning was checked against. ``digest`` covers the result of every read of the tree."""

    type: TreeType
    commit: Commit = ""
    digest: Ref | None = None


class Counts(Part, frozen=True):
    """The complete counts, also of lines that the lists leave out."""

    steps: Count
    issues: Count
    evidence: Count
    evidence_ok: Count
    assumptions: Count
    assumptions_held: Count
    assumptions_refuted: Count
    assumptions_settled: Count
    inferences: Count
    inferences_sound: Count
    inferences_unlinked: Count
    inferences_judged: Count
    inferences_doubted: Count


class ReasoningValidated(EventData, frozen=True):
    """A validator's report on one version of a graph."""

    blob_path = ("whole",)

    reasoning_ref: Ref
    passed: bool
    issues: Annotated[list[Issue], msgspec.Meta(max_length=listed_max)]
    evidence: Annotated[list[EvidenceCheck], msgspec.Meta(max_length=listed_max)]
    assumptions: Annotated[list[AssumptionCheck], msgspec.Meta(max_length=listed_max)]
    inferences: Annotated[list[InferenceCheck], msgspec.Meta(max_length=listed_max)]
    tree: CheckedTree
    counts: Counts
    validator_name: Label
    validator_version: Label
    judge: JudgeMark | None = None
    omitted: Count = 0
    whole: Ref | None = None
