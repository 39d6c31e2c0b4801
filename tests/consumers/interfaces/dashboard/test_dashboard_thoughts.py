from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import tot_story as told
from tot_story import BEST, NODES, STORY, TASK

from deedbook.consumers.interfaces.dashboard.marks import MARKS
from deedbook.consumers.thoughts import events as kinds
from deedbook.consumers.thoughts.interfaces import pages
from deedbook.ledger.lifecycle.clock import clock_text

if TYPE_CHECKING:
    from looking import Viewer

PATH = f"/tot/{TASK}"


@pytest.fixture
def start(viewer: Viewer) -> int:
    """Play the whole story; return the index of its first event."""
    told.register(viewer.ledger)
    size = viewer.ledger.client().head().size
    told.play(viewer.ledger)
    return int(size)


def marks(shown: dict[str, Any]) -> dict[str, str]:
    return {node["id"]: node["mark"] for node in shown["nodes"]}


def test_a_tree_is_drawn_with_its_best_path_and_what_was_pruned(viewer: Viewer, start: int) -> None:
    shown = viewer.data(PATH)
    assert {node["id"] for node in shown["drawing"]["nodes"]} == set(NODES)
    assert [name for name, mark in marks(shown).items() if mark == "best"] == BEST
    assert {edge["state"] for edge in shown["drawing"]["edges"] if edge["to"] in BEST} == {"ok"}
    assert marks(shown)["node_3_1"] == "pruned"
    assert next(node for node in shown["drawing"]["nodes"] if node["id"] == "node_3_1")["is_faded"]
    last = start + len(STORY) - 1
    steps = {"first": start, "previous": last - 1, "next": None, "last": last}
    assert shown["steps"] == steps | {"all": len(STORY), "until": len(STORY)}


def test_entry_with_a_tree_leads_to_its_json_instead_of_writing_it_as_a_sentence(viewer: Viewer, start: int) -> None:
    (index,) = [row["event_index"] for row in viewer.data("/events")["items"] if row["kind"] == "tot.search_complete"]
    fields = {field["label"]: field["texts"] for field in viewer.data(f"/e/{index}")["fields"]}
    assert re.fullmatch(r"[0-9]+ fields: see the content as JSON", fields["payload, tree, nodes"][0])
    assert "total nodes: " in fields["payload, stats"][0]
    page = viewer.page(f"/e/{index}")
    assert ("node_1_1" in page, "node 1 1, id" in page) == (True, False)


def test_a_tree_is_scrubbed_by_the_index_of_the_log(viewer: Viewer, start: int) -> None:
    seen = []
    end = start + len(STORY) - 1
    for index in (start, start + 1, *range(start + 2, end, 5), end):
        shown = viewer.data(PATH, at=index)
        assert shown["steps"]["previous"] == (index - 1 if index > start else None)
        assert shown["steps"]["next"] == (index + 1 if index < end else None)
        seen.append((len(shown["nodes"]), shown["task"]["status"], set(marks(shown).values())))
    assert [count for count, _, _ in seen] == sorted(count for count, _, _ in seen)
    assert (seen[0], seen[-1][:2]) == ((0, "started", set()), (len(NODES), "solved"))
    assert any("frontier" in found for _, _, found in seen)
    assert "frontier" not in seen[-1][2]


def test_a_past_state_says_so_and_counts_its_entries_until_then(viewer: Viewer, start: int) -> None:
    page, last = viewer.page(PATH, at=start + 3), start + len(STORY) - 1
    when = clock_text(viewer.ledger.event(start + 3).accepted_ms)[:19].replace("T", " ")
    assert f'As of <a href="/e/{start + 3}">#{start + 3}</a>' in page
    assert f"{when}</time> UTC: the search went on after that." in page
    assert f'<a href="{PATH}">now</a>' in page
    assert f'4 of {len(STORY)} ·</span> <span class="mono">#{start + 3}<' in page
    assert f'as_of={start + 3}">4 signed events</a> until #{start + 3}' in page
    for present in (viewer.page(PATH), viewer.page(PATH, at=last)):
        assert "the search went on" not in present
        assert f"{len(STORY)} signed events</a></dd>" in present


def test_a_mark_is_no_sign_before_a_score_and_every_mark_is_in_the_legend(viewer: Viewer, start: int) -> None:
    legend = "".join(re.findall(r'<p class="meta"><span aria-hidden="true">.*</p>', viewer.page(PATH)))
    names = ("best", "terminal", "frontier", "not_taken", "pruned")
    assert [f">{MARKS[name].glyph}<" in legend for name in names] == [True] * len(names)
    assert not {"-", "–", "−", "+"} & {MARKS[name].glyph for name in names}
    assert "no mark: expanded" in legend
    ends = [node for node in viewer.data(PATH)["nodes"] if node["status"] == "terminal"]
    assert {node["mark"] for node in ends} == {"best"}
    other = viewer.dashboard.ledger.ask("tot.tree", id=TASK)
    other["search_state"]["best_path"] = []
    assert {node["mark"] for node in pages._nodes(other) if node["status"] == "terminal"} == {"terminal"}


