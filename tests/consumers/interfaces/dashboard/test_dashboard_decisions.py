"""Deciding in the dashboard, form by form: each form signs its decision, and a refused form signs nothing."""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING, Any

import pytest
from looking import form_of, seal

from deedbook.ledger.events import handoff as kinds
from deedbook.ledger.events.authority import AgentRemoved, KeyRevoked
from deedbook.ledger.events.question import QuestionAnswered, QuestionAsked
from deedbook.ledger.events.review import ReviewRequested
from deedbook.ledger.limits import decision_form_max_s

if TYPE_CHECKING:
    import httpx
    from looking import Viewer


@pytest.fixture
def rita(viewer: Viewer) -> Viewer:
    """Let rita look, whose key is sealed and open for this session."""
    seal(viewer.ledger)
    signer = session_of(viewer).signer
    signer._key, signer._until = viewer.ledger.keys["rita"], 1e12
    return viewer


def session_of(viewer: Viewer) -> Any:
    return viewer.dashboard.guard.session(viewer.client.cookies["deedbook_4280"], 0)


def press(viewer: Viewer, word: str, path: str = "/h/x", **written: str) -> httpx.Response:
    return viewer.post(f"{path}/decide", **form_of(viewer, word, path, **written))


def changed_in(form: Any) -> list[str]:
    """Return the fields that changed since the version that the human approved last."""
    return [section["field"] for section in form["sections"] if section["change"]]


def status_of(viewer: Viewer) -> str:
    return viewer.ledger.handoff("x").status


def refused(viewer: Viewer, answer: httpx.Response, status: int, words: str) -> None:
    """Assert that nothing was signed, with this status and these words on the page."""
    assert answer.status_code == status, answer.text
    assert words in answer.text
    assert status_of(viewer) == "pending"


def test_lines_of_the_signed_file_that_no_field_has_are_on_the_page(rita: Viewer) -> None:
    text = "# Handoff: x\n\n## Meta\n- From: alice\n- To: bob\n- Reviewer: rita\n\n## Deployment\nDrop <b>all</b>.\n"
    ref = rita.ledger.put_blob("alice", text.encode())
    rita.ledger.hand_over("x", template=ref)
    page, data = rita.page("/h/x"), rita.data("/h/x")
    assert data["only_in_file"] == data["form"]["only_in_file"] == ["## Deployment", "Drop <b>all</b>."]
    assert "Drop &lt;b&gt;all&lt;/b&gt;." in page
    assert "2 more lines only in its file, which you sign, too" in page
    assert "Drop &lt;b&gt;all&lt;/b&gt;." in rita.page("/", open="x")  # the text itself, beside the button
    rita.ledger.emit("rita", "handoff/x", kinds.HandoffApproved(version=data["form"]["signs"]))
    other = rita.ledger.put_blob("alice", text.replace("all", "more").encode())
    content = {"title": "x", "to": "bob", "reviewer": "rita"}
    rita.ledger.emit("alice", "handoff/x", kinds.HandoffAmended(**content, template=other))
    assert changed_in(rita.data("/h/x")["form"]) == ["file"]
    assert "marked against v1, the last that you approved" in rita.page("/h/x")
    rita.ledger.hand_over("y", template=rita.ledger.put_blob("alice", b"no handoff"))
    assert "a file that cannot be shown here" in rita.page("/h/y")


def test_an_approval_is_an_event_of_the_key_of_the_human_and_of_the_version_displayed(rita: Viewer) -> None:
    data = rita.ledger.hand_over("x", tasks=["one"])
    page = rita.page("/h/x")
    assert rita.data("/h/x")["form"]["signs"] in page
    answer = press(rita, "approve")
    index = rita.ledger.head()[0] - 1
    assert (answer.status_code, answer.headers["location"]) == (303, f"/h/x?done={index}")
    event = rita.ledger.event(index)
    assert event.key == rita.ledger.keys["rita"].public.hex()
    assert event.data == kinds.HandoffApproved(version=rita.data("/h/x")["handoff"]["version"])
    assert data.tasks == ["one"]
    receipt = rita.data("/h/x", done=index)["done"]
    assert (receipt["event_index"], receipt["kind"], receipt["size"]) == (index, "handoff.approved", index + 1)
    assert receipt["root"] in rita.page("/h/x", done=index)


