"""Several imported handoffs are accepted as history: the page shows some, the signature covers these and no others."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from looking import PASSPHRASE, seal

from deedbook.consumers.auditor.verify import verify_log
from deedbook.consumers.interfaces.dashboard.pages.acceptance import accepted_max, content_max_chars
from deedbook.ledger.events import handoff as kinds
from deedbook.ledger.events.imported import RecordImported

if TYPE_CHECKING:
    import httpx
    from looking import Viewer


def bring(viewer: Viewer, name: str, status: str = "done", **content: Any) -> None:
    """Import a handoff from kuro to bob that waits for rita."""
    mapped = {"title": f"Work <b>{name}</b>", "to": "bob", "reviewer": "rita", **content}
    record = RecordImported(
        original=viewer.ledger.put_blob("alice", f"# {name}\n".encode()),
        source=f"{name}.md",
        format="handoff/v2",
        mapped_kind="handoff.created",
        mapped=mapped,
        claimed_author="kuro",
        claims={"status": status, "tasks": [0] if "tasks" in content else []},
    )
    viewer.ledger.emit("alice", f"handoff/{name}", record)


@pytest.fixture
def rita(viewer: Viewer) -> Viewer:
    """Let rita, whose key is sealed and open for this session, look at three handoffs that claim to be completed."""
    seal(viewer.ledger)
    (session,) = viewer.dashboard.guard._sessions.values()
    session.signer._key, session.signer._until = viewer.ledger.keys["rita"], 1e12
    for name in ("a", "b", "c"):
        bring(viewer, name)
    return viewer


def form_of(viewer: Viewer, *names: str, **query: Any) -> dict[str, str]:
    """Return the form of the page with these handoffs selected, as a browser sends it."""
    items = viewer.data("/accept", **(query or {"over": 1}))["items"]
    packed = {f"item-{at}": item["packed"] for at, item in enumerate(items) if item["id"] in names}
    return {**packed, "note": "", "query": "over=1"}


def statuses(viewer: Viewer) -> list[str]:
    return [viewer.ledger.handoff(name).status for name in ("a", "b", "c")]


def none_signed(viewer: Viewer, answer: httpx.Response, status: int, words: str) -> None:
    """Assert that nothing was signed, with this status and these words on the page."""
    assert answer.status_code == status, answer.text
    assert words in answer.text
    assert statuses(viewer) == ["pending"] * 3


def test_each_is_shown_whole_with_its_claim_and_signed_as_an_event_of_its_own(rita: Viewer) -> None:
    bring(rita, "d", "merged", task="Rotate <i>it</i>", tasks=["first", "second"], criteria=["green " * 200])
    page = rita.page("/accept", over=1)
    for text in ("Work &lt;b&gt;a", "“merged”", "Rotate &lt;i&gt;it", "first", "second", "green " * 200, "kuro → bob"):
        assert text.strip() in page
    main = page[page.index("<main") : page.index("</main>")]
    assert "<details" not in main  # no content is hidden in a folded section
    before = rita.ledger.head()[0]
    answer = rita.post("/accept", **form_of(rita, "a", "c", "d") | {"note": "Read"})
    assert answer.status_code == 200
    assert "3 of 3 signed" in answer.text
    events = [rita.ledger.event(index) for index in range(before, rita.ledger.head()[0])]
    assert [event.stream for event in events] == ["handoff/d", "handoff/c", "handoff/a"]
    for event in events:
        assert (event.author, event.key) == ("rita", rita.ledger.keys["rita"].public.hex())
        assert event.data == kinds.HandoffVerified(result=rita.ledger.handoff(event.stream[8:]).result, comment="Read")
    assert statuses(rita) == ["verified", "pending", "verified"]
    assert [item["id"] for item in rita.data("/accept", over=1)["items"]] == ["b"]
    assert verify_log(rita.dashboard.ledger.client).problems == []


def test_single_ones_of_the_queue_are_selected_and_those_that_are_not_over_are_named(rita: Viewer) -> None:
    bring(rita, "x", "in review")
    bring(rita, "y", "approved")
    rita.ledger.hand_over("h")
    page = rita.page("/")
    assert re.search(r'<input class="pick" type="checkbox" form="accept" name="pick-\d+" value="x"', page)
    assert 'value="h" aria-label' not in page
    shown = rita.data("/accept", **{"pick-1": "x", "pick-2": "h", "pick-3": "a"})
    assert [(item["id"], item["is_over"]) for item in shown["items"]] == [("x", False), ("a", True)]
    assert [item["id"] for item in shown["left_out"]] == ["h"]
    page = rita.page("/accept", **{"pick-1": "x", "pick-2": "a"})
    assert "1 of them do not claim to be over" in page
    assert page.count(" checked>") == 2
    assert " checked>" not in rita.page("/accept", imported=1)  # none of these claims to be over
    assert [item["id"] for item in rita.data("/accept", imported=1, text="work <b>y")["items"]] == ["y"]
    answer = rita.post("/accept", **form_of(rita, "x", **{"pick-1": "x"}))
    assert (answer.status_code, rita.ledger.handoff("x").status) == (200, "verified")


def test_none_is_selected_at_first_for_a_person_who_accepts_few(rita: Viewer) -> None:
    page = rita.page("/accept", over=1)
    assert page.count(" checked>") == 3
    assert '<a href="/accept?over=1&amp;select=none">select none</a>' in page
    page = rita.page("/accept", over=1, select="none")
    assert " checked>" not in page
    assert '<a href="/accept?over=1">select all</a>' in page


def test_one_that_changed_meanwhile_is_not_signed_and_the_others_are(rita: Viewer) -> None:
    form = form_of(rita, "a", "b", "c")
    bring(rita, "b", "merged")  # imported again, with another claim
    answer = rita.post("/accept", **form)
    assert answer.status_code == 409
    assert "2 of 3 signed" in answer.text
    assert "b is not signed: version mismatch" in answer.text
    assert statuses(rita) == ["verified", "pending", "verified"]
    size = rita.ledger.head()[0]
    assert rita.post("/accept", **form).status_code == 409  # sent again, it signs nothing more
    assert rita.ledger.head()[0] == size


def test_form_from_before_a_new_login_comes_again_with_its_note_and_signs_nothing(rita: Viewer) -> None:
    form = form_of(rita, "a", "b") | {"note": "read <b>both</b>"}
    size = rita.ledger.head()[0]
    rita.enter()
    answer = rita.post("/accept", **form)
    assert (answer.status_code, rita.ledger.head()[0]) == (403, size)
    assert ">read &lt;b&gt;both&lt;/b&gt;</textarea>" in answer.text
    assert rita.post("/accept", **form_of(rita, "a", "b"), passphrase=PASSPHRASE).status_code == 200


def test_a_token_of_another_handoff_result_or_session_signs_none_of_them(rita: Viewer) -> None:
    form = form_of(rita, "a", "b")
    first, second = (form[name] for name in ("item-1", "item-2"))
    other = first.partition("decision=")[2]
    forged = [
        {"item-2": second.partition("decision=")[0] + f"decision={other}"},
        {"item-2": second.replace("id=a", "id=c")},
        {"item-2": re.sub("result=sha256%3A.", "result=sha256%3A0", second) + "&entries=9"},
        {"item-2": second.replace("verify", "approve")},
        {"item-2": "x"},
    ]
    for fields in forged:
        answer = rita.post("/accept", **form | fields)
        assert answer.status_code in (400, 403), fields
        assert statuses(rita) == ["pending"] * 3
    rita.enter()  # another session of the same browser
    none_signed(rita, rita.post("/accept", **form), 403, "does not belong to a page")
    none_signed(rita, rita.post("/accept", headers={"origin": "http://evil.example"}, **form), 403, "another origin")


def test_a_wrong_passphrase_signs_nothing_and_shows_the_same_selection(rita: Viewer) -> None:
    (session,) = rita.dashboard.guard._sessions.values()
    session.signer.lock()
    form = form_of(rita, "a", "c")
    none_signed(rita, rita.post("/accept", **form | {"passphrase": "wrong"}), 403, "Not signed: key locked")
    session.signer._trials._next = 0.0
    answer = rita.post("/accept", **form | {"passphrase": PASSPHRASE})
    assert (answer.status_code, statuses(rita)) == (200, ["verified", "pending", "verified"])


def test_what_is_too_long_to_read_in_a_list_or_of_another_reviewer_is_left_out(rita: Viewer) -> None:
    bring(rita, "long", task="x" * content_max_chars)
    bring(rita, "other", reviewer="bob", to="rita")
    shown = rita.data("/accept", **{"pick-1": "long", "pick-2": "other"})
    assert [(item["id"], item["why"]) for item in shown["left_out"]] == [
        ("long", "it is longer than 4,000 characters, too long for a list: accept it on its own page"),
        ("other", "its reviewer is bob: only they can accept it"),
    ]
    assert shown["items"] == []
    for number in range(accepted_max):
        bring(rita, f"n{number:02}")
    shown = rita.data("/accept", over=1)
    assert len(shown["items"]) == accepted_max < shown["total"]
    assert rita.data("/accept", over=1, after=shown["next"])["items"]
    many = {f"item-{at}": form_of(rita, "n01")["item-18"] for at in range(accepted_max + 1)}
    none_signed(rita, rita.post("/accept", **many), 400, f"select 1 to {accepted_max} handoffs")
    none_signed(rita, rita.post("/accept", note=""), 400, "not 0")


def test_the_past_and_a_key_that_cannot_sign_offer_nothing(rita: Viewer, viewer: Viewer) -> None:
    assert rita.data("/accept", over=1, as_of=rita.ledger.head()[0] - 1)["items"] == []
    viewer.ledger.home.key_file("rita").unlink()
    page = viewer.page("/accept", over=1)
    assert "You cannot sign here" in page
    assert "Accept those" not in page
