"""Given the known facts of an event, a chain fires or says why not, and it always creates the same handoff."""

from __future__ import annotations

import re

import msgspec
import pytest
from chain_files import EVENT, STORY, chain, facts
from hypothesis import given
from hypothesis import strategies as st

from deedbook.consumers.handoffs.router.chains import fits
from deedbook.consumers.handoffs.router.chains_file import read_chains
from deedbook.consumers.handoffs.router.plans import (
    Lineage,
    handoff_id,
    mismatch,
    plan_step,
    read_lineage,
    stopped,
)
from deedbook.ledger.errors import Refused
from deedbook.ledger.events.handoff import HandoffId
from deedbook.ledger.format.codec import encode_canonical
from deedbook.ledger.limits import entry_size_max_bytes

ROOT = "12" * 8
REF = "sha256:" + "0" * 64


@pytest.mark.parametrize(
    ("pattern", "text", "does"),
    [
        ("a", "a", True),
        ("a", "ab", False),
        ("", "", True),
        ("", "a", False),
        ("*", "", True),
        ("*", "anything\nat all", True),
        ("a*", "abc", True),
        ("a*", "ba", False),
        ("*c", "abc", True),
        ("a*c", "ac", True),
        ("a*a", "a", False),
        ("a*b*c", "a-c-b-c", True),
        ("a*b*c", "acb", False),
        ("[ab]?", "a1", False),
        ("Tests", "tests", False),
    ],
)
def test_star_is_any_text_and_everything_else_itself(pattern: str, text: str, does: bool) -> None:
    assert fits(pattern, text) is does


@given(st.text("ab*", max_size=8), st.text("ab", max_size=12))
def test_patterns_mean_what_the_regular_expression_means(pattern: str, text: str) -> None:
    expression = ".*".join(re.escape(part) for part in pattern.split("*"))
    assert fits(pattern, text) is (re.fullmatch(expression, text) is not None)


@pytest.mark.parametrize(
    ("where", "reason"),
    [
        ("", None),
        ('where = {from = "alice", to = "minimax", reviewer = "rita", author = "rita"}', None),
        ('where = {id = "t*", title = "*bus", kind = "handoff.verified", chain = ""}', None),
        ('where = {to = ["claude", "mini*"]}', None),
        ('where = {to = "claude"}', "where.to: 'minimax' is not 'claude'"),
        ('where = {to = "minimax", from = ["bob", "c*"]}', "where.from: 'alice' is not 'bob' or 'c*'"),
        ('where = {chain = "*?"}', "where.chain: '' is not '*?'"),
    ],
)
def test_every_condition_must_be_met(where: str, reason: str | None) -> None:
    assert mismatch(chain(where), facts()) == reason


def test_event_of_another_kind_does_not_fire() -> None:
    assert mismatch(chain(), facts(kind="handoff.created")) == "when: handoff.created is not handoff.verified"


def test_step_makes_the_handoff_that_its_templates_say() -> None:
    validate, _ = read_chains(STORY)
    known = facts(summary="All green.\n## Tasks", artifacts=["a.py", "b.py"])
    planned = plan_step(validate, 1, known, "rita")
    assert planned.id == "t1-validate-1"
    assert planned.corr == "chain:validate:" + "ab" * 8 + ":1"
    assert planned.idem == f"validate:1:{EVENT}"
    assert msgspec.to_builtins(planned.data) == {
        "title": "Validate: Tests of the bus",
        "to": "claude",
        "reviewer": "rita",
        "created": "2026-02-12",
        "depends_on": ["t1"],
        "unlock_at": "verified",
        "task": "minimax verified t1 on 2026-02-12:\n\n> All green.\n> ## Tasks",
        "tasks": ["Read a.py, b.py", "Run them again"],
        "criteria": ["Every test fails when the code is broken"],
    }
    assert plan_step(validate, 1, known, "rita") == planned


def test_all_placeholders_can_be_used_everywhere() -> None:
    every = " ".join(
        f"{{{name}}}"
        for name in (
            "id",
            "title",
            "from",
            "to",
            "reviewer",
            "author",
            "summary",
            "reasoning_ref",
            "artifacts",
            "chain",
            "hop",
            "day",
        )
    )
    then = f'to = "bob"\ntitle = "{every}"\nproposal = "{every}"\ntasks = ["{every}"]\ncontext = "{every}"'
    made = plan_step(chain(then=then), 1, facts(summary="s", reasoning_refs=[REF], artifacts=["x"]), "rita").data
    filled = f"t1 Tests of the bus alice minimax rita rita s {REF} x c 1 2026-02-12"
    assert [made.title, made.proposal, made.tasks[0], made.context] == [filled] * 4


