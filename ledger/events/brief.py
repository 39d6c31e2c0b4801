"""A published brief of a reasoning graph: complete, so that a receiver can render, check and recompute it.

The types are here because they are signed. ``projections.briefs`` and ``consumers.reasoning.compressor`` make, render
and measure briefs. Facts are byte for byte the trimmed contents of steps.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec

from deedbook.ledger.events.fields import Count, Label, OptionalText, Ref, StepNumber, Text, Unit

Tokens = Annotated[int, msgspec.Meta(ge=0, le=10_000_000, description="A number of tokens.")]
Dimension = Annotated[int, msgspec.Meta(ge=1, le=4096, description="The number of dimensions of a vector.")]
PackedValues = Annotated[
    str, msgspec.Meta(pattern=r"^[A-Za-z0-9+/]{1,5462}={0,2}\Z", description="Signed bytes in base64.")
]

Band: TypeAlias = Literal["lossless", "high", "medium", "low"]
Level: TypeAlias = Literal["minimal", "standard", "full"]
RemarkType: TypeAlias = Literal["limitation", "alternative", "assumption_stated"]
TagType: TypeAlias = Literal["finding", "action", "urgency", "domain"]
FactMark: TypeAlias = Literal["", "REFUTED", "RESTS ON A REFUTED ASSUMPTION"]


class Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The base of a brief's parts: immutable, complete, without unknown fields."""


class Veto(Part, frozen=True):
    """A cap on a text's fidelity: the rule, the clause, the highest allowed fidelity, and the observed detail."""

    rule: Label
    clause: OptionalText
    cap: Unit
    detail: OptionalText


class Fidelity(Part, frozen=True):
    """A measured fidelity with everything needed to check it. A part that the graph does not have is None."""

    value: Unit
    band: Band
    R: Unit | None
    A: Unit | None
    E: Unit | None
    cap: Unit
    vetoes: list[Veto]
    weights: dict[str, Unit]
    metric: Label = "deedbook-lexical"
    metric_version: Label = "1"


class Fact(Part, frozen=True):
    """One step as the receiver gets it. ``evidence`` holds the complete references of the step."""

    step: StepNumber
    text: Text
    evidence: list[OptionalText]
    conclusion: OptionalText = ""
    assumed: bool = False
    check: OptionalText = ""
    rests_on: list[StepNumber] = []
    mark: FactMark = ""


class RefutedAssumption(Part, frozen=True):
    """A refuted assumption: its step, its text, the agent who refutes it, and how.

    ``rests`` are the steps that rest on it; ``is_ground`` says whether the conclusion does.
    """

    step: StepNumber
    text: OptionalText
    by: Label
    how: OptionalText
    rests: list[StepNumber] = []
    is_ground: bool = True


class Remark(Part, frozen=True):
    """A text that the brief must keep and that is no step: a limitation, an alternative or an assumption.

    ``step`` is the number of its step, None for a text of the whole reasoning.
    """

    type: RemarkType
    step: StepNumber | None
    text: Text


class Tag(Part, frozen=True):
    """A routing label in snake_case, its type and its step."""

    tag: Label
    type: TagType
    step: StepNumber | None


class BlockSummaries(Part, frozen=True):
    """The summary of each block of the graph: observations, inferences, conclusion."""

    observations_summary: OptionalText
    inferences_summary: OptionalText
    conclusion_summary: OptionalText
    evidence_count: Count
    assumption_count: Count


class Sizes(Part, frozen=True):
    """Tokens of the brief's prompt and of the full graph as JSON."""

    compressed: Tokens
    full: Tokens


class Layout(Part, frozen=True):
    """The parts of the prompt besides the facts' texts: the step numbers that each part shows."""

    lead: list[StepNumber] = []
    evidence: list[StepNumber] = []
    checks: list[StepNumber] = []
    others: list[StepNumber] = []
    tags: bool = False
    top_evidence: bool = False
    whole: bool = False


class PackedEmbedding(Part, frozen=True):
    """A vector of the brief's sentences: its embedder, and one signed byte per dimension (base64), times ``scale``."""

    embedder: Label
    version: Label
    dim: Dimension
    threshold: Unit
    scale: Unit
    values: PackedValues


class Sentence(Part, frozen=True):
    """One sentence of prose and the steps that it is about."""

    text: Annotated[str, msgspec.Meta(min_length=1, max_length=600)]
    steps: Annotated[list[StepNumber], msgspec.Meta(min_length=1, max_length=20)]


class Prose(Part, frozen=True):
    """Checked prose of a language model: its fidelity and the kind of that figure, its model and prompt hash (hex)."""

    sentences: list[Sentence]
    fidelity: Fidelity
    fidelity_kind: Literal["lexical lower bound"]
    model: Label
    prompt_sha256: Label


class Brief(Part, frozen=True):
    """A compressed reasoning graph with its measured fidelity."""

    reasoning_ref: Ref
    level: Level
    budget: Tokens
    context: OptionalText
    conclusion: OptionalText
    reasoning_brief: OptionalText
    facts: list[Fact]
    remarks: list[Remark]
    tags: list[Tag]
    top_assumptions: list[OptionalText]
    top_evidence_refs: list[OptionalText]
    summaries: BlockSummaries
    sizes: Sizes
    fidelity: Fidelity
    dropped_steps: list[StepNumber]
    layout: Layout
    compressor_name: Label
    compressor_version: Label
    tokenizer: Label
    exact: bool
    budget_needed_for_090: Tokens | None = msgspec.field(name="budget_needed_for_0.90", default=None)
    whole_graph: OptionalText = ""
    embedding: PackedEmbedding | None = None
    refuted: list[RefutedAssumption] = []
