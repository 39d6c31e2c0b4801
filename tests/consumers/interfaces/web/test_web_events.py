"""Events over HTTP: as pages, as lines, and followed; one event, its receipt, blobs, the checkpoint, and counts."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import urllib.request
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from test_web_api import code_of
from test_web_tiles import web_of
from web_reading import LATER_MS, Own, Reading

from deedbook.consumers.interfaces.web.stream import Followers, events_from
from deedbook.consumers.interfaces.web.tokens import Tokens
from deedbook.consumers.sdk.events import describe
from deedbook.consumers.sdk.receipts import Anchors, check
from deedbook.ledger.client.author import Author, Draft
from deedbook.ledger.events.session import FindingLogged, SessionStarted
from deedbook.ledger.proof.receipt import Receipt

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deedbook.consumers.sdk.ledger import Ledger


def builtins_of(python: Ledger, *kinds: str) -> list[Any]:
    """Return the events of a ledger as plain values."""
    return [describe(one) for one in python.events(*kinds)]


def unmarked(rows: list[Any]) -> list[Any]:
    """Return rows of events without the marks of compromised signatures and redactions, which are not in the events."""
    return [{name: value for name, value in row.items() if name not in {"compromised", "redacted"}} for row in rows]


def test_pages_of_events_lead_to_the_end_of_the_log(reading: Reading, python: Ledger) -> None:
    rows, path = [], "/v1/events?limit=9"
    while path is not None:
        document = reading.get(path).json()
        assert document["kind"] == "events"
        rows += document["data"]["items"]
        path = document.get("next")
    assert unmarked(rows) == builtins_of(python)
    assert any("compromised" in row for row in rows)


def test_events_are_filtered_by_kinds_and_stream(reading: Reading, python: Ledger) -> None:
    kinds = ("handoff.created", "session.started")
    asked = "&".join(f"kinds={kind}" for kind in kinds)
    rows = reading.get(f"/v1/events?{asked}&limit=500").json()["data"]["items"]
    assert unmarked(rows) == builtins_of(python, *kinds)
    one = reading.get(f"/v1/events?{asked}&limit=1")
    assert f"kinds={kinds[0]}&kinds={kinds[1]}" in one.json()["next"]
    rows = reading.get("/v1/events?stream=handoff/a&limit=500").json()["data"]["items"]
    assert rows == [row for row in builtins_of(python) if row["stream"] == "handoff/a"]


def test_a_filter_that_lets_nothing_through_is_read_piece_by_piece(
    reading: Reading, python: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deedbook.consumers.interfaces.web.api.events_scanned_max", 10)
    document = reading.get("/v1/events?kinds=handoff.superseded").json()
    assert (document["data"]["items"], document["data"]["next"]) == ([], 9)
    assert document["next"] == "/v1/events?kinds=handoff.superseded&after=9"


def test_events_as_lines_end_where_the_log_did(reading: Reading, python: Ledger) -> None:
    answer = reading.get("/v1/events?after=2", accept="application/x-ndjson")
    assert unmarked([json.loads(line) for line in answer.text.splitlines()]) == builtins_of(python)[3:]


def test_one_event_is_found_by_index_id_and_beginning(reading: Reading, python: Ledger) -> None:
    event = builtins_of(python)[4]
    for ref in ("4", event["id"], event["id"].removeprefix("event:")[:16]):
        data = reading.get(f"/v1/events/{ref}").json()["data"]
        assert {name: data[name] for name in event} == event
        assert data["batch"]["size"] >= 1


def test_a_receipt_proves_the_event_offline(reading: Reading, python: Ledger) -> None:
    document = reading.get("/v1/receipts/4").json()
    assert (document["kind"], document["data"]["index"]) == ("receipt", 4)
    text = reading.get("/v1/receipts/4", accept="text/plain").text
    for one in (document["data"]["receipt"], text):
        assert check(Receipt.parse(one), Anchors()).event == list(python.events())[4]


def test_the_checkpoint_is_the_published_one(reading: Reading, python: Ledger) -> None:
    note = python.client.published_checkpoint()  # type: ignore[attr-defined] - a folder's client has it
    assert reading.get("/v1/checkpoint").json()["data"] == {"checkpoint": note}
    assert reading.get("/v1/checkpoint", accept="text/plain").text == note


def test_a_blob_comes_whole_as_a_file_that_no_browser_shows(own: Own, monkeypatch: pytest.MonkeyPatch) -> None:
    author = Author(own.ledger.reads, "alice", lambda _: own.ledger.keys["alice"])
    ref = author.put_blob(b"<script>alert(1)</script>" * 10_000)
    answer = own.reading.get(f"/v1/blobs/{ref}")
    assert answer.content == b"<script>alert(1)</script>" * 10_000
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"] == "attachment"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert own.reading.get(f"/v1/blobs/{ref}", **{"if-none-match": answer.headers["etag"]}).status_code == 304
    monkeypatch.setattr("deedbook.consumers.interfaces.web.api.blob_read_max_bytes", 1_000)
    assert code_of(own.reading.get(f"/v1/blobs/{ref}")) == (413, "TOO_LARGE")


def test_what_is_counted_names_routes_and_never_what_was_asked_for(own: Own) -> None:
    _, counts = Tokens(own.reading.home).create("bob", "metrics", LATER_MS)
    own.ledger.hand_over("secret-name")
    own.reading.get("/v1/handoffs/show?id=secret-name")
    own.reading.get("/v1/events/0")
    own.reading.get("/v1/secret-name/secret-name")
    own.reading.client.get("/secret-name")
    text = own.reading.client.get("/metrics", headers={"authorization": f"Bearer {counts}"}).text
    assert f"deedbook_log_entries {float(own.ledger.size)}" in text
    assert "deedbook_views_behind_entries 0.0" in text
    assert 'deedbook_http_request_seconds_count{route="/v1/handoffs/show",status="200"} 1.0' in text
    assert 'deedbook_http_request_seconds_count{route="/v1/events/{id}",status="200"} 1.0' in text
    assert 'status="401"} 1.0' in text
    assert "secret-name" not in text


class Follower:
    """A reader of server-sent events, on a socket of its own."""

    def __init__(self, url: str, token: str, path: str, **headers: str) -> None:
        host, _, port = url.removeprefix("http://").partition(":")
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)  # otherwise the kernel buffers MBs
        self.socket.settimeout(30)
        self.socket.connect((host, int(port)))
        given = {"host": f"{host}:{port}", "authorization": f"Bearer {token}", "accept": "text/event-stream"} | headers
        head = "".join(f"{name}: {value}\r\n" for name, value in given.items())
        self.socket.sendall(f"GET {path} HTTP/1.1\r\n{head}\r\n".encode())
        self._lines = self.socket.makefile("r", encoding="utf-8")
        self.status = int(self._lines.readline().split()[1])

    def blocks(self) -> Iterator[dict[str, str]]:
        """Yield each event's fields as they come."""
        fields: dict[str, str] = {}
        for line in self._lines:
            name, _, value = line.rstrip("\r\n").partition(": ")
            if name in {"id", "event", "data"}:
                fields[name] = value
            elif not name and fields:
                yield fields
                fields = {}

    def wait(self) -> None:
        """Wait for the comment at the beginning of the stream."""
        while not self._lines.readline().startswith(":"):
            pass

    def rest(self) -> str:
        """Return everything that still arrives."""
        return self._lines.read()

    def close(self) -> None:
        """Hang up."""
        self._lines.close()
        self.socket.close()


def test_whoever_follows_gets_what_was_and_what_comes_and_goes_on_where_it_was(own: Own) -> None:
    with web_of(own.ledger.reads) as url:
        follower = Follower(url, own.reading.token, "/v1/events?after=1")
        blocks = follower.blocks()
        size = own.ledger.size
        assert [int(next(blocks)["id"]) for _ in range(2, size)] == list(range(2, size))
        own.ledger.hand_over("a")
        came = next(blocks)
        assert (int(came["id"]), came["event"], json.loads(came["data"])["index"]) == (size, "handoff.created", size)
        follower.close()
        own.ledger.hand_over("b")
        again = Follower(url, own.reading.token, "/v1/events?kinds=handoff.created", **{"last-event-id": came["id"]})
        blocks = again.blocks()
        assert next(blocks)["id"] == str(own.ledger.size - 1)
        again.close()


def test_long_answers_are_compressed_and_followed_events_are_not_held_back(own: Own) -> None:
    with web_of(own.ledger.reads) as url:
        bearer = {"authorization": f"Bearer {own.reading.token}"}
        for path, encoding in (("/v1/openapi.json", "gzip"), ("/healthz", None), ("/tile/entries/000.p/4", None)):
            answer = httpx.get(f"{url}{path}", headers=bearer)
            assert (answer.status_code, answer.headers.get("content-encoding")) == (200, encoding), path
            assert "accept-encoding" in answer.headers["vary"].lower()
        described = httpx.get(f"{url}/v1/openapi.json", headers={"accept-encoding": "gzip"})
        plain = httpx.get(f"{url}/v1/openapi.json", headers={"accept-encoding": "identity"})
        assert (described.content, described.headers["etag"]) == (plain.content, plain.headers["etag"])
        assert int(described.headers["content-length"]) * 5 < int(plain.headers["content-length"])
        head = httpx.head(f"{url}/v1/openapi.json", headers={"accept-encoding": "gzip"})
        assert head.headers["content-length"] == described.headers["content-length"]
        unchanged = {"accept-encoding": "gzip", "if-none-match": described.headers["etag"]}
        assert httpx.get(f"{url}/v1/openapi.json", headers=unchanged).status_code == 304
        follower = Follower(url, own.reading.token, "/v1/events", **{"accept-encoding": "gzip"})
        assert next(follower.blocks())["event"] == "ledger.created"
        follower.close()


