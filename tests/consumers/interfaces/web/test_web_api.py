"""The read API: every query with its answer, pages, instants, formats, and refusals."""

from __future__ import annotations

import json
import re
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

import pytest
from view_ledger import ARGUMENTS

from deedbook.consumers.interfaces.web.questions import address, path_of
from deedbook.consumers.sdk.times import parse_moment
from deedbook.ledger.errors import CODES
from deedbook.ledger.events.session import SessionStarted
from deedbook.ledger.events.subject import SubjectErased
from deedbook.projections.views.registry import QUERIES, kind_of

if TYPE_CHECKING:
    from web_reading import Own, Reading

    from deedbook.consumers.sdk.ledger import Ledger


def path_to(query: str, **arguments: Any) -> str:
    """Return the path that asks a query."""
    spelled = {
        name: json.dumps(value) if isinstance(value, list) and isinstance(value[0], dict) else value
        for name, value in arguments.items()
    }
    return address(path_of(query), spelled)


def code_of(answer: Any) -> tuple[int, str]:
    """Return the status and code of a refusal, which is a problem document of RFC 9457."""
    problem = answer.json()
    assert answer.headers["content-type"] == "application/problem+json"
    assert set(problem) == {"type", "title", "status", "detail", "code", "recoverable", "details"}
    code = CODES[problem["code"]]
    assert (problem["type"], problem["status"]) == (f"urn:deedbook:error:{problem['code']}", answer.status_code)
    assert (problem["title"], problem["recoverable"]) == (code.meaning, code.recoverable)
    assert answer.headers["cache-control"] == "no-store"
    return answer.status_code, problem["code"]


@pytest.mark.parametrize("query", sorted(QUERIES))
def test_every_query_is_answered_with_its_document(reading: Reading, query: str) -> None:
    answer = reading.get(path_to(query, **ARGUMENTS.get(query, {})))
    assert answer.status_code == HTTPStatus.OK, answer.text
    document = answer.json()
    assert (document["schema_version"], document["kind"]) == (1, kind_of(query))
    assert document["data"]
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "private, no-cache"
    assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/v1/handoffs/dance", 404, "NOT_FOUND"),
        ("/v1/nothing", 404, "NOT_FOUND"),
        ("/v1/handoffs/list/more", 404, "NOT_FOUND"),
        ("/elsewhere", 404, "NOT_FOUND"),
        ("/v1/", 404, "NOT_FOUND"),
        ("/v1/handoffs/show", 400, "INVALID_FIELD"),
        ("/v1/handoffs/show?id=a&id=b", 400, "INVALID_FIELD"),
        ("/v1/handoffs/show?id=a&colour=red", 400, "UNKNOWN_FIELD"),
        ("/v1/handoffs/show?id=none", 404, "NOT_FOUND"),
        ("/v1/handoffs/list?status=finished", 400, "INVALID_FIELD"),
        ("/v1/handoffs/list?status=", 400, "INVALID_FIELD"),
        ("/v1/handoffs/list?limit=0", 400, "INVALID_FIELD"),
        ("/v1/handoffs/list?limit=100000", 400, "INVALID_FIELD"),
        ("/v1/handoffs/list?limit=many", 400, "INVALID_FIELD"),
        ("/v1/handoffs/list?after=3", 404, "NOT_FOUND"),
        ("/v1/handoffs/list?after=Mw.000000000000", 404, "NOT_FOUND"),
        ("/v1/handoffs/list?after=%FF%FE.0", 404, "NOT_FOUND"),
        ("/v1/reports/list?since=99999999999999999999", 400, "INVALID_FIELD"),
        ("/v1/handoffs/list?limit=07", 400, "INVALID_FIELD"),
        ("/v1/handoffs/list?ready=1", 400, "INVALID_FIELD"),
        ("/v1/handoffs/list?to=" + "x" * 501, 400, "INVALID_FIELD"),
        ("/v1/reports/list?task_pattern=(leak", 400, "PATTERN_NOT_SUPPORTED"),
        ("/v1/records/existing?places=no", 400, "INVALID_FIELD"),
        ("/v1/search/find?text=x&kinds=a.b&family=handoff&family=nothing", 400, "INVALID_FIELD"),
        ("/v1/catalog/show?id=blake3:0", 404, "NOT_FOUND"),
        ("/v1/handoffs/list?as_of=999999", 404, "NOT_FOUND"),
        ("/v1/handoffs/list?as_of=1970-01-01T00:00:00Z", 404, "NOT_FOUND"),
        ("/v1/handoffs/list?as_of=30%20years%20ago", 404, "NOT_FOUND"),
        ("/v1/handoffs/list?as_of=someday", 400, "INVALID_FIELD"),
        ("/v1/handoffs/list?as_of=3&as_of=4", 400, "INVALID_FIELD"),
        ("/v1/events?after=999999", 404, "NOT_FOUND"),
        ("/v1/events?after=-2", 400, "INVALID_FIELD"),
        ("/v1/events?kinds=handoff.danced", 400, "UNKNOWN_KIND"),
        ("/v1/events?until=3", 400, "UNKNOWN_FIELD"),
        ("/v1/events/999999", 404, "NOT_FOUND"),
        ("/v1/receipts/999999", 404, "NOT_FOUND"),
        ("/v1/blobs/blake3:" + "0" * 64, 404, "NOT_FOUND"),
        ("/tile/0/999", 404, "NOT_FOUND"),
    ],
)
def test_what_cannot_be_answered_is_a_problem_document(reading: Reading, path: str, status: int, code: str) -> None:
    assert code_of(reading.get(path)) == (status, code)


def test_a_name_that_is_written_much_alike_is_named(reading: Reading) -> None:
    assert "did you mean /v1/handoffs/list" in reading.get("/v1/handoffs/lists").json()["detail"]
    assert "did you mean status?" in reading.get("/v1/handoffs/list?statsu=pending").json()["detail"]


def test_a_value_that_there_is_not_is_refused_with_those_there_are(reading: Reading) -> None:
    message = reading.get("/v1/handoffs/list?status=finished").json()["detail"]
    assert "one of pending, approved" in message


def test_the_past_is_asked_for_in_the_words_of_the_command_line(reading: Reading, python: Ledger) -> None:
    at = parse_moment("1 minute ago")
    assert reading.get("/v1/handoffs/list?as_of=1%20minute%20ago").json()["data"] == python.ask(
        "handoffs.list", as_of=at
    )
    path = reading.get("/v1/catalog/find?limit=2&as_of=1%20minute%20ago").json()["next"]
    assert parse_qs(path)["as_of"][0].endswith("Z")  # the rest of the same past, however late it is requested


def test_text_in_the_address_is_text_to_the_store(reading: Reading, python: Ledger) -> None:
    total = python.ask("handoffs.list")["total"]
    assert total > 0
    for text in ("' OR 1=1 --", "a'; DROP TABLE handoffs; --", '"', "%", "a\x00b", "\N{RIGHT-TO-LEFT OVERRIDE}"):
        for query, name in (("handoffs.list", "to"), ("catalog.find", "stream"), ("sessions.list", "ai_id")):
            assert reading.get(path_to(query, **{name: text})).json()["data"]["total"] == 0, text
        assert reading.get(path_to("handoffs.show", id=text)).status_code in (400, 404)
        assert reading.get(path_to("search.find", text=text)).status_code in (200, 400)
    assert python.ask("handoffs.list")["total"] == total


def test_pages_lead_through_all_rows_by_the_address_of_the_next(reading: Reading, python: Ledger) -> None:
    rows, path = [], "/v1/catalog/find?newest=true&limit=7"
    while path is not None:
        document = reading.get(path).json()
        rows += document["data"]["items"]
        path = document.get("next")
        assert (path is None) == (document["data"]["next"] is None)
    assert rows == python.ask("catalog.find", newest=True, limit=500)["items"]


def test_a_cursor_is_of_its_question_alone(reading: Reading) -> None:
    cursor = reading.get("/v1/catalog/find?newest=true&limit=7").json()["data"]["next"]
    for path in (
        f"/v1/catalog/find?limit=7&after={cursor}",
        f"/v1/catalog/find?newest=true&kind=handoff.created&after={cursor}",
        f"/v1/catalog/find?newest=true&after={cursor}&as_of=9",
        f"/v1/sessions/list?after={cursor}",
        f"/v1/catalog/find?newest=true&after={cursor}0",
    ):
        assert code_of(reading.get(path)) == (404, "NOT_FOUND"), path
    assert reading.get(f"/v1/catalog/find?newest=true&limit=3&after={cursor}").status_code == HTTPStatus.OK


