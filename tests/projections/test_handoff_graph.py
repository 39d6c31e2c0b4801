"""Graphs of handoffs: the pure functions, on random graphs, and the query's tree with its pages, on a real ledger."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deedbook.ledger.errors import Refused
from deedbook.ledger.events import handoff as kinds
from deedbook.projections.handoffs import graph
from deedbook.projections.handoffs.graph import critical_path, levels, reversed_graph, walk

PHASES = ("2a", "2c", "2b", "3a", "3b", "4")  # in the order in which they must be done


@st.composite
def graphs(draw):
    """Graphs without cycles, of up to twelve names, in any order, some with missing dependencies."""
    names = [f"n{number}" for number in range(draw(st.integers(0, 12)))]
    made = {name: draw(st.lists(st.sampled_from([*names[:at], "ghost"]), max_size=4)) for at, name in enumerate(names)}
    return {name: made[name] for name in draw(st.permutations(names))}


def chains(depends_on, name):
    """Return every chain that ends at a name, by plain recursion."""
    below = [chain for on in depends_on[name] if on in depends_on for chain in chains(depends_on, on)]
    return [[*chain, name] for chain in below] or [[name]]


@given(graphs())
def test_critical_path_is_a_longest_of_all_chains(depends_on):
    every = [chain for name in depends_on for chain in chains(depends_on, name)]
    found = critical_path(depends_on)
    assert len(found) == max(map(len, every), default=0)
    assert not found or found in every
    for end in depends_on:
        mine = chains(depends_on, end)
        path = critical_path(depends_on, end)
        assert path in mine
        assert len(path) == max(map(len, mine))


@given(graphs())
def test_levels_are_an_order_of_work(depends_on):
    found = levels(depends_on)
    assert found.keys() == depends_on.keys()
    for name, wanted in depends_on.items():
        assert all(found[on] < found[name] for on in wanted if on in found)


@given(graphs())
def test_a_walk_draws_every_dependency_once(depends_on):
    inner = {on for wanted in depends_on.values() for on in wanted}
    lines = list(walk(depends_on, [name for name in depends_on if name not in inner]))
    first = [line.id for line in lines if not line.is_again]
    assert sorted(first) == sorted(depends_on.keys() | inner)
    drawn = sorted((line.parent, line.id) for line in lines if line.parent is not None)
    assert drawn == sorted((name, on) for name, wanted in depends_on.items() for on in wanted)
    assert all((line.depth == 0) == (line.parent is None) for line in lines)


def test_ties_go_to_the_smaller_id():
    depends_on = {"z": ["d", "c"], "c": ["b", "a"], "d": ["a", "b"], "a": [], "b": []}
    assert critical_path(depends_on) == ["a", "c", "z"]
    assert critical_path({"b": [], "a": []}) == ["a"]


def test_missing_names_and_unknown_ends_make_no_path():
    assert critical_path({}) == []
    assert critical_path({"a": ["ghost"]}) == ["a"]
    assert critical_path({"a": []}, "ghost") == []


def test_a_cycle_comes_last_and_is_on_no_path():
    depends_on = {"a": ["b"], "b": ["a"], "c": ["a"], "free": [], "next": ["free"]}
    found = levels(depends_on)
    assert sorted(found, key=lambda name: (found[name], name)) == ["free", "next", "a", "b", "c"]
    assert critical_path(depends_on) == ["free", "next"]
    assert critical_path(depends_on, "c") == []


def test_ten_thousand_in_a_row_need_no_recursion():
    names = [f"n{number:05}" for number in range(10_000)]
    depends_on = {name: names[at - 1 : at] if at else [] for at, name in enumerate(names)}
    assert critical_path(depends_on) == names
    assert [line.id for line in walk(depends_on, names[-1:])] == names[::-1]
    assert reversed_graph(depends_on)[names[0]] == [names[1]]


def asked(reader, **arguments):
    """Return the answer of ``handoffs.graph``."""
    return reader.answer("handoffs.graph", arguments)


def drawn(answer):
    """Return the tree's lines in short form: two spaces for each level, the id, and * if it was drawn before."""
    return ["  " * line["depth"] + line["id"] + "*" * line["is_again"] for line in answer["lines"]]


def phases(ledger):
    """Create six phases at once, each depending on the one before."""
    for before, name in zip((None, *PHASES), PHASES, strict=False):
        ledger.approve(name, ledger.hand_over(name, title=f"第 {name} 期", depends_on=[before] if before else []))