def test_a_follower_whose_filter_matches_nothing_learns_its_position(own: Own, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deedbook.consumers.interfaces.web.stream.heartbeat_s", 0.0)
    last = own.ledger.size - 1
    with web_of(own.ledger.reads) as url:
        follower = Follower(url, own.reading.token, "/v1/events?kinds=handoff.claimed")
        position = {"id": str(last), "event": "position", "data": f'{{"index":{last}}}'}
        assert next(follower.blocks()) == position
        follower.wait()  # the log has not grown: a comment, and no message without data
        follower.close()


def test_asking_only_for_the_head_of_events_ends(own: Own) -> None:
    with web_of(own.ledger.reads) as url, httpx.Client(timeout=5) as http:
        for media in ("text/event-stream", "application/x-ndjson"):
            head = http.head(
                f"{url}/v1/events", headers={"authorization": f"Bearer {own.reading.token}", "accept": media}
            )
            assert (head.status_code, head.headers["content-type"].partition(";")[0]) == (200, media)
            assert http.get(f"{url}/healthz").status_code == 200  # on the same connection


def test_there_are_only_so_many_places_to_follow_from_and_they_are_given_back(
    own: Own, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deedbook.consumers.interfaces.web.stream.Followers.__init__.__defaults__", (1, 8))
    with web_of(own.ledger.reads) as url:
        first = Follower(url, own.reading.token, "/v1/events")
        assert (first.status, next(first.blocks())["id"]) == (200, "0")
        second = Follower(url, own.reading.token, "/v1/events")
        assert second.status == 503
        second.close()
        first.close()
        while (third := Follower(url, own.reading.token, "/v1/events")).status == 503:
            third.close()
        third.close()


def test_an_agent_leaves_places_to_others_with_all_its_tokens(own: Own, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deedbook.consumers.interfaces.web.stream.Followers.__init__.__defaults__", (4, 2))
    _, again = Tokens(own.reading.home).create("alice", "reader", LATER_MS)
    _, other = Tokens(own.reading.home).create("bob", "reader", LATER_MS)
    with web_of(own.ledger.reads) as url:
        kept = [Follower(url, token, "/v1/events") for token in (own.reading.token, again)]
        refused = Follower(url, again, "/v1/events")
        assert (refused.status, "2 clients of alice already follow" in refused.rest()) == (503, True)
        kept += [Follower(url, other, "/v1/events") for _ in range(2)]
        assert [follower.status for follower in kept] == [200] * 4
        for follower in [*kept, refused]:
            follower.close()


def test_whoever_may_read_no_more_hears_nothing_more(own: Own) -> None:
    kept, token = Tokens(own.reading.home).create("bob", "reader", LATER_MS)
    with web_of(own.ledger.reads) as url:
        follower = Follower(url, token, f"/v1/events?after={own.ledger.size - 1}")
        follower.wait()
        Tokens(own.reading.home).revoke(kept.id)
        own.ledger.hand_over("a")
        with contextlib.suppress(ConnectionResetError):  # the system's error for a connection that was cut
            assert next(follower.blocks(), None) is None
        follower.close()


def test_a_server_that_stops_ends_what_is_followed_first(own: Own) -> None:
    with web_of(own.ledger.reads) as url:
        follower = Follower(url, own.reading.token, f"/v1/events?after={own.ledger.size - 1}")
        follower.wait()
    assert follower.rest().endswith("\n0\n\n")  # the last chunk: an orderly end, not a broken connection
    follower.close()


def test_a_reader_that_takes_nothing_is_cut_off(own: Own, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deedbook.consumers.interfaces.web.stream.stall_max_s", 0.2)
    own.ledger.emit("alice", "session/s", SessionStarted())
    for number in range(15):
        texts = [f"{number}.{n} " + "x" * 39_000 for n in range(20)]
        drafts = [Draft(stream="session/s", data=FindingLogged(finding=text)) for text in texts]
        own.ledger.submit(own.ledger.sign("alice", *drafts))
    with web_of(own.ledger.reads) as url:
        follower = Follower(url, own.reading.token, "/v1/events")
        assert follower.status == 200
        _, counts = Tokens(own.reading.home).create("bob", "metrics", LATER_MS)
        # The client neither reads nor disconnects: only the server can have freed its place.
        while "deedbook_http_followers 0.0" not in text_of(f"{url}/metrics", counts):
            pass
        follower.close()


def text_of(url: str, token: str) -> str:
    """Return the text at an address."""
    asked = urllib.request.Request(url, headers={"authorization": f"Bearer {token}"})
    with urllib.request.urlopen(asked, timeout=30) as answer:
        return str(answer.read().decode())


def test_a_quiet_log_beats_and_moves_the_readers_place(own: Own, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deedbook.consumers.interfaces.web.stream.heartbeat_s", 0.0)
    monkeypatch.setattr("deedbook.consumers.interfaces.web.stream.poll_wait_s", 0.01)
    size = own.ledger.size

    async def first_beats() -> list[object]:
        came: list[object] = []
        async for item in events_from(own.ledger.reads, 1, ["handoff.created"], threads=Followers().threads):
            came.append(item)
            if len(came) == 2:
                own.ledger.hand_over("a")
            if not isinstance(item, int):
                return came
        return came

    came = asyncio.run(first_beats())
    assert came[:2] == [size, size]
    assert len(came) >= 3
