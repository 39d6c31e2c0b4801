"""Over HTTP: only on this machine, only with the token, only from allowed origins, and with a clean end."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
from typing import TYPE_CHECKING

import httpx2
import pytest
from forked_deed import run_deed
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_clients import Caller, HttpServer

from deedbook.consumers.interfaces.mcp.http import body_size_max_bytes, read_token
from deedbook.ledger.errors import Refused

if TYPE_CHECKING:
    from pathlib import Path

PING = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'


def post(server: HttpServer, content: bytes = PING, **headers: str) -> httpx2.Response:
    sent = {
        "Authorization": f"Bearer {server.token}",
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
    } | headers
    return httpx2.post(server.url, content=content, headers={name: value for name, value in sent.items() if value})


def test_request_without_the_token_is_refused(http_server: HttpServer) -> None:
    for given in ("", "Bearer", f"Bearer {http_server.token[:-1]}x", f"Basic {http_server.token}"):
        assert post(http_server, Authorization=given).status_code == 401


@pytest.mark.parametrize(
    ("header", "value", "status"),
    [
        ("Origin", "http://evil.example", 403),
        ("Origin", "null", 403),
        ("Origin", "http://127.0.0.1:1", 403),
        ("Host", "evil.example", 421),
        ("Host", "127.0.0.1.evil.example", 421),
    ],
)
def test_foreign_origin_and_host_are_refused(http_server: HttpServer, header: str, value: str, status: int) -> None:
    assert post(http_server, **{header: value}).status_code == status


def test_nobody_is_sent_elsewhere(http_server: HttpServer) -> None:
    told = httpx2.post(f"{http_server.url}/", headers={"Host": "evil.example"}, follow_redirects=False)
    assert (told.status_code, told.headers.get("location")) == (404, None)


def test_client_that_goes_while_it_sends_is_no_error(own_home: Path) -> None:
    with HttpServer(own_home, "--as", "alice") as server:
        begun = f"POST /mcp HTTP/1.1\r\nHost: {server.url.split('/')[2]}\r\nAuthorization: Bearer {server.token}\r\n"
        for _ in range(20):
            with socket.create_connection(("127.0.0.1", int(server.url.split(":")[2].split("/")[0]))) as going:
                going.sendall(f"{begun}Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{{".encode())
        assert post(server).status_code == 400  # the server keeps serving: the error is a missing session
        code, _, err = server.stop()
    assert (code, err) == (0, "")


def test_body_beyond_the_limit_is_refused(http_server: HttpServer) -> None:
    assert post(http_server, b" " * (body_size_max_bytes + 1)).status_code == 413


def test_server_listens_on_the_loopback_interface_alone(http_server: HttpServer) -> None:
    port = int(http_server.url.rsplit(":", 1)[1].split("/")[0])
    assert http_server.url.startswith("http://127.0.0.1:")
    with socket.socket() as other:
        other.bind(("127.0.0.2", port))  # fails if the server listens on every address


def test_token_is_made_once_and_only_its_owner_reads_it(http_server: HttpServer) -> None:
    assert http_server.token_file.stat().st_mode & 0o777 == 0o600
    assert read_token(http_server.token_file) == http_server.token


def test_token_file_that_others_read_or_that_holds_none_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("x" * 40)
    path.chmod(0o644)
    with pytest.raises(Refused) as refused:
        read_token(path)
    assert refused.value.code == "KEY_FILE_MODE"
    path.chmod(0o600)
    for wrong in ("", "short", "x" * 10_000, "x" * 40 + "\nx"):
        path.write_text(wrong)
        with pytest.raises(Refused) as refused:
            read_token(path)
        assert refused.value.code == "INVALID_FORMAT"


def test_sdk_client_works_over_http_and_parallel_calls_do_not_disturb_each_other(http_server: HttpServer) -> None:
    async def work() -> None:
        headers = {"Authorization": f"Bearer {http_server.token}"}
        async with (
            httpx2.AsyncClient(headers=headers) as http,
            Client(streamable_http_client(http_server.url, http_client=http)) as client,
        ):
            call = Caller(client)
            entries = [{"type": "finding", "finding": f"number {at}"} for at in range(3)]
            names = [f"parallel-{number}" for number in range(6)]
            done = await asyncio.gather(
                *(call("record_reasoning", session_id=one, task="t", entries=entries) for one in names)
            )
            assert [one.data["session_id"] for one in done] == names
            spans = [(one.data["first_index"], one.data["last_index"]) for one in done]
            assert all(last - first == 3 for first, last in spans)  # each batch is whole, with no other event inside
            read = await asyncio.gather(*(call("search", text="number") for _ in range(6)))
            assert {one.data["total"] for one in read} == {18}

    asyncio.run(work())


def test_server_told_to_stop_ends_with_exit_code_0_and_says_nothing_more(shared_home: Path) -> None:
    with HttpServer(shared_home) as server:
        assert post(server).status_code in {200, 400}
        assert server.stop(signal.SIGINT) == (0, "", "")


def test_port_that_is_taken_is_a_typed_error(http_server: HttpServer, shared_home: Path) -> None:
    port = http_server.url.rsplit(":", 1)[1].split("/")[0]
    done = run_deed("mcp", "--http", "--port", port, "--json", "--home", shared_home, timeout=60)
    assert done.returncode == 7
    assert json.loads(done.stdout)["error"]["code"] == "STORE_IN_USE"
