"""Rita and Ruth use one dashboard: each decides their own items, and nobody decides with another's form or key."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

import pytest
from looking import ORIGIN, PASSPHRASE, SECRET, Viewer, form_of, look, seal, token_of

from deedbook.consumers.interfaces.dashboard.app import Dashboard
from deedbook.consumers.interfaces.dashboard.guard import Guard, parse_origin, session_max_s
from deedbook.consumers.interfaces.dashboard.signer import Trials
from deedbook.consumers.interfaces.web.stream import followers_of_agent_max
from deedbook.ledger.errors import Corrupted, Refused
from deedbook.ledger.events.authority import AgentRemoved, KeyRevoked, KeyRotated, RoleRevoked
from deedbook.ledger.events.handoff import HandoffQuestionAsked
from deedbook.ledger.events.review import ReviewRequested
from deedbook.ledger.format.identity import Key

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import httpx
    from starlette.types import Message

    from deedbook.consumers.interfaces.dashboard.guard import Session

COOKIE: Final = "deedbook_4280"
OTHERS_PASSPHRASE: Final = "another horse"
HUMANS: Final[dict[str, Any]] = {
    "alice": ["agent"],
    "bob": ["agent"],
    "rita": ["human", "reviewer"],
    "ruth": ["human", "reviewer"],
}
LINK_LOST: Final = "This link has expired or was already used."


@pytest.fixture
def rita(tmp_path: Path) -> Iterator[Viewer]:
    """Rita, in her browser; the handoff x waits for her, and y for ruth."""
    for viewer in look(tmp_path / "ledger", agents=HUMANS):
        seal(viewer.ledger, "rita")
        seal(viewer.ledger, "ruth", OTHERS_PASSPHRASE)
        viewer.ledger.hand_over("x", reviewer="rita")
        viewer.ledger.hand_over("y", reviewer="ruth")
        yield viewer


@pytest.fixture
def ruth(rita: Viewer) -> Viewer:
    """Ruth, in another browser at the same dashboard."""
    return Viewer(rita.ledger, rita.dashboard, "ruth")


def session_of(viewer: Viewer) -> Session:
    session = viewer.dashboard.guard.session(viewer.client.cookies[COOKIE], viewer.ledger.clock())
    assert session is not None
    return session


def unlock(viewer: Viewer, passphrase: str) -> str:
    """Unlock the key of a viewer with the form that every page has; return the proof."""
    answer = viewer.post("/unlock", csrf=token_of(viewer.page("/"), "/unlock"), passphrase=passphrase)
    assert answer.status_code == 303, answer.text
    return answer.headers["location"].partition("#unlocked=")[2]


def end(viewer: Viewer, path: str) -> httpx.Response:
    return viewer.post(path, csrf=token_of(viewer.page("/me"), path))


def refused(answer: httpx.Response, status: int, words: str) -> None:
    assert answer.status_code == status, answer.text
    assert words in answer.text


def test_queue_unread_lines_and_buttons_are_those_of_the_login(rita: Viewer, ruth: Viewer) -> None:
    rita.ledger.emit("bob", "handoff/y", HandoffQuestionAsked(to="ruth", question="Which port?"))
    for viewer, own, other in ((rita, "x", "y"), (ruth, "y", "x")):
        data = viewer.data("/")
        assert {item["id"] for item in data["items"]} == {own}
        assert data["unread"]["command"] == f"deed unread --as {viewer.name}"
        assert {line["id"] for line in data["unread"]["items"]} == {own}
        assert "approve" in [choice["word"] for choice in viewer.data(f"/h/{own}")["form"]["choices"]]
        page = viewer.page(f"/h/{other}")
        assert viewer.data(f"/h/{other}")["form"] is None
        assert ("/decide" in page, 'name="decision"' in page) == (False, False)
        assert f'href="/me" title="your login">{viewer.name}</a>' in page


def test_each_signs_with_their_own_key_and_passphrase_only(rita: Viewer, ruth: Viewer) -> None:
    rita.ledger.hand_over("z", reviewer="ruth")
    size = rita.ledger.head()[0]
    for viewer, path, passphrase in ((rita, "/h/x", PASSPHRASE), (ruth, "/h/y", OTHERS_PASSPHRASE)):
        form = form_of(viewer, "approve", path)
        assert viewer.post(f"{path}/decide", **form, passphrase=passphrase).status_code == 303
    answer = ruth.post("/h/z/decide", **form_of(ruth, "approve", "/h/z"), passphrase=PASSPHRASE)
    refused(answer, 403, "not the passphrase of the key of ruth")
    assert rita.ledger.head()[0] == size + 2
    for index, name in ((size, "rita"), (size + 1, "ruth")):
        event = rita.ledger.event(index)
        assert (event.author, event.key) == (name, rita.ledger.keys[name].public.hex())


def test_form_that_one_was_shown_is_refused_in_the_session_of_the_other(rita: Viewer, ruth: Viewer) -> None:
    rita.ledger.emit("bob", "review/r", ReviewRequested(question="May it run?", rule="low_fidelity"))
    proof, size = unlock(ruth, OTHERS_PASSPHRASE), rita.ledger.head()[0]
    form = form_of(rita, "approve", "/reviews/r")  # ruth may answer the same review, with her own form
    refused(ruth.post("/reviews/r/decide", **form, proof=proof), 403, "does not belong to a page")
    refused(ruth.post("/lock", csrf=token_of(rita.page("/me"), "/logout")), 403, "does not belong to a page")
    assert (rita.ledger.head()[0], session_of(ruth).signer.left_s > 0) == (size, True)
    own = form_of(ruth, "approve", "/reviews/r")
    assert ruth.post("/reviews/r/decide", **own, proof=proof).status_code == 303
    assert rita.ledger.event(size).author == "ruth"


def test_unlocked_key_signs_in_no_other_session_whatever_that_session_knows(rita: Viewer, ruth: Viewer) -> None:
    proof, size = unlock(rita, PASSPHRASE), rita.ledger.head()[0]
    for viewer, path in ((ruth, "/h/y"), (Viewer(rita.ledger, rita.dashboard), "/h/x")):
        assert session_of(viewer).signer.left_s == 0
        form = form_of(viewer, "approve", path)
        refused(viewer.post(f"{path}/decide", **form, proof=proof), 403, f"to sign as {viewer.name}")
    assert rita.ledger.head()[0] == size
    assert rita.post("/h/x/decide", **form_of(rita, "approve"), proof=proof).status_code == 303


def test_link_is_used_once_and_logs_in_only_its_own_name(rita: Viewer, ruth: Viewer) -> None:
    link = ruth.link()
    assert ruth.enter(link).status_code == 303
    for viewer in (rita, ruth):  # rita may have found ruth's link in a log
        answer = viewer.enter(link)
        if viewer is ruth:
            assert answer.status_code == 303  # she reloads the page of her own link
        else:
            refused(answer, 401, LINK_LOST)
            assert "deed dashboard --link --as ruth" in answer.text
        assert "set-cookie" not in answer.headers
    assert rita.data("/me")["name"] == "rita"
    later, nonce, _, mac = ruth.link().split(".")
    refused(rita.enter(f"{later}.{nonce}.rita.{mac}"), 401, "no link of this dashboard")


def test_whoever_uses_the_link_of_another_reads_as_the_other_and_cannot_sign(rita: Viewer, ruth: Viewer) -> None:
    proof, before = unlock(rita, PASSPHRASE), session_of(rita)
    assert rita.enter(ruth.link()).status_code == 303
    assert (before.ended, before.signer._key) == ("You logged in again.", None)  # the browser has one login
    assert rita.data("/me")["name"] == "ruth"
    form = form_of(rita, "approve", "/h/y")
    refused(rita.post("/h/y/decide", **form, proof=proof), 403, "to sign as ruth")
    refused(rita.post("/h/y/decide", **form, passphrase=PASSPHRASE), 403, "not the passphrase of the key of ruth")
    assert [login["is_this"] for login in ruth.data("/me")["logins"]] == [True, False]  # ruth sees the other browser


@pytest.mark.parametrize("is_real", [False, True])
def test_cookie_that_was_planted_before_the_login_is_worth_nothing_after_it(
    rita: Viewer, ruth: Viewer, *, is_real: bool
) -> None:
    # A program on any port may set this cookie.
    planted = rita.client.cookies[COOKIE] if is_real else "chosen-by-somebody"
    ruth.client.cookies.clear()
    ruth.client.cookies.set(COOKIE, planted, domain="127.0.0.1")
    cookie = ruth.enter().headers["set-cookie"].partition("=")[2].partition(";")[0]
    assert cookie != planted
    session = ruth.dashboard.guard.session(planted, ruth.ledger.clock())
    assert session is None or session.ended
    assert (ruth.data("/me")["name"], session_of(ruth).name) == ("ruth", "ruth")


@pytest.mark.parametrize("headers", [{"sec-fetch-site": "cross-site"}, {"sec-fetch-site": "same-site"}])
def test_link_that_another_page_opened_logs_in_only_after_a_click(rita: Viewer, headers: dict[str, str]) -> None:
    link, before = rita.link(), session_of(rita)
    rita.client.cookies.clear()
    page = rita.enter(link, **headers)
    assert (page.status_code, "set-cookie" in page.headers) == (200, False)
    assert "Log in as rita?" in page.text
    assert page.headers["referrer-policy"] == "origin"
    refused(rita.post("/launch", {"origin": "https://evil.example"}, token=link), 401, "another origin")
    answer = rita.post("/launch", token=link, next="/h/x")
    assert (answer.status_code, answer.headers["location"]) == (303, "/h/x")
    assert session_of(rita) is not before


def test_program_that_looks_at_a_link_does_not_use_it_up(rita: Viewer) -> None:
    link = rita.link()
    assert "set-cookie" not in rita.client.head("/launch", params={"token": link}).headers
    assert "set-cookie" in rita.enter(link).headers


def test_logout_ends_only_this_login_and_its_unlocked_key(rita: Viewer, ruth: Viewer) -> None:
    unlock(rita, PASSPHRASE), unlock(ruth, OTHERS_PASSPHRASE)
    session, cookie = session_of(rita), rita.client.cookies[COOKIE]
    form = form_of(rita, "approve")
    refused(rita.post("/logout", csrf="0" * 64), 403, "does not belong to a page")
    csrf = session.token("logout")
    refused(rita.post("/logout", {"origin": "http://evil.example"}, csrf=csrf), 403, "another origin")
    assert end(rita, "/logout").status_code == 303
    assert (session.signer._key, session.signer._end, session.signer.left_s) == (None, None, 0)
    refused(rita.get("/"), 401, "You logged out.")
    rita.client.cookies.set(COOKIE, cookie, domain="127.0.0.1")
    refused(rita.post("/h/x/decide", **form, passphrase=PASSPHRASE), 401, "You logged out.")
    assert rita.ledger.handoff("x").status == "pending"
    assert session_of(ruth).signer.left_s > 0
    assert ruth.post("/h/y/decide", **form_of(ruth, "approve", "/h/y"), passphrase=OTHERS_PASSPHRASE).status_code == 303


def test_person_ends_their_other_logins_and_those_of_nobody_else(rita: Viewer, ruth: Viewer) -> None:
    stolen = Viewer(rita.ledger, rita.dashboard)
    assert end(rita, "/logout/others").status_code == 303
    refused(stolen.get("/"), 401, "Another login of rita ended this one.")
    assert [login["is_this"] for login in rita.data("/me")["logins"]] == [True]
    assert ruth.get("/").status_code == 200


def test_expired_login_says_so_with_the_command_and_keeps_the_note(rita: Viewer) -> None:
    form = form_of(rita, "approve", note="I read it <b>twice</b>")
    rita.ledger.clock.advance(session_max_s)
    page = rita.post("/h/x/decide", **form, passphrase=PASSPHRASE)
    refused(page, 401, "This login ended after 24 hours.")
    assert "<code>deed dashboard --link --as rita</code>" in page.text
    assert ">I read it &lt;b&gt;twice&lt;/b&gt;</textarea>" in page.text
    assert PASSPHRASE not in page.text
    assert "twice" not in rita.post("/h/x/decide", {"origin": "http://127.0.0.1:9"}, **form).text
    error = rita.get("/.json").json()["error"]
    assert (error["code"], error["details"]["why"]) == ("NOT_AUTHORIZED", "This login ended after 24 hours.")
    assert rita.get("/live").status_code == 401
    assert rita.ledger.handoff("x").status == "pending"


@pytest.mark.parametrize(("queue", "back"), [({}, "/h/x"), ({"queue": "open=x&action=approve"}, "/?open=x")])
def test_note_of_a_browser_that_lost_its_login_is_on_the_answer_which_leads_back_to_the_form(
    rita: Viewer, queue: dict[str, str], back: str
) -> None:
    form = form_of(rita, "approve", note="I read it <b>twice</b>") | queue
    rita.client.cookies.clear()  # it expired, or a restarted server knows it no more
    page = rita.post("/h/x/decide", **form, passphrase=PASSPHRASE)
    refused(page, 401, ">I read it &lt;b&gt;twice&lt;/b&gt;</textarea>")
    assert f'<a href="{back}' in page.text
    assert (PASSPHRASE in page.text, "location" in page.headers) == (False, False)
    for foreign in ({"origin": "http://127.0.0.1:9"}, {}):
        assert "twice" not in rita.post("/h/x/decide", foreign, **form).text
    evil = rita.post("/h/x/decide", **form | {"queue": '"><script>alert(1)</script>'}).text
    assert "<script>alert" not in evil
    assert rita.ledger.handoff("x").status == "pending"


@pytest.mark.parametrize("queue", [{}, {"queue": "open=x"}])
def test_form_from_before_a_new_login_comes_again_with_its_note_and_signs_nothing(
    rita: Viewer, queue: dict[str, str]
) -> None:
    form = form_of(rita, "approve", note="I read it twice") | queue
    rita.client.cookies.clear()
    rita.enter()
    page = rita.post("/h/x/decide", **form, passphrase=PASSPHRASE)
    refused(page, 403, "does not belong to a page")
    assert (">I read it twice</textarea>" in page.text, PASSPHRASE in page.text) == (True, False)
    assert rita.ledger.handoff("x").status == "pending"
    assert rita.post("/h/x/decide", **form_of(rita, "approve"), passphrase=PASSPHRASE).status_code == 303


@pytest.mark.parametrize("change", ["removed", "revoked", "rotated"])
def test_login_ends_with_the_key_of_its_human_while_the_other_goes_on(rita: Viewer, ruth: Viewer, change: str) -> None:
    unlock(rita, PASSPHRASE)
    session, key, new = session_of(rita), rita.ledger.keys["rita"].public.hex(), Key(bytes(32))
    proof = new.prove_possession(rita.ledger.id, "rita")
    rotated = KeyRotated(agent="rita", key=new.public.hex(), proof=proof, reason="old")
    data = {"removed": AgentRemoved(agent="rita", reason="left"), "revoked": KeyRevoked(key=key, reason="lost")}
    rita.ledger.emit("root", "agent/rita", data.get(change, rotated))
    refused(rita.get("/"), 401, "The ledger no longer accepts the key that rita had when this login began.")
    assert (session.signer._key, rita.get("/live").status_code) == (None, 401)
    assert ruth.get("/").status_code == 200
    rita.enter()
    account = rita.data("/me")
    assert account["why_not"].rpartition(" at ")[0] == ("" if change == "rotated" else f"the key of rita was {change}")


def test_person_who_is_a_human_no_more_only_reads(rita: Viewer) -> None:
    form, proof = form_of(rita, "approve"), unlock(rita, PASSPHRASE)
    rita.ledger.emit("root", "agent/rita", RoleRevoked(agent="rita", role="human"))
    refused(rita.post("/h/x/decide", **form, proof=proof), 403, "this page is read-only")
    assert rita.data("/")["items"] == []
    assert "rita is no human: only humans decide here" in rita.page("/me")


def test_ledger_whose_entries_prove_nothing_can_be_read_but_not_decided_in(
    rita: Viewer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def damaged(*_: object) -> None:
        raise Corrupted("VERIFICATION_FAILED", "the signature of entry 2 is not valid")

    monkeypatch.setattr(rita.dashboard.ledger.client.streams, "read", damaged)
    assert "read-only: the signature of entry 2 is not valid" in rita.page("/events")
    assert rita.data("/")["items"] == []


def test_wrong_passphrases_of_one_login_let_the_next_login_wait_but_nobody_else(rita: Viewer, ruth: Viewer) -> None:
    rita.dashboard.guard._trials["rita"] = Trials(lambda: 0.0)
    rita.enter()
    for passphrase, words in (("wrong", "not the passphrase of the key of rita"), (PASSPHRASE, "wait 2 s")):
        refused(rita.post("/h/x/decide", **form_of(rita, "approve"), passphrase=passphrase), 403, words)
        rita.enter()
    assert unlock(ruth, OTHERS_PASSPHRASE)


def test_tabs_of_one_person_take_no_live_connections_of_the_other(rita: Viewer) -> None:
    async def follow() -> None:
        with ExitStack() as stack:
            for _ in range(followers_of_agent_max):
                stack.enter_context(rita.dashboard.followers.place("rita"))
            refused(rita.get("/live"), 503, "clients of rita already follow the log")
            rita.dashboard.followers.check("ruth")

    asyncio.run(follow())


def test_live_connection_ends_with_its_login(rita: Viewer) -> None:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)
        if "body" in message:
            session_of(rita).end("You logged out.")
            rita.ledger.hand_over("z")  # the next message would be about z

    async def receive() -> Message:
        await asyncio.Event().wait()
        return {}

    cookie = f"{COOKIE}={rita.client.cookies[COOKIE]}".encode()
    scope = {"type": "http", "method": "GET", "path": "/live", "raw_path": b"/live", "query_string": b""}
    scope["headers"] = [(b"host", b"127.0.0.1:4280"), (b"cookie", cookie)]
    asyncio.run(asyncio.wait_for(rita.dashboard.application()(scope, receive, send), 60))
    assert b"".join(message.get("body", b"") for message in sent).count(b"event: position") == 1


def test_behind_a_proxy_with_tls_only_its_origin_counts(rita: Viewer) -> None:
    guard = Guard(SECRET, 4280, parse_origin("https://Deeds.example.org:443/"))
    dashboard = Dashboard(rita.dashboard.ledger, guard, clock_ms=rita.ledger.clock)
    viewer = Viewer(rita.ledger, dashboard)
    viewer.client.base_url = "https://deeds.example.org"
    cookies = [viewer.enter().headers["set-cookie"], viewer.get("/").headers["set-cookie"]]
    assert cookies[0].startswith("__Host-deedbook_4280=")
    for cookie in cookies:
        assert {"HttpOnly", "Path=/", "SameSite=strict", "Secure"} <= set(cookie.split("; "))
        assert "Domain" not in cookie
    own = {"origin": "https://deeds.example.org", "sec-fetch-site": "same-origin"}
    form = form_of(viewer, "approve")
    for origin in (
        ORIGIN,
        "http://deeds.example.org",
        "https://deeds.example.org.evil",
        "https://deeds.example.org:444",
    ):
        refused(viewer.post("/h/x/decide", own | {"origin": origin}, **form), 403, "another origin")
    for host in ("127.0.0.1:4280", "localhost", "deeds.example.org:80", "evil.example"):
        headers = {"host": host, "x-forwarded-host": "deeds.example.org"}
        refused(viewer.client.get("/", headers=headers), 400, "only at https")
    assert viewer.post("/h/x/decide", own, **form, passphrase=PASSPHRASE).status_code == 303


@pytest.mark.parametrize(
    "url", ["http://deeds.example.org", "deeds.example.org", "https://deeds.example.org/x", "https://a b", "https://"]
)
def test_page_for_others_is_served_only_with_tls(url: str) -> None:
    with pytest.raises(Refused, match="without TLS everybody on the network could read passphrases"):
        parse_origin(url)


@pytest.mark.skipif(sys.platform != "linux", reason="not run: only Linux has prctl")
def test_other_programs_of_the_same_user_cannot_read_the_memory_of_the_dashboard() -> None:
    """Root reads all memory, so both programs of this test give up that right first."""
    # Such a change of the user makes the memory unreadable, too, until it is made readable again.
    user = "import ctypes, os; os.getuid() or os.setuid(65534); ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)\n"
    hidden = f"from deedbook.consumers.interfaces.dashboard.signer import hide_memory\n{user}hide_memory()\n"
    with subprocess.Popen(
        [sys.executable, "-c", f"{hidden}print(flush=True)\ninput()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        reading = f"{user}open('/proc/{child.pid}/mem', 'rb')"
        done = subprocess.run([sys.executable, "-c", reading], capture_output=True, text=True, check=False)
        child.communicate(b"\n")
    assert (done.returncode, "PermissionError" in done.stderr) == (1, True)
