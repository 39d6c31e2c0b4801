"""Writing over HTTP to a whole node: same answers as NATS, and the limits of tokens, pages and bad clients."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import logging
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import httpx
import jsonschema
import pytest
import schemathesis
from bad_inputs import BAD_INPUTS as ALL_BAD_INPUTS
from bad_inputs import STREAM as ARRANGED
from bad_inputs import BadInput, start_session
from blake3 import blake3
from building import Actors, Ledger, key_named
from credentials import jwt
from faults import times
from hypothesis import HealthCheck, given, settings
from schemathesis.specs.openapi.checks import positive_data_acceptance
from served import connect, public_key, write_bus_key
from test_web_api import code_of
from test_web_described import CHECKS, DESCRIPTION
from web_reading import LATER_MS

from deedbook.consumers.interfaces.node.node import Node
from deedbook.consumers.interfaces.web import writes
from deedbook.consumers.interfaces.web.app import publishing
from deedbook.consumers.interfaces.web.server import bind
from deedbook.consumers.interfaces.web.tokens import Role, Tokens
from deedbook.consumers.interfaces.web.writes import MSGPACK
from deedbook.ledger import limits
from deedbook.ledger.bus.subjects import submit_subject
from deedbook.ledger.client.author import Draft
from deedbook.ledger.client.local import LocalClient
from deedbook.ledger.events.authority import AgentRegistered, AgentRemoved, KeyRotated
from deedbook.ledger.events.handoff import HandoffApproved, HandoffClaimed, HandoffCreated
from deedbook.ledger.events.session import FindingLogged, SessionStarted
from deedbook.ledger.format.envelope import BATCH_TYPE, commitment_to
from deedbook.ledger.format.merkle import root_of
from deedbook.ledger.lifecycle.authority import NODE, ROOT
from deedbook.ledger.lifecycle.handoff import compute_version

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from deedbook.ledger.format.envelope import Submission
    from deedbook.ledger.home.config import Settings

AGENTS: Final = ("alice", "bob", "carl", "dora", "rita")
STREAM: Final = "session/http"


class Written(NamedTuple):
    """A node that serves in a thread: the actors, and the addresses of both interfaces."""

    actors: Actors
    settings: Settings
    nats: str
    web: str
    client: LocalClient
    http: httpx.Client
    stop: Callable[[], None]

    def token(self, name: str = "alice", role: Role = "writer") -> str:
        """Return a new token."""
        return Tokens(self.settings.home).create(name, role, LATER_MS)[1]

    def post(self, content: Any, name: str = "alice", path: str = "entries", **headers: str) -> httpx.Response:
        """Post a body as an agent."""
        given = {"authorization": f"Bearer {self.token(name)}", "content-type": "application/json"} | {
            key.replace("_", "-"): value for key, value in headers.items()
        }
        return self.http.post(f"{self.web}/v1/{path}", content=content, headers=given)

    def over_nats(self, payload: bytes, name: str = "alice") -> Any:
        """Send the same bytes over the bus."""

        async def ask() -> bytes:
            nats = await connect(self.nats, name)
            try:
                answer = await nats.request(submit_subject(self.actors.id, name), payload, timeout=10)
                return answer.data
            finally:
                await nats.close()

        return json.loads(asyncio.run(ask()))

    def sign(self, author: str, *data: Any, stream: str = STREAM, **changes: Any) -> Submission:
        """Sign events now."""
        self.actors.clock.now_ms = time.time_ns() // 1_000_000
        return self.actors.sign(author, *(Draft(stream=stream, data=one) for one in data), **changes)

    def size(self) -> int:
        """Return the size of the log."""
        return self.client.head().size


def dsse(submission: Submission) -> bytes:
    """Return a submission as DSSE JSON."""
    root = root_of([commitment_to(body) for body in submission.bodies])
    signed = len(submission.bodies).to_bytes(8, "big") + root
    envelope = {
        "payloadType": BATCH_TYPE,
        "payload": base64.b64encode(signed).decode(),
        "signatures": [{"keyid": f"ed25519:{submission.key.hex()}", "sig": base64.b64encode(submission.sig).decode()}],
        "bodies": [base64.b64encode(body).decode() for body in submission.bodies],
    }
    return json.dumps(envelope).encode()


def make(folder: Path) -> tuple[Actors, Settings]:
    """Create a ledger whose agents may connect, except dora, who has no bus key."""
    with Ledger(folder, agents={}) as ledger:
        for name in AGENTS:
            key = ledger.keys[name] = key_named(f"http {name}")
            nkey = None if name == "dora" else public_key(name)
            data = AgentRegistered(
                name=f"{name}",
                key=key.public.hex(),
                proof=key.prove_possession(ledger.id, name),
                roles=["human", "reviewer"] if name == "rita" else ["agent"],
                nkey=nkey,
            )
            ledger.emit(ROOT, f"agent/{name}", data)
        ledger.write_keys()
        for name in (NODE, *AGENTS):
            write_bus_key(ledger.home, name)
        actors = Actors()
        actors.keys = ledger.keys
        return actors, ledger.settings()


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[Written]:
    """Serve a new ledger in a thread."""
    actors, settings = make(folder)
    loop, ready, stop = asyncio.new_event_loop(), threading.Event(), asyncio.Event()
    urls: list[str] = []
    clients: list[LocalClient] = []

    async def serve() -> None:
        async with Node(settings) as node, publishing(node.client, bind("0"), submit=node.submit) as url:
            urls.extend((node.url, url))
            clients.append(node.client)
            ready.set()
            await node.run(stop)

    def run() -> None:
        try:
            loop.run_until_complete(serve())
        finally:
            ready.set()

    thread = threading.Thread(target=run)

    def end() -> None:
        loop.call_soon_threadsafe(stop.set)
        thread.join()

    thread.start()
    ready.wait(60)
    try:
        with httpx.Client(timeout=60) as http:
            yield Written(actors, settings, *urls, *clients, http, end)
    finally:
        if thread.is_alive():
            end()
        loop.close()


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Written]:
    """A node that the tests of this file share."""
    with serving(tmp_path_factory.mktemp("writes") / ".deedbook") as served:
        for stream in (STREAM, ARRANGED):
            assert served.post(dsse(served.sign("alice", SessionStarted(), stream=stream))).status_code == 200
        yield served


def error_of(answer: httpx.Response) -> Any:
    """Return the error in a refusal, as the bus has it."""
    problem = answer.json()
    return {name: problem[name] for name in ("code", "recoverable", "details")} | {"message": problem["detail"]}


@pytest.mark.parametrize("media", ["application/json", MSGPACK])
def test_a_submission_is_accepted_once_whichever_interface_it_comes_over(written: Written, media: str) -> None:
    submission = written.sign("alice", FindingLogged(finding=f"one as {media}"))
    content = dsse(submission) if media == "application/json" else submission.encode()
    first = written.post(content, content_type=media).json()
    assert (first["schema_version"], first["kind"]) == (1, "entries")
    (accepted,) = first["data"]["accepted"]
    assert accepted["is_repeat"] is False
    assert written.post(content, content_type=media).json()["data"]["accepted"] == [accepted | {"is_repeat": True}]
    assert written.over_nats(submission.encode()) == {"accepted": [accepted | {"is_repeat": True}]}
    assert written.client.index_of(STREAM, accepted["id"]) == accepted["index"]


def test_a_batch_and_an_agent_without_a_bus_key_write_too(written: Written) -> None:
    batch = written.sign("alice", *(FindingLogged(finding=f"of a batch {number}") for number in range(3)))
    indexes = [one["index"] for one in written.post(batch.encode(), content_type=MSGPACK).json()["data"]["accepted"]]
    assert indexes == list(range(indexes[0], indexes[0] + 3))
    alone = written.post(dsse(written.sign("dora", SessionStarted(), stream="session/dora")), "dora")
    assert alone.status_code == 200, alone.text


def handoff(written: Written, name: str) -> HandoffCreated:
    """Create a handoff from alice to bob that rita reviews."""
    data = HandoffCreated(title=name, to="bob", reviewer="rita")
    assert written.post(dsse(written.sign("alice", data, stream=f"handoff/{name}"))).status_code == 200
    return data


def self_approval(written: Written) -> bytes:
    data = handoff(written, "own")
    return dsse(written.sign("alice", HandoffApproved(version=compute_version("alice", data)), stream="handoff/own"))


def unapproved(written: Written) -> bytes:
    handoff(written, "early")
    return dsse(written.sign("bob", HandoffClaimed(), stream="handoff/early"))


def finding(written: Written, text: str = "plain") -> bytes:
    return dsse(written.sign("alice", FindingLogged(finding=text)))


BAD_INPUTS: Final = {
    name: bad
    for name, bad in ALL_BAD_INPUTS.items()
    if bad.arrange in (start_session, BadInput._field_defaults["arrange"])
}
# The statuses of these codes; every other code has 400.
STATUS: Final = {
    "AGENT_UNKNOWN": 404,
    "AUTHOR_MISMATCH": 403,
    "DEPENDENCY_CYCLE": 409,
    "KEY_UNKNOWN": 403,
    "NOT_AUTHORIZED": 403,
    "NOT_FOUND": 404,
    "REVIEWER_REQUIRED": 403,
    "SECRET_DETECTED": 403,
    "SELF_APPROVAL": 403,
    "SIGNATURE_INVALID": 403,
    "STREAM_CONFLICT": 409,
    "TOO_LARGE": 413,
    "WRONG_LEDGER": 409,
}
REFUSED: Final[dict[str, tuple[str, str, Callable[[Written], bytes]]]] = {
    "self-approval": ("alice", "SELF_APPROVAL", self_approval),
    "claimed before it is approved": ("bob", "NOT_APPROVED", unapproved),
}


@pytest.mark.parametrize("case", REFUSED)
def test_the_gate_refuses_over_http_what_it_refuses_over_nats_in_the_same_words(written: Written, case: str) -> None:
    name, code, build = REFUSED[case]
    content = build(written)
    before = written.size()
    answer = written.post(content, name)
    assert code_of(answer) == (403, code), answer.text
    assert error_of(answer) == written.over_nats(content, name)["error"]
    assert written.size() == before


@pytest.mark.parametrize("case", BAD_INPUTS)
def test_bad_input_is_refused_as_at_the_gate(written: Written, case: str) -> None:
    bad, before = BAD_INPUTS[case], written.size()
    written.actors.clock.now_ms = time.time_ns() // 1_000_000
    content = bad.build(written.actors)
    media = "application/json" if content[:1] in (b"{", b"[") else MSGPACK
    answer = written.post(content, content_type=media)
    assert code_of(answer) == (STATUS.get(bad.code, 400), bad.code), answer.text
    assert len(content) > limits.request_size_max_bytes or error_of(answer) == written.over_nats(content)["error"]
    assert written.size() == before


def test_malformed_json_is_refused_with_its_place(written: Written) -> None:
    assert "at character 1" in error_of(written.post(b"{]"))["message"]


def test_a_token_carries_nothing_that_the_key_of_another_agent_signed(written: Written) -> None:
    content = dsse(written.sign("bob", SessionStarted(), stream="session/bob"))
    answer = written.post(content, "alice")
    assert (code_of(answer), error_of(answer)["details"]["owner"]) == ((403, "AUTHOR_MISMATCH"), "bob")
    assert written.post(content, "bob").status_code == 200


@pytest.mark.parametrize(
    ("role", "status", "code"),
    [("reader", 403, "NOT_AUTHORIZED"), ("metrics", 403, "NOT_AUTHORIZED"), (None, 401, "TOKEN_INVALID")],
)
@pytest.mark.parametrize("path", ["entries", "blobs"])
def test_only_a_writer_writes_and_a_writer_reads(
    written: Written, path: str, role: Role | None, status: int, code: str
) -> None:
    header = "" if role is None else f"Bearer {written.token('alice', role)}"
    assert code_of(written.post(finding(written), path=path, authorization=header)) == (status, code)
    get = {"authorization": f"Bearer {written.token()}"}
    assert written.http.get(f"{written.web}/v1/handoffs/list", headers=get).status_code == 200
    assert written.http.get(f"{written.web}/metrics", headers=get).status_code == 403


def test_a_session_key_and_a_rotated_key_write_with_the_same_token_and_the_replaced_key_does_not(
    written: Written,
) -> None:
    actors, session, new = written.actors, key_named("of a session"), key_named("the next of carl")
    actors.clock.now_ms, stream = time.time_ns() // 1_000_000, "session/keys"
    token = f"Bearer {written.token('carl')}"
    rotated = KeyRotated(agent="carl", key=new.public.hex(), proof=new.prove_possession(actors.id, "carl"))

    def code(submission: Submission, name: str = "carl", **headers: str) -> str:
        answer = written.post(dsse(submission), name, **headers)
        return "" if answer.status_code == 200 else code_of(answer)[1]

    assert code(actors.sign("carl", actors.delegated("carl", session)), authorization=token) == ""
    started = written.sign("carl", SessionStarted(), stream=stream, key=session)
    assert code(started, "alice") == "AUTHOR_MISMATCH"
    assert code(started, authorization=token) == ""
    assert code(written.sign("carl", rotated, stream="agent/carl"), authorization=token) == ""
    finding = FindingLogged(finding="after the rotation")
    assert code(written.sign("carl", finding, stream=stream), authorization=token) == "KEY_REVOKED"
    assert code(written.sign("carl", finding, stream=stream, key=session), authorization=token) == "KEY_REVOKED"
    assert code(written.sign("carl", finding, stream=stream, key=new), authorization=token) == ""


def test_the_token_of_an_agent_that_is_removed_ends(written: Written) -> None:
    header = f"Bearer {written.token('dora')}"
    removed = dsse(written.sign(ROOT, AgentRemoved(agent="dora", reason="left"), stream="agent/dora"))
    assert written.post(removed, ROOT).status_code == 200
    content = dsse(written.sign("dora", SessionStarted(), stream="session/late"))
    answer = written.post(content, "dora", authorization=header)
    assert (code_of(answer), error_of(answer)["details"]["state"]) == ((401, "TOKEN_INVALID"), "agent removed")


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({"content_type": "text/plain"}, 415, "INVALID_FORMAT"),
        ({"content_type": "application/x-www-form-urlencoded"}, 415, "INVALID_FORMAT"),
        ({"content_type": "multipart/form-data; boundary=x"}, 415, "INVALID_FORMAT"),
        ({"content_type": ""}, 415, "INVALID_FORMAT"),
        ({"content_type": "application/octet-stream"}, 415, "INVALID_FORMAT"),
        ({"content_encoding": "gzip"}, 415, "INVALID_FORMAT"),
        ({"content_type": MSGPACK}, 400, "INVALID_FORMAT"),
        ({"authorization": ""}, 401, "TOKEN_INVALID"),
    ],
)
def test_no_page_of_another_site_can_write(written: Written, headers: dict[str, str], status: int, code: str) -> None:
    content = finding(written)
    answer = written.post(content, origin="https://evil.example", **headers)
    assert code_of(answer) == (status, code)
    assert [name for name in answer.headers if name.startswith("access-control")] == []
    assert written.post(content, host="evil.example").status_code == 400
    assert written.post(content, content_type="Application/JSON; charset=utf-8").status_code == 200


def test_each_path_takes_its_own_methods_and_no_arguments(written: Written) -> None:
    for path in ("entries", "blobs"):
        for method in ("GET", "PUT", "PATCH", "DELETE"):
            answer = written.http.request(method, f"{written.web}/v1/{path}")
            assert (code_of(answer), answer.headers["allow"]) == ((405, "USAGE"), "POST, OPTIONS")
        assert written.http.options(f"{written.web}/v1/{path}").headers["allow"] == "POST, OPTIONS"
    assert code_of(written.post(b"{}", path="entries?dry=1")) == (400, "UNKNOWN_FIELD")
    assert code_of(written.post(b"{}", path="handoffs/list")) == (405, "USAGE")


def raw(written: Written, *parts: bytes, name: str = "alice", **headers: str) -> socket.socket:
    """Send a request by hand and leave the connection open."""
    sent = socket.create_connection(("127.0.0.1", int(written.web.rpartition(":")[2])), timeout=30)
    given = {"host": "127.0.0.1", "authorization": f"Bearer {written.token(name)}", "content-type": "application/json"}
    lines = [f"{key.replace('_', '-')}: {value}" for key, value in (given | headers).items()]
    sent.sendall("\r\n".join(["POST /v1/entries HTTP/1.1", *lines, "", ""]).encode())
    for part in parts:
        sent.sendall(part)
    return sent


def status(sent: socket.socket) -> int:
    """Return the status of the answer."""
    return int(sent.recv(64).split()[1])


def test_a_body_that_is_too_large_is_refused_before_it_is_read_or_while_it_comes(written: Written) -> None:
    with raw(written, content_length=str(10**12)) as sent:
        assert status(sent) == 413
    with raw(written, content_length="2", transfer_encoding="chunked") as sent:
        assert status(sent) == 400
    with raw(written, transfer_encoding="chunked") as sent:
        for _ in range(limits.request_size_max_bytes // 65_536 + 1):
            sent.sendall(b"10000\r\n" + b"[" * 65_536 + b"\r\n")
        assert status(sent) == 413


def test_a_chunked_body_is_read_and_a_broken_one_writes_nothing(written: Written) -> None:
    content, before = finding(written, "in chunks"), written.size()
    half = len(content) // 2
    with raw(written, b"%x\r\n%b\r\n" % (half, content[:half]), transfer_encoding="chunked") as sent:
        sent.sendall(b"zz\r\n")
        assert status(sent) == 400
    with raw(written, content[:half], content_length=str(len(content))):
        pass
    assert written.size() == before

    def parts() -> Iterator[bytes]:
        yield content[:half]
        yield content[half:]

    assert written.post(parts()).status_code == 200


def test_a_body_that_comes_too_slowly_is_given_up_and_few_are_read_at_once(
    written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    with contextlib.ExitStack() as stack:
        slow = [stack.enter_context(raw(written, b"{", content_length="9")) for _ in range(writes.agent_bodies_max)]
        with monkeypatch.context() as patch:
            patch.setattr(writes, "answer_wait_max_s", 0.2)
            fifth = stack.enter_context(raw(written, b"{", content_length="9"))
            assert status(fifth) == 503
        bobs = dsse(written.sign("rita", SessionStarted(), stream="session/meanwhile"))
        assert written.post(bobs, "rita").status_code == 200
        monkeypatch.setattr(writes, "part_wait_max_s", 0.2)
        for sent in slow:
            sent.close()
        with raw(written, b"{", content_length="9", name="bob") as sent:
            assert status(sent) == 408


def test_callers_of_one_agent_wait_for_each_other(written: Written) -> None:
    contents = [finding(written, f"caller {number}") for number in range(24)]
    with ThreadPoolExecutor(len(contents)) as threads:
        assert [answer.status_code for answer in threads.map(written.post, contents)] == [200] * len(contents)


def test_a_submission_whose_answer_takes_too_long_may_be_sent_again(
    written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = finding(written, "while the store is locked")
    monkeypatch.setattr(writes, "answer_wait_max_s", 0.2)
    with written.client.log.tables.env.begin(write=True):
        assert code_of(written.post(content)) == (503, "BUS_UNAVAILABLE")
    monkeypatch.undo()
    assert written.post(content).json()["data"]["accepted"][0]["is_repeat"] is True


@pytest.mark.parametrize("size", [0, 1, 65_520, 65_521, 200_000])
def test_a_blob_is_stored_and_read_again(written: Written, size: int) -> None:
    content = (b"line of a file\n" * (size // 15 + 1))[:size]
    answer = blob(written, content)
    ref = "blake3:" + blake3(content).hexdigest()
    assert (answer.status_code, answer.json().get("data")) == (200, {"ref": ref, "size": size}), answer.text
    assert blob(written, content, chunked=True).json()["data"]["ref"] == ref
    get = written.http.get(f"{written.web}/v1/blobs/{ref}", headers={"authorization": f"Bearer {written.token()}"})
    assert get.content == content
    assert written.client.stat_blob(ref).dropped_ms is not None  # dropped, because no entry refers to it


def blob(
    written: Written, content: bytes, sent: bytes | None = None, by: str = "alice", *, chunked: bool = False
) -> httpx.Response:
    """Post a blob with its intent, by default its own content."""
    written.actors.clock.now_ms = time.time_ns() // 1_000_000
    intent = base64.b64encode(dsse(written.actors.intent(by, content))).decode()
    body: Any = content if sent is None else sent
    return written.post(
        iter([body[:70_000], body[70_000:]]) if chunked else body,
        path="blobs",
        content_type="application/octet-stream",
        deedbook_intent=intent,
    )


def test_a_blob_that_is_not_what_its_intent_says_is_not_stored(written: Written) -> None:
    content = b"the content of a blob"
    assert code_of(blob(written, content, content + b".")) == (400, "INVALID_FIELD")
    assert code_of(blob(written, content, content + b".", chunked=True)) == (413, "TOO_LARGE")
    assert code_of(blob(written, content, content[:-1], chunked=True)) == (400, "INVALID_FIELD")
    large = b"." * (limits.blob_chunk_bytes + 1)
    assert code_of(blob(written, large, large[:-1], chunked=True)) == (400, "INVALID_FIELD")
    assert code_of(blob(written, content, content.upper())) == (422, "VERIFICATION_FAILED")
    assert code_of(blob(written, b"see " + jwt().encode())) == (403, "SECRET_DETECTED")
    assert code_of(blob(written, content, by="rita")) == (403, "AUTHOR_MISMATCH")
    kept = {row.ref for row in written.client.blobs(limit=500).blobs if row.stored}
    assert "blake3:" + blake3(content).hexdigest() not in kept
    for header in ("", "e30", base64.b64encode(b"{}").decode(), base64.b64encode(finding(written)).decode()):
        answer = written.post(content, path="blobs", content_type="application/octet-stream", deedbook_intent=header)
        assert answer.status_code == 400, answer.text


def test_the_answers_are_as_they_are_described(written: Written) -> None:
    def check(path: str, answer: httpx.Response) -> None:
        schema = DESCRIPTION["paths"][path]["post"]["responses"]["200"]["content"]["application/json"]["schema"]
        components = {"components": DESCRIPTION["components"]}
        jsonschema.validate(answer.json(), schema | components, jsonschema.Draft202012Validator)

    content = finding(written, "as described")
    described = DESCRIPTION["paths"]["/v1/entries"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    jsonschema.validate(json.loads(content), described | {"components": DESCRIPTION["components"]})
    check("/v1/entries", written.post(content))
    check("/v1/blobs", blob(written, b"as described"))


@pytest.mark.parametrize("path", ["/v1/entries", "/v1/blobs"])
def test_whatever_the_description_allows_is_answered_as_it_says(written: Written, path: str) -> None:
    operation = schemathesis.openapi.from_url(f"{written.web}/v1/openapi.json")[path]["POST"]
    headers = {"authorization": f"Bearer {written.token()}"}
    checks = [check for check in CHECKS if check is not positive_data_acceptance]  # no schema describes a signature

    @settings(max_examples=times(20, 20), deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(case=operation.as_strategy())
    def ask(case: schemathesis.Case) -> None:
        case.call_and_validate(headers=headers, checks=checks)

    before = written.size()
    ask()
    assert written.size() == before  # nothing was signed


def test_an_entry_that_was_answered_while_the_node_stops_is_in_the_log(tmp_path: Path) -> None:
    acknowledged: list[int] = []
    began = threading.Event()
    with serving(tmp_path / ".deedbook") as written:
        header = {"authorization": f"Bearer {written.token('dora')}", "content-type": "application/json"}

        def write() -> None:
            with httpx.Client(headers=header, timeout=30) as client, contextlib.suppress(httpx.HTTPError):
                for number in range(10_000):
                    data = SessionStarted() if number == 0 else FindingLogged(finding=f"number {number}")
                    content = dsse(written.sign("dora", data, stream="session/stopping"))
                    answer = client.post(f"{written.web}/v1/entries", content=content)
                    if answer.status_code != 200:
                        return
                    acknowledged.append(answer.json()["data"]["accepted"][0]["index"])
                    if number > 5:
                        began.set()

        thread = threading.Thread(target=write)
        thread.start()
        assert began.wait(30)
        written.stop()
        thread.join()
    with LocalClient(written.settings) as client:
        page = client.entries(0, stream="session/stopping", limit=512)
    assert set(acknowledged) <= {index for index, _ in page.entries}
    assert len(page.entries) - len(acknowledged) in (0, 1)  # the answer of the last may be lost


def test_a_body_that_is_still_coming_when_the_node_stops_is_answered(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(tmp_path / ".deedbook") as written, raw(written, b"{", content_length="9") as sent:
        written.stop()
        assert status(sent) == 503
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []
