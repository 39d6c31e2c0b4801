"""New files have the protocol's form; changed content goes into a file that keeps all its other text."""

from __future__ import annotations

from typing import Any

import pytest
from handoff_texts import FIRST, SECOND, documents, new
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from deedbook.consumers.handoffs.files.syntax.comparison import revise
from deedbook.consumers.handoffs.files.syntax.parser import parse
from deedbook.consumers.handoffs.files.syntax.sections import trimmed
from deedbook.consumers.handoffs.files.syntax.writer import fields_of
from deedbook.ledger.errors import Refused

META = "# Handoff: x\n\n## Meta\n- Status: pending\n- From: kuro\n- To: bob\n"


def check_code(refusal: Refused, *codes: str) -> None:
    assert refusal.code in codes


words = st.text(st.sampled_from("ab 任#*_`[]()|\\<>-.:：—x1\t"), max_size=12)
texts = st.lists(
    st.one_of(
        words,
        st.sampled_from(["# H", "## Log", "\\## x", "### y", "```", "~~~", "- [ ] a", "---", "    code", "<div>"]),
    ),
    max_size=6,
).map("\n".join)
lines = st.lists(words.filter(str.strip), max_size=4)


@pytest.mark.parametrize("content", [FIRST, SECOND])
def test_the_examples_of_the_protocol_are_written_byte_for_byte(content: bytes) -> None:
    assert new(**fields_of(parse(content))) == content


def test_a_file_of_the_least_content() -> None:
    written = new("Fix #", "al", "bo")
    assert written.decode() == (
        "# Handoff: Fix # #\n\n## Meta\n- Status: pending\n- From: al\n- To: bo\n- Reviewer: —\n"
        "- Depends-on: (none)\n\n## Task\n\n## Log\n"
    )
    assert parse(written).problems == ()


def test_headings_and_fences_in_a_text_stay_in_it() -> None:
    task = "# Plan\n## Log\n### Deeper\n\\## Shown\n```\n## Log\n\\## Code\n- [ ] x\n```\n  ## Indented"
    written = new(task=task, context="## Tasks\n- [ ] none", log=["- 2026-01-01 [a] b"])
    assert "\n\\# Plan\n\\## Log\n### Deeper\n\\\\## Shown\n```\n## Log\n\\## Code\n" in written.decode()
    file = parse(written)
    assert (file.task, file.context, file.tasks) == (task, "## Tasks\n- [ ] none", ())


@settings(deadline=None)
@given(
    st.fixed_dictionaries(
        dict.fromkeys(("title", "sender", "to"), words)
        | {"task": texts, "context": texts}
        | {"tasks": lines, "criteria": lines}
    )
)
def test_what_is_written_is_read_back_or_refused(content: dict[str, Any]) -> None:
    try:
        file = parse(new(**content))
    except Refused as refusal:
        check_code(refusal, "INVALID_FIELD")
        return
    assert (file.title, file.sender, file.to) == tuple(content[name].strip() for name in ("title", "sender", "to"))
    assert (file.task, file.context) == (trimmed(content["task"]), trimmed(content["context"]))
    assert [task.text for task in file.tasks] == [text.strip() for text in content["tasks"]]
    assert [one.text for one in file.criteria] == [text.strip() for text in content["criteria"]]


@settings(deadline=None)
@given(texts)
def test_a_text_is_only_refused_for_a_block_it_leaves_open(task: str) -> None:
    assume(not any(mark in task for mark in ("```", "~~~", "<")))
    assert parse(new(task=task)).task == trimmed(task)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("title", "a\nb"),
        ("title", " "),
        ("to", "b\n- Reviewer: eve"),
        ("to", "—"),
        ("reviewer", "-"),
        ("proposal", "a\rb"),
        ("depends_on", ["a, b"]),
        ("depends_on", ["a\n"]),
        ("task", "```\nopen"),
        ("context", "<!-- open"),
        ("tasks", ["a\n- [x] b"]),
        ("tasks", [""]),
        ("criteria", ["a\u0000"]),
        ("log", ["x"]),
        ("status", "—"),
    ],
)
def test_what_no_file_can_hold_is_refused(field: str, value: object) -> None:
    with pytest.raises(Refused) as refused:
        new(**{field: value})
    assert refused.value.code == "INVALID_FIELD"


# Revising


def revised(text: str, **changes: object) -> str:
    return revise(parse(text.encode()), changes).decode()


def test_a_revision_replaces_only_what_it_names() -> None:
    before = FIRST.decode().replace("## Context", "## Notes  \nkept\n\n## Context").replace("- [ ] 定義", "- [x] 定義")
    after = revised(
        before,
        title="Phase 2a",
        to="gemini",
        reviewer=None,
        proposal=None,
        depends_on=["a", "b"],
        task="新\n## Plan",
        tasks=[*[task.text for task in parse(before.encode()).tasks][:-1], "more", "寫單元測試"],
        criteria=["eventBus.emit / eventBus.on 基本流程可運作"],
        context="",
    )
    start, stop = before.index("建立 src"), before.index("\n\n## Tasks")
    expected = before[:start] + "新\n\\## Plan" + before[stop:]
    for old, changed in [
        ("# Handoff: Reactive Phase 2a — Event Bus Foundation", "# Handoff: Phase 2a"),
        ("To: claude-code", "To: gemini"),
        ("Reviewer: alex", "Reviewer: —"),
        ("Proposal: proposals/2026-02-12-reactive-architecture.md", "Proposal: —"),
        ("Depends-on: (none)", "Depends-on: a.md, b.md"),
        ("- [x] 定義", "- [ ] 定義"),
        ("- [ ] 寫單元測試", "- [ ] more\n- [ ] 寫單元測試"),
        ("- [ ] pnpm typecheck 通過\n- [ ] pnpm test 通過\n", ""),
        (parse(FIRST).context + "\n", ""),
    ]:
        assert old in expected
        expected = expected.replace(old, changed, 1)
    assert after == expected


