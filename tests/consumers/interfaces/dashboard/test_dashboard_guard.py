from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest
from looking import ORIGIN, SECRET

from deedbook.consumers.interfaces.dashboard import app
from deedbook.consumers.interfaces.dashboard.account import Account
from deedbook.consumers.interfaces.dashboard.guard import (
    CSP,
    Guard,
    launch_link,
    link_max_s,
    session_max_s,
    sessions_of_name_max,
)
from deedbook.consumers.interfaces.dashboard.page import Redirect, Route
from deedbook.ledger.format.identity import Key

if TYPE_CHECKING:
    from looking import Viewer

OWN = {"origin": ORIGIN, "sec-fetch-site": "same-origin"}


RITA: Final = Account("rita", "ab" * 32, ("human",))


def launch(guard: Guard, text: str, now_ms: int, account: Account = RITA, cookie: str | None = None) -> str | None:
    """Follow a link as the application does; return the cookie."""
    link = guard.link(text)
    return link and guard.launch(link, account, now_ms, user_agent="", cookie=cookie)


def test_a_launch_link_lets_one_browser_in_as_its_name() -> None:
    guard, text = Guard(SECRET, 4280), launch_link(SECRET, "rita", 1_000)
    session = guard.session(launch(guard, text, 2_000), 2_000)
    assert session is not None
    assert (session.name, session.key, session.ended) == ("rita", RITA.key, "")
    assert launch(guard, text, 2_000) is None


def test_a_stale_a_forged_and_a_foreign_link_let_nobody_in() -> None:
    guard, text = Guard(SECRET, 4280), launch_link(SECRET, "rita", 1_000)
    later, nonce, name, mac = text.split(".")
    assert launch(guard, text, 1_000 + link_max_s * 1000) is None
    for forged in (
        f"{int(later) + 1}.{nonce}.{name}.{mac}",
        f"{later}.{nonce}.ruth.{mac}",
        f"{later}.{nonce}..{mac}",
        launch_link("t" * 40, "rita", 1_000),
        "",
    ):
        assert guard.link(forged) is None
    assert guard.session("x", 0) is None
    assert launch(guard, text, 2_000) is not None  # none of these attempts used up the link


def test_a_name_has_only_so_many_logins_and_takes_none_of_others() -> None:
    guard, ruth = Guard(SECRET, 4280), RITA._replace(name="ruth")
    other = launch(guard, launch_link(SECRET, "ruth", 1_000), 1_000, ruth)
    cookies = [launch(guard, launch_link(SECRET, "rita", 1_000), 1_000) for _ in range(sessions_of_name_max + 1)]
    assert [guard.session(cookie, 1_000) is None for cookie in cookies].count(True) == 1
    assert guard.session(cookies[0], 1_000) is None
    assert guard.session(other, 1_000) in guard.sessions_of("ruth")


def test_a_login_ends_after_a_day_and_forgets_its_key() -> None:
    guard = Guard(SECRET, 4280)
    cookie = launch(guard, launch_link(SECRET, "rita", 1_000), 1_000)
    session = guard.session(cookie, 1_000 + session_max_s * 1000 - 1)
    assert session is not None
    session.signer._key, session.signer._until = Key(bytes(32)), 1e12
    assert (session.ended, session.signer.left_s > 0) == ("", True)
    guard.session(None, 1_000 + session_max_s * 1000)  # a request without a cookie, by anybody
    assert session.ended == "This login ended after 24 hours."
    assert (session.signer._key, guard.sessions_of("rita")) == (None, [])


def test_the_cookie_is_for_this_server_and_for_no_script(viewer: Viewer) -> None:
    cookie = viewer.enter().headers["set-cookie"]
    assert cookie.startswith("deedbook_4280=")
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie


def test_who_has_no_session_sees_nothing(viewer: Viewer) -> None:
    viewer.ledger.hand_over("secret")
    viewer.client.cookies.clear()
    for path in ("/", "/events", "/e/1", "/nothing", "/?open=secret"):
        answer = viewer.get(path)
        assert answer.status_code == 401
        assert "secret" not in answer.text
        assert "rita" not in answer.text
    assert viewer.get("/.json").json()["error"]["code"] == "NOT_AUTHORIZED"
    assert viewer.get("/live").status_code == 401


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "127.0.0.1:4280@evil", "", "[::2]", "LOCALHOST.x"]
)
def test_a_foreign_host_is_refused(viewer: Viewer, host: str) -> None:
    for path in ("/", "/static/app.js", "/launch"):
        assert viewer.client.get(path, headers={"host": host}).status_code == 400


@pytest.mark.parametrize("host", ["127.0.0.1:4280", "localhost:9000", "[::1]:1", "localhost"])
def test_behind_a_forwarded_port_it_answers(viewer: Viewer, host: str) -> None:
    assert viewer.client.get("/static/app.js", headers={"host": host}).status_code == 200


def test_every_answer_bears_the_strict_headers(viewer: Viewer) -> None:
    for path in ("/", "/.json", "/nothing", "/static/app.js", "/static/nothing", "/launch", "/events?before=x"):
        headers = viewer.get(path).headers
        assert headers["content-security-policy"] == CSP
        assert headers["referrer-policy"] == "same-origin"
        assert headers["x-content-type-options"] == "nosniff"
    assert viewer.get("/").headers["cache-control"] == "no-store"


@pytest.fixture
def acting(viewer: Viewer, monkeypatch: pytest.MonkeyPatch) -> Viewer:
    """A viewer of a dashboard with one operation, which requires its token."""

    def act(seen, form):
        seen.session.demand(form, "/act", "h", "ref", "approve")
        return Redirect("/done")

    monkeypatch.setattr(app, "FORMS", (Route("/act", "act", act),))
    viewer.open()
    return viewer


def token_of(viewer: Viewer, *words: str) -> str:
    session = viewer.dashboard.guard.session(viewer.client.cookies["deedbook_4280"], 0)
    assert session is not None
    return session.token(*words)


def test_a_form_of_our_own_page_is_taken_and_leads_on(acting: Viewer) -> None:
    answer = acting.post("/act", csrf=token_of(acting, "/act", "h", "ref", "approve"))
    assert (answer.status_code, answer.headers["location"]) == (303, "/done")


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"origin": "null"},
        {"origin": "https://evil.example"},
        {"origin": "http://127.0.0.1:9999"},
        OWN | {"sec-fetch-site": "same-site"},
        OWN | {"sec-fetch-site": "cross-site"},
        OWN | {"sec-fetch-site": "none"},
    ],
)
def test_a_form_that_no_page_of_ours_sent_is_refused(acting: Viewer, headers: dict[str, str]) -> None:
    answer = acting.post("/act", headers, csrf=token_of(acting, "/act", "h", "ref", "approve"))
    assert answer.status_code == 403


def test_the_token_is_of_this_session_and_of_exactly_what_was_shown(acting: Viewer) -> None:
    right = token_of(acting, "/act", "h", "ref", "approve")
    for words in (("/act", "h", "other", "approve"), ("/act", "i", "ref", "approve"), ("/act", "h", "ref", "reject")):
        assert acting.post("/act", csrf=token_of(acting, *words)).status_code == 403
    assert acting.post("/act").status_code == 403
    acting.ledger.clock.advance(1)
    acting.enter()
    assert acting.post("/act", csrf=right).status_code == 403


def test_a_form_is_of_limited_size_and_plain_text(acting: Viewer) -> None:
    csrf = token_of(acting, "/act", "h", "ref", "approve")
    assert acting.post("/act", csrf=csrf, note="x" * 70_000).status_code == 413
    for body in (b"csrf=%ff%fe", "csrf=é".encode(), b"&".join(b"a=1" for _ in range(200))):
        assert acting.client.post("/act", content=body, headers=OWN).status_code == 400
    assert acting.client.get("/act").status_code == 404


def test_a_refusal_shows_its_commands_as_code_and_their_markup_as_text(viewer: Viewer) -> None:
    assert "<code>deed handoff list</code>" in viewer.get("/h/nobody").text
    page = viewer.get("/e/`<b>`").text
    assert "<b>" not in page
