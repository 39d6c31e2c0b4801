"""Handoffs, reasoning and sessions as objects: ``ledger.handoff("id").claim()``.

Each noun is one stream; its verbs are those of the command line, and sign one event each, or several at once. The
nouns of an ``AsyncLedger`` (``async_ledger``) have the same verbs, awaited. A verb returns the positions of the events
that it published; inside ``batch()`` the list is empty.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypedDict, Unpack

from deedbook.consumers.handoffs.composition import creation, events_of
from deedbook.consumers.handoffs.content import query_for
from deedbook.consumers.handoffs.decision_drafts import drafts_of
from deedbook.consumers.handoffs.short_ids import by_whole_id
from deedbook.consumers.interfaces.python.near_names import Spelled
from deedbook.consumers.reasoning.compressor import transfer
from deedbook.consumers.reasoning.links import check_drafts
from deedbook.consumers.reasoning.operations import NewConclusion, NewStep
from deedbook.consumers.reasoning.validator import publication
from deedbook.consumers.reasoning.validator.evidence import cite
from deedbook.consumers.reasoning.validator.trees import tree_of, work_tree
from deedbook.consumers.sdk.batch import present_batch
from deedbook.consumers.sessions.operations import Resolution, Retraction
from deedbook.consumers.sessions.report import correction, report_at_end
from deedbook.ledger.errors import Refused
from deedbook.ledger.events import decision as decisions
from deedbook.ledger.events import handoff as handoffs
from deedbook.ledger.events import question as questions
from deedbook.ledger.events import reasoning as reasonings
from deedbook.ledger.events import session as sessions
from deedbook.ledger.events.fields import EventData
from deedbook.projections.answers.checked import ask
from deedbook.projections.briefs.prompt import TransferLevel

if TYPE_CHECKING:
    from deedbook.consumers.handoffs.operations import Verb
    from deedbook.consumers.interfaces.python.queries import QueryingLedger
    from deedbook.consumers.reasoning.compressor.transfer import DescribedBrief
    from deedbook.consumers.reasoning.validator.report import ValidationReport
    from deedbook.ledger.admission.decide import Accepted
    from deedbook.ledger.client.author import Author, Draft
    from deedbook.projections.decisions.answers import ShownDecision
    from deedbook.projections.handoffs.answers import ShownHandoff, Why
    from deedbook.projections.questions.answers import ShownQuestion
    from deedbook.projections.reasoning.answers import ShownReasoning
    from deedbook.projections.reasoning.memory import ReasoningMemory
    from deedbook.projections.sessions.answers import ShownSession

# Arguments that are lists of texts. Python would accept a single text as a sequence of letters.
_lists = (
    "tasks",
    "criteria",
    "depends_on",
    "evidence",
    "limitations",
    "premises",
    "alternatives_considered",
    "assumptions",
    "paths",
    "reasoning",
    "supersedes",
    *handoffs.ReceiverNotes.__struct_fields__,
    "topics",
)


def _check_lists(arguments: Mapping[str, Any]) -> None:
    """Refuse one text in place of a list: each of its letters would be signed as a text."""
    for name in _lists:
        if isinstance(arguments.get(name), str):
            raise Refused("USAGE", f"{name} is a list of texts, not one text: {name}=[{arguments[name][:40]!r}]")


def _values_of(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a method that are not None, sequences as lists. Raises Refused: as ``_check_lists``."""
    _check_lists(arguments)
    return {
        name: list(value) if isinstance(value, Sequence) and not isinstance(value, str) else value
        for name, value in arguments.items()
        if name != "self" and value is not None
    }


class Changes(TypedDict, total=False):
    """The arguments of ``Handoff.create`` that its sender may change."""

    to: str
    title: str
    reviewer: str
    body: str
    tasks: Sequence[str]
    criteria: Sequence[str]
    context: str
    done: Sequence[str]
    found: Sequence[str]
    reproduce: Sequence[str]
    baseline: Sequence[str]
    tested_by: Sequence[str]
    touches: Sequence[str]
    traps: Sequence[str]
    tried: Sequence[str]
    argued: Sequence[str]
    not_known: Sequence[str]
    not_part: Sequence[str]
    artifacts: Sequence[str]
    depends_on: Sequence[str]
    unlock_at: Literal["completed", "verified"]
    answers: str
    proposal: str
    reasoning: Sequence[str]