def test_six_phases_stand_in_one_row_in_the_stated_order(ledger, reader):
    phases(ledger)
    answer = asked(reader)
    assert drawn(answer) == ["4", "  3b", "    3a", "      2b", "        2c", "          2a"]
    assert answer["critical_path"] == list(PHASES)
    assert answer["order"] == list(PHASES)
    assert answer["edges"][0] == {"from": "4", "to": "3b"}
    assert [node["id"] for node in answer["nodes"] if node["is_ready"]] == ["2a"]
    assert answer["nodes"][0]["title"] == "第 4 期"
    assert answer["totals"] == {"nodes": 6, "edges": 5, "left_out": 0}
    assert (answer["id"], answer["path"], answer["next"]) == (None, [], None)
    ledger.claim("2a")
    ledger.emit("bob", "handoff/2a", kinds.HandoffCompleted())
    answer = asked(reader)
    assert answer["critical_path"] == ["2c", "2b", "3a", "3b", "4"]
    assert [node["id"] for node in answer["nodes"] if node["is_ready"]] == ["2c"]


def test_one_handoff_is_drawn_with_what_it_waits_for_or_who_waits_for_it(ledger, reader):
    phases(ledger)
    ledger.hand_over("apart")
    answer = asked(reader, id="2b.md")
    assert drawn(answer) == ["2b", "  2c", "    2a"]
    assert (answer["id"], answer["critical_path"]) == ("2b", ["2a", "2c", "2b"])
    above = asked(reader, id="3a", dependents=True)
    assert drawn(above) == ["3a", "  3b", "    4"]
    assert above["edges"] == [{"from": "3b", "to": "3a"}, {"from": "4", "to": "3b"}]
    assert above["critical_path"] == ["2a", "2c", "2b", "3a"]
    with pytest.raises(Refused) as refused:
        asked(reader, id="ghost")
    assert refused.value.code == "NOT_FOUND"


def test_branches_are_drawn_once_and_missing_ones_shown(ledger, reader):
    ledger.hand_over("a", depends_on=["ghost"])
    ledger.hand_over("b", depends_on=["a"])
    ledger.hand_over("c", depends_on=["b", "a", "ghost"])
    answer = asked(reader)
    assert drawn(answer) == ["c", "  b", "    a", "      ghost", "  a*", "  ghost*"]
    ghost = answer["nodes"][-1]
    assert (ghost["id"], ghost["title"], ghost["status"], ghost["is_ready"]) == ("ghost", None, None, False)
    assert answer["critical_path"] == ["a", "b", "c"]
    assert answer["totals"] == {"nodes": 4, "edges": 5, "left_out": 0}


def test_what_is_over_is_left_out_unless_it_holds_something_up_for_ever(ledger, reader):
    ledger.finish("done", verify=True)
    ledger.hand_over("dropped")
    ledger.emit("alice", "handoff/dropped", kinds.HandoffCancelled(reason="not needed"))
    ledger.hand_over("waits", depends_on=["done", "dropped"])
    assert drawn(asked(reader)) == ["waits", "  dropped"]
    assert asked(reader)["critical_path"] == ["waits"]
    assert drawn(asked(reader, all=True)) == ["waits", "  done", "  dropped"]
    assert drawn(asked(reader, id="waits")) == ["waits", "  done", "  dropped"]
    assert asked(reader, id="done")["critical_path"] == []


@pytest.mark.parametrize(("unlock_at", "path"), [("completed", ["next"]), ("verified", ["done", "next"])])
def test_a_completed_handoff_is_critical_only_where_its_verification_is(ledger, reader, unlock_at, path):
    ledger.finish("done")
    ledger.hand_over("next", depends_on=["done"], unlock_at=unlock_at)
    assert asked(reader)["critical_path"] == path
    assert asked(reader, id="next")["critical_path"] == path


def test_pages_are_stretches_of_one_tree(ledger, reader):
    phases(ledger)
    ledger.hand_over("other", depends_on=["3a", "2c"])
    whole = asked(reader)
    seen, edges, after, left = [], [], 0, []
    while after is not None:
        page = asked(reader, limit=3, after=after)
        seen += page["lines"]
        edges += page["edges"]
        left.append(page["totals"]["left_out"])
        assert page["critical_path"] == whole["critical_path"]
        assert {one["id"] for one in page["lines"]} <= {node["id"] for node in page["nodes"]}
        after = page["next"]
    assert (seen, edges) == (whole["lines"], whole["edges"])
    assert left == sorted(left, reverse=True)
    assert left[-1] == 0
    second = asked(reader, limit=2, after=2)
    assert second["path"] == ["other", "3a"]
    assert second["lines"][0]["depth"] == 2


