"""The types of answers about reasoning."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, UnsetType

from deedbook.ledger.events.imported import RecordClaims
from deedbook.projections.answers.answer import Answer, Checked, Head, Index, Marked, Ms, Untrusted
from deedbook.projections.reasoning.delta import SentAs, Size
from deedbook.projections.reasoning.memory import ReasoningMemory

ReasoningStatus = Literal["open", "concluded"]


class ImportedReasoning(Answer, frozen=True, kw_only=True):
    """The origin of an imported reasoning, which nobody here vouches for.

    ``source`` is the place where the importer found it. ``original`` is the hash of the stored file, which claims the
    author, the time and other values.
    """

    importer: str
    source: Untrusted
    format: str
    original: str
    claimed_author: Untrusted | None
    claimed_at: Untrusted | None
    claims: RecordClaims


class ReasoningLine(Marked, frozen=True, kw_only=True):
    """A reasoning in a list, at its latest version. ``confidence`` is that of its conclusion, from 0 to 1.

    ``tags`` say in a few words what it found, what to do, how urgent that is, and its domain. They are empty until it
    is concluded. ``is_refuted`` says that its conclusion rests on a refuted assumption. ``happened_ms`` is when it
    began, and ``changed_ms`` when it changed last: of an imported one the times that it claims, 0 if it claims none.
    """

    id: str
    task: Untrusted
    ai_id: Untrusted
    author: str
    domain: Untrusted
    session: str
    reasoning_strategy: Untrusted
    status: ReasoningStatus
    conclusion: Untrusted
    is_refuted: bool
    tags: list[Untrusted]
    confidence: float
    ref: str
    version: int
    steps: int
    started_index: Index
    happened_ms: Ms
    updated_index: Index
    updated_ms: Ms
    changed_ms: Ms
    imported: ImportedReasoning | None


class ExistingReasonings(Answer, frozen=True, kw_only=True):
    """The reasonings of these ids; unknown ids are left out."""

    reasonings: dict[str, ReasoningLine]


class ReasoningVersion(Marked, frozen=True, kw_only=True):
    """A version of a reasoning, and the event that made it.

    ``version`` counts from 1, ``base`` is the ref of the version before, and ``steps`` is their number.
    """

    version: int
    ref: str
    base: str | None
    event_index: Index
    kind: str
    steps: int


class ShownReasoning(ReasoningLine, frozen=True, kw_only=True):
    """A reasoning at its latest version: its whole graph (``memory``), and all versions, the oldest first.

    ``asked_version`` is the number of the newest version that the reference names. ``confidence`` is that of the
    conclusion, from 0 to 1.
    """

    as_of: Head | UnsetType = UNSET
    versions: list[ReasoningVersion]
    asked_version: int
    memory: ReasoningMemory


class FullReasoning(Marked, frozen=True, kw_only=True):
    """A version of a reasoning as its whole graph. ``canonical`` is the text whose SHA-256 is ``ref``."""

    author: str
    domain: Untrusted
    session: str
    status: ReasoningStatus
    imported: ImportedReasoning | None
    ref: str
    reasoning_id: str
    version: int
    event_index: Index
    memory: ReasoningMemory
    canonical: Untrusted


class PayloadSizes(Answer, frozen=True, kw_only=True):
    """The sizes of the payloads that could be sent.

    Null: it needs a base, and the receiver named none, or the requested version did not grow out of it.
    """

    full: Size
    chain: Size | None = None
    squashed: Size | None = None


class ReasoningPayload(Checked, frozen=True, kw_only=True):
    """The smallest payload for a receiver, from which they rebuild the graph and check its hash.

    ``ref`` and ``base`` (the version that the receiver has) are whole. ``tokenizer`` counted the tokens; they are an
    estimate unless the count is ``exact``.
    """

    ref: str
    reasoning_id: str
    version: int
    base: str | None
    sent_as: SentAs
    payload: Untrusted
    sizes: PayloadSizes
    tokenizer: str
    exact: bool


class Origins(Checked, frozen=True, kw_only=True):
    """The ids of the reasonings with a version, and how many of them were recorded here (``own``) or imported."""

    own: int
    imported: int
    ids: list[str]