class Noun(Spelled):
    """The base of the nouns: one stream of a ledger, by the id in the stream's name."""

    family: ClassVar[str]

    def __init__(self, ledger: QueryingLedger, id: str) -> None:  # noqa: A002 - the word that all use
        self._ledger = ledger
        self.id = self.id_in(id)
        self.stream = f"{self.family}/{self.id}"

    @classmethod
    def id_in(cls, name: str) -> str:
        """Return the id in the name of a stream or file, or the id itself."""
        return name.removeprefix(f"{cls.family}/")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id!r})"

    def _pending(self) -> list[EventData | dict[str, Any]]:
        """Return the events for this stream in the batch that is open here. No query shows them yet."""
        batch = present_batch(self._ledger)
        return [] if batch is None else batch.pending(self.stream)

    def _publish(self, *data: EventData) -> list[Accepted]:
        return self._ledger.publish(self.stream, *data)


class Handoff(Noun):
    """Work that one agent hands to another. Every verb raises ``Refused`` with a code when it may not be done now."""

    family = "handoff"

    @classmethod
    def id_in(cls, name: str) -> str:
        """Return the id in the name of a stream or file, or the id itself."""
        return super().id_in(name).removesuffix(".md")

    def show(self) -> ShownHandoff:
        """Return the handoff: title, version, status and its reason, tasks, criteria, log, and what waits for what."""
        return self._ledger.handoffs.show(id=self.id)

    def why(self) -> Why:
        """Return why the handoff is not ready, or that it is; ``sentence`` says it in one sentence."""
        return self._ledger.handoffs.why(id=self.id)

    def create(
        self,
        *,
        to: str,
        title: str,
        reviewer: str | None = None,
        body: str = "",
        tasks: Sequence[str] = (),
        criteria: Sequence[str] = (),
        context: str = "",
        done: Sequence[str] = (),
        found: Sequence[str] = (),
        reproduce: Sequence[str] = (),
        baseline: Sequence[str] = (),
        tested_by: Sequence[str] = (),
        touches: Sequence[str] = (),
        traps: Sequence[str] = (),
        tried: Sequence[str] = (),
        argued: Sequence[str] = (),
        not_known: Sequence[str] = (),
        not_part: Sequence[str] = (),
        artifacts: Sequence[str] = (),
        session: str | None = None,
        topics: Sequence[str] = (),
        depends_on: Sequence[str] = (),
        unlock_at: Literal["completed", "verified"] = "completed",
        answers: str | None = None,
        proposal: str | None = None,
        reasoning: Sequence[str] = (),
    ) -> list[Accepted]:
        """Create the handoff. It waits for the approval of ``reviewer`` (default: the configured one).

        ``to`` receives the work, and ``body`` describes it. ``answers`` is the handoff that this one answers;
        ``reasoning`` has the ids or refs of reasonings that support it. ``done``, ``found``, ``reproduce``,
        ``baseline``, ``tested_by``, ``touches``, ``traps``, ``tried``, ``argued``, ``not_known``, ``not_part`` and
        ``artifacts`` tell the receiver what only you know: see ``ReceiverNotes``. The records of ``session`` (default:
        your open one) are attached; of several ``topics`` in it, name those of this handoff.
        """
        values = _values_of(locals())
        settings = self._ledger.settings

        def make(author: Author) -> list[EventData]:
            view = partial(ask, author.client)
            return [creation(view, settings.agent or "", settings, self.id, values).data]

        return self._ledger.publish_from(self.stream, make)

    def amend(self, *, reason: str = "", version: str | None = None, **changes: Unpack[Changes]) -> list[Accepted]:
        """Change some arguments of ``create`` before work begins. The handoff then needs a new approval.

        If you are human, and it names no reviewer, then this approves it. If it was imported, name the ``version`` that
        you have read in ``show()``.
        """
        _check_lists(changes)
        return self._operate("amend", **changes, reason=reason, version=version)

    def approve(self, version: str, *, comment: str = "") -> list[Accepted]:
        """Approve exactly this ``version``, which you have read in ``show()``, as the reviewer."""
        return self._publish(handoffs.HandoffApproved(version=version, comment=comment))

    def reject(self, reason: str) -> list[Accepted]:
        """Reject the handoff for good, as the reviewer."""
        return self._publish(handoffs.HandoffRejected(reason=reason))

    def claim(self, *, lease_minutes: int | None = None) -> list[Accepted]:
        """Start work. After ``lease_minutes`` it is released unless it is completed."""
        lease_seconds = None if lease_minutes is None else 60 * lease_minutes
        return self._publish(handoffs.HandoffClaimed(lease_seconds=lease_seconds))

    def check(
        self,
        *,
        tasks: Sequence[int] = (),
        criteria: Sequence[int] = (),
        all_open: bool = False,
        undo: bool = False,
        evidence: str | Sequence[str] = "",
    ) -> list[Accepted]:
        """Tick tasks and criteria, counted from 1, or ``all_open``; ``undo`` removes the ticks.

        ``evidence`` is one text for all of them, or one for each.
        """
        shows = [evidence] if isinstance(evidence, str) else evidence
        arguments = {"task_numbers": tasks, "criterion_numbers": criteria, "evidence": shows}
        return self._operate("check", **arguments, all_open=all_open, undo=undo)

    def ask_waiver(self, criterion: int, reason: str) -> list[Accepted]:
        """Ask the reviewer to waive a criterion, counted from 1."""
        return self._operate("ask_waiver", criterion_numbers=criterion, reason=reason)

    def waive(self, criterion: int, reason: str, *, refuse: bool = False) -> list[Accepted]:
        """Waive a criterion, counted from 1, as its reviewer; ``refuse`` rejects the request for a waiver."""
        return self._operate("waive", criterion_numbers=criterion, reason=reason, refuse=refuse)

    def ask(self, to: str, question: str, *, about: str | None = None) -> list[Accepted]:
        """Ask another agent; ``about`` is PATH or PATH:LINE. A question to the receiver blocks the completion."""
        return self._publish(handoffs.HandoffQuestionAsked(to=to, question=question, place=about))

    def answer(self, question: int, text: str) -> list[Accepted]:
        """Answer a question to you, counted from 1. Its author settles it."""
        return self._operate("answer", question_numbers=[question], text=text)

    def settle(self, *questions: int, comment: str = "") -> list[Accepted]:
        """Accept the answers to your questions, counted from 1, or withdraw them; the reviewer may, too."""
        return self._operate("settle", question_numbers=list(questions), comment=comment)

    def log(self, text: str) -> list[Accepted]:
        """Add a line to its log."""
        return self._publish(handoffs.HandoffLogged(text=text))

    def release(self, reason: str = "") -> list[Accepted]:
        """Return claimed work, so that somebody else can claim it."""
        return self._publish(handoffs.HandoffReleased(reason=reason))

    def block(self, reason: str) -> list[Accepted]:
        """Report that the work cannot continue, and why."""
        return self._publish(handoffs.HandoffBlocked(reason=reason))

    def unblock(self, comment: str = "") -> list[Accepted]:
        """Report that the work can continue."""
        return self._publish(handoffs.HandoffUnblocked(comment=comment))

    def complete(
        self, summary: str = "", *, artifacts: Sequence[str] = (), reasoning: Sequence[str] = ()
    ) -> list[Accepted]:
        """Report that the work is done, with the ``reasoning`` behind it. Each criterion must be checked or waived."""
        _check_lists({"artifacts": artifacts, "reasoning": reasoning})
        if reasoning:
            return self._operate("complete", summary=summary, artifacts=list(artifacts), reasoning=list(reasoning))
        return self._publish(handoffs.HandoffCompleted(summary=summary, artifacts=list(artifacts)))

    def verify(self, result: str, *, comment: str = "") -> list[Accepted]:
        """Accept exactly this ``result``, which you have read in ``show()``, as the reviewer."""
        return self._operate("verify", result=result, comment=comment)

    def request_changes(self, result: str, *reasons: str) -> list[Accepted]:
        """Send exactly this ``result`` back, which you have read in ``show()``, as the reviewer."""
        return self._operate("request_changes", result=result, reason=list(reasons))

    def cancel(self, reason: str) -> list[Accepted]:
        """Cancel the handoff."""
        return self._publish(handoffs.HandoffCancelled(reason=reason))

    def supersede(self, by: str, *, reason: str = "") -> list[Accepted]:
        """Replace this handoff by another one."""
        return self._publish(handoffs.HandoffSuperseded(by=by.removesuffix(".md"), reason=reason))

    def _operate(self, verb: Verb, **arguments: Any) -> list[Accepted]:
        """Publish an operation on the handoff as it is now. Raises Refused: ``USAGE`` in a batch that changes it."""
        if self._pending():
            message = f"{verb} reads handoff {self.id}, which this batch changes: call it after the batch"
            raise Refused("USAGE", message)

        def make(author: Author) -> list[EventData]:
            handoff = by_whole_id(ask(author.client, query_for(verb), {"id": self.id}), self.family, self.id)
            return events_of(verb, handoff, arguments, author)

        return self._ledger.publish_from(self.stream, make)


