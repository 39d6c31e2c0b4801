"""The log over HTTP: an independent client accepts it, from our server and from an exported folder."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import re
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Final, NamedTuple

import outside
import pytest
from building import Ledger

from deedbook.consumers.interfaces.web import server
from deedbook.consumers.interfaces.web.app import publishing
from deedbook.consumers.interfaces.web.server import bind, connections_max, serving
from deedbook.ledger.bundle import export_bundle
from deedbook.ledger.client.author import Draft
from deedbook.ledger.errors import Refused, Unavailable
from deedbook.ledger.events.session import FindingLogged, SessionStarted
from deedbook.ledger.home.trust import read_folder, record_of, remember, root_in

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from starlette.types import Receive, Scope, Send

    from deedbook.ledger.client.local import LocalClient

SIZE_MIN: Final = 600
"""Two whole tiles of leaves, a partial one, and a partial one on the level above."""


class Published(NamedTuple):
    """One log, published twice, its folder, and an earlier checkpoint and receipt."""

    web: str
    static: str
    folder: Path
    vkey: str
    earlier: bytes
    receipt: bytes
    client: LocalClient


@contextlib.contextmanager
def web_of(client: LocalClient) -> Iterator[str]:
    """Publish a log from a loop in a thread, as a node does from its own."""
    remember(record_of(read_folder(client.settings.home), root_in(client.entry(0)), ""))
    loop, stop = asyncio.new_event_loop(), asyncio.Event()
    address: list[str] = []
    ready = threading.Event()

    async def serve() -> None:
        async with publishing(client, bind("0"), is_public=True) as url:
            address.append(url)
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    assert ready.wait(60)
    try:
        yield address[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Published]:
    folder = tmp_path_factory.mktemp("published")
    with contextlib.ExitStack() as stack:
        ledger = stack.enter_context(Ledger(folder / "ledger"))
        client = stack.enter_context(ledger.client())
        ledger.emit("alice", "session/s", SessionStarted())
        earlier = client.checkpoint().encode()
        while (first := ledger.head()[0]) < SIZE_MIN:
            drafts = [Draft(stream="session/s", data=FindingLogged(finding=f"finding {first + n}")) for n in range(200)]
            ledger.submit(ledger.sign("alice", *drafts))
        export_bundle(client, folder / "site", is_folder=True)
        command = [
            sys.executable,
            "-u",
            "-m",
            "http.server",
            "0",
            "--bind",
            "127.0.0.1",
            "--directory",
            str(folder / "site"),
        ]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        stack.callback(child.wait)
        stack.callback(child.kill)
        assert child.stdout is not None
        stack.callback(child.stdout.close)
        port = re.search(r"port (\d+)", child.stdout.readline())
        assert port is not None
        web = stack.enter_context(web_of(client))
        receipt = client.prove(3).to_text().encode()
        vkey = ledger.checkpoint_key.verifier.vkey
        yield Published(web, f"http://127.0.0.1:{port[1]}", folder / "site", vkey, earlier, receipt, client)


def ask(published: Published, method: str, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
    """Return status, headers and body of one request to our server."""
    connection = http.client.HTTPConnection(published.web.removeprefix("http://"), timeout=30)
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, {name.lower(): value for name, value in answer.getheaders()}, content


@pytest.mark.parametrize("server", ["web", "static"])
def test_an_outside_client_accepts_checkpoint_entries_receipt_and_consistency(
    published: Published, server: str
) -> None:
    fetch = outside.over_http(getattr(published, server))
    _, size, root = outside.open_note(fetch("checkpoint"), published.vkey)
    tiles = outside.Tiles(fetch, size)
    assert outside.tree_hash(tiles.hash, 0, size) == root
    entries = tiles.entries()
    assert outside.check_receipt(published.receipt, entries[3], published.vkey) == (3, size, root)
    _, old_size, old_root = outside.open_note(published.earlier, published.vkey)
    for m, m_root in ((old_size, old_root), *((m, outside.tree_hash(tiles.hash, 0, m)) for m in (1, 256, 511, size))):
        proof = outside.consistency(tiles.hash, m, 0, size)
        outside.check_consistency((m, m_root), (size, root), proof)
        with pytest.raises(outside.NotAccepted):
            outside.check_consistency((m, bytes(32)), (size, root), proof)
    with pytest.raises(outside.NotAccepted):
        outside.check_receipt(published.receipt, entries[4], published.vkey)


def test_both_servers_give_the_same_bytes_for_every_path(published: Published) -> None:
    web, static = outside.over_http(published.web), outside.over_http(published.static)
    paths = [
        path.relative_to(published.folder).as_posix()
        for path in (published.folder / "tile").rglob("*")
        if path.is_file()
    ]
    assert len(paths) == 3 + 3 + 3 + 1
    for path in ("checkpoint", *paths):
        assert web(path) == static(path), path


def test_an_erased_text_leaves_the_tile_of_bodies_and_no_other(ledger: Ledger) -> None:
    ledger.emit("alice", "session/s", SessionStarted())
    index = ledger.emit("alice", "session/s", FindingLogged(finding="correct-horse-battery-staple")).index
    with ledger.client() as client, web_of(client) as web:
        site = Published(web, "", ledger.home.path, "", b"", b"", client)
        paths = [f"/tile/{level}/000.p/{index + 1}" for level in ("0", "entries", "bodies")]
        before = [ask(site, "GET", path) for path in paths]
        assert [b"correct-horse" in content for _, _, content in before] == [False, False, True]
        ledger.redact(index)
        after = [
            ask(site, "GET", path, **{"If-None-Match": headers["etag"]})
            for path, (_, headers, _) in zip(paths, before, strict=True)
        ]
    assert [status for status, _, _ in after] == [304, 304, 200]
    assert b"correct-horse" not in after[2][2]
    assert after[2][2].count(b'{"redacted":"event:') == 1


def test_tiles_may_be_kept_for_ever_and_the_checkpoint_not_at_all(published: Published) -> None:
    for path, type_, cache in (
        ("/tile/0/000", "application/octet-stream", "public, max-age=31536000, immutable"),
        ("/tile/entries/001", "application/octet-stream", "public, max-age=31536000, immutable"),
        ("/tile/bodies/001", "application/octet-stream", "no-cache"),
        ("/checkpoint", "text/plain; charset=utf-8", "no-cache"),
    ):
        status, headers, content = ask(published, "GET", path)
        assert (status, headers["content-type"], headers["cache-control"]) == (200, type_, cache)
        assert headers["x-content-type-options"] == "nosniff"
        of_head = ask(published, "HEAD", path)
        assert (of_head[0], of_head[1]["content-length"], of_head[2]) == (200, str(len(content)), b"")
        status, _, content = ask(published, "GET", path, **{"If-None-Match": f'"x", {headers["etag"]}'})
        assert (status, content) == (304, b"")


@pytest.mark.parametrize(
    "path",
    [
        "/checkpoint/",
        "/tile/",
        "/tile/0",
        "/tile/0/",
        "/tile/00/000",
        "/tile/64/000",
        "/tile/0/0",
        "/tile/0/x000/000",
        "/tile/0/000.p/256",
        "/tile/0/000.p/0",
        "/tile/0/000.p/01",
        "/tile/0/000.p/",
        "/tile/0/003",
        "/tile/1/000",
        "/tile/1/000.p/3",
        "/tile/2/000.p/1",
        "/tile/entries/003",
        "/tile/bodies/003",
        "/tile/0/x999/x999/x999/x999/999",
        "/tile/0/" + "x999/" * 400 + "999",
        "/tile/0/../../../etc/passwd",
        "/tile/0/%2e%2e/000",
        "/tile/-1/000",
        "/tile/0/000%00",
        "/tile/0/000%0A",
        "/tile/0/0%0900",
        "/tile/0/%D9%A0%D9%A0%D9%A0",
    ],
)
def test_whatever_is_no_tile_is_not_found(published: Published, path: str) -> None:
    assert ask(published, "GET", path)[0] in ({401} if path == "/checkpoint/" else {400, 404})


def test_any_width_of_a_partial_tile_that_was_once_published_is_served(published: Published) -> None:
    whole = ask(published, "GET", "/tile/0/000")[2]
    assert [ask(published, "GET", f"/tile/0/000.p/{width}")[2] for width in (1, 7, 255)] == [
        whole[: 32 * width] for width in (1, 7, 255)
    ]


def test_only_reading_is_answered_and_only_by_our_own_names(published: Published) -> None:
    assert ask(published, "POST", "/checkpoint")[0] == 405
    assert ask(published, "DELETE", "/tile/0/000")[0] == 405
    port = published.web.rpartition(":")[2]
    for host, status in ((f"localhost:{port}", 200), (f"127.0.0.1:{port}", 200), ("evil.example", 400), ("", 400)):
        assert ask(published, "GET", "/checkpoint", Host=host)[0] == status, host


def test_connections_without_a_whole_request_take_no_place_from_others(
    published: Published, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "head_wait_max_s", 1e9)  # until all are held, however slowly
    host = published.web.removeprefix("http://")
    held = [http.client.HTTPConnection(host, timeout=30) for _ in range(connections_max + 32)]
    for number, connection in enumerate(held):
        connection.connect()
        with contextlib.suppress(OSError):  # the server may have cut it already
            connection.send(b"GET /checkpoint HTTP/1.1\r\n" if number % 2 else b"")  # but never the end of its headers
    assert [ask(published, "GET", path)[0] for path in ("/healthz", "/checkpoint") * 20] == [200] * 40
    monkeypatch.setattr(server, "head_wait_max_s", 0)
    newest = held[-1]
    with contextlib.suppress(OSError):
        assert newest.sock.recv(1) == b""  # the server closed it, and took no other connection in its place
    for connection in held:
        connection.close()


def test_requests_without_a_token_cost_few_log_lines(published: Published, caplog: pytest.LogCaptureFixture) -> None:
    upgrade = {"Upgrade": "websocket", "Connection": "Upgrade"}
    assert [ask(published, "GET", "/healthz", **upgrade)[0] for _ in range(20)] == [200] * 20
    assert [ask(published, "GET", "/healthz", **{"Content-Length": "+1"})[0] for _ in range(20)] == [400] * 20
    logged = [record.msg for record in caplog.records if record.name == "uvicorn.error"]
    assert "Invalid HTTP request received." in logged
    assert len(logged) == len(set(logged))


def test_only_so_many_requests_are_answered_at_once_and_a_kept_connection_is_given_up_last() -> None:
    async def serve() -> tuple[list[int], bytes]:
        go = asyncio.Event()

        async def app(scope: Scope, _receive: Receive, send: Send) -> None:
            if scope["path"] == "/slow":
                await go.wait()
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
            await send({"type": "http.response.body", "body": b""})

        async with serving(app, bind("0"), connections=5) as url:
            port = int(url.rpartition(":")[2])

            async def connect(head: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(head)
                await writer.drain()
                return reader, writer

            async def status(reader: asyncio.StreamReader) -> int:
                return int((await reader.readuntil(b"\r\n\r\n")).split()[1])

            kept, kept_out = await connect(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            statuses = [await status(kept)]
            slow = [await connect(b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n") for _ in range(2)]
            half = [await connect(b"GET / HT") for _ in range(4)]  # each connection replaces the one before it
            assert await half[0][0].read() == b""
            kept_out.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            statuses.append(await status(kept))
            slow += [await connect(b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n") for _ in range(2)]
            last, _ = await connect(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            statuses.append(await status(last))
            go.set()
            statuses += [await status(reader) for reader, _ in slow]
            rest = await asyncio.wait_for(kept.read(), 30)
            for _, writer in [*slow, *half, (kept, kept_out)]:
                writer.close()
            return statuses, rest

    statuses, rest = asyncio.run(serve())
    assert statuses == [200, 200, 503, 200, 200, 200, 200]
    assert rest == b""


def test_another_host_name_is_refused_with_a_problem_document(published: Published) -> None:
    status, headers, body = ask(published, "GET", "/checkpoint", Host="evil.example")
    assert (status, headers["content-type"], json.loads(body)["code"]) == (400, "application/problem+json", "USAGE")
    assert "evil.example" in json.loads(body)["detail"]


@pytest.mark.parametrize(
    ("header", "is_accepted"),
    [
        ("gzip", True),
        ("gzip, deflate, br", True),
        ("GZIP;q=0.5", True),
        ("*", True),
        ("deflate, *;q=0.1", True),
        ("gzip;q=0", False),
        ("gzip; q=0.000, *", False),
        ("identity, gzip;Q=0", False),
        ("*;q=0", False),
        ("deflate", False),
        ("", False),
        ("gzipped", False),
    ],
)
def test_gzip_is_used_where_it_is_accepted(published: Published, header: str, is_accepted: bool) -> None:
    _, headers, _ = ask(published, "GET", "/v1/openapi.json", **{"Accept-Encoding": header})
    assert ("gzip" in headers.get("content-encoding", "")) == is_accepted
    assert "accept-encoding" in headers["vary"].lower()


@pytest.mark.parametrize("where", ["x", "", ":", "127.0.0.1", "1.2.3.4:99999", "a b:80", "127.0.0.1:80/x", "-1"])
def test_a_place_that_is_none_is_refused(where: str) -> None:
    with pytest.raises(Refused, match="USAGE"):
        bind(where)


def test_a_port_that_is_taken_is_named(published: Published) -> None:
    with pytest.raises(Unavailable, match="STORE_IN_USE"):
        bind(published.web.removeprefix("http://"))
