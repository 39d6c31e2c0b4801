"""The validator as a whole: the demo's audit, stale evidence, judges that can only add findings, briefs, the report."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from graphs import audit_graph, audit_json, chain, graph
from msgspec.structs import replace
from trees_for_tests import SAMPLE, citing, commit, write

from deedbook.consumers.reasoning.compressor.compress import compress
from deedbook.consumers.reasoning.validator.evidence import HOLDING
from deedbook.consumers.reasoning.validator.report import ValidationReport, report_size_max_bytes
from deedbook.consumers.reasoning.validator.trees import open_tree
from deedbook.consumers.reasoning.validator.validator import ReasoningValidator, Verdict, judged_max
from deedbook.ledger.events.brief import Brief
from deedbook.ledger.events.reasoning import EvidenceCheck, Opinion, ReasoningValidated
from deedbook.ledger.format.codec import encode_canonical
from deedbook.projections.briefs.critical import critical_numbers
from deedbook.projections.briefs.prompt import TransferLevel
from deedbook.projections.reasoning.memory import ReasoningMemory, ReasoningStep, compute_reasoning_ref


class FixedJudge:
    """A double of a model: it gives the same judgement on everything, and counts its calls."""

    model = "test-judge"
    prompt_hash = "sha256:" + "1" * 64

    def __init__(self, opinion: Opinion) -> None:
        self.opinion = opinion
        self.asked: list[int] = []

    def judge(self, step: ReasoningStep, deps: Sequence[ReasoningStep]) -> Verdict:
        self.asked.append(step.step_number)
        return Verdict(self.opinion, f"rests on {len(deps)}")


def stale_evidence(report: ValidationReport) -> list[EvidenceCheck]:
    """Return the evidence that does not hold."""
    return [check for check in report.evidence if check.status not in HOLDING]


def verification_coverage(brief: Brief, memory: ReasoningMemory) -> float | None:
    """Return the share of a graph's critical inferences that the brief contains with all their premises.

    A step with the same text as the brief's conclusion counts as contained: briefs do not repeat it. None if the graph
    has no critical inference.
    """
    critical = critical_numbers(memory)
    wanted = [number for number, rests_on in memory.dependencies.items() if rests_on and number in critical]
    held = {fact.step for fact in brief.facts}
    held |= {step.step_number for step in memory.steps if step.content.strip() == brief.conclusion.strip()}
    kept = sum(number in held and held.issuperset(memory.dependencies[number]) for number in wanted)
    return round(kept / len(wanted), 4) if wanted else None


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return shutil.copytree(SAMPLE, tmp_path / "project")


def test_audit_of_the_demo_passes_against_its_sample_project() -> None:
    with open_tree(SAMPLE) as tree:
        report = ReasoningValidator(tree).validate(audit_graph())
    assert report.issues == []
    assert report.reasoning_ref == compute_reasoning_ref(audit_graph())
    assert {check.status for check in report.evidence} == {"ok"}
    counts = report.counts()
    assert (counts.steps, counts.evidence, counts.evidence_ok, counts.inferences_sound) == (12, 9, 9, 5)
    assert [(check.step, check.status, check.check) for check in report.assumptions] == [
        (3, "not_checked", ""),
        (5, "not_checked", ""),
    ]


@pytest.mark.parametrize(
    ("file", "before", "after", "stale"),
    [
        ("env.example", "JWT_SECRET=changeme", "JWT_SECRET=changed", ["env.example:12:JWT_SECRET=changeme"]),
        ("api/auth.py", "HOURS = 24", "HOURS = 1", ["api/auth.py:29:TOKEN_LIFETIME_HOURS = 24"]),
        ("config/logging.yaml", "readers: 14", "readers: 140", ["config/logging.yaml:53:readers: 14"]),
    ],
)
def test_changing_a_cited_line_names_the_evidence_that_is_stale(
    project: Path, file: str, before: str, after: str, stale: list[str]
) -> None:
    text = (project / file).read_text("utf-8")
    write(project, {file: text.replace(before, after)})
    report = ReasoningValidator(open_tree(project)).validate(audit_graph())
    assert not report.passed
    assert [check.reference for check in stale_evidence(report)] == stale
    assert [issue.code for issue in report.issues] == ["EVIDENCE_LINE_CHANGED"]
    assert stale[0] in report.issues[0].message


def test_line_cited_by_number_alone_is_stale_once_it_differs_from_an_earlier_report(project: Path) -> None:
    former = ReasoningValidator(open_tree(project)).validate(audit_graph())
    text = (project / "config/logging.yaml").read_text("utf-8")
    write(project, {"config/logging.yaml": text.replace("include_environment: true", "include_environment: false")})
    validator = ReasoningValidator(open_tree(project))
    assert validator.validate(audit_graph()).passed
    report = validator.validate(audit_graph(), earlier=former.evidence)
    assert [check.reference for check in stale_evidence(report)] == ["config/logging.yaml:45"]
    others = [check.status for check in report.evidence if check.reference.startswith("config/logging.yaml:4")]
    assert others == ["line_changed", "file_changed_line_same"]


def test_deleted_files_and_shorter_files_are_told_apart(project: Path) -> None:
    (project / "env.example").unlink()
    write(project, {"docs/runbook.md": "# Runbook\n"})
    report = ReasoningValidator(open_tree(project)).validate(audit_graph())
    assert [(check.step, check.status) for check in stale_evidence(report)] == [(1, "gone"), (11, "no_such_line")]


def test_commit_passes_where_the_working_folder_does_not(project: Path) -> None:
    made = commit(project)
    write(project, {"env.example": "empty\n"})
    report = ReasoningValidator(open_tree(project, "HEAD")).validate(audit_graph())
    assert (report.passed, report.tree.type, report.tree.commit) == (True, "commit", made)
    assert not ReasoningValidator(open_tree(project)).validate(audit_graph()).passed


def test_folder_is_named_by_what_was_read_of_it_and_never_by_its_path(project: Path) -> None:
    def digest(folder: Path) -> str | None:
        report = ReasoningValidator(open_tree(folder)).validate(audit_graph())
        assert str(folder) not in str(report.to_dict())
        return report.tree.digest

    first = digest(project)
    assert digest(SAMPLE) == first
    write(project, {"unread.txt": "x\n"})
    assert digest(project) == first
    write(project, {"env.example": "JWT_SECRET=changeme\n"})
    assert digest(project) != first


def test_evidence_that_nobody_looked_up_is_no_failure_and_does_not_stand() -> None:
    report = ReasoningValidator().validate(audit_graph())
    assert (report.passed, report.counts().evidence_ok) == (True, 0)
    assert {check.status for check in report.evidence} == {"not_checked"}
    assert msgspec.to_builtins(report.tree) == {"type": "none"}


def test_step_with_49_good_references_and_one_bad_does_not_pass(tmp_path: Path) -> None:
    write(tmp_path, {"a.txt": "x\n" * 50})
    good = [f"a.txt:{line}:x" for line in range(1, 50)]
    assert ReasoningValidator(open_tree(tmp_path)).validate(citing(*good)).passed
    assert not ReasoningValidator(open_tree(tmp_path)).validate(citing(*good, "a.txt:51:x")).passed


# Judges


def test_judge_that_approves_never_turns_a_failed_check_into_a_pass() -> None:
    values = audit_json()
    values["steps"][8]["confidence"] = 0.99
    broken = graph(values)
    with open_tree(SAMPLE) as tree:
        alone = ReasoningValidator(tree).validate(broken)
        judged = ReasoningValidator(tree, FixedJudge("follows")).validate(broken)
    assert not alone.passed
    assert judged.issues == alone.issues
    assert [check.status for check in judged.inferences] == [check.status for check in alone.inferences]
    assert {(check.method, check.opinion) for check in judged.inferences} == {("judged", "follows")}


def test_judge_that_doubts_fails_what_structure_let_pass() -> None:
    judge = FixedJudge("does_not_follow")
    with open_tree(SAMPLE) as tree:
        report = ReasoningValidator(tree, judge).validate(audit_graph())
    assert judge.asked == [2, 4, 7, 9, 12]
    assert [issue.code for issue in report.issues] == ["INFERENCE_DOUBTED"] * 5
    data = report.to_event()
    assert data.judge is not None
    assert (data.judge.model, data.judge.prompt_hash) == (judge.model, judge.prompt_hash)
    assert (data.counts.inferences_judged, data.counts.inferences_doubted) == (5, 5)


def test_judge_that_is_unsure_changes_nothing_and_is_asked_a_bounded_number_of_times() -> None:
    with open_tree(SAMPLE) as tree:
        assert ReasoningValidator(tree, FixedJudge("unsure")).validate(audit_graph()).passed
    judge = FixedJudge("unsure")
    report = ReasoningValidator(judge=judge).validate(chain(judged_max + 50))
    assert len(judge.asked) == judged_max
    assert report.counts().inferences_judged == judged_max


# Briefs


def test_brief_lists_which_inferences_can_be_checked_from_it_alone() -> None:
    memory = audit_graph()
    brief = compress(memory, TransferLevel.STANDARD, domain="security")
    with open_tree(SAMPLE) as tree:
        report = ReasoningValidator(tree).validate(brief)
    assert (report.passed, report.coverage) == (True, 1.0)
    assert report.checkable == [2, 4, 7, 9]  # 12 is the conclusion, which the brief says once
    assert verification_coverage(brief, memory) == 1.0
    assert [check.step for check in report.assumptions] == [3, 5]

    without = replace(brief, facts=[fact for fact in brief.facts if fact.step != 4])
    report = ReasoningValidator().validate(without)
    assert (report.not_checkable, report.coverage) == ([7], 0.6667)
    assert verification_coverage(without, memory) == 0.6


def test_brief_with_stale_evidence_or_a_circle_does_not_pass(project: Path) -> None:
    brief = compress(audit_graph(), TransferLevel.STANDARD)
    (project / "env.example").unlink()
    report = ReasoningValidator(open_tree(project)).validate(brief)
    assert [issue.code for issue in report.issues] == ["EVIDENCE_GONE"]
    circle = [replace(brief.facts[0], evidence=[], rests_on=[brief.facts[0].step])]
    report = ReasoningValidator(open_tree(project)).validate(replace(brief, facts=circle))
    assert [issue.code for issue in report.issues] == ["DEPENDENCY_CYCLE"]
    report = ReasoningValidator().validate(replace(brief, facts=[], conclusion=""))
    assert {issue.code for issue in report.issues} == {"GRAPH_EMPTY", "CONCLUSION_MISSING"}


# The report


def test_issues_can_be_added_and_the_report_does_not_pass_any_more() -> None:
    report = ValidationReport("sha256:" + "0" * 64)
    assert report.passed
    report.add_issue("Evidence not found: " + "x" * 500)
    assert not report.passed
    assert len(report.issues[0].message) == 300


def test_event_reads_back_as_it_was_and_a_long_report_keeps_the_worst(tmp_path: Path) -> None:
    write(tmp_path, {"a.txt": "x\n" * 3000})
    references = [f"a.txt:{line}:x" for line in range(1, 2001)]
    report = ReasoningValidator(open_tree(tmp_path)).validate(citing(*references, "b.txt:1"))
    data = report.to_event(whole="blake3:" + "0" * 64)
    text = encode_canonical(data)
    assert msgspec.json.decode(text, type=ReasoningValidated) == data
    assert len(text) < report_size_max_bytes + 4096
    assert data.evidence[0].status == "gone"
    assert (data.counts.evidence, data.counts.evidence_ok) == (2001, 2000)
    assert data.omitted == 2001 - len(data.evidence)
    assert data.whole is not None
    assert replace(report.to_event(), evidence=[]).issues == data.issues


def test_short_report_needs_no_blob() -> None:
    with open_tree(SAMPLE) as tree:
        data = ReasoningValidator(tree).validate(audit_graph()).to_event(whole="blake3:" + "0" * 64)
    assert (data.omitted, data.whole, data.passed) == (0, None, True)


def test_graph_without_a_canonical_form_has_no_ref() -> None:
    broken = ReasoningMemory("", "", "t", "c", confidence_in_reasoning=float("nan"))
    assert ReasoningValidator().validate(broken).reasoning_ref == ""