def test_all_rows_of_a_list_come_as_lines(reading: Reading, python: Ledger) -> None:
    answer = reading.get("/v1/catalog/find?limit=7", accept="application/x-ndjson")
    assert answer.headers["content-type"] == "application/x-ndjson"
    rows = [json.loads(line) for line in answer.text.splitlines()]
    assert rows == python.ask("catalog.find", limit=500)["items"]


def test_lines_that_begin_before_the_log_grows_end_with_what_was_there(
    own: Own, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "abcd":
        own.ledger.hand_over(name)
    before, api = own.ledger.size, own.reading.web.api
    answer = api._answer

    def grows(*asked: Any) -> Any:
        made = answer(*asked)
        own.ledger.hand_over(f"later{own.ledger.size}")
        return made

    monkeypatch.setattr(api, "_answer", grows)
    monkeypatch.setattr("deedbook.consumers.interfaces.web.api.rows_streamed", 1)
    answered = own.reading.get("/v1/catalog/find?limit=3", accept="application/x-ndjson")
    assert [json.loads(line)["event_index"] for line in answered.text.splitlines()] == list(range(before))


def test_the_past_is_answered_as_it_was_and_sent_once(own: Own) -> None:
    own.ledger.hand_over("a")
    last = own.ledger.size - 1
    own.ledger.hand_over("b")
    then = own.reading.get(f"/v1/handoffs/list?as_of={last}")
    assert [one["id"] for one in then.json()["data"]["items"]] == ["a"]
    assert then.headers["cache-control"] == "private, no-cache"
    own.ledger.hand_over("c")
    again = own.reading.get(f"/v1/handoffs/list?as_of={last}", **{"if-none-match": then.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    other = own.reading.get(f"/v1/handoffs/list?as_of={last + 1}", **{"if-none-match": then.headers["etag"]})
    assert other.status_code == HTTPStatus.OK


def test_an_answer_of_now_is_unchanged_until_the_log_or_its_rows_are_others(own: Own) -> None:
    own.ledger.hand_over("a")
    first = own.reading.get("/v1/handoffs/list")
    etag = first.headers["etag"]
    assert etag.startswith(f'W/"{own.ledger.size}-')
    for given in (etag, f'"x", {etag}'):
        again = own.reading.get("/v1/handoffs/list", **{"if-none-match": given})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", etag)
    own.ledger.hand_over("b")
    changed = own.reading.get("/v1/handoffs/list", **{"if-none-match": etag})
    assert (changed.status_code, changed.json()["data"]["total"]) == (200, 2)


def test_whoever_takes_no_form_that_there_is_hears_which_there_are(reading: Reading) -> None:
    for path, accept in (
        ("/v1/handoffs/list", "text/html"),
        ("/v1/handoffs/show?id=b", "application/x-ndjson"),
        ("/v1/events", "application/json;q=0"),
    ):
        assert code_of(reading.get(path, accept=accept)) == (406, "NOT_ACCEPTABLE")
    for accept in ("*/*", "application/*", "text/html, application/json;q=0.9"):
        assert reading.get("/v1/handoffs/list", accept=accept).headers["content-type"] == "application/json"


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "TRACE", "QUERY"])
def test_nothing_but_reading_is_answered(reading: Reading, method: str) -> None:
    answer = reading.client.request(method, "/v1/handoffs/list")
    assert code_of(answer) == (405, "USAGE")
    assert answer.headers["allow"] == "GET, HEAD, OPTIONS"


def test_head_and_options_say_what_a_get_would(reading: Reading) -> None:
    headers = {"authorization": f"Bearer {reading.token}"}
    got, head = reading.get("/v1/agents/list"), reading.client.head("/v1/agents/list", headers=headers)
    assert (head.status_code, head.headers["etag"]) == (200, got.headers["etag"])
    options = reading.client.options("/v1/agents/list")
    assert (options.status_code, options.headers["allow"]) == (204, "GET, HEAD, OPTIONS")
    assert not [name for name in options.headers if name.startswith("access-control")]


def test_a_body_or_an_endless_address_is_refused(reading: Reading) -> None:
    with_body = reading.client.request("GET", "/v1/handoffs/list", content=b"x")
    assert code_of(with_body) == (413, "TOO_LARGE")
    assert code_of(reading.get("/v1/handoffs/list?to=" + "a" * 13_000)) == (414, "TOO_LARGE")


def test_views_that_are_far_behind_are_said_to_be_instead_of_waited_for(
    own: Own, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deedbook.consumers.interfaces.web.rebuild.behind_max", 2)
    answer = own.reading.get("/v1/handoffs/list")
    assert code_of(answer) == (503, "BUSY")
    assert answer.headers["retry-after"] == "1"
    assert answer.json()["details"]["size"] == own.ledger.size
    thread = own.reading.web.api.rebuild._thread
    assert thread is not None
    thread.join(60)
    assert own.reading.get("/v1/handoffs/list").status_code == HTTPStatus.OK


def test_a_question_that_takes_too_long_is_given_up(own: Own, monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    hold = threading.Event()
    monkeypatch.setattr("deedbook.consumers.interfaces.web.app.answer_wait_max_s", 0.05)
    monkeypatch.setattr(own.reading.web.api.rebuild, "demand", lambda *_, **__: hold.wait(60))
    try:
        assert code_of(own.reading.get("/v1/handoffs/list")) == (503, "BUSY")
    finally:
        hold.set()


def test_an_error_that_nobody_foresaw_is_a_document_too(own: Own, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own.reading.web.api.rebuild, "demand", lambda *_, **__: 1 / 0)
    answer = own.reading.get("/v1/handoffs/list")
    assert code_of(answer) == (500, "UNEXPECTED")
    assert "division" not in answer.text


def test_an_empty_ledger_answers_every_list(own: Own) -> None:
    for query in ("handoffs.list", "handoffs.board", "handoffs.next", "sessions.list", "reports.list", "tot.list"):
        assert own.reading.get(path_to(query)).status_code == HTTPStatus.OK
    empty = {"items": [], "total": 0, "next": None, "history": 0}
    assert own.reading.get("/v1/handoffs/list").json()["data"] == empty


def test_an_answer_is_of_the_time_at_which_it_is_asked_for(own: Own, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger, reading = own.ledger, own.reading
    ledger.approve("leased", ledger.hand_over("leased"))
    now_ms = ledger.claim("leased", lease_seconds=30).accepted_ms
    monkeypatch.setattr("time.time_ns", lambda: now_ms * 1_000_000)

    def ready() -> bool:
        answer = reading.get("/v1/handoffs/list?status=in_progress")
        unchanged = reading.get("/v1/handoffs/list?status=in_progress", **{"if-none-match": answer.headers["etag"]})
        assert unchanged.status_code == HTTPStatus.NOT_MODIFIED
        return {row["id"]: bool(row["is_ready"]) for row in answer.json()["data"]["items"]}["leased"]

    assert not ready()
    now_ms += 29_999
    assert not ready()
    now_ms += 1
    assert ready()
    now_ms -= 1_000  # by a clock that was set back
    assert not ready()
    assert reading.client.get("/v1/handoffs/list?status=in_progress").status_code == HTTPStatus.UNAUTHORIZED


def test_a_list_of_numbers_is_a_name_that_is_repeated(reading: Reading, python: Ledger) -> None:
    items = python.ask("sessions.statements")["items"]
    indexes = [item["event_index"] for item in items]
    assert indexes
    answer = reading.get(path_to("sessions.statements", entries=[*indexes, 0])).json()["data"]
    assert [item["event_index"] for item in answer["items"]] == indexes
    assert reading.get(path_to("sessions.statements", entries=[0])).json()["data"]["items"] == []
    assert reading.get("/v1/sessions/statements?entries=first").status_code == 400


def test_sealed_texts_of_an_erased_subject_are_named_and_others_stay_references(own: Own) -> None:
    references = [f"sealed:{name}:blake3:{'0' * 64}/0" for name in ("carol", "dave")]
    own.ledger.emit("alice", "session/s", SessionStarted(task=" and ".join(references)))
    path = "/v1/sessions/show?id=s"
    first = own.reading.get(path)
    assert first.json()["data"]["task"] == " and ".join(references)
    own.ledger.emit("root", "subject/carol", SubjectErased(reason="She asked"))
    second = own.reading.get(path, **{"if-none-match": first.headers["etag"]})
    assert re.fullmatch(
        rf"\[erased on \d{{4}}-\d\d-\d\d by root: She asked\] and {references[1]}", second.json()["data"]["task"]
    )
    rows = own.reading.get("/v1/sessions/list", accept="application/x-ndjson").text
    assert references[0] not in rows
