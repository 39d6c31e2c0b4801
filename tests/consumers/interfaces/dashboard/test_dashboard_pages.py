from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from deedbook.consumers.interfaces.dashboard import app
from deedbook.consumers.interfaces.dashboard.page import Route
from deedbook.ledger.client.author import Draft
from deedbook.ledger.client.stream_reader import IgnoredEntry
from deedbook.ledger.errors import Refused
from deedbook.ledger.events.authority import KeyCompromised
from deedbook.ledger.events.declared import KindDeclared
from deedbook.ledger.events.handoff import HandoffAmended, HandoffLogged, HandoffQuestionAnswered, HandoffQuestionAsked
from deedbook.ledger.events.imported import RecordImported
from deedbook.ledger.events.review import ReviewRequested
from deedbook.ledger.events.session import FindingLogged, SessionStarted
from deedbook.ledger.format.identity import Key

if TYPE_CHECKING:
    from looking import Viewer

NAMES = [f"field_{number}" for number in range(40)]
MANY = {"type": "object", "properties": {name: {"type": "integer"} for name in NAMES}, "additionalProperties": False}
EVIL = "<img src=x onerror=alert(1)> \u202e' OR 1=1 -- {{ 7*7 }} {% raw %}"


def test_the_json_of_a_page_is_what_it_shows(viewer: Viewer) -> None:
    viewer.ledger.hand_over("x")
    assert viewer.get("/events.json").json()["kind"] == "events"
    assert [row["kind"] for row in viewer.data("/events")["items"]][:1] == ["handoff.created"]
    assert viewer.data("/e/4")["row"]["stream"] == "handoff/x"


def test_list_of_handoffs_says_that_its_times_are_those_of_the_last_change(viewer: Viewer) -> None:
    viewer.ledger.hand_over("x")
    assert re.search(r"<br> changed\s+<time", viewer.page("/h"))


def test_a_thing_whose_id_ends_in_json_has_a_page_and_a_twin(viewer: Viewer) -> None:
    viewer.ledger.emit("alice", "session/x.json", SessionStarted())
    page = viewer.page("/events")
    link = re.search(r'href="(/s/x[^"]*)"', page)
    assert link is not None
    assert link[1] == "/s/x%2Ejson"
    assert viewer.data("/e/session%2Fx%2Ejson")["row"]["stream"] == "session/x.json"
    assert "</html>" in viewer.page("/e/session%2Fx%2Ejson")


def test_one_entry_shows_its_body_its_key_and_its_proof(viewer: Viewer) -> None:
    viewer.ledger.hand_over("x", title="the title")
    shown = viewer.data("/e/4")
    assert shown["event"]["data"]["title"] == "the title"
    assert shown["event"]["key"] == viewer.ledger.keys["alice"].public.hex()
    assert (shown["signed"]["counts"], shown["signed"]["key_type"]) == (True, "identity")
    assert shown["proof"] == shown["proof"] | {"is_proven": True, "size": 5, "hashes": 1}
    page = viewer.page("/e/4")
    assert "the title" in page
    assert shown["event"]["sig"] in page


def test_entry_begins_with_words_then_its_fields_with_links_and_its_json_is_folded(viewer: Viewer) -> None:
    viewer.ledger.hand_over("y")
    viewer.ledger.hand_over("x", title="the title", tasks=["one", "two"], depends_on=["y"], context="see handoff/y")
    page = viewer.page("/e/5").partition("<main")[2]
    order = ['<p class="why', '<dl class="facts">', 'id="proof"']
    assert sorted(order, key=page.index) == order
    assert page.count("&#34;title&#34;: &#34;the title&#34;") == 1
    assert page.index("<details") < page.index("&#34;title&#34;") < page.index("</details>")
    assert page.index("&#34;title&#34;") < page.index("<h2>Causes</h2>")
    (words,) = re.findall(r'<p class="why[^>]*>(.*?)</p>', page, re.DOTALL)
    text = re.sub(r"<[^>]*>", "", words)
    assert text.startswith("This is entry 1 of the title (handoff/x), accepted 20")
    assert text.endswith("alice signed it on their own behalf.")
    assert ('href="/h/x"' in words, 'href="/a/alice"' in words) == (True, True)
    fields = page[page.index(order[1]) : page.index("</dl>")]
    for row in ("<dt>title</dt><dd>", "<dt>depends on</dt><dd>", "<li>one", "<li>two"):
        assert row.replace("<li>", '<li><span class="untrusted linked">') in fields
    assert (fields.count('href="/h/y"'), 'href="/a/bob"' in fields, "proposal" in fields) == (2, True, False)


def test_entry_says_on_whose_behalf_it_was_signed(viewer: Viewer) -> None:
    key = viewer.ledger.delegate("bob", Key(b"k" * 32))
    draft = Draft(stream="session/s", data=SessionStarted(task="by a program"))
    viewer.ledger.submit(viewer.ledger.sign("bob", draft, key=key))
    claimed = {"claimed_author": "ghost", "claimed_at": "2025-03-04T05:06:07Z", "mapped_kind": "session.started"}
    record = RecordImported(original="blake3:" + "7" * 64, source="n", format="n/1", mapped={"task": "old"}, **claimed)
    viewer.ledger.emit("bob", "session/old", record)
    signed, imported = (
        re.sub(r"<[^>]*>", "", viewer.page(f"/e/{index}").partition('id="words">')[2].partition("</p>")[0])
        for index in (5, 6)
    )
    assert signed.endswith("A program signed it with a session key, on behalf of bob, whose identity key delegated it.")
    assert "bob signed it as the importer of a record, on behalf of ghost, whom the record names for 2025" in imported


def test_entry_with_many_fields_and_much_text_stays_readable_and_small(viewer: Viewer) -> None:
    viewer.ledger.hand_over("x", tasks=[f"{number} " + "word " * 70 for number in range(100)])
    answer = viewer.get("/e/4")
    assert len(answer.content) < 120_000
    assert (viewer.data("/e/4")["is_written_here"], 'href="/e/4.json"' in answer.text) == (False, True)
    kind = KindDeclared(name="x.many.seen", stream="x.many", roles=["agent"], schema=MANY)
    viewer.ledger.emit("root", "kind/x.many.seen", kind)
    draft = Draft(kind="x.many.seen", stream="x.many/1", data=dict.fromkeys(NAMES, 0))
    viewer.ledger.submit(viewer.ledger.sign("bob", draft))
    page = viewer.page("/e/6")
    assert "8 more fields</summary>" in page
    assert page.count("<dt>field ") == 40


def test_entry_0_tells_the_root_key_from_its_fingerprint(viewer: Viewer) -> None:
    fields = {field["label"]: field["texts"] for field in viewer.data("/e/0")["fields"]}
    key, mark = viewer.data("/e/0")["event"]["data"]["root"], viewer.data("/audit")["fingerprint"]
    assert (fields["root key"], fields["its fingerprint"], "root" in fields) == ([key], [mark], False)


def test_entries_of_authority_and_the_first_of_all_have_their_proof_too(viewer: Viewer) -> None:
    for index in range(4):
        shown = viewer.data(f"/e/{index}")
        assert (shown["signed"]["counts"], shown["proof"]["is_proven"]) == (True, True), shown


def test_an_entry_that_the_rules_do_not_admit_says_so(viewer: Viewer, monkeypatch: pytest.MonkeyPatch) -> None:
    viewer.ledger.hand_over("x")
    streams = viewer.dashboard.ledger.client.streams
    real = streams.read

    def read(stream):
        checked = real(stream)
        return replace(checked, entries=[], ignored=[IgnoredEntry(4, "NOT_AUTHORIZED", "alice may not")])

    monkeypatch.setattr(streams, "read", read)
    assert viewer.data("/e/4")["signed"] == viewer.data("/e/4")["signed"] | {
        "counts": False,
        "problem": "alice may not",
    }
    assert "does not count" in viewer.page("/e/4")


def test_an_entry_without_a_receipt_says_why(viewer: Viewer, monkeypatch: pytest.MonkeyPatch) -> None:
    def prove(_):
        raise Refused("KEY_FILE_MISSING", "the checkpoint key is not here")

    monkeypatch.setattr(viewer.dashboard.ledger.client, "prove", prove)
    assert viewer.data("/e/1")["proof"]["is_proven"] is False
    assert "the checkpoint key is not here" in viewer.page("/e/1")


def test_what_an_entry_follows_from_and_led_to_is_one_click_away(viewer: Viewer) -> None:
    data = viewer.ledger.hand_over("x")
    viewer.ledger.approve("x", data)
    assert [step["event_index"] for step in viewer.data("/e/5")["causes"]] == [4]
    assert [step["event_index"] for step in viewer.data("/e/4")["effects"]] == [5]
    page = viewer.page("/e/4")
    effects = re.sub(r"<[^>]*>", "", page[page.index("<h2>Effects</h2>") : page.index('id="proof"')])
    assert 'href="/e/5"' in page
    assert ("rita approved" in effects, "handoff.approved" in effects) == (True, False)


def test_what_a_stolen_key_signed_is_marked(viewer: Viewer) -> None:
    viewer.ledger.hand_over("x")
    key = viewer.ledger.keys["alice"].public.hex()
    viewer.ledger.emit("root", "agent/alice", KeyCompromised(key=key, since=4))
    assert viewer.data("/e/4")["row"]["compromised"] == 5
    assert "compromised" in viewer.page("/e/4")
    page = viewer.page("/")
    assert "compromised signature" in page.partition('id="q-x:approve"')[2].partition("</li>")[0]
    assert "compromised signature" in page.partition('id="c-x"')[2].partition("</li>")[0]
    viewer.ledger.hand_over("y", sender="bob", to="alice", depends_on=["x"])
    assert "compromised signature" in viewer.page("/h/y").partition('href="/h/x"')[2].partition("</li>")[0]


def test_what_a_stolen_key_signed_has_one_mark_in_each_list(viewer: Viewer) -> None:
    viewer.ledger.approve("x", viewer.ledger.hand_over("x"))
    key = viewer.ledger.keys["alice"].public.hex()
    viewer.ledger.emit("root", "agent/alice", KeyCompromised(key=key, since=4))
    for path in ("/events", "/a/alice", "/e/5"):
        assert viewer.page(path).count("</span> compromised signature</span>") == 1, path


def test_entry_of_a_log_has_its_verb_in_lists(viewer: Viewer) -> None:
    viewer.ledger.hand_over("x")
    viewer.ledger.emit("alice", "handoff/x", HandoffLogged(text="half of it works"))
    assert viewer.data("/e/5")["row"]["did"] == "wrote: half of it works"
    assert ">wrote: half of it works<" in viewer.page("/a/alice")
    assert ">wrote: half of it works<" in viewer.page("/agents")


def test_list_writes_an_agent_and_a_review_without_the_name_of_its_stream(viewer: Viewer) -> None:
    viewer.ledger.emit("bob", "review/r", ReviewRequested(question="is it right?", rule="r"))
    page = viewer.page("/events")
    assert (">review r</a>" in page, ">review/r</a>" in page, ">agent/bob</a>" in page) == (True, False, False)


def test_events_are_filtered_and_paged(viewer: Viewer) -> None:
    for number in range(60):
        viewer.ledger.hand_over(f"h{number}")
    first = viewer.data("/events", agent="alice", kind="handoff.created")
    assert (len(first["items"]), first["total"]) == (50, 60)
    second = viewer.data("/events", agent="alice", kind="handoff.created", before=first["next"])
    assert (len(second["items"]), second["next"]) == (10, None)
    assert viewer.data("/events", stream="handoff/h7")["total"] == 1
    assert "No event matches" in viewer.page("/events", agent="rita")


@pytest.mark.parametrize(
    ("query", "line"),
    [
        ({"sinc": "today"}, "no filter &#39;sinc&#39;: did you mean since?"),
        ({"actor": "bob"}, "It has: since, until, agent, kind, tag, stream"),
        ({"agent": "alise"}, "no agent &#39;alise&#39; here: did you mean alice?"),
        ({"kind": "finding.loged"}, "did you mean finding.logged"),
        ({"tag": "nothing"}, "no tag &#39;nothing&#39; here"),
        ({"since": "someday"}, "since is not a time"),
        ({"since": "today", "until": "yesterday"}, "is not before"),
    ],
)
def test_a_filter_is_never_ignored(viewer: Viewer, query: dict[str, str], line: str) -> None:
    answer = viewer.get("/events", **query)
    assert (answer.status_code, line in answer.text) == (400, True), answer.text
    assert '<form class="filters" action="/events">' in answer.text  # the form lets the user correct the filter
    assert viewer.get("/events.json", **query).json()["error"]["message"]


def test_filters_are_a_plain_form_that_keeps_the_rest_and_counts(viewer: Viewer) -> None:
    viewer.ledger.hand_over("x")
    page = viewer.page("/events", agent="alice", stream="handoff/x", since="2 days ago", until="today", before="99")
    assert re.search(r'<option value="alice" selected>alice \(1\)</option>', page)
    assert '<option value="handoff.created">handoff.created (1)</option>' in page
    assert 'name="since" value="2 days ago"' in page
    assert 'name="stream" value="handoff/x"' in page
    assert 'name="before"' not in page.partition("<main")[2]  # other filters start at the first page


def test_search_finds_words_chinese_too(viewer: Viewer) -> None:
    viewer.ledger.hand_over("x", title="全文检索")
    assert [group["stream"] for group in viewer.data("/search", text="检索")["groups"]] == ["handoff/x"]
    assert 'lang="zh"' in viewer.page("/search", text="检索")
    assert "handoff.created ·" not in viewer.page("/search", text="检索")
    assert viewer.data("/search")["groups"] == []
    assert viewer.get("/search", text='"').status_code == 400


def test_hits_are_marked_safely_and_grouped_by_the_thing_that_they_lead_to(viewer: Viewer) -> None:
    viewer.ledger.emit("bob", "session/s1", SessionStarted(task="Look at <b>cursors</b>"))
    for number in range(5):
        viewer.ledger.emit("bob", "session/s1", FindingLogged(finding=f"{number} a <i>cursor</i> & more"))
    viewer.ledger.hand_over("x", title="Cursor \u202e of its own")
    session, handoff = sorted(viewer.data("/search", text="cursor")["groups"], key=lambda group: -len(group["hits"]))
    assert (session["stream"], len(session["hits"]), handoff["stream"]) == ("session/s1", 6, "handoff/x")
    page = viewer.page("/search", text="cursor")
    assert "a &lt;i&gt;<mark>cursor</mark>&lt;/i&gt; &amp; more" in page
    assert "\u202e" not in page
    assert re.search(r'<h2><a class="ref" title="session/s1" href="/s/s1">Look at &lt;b&gt;', page)
    assert 'href="/h/x"' in page
    assert "3 more in this session" in page
    assert re.search(r'<option value="bob">bob \(6\)</option>', page)
    assert [group["stream"] for group in viewer.data("/search", text="cursor", agent="alice")["groups"]] == [
        "handoff/x"
    ]


def test_a_page_of_the_past_shows_nothing_later_and_its_links_stay_there(viewer: Viewer) -> None:
    viewer.ledger.hand_over("early")
    viewer.ledger.hand_over("late")
    page = viewer.page("/", as_of=4)
    assert 'As of <a href="/?as_of=4">#4</a></strong> of #5, <time datetime="' in page
    assert "/h/late" not in page
    assert 'href="/h/early?as_of=4"' in page
    assert "data-follows" not in page
    assert '<input name="as_of" size="18" value="4"' in page  # the time that was chosen, as it was written
    assert (">then</time>" in page, ">now</time>" in page, ">now</time>" in viewer.page("/")) == (True, False, True)
    assert viewer.data("/events", as_of=3)["total"] == 4
    viewer.ledger.clock.advance(7200)
    assert ">2h</time>" in viewer.page("/")
    assert ">2h</time>" not in viewer.page("/", as_of=4)  # the age at that time
    assert [item["id"] for item in viewer.data("/", as_of=viewer.ledger.clock.text())["items"]] == ["early", "late"]
    slid = viewer.page("/events", agent="alice", as_of=4)
    assert 'name="agent" value="alice"><input type="range" name="as_of"' in slid  # the form keeps the filters


@pytest.mark.parametrize("as_of", ["9999", "1999-01-01", "' OR 1=1", "-1", "٣", "9" * 40])
def test_a_moment_that_was_not_is_refused_on_a_page(viewer: Viewer, as_of: str) -> None:
    answer = viewer.get("/", as_of=as_of)
    assert answer.status_code in {400, 404}
    assert "Deedbook" in answer.text


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/nothing", 404),
        ("/e/77", 404),
        ("/e/%00", 404),
        ("/events?before=x", 400),
        ("/events?kind=x.y", 400),
        ("/events?before=99999999999999999999", 400),
        ("/search?after=x&text=x", 400),
        ("/e/%27%3BDROP%20TABLE", 404),
    ],
)
def test_what_is_refused_is_a_page_and_a_document(viewer: Viewer, path: str, status: int) -> None:
    before, _, query = path.partition("?")
    answer = viewer.client.get(path)
    assert (answer.status_code, "</html>" in answer.text) == (status, True)
    document = viewer.client.get(f"{before}.json?{query}")
    assert document.status_code == status
    assert document.json()["kind"] == "error"


