"""A handoff file is parsed: the parts that are read, and the parts that do not count."""

from __future__ import annotations

from typing import get_args

import pytest
from handoff_texts import FIRST, PROPOSAL, SECOND

from deedbook.consumers.handoffs.files.syntax.document import HandoffFile
from deedbook.consumers.handoffs.files.syntax.parser import parse
from deedbook.ledger.lifecycle.handoff_status import Status

META = "# Handoff: x\n\n## Meta\n- Status: pending\n- From: kuro\n- To: bob\n"


def read(text: str) -> HandoffFile:
    return parse(text.encode())


def shown(file: HandoffFile) -> list[tuple[int, str]]:
    return [(problem.line, problem.text) for problem in file.problems]


# The protocol's own examples


def test_first_example_of_the_protocol() -> None:
    file = parse(FIRST)
    assert (file.format, file.title) == ("handoff/v2", "Reactive Phase 2a — Event Bus Foundation")
    assert [(entry.name, entry.line) for entry in file.meta][::6] == [("Status", 4), ("Depends-on", 10)]
    assert (file.sender, file.to, file.reviewer, file.created) == ("kuro", "claude-code", "alex", "2026-02-12")
    assert file.proposal == "proposals/2026-02-12-reactive-architecture.md"
    assert file.depends_on == ()
    assert file.task.startswith("建立 src/event-bus.ts")
    assert file.task.endswith("\nsingleton eventBus 實例。")
    assert [task.text for task in file.tasks][::6] == ["建立 src/event-bus.ts", "寫單元測試"]
    assert [(one.text, one.line) for one in file.criteria][:1] == [("pnpm typecheck 通過", 27)]
    assert file.context.count("\n") == 1
    assert [(one.day, one.author, one.text) for one in file.log] == [("2026-02-12", "kuro", "建立 handoff")]


def test_second_example_of_the_protocol_depends_on_the_first() -> None:
    file = parse(SECOND)
    assert file.depends_on == ("2026-02-12-reactive-phase-2a",)
    assert (file.proposal, file.tasks, file.context) == (None, (), "")
    assert len(file.criteria) == 2


def test_the_proposal_of_the_protocol_has_its_status_in_a_heading() -> None:
    file = parse(PROPOSAL)
    assert file.format == "proposal"
    assert file.status
    assert (file.status.word, file.status.rest, file.status.line) == ("completed", " (2026-02-12)", 3)
    assert (file.meta, file.tasks, file.criteria, file.log) == ((), (), (), ())  # its check boxes are in a code block


# Meta


def test_a_file_without_the_new_elements_is_of_the_first_version() -> None:
    assert read(f"{META}\n## Task\nx\n").format == "handoff/v1"
    assert read(f"{META}\n## Tasks\n").format == "handoff/v2"
    assert read(f"{META}- Depends-on: (none)\n\n## Task\n").format == "handoff/v2"


@pytest.mark.parametrize(
    "line", ["- **Status**: {}", "* **Status:** {}", "+ Status：{}", "Status: {}", "1. `status`: {}"]
)
def test_keys_may_be_bold_and_colons_full_width(line: str) -> None:
    file = read(f"# Handoff: x\n\n## Meta\n{line.format('blocked, by rain')}\n- From: a\n- To: b\n\n## Task\n")
    assert file.status
    assert (file.status.word, file.status.rest) == ("blocked", ", by rain")


@pytest.mark.parametrize(
    ("value", "word", "rest"),
    [
        ("approved（Alex 直接指定 P0）", "approved", "（Alex 直接指定 P0）"),
        ("Approved", "approved", ""),
        ("in-progress since Monday", "in_progress", " since Monday"),
        ("In Progress", "in_progress", ""),
        ("**completed** ✅", "completed", "** ✅"),
        ("✅ verified", "verified", ""),
        ("canceled.", "cancelled", "."),
        ("superseded by y", "superseded", " by y"),
    ],
)
def test_status_is_one_word_and_the_text_after_it(value: str, word: str, rest: str) -> None:
    file = read(META.replace("pending", value) + "\n## Task\n")
    assert file.status
    assert (file.status.word, file.status.rest) == (word, rest)
    assert file.problems == ()


@pytest.mark.parametrize("value", ["done", "已完成", "pend"])
def test_an_unknown_status_is_a_problem(value: str) -> None:
    file = read(META.replace("pending", value) + "\n## Task\n")
    assert file.status
    assert file.status.word == value
    statuses = ", ".join(get_args(Status))
    assert shown(file) == [(4, f"'{value}' is not a status of the protocol ({statuses})")]


def test_of_two_statuses_the_first_counts_wherever_it_stands() -> None:
    file = read(f"# Proposal: x\n\n## Status: completed (now)\n{META[13:]}\n## Status: verified\n")
    assert file.status
    assert (file.status.word, file.status.line) == ("completed", 3)
    assert shown(file) == [
        (6, "Status is on line 3 and again on line 6: the first counts"),
        (10, "Status is on line 3 and again on line 10: the first counts"),
    ]


@pytest.mark.parametrize("none", ["—", "-", "(none)", "None", "（無）", ""])
def test_none_has_many_spellings(none: str) -> None:
    file = read(f"{META}- Reviewer: {none}\n- Proposal: {none}\n- Depends-on: {none}\n\n## Task\n")
    assert (file.reviewer, file.proposal, file.depends_on) == (None, None, ())


@pytest.mark.parametrize(
    "value",
    [
        "a.md, b",
        "`a.md`，b.md",
        "[first](a.md), [b.md](b.md)",
        "a.md   ← 新增, b.md",
        "a ← 新增, b",
        "a.md (phase 2)、b",
        "\n  - a.md\n  - b.md",
        "a.md,\n  b.md",
        "a, a.md, b",
    ],
)
def test_dependencies_are_ids_without_their_ending(value: str) -> None:
    assert read(f"{META}- Depends-on: {value}\n\n## Task\n").depends_on == ("a", "b")


@pytest.mark.parametrize("name", ["../x", "a/b", ".hidden"])
def test_a_dependency_that_is_no_id_is_kept_and_named(name: str) -> None:
    file = read(f"{META}- Depends-on: {name}.md, y\n\n## Task\n")
    assert file.depends_on == (name, "y")  # the ledger refuses it; to leave it out would open the gate
    assert shown(file) == [(7, f"Depends-on names '{name}', which is not a valid handoff id")]


def test_a_key_given_twice_counts_once_and_is_named_with_both_lines() -> None:
    file = read(f"{META}- Reviewer: alex\n- reviewer: bob\n\n## Task\n")
    assert file.reviewer == "alex"
    assert shown(file) == [(8, "reviewer is on line 7 and again on line 8: the first counts; remove the other")]


def test_addresses_and_what_is_indented_are_no_keys() -> None:
    file = read(f"{META}- https://x.example: y\n- Notes:\n  - Reviewer: eve\n    Proposal: evil\n\n## Task\n")
    assert (file.reviewer, file.proposal) == (None, None)
    assert [entry.name for entry in file.meta] == ["Status", "From", "To", "notes"]


def test_without_a_meta_heading_only_known_keys_before_the_first_section_count() -> None:
    file = read("# Handoff: x\n\nStatus: blocked\nFrom: a\nTo: b\nNote: this\n\n## Task\nReviewer: eve\n")
    assert file.status
    assert (file.status.word, file.sender, file.to, file.reviewer) == ("blocked", "a", "b", None)
    assert [entry.name for entry in file.meta] == ["Status", "From", "To"]


def test_what_a_handoff_lacks_is_a_problem() -> None:
    assert shown(read("# x\n\n## Meta\n- Status: pending\n- To: —\n\n## Task\n")) == [
        (1, "the Meta block has no From"),
        (1, "the title does not begin with 'Handoff:' or 'Proposal:'"),
        (5, "the Meta block has no To"),
    ]


# Title and sections


@pytest.mark.parametrize(
    ("heading", "title"),
    [
        ("# Handoff: <b>x</b> & *y* `z`", "<b>x</b> & *y* `z`"),
        ("#   HANDOFF：快取 ##", "快取"),
        ("# 提案: 背景", "背景"),
        ("Proposal: under\n=====", "under"),
        ("# Proposal: Handoff: twice", "Handoff: twice"),
    ],
)
def test_titles_keep_their_markup(heading: str, title: str) -> None:
    assert read(f"{heading}\n\n## Meta\n- Status: pending\n- From: a\n- To: b\n\n## Task\n").title == title


@pytest.mark.parametrize(
    "heading", ["## TASKS", "## **Tasks**:", "##  子任務", "## 📋 Tasks ##", "# 子任务", "## `tasks`："]
)
def test_section_headings_ignore_case_and_markup(heading: str) -> None:
    assert [task.text for task in read(f"{META}\n{heading}\n- [ ] x\n").tasks] == ["x"]


def test_only_headings_of_two_hashes_end_a_section() -> None:
    file = read(f"{META}\n## Task\none\n---\n\n### Log\ntwo\n===\n\n- # three\n> ## four\n\n## Context\nfive\n")
    assert file.task == "one\n---\n\n### Log\ntwo\n===\n\n- # three\n> ## four"
    assert file.context == "five"


def test_a_handoff_that_ends_in_a_cut_heading_is_named() -> None:
    assert [line for line, _ in shown(read(f"{META}\n## Ta"))] == [8]
    assert read(f"{META}\n## Other\n\n## Task\n").problems == ()


def test_a_section_given_twice_counts_once() -> None:
    file = read(f"{META}\n## Tasks\n- [ ] a\n\n## Tasks\n- [ ] b\n")
    assert [task.text for task in file.tasks] == ["a"]
    assert shown(file) == [(11, "a section Tasks begins on line 8 and again on line 11: only the first counts")]


# Check boxes


def test_check_boxes_in_code_or_quotations_do_not_count() -> None:
    body = "```\n- [ ] a\n```\n\n    - [ ] b\n\n> - [ ] c\n\n<!--\n- [ ] d\n-->\n- ~~~\n  - [ ] e\n  ~~~\n- [x] f\n"
    file = read(f"{META}\n## Tasks\n{body}\n## Acceptance Criteria\n~~~~\n- [ ] g\n## Log\n~~~~\n- [ ] h\n")
    assert [(one.text, one.is_checked) for one in (*file.tasks, *file.criteria)] == [("f", True), ("h", False)]


def test_check_boxes_of_all_bullets_and_depths_come_in_order() -> None:
    file = read(f"{META}\n## Tasks\n- [ ] a\n  * [x] b\n\n\t+ [X] c\n1. [ ] d\n   e\n- - [ ]\tf\n-\n  [x] g\n- [-] h\n")
    assert [(one.text, one.is_checked, one.line) for one in file.tasks] == [
        ("a", False, 9),
        ("b", True, 10),
        ("c", True, 12),
        ("d e", False, 13),
        ("f", False, 15),
        ("g", True, 17),
    ]


def test_what_looks_like_a_check_box_and_is_none_is_named() -> None:
    file = read(f"{META}\n## Acceptance Criteria\n- [ ]glued\n- []\n-[ ] x\n- [ ]\n- [x](link)\n- [ ] real\n")
    assert [one.text for one in file.criteria] == ["real"]
    assert [line for line, _ in shown(file)] == [9, 10, 11, 12]
    assert shown(file)[0] == (9, "'- [ ]glued' is not a check box: write '- [ ] text'")


def test_criteria_without_boxes_are_named() -> None:
    file = read(f"{META}\n## Acceptance Criteria\n\n- tests pass\n- all of them\n")
    assert shown(file) == [(10, "Acceptance Criteria has list items without check boxes; they do not count")]
    assert read(f"{META}\n## Acceptance Criteria\n> - quoted\n").problems == ()


# Log


def test_log_lines_are_read_in_their_form_and_kept_in_any() -> None:
    log = "- 2026-02-12 [kuro] a\n* 2026-02-12T10:00:00Z [bob] b\n  c\n\n- 2026-13-01 [x] d\n- e\n"
    file = read(f"{META}\n## Log\n{log}```\n- 2026-02-12 [x] f\n```\n")
    assert [(one.line, one.day, one.author, one.text) for one in file.log][:5] == [
        (9, "2026-02-12", "kuro", "a"),
        (10, "2026-02-12", "bob", "b c"),
        (13, None, None, "- 2026-13-01 [x] d"),
        (14, None, None, "- e"),
        (15, None, None, "```"),
    ]
    assert [line for line, _ in shown(file)] == [13, 14]