def test_the_same_form_sent_twice_at_once_or_later_is_one_event(rita: Viewer) -> None:
    rita.ledger.hand_over("x")
    form, before = form_of(rita, "approve"), rita.ledger.head()[0]
    answers: list[httpx.Response] = []
    both = [threading.Thread(target=lambda: answers.append(rita.post("/h/x/decide", **form))) for _ in range(2)]
    for one in both:
        one.start()
    for one in both:
        one.join()
    answers.append(rita.post("/h/x/decide", **form))
    assert {one.headers["location"] for one in answers} == {f"/h/x?done={before}"}
    assert rita.ledger.head()[0] == before + 1


def test_what_was_amended_between_view_and_decision_is_shown_with_what_changed_and_a_new_form(rita: Viewer) -> None:
    rita.ledger.hand_over("x", tasks=["rotate"])
    form = form_of(rita, "approve", note="fine")
    amended = kinds.HandoffAmended(title="x", to="bob", reviewer="rita", tasks=["rotate", "delete all"])
    rita.ledger.emit("alice", "handoff/x", amended)
    answer = rita.post("/h/x/decide", **form)
    refused(rita, answer, 409, "Not signed: version mismatch")
    assert re.search(r"<ins>.*delete all", answer.text)
    assert "x has changed since you opened it: read the changes, then decide" in answer.text
    assert "Approve v2" in answer.text
    assert form["decision"] not in answer.text
    assert ">fine</textarea>" in answer.text


def test_a_result_that_was_handed_in_anew_is_not_verified_as_the_earlier_one(rita: Viewer) -> None:
    rita.ledger.finish("x")
    form = form_of(rita, "verify")
    rita.ledger.send_back("rita", "x", "again")
    rita.ledger.emit("bob", "handoff/x", kinds.HandoffCompleted(summary="anew"))
    answer = rita.post("/h/x/decide", **form)
    assert answer.status_code == 409
    assert status_of(rita) == "completed"


def test_a_handoff_to_which_something_was_added_is_not_rejected_unread(rita: Viewer) -> None:
    rita.ledger.hand_over("x")
    form = form_of(rita, "reject", note="too risky")
    rita.ledger.emit("alice", "handoff/x", kinds.HandoffLogged(text="the key is rotated now"))
    answer = rita.post("/h/x/decide", **form)
    refused(rita, answer, 409, "the key is rotated now")
    assert press(rita, "reject", note="too risky").status_code == 303
    assert status_of(rita) == "rejected"


def test_a_handoff_that_was_amended_is_not_rejected_as_what_it_was(rita: Viewer) -> None:
    rita.ledger.hand_over("x", tasks=["delete all"])
    form = form_of(rita, "reject", note="deletes all")
    amended = kinds.HandoffAmended(title="x", to="bob", reviewer="rita", tasks=["delete nothing"])
    rita.ledger.emit("alice", "handoff/x", amended)
    answer = rita.post("/h/x/decide", **form)
    refused(rita, answer, 409, "Not signed: version mismatch")
    assert "delete <del>all</del><ins>nothing</ins>" in answer.text


def test_what_was_decided_already_is_refused_and_says_so(rita: Viewer) -> None:
    rita.ledger.hand_over("x")
    approve, reject = form_of(rita, "approve"), form_of(rita, "reject", note="no")
    rita.post("/h/x/decide", **approve)
    answer = rita.post("/h/x/decide", **reject)
    assert answer.status_code == 409
    assert status_of(rita) == "approved"


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {},
        {"origin": "http://127.0.0.1:4281"},
        {"origin": "http://127.0.0.1:4280", "sec-fetch-site": "cross-site"},
        {"origin": "http://127.0.0.1:4280", "sec-fetch-site": "same-site"},
        {"origin": "https://127.0.0.1:4280"},
        {"referer": "http://127.0.0.1:42800/h/x"},
        {"origin": "null", "referer": "http://127.0.0.1:4280/h/x"},
    ],
)
def test_a_form_from_elsewhere_is_refused(rita: Viewer, headers: dict[str, str]) -> None:
    rita.ledger.hand_over("x")
    answer = rita.post("/h/x/decide", headers=headers, **form_of(rita, "approve"))
    refused(rita, answer, 403, "another origin")


def test_a_browser_of_texts_decides_which_says_no_origin_and_where_its_form_stood(rita: Viewer) -> None:
    rita.ledger.hand_over("x")
    answer = rita.post("/h/x/decide", headers={"referer": "http://127.0.0.1:4280/h/x"}, **form_of(rita, "approve"))
    assert (answer.status_code, status_of(rita)) == (303, "approved")