class Decision(Noun):
    """A decision about some files, which is in force until somebody replaces or withdraws it."""

    family = "decision"

    def show(self) -> ShownDecision:
        """Return the decision: its text, reason and paths, whether it is in force, and what replaces it."""
        return self._ledger.decisions.show(id=self.id)

    def make(
        self,
        text: str,
        *,
        why: str = "",
        paths: Sequence[str] = (),
        contract: bool = False,
        supersedes: Sequence[str] = (),
    ) -> list[Accepted]:
        """Tell every agent of the ledger what was decided about the files and folders in ``paths``.

        A ``contract`` is a decision on which other parts of the project rely. ``supersedes`` are the ids of decisions
        that it replaces: your own, or any if you are a reviewer or human.
        """
        _check_lists({"paths": paths, "supersedes": supersedes})

        def drafts(author: Author) -> list[Draft]:
            return drafts_of(
                partial(ask, author.client),
                text,
                why=why,
                paths=paths,
                contract=contract,
                supersedes=supersedes,
                id_=self.id,
            )[1]

        return self._ledger.publish_drafts(drafts)

    def withdraw(self, reason: str) -> list[Accepted]:
        """Withdraw the decision, as its author, a reviewer or a human."""
        return self._publish(decisions.DecisionWithdrawn(reason=reason))