def test_more_than_can_be_drawn_is_counted_or_refused(ledger, reader, monkeypatch):
    phases(ledger)
    monkeypatch.setattr(graph, "graph_handoffs_max", 3)
    answer = asked(reader)
    assert len([node for node in answer["nodes"] if node["id"] in ("4", "3b", "3a")]) == 3
    assert answer["totals"]["left_out"] > 0
    with pytest.raises(Refused) as refused:
        asked(reader, id="4")
    assert refused.value.code == "TOO_LARGE"


def test_board_has_a_column_for_each_state_with_true_totals(ledger, reader):
    ledger.fill()
    for number in range(3):
        ledger.hand_over(f"p{number}", depends_on=["a"])
    columns = reader.answer("handoffs.board", {"limit": 2})["columns"]
    assert [column["status"] for column in columns[:5]] == [
        "pending",
        "approved",
        "in_progress",
        "blocked",
        "completed",
    ]
    found = {column["status"]: column for column in columns}
    assert ([one["id"] for one in found["pending"]["handoffs"]], found["pending"]["total"]) == (["p2", "p1"], 4)
    assert found["pending"]["handoffs"][0]["depends_on"] == [{"id": "a", "status": "verified"}]
    assert (found["verified"]["handoffs"], found["verified"]["total"]) == ([], 1)
    shown = {one["status"]: one for one in reader.answer("handoffs.board", {"all": True})["columns"]}
    assert [one["id"] for one in shown["verified"]["handoffs"]] == ["a"]
    assert all(one["total"] == 0 for one in reader.answer("handoffs.board", {"to": "alice"})["columns"])


def around(reader, **arguments):
    """Return the answer of ``handoffs.around``, the distance of each node, and the edges that block."""
    answer = reader.answer("handoffs.around", arguments)
    assert all(edge.keys() == {"from", "to", "holds"} for edge in answer["edges"])
    return (
        answer,
        {node["id"]: node["hops"] for node in answer["nodes"]},
        [(edge["from"], edge["to"]) for edge in answer["edges"] if edge["holds"]],
    )


def test_around_a_handoff_stand_all_that_it_waits_for_and_two_steps_of_what_waits_for_it(ledger, reader):
    phases(ledger)
    ledger.hand_over("apart", depends_on=["2a"])
    answer, hops, holding = around(reader, id="2c")
    assert hops == {"2c": 0, "2a": -1, "2b": 1, "3a": 2}
    assert holding == [("2c", "2a")]
    assert answer["totals"] == {"nodes": 4, "left_out": 0}
    assert around(reader, id="2c", depth=0)[1] == {"2c": 0, "2a": -1}
    assert around(reader, id="2c", all=True)[1] == hops | {"3b": None, "4": None, "apart": None}
    # Without an id, the answer is about the handoff that the longest chain blocks.
    answer, hops, holding = around(reader)
    assert (answer["id"], set(hops.values())) == ("4", {0, -1, -2, -3, -4, -5})
    assert len(holding) == 5
    ledger.claim("2a")
    ledger.emit("bob", "handoff/2a", kinds.HandoffCompleted())
    assert ("2c", "2a") not in around(reader)[2]


def test_what_holds_a_handoff_up_stands_first_where_not_all_is_shown(ledger, reader):
    ledger.hand_over("far")
    ledger.hand_over("between", depends_on=["far", "ghost"])
    for number in range(5):
        ledger.finish(f"done{number}", verify=True)
    ledger.hand_over("asked", depends_on=[*(f"done{number}" for number in range(5)), "between"])
    answer, hops, holding = around(reader, id="asked", limit=4)
    assert hops == {"asked": 0, "between": -1, "far": -2, "ghost": -2}
    assert holding == [("asked", "between"), ("between", "far"), ("between", "ghost")]
    assert answer["totals"] == {"nodes": 9, "left_out": 5}
    assert [node["status"] for node in answer["nodes"] if node["id"] == "ghost"] == [None]


def test_around_nothing_there_is_nothing(reader):
    answer = reader.answer("handoffs.around", {})
    assert answer == {"id": None, "nodes": [], "edges": [], "totals": {"nodes": 0, "left_out": 0}}