def test_a_foreign_host_is_refused(rita: Viewer) -> None:
    rita.ledger.hand_over("x")
    headers = {"host": "rebound.example:4280", "origin": "http://rebound.example:4280"}
    refused(rita, rita.post("/h/x/decide", headers=headers, **form_of(rita, "approve")), 400, "127.0.0.1")


def test_nobody_without_the_cookie_decides(rita: Viewer) -> None:
    rita.ledger.hand_over("x")
    form = form_of(rita, "approve")
    rita.client.cookies.clear()
    refused(rita, rita.post("/h/x/decide", **form), 401, "deed dashboard")


def test_a_decision_is_no_get(rita: Viewer) -> None:
    rita.ledger.hand_over("x")
    refused(rita, rita.get("/h/x/decide", **form_of(rita, "approve")), 404, "no such page")


def test_a_token_of_another_thing_ref_act_or_session_is_refused(rita: Viewer) -> None:
    for name in ("x", "y"):
        rita.ledger.hand_over(name)
    form, other = form_of(rita, "approve"), form_of(rita, "approve", "/h/y")
    token = form["decision"].partition(":")[2]
    forged = [
        form | {"decision": other["decision"]},
        form | {"decision": f"reject:{token}", "note": "no"},
        form | {"decision": f"approve:{'0' * 64}"},
        form | {"version": other["version"]},
        form | {"entries": "2"},
        form | {"shown_ms": str(int(form["shown_ms"]) + 1)},
    ]
    answers = [rita.post("/h/x/decide", **one) for one in forged]
    rita.enter()  # another session of the same browser
    answers.append(rita.post("/h/x/decide", **form))
    for answer in answers:
        refused(rita, answer, 403, "does not belong to a page that this dashboard showed you")


def test_a_page_that_was_left_open_for_a_day_is_read_again(rita: Viewer) -> None:
    rita.ledger.hand_over("x")
    form = form_of(rita, "approve")
    rita.ledger.clock.advance(decision_form_max_s + 1)
    refused(rita, rita.post("/h/x/decide", **form), 409, "loaded too long ago")


def test_a_form_that_is_too_large_is_refused(rita: Viewer) -> None:
    rita.ledger.hand_over("x")
    refused(rita, press(rita, "approve", note="x" * 70_000), 413, "bytes")


def test_a_note_that_holds_a_secret_is_not_signed(rita: Viewer) -> None:
    rita.ledger.hand_over("x")
    answer = press(rita, "reject", note="AKIAIOSFODNN7EXAMPLQ")
    assert answer.status_code == 403
    assert status_of(rita) == "pending"


@pytest.mark.parametrize("event", ["revoked", "removed"])
def test_a_human_whose_key_was_revoked_meanwhile_decides_nothing(rita: Viewer, event: str) -> None:
    rita.ledger.hand_over("x")
    form = form_of(rita, "approve")
    key = rita.ledger.keys["rita"].public.hex()
    data = KeyRevoked(key=key, reason="left") if event == "revoked" else AgentRemoved(agent="rita", reason="left")
    rita.ledger.emit("root", "agent/rita", data)
    answer = rita.post("/h/x/decide", **form)
    refused(rita, answer, 401, "The ledger no longer accepts the key that rita had when this login began.")


def test_the_past_decides_nothing(rita: Viewer) -> None:
    rita.ledger.hand_over("x")
    head = rita.ledger.head()[0] - 1
    assert rita.data("/h/x", as_of=head)["form"] is None
    refused(rita, rita.post(f"/h/x/decide?as_of={head}", **form_of(rita, "approve")), 403, "this page shows the past")


def test_a_review_says_what_an_answer_signs_and_that_a_note_is_optional(rita: Viewer) -> None:
    request = rita.ledger.emit("bob", "review/r", ReviewRequested(question="May it run?", rule="low_fidelity"))
    for page in (rita.page("/reviews/r"), rita.page("/", open="r")):
        assert "Note (optional)</label>" in page
        assert "The rule “low fidelity” asks for a human's answer." in page
        below = page.partition("An answer signs")[2].partition("</form>")[0]
        assert "May it run?" in below
        assert f">#{request.index}</a>" in below
        assert request.id in below