def test_what_comes_out_empty_is_left_out() -> None:
    then = 'to = "bob"\ntitle = "{summary}"\nproposal = "{summary}"\nanswers = "{summary}"\ntasks = ["{summary}", "b"]'
    made = plan_step(chain(then=then), 1, facts(), "rita").data
    assert (made.title, made.proposal, made.answers, made.tasks) == ("c: t1", None, None, ["b"])


def test_agent_who_does_the_work_is_not_made_its_default_reviewer() -> None:
    assert plan_step(chain(), 1, facts(), "bob").data.reviewer is None
    assert plan_step(chain(then='to = "{author}"\ntitle = "t"'), 1, facts(), "rita").data.reviewer is None
    assert plan_step(chain(), 1, facts(), "rita").data.reviewer == "rita"


def test_name_that_is_none_is_refused_with_its_field() -> None:
    with pytest.raises(Refused) as refused:
        plan_step(chain(then='to = "{title}"\ntitle = "t"'), 1, facts(), "rita")
    assert refused.value.code == "INVALID_FIELD"
    assert refused.value.details["path"].endswith(".to")


def test_hop_and_root_are_handed_on() -> None:
    lineage = Lineage("before", ROOT, 3)
    planned = plan_step(chain(), 1, facts(lineage=lineage), "rita")
    assert read_lineage(planned.corr) == Lineage("c", ROOT, 4)


@pytest.mark.parametrize(
    "corr",
    [
        None,
        "",
        "chain:c",
        f"chain:C:{ROOT}:1",
        "chain:c:00:1",
        f"xchain:c:{ROOT}:1",
        f"chain:c:{ROOT}:-1",
        f"chain:c:{ROOT}:999",
    ],
)
def test_other_labels_are_no_lineage(corr: str | None) -> None:
    assert read_lineage(corr) == Lineage()


@pytest.mark.parametrize("name", ["c", "renamed"])
def test_loop_is_stopped_at_its_hop_whatever_the_chain_is_called(name: str) -> None:
    made = chain("hops_max = 3", name=name)
    assert [stopped(made, facts(lineage=Lineage("c", "0" * 16, hop))) is None for hop in range(5)] == [
        True,
        True,
        True,
        False,
        False,
    ]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("a b", "a b"),
        ("../../etc/passwd", "etc-passwd"),
        ("--all", "all"),
        ("x \u0301\u200b y\u3000z", "x y z"),
        ("e\u0301t\u00e9", "\u00e9t\u00e9"),
        ("..", ""),
        ("a/b\\c\nd", "a-b-c d"),
        ("  x.md ", "x"),
        ("\u202e", ""),
    ],
)
def test_id_cannot_leave_its_folder_nor_look_like_another(text: str, name: str) -> None:
    assert handoff_id(text) == name


@given(st.text(max_size=400))
def test_every_id_is_one_a_handoff_can_have(text: str) -> None:
    name = handoff_id(text)
    assert not name or msgspec.convert(name, HandoffId) == name
    assert len(f"{name}.md".encode()) <= 255


def test_ids_that_are_cut_stay_apart_and_so_do_spare_ids() -> None:
    long = "完" * 150
    one, other = (plan_step(chain(), 1, facts(id=long + end), "rita") for end in ("a", "b"))
    assert one.id != other.id
    again = plan_step(chain(), 1, facts(event_id="event:" + "cd" * 32), "rita")
    first = plan_step(chain(), 1, facts(), "rita")
    assert first.id == again.id
    assert len({first.id, first.spare_id, again.spare_id}) == 3
    for name in (one.id, one.spare_id, first.spare_id):
        assert msgspec.convert(name, HandoffId) == name


def test_texts_are_shortened_until_they_fit_an_entry() -> None:
    then = 'to = "bob"\ntitle = "t"\ntask = "{summary}"\ncontext = "{summary}"'
    made = plan_step(chain(then=then), 1, facts(summary="完成 " * 10_000), "rita").data
    assert len(encode_canonical(made)) < entry_size_max_bytes
    assert made.task.endswith("…")
    assert made.context.endswith("…") or not made.context


@pytest.mark.parametrize(
    ("where", "fires"),
    [
        ('where = { tag = "high_urgency" }', True),
        ('where = { tag = "*_secret" }', True),
        ('where = { tag = "low_urgency" }', False),
        ('where = { domain = "security", tag = "high_urgency" }', True),
        ('where = { domain = "medical" }', False),
    ],
)
def test_a_chain_fires_by_tag_and_domain_of_cited_reasonings(where: str, fires: bool) -> None:
    cited = facts(tags=("rotate_secret", "high_urgency"), domains=("security",))
    assert (mismatch(chain(where), cited) is None) == fires
    assert mismatch(chain(where), facts()) is not None
