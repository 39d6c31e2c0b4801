"""The exams for readers of briefs: each question has four answers of one form, one right, equal in all conditions."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from graphs import chain

from tests.bench.brief_quality import reader
from tests.bench.brief_quality.incidents import incidents


@pytest.fixture(scope="module")
def exams(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("exams")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DEEDBOOK_CASES", str(folder))  # the folder has no cases, so graphs are generated
        reader.write(folder / "exams", folder / "key", 2, 1)
        reader.write(folder / "again", folder / "key", 2, 1)
    return folder / "exams", folder / "key"


def answer(folder: Path, name: str, answers: dict[str, str]) -> None:
    path = folder / "answers" / "somebody" / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(answers))


def test_every_condition_asks_the_same_and_the_same_seed_the_same_again(exams: tuple[Path, Path]) -> None:
    folder, _ = exams
    texts = {name: (folder / f"{name}.md").read_text() for name in reader.conditions()}
    asked = {
        name: [line for line in text.splitlines() if line.startswith(("   A) ", "   D) "))]
        for name, text in texts.items()
    }
    assert asked["nothing"]
    assert all(lines == asked["nothing"] for lines in asked.values())
    assert len(texts["full"]) > len(texts["400"]) > len(texts["200"]) > len(texts["120"]) > len(texts["nothing"])
    again = folder.parent / "again"
    assert {path.name: path.read_text() for path in again.iterdir()} == {
        path.name: path.read_text() for path in folder.iterdir() if path.is_file()
    }


def test_a_question_has_four_answers_and_none_says_the_right_one_of_another() -> None:
    asked = [one for questions in reader.questions_of([*incidents()[:6], chain(12)], 1) for one in questions]
    assert {"evidence", "assumptions", "premises", "details", reader.LINKS} <= {one.kind for one in asked}
    for one in asked:
        right = one.options[one.right]
        assert len(set(one.options)) == 4
        assert right not in one.text
        if one.kind in {"assumptions", "limitations", "details"}:
            others = [text for other in asked if other is not one for text in (other.text, *other.options)]
            assert not any(right in text for text in others)


def test_no_two_graphs_of_an_exam_share_a_row(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DEEDBOOK_CASES", str(tmp_path))
    rows = [row for memory in reader.graphs(16, 1) for row in memory.reasoning_id.split("+")]
    assert len(rows) == len(set(rows)) > 16


def test_wrong_sentences_are_as_near_to_the_right_one_as_to_each_other() -> None:
    memory = chain(12)
    text = memory.steps[0].content
    forms = reader._variants(memory, text, random.Random(1))
    assert len(forms) == 3
    for form in [text, *forms]:
        near = sorted(sum(a != b for a, b in zip(form.split(), other.split(), strict=True)) for other in [text, *forms])
        assert near == [0, 1, 1, 2]


def test_grades_are_the_shares_that_are_right_and_what_is_left_out_is_wrong(exams: tuple[Path, Path]) -> None:
    folder, key = exams
    keyed = json.loads((key / "key.json").read_text())
    right = {number: one["answer"] for number, one in keyed.items()}
    half = dict(list(right.items())[: len(right) // 2])
    counted = [number for number, one in keyed.items() if one["kind"] != reader.LINKS]
    answer(folder, "full", right)
    answer(folder, "200", half)
    header, full, brief = reader.grade(folder, key)
    assert header[:5] == ["reader", "condition", "answered", "right", "of full"]
    assert full[:5] == ["somebody", "full", str(len(right)), "1.000", "1.000"]
    assert brief[1:4] == ["200", str(len(half)), f"{sum(number in half for number in counted) / len(counted):.3f}"]


@pytest.mark.parametrize("answers", [{"99.1": "A"}, {"1.1": "E"}, {"1.1": "AB"}, {"1.1": ""}])
def test_an_answer_to_no_question_is_refused(tmp_path: Path, exams: tuple[Path, Path], answers: dict[str, str]) -> None:
    answer(tmp_path, "200", answers)
    with pytest.raises(ValueError, match="answers no question"):
        reader.grade(tmp_path, exams[1])