def test_a_review_is_answered_once(rita: Viewer) -> None:
    rita.ledger.emit("bob", "review/r", ReviewRequested(question="May it run?", rule="low_fidelity"))
    form = form_of(rita, "reject", "/reviews/r", note="not yet")
    answer = rita.post("/reviews/r/decide", **form)
    index = rita.ledger.head()[0] - 1
    assert answer.headers["location"] == f"/reviews/r?done={index}"
    shown = rita.data("/reviews/r", done=index)
    assert (shown["review"]["verdict"], shown["review"]["comment"], shown["form"]) == ("rejected", "not yet", None)
    assert (shown["done"]["event_index"], shown["done"]["text"]) == (index, "rejected: not yet")
    assert rita.post("/reviews/r/decide", **form).headers["location"] == answer.headers["location"]
    assert rita.ledger.head()[0] - 1 == index


def test_the_opened_row_of_the_queue_has_the_form(rita: Viewer) -> None:
    rita.ledger.hand_over("x")
    assert rita.data("/")["form"] is None
    opened = rita.data("/", open="x")["form"]
    assert [one["word"] for one in opened["choices"]] == ["approve", "ask", "reject", "log", "cancel"]
    assert opened["signs"] in rita.page("/", open="x")
    rita.ledger.emit("bob", "review/r", ReviewRequested(question="May it run?", rule="low_fidelity"))
    assert "Yes, go ahead" in rita.page("/", open="r")


@pytest.mark.parametrize("name", ["a b", "全文检索", "x.json", "50%", "a&b='<i>", "v1-diff"])
def test_whatever_a_handoff_is_called_it_is_decided(rita: Viewer, name: str) -> None:
    rita.ledger.hand_over(name)
    path = rita.data("/", open=name)["form"]["path"].removesuffix("/decide")
    assert rita.page(path)
    answer = press(rita, "approve", path)
    assert answer.status_code == 303
    assert "handoff.approved" in rita.client.get(answer.headers["location"]).text
    assert rita.ledger.handoff(name).status == "approved"


def test_a_decision_in_the_queue_opens_the_next_item_with_its_receipt(rita: Viewer) -> None:
    for name in ("x", "y"):
        rita.ledger.hand_over(name)
    shown = rita.data("/", open="x", action="approve")
    form = form_of(rita, "approve") | {"queue": shown["queue_query"], "next": shown["following"]}
    answer = rita.post("/h/x/decide", **form)
    index = rita.ledger.head()[0] - 1
    assert answer.headers["location"] == f"/?action=approve&open=y%3Aapprove&done={index}#at-y%3Aapprove"
    after = rita.data("/", action="approve", open="y", done=index)
    assert (after["opened"], after["following"]) == ("y:approve", None)
    assert (after["done"]["event_index"], after["done"]["kind"]) == (index, "handoff.approved")
    page = rita.page("/", action="approve", open="y", done=index)
    assert f'Signed as entry <a href="/e/{index}">' in page
    assert page.index("Signed as entry") < page.index('id="q-y:approve"')
    assert rita.data("/", done=0)["done"] is None  # root signed the newest decision


def test_a_decision_in_the_queue_that_fails_shows_the_queue_again_with_the_note(rita: Viewer) -> None:
    for name in ("x", "y"):
        rita.ledger.hand_over(name, tasks=["one"])
    shown = rita.data("/", open="x")
    form = form_of(rita, "reject", note="too risky") | {"queue": shown["queue_query"], "next": shown["following"]}
    amended = kinds.HandoffAmended(title="x", to="bob", reviewer="rita", tasks=["one", "two"])
    rita.ledger.emit("alice", "handoff/x", amended)
    answer = rita.post("/h/x/decide", **form)
    refused(rita, answer, 409, "Not signed: version mismatch")
    assert '<li id="q-x:approve" class="row open">' in answer.text
    assert ">too risky</textarea>" in answer.text
    assert re.search(r"<ins>.*two", answer.text)


def test_the_opened_row_shows_all_that_is_signed_as_changes_since_the_own_last_approval(rita: Viewer) -> None:
    content = {"title": "Rotate <b>keys</b>", "task": "By hand", "tasks": ["old", "kept"], "criteria": ["green"]}
    first = rita.ledger.hand_over("x", **content)
    page = rita.page("/", open="x")
    for text in ("Rotate &lt;b&gt;keys", "By hand", "old", "kept", "green", "v1, the first"):
        assert text in page
    rita.ledger.approve("x", first)
    content |= {"to": "bob", "reviewer": "rita"}
    for tasks in (["new", "kept"], ["newer", "kept"]):
        rita.ledger.emit("alice", "handoff/x", kinds.HandoffAmended(**content | {"tasks": tasks}, reason="Shorter"))
    form = rita.data("/", open="x")["form"]
    assert (form["since"], [version["number"] for version in form["between"]]) == (1, [2, 3])
    assert changed_in(form) == ["tasks"]
    page = rita.page("/", open="x")
    assert "marked against v1, the last that you approved" in page
    assert re.search(r"<del>.*old.*<ins>.*newer", page, re.DOTALL)


