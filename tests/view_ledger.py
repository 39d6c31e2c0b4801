"""A ledger with events for every view, and the short sequences of events that view tests need."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
import tot_story
from building import Ledger
from event_examples import published

from deedbook.ledger.client.author import Draft
from deedbook.ledger.events import decision, question, reasoning, review, session, snapshot
from deedbook.ledger.events.brief import BlockSummaries, Brief, Fidelity, Layout, Sizes
from deedbook.ledger.events.declared import KindDeclared
from deedbook.ledger.log.keys import PREDECESSORS_KEY
from deedbook.projections.reasoning.graph import GraphState, apply_event, ref_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from deedbook.ledger.admission.decide import Accepted
    from deedbook.ledger.client.local import LocalClient
    from deedbook.ledger.format.identity import Key


# Arguments for each query that needs some, for a ledger after ``fill``.
ARGUMENTS: Final[dict[str, dict[str, Any]]] = {
    "agents.show": {"id": "bob"},
    "briefs.best": {"id": "r1", "level": "minimal"},
    "catalog.instant": {"at": 3},
    "catalog.show": {"id": "3"},
    "catalog.why": {"id": "3"},
    "decisions.show": {"id": "d1"},
    "handoffs.references": {"id": "b"},
    "handoffs.show": {"id": "b"},
    "handoffs.existing": {"ids": ["a", "b", "unknown"]},
    "handoffs.facts": {"id": "b.md"},
    "handoffs.why": {"id": "b"},
    "handoffs.versions": {"id": "b"},
    "handoffs.unread": {"agent": "bob"},
    "kinds.show": {"id": "x.deploy.finished"},
    "questions.show": {"id": "q1"},
    "reasoning.existing": {"ids": ["r1"]},
    "reasoning.fetch": {"id": "r1"},
    "reasoning.full": {"id": "r1"},
    "reasoning.origins": {"id": "sha256:" + "0" * 64},
    "reasoning.show": {"id": "r1"},
    "reports.accomplished": {"id": "s1"},
    "reports.list": {"task_pattern": "leak|登入"},
    "reports.show": {"id": "s1"},
    "records.existing": {"places": [{"original": "blake3:" + "0" * 64, "source": "notes"}]},
    "redactions.versions": {"entry": 3},
    "resolve": {"id": "3"},
    "reviews.show": {"id": "v1"},
    "search.facets": {"text": "login"},
    "search.find": {"text": "login"},
    "search.related": {"task": "Find the leak"},
    "search.similar": {"task": "Find the leak"},
    "sessions.show": {"id": "s1"},
    "sessions.trajectory": {"id": "s1"},
    "snapshots.domains": {"reasoning_ref": "sha256:" + "0" * 64},
    "snapshots.show": {"id": "n1"},
    "tot.prove": {"id": "tot-2026"},
    "tot.show": {"id": "tot-20260212-100000-a3f7b2"},
    "tot.tree": {"id": "tot-20260212-100000-a3f7b2"},
    "validations.latest": {"id": "r1"},
    "validations.list": {"id": "r1"},
}


class Told(NamedTuple):
    """A ledger after a story: the rows of the log's tables, other files, keys, and the time."""

    tables: dict[str, list[tuple[bytes, bytes]]]
    files: dict[str, bytes]
    keys: dict[str, Key]
    now_ms: int


_told: Final[dict[object, Told]] = {}