def test_steps_are_links_and_a_form_that_need_no_script(viewer: Viewer, start: int) -> None:
    page = viewer.page(PATH, at=start + 3)
    for index in (start, start + 2, start + 4, start + len(STORY) - 1):
        assert f'href="{PATH}?at={index}"' in page
    assert re.search(rf'<form action="{PATH}">.*<input type="range" name="at"[^>]* value="{start + 3}">', page)
    assert viewer.get(PATH, at=start - 1).status_code == 404
    assert viewer.get(PATH, at=10**9).status_code == 404
    assert viewer.get(PATH, at="now").status_code == 400
    assert viewer.get("/tot/tot-none").status_code == 404


def test_the_past_of_a_tree_is_scrubbed_within_the_moment_that_is_looked_at(viewer: Viewer, start: int) -> None:
    shown = viewer.data(PATH, as_of=start + 5)
    assert (shown["at"], shown["steps"]["last"], shown["steps"]["all"]) == (start + 5, start + 5, 6)
    assert f"as_of={start + 5}" in viewer.page(PATH, as_of=start + 5)
    assert viewer.get(PATH, as_of=start + 5, at=start + 6).status_code == 404


def test_problems_that_are_searched_are_listed(viewer: Viewer) -> None:
    assert "deed tot run" in viewer.page("/tot")
    told.register(viewer.ledger)
    told.play(viewer.ledger)
    page = viewer.page("/tot")
    assert f'href="{PATH}"' in page
    assert [f'data-label="{name}"' in page for name in ("thinker", "thoughts", "started")] == [True] * 3
    viewer.ledger.clock.advance(7200)
    viewer.ledger.hand_over("later")
    assert re.search(r'data-label="started"><time [^>]*>\w+</time> ago<', viewer.page("/tot"))


def test_older_problems_are_a_page_away(viewer: Viewer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "tasks_shown_max", 1)
    told.register(viewer.ledger)
    other = "tot-20260213-100000-000002"
    told.play(viewer.ledger, STORY[:1])
    begun = msgspec.structs.replace(STORY[0].data, task_id=other)
    told.play(viewer.ledger, [STORY[0]._replace(data=begun)], other)
    assert f'href="/tot/{other}"' in viewer.page("/tot")
    (after,) = re.findall(r'<a href="/tot\?after=(\d+)">older</a>', viewer.page("/tot"))
    assert f'href="{PATH}"' in viewer.page("/tot", after=after)


def test_the_end_of_a_search_is_a_sentence_on_the_timeline(viewer: Viewer, start: int) -> None:
    done = [row["did"] for row in viewer.data("/timeline")["items"] if row["type"] == "tot.search_complete"]
    assert [text.partition(":")[0] for text in done] == ["finished the search"]
    assert start


def test_a_thought_opens_to_its_proposer_its_score_and_its_entries(viewer: Viewer, start: int) -> None:
    events = {viewer.ledger.event(start + at).index: viewer.ledger.event(start + at) for at in range(len(STORY))}
    for name, node in NODES.items():
        origin = viewer.data(PATH, sel=name)["opened"]["origin"]
        assert name in [added.id for added in events[origin["added_index"]].data.nodes]
        if name == "root":
            assert (origin["proposed_by"], origin["proposed_index"]) == (None, None)
            continue
        proposal, scored = events[origin["proposed_index"]], events[origin["evaluated_index"]]
        assert node.content in [candidate.content for candidate in proposal.data.payload.candidates]
        assert name in [result.node_id for result in scored.data.payload.evaluations]
        assert (proposal.author, scored.author) == (origin["proposed_by"], origin["evaluated_by"])
    page = viewer.page(PATH, sel="node_3_1")
    assert 'id="opened"' in page
    assert "18 is not 24" in page
    assert f'href="{PATH}?sel=node_2_1#opened"' in page
    assert 'id="opened"' not in viewer.page(PATH, sel="node_9_9")
    before = viewer.data(PATH, at=start + 5, sel="node_3_1")
    assert before["opened"] is None


def test_a_search_waits_for_the_role_that_must_act_at_every_entry(viewer: Viewer, start: int) -> None:
    waits = [viewer.data(PATH, at=start + at)["waits"] for at in range(len(STORY))]
    for at, waiting in enumerate(waits[:-1]):
        following = viewer.ledger.event(start + at + 1).data
        if isinstance(following, kinds.SideStatement):  # these messages come while another agent acts
            continue
        assert getattr(following, "sender", "explorer") in waiting, (at, following, waiting)
    assert waits[-1] == {}