def test_a_result_is_shown_with_each_criterion_beside_its_evidence(rita: Viewer) -> None:
    rita.ledger.hand_over("x", criteria=["It is green"])
    version = rita.data("/h/x")["form"]["signs"]
    rita.ledger.emit("rita", "handoff/x", kinds.HandoffApproved(version=version))
    rita.ledger.claim("x")
    rita.ledger.emit(
        "bob", "handoff/x", kinds.HandoffCriterionChecked(position=0, evidence="make test: <b>9</b> passed")
    )
    rita.ledger.emit("bob", "handoff/x", kinds.HandoffCompleted(summary="All <i>done</i>", artifacts=["src/a.py"]))
    page = rita.page("/", open="x")
    for text in ("All &lt;i&gt;done", "src/a.py", "It is green", "make test: &lt;b&gt;9&lt;/b&gt; passed", "Verify v1"):
        assert text in page
    assert page.index("It is green") < page.index("make test:") < page.index("Verify v1")


def test_work_that_was_sent_back_says_by_whom_and_is_not_shown_as_accepted(rita: Viewer) -> None:
    ledger = rita.ledger
    ledger.approve("y", ledger.hand_over("y", tasks=["one"], criteria=["two"]))
    ledger.claim("y")
    ledger.emit("bob", "handoff/y", kinds.HandoffTaskChecked(position=0))
    met = ledger.emit("bob", "handoff/y", kinds.HandoffCriterionChecked(position=0, evidence="e")).index
    ledger.emit("bob", "handoff/y", kinds.HandoffCompleted(summary="the result"))
    assert rita.data("/h/y")["sent_back"] is None
    assert 'class="all"' in rita.page("/h/y")
    result = rita.data("/h/y")["handoff"]["result"]
    ledger.emit("rita", "handoff/y", kinds.HandoffChangesRequested(result=result, reasons=["no"]))
    page = rita.page("/h/y")
    words = re.sub(r"\s+", " ", re.sub("<[^>]+>", "", page))
    sent_back = f"by rita #{met + 2}"
    assert re.search(rf"was met by bob, [0-9-]+ · #{met} · prove; reopened {sent_back}", words)
    assert re.search(rf"completed by bob, [0-9-]+ · #{met + 1} · prove; then changes were requested {sent_back}", words)
    assert 'class="all"' not in page
    assert 'class="all"' not in rita.page("/").partition('id="c-y"')[2].partition("</li>")[0]


def test_an_open_gate_is_named_beside_the_buttons(rita: Viewer) -> None:
    rita.ledger.hand_over("x")
    for page in (rita.page("/h/x"), rita.page("/", open="x")):
        above = page.partition('<button class="yes"')[0].rpartition("passphrase")[0]
        assert "a program of the same user can approve without" in above
        assert '<p class="wait">Gate: open' in above


def test_before_there_is_a_result_changes_are_a_question_to_the_sender(rita: Viewer) -> None:
    rita.ledger.hand_over("x")
    refused(rita, press(rita, "ask"), 400, "needs a note")
    assert press(rita, "ask", note="Split it").status_code == 303
    event = rita.ledger.event(rita.ledger.head()[0] - 1)
    assert event.data == kinds.HandoffQuestionAsked(to="alice", question="Split it")
    assert status_of(rita) == "pending"
    waiting = rita.dashboard.ledger.ask("handoffs.next", agent="alice")["items"]
    assert [(item["id"], item["action"]) for item in waiting] == [("x", "answer")]
    assert "Split it" in rita.page("/", open="x")


def test_a_key_that_no_browser_can_use_is_named_at_once_and_no_form_is_offered(viewer: Viewer) -> None:
    viewer.ledger.hand_over("x")
    command = "deed key rotate --as rita"
    for page in (viewer.page("/"), viewer.page("/", open="x"), viewer.page("/h/x")):
        assert command in page
        assert "/decide" not in page
        assert "Unlock for" not in page
    assert "deed handoff show --as rita x" in viewer.page("/", open="x")
    viewer.ledger.home.key_file("rita").unlink()
    assert "You cannot sign here" in viewer.page("/")
    seal(viewer.ledger)
    viewer.ledger.home.key_file("rita").chmod(0o600)
    assert "/decide" in viewer.page("/", open="x")