class AskedQuestion(Noun):
    """A question to another agent that is about no handoff; for one about a handoff, see ``Handoff.ask``."""

    family = "question"

    def show(self) -> ShownQuestion:
        """Return the question, with its last answer."""
        return self._ledger.questions.show(id=self.id)

    def ask(self, to: str, question: str, *, about: str | None = None) -> list[Accepted]:
        """Ask another agent; ``about`` is PATH or PATH:LINE."""
        return self._publish(questions.QuestionAsked(to=to, question=question, place=about))

    def answer(self, text: str) -> list[Accepted]:
        """Answer the question, if it is to you. It stays open until it is settled."""
        return self._publish(questions.QuestionAnswered(answer=text))

    def settle(self, comment: str = "") -> list[Accepted]:
        """Accept the answer to your question, or withdraw it; a reviewer or human may, too."""
        return self._publish(questions.QuestionSettled(comment=comment))


class Reasoning(Noun):
    """A reasoning, recorded step by step; others read a brief of it with measured fidelity, or the whole graph."""

    family = "reasoning"

    def show(self) -> ShownReasoning:
        """Return the reasoning: its steps, their dependencies, and its versions."""
        return self._ledger.reasonings.show(id=self.id)

    def start(
        self, task: str, *, ai_id: str = "", strategy: str = "", domain: str = "", session: str = ""
    ) -> list[Accepted]:
        """Start the reasoning; only its author can extend it."""
        data = reasonings.ReasoningStarted(
            task=task, ai_id=ai_id, reasoning_strategy=strategy, domain=domain, session=session
        )
        return self._publish(data)

    def step(
        self,
        /,
        content: str,
        *,
        type: reasonings.StepType = "inference",  # noqa: A002 - the field's name
        rests_on: Sequence[int] = (),
        evidence: Sequence[str] = (),
        confidence: float = 1.0,
        reasoning_type: reasonings.ReasoningType = "",
        premises: Sequence[str] = (),
        alternatives_considered: Sequence[str] = (),
        assumptions: Sequence[str] = (),
        conclusion: str | None = None,
        needs_validation: bool | None = None,
        validation_method: str | None = None,
        step_number: int | None = None,
    ) -> list[Accepted]:
        """Add one step, which follows from the steps ``rests_on``; ``step_number`` is the next by default."""
        new_step = NewStep(**_values_of(locals()))
        pending = self._pending()

        def make(author: Author) -> list[EventData]:
            extended = new_step.extension(new_step.step_number or self._next_number(author, pending))
            return self._warned(author, [extended], pending)

        return self._ledger.publish_from(self.stream, make)

    def _next_number(self, author: Author, pending: Sequence[EventData | dict[str, Any]]) -> int:
        numbers = [step.step_number for data in pending for step in getattr(data, "steps", ())]
        if not any(isinstance(data, reasonings.ReasoningStarted) for data in pending):
            steps = author.client.view("reasoning.show", {"id": self.id})["memory"]["steps"]
            numbers += [step["step_number"] for step in steps]
        return max(numbers, default=0) + 1

    def assume(self, content: str, *, check: str | None = None) -> list[Accepted]:
        """Add an assumption that needs validation; ``check`` says how somebody can validate it."""
        return self.step(content, type="assumption", validation_method=check)

    def settle(self, step: int, how: str, *, holds: bool, evidence: Sequence[str] = ()) -> list[Accepted]:
        """Record whether an assumption ``holds`` or is refuted, how this was found, and the evidence."""
        _check_lists({"evidence": evidence})
        data = reasonings.AssumptionSettled(step=step, holds=holds, how=how, evidence=list(evidence))
        pending = self._pending()
        return self._ledger.publish_from(self.stream, lambda author: self._warned(author, [data], pending))

    def retract(self, step: int, reason: str) -> list[Accepted]:
        """Retract a step of your own: later versions lack it, and every link to it."""
        return self._publish(reasonings.StepRetracted(step=step, reason=reason))

    def _warned(self, author: Author, events: list[EventData], pending: Sequence[Any]) -> list[EventData]:
        """Return events with the digests of the evidence, after warnings about what is missing or unlinked."""
        view = partial(ask, author.client)
        if pending:  # no query shows a reasoning that is still in a batch
            cited, warned = cite(events, view)
        else:
            cited, warned = check_drafts([(self.stream, data) for data in events], view)
        for warning in warned:
            logging.getLogger("deedbook").warning(warning)
        return cited

    def conclude(
        self,
        conclusion: str,
        *,
        rests_on: Sequence[int] = (),
        confidence: float | None = None,
        limitations: Sequence[str] | None = None,
    ) -> list[Accepted]:
        """Record the conclusion, the steps that it ``rests_on``, the confidence in it (0 to 1), and its limitations.

        Concluded again, a reasoning keeps the confidence and the limitations that you leave out.
        """
        _check_lists({"limitations": limitations, "rests_on": rests_on})
        concluded = NewConclusion(
            conclusion=conclusion,
            rests_on=list(rests_on),
            confidence_in_reasoning=confidence,
            known_limitations=None if limitations is None else list(limitations),
        )
        pending = self._pending()

        def make(author: Author) -> list[EventData]:
            number = self._next_number(author, pending) if rests_on else 0
            return self._warned(author, concluded.events(number), pending)

        return self._ledger.publish_from(self.stream, make)

    def brief(
        self, budget: int | None = None, *, level: Literal["minimal", "standard", "full"] = "standard"
    ) -> DescribedBrief:
        """Return a brief: its ``prompt`` of at most ``budget`` tokens, its measured ``fidelity``, and what it omits.

        A published brief is compared with its graph first; ``rejected`` is a published brief that does not match it.
        """
        view = partial(ask, self._ledger.client)
        return transfer.described(transfer.receive_brief(view, self.id, TransferLevel(level), budget=budget))

    def fetch(self) -> ReasoningMemory:
        """Return the whole graph; its hash was recomputed."""
        return transfer.fetch(partial(ask, self._ledger.client), self.id).memory

    def validate(self, tree: str | Path | None = None, *, publish: bool = False) -> ValidationReport:
        """Return a report on the evidence, the assumptions and the structure; ``publish`` also signs and appends it.

        Evidence is looked up in the folder ``tree``, by default the git work tree of the working folder.
        Raises Refused: ``SELF_APPROVAL`` to publish that your own reasoning passes.
        """
        folder = Path(tree) if tree is not None else work_tree(Path.cwd())
        view = partial(ask, self._ledger.client)
        author = self._ledger.author() if publish else None
        with tree_of(folder) as opened:
            validated = publication.validate_ref(view, self.id, tree=opened, validator=author.name if author else "")
        if author is not None:
            publication.publish(author, view, validated)
        return validated.report


