"""The comparison of two versions of a handoff, and the page of one version."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from looking import seal

from deedbook.ledger.events import handoff as kinds

if TYPE_CHECKING:
    from looking import Viewer

EVIL = '<b onclick="x">\u202e'


def amend(viewer: Viewer, reason: str, **fields: Any) -> None:
    content = {"title": "Rotate <i>keys</i>", "to": "bob", "reviewer": "rita", "reason": reason} | fields
    viewer.ledger.emit("alice", "handoff/x", kinds.HandoffAmended(**content))


@pytest.fixture
def rita(viewer: Viewer) -> Viewer:
    """The reviewer of a handoff with three versions, the first of which she approved."""
    seal(viewer.ledger)
    viewer.ledger.approve("x", viewer.ledger.hand_over("x", tasks=["rotate", "tell the users", "wait"]))
    amend(viewer, "wider", tasks=["rotate", "tell all the users"])
    amend(viewer, EVIL, tasks=["rotate", "tell all the users", EVIL], task="\n".join(map(str, range(20))))
    return viewer


def test_two_versions_stand_side_by_side_with_author_reason_and_approvals(rita: Viewer) -> None:
    data = rita.data("/h/x/diff")
    assert (data["from"], data["to"], data["last"], data["choice"]) == (1, 3, 3, "Approve v3")
    page = rita.page("/h/x/diff")
    assert "Rotate &lt;i&gt;keys&lt;/i&gt;</span></a>: changes" in page
    assert "created the handoff to bob" in page
    assert 'href="/h/x#decide-x">Approve v3' in page
    assert page.count("the current version") == 1
    assert re.search(r"approved.*by <a[^>]*>rita<", page, re.DOTALL)
    assert "tell <ins>all </ins>the users" in page
    assert "<b onclick" not in page
    assert "\u202e" not in page


def test_any_two_versions_can_be_chosen_without_scripts(rita: Viewer) -> None:
    page = rita.page("/h/x/diff", **{"from": 2, "to": 1})
    assert re.findall(r'<option value="(\d)" selected', page) == ["2", "1"]
    assert len(re.findall(r"<option ", page)) == 6
    assert "tell <del>all </del>the users" in page
    assert "Approve" not in page  # version 1 does not wait for her
    same = rita.page("/h/x/diff", **{"from": 2, "to": 2})
    assert "The two versions are identical" in same
    assert rita.get("/h/x/diff", **{"from": 2, "to": 4}).status_code == 404


def test_nobody_decides_about_the_past(rita: Viewer) -> None:
    head = rita.ledger.head()[0] - 1
    assert rita.data("/h/x/diff", as_of=str(head))["choice"] is None
    assert f'name="as_of" value="{head}"' in rita.page("/h/x/diff", as_of=str(head))


def test_unchanged_lines_are_folded(rita: Viewer) -> None:
    amend(rita, "one line", tasks=["rotate"], task="\n".join(map(str, [*range(10), "new", *range(10, 20)])))
    page = rita.page("/h/x/diff", **{"from": 3})
    assert page.count("<summary>8 unchanged lines</summary>") == 2


def test_page_of_a_version_leads_to_the_comparisons(rita: Viewer) -> None:
    page = rita.page("/h/x/v/2")
    assert "an earlier version: the current one is" in page
    assert 'href="/h/x/diff?from=1&amp;to=2">with v1' in page
    assert 'href="/h/x/diff?from=2&amp;to=3">with v3' in page
    assert "Compare" not in rita.page("/h/x/v/1").partition("with v3")[2]
    assert "unlock at" not in page  # it depends on nothing
    tasks = rita.page("/h/x").partition('id="tasks"')[2].partition("</section>")[0]
    assert re.findall(r'<li><span class="mono">(\d)</span>', tasks) == ["1", "2", "3"]