def queue_form(viewer: Viewer, name: str, word: str, note: str = "") -> tuple[str, dict[str, str]]:
    """Return path and fields of the form of a queue's row, as a browser sends them when ``word`` is pressed."""
    shown = viewer.data("/", open=name)
    (button,) = [choice for choice in shown["form"]["choices"] if choice["word"] == word]
    place = {"queue": shown["queue_query"], "next": shown["following"] or ""}
    return shown["form"]["path"], {**shown["form"]["fields"], "decision": button["value"], "note": note, **place}


@pytest.mark.parametrize("is_of_handoff", [True, False])
def test_a_question_is_answered_in_the_queue_and_signed(rita: Viewer, *, is_of_handoff: bool) -> None:
    if is_of_handoff:
        rita.ledger.hand_over("x")
        rita.ledger.emit("bob", "handoff/x", kinds.HandoffQuestionAsked(to="rita", question="Which <b>port</b>?"))
        rita.ledger.emit("bob", "handoff/x", kinds.HandoffQuestionAsked(to="alice", question="Whose?"))
        name = next(item["key"] for item in rita.data("/")["items"] if item["action"] == "answer")
    else:
        rita.ledger.emit("bob", "question/q", QuestionAsked(to="rita", question="Which <b>port</b>?"))
        name = "q"
    page = rita.page("/", open=name)
    assert "Which &lt;b&gt;port&lt;/b&gt;?" in page
    assert "alice answers" not in page.partition('class="row open"')[2], "only questions to rita"
    assert page.count("Sign the answer") == 1
    path, form = queue_form(rita, name, "answer.1")
    size = rita.ledger.head()[0]
    refused = rita.post(path, **form)
    assert (refused.status_code, rita.ledger.head()[0]) == (400, size)
    assert "answer needs a note" in refused.text
    forged = rita.post(path, **form | {"decision": form["decision"].replace("answer.1", "settle.1"), "note": "8080"})
    assert (forged.status_code, rita.ledger.head()[0]) == (403, size)
    done = rita.post(path, **form | {"note": "8080"})
    assert (done.status_code, rita.ledger.head()[0]) == (303, size + 1)
    assert rita.post(path, **form | {"note": "8080"}).headers["location"] == done.headers["location"], "once"
    stream = "handoff/x" if is_of_handoff else "question/q"
    event = rita.ledger.event(size)
    assert (event.stream, event.author) == (stream, "rita")
    assert (event.data.answer) == "8080"
    receipt = rita.data("/", done=size)["done"]
    assert (receipt["text"], receipt["author"]) == ("8080" if not is_of_handoff else receipt["text"], "rita")
    assert "answer" not in [item["action"] for item in rita.data("/")["items"]]


@pytest.mark.parametrize("is_of_handoff", [True, False])
def test_an_answer_is_accepted_in_the_queue_only_as_it_was_shown(rita: Viewer, *, is_of_handoff: bool) -> None:
    if is_of_handoff:
        rita.ledger.hand_over("x")
        for number in range(2):
            rita.ledger.emit("rita", "handoff/x", kinds.HandoffQuestionAsked(to="bob", question=f"Which {number}?"))
            rita.ledger.emit("bob", "handoff/x", kinds.HandoffQuestionAnswered(position=number, answer="8080"))
        stream, word = "handoff/x", "settle.2"
        again: Any = kinds.HandoffQuestionAnswered(position=1, answer="9090")
    else:
        rita.ledger.emit("rita", "question/q", QuestionAsked(to="bob", question="Which?"))
        rita.ledger.emit("bob", "question/q", QuestionAnswered(answer="8080"))
        stream, word, again = "question/q", "settle.1", QuestionAnswered(answer="9090")
    name = next(item["key"] for item in rita.data("/")["items"] if item["action"] == "settle")
    stale = queue_form(rita, name, word)
    rita.ledger.emit("bob", stream, again)
    size = rita.ledger.head()[0]
    assert rita.post(stale[0], **stale[1]).status_code == 409, "bob answered otherwise since"
    assert rita.ledger.head()[0] == size
    path, form = queue_form(rita, name, word, "thanks")
    assert "9090" in rita.page("/", open=name)
    assert rita.post(path, **form).status_code == 303
    assert (rita.ledger.event(size).author, rita.ledger.event(size).data.comment) == ("rita", "thanks")
    assert rita.data("/", done=size)["done"]["kind"].endswith("settled")