class ViewLedger(Ledger):
    """A ``Ledger`` with the service ``scribe``, which may publish briefs; ``reads`` is the client that views follow."""

    def __init__(self, folder: Any) -> None:
        super().__init__(folder)
        self.register("scribe", "service")
        self.reads: LocalClient = self.client()
        self.start = self.size  # the index of the first event of a test

    @property
    def size(self) -> int:
        """The number of entries."""
        return self.head()[0]

    def tell(self, story: str, play: Callable[[], None]) -> None:
        """Play a story. If an equal ledger has played it before, copy the result, which takes a tenth of the time.

        The copy is written as another process would write it, so open readers of the log keep working.
        """
        begun, log, home = (story, self.head(), self.clock.now_ms), self.log.tables, self.home.path
        if (told := _told.get(begun)) is None:
            play()
            with log.reading() as txn:
                tables = {name: [*txn.cursor(db=table)] for name, table in log.tables.items()}
            # This record is about one file, so no copy may have it.
            tables["state"] = [row for row in tables["state"] if row[0] != PREDECESSORS_KEY]
            paths = [path for folder in ("blobs", "keys") for path in (home / folder).rglob("*") if path.is_file()]
            files = {str(path.relative_to(home)): path.read_bytes() for path in paths}
            _told[begun] = Told(tables, files, dict(self.keys), self.clock.now_ms)
            return
        with log.writing() as txn:
            for name, rows in told.tables.items():
                txn.drop(log.tables[name], delete=False)
                txn.cursor(db=log.tables[name]).putmulti(rows, append=True)
        for name, content in told.files.items():
            (home / name).parent.mkdir(parents=True, exist_ok=True)
            (home / name).write_bytes(content)
        self.keys.update(told.keys)
        self.clock.now_ms = told.now_ms

    def emit_all(self, author: str, stream: str, *data: Any) -> list[Accepted]:
        """Append events of one author to one stream, as one submission."""
        return self.submit(self.sign(author, *(Draft(stream=stream, data=one) for one in data)))

    def reason(self, name: str, *, steps: int = 3) -> str:
        """Let bob record a reasoning by steps, settle the assumption in step 2 and conclude; return the last ref."""
        stream = f"reasoning/{name}"
        first = self.size
        self.emit("bob", stream, reasoning.ReasoningStarted(task="Is the login safe? 登入", ai_id="bob-1"))
        for number in range(1, steps + 1):
            sort = "assumption" if number == 2 else "observation"
            step = reasoning.Step(step_number=number, type=sort, content=f"Step {number} of {name}")
            rests_on = {number: [number - 1]} if number > 1 else {}
            self.emit("bob", stream, reasoning.ReasoningExtended(steps=[step], dependencies=rests_on))
        self.emit("bob", stream, reasoning.AssumptionSettled(step=2, holds=True, how="Validated: encrypted"))
        self.emit("bob", stream, reasoning.ReasoningConcluded(conclusion="It is.", confidence_in_reasoning=0.8))
        graph = GraphState()
        for index in range(first, self.size):
            graph = apply_event(graph, self.event(index).data, "bob")
        return ref_of(graph)

    def validate(self, name: str, ref: str, *, by: str = "scribe", **fields: Any) -> Accepted:
        """Let an agent publish a validation of a version; the version passed unless ``fields`` say otherwise."""
        made: dict[str, Any] = {
            "reasoning_ref": ref,
            "passed": True,
            "issues": [],
            "evidence": [],
            "assumptions": [],
            "inferences": [],
            "tree": reasoning.CheckedTree(type="folder", digest="sha256:" + "4" * 64),
            "counts": reasoning.Counts(**dict.fromkeys(reasoning.Counts.__struct_fields__, 0)),
            "validator_name": "deedbook-validator",
            "validator_version": "1",
        }
        return self.emit(by, f"reasoning/{name}", reasoning.ReasoningValidated(**(made | fields)))

    def snap(self, name: str, *, by: str = "bob", **fields: Any) -> None:
        """Let an agent take a snapshot that has only a context."""
        made: dict[str, Any] = {
            "vectors": session.Vectors(know=0.7),
            "context_source": "author",
            "context_summary": "The login was looked at. 登入",
        }
        self.emit(by, f"snapshot/{name}", snapshot.SnapshotTaken(**(made | fields)))

    def ask(self, name: str, *, by: str = "bob", **fields: Any) -> None:
        """Let an agent request a review by a human."""
        asked = review.ReviewRequested(**({"question": "May it go on?", "rule": "high_impact"} | fields))
        self.emit(by, f"review/{name}", asked)

    def brief(self, name: str, ref: str, **fields: Any) -> None:
        """Let scribe publish a brief of a version."""
        tokens = fields.pop("tokens", 120)
        value = fields.pop("fidelity", 0.92)
        made: dict[str, Any] = {
            "reasoning_ref": ref,
            "level": "minimal",
            "budget": 200,
            "context": "",
            "conclusion": "It is.",
            "reasoning_brief": "",
            "facts": [],
            "remarks": [],
            "tags": [],
            "top_assumptions": [],
            "top_evidence_refs": [],
            "summaries": BlockSummaries("", "", "", 0, 0),
            "sizes": Sizes(tokens, 900),
            "fidelity": Fidelity(value=value, band="high", R=value, A=None, E=None, cap=1.0, vetoes=[], weights={}),
            "dropped_steps": [],
            "layout": Layout(),
            "compressor_name": "extract",
            "compressor_version": "1",
            "tokenizer": "cl100k_base",
            "exact": True,
        }
        brief = Brief(**(made | fields))
        self.emit("scribe", f"reasoning/{name}", reasoning.ReasoningBriefed(brief=brief, prompt="…", tokens=tokens))

    def record_session(self, name: str) -> None:
        """Let bob record a session with a record of every type, and end it."""
        self.emit_all(
            "bob",
            f"session/{name}",
            session.SessionStarted(task="Find the leak", ai_id="bob-1"),
            session.AssessmentRecorded(phase="PREFLIGHT", vectors=session.Vectors(know=0.0, do=0.5, uncertainty=0.6)),
            session.FindingLogged(finding="The pool is never closed", evidence=["a.py:3"], impact=0.7),
            session.UnknownLogged(unknown="Who opens it"),
            session.DeadEndLogged(approach="Restarting", why_failed="It comes back"),
            session.ToolUsed(tool="grep", purpose="find open()"),
            session.SessionEnded(summary="Found it"),
        )

    def report(self, name: str, *, by: str = "bob", **fields: Any) -> Accepted:
        """Let a session's owner publish a version of its report; ``fields`` replace its fields."""
        made: dict[str, Any] = {
            "report_type": "complete",
            "ai_id": "bob-1",
            "task_summary": "Found the leak in the pool",
            "key_findings": ["The pool is never closed", "It leaks 3 handles a minute"],
            "remaining_unknowns": ["Who opens it"],
            "recommended_next_steps": ["Close the pool"],
            "calibration_status": "well_calibrated",
            "epistemic_deltas": session.Deltas(know=0.5, uncertainty=-0.4),
            "preflight": session.Vectors(know=0.2, uncertainty=0.6),
            "postflight": session.Vectors(know=0.7, uncertainty=0.2),
        }
        return self.emit(by, f"session/{name}", session.ReportGenerated(**(made | fields)))

    def publish_own(self, *data: dict[str, Any]) -> None:
        """Declare the kind of the published example, if it is not declared yet, and publish events of this kind."""
        declared = msgspec.convert(published("kind.declared"), KindDeclared)
        self.emit("root", f"kind/{declared.name}", declared, idem="declared")
        for number, fields in enumerate(data):
            self.submit(self.sign("bob", Draft(kind=declared.name, stream=f"{declared.stream}/{number}", data=fields)))

    def fill(self) -> None:
        """Append handoffs, a validated reasoning, a session, a snapshot, a review, a decision, a tree of thoughts."""
        self.tell("some of everything", self._fill)

    def _fill(self) -> None:
        fields: dict[str, Any] = {"service": "zebra\u202e <b>api</b>", "version": 7, "hosts": ["a", "b"]}
        self.publish_own(fields, fields | {"outcome": "rolled back", "notes": "The zebra fell ill"})
        self.finish("a", verify=True)
        self.approve("b", self.hand_over("b", depends_on=["a"], tasks=["one", "two"], criteria=["green"]))
        self.hand_over("c", depends_on=["b"])
        ref = self.reason("r1")
        self.record_session("s1")
        self.report("s1")
        self.validate("r1", ref)
        self.snap("n1")
        self.ask("v1")
        self.emit("alice", "decision/d1", decision.DecisionMade(text="One pool", why="Two leak", paths=["a.py"]))
        self.emit("bob", "question/q1", question.QuestionAsked(to="alice", question="Which pool?", place="a.py:3"))
        tot_story.register(self)
        tot_story.play(self)
