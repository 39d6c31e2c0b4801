"""Each case of ``proto/cases`` in a log that has every event of it: both verifiers name the one that a gate refuses.

The bundle's own ``verify.py`` has another implementation of the rules than Deedbook's auditor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from forge_runner import ForgeRunner
from judges import alone, ours, program
from rule_cases import Case, Story, all_cases, id_of, lines_of, log_cases

from deedbook.ledger.lifecycle import handoff

if TYPE_CHECKING:
    from pathlib import Path

bundle_cases = 100  # verify.py prints so many problems
SHARED = [case for case in all_cases() if not case.changes_authority]
OWN = [case for case in log_cases() if case.changes_authority]


@pytest.mark.parametrize("start", range(0, len(SHARED), bundle_cases))
def test_verifiers_name_each_event_that_the_rules_refuse_and_no_other(start: int, tmp_path: Path) -> None:
    runner = ForgeRunner()
    cases = SHARED[start : start + bundle_cases]
    indexes = {runner.tell(case, prefix=f"c{number}-"): case for number, case in enumerate(cases)}
    refused = {index: {case.then} for index, case in indexes.items() if not case.then.startswith("ok")}
    path = runner.forge.export(tmp_path / "cases.tar")
    for judge in (ours, alone):
        codes = judge(path).codes
        wrong = [index for index in codes.keys() | refused.keys() if refused.get(index) != codes.get(index)]
        names = {id_of(indexes[index]) if index in indexes else index: codes.get(index) for index in wrong}
        assert names == {}, judge.__name__


@pytest.mark.parametrize("case", OWN, ids=id_of)
def test_verifiers_reach_the_outcome_after_changes_of_authority(case: Case, tmp_path: Path) -> None:
    runner = ForgeRunner()
    index = runner.tell(case)
    path = runner.forge.export(tmp_path / "case.tar")
    codes = {} if case.then.startswith("ok") else {index: {case.then}}
    assert (ours(path).codes, alone(path).codes) == (codes, codes)


@pytest.mark.parametrize(
    "lines",
    [
        ["alice handoff.created h1 to=bob reviewer=rita depends_on=LONG"],
        ["hugo handoff.created h1 to=bob depends_on=LONG"],
        ["scribe record.imported h1 as=handoff.created depends_on=LONG"],
        ["pending", "alice handoff.amended h1 to=bob reviewer=rita depends_on=LONG"],
        ["humans_approved", "hugo handoff.amended h1 to=bob depends_on=LONG"],
    ],
)
def test_dependencies_are_followed_up_to_a_limit(
    lines: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = ForgeRunner()
    story = Story(runner, "")
    chain = [f'alice handoff.created d{n} to=bob reviewer=rita depends_on=["d{n + 1}"]' for n in range(1, 5)]
    enough = 'alice handoff.created enough to=bob reviewer=rita depends_on=["d2"]'
    for line in lines_of("handoff", *chain, enough, *lines):
        story.tell(line.replace("LONG", '["d1"]'))
    monkeypatch.setattr(handoff, "dependencies_walked_max", 4)
    monkeypatch.setattr(program(), "DEPENDENCIES_MAX", 4)
    path = runner.forge.export(tmp_path / "log.tar")
    codes = {runner.size() - 1: {"TOO_LARGE"}}
    assert (ours(path).codes, alone(path).codes) == (codes, codes)


@pytest.mark.parametrize("limit", ["questions_max", "questions_of_author_max"])
def test_handoff_takes_questions_up_to_a_limit(limit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = ForgeRunner()
    story = Story(runner, "")
    asked = "eve handoff.question_asked h1 to=bob"
    settled = [asked, "eve handoff.question_settled h1 position=0"] if limit == "questions_of_author_max" else []
    of_other = ["alice handoff.question_asked h1 to=bob"] if settled else []
    for line in lines_of("handoff", "pending", *settled, *of_other, *[asked] * 3):
        story.tell(line)
    monkeypatch.setattr(handoff, limit, 2)
    monkeypatch.setattr(program(), limit.upper(), 2)
    path = runner.forge.export(tmp_path / "log.tar")
    codes = {runner.size() - 1: {"TOO_LARGE"}}
    assert (ours(path).codes, alone(path).codes) == (codes, codes)
