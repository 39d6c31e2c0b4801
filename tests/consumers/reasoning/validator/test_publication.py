"""A report on the log: published once for each tree, by its validator, and compared with earlier reports of others."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from building import Ledger
from graphs import audit_graph, chain
from trees_for_tests import SAMPLE, write

from deedbook.consumers.reasoning.validator import publication
from deedbook.consumers.reasoning.validator.publication import offer, publish, validate_ref
from deedbook.consumers.reasoning.validator.trees import open_tree
from deedbook.consumers.reasoning.validator.validator import Verdict
from deedbook.ledger.client.author import Author
from deedbook.ledger.errors import Refused
from deedbook.ledger.events import reasoning
from deedbook.ledger.events.reasoning import Opinion
from deedbook.projections.answers.reader import Reader
from deedbook.projections.reasoning.memory import ReasoningMemory


class FixedJudge:
    """A double of a model that changes its mind."""

    model = "test-judge"
    prompt_hash = "sha256:" + "1" * 64

    def __init__(self, opinion: Opinion) -> None:
        self.opinion = opinion

    def judge(self, *_: object) -> Verdict:
        return Verdict(self.opinion, "")


class AuditedLedger:
    """A ledger with the demo's audit by alice, a copy of the project it cites, and a reader."""

    def __init__(self, home: Path, project: Path) -> None:
        self.ledger = Ledger(home)
        self.ledger.register("vera", "service")
        self.project = shutil.copytree(SAMPLE, project)
        self.client = self.ledger.client()
        self.reader = Reader(self.client, self.ledger.settings())
        self.record("audit", audit_graph())

    def record(self, name: str, memory: ReasoningMemory) -> None:
        stream = f"reasoning/{name}"
        self.ledger.emit("alice", stream, reasoning.ReasoningStarted(task=memory.task, ai_id=memory.ai_id))
        for step in memory.steps:
            added = reasoning.ReasoningExtended(
                steps=[msgspec.convert(step.to_dict(), reasoning.Step)],
                dependencies={
                    number: rests_on for number, rests_on in memory.dependencies.items() if number == step.step_number
                },
            )
            self.ledger.emit("alice", stream, added)
        concluded = reasoning.ReasoningConcluded(
            conclusion=memory.conclusion, confidence_in_reasoning=memory.confidence_in_reasoning
        )
        self.ledger.emit("alice", stream, concluded)

    def author(self, name: str) -> Author:
        return Author(self.client, name, lambda _: self.ledger.keys[name])

    def validate(self, by: str, *, ref: str = "audit", **options: Any) -> int:
        with open_tree(self.project) as tree:
            validated = validate_ref(self.reader.answer, ref, tree=tree, **options)
        size = self.size()
        index, is_new = publish(self.author(by), self.reader.answer, validated)
        assert is_new is (self.size() > size)
        return index

    def published(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.reader.answer("validations.list", {"id": "audit"})["items"]
        return found

    def size(self) -> int:
        return self.ledger.head()[0]


@pytest.fixture
def audited(home: Path, tmp_path: Path) -> Iterator[AuditedLedger]:
    made = AuditedLedger(home, tmp_path / "project")
    yield made
    made.reader.close()
    made.ledger.close()


def test_report_is_published_on_the_reasonings_stream_and_found_by_its_ref(audited: AuditedLedger) -> None:
    index = audited.validate("rita")
    assert index is not None
    event = audited.ledger.event(index)
    assert (event.kind, event.stream, event.author) == ("reasoning.validated", "reasoning/audit", "rita")
    shown = audited.reader.answer("reasoning.show", {"id": "audit"})
    assert event.data.reasoning_ref == shown["ref"]
    assert event.data.passed
    (row,) = audited.published()
    assert (row["passed"], row["author"], row["data"]["counts"]["evidence_ok"]) == (True, "rita", 9)
    listed = [audited.reader.answer("validations.list", {"id": ref}) for ref in ("audit", shown["ref"][:19])]
    assert [one["items"] for one in listed] == [[row], [row]]


def test_every_change_of_the_latest_verdict_is_one_event(
    audited: AuditedLedger,
) -> None:
    """A report is compared only with the latest one. Otherwise the second failure would be dropped as a repeat."""
    verdicts = []
    for text in ("JWT_SECRET=changed\n", None, "JWT_SECRET=changed\n", None, "JWT_SECRET=changed\n"):
        if text is None:
            shutil.copytree(SAMPLE, audited.project, dirs_exist_ok=True)
        else:
            write(audited.project, {"env.example": text})
        index = audited.validate("rita")
        assert audited.validate("rita") == index  # equal to the latest report, so it is not published again
        verdicts.append(audited.reader.answer("validations.latest", {"id": "audit"})["outcome"])
    # An assumption of the audit is open, so a report without faults is still "unchecked".
    assert verdicts == ["failed", "unchecked", "failed", "unchecked", "failed"]
    assert len(audited.published()) == len(verdicts)
    page = audited.reader.answer("validations.list", {"id": "audit", "author": "rita", "passed": True, "limit": 1})
    assert ([row["passed"] for row in page["items"]], page["total"]) == ([True], 2)
    assert page["next"] == page["items"][0]["event_index"]


def test_equal_validation_a_day_later_is_recorded_because_a_verdict_has_an_age(
    audited: AuditedLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = audited.validate("rita")
    assert audited.validate("rita") == first
    monkeypatch.setattr(publication, "again_after_s", 0)
    assert audited.validate("rita") != first


def test_equal_validations_are_one_event_and_a_changed_tree_makes_another(audited: AuditedLedger) -> None:
    first = audited.validate("rita")
    size = audited.size()
    assert audited.validate("rita") == first
    assert audited.size() == size
    write(audited.project, {"unread.txt": "x\n"})
    assert audited.validate("rita") == first
    write(audited.project, {"env.example": "JWT_SECRET=changed\n"})
    second = audited.validate("rita")
    assert second != first
    assert [row["passed"] for row in audited.published()] == [False, True]
    assert audited.validate("vera") not in {first, second}


def test_line_cited_by_number_alone_is_compared_with_what_another_agent_found(audited: AuditedLedger) -> None:
    path = audited.project / "config/logging.yaml"
    audited.validate("rita")
    changed = path.read_text("utf-8").replace("include_environment: true", "include_environment: false")
    path.write_text(changed, "utf-8")
    audited.validate("vera")
    newest = audited.published()[0]
    assert (newest["author"], newest["passed"]) == ("vera", False)
    assert [issue["code"] for issue in newest["data"]["issues"]] == ["EVIDENCE_LINE_CHANGED"]


@pytest.mark.parametrize(("author", "code"), [("alice", "SELF_APPROVAL"), ("bob", "NOT_AUTHORIZED")])
def test_author_of_the_reasoning_and_agents_without_the_role_publish_no_report(
    audited: AuditedLedger, author: str, code: str
) -> None:
    size = audited.size()
    with pytest.raises(Refused) as refused:
        audited.validate(author)
    assert refused.value.code == code
    assert audited.size() == size


def test_owner_says_that_their_own_reasoning_does_not_pass_until_somebody_else_reports(audited: AuditedLedger) -> None:
    def verdict() -> tuple[str, list[str]]:
        latest = audited.reader.answer("validations.latest", {"id": "audit"})
        return latest["outcome"], [voice["by"] for voice in (latest["latest"], *latest["differing"]) if voice]

    write(audited.project, {"env.example": "JWT_SECRET=changed\n"})
    audited.validate("alice")
    assert verdict() == ("failed", ["alice"])
    shutil.copytree(SAMPLE, audited.project, dirs_exist_ok=True)
    with pytest.raises(Refused, match="SELF_APPROVAL"):
        audited.validate("alice")
    audited.validate("rita")
    assert verdict() == ("unchecked", ["rita"])  # an assumption is open


def test_owner_publishes_a_failure_only_on_wish(audited: AuditedLedger) -> None:
    write(audited.project, {"env.example": "JWT_SECRET=changed\n"})
    with open_tree(audited.project) as tree:
        validated = validate_ref(audited.reader.answer, "audit", tree=tree)
    size = audited.size()
    assert "--publish" in offer(audited.author("alice"), audited.reader.answer, validated)["not_published"]
    assert audited.size() == size
    assert offer(audited.author("alice"), audited.reader.answer, validated, must=True) == {"published": size}


def test_judge_that_changes_its_mind_changes_the_verdict(audited: AuditedLedger) -> None:
    for opinion in ("follows", "does_not_follow"):
        audited.validate("rita", judge=FixedJudge(opinion))  # type: ignore[arg-type]  # the loop loses the literals
    assert [row["passed"] for row in audited.published()] == [False, True]


def test_long_report_is_kept_whole_in_a_blob(audited: AuditedLedger) -> None:
    audited.record("long", chain(300))
    index = audited.validate("rita", ref="long")
    assert index is not None
    data = audited.ledger.event(index).data
    assert data.omitted > 0
    whole = msgspec.json.decode(audited.client.get_blob(data.whole))
    assert len(whole["evidence"]) == data.counts.evidence == 300
    assert len(whole["issues"]) == data.counts.issues


def test_validation_of_nothing_is_refused(audited: AuditedLedger) -> None:
    audited.ledger.emit("alice", "reasoning/empty", reasoning.ReasoningStarted(task="t"))
    size = audited.size()
    for ref, code in (("nowhere", "NOT_FOUND"), ("empty", "TRANSITION_NOT_ALLOWED")):
        with pytest.raises(Refused) as refused:
            audited.validate("rita", ref=ref)
        assert refused.value.code == code
    assert audited.size() == size