def test_a_page_that_fails_says_so_and_tells_the_terminal(
    viewer: Viewer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(_):
        raise ZeroDivisionError("a secret of ours")

    monkeypatch.setattr(app, "page_routes", lambda: [Route("/fails", "fails", fails)])
    viewer.open()
    answer = viewer.get("/fails")
    assert answer.status_code == 500
    assert "a secret of ours" not in answer.text
    assert "/fails failed" in caplog.text


def test_text_of_others_stays_text_wherever_it_stands(viewer: Viewer) -> None:
    long = "長" * 10_000
    viewer.ledger.hand_over("x", title=EVIL.replace("\u202e", ""), task=f"{EVIL}\n{long}", tasks=["<b>"])
    viewer.ledger.emit("alice", "session/'><script>", SessionStarted())
    viewer.ledger.emit("alice", "session/'><script>", FindingLogged(finding=EVIL))
    for path in ("/", "/events", "/e/4", "/e/5", "/e/6", "/search?text=alert"):
        page = viewer.client.get(path).text
        assert not re.search(r"<(?:img|b)\b|<script(?! src)|\sstyle=|\son[a-z]+=\"", page), path
        assert "\u202e" not in page
        assert "49" not in re.sub(r"[0-9a-f]{12,}", "", page.partition("7*7")[2][:20])
    assert "all 10," in viewer.page("/e/4")
    assert "\u202e" not in viewer.get("/e/6.json").text


def test_a_new_ledger_says_what_to_do(viewer: Viewer) -> None:
    page = viewer.page("/")
    assert "Nothing waits for you" in page
    assert "deed handoff create" in page


def test_who_comes_back_is_told_what_came(viewer: Viewer) -> None:
    assert viewer.data("/")["since"] is None
    viewer.ledger.clock.advance(60)
    viewer.ledger.hand_over("x")
    assert viewer.data("/")["since"] is None  # somebody who was there all the time gets no news
    viewer.page("/")
    viewer.ledger.clock.advance(3600)
    viewer.ledger.hand_over("y")
    viewer.ledger.emit("bob", "session/s", SessionStarted())
    assert viewer.data("/")["since"] == {"index": 4, "events": 2, "needs_you": 1}
    assert "Since you left" in viewer.page("/")
    assert "Since you left" in viewer.page("/")  # and again on the next load
    left = next(name for name in viewer.client.cookies if "left" in name)
    viewer.client.cookies.delete(left)
    viewer.client.cookies.set(left, "x.y.z")
    assert viewer.data("/")["since"] is None


def test_only_who_reads_is_told_why(viewer: Viewer) -> None:
    viewer.name = "bob"
    viewer.enter()
    viewer.ledger.hand_over("x")
    page = viewer.page("/")
    assert "read-only: bob is no human: only humans decide here" in page
    assert viewer.data("/")["items"] == []


def test_a_static_file_is_asked_for_by_its_etag_and_others_are_not_there(viewer: Viewer) -> None:
    first = viewer.get("/static/app.js")
    assert first.headers["cache-control"] == "no-cache"
    assert first.headers["content-type"].startswith("text/javascript")
    again = viewer.client.get("/static/app.js", headers={"if-none-match": first.headers["etag"]})
    assert (again.status_code, again.text) == (304, "")
    for name in ("..%2Fapp.py", "..%2F..%2Fweb/server.py", "nothing.js", ""):
        assert viewer.client.get(f"/static/{name}").status_code == 404


def test_the_board_says_why_a_card_waits(viewer: Viewer) -> None:
    viewer.ledger.hand_over("first")
    viewer.ledger.approve("second", viewer.ledger.hand_over("second", depends_on=["first"]))
    cards = {card["id"]: card["why"] for column in viewer.data("/")["columns"] for card in column["handoffs"]}
    assert cards["first"] == "it waits for the approval of rita"
    assert cards["second"].startswith("it waits for first, which is pending")


def test_pages_stay_small_and_are_whole_documents(viewer: Viewer) -> None:
    for number in range(50):
        viewer.ledger.hand_over(f"handoff-{number}", title="Something that a person has to approve", tasks=["a", "b"])
    page = viewer.page("/")
    assert len(page.encode()) <= 60_000
    assert page.rstrip().endswith("</html>")
    assert json.dumps(viewer.data("/"))


def test_a_handoff_that_an_agent_wrote_thousands_of_entries_to_stays_a_page(
    viewer: Viewer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deedbook.consumers.interfaces.dashboard.pages.handoffs.rows_max", 2)
    viewer.ledger.hand_over("x", tasks=["a"])
    for text in ("one", "two", "three"):
        viewer.ledger.emit("alice", "handoff/x", HandoffAmended(title=text, to="bob", reviewer="rita"))
    data, page = viewer.data("/h/x"), viewer.page("/h/x")
    assert ([one["number"] for one in data["versions"]], len(data["log"]), data["events"]) == ([3, 4], 2, 4)
    assert data["log"][0]["event_index"] > data["log"][1]["event_index"]
    assert ("2 older</a>" in page, "and 2 older" in page, 'events?stream=handoff%2Fx"' in page) == (True, True, True)


def test_page_of_a_handoff_shows_its_questions(viewer: Viewer) -> None:
    viewer.ledger.hand_over("x", title="Health")
    viewer.ledger.emit(
        "alice", "handoff/x", HandoffQuestionAsked(to="bob", question="Which <b>route</b>?", place="a.py:1")
    )
    viewer.ledger.emit("bob", "handoff/x", HandoffQuestionAnswered(position=0, answer="/healthz"))
    page = viewer.page("/h/x")
    for text in ("Which &lt;b&gt;route&lt;/b&gt;?", "a.py:1", "/healthz", "answered"):
        assert text in page