class Session(Noun):
    """A session: what an agent does and learns, from its start to its end."""

    family = "session"

    def show(self) -> ShownSession:
        """Return the session: its vectors in each phase, findings, unknowns, dead ends and tools."""
        return self._ledger.sessions.show(id=self.id)

    def start(self, task: str = "", *, ai_id: str | None = None, resumes: str = "") -> list[Accepted]:
        """Start the session; only its author can add to it. ``ai_id`` is the label by which its report is found."""
        label = (self._ledger.settings.agent or "") if ai_id is None else ai_id
        return self._publish(sessions.SessionStarted(task=task, ai_id=label, resumes=resumes))

    def assess(
        self,
        phase: sessions.Phase,
        vectors: Mapping[str, float],
        *,
        reasoning: str = "",
        round: int = 0,  # noqa: A002 - the field's name
        overall_confidence: float | None = None,
    ) -> list[Accepted]:
        """Assess your knowledge, ability and uncertainty. A missing vector counts as not assessed, never as 0."""
        if unknown := vectors.keys() - set(sessions.Vectors.__struct_fields__):
            there_are = ", ".join(sessions.Vectors.__struct_fields__)
            raise Refused("UNKNOWN_FIELD", f"there is no vector {min(unknown)!r}; there are: {there_are}")
        data = sessions.AssessmentRecorded(
            phase=phase,
            vectors=sessions.Vectors(**vectors),
            reasoning=reasoning,
            round=round,
            overall_confidence=overall_confidence,
        )
        return self._publish(data)

    def finding(
        self, finding: str, *, evidence: Sequence[str] = (), impact: float | None = None, topic: str = ""
    ) -> list[Accepted]:
        """Record what you found out, and the ``evidence`` of it."""
        _check_lists({"evidence": evidence})
        data = sessions.FindingLogged(finding=finding, evidence=list(evidence), impact=impact, topic=topic)
        return self._publish(data)

    def unknown(self, unknown: str, *, impact: float | None = None, topic: str = "") -> list[Accepted]:
        """Record what you do not know yet."""
        return self._publish(sessions.UnknownLogged(unknown=unknown, impact=impact, topic=topic))

    def dead_end(
        self,
        approach: str,
        why: str,
        *,
        impact: float | None = None,
        topic: str = "",
        basis: sessions.Basis | None = None,
    ) -> list[Accepted]:
        """Record an approach that failed, and why. ``basis``: you tried it, or you argue that it must fail."""
        data = sessions.DeadEndLogged(approach=approach, why_failed=why, impact=impact, topic=topic, basis=basis)
        return self._publish(data)

    def retract(self, ref: str | int, reason: str) -> list[Accepted]:
        """Retract a finding or dead end by the index or id of its entry, also after the session's end."""
        return self._correct(Retraction(ref=str(ref), reason=reason))

    def resolve(self, ref: str | int, answer: str) -> list[Accepted]:
        """Record the answer to an unknown; ``ref`` is as for ``retract``."""
        return self._correct(Resolution(ref=str(ref), answer=answer))

    def _correct(self, entry: Retraction | Resolution) -> list[Accepted]:
        def make(author: Author) -> list[EventData]:
            stream, data = correction(partial(ask, author.client), entry)
            if stream != self.stream:
                raise Refused("USAGE", f"{entry.ref} is an event of {stream}, not of {self.stream}: use that session")
            return [data]

        return self._ledger.publish_from(self.stream, make)

    def tool(self, tool: str, purpose: str = "", *, topic: str = "") -> list[Accepted]:
        """Record a tool that you used to find something out."""
        return self._publish(sessions.ToolUsed(tool=tool, purpose=purpose, topic=topic))

    def end(self, summary: str = "") -> list[Accepted]:
        """End the session, and make its report if it found something and has none.

        A report that fails is a warning in the log, and ``deed session sweep`` makes it; in ``batch()`` none is made.
        """
        accepted = self._publish(sessions.SessionEnded(summary=summary))
        if accepted:
            ledger = self._ledger
            report = report_at_end(ledger.author(), partial(ask, ledger.client), ledger.settings, self.id)
            if report["status"] == "failed":
                message = "session %s has ended without its report: %s (`deed session sweep` makes it)"
                logging.getLogger("deedbook").warning(message, self.id, report["error"]["message"])
        return accepted
