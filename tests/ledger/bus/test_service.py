"""A node answers our client, and arbitrary bytes, always with a typed answer and within its limits."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from bad_inputs import BAD_INPUTS, REPRESENTATIVES, BadInput, body, start_session
from blake3 import blake3
from served import Served, connect, until

from deedbook.ledger import limits
from deedbook.ledger.bus.message import KNOWN_SIZE_HEADER
from deedbook.ledger.bus.subjects import read_subject, submit_subject
from deedbook.ledger.errors import CODES, Unavailable
from deedbook.ledger.events.session import SessionStarted
from deedbook.ledger.service.service import answer_size_max_bytes, arguments_size_max_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

    from building import Ledger

ON_THE_WIRE = REPRESENTATIVES | {name: bad for name, bad in BAD_INPUTS.items() if name.startswith(("bytes:", "DSSE:"))}
del ON_THE_WIRE["bytes: 2 MB"]


def submit(served: Served, payload: bytes, headers: dict[str, str] | None = None) -> Any:
    """Submit bytes as alice."""
    return served.ask(submit_subject(served.ledger.id, "alice"), payload, headers)


def read(served: Served, verb: str, arguments: bytes = b"") -> Any:
    """Send bytes to a read subject."""
    return served.ask(read_subject(served.ledger.id, "alice", verb), arguments)


def code_of(answer: Any) -> str:
    """Return the code of an answer that is an error; the error must have the published fields."""
    error = answer["error"]
    assert error.keys() == {"code", "message", "recoverable", "details"}
    assert error["recoverable"] == CODES[error["code"]].recoverable
    return str(error["code"])


# Submitting


@pytest.mark.parametrize("bad", ON_THE_WIRE.values(), ids=ON_THE_WIRE.keys())
def test_bad_input_is_refused_over_the_bus_as_at_the_gate(served: Served, ledger: Ledger, bad: BadInput) -> None:
    bad.arrange(ledger)
    before = ledger.head()
    assert code_of(submit(served, bad.build(ledger))) == bad.code
    assert ledger.head() == before


def test_good_events_are_accepted_between_bad_ones(served: Served, ledger: Ledger) -> None:
    start_session(ledger)
    for number in range(3):
        submit(served, b"\x00garbage")
        (accepted,) = submit(served, ledger.sign_bytes("alice", body(ledger, b'{"finding":"%d"}' % number)).encode())[
            "accepted"
        ]
        assert accepted == {
            "index": ledger.head()[0] - 1,
            "id": ledger.event(-1).id,
            "accepted_ms": accepted["accepted_ms"],
            "is_repeat": False,
        }


def test_event_is_decided_by_its_signature_whoever_brings_it(served: Served, ledger: Ledger) -> None:
    brought = ledger.sign("bob", draft(SessionStarted(), "session/b")).encode()
    assert submit(served, brought)["accepted"][0]["index"] == ledger.head()[0] - 1
    assert ledger.event(-1).author == "bob"


def draft(data: Any, stream: str) -> Any:
    """Return a draft."""
    from deedbook.ledger.client.author import Draft

    return Draft(stream=stream, data=data)


def test_submission_without_a_reply_subject_is_admitted(served: Served, ledger: Ledger) -> None:
    payload = ledger.sign("alice", draft(SessionStarted(), "session/quiet")).encode()
    served.run(served.alice.publish(submit_subject(ledger.id, "alice"), payload))
    served.run(served.alice.publish(read_subject(ledger.id, "alice", "head"), b""))
    served.run(served.alice.flush())
    assert submit(served, payload)["accepted"][0]["index"] == ledger.head()[0] - 1


def test_large_submission_is_admitted(served: Served, ledger: Ledger) -> None:
    start_session(ledger)
    bodies = [body(ledger, b'{"finding":"%d %b"}' % (number, b"x" * 39_000)) for number in range(23)]
    accepted = submit(served, ledger.sign_bytes("alice", *bodies).encode())["accepted"]
    assert len(accepted) == 23


def test_header_that_is_none_is_answered(served: Served) -> None:
    ref = "blake3:" + "0" * 64
    assert code_of(submit(served, b"x", {"Deedbook-Blob": "blake3:zz", "Deedbook-Chunk": "0"})) == "INVALID_FIELD"
    assert code_of(submit(served, b"x", {"Deedbook-Blob": ref})) == "INVALID_FIELD"
    assert code_of(submit(served, b"x", {"Deedbook-Blob": ref, "Deedbook-Chunk": "0"})) == "CHUNK_MISPLACED"
    assert code_of(submit(served, b"x", {"Other": "header"})) == "INVALID_FORMAT"


def test_blob_in_one_chunk_is_stored(served: Served, ledger: Ledger) -> None:
    ref = "blake3:" + blake3(b"content").hexdigest()
    begun = submit(
        served, ledger.intent("alice", b"content").encode(), {"Deedbook-Blob": ref, "Deedbook-Chunk": "intent"}
    )
    assert begun == {"received": 0}
    answer = submit(served, b"content", {"Deedbook-Blob": ref, "Deedbook-Chunk": "0"})
    assert answer == {"received": 7, "ref": ref}
    assert ledger.log.blobs.get(ref) == b"content"


# Reading


@pytest.mark.parametrize(
    ("verb", "arguments", "code"),
    [
        ("nothing", b"", "USAGE"),
        ("view.more", b"", "USAGE"),
        ("head", b"garbage", "INVALID_FORMAT"),
        ("head", b"\x00\xff", "INVALID_FORMAT"),
        ("head", b"[]", "INVALID_FIELD"),
        ("head", b'{"more":1}', "UNKNOWN_FIELD"),
        ("entry", b"{}", "INVALID_FIELD"),
        ("entry", b'{"index":-1}', "INVALID_FIELD"),
        ("entry", b'{"index":99}', "NOT_FOUND"),
        ("entry", b'{"index":1,"index":2}', "DUPLICATE_KEY"),
        ("entry", b'{"index":18446744073709551616}', "INTEGER_OUT_OF_RANGE"),
        ("proof", b'{"index":99}', "NOT_FOUND"),
        ("range", b'{"start":0,"limit":513}', "INVALID_FIELD"),
        ("range", b'{"start":0,"limit":0}', "INVALID_FIELD"),
        ("range", b'{"start":0,"wait_s":31}', "INVALID_FIELD"),
        ("range", b'{"start":0,"kinds":["k"' + b',"k"' * 300 + b"]}", "INVALID_FIELD"),
        ("index", b'{"stream":"s","id":"blake3:00"}', "INVALID_FIELD"),
        ("blob", b'{"ref":"blake3:00"}', "INVALID_FIELD"),
        ("blob", b'{"ref":"blake3:' + b"0" * 64 + b'"}', "NOT_FOUND"),
        ("view", b'{"query":"no.such"}', "USAGE"),
        ("view", b'{"query":"handoffs.show","arguments":{"id":7}}', "INVALID_FIELD"),
        ("view", b'{"query":"handoffs.show","arguments":{"id":"none"}}', "NOT_FOUND"),
        ("view", b'{"query":"x","arguments":' + b'{"a":' * 40 + b"1" + b"}" * 40 + b"}", "NESTING_TOO_DEEP"),
        ("head", b" " * (arguments_size_max_bytes + 1), "TOO_LARGE"),
    ],
)
def test_read_that_cannot_be_answered_says_why(served: Served, verb: str, arguments: bytes, code: str) -> None:
    assert code_of(read(served, verb, arguments)) == code


def test_verb_that_is_no_word_is_refused(served: Served) -> None:
    assert code_of(served.ask(f"deedbook.{served.ledger.id}.read.alice.HEAD", b"")) == "INVALID_FORMAT"


def test_chunk_beyond_a_blob_is_not_found(served: Served, ledger: Ledger) -> None:
    ref = ledger.put_blob("alice", b"content")
    assert read(served, "blob", msgspec.json.encode({"ref": ref}))["size"] == 7
    assert code_of(read(served, "blob", msgspec.json.encode({"ref": ref, "chunk": 1}))) == "NOT_FOUND"
    assert code_of(read(served, "blob", msgspec.json.encode({"ref": ref, "chunk": 2**53 - 1}))) == "NOT_FOUND"


def test_view_answers_what_the_reader_answers(served: Served, ledger: Ledger) -> None:
    ledger.hand_over("h1")
    arguments = msgspec.json.encode({"query": "handoffs.show", "arguments": {"id": "h1"}})
    assert read(served, "view", arguments)["version"] == served.reader.answer("handoffs.show", {"id": "h1"})["version"]


def test_error_nobody_foresaw_is_typed_and_tells_nothing_of_the_inside(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> Any:
        raise RuntimeError("a secret path")

    monkeypatch.setattr(served.service._client, "head", fail)
    answer = read(served, "head")
    assert code_of(answer) == "UNEXPECTED"
    assert "secret" not in answer["error"]["message"]


def replace_view(served: Served, monkeypatch: pytest.MonkeyPatch, answer: Callable[[object], object]) -> None:
    verbs = served.service._verbs
    monkeypatch.setitem(verbs, "view", (verbs["view"][0], answer))


def test_node_that_may_be_behind_takes_nothing_for_lost_and_answers_once_it_has_caught_up(
    served: Served, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = msgspec.json.encode({"old_size": (size := ledger.head()[0]) + 1})
    subject = read_subject(ledger.id, "alice", "consistency")
    assert served.ask(subject, arguments)["size"] == size  # tells the caller that the log has become shorter
    has_all = False

    async def ask_the_stream() -> bool:
        return has_all

    monkeypatch.setattr(served.service, "_has_all", ask_the_stream)
    with monkeypatch.context() as patch:
        patch.setattr("deedbook.ledger.limits.follower_lag_max_s", 0.01)
        assert served.ask(subject, arguments)["error"]["code"] == "BUS_UNAVAILABLE"
        has_all = True  # the node has all messages, so the entry is lost, and the caller must learn it
        assert served.ask(subject, arguments)["size"] == size
        has_all = False
    monkeypatch.setattr("deedbook.ledger.limits.follower_lag_max_s", 30.0)
    append_later = threading.Timer(0.05, ledger.emit, ("alice", "session/s1", SessionStarted()))
    append_later.start()
    assert served.ask(subject, arguments, timeout=20)["size"] == size + 1
    append_later.join()


def test_node_that_lacks_what_the_caller_knows_answers_no_read_before_it_has_it(
    served: Served, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lacks_some() -> bool:
        return False

    monkeypatch.setattr(served.service, "_has_all", lacks_some)
    size, subject = ledger.head()[0], read_subject(ledger.id, "alice", "head")

    def ask(known: str) -> Any:
        return served.ask(subject, b"", {KNOWN_SIZE_HEADER: known}, timeout=20)

    assert ask(str(size))["size"] == size
    assert ask("-1")["error"]["code"] == "INVALID_FORMAT"
    with monkeypatch.context() as patch:
        patch.setattr("deedbook.ledger.limits.follower_lag_max_s", 0.01)
        assert ask(str(size + 1))["error"]["code"] == "BUS_UNAVAILABLE"
    monkeypatch.setattr("deedbook.ledger.limits.follower_lag_max_s", 30.0)
    append_later = threading.Timer(0.05, ledger.emit, ("alice", "session/s1", SessionStarted()))
    append_later.start()
    assert ask(str(size + 1))["size"] == size + 1
    append_later.join()


@pytest.mark.parametrize(
    ("verb", "named"),
    [("entry", "index"), ("proof", "index"), ("range", "start"), ("view", "as_of")],
)
def test_node_that_lacks_the_entry_that_a_read_names_does_not_answer_as_if_there_was_none(
    served: Served, ledger: Ledger, monkeypatch: pytest.MonkeyPatch, verb: str, named: str
) -> None:
    has_all = False

    async def ask_the_stream() -> bool:
        return has_all

    monkeypatch.setattr(served.service, "_has_all", ask_the_stream)
    monkeypatch.setattr("deedbook.ledger.limits.follower_lag_max_s", 0.01)
    index = ledger.head()[0] + (named == "start")  # a page begins after the last known entry
    arguments = msgspec.json.encode({named: index} | ({"query": "agents.list"} if verb == "view" else {}))
    subject = read_subject(ledger.id, "alice", verb)
    assert served.ask(subject, arguments)["error"]["code"] == "BUS_UNAVAILABLE"
    has_all = True
    assert "this node is behind" not in str(served.ask(subject, arguments))


@pytest.mark.parametrize("answer", [{"text": "x" * (answer_size_max_bytes + 1)}, {"object": object()}])
def test_answer_that_cannot_be_sent_is_an_error(
    served: Served, monkeypatch: pytest.MonkeyPatch, answer: dict[str, Any]
) -> None:
    replace_view(served, monkeypatch, lambda _: answer)
    assert code_of(read(served, "view", b'{"query":"x"}')) in {"TOO_LARGE", "UNEXPECTED"}


def test_largest_page_of_the_log_fits_into_an_answer(served: Served, ledger: Ledger) -> None:
    start_session(ledger)
    for number in range(30):
        ledger.submit(ledger.sign_bytes("alice", body(ledger, b'{"finding":"%d %b"}' % (number, b"x" * 39_900))))
    page = read(served, "range", b'{"start":0}')
    assert len(page["entries"]) < ledger.head()[0]
    assert page["next_index"] == len(page["entries"])


# Limits


def test_waiting_reads_have_a_share_and_keep_nobody_from_working(
    served: Served, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "agent_reads_waiting_max", 5)
    wait = msgspec.json.encode({"start": ledger.head()[0], "wait_s": 30})

    async def ask_all() -> list[Any]:
        bob = await connect(served.url, "bob")
        requests = [bob.request(read_subject(ledger.id, "bob", "range"), wait, timeout=20)]
        subject = read_subject(ledger.id, "alice", "range")
        requests += [served.alice.request(subject, wait, timeout=20) for _ in range(5)]
        tasks = [asyncio.create_task(request) for request in requests]
        await until(lambda: served.service.reads_waiting == 6)
        busy = await served.alice.request(subject, wait, timeout=20)
        accepted = await served.alice.request(
            submit_subject(ledger.id, "alice"),
            ledger.sign("alice", draft(SessionStarted(), "session/s1")).encode(),
        )
        answers = [msgspec.json.decode(answer.data) for answer in (busy, accepted, *[await task for task in tasks])]
        await bob.close()
        return answers

    busy, accepted, *pages = served.run(ask_all())
    assert code_of(busy) == "BUSY"
    assert "accepted" in accepted
    assert [len(page["entries"]) for page in pages] == [1] * 6


def test_waiting_read_is_woken_by_the_submission_itself(served: Served, ledger: Ledger) -> None:
    served.stop_polling()
    wait = msgspec.json.encode({"start": ledger.head()[0], "wait_s": 30})

    async def ask() -> Any:
        waiting = asyncio.create_task(served.alice.request(read_subject(ledger.id, "alice", "range"), wait, timeout=20))
        await until(lambda: served.service.reads_waiting == 1)
        payload = ledger.sign("alice", draft(SessionStarted(), "session/s1")).encode()
        await served.alice.request(submit_subject(ledger.id, "alice"), payload)
        return msgspec.json.decode((await waiting).data)

    assert len(served.run(ask())["entries"]) == 1


def test_slow_views_do_not_hold_up_submissions(served: Served, ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = threading.Event()
    replace_view(served, monkeypatch, lambda _: {"waited": go_on.wait(20)})
    subject = read_subject(ledger.id, "alice", "view")

    async def ask_all() -> list[Any]:
        slow = [asyncio.create_task(served.alice.request(subject, b'{"query":"x"}', timeout=20)) for _ in range(20)]
        payload = ledger.sign("alice", draft(SessionStarted(), "session/s1")).encode()
        accepted = await served.alice.request(submit_subject(ledger.id, "alice"), payload, timeout=10)
        assert "accepted" in msgspec.json.decode(accepted.data)
        go_on.set()
        return [msgspec.json.decode((await request).data) for request in slow]

    assert served.run(ask_all()) == [{"waited": True}] * 20


# Stopping


def test_stopping_answers_what_was_asked_and_takes_no_more(
    ledger: Ledger, shared_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Served(ledger, shared_server) as served:
        go_on = threading.Event()
        admit = served.committer._gate.admit
        monkeypatch.setattr(served.committer._gate, "admit", lambda group: (go_on.wait(20), admit(group))[1])
        wait = msgspec.json.encode({"start": ledger.head()[0] + 5, "wait_s": 30})
        payload = ledger.sign("alice", draft(SessionStarted(), "session/s1")).encode()

        async def stop() -> list[Any]:
            requests = [
                asyncio.create_task(served.alice.request(subject, data, timeout=20))
                for subject, data in (
                    (submit_subject(ledger.id, "alice"), payload),
                    (read_subject(ledger.id, "alice", "range"), wait),
                )
            ]
            await until(lambda: served.service.reads_waiting == 1 and served.service._submissions._tasks)
            stopping = asyncio.create_task(served.service.stop())
            await asyncio.sleep(0.01)
            go_on.set()
            await stopping
            answers = [msgspec.json.decode((await request).data) for request in requests]
            with pytest.raises(Exception, match="no responders"):
                await served.alice.request(read_subject(ledger.id, "alice", "head"), b"", timeout=60)
            return answers

        accepted, page = served.run(stop())
        assert accepted["accepted"][0]["index"] == ledger.head()[0] - 1
        assert page["entries"] == []
        assert not served.service._submissions._tasks | served.service._reads._tasks
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("deedbook-service")]


def test_page_limits_are_those_of_the_contract() -> None:
    assert answer_size_max_bytes > limits.range_size_max_bytes * 4 / 3


# Requests received by this process


def test_requests_to_this_process_wait_in_the_queue_of_their_agent_and_too_many_are_shed(
    served: Served, ledger: Ledger
) -> None:
    payload = ledger.sign("alice", draft(SessionStarted(), "session/direct")).encode()
    sent = limits.agent_submissions_running_max + limits.agent_requests_waiting_max + 20

    async def submit_all() -> list[Any]:
        answers = await asyncio.gather(*(served.service.submit("alice", payload) for _ in range(sent)))
        return [msgspec.json.decode(answer) for answer in answers]

    answers = served.run(submit_all())
    assert [code_of(answer) for answer in answers if "error" in answer] == ["BUSY"] * 20
    accepted = [answer["accepted"][0] for answer in answers if "error" not in answer]
    assert {one["index"] for one in accepted} == {ledger.head()[0] - 1}
    assert [one["is_repeat"] for one in accepted].count(False) == 1


def test_a_node_that_follows_takes_no_request_and_answers_those_that_wait(served: Served, ledger: Ledger) -> None:
    payload = ledger.sign("alice", draft(SessionStarted(), "session/direct")).encode()

    async def submit_and_follow() -> list[str]:
        count = limits.agent_submissions_running_max + 5
        waiting = [asyncio.ensure_future(served.service.submit("alice", payload)) for _ in range(count)]
        await asyncio.sleep(0)
        await served.service.take(admits=False, reads=True)
        answers = [msgspec.json.decode(answer) for answer in await asyncio.gather(*waiting)]
        with pytest.raises(Unavailable, match="BUS_UNAVAILABLE: node takes no submissions now"):
            await served.service.submit("alice", payload)
        return [code_of(answer) for answer in answers if "error" in answer]

    assert served.run(submit_and_follow()) == ["BUSY"] * 5