def test_what_is_missing_is_added_in_the_order_of_the_form() -> None:
    after = revised(
        f"{META}\n## Other\ntext\n\n## Log\n- 2026-01-01 [a] b\n",
        criteria=["c"],
        tasks=["a", "b"],
        task="do",
        context="why",
        depends_on=["z"],
        reviewer="alex",
        proposal="p.md",
    )
    assert after == (
        META + "- Reviewer: alex\n- Proposal: p.md\n- Depends-on: z.md\n\n## Other\ntext\n\n## Task\ndo\n\n"
        "## Tasks\n- [ ] a\n- [ ] b\n\n## Acceptance Criteria\n- [ ] c\n\n## Context\nwhy\n\n"
        "## Log\n- 2026-01-01 [a] b\n"
    )


def test_a_proposal_without_meta_gets_one() -> None:
    after = revised("# Proposal: x\r\n\r\ntext", to="bob", depends_on=["a"])
    assert after == "# Proposal: x\r\n\r\n## Meta\r\n- To: bob\r\n- Depends-on: a.md\r\n\r\n\r\ntext"


def test_values_that_stood_on_several_lines_give_way_whole() -> None:
    text = META.replace("- To: bob", "- **Depends-on:**\n  - a.md\n  - b.md\n- To: bob") + "\n## Task\n"
    assert revised(text, depends_on=["a", "b"]) == text
    assert revised(text, depends_on=["c"]) == text.replace("\n  - a.md\n  - b.md", " c.md")


def test_lists_keep_the_lines_of_what_stays() -> None:
    body = "intro\n\n* [x] a\n  - note of a\n* [ ] b\n  more of b\n\n  note of b\n  * [ ] c\n* [ ] d\n\noutro\n"
    text = f"{META}\n## Tasks\n{body}"
    untouched = body.replace("[x]", "[ ]")
    assert revised(text, tasks=["a", "b more of b", "c", "d"]) == f"{META}\n## Tasks\n{untouched}"
    assert revised(text, tasks=["a", "new", "c", "d"]) == text.replace("[x]", "[ ]").replace("b\n  more of b", "new")
    assert revised(text, tasks=["a", "b more of b", "c", "d", "e"]).endswith("* [ ] d\n* [ ] e\n\noutro\n")
    assert revised(text, tasks=["z", "a", "b more of b", "c", "d"]).count("intro\n\n* [ ] z\n* [ ] a\n  - note") == 1
    assert revised(text, tasks=["a", "d"]) == f"{META}\n## Tasks\nintro\n\n* [ ] a\n  - note of a\n* [ ] d\n\noutro\n"
    assert revised(text, tasks=[]) == f"{META}\n## Tasks\nintro\n\n\noutro\n"


def test_an_underlined_title_becomes_one_with_a_hash() -> None:
    text = META.replace("# Handoff: x", "Handoff: x\n===") + "\n## Task\n"
    assert revised(text, title="y") == META.replace("Handoff: x", "Handoff: y") + "\n## Task\n"


@pytest.mark.parametrize(
    "changes",
    [{"title": ""}, {"to": "a\nb"}, {"tasks": ["a\nb"]}, {"task": "~~~"}, {"depends_on": ["a,b"]}, {"to": "-"}],
)
def test_a_revision_that_would_not_be_read_back_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(Refused) as refused:
        revised(FIRST.decode(), **changes)
    assert refused.value.code == "INVALID_FIELD"


@settings(deadline=None)
@given(documents(), st.data())
def test_a_revision_is_read_back_and_touches_nothing_else(content: bytes, data: st.DataObject) -> None:
    try:
        file = parse(content)
    except Refused:
        assume(False)
    given_fields = {
        "title": words,
        "to": words,
        "reviewer": st.none() | words,
        "depends_on": st.lists(st.sampled_from("abc"), unique=True),
        "task": texts,
        "tasks": lines,
        "criteria": lines,
        "context": texts,
    }
    names = data.draw(st.lists(st.sampled_from(sorted(given_fields)), unique=True, max_size=4))
    changes = {name: data.draw(given_fields[name]) for name in names}
    try:
        after = parse(revise(file, changes))
    except Refused as refusal:
        check_code(refusal, "INVALID_FIELD", "INVALID_FORMAT")
        return
    before, found = fields_of(file), fields_of(after)
    assert {name: found[name] for name in found if name not in names} == {
        name: before[name] for name in before if name not in names
    }
    for name, value in changes.items():
        if name in ("tasks", "criteria"):
            assert found[name] == tuple(text.strip() for text in value)
            assert not any(box.is_checked for box in getattr(after, name))
        elif name != "depends_on" and value is not None:
            assert found[name] == (trimmed(value) if name in ("task", "context") else value.strip())
