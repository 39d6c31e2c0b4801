"""Answers about the past, computed from the current views, equal those of a fresh fold of the log until then."""

from __future__ import annotations

import random
import sqlite3
import threading
from typing import Any

import msgspec
import pytest
from every_kind import PAUSED, live
from faults import times
from fresh_fold import Prefix
from test_reader import ARGUMENTS

from deedbook.ledger.errors import DeedbookError
from deedbook.ledger.events.authority import KeyCompromised
from deedbook.ledger.lifecycle.clock import clock_text
from deedbook.projections.answers.past import pasts_open_max
from deedbook.projections.answers.reader import Reader
from deedbook.projections.stores import store
from deedbook.projections.stores.sqlite import SqliteTransaction
from deedbook.projections.views import runner
from deedbook.projections.views.comparison import verify_views
from deedbook.projections.views.projection import NoState
from deedbook.projections.views.registry import QUERIES, VIEWS
from deedbook.projections.views.runner import Runner

FAR = 40
# BM25 ranks these answers over the whole log: hits and scores are those of the past, but in the current order.
RANKED = {"search.find", "search.related", "search.similar"}
# More arguments for the same queries: other ids, short pages, and lists of one type.
MORE: list[tuple[str, dict[str, Any]]] = [
    *((f"handoffs.{query}", {"id": name}) for query in ("show", "facts", "why") for name in "bdefghz"),
    *(("catalog.find", {"kind": kind}) for kind in ("finding.logged", "handoff.created")),
    ("catalog.find", {"newest": True, "limit": 3, "author": "bob"}),
    ("catalog.find", {"stream": "session/s2"}),
    ("catalog.find", {"agent": "Kuro", "type": "handoff.created", "until": 1_760_000_000_000}),
    ("catalog.find", {"tag": "high_urgency"}),
    ("catalog.facets", {"agent": "bob", "since": 1}),
    ("catalog.facets", {"tag": "high_urgency"}),
    ("handoffs.list", {"status": "open"}),
    ("handoffs.list", {"limit": 2}),
    ("handoffs.next", {"agent": "bob"}),
    ("handoffs.next", {"agent": "rita"}),
    ("handoffs.graph", {"all": True}),
    ("handoffs.board", {"all": True}),
    ("sessions.show", {"id": "s2"}),
    ("sessions.list", {"limit": 1}),
    ("snapshots.show", {"id": "zz"}),
    ("reasoning.show", {"id": "r2"}),
    ("catalog.show", {"id": str(FAR)}),
    ("catalog.why", {"id": str(FAR)}),
    ("agents.show", {"id": "carol"}),
    ("agents.show", {"id": "zz"}),
    ("reports.list", {"limit": 1}),
    ("reviews.list", {}),
    ("search.find", {"text": "zebra", "limit": 200}),
    ("sessions.trajectory", {"id": "s2"}),
    ("search.find", {"text": "striped horses by the leaking pool", "limit": 200}),
    ("tot.show", {"id": PAUSED}),
    ("reasoning.list", {"domain": "Security", "tag": "security_domain"}),
    ("handoffs.next", {"domain": "Security", "limit": 2}),
    ("handoffs.next", {"tag": "high_urgency", "agent": "bob"}),
    ("search.find", {"text": "the leak OR secret", "domain": "security"}),
    ("search.facets", {"text": "zebra", "agent": "bob"}),
    *((f"search.{query}", {"task": "Count zebras", "limit": 500}) for query in ("related", "similar")),
]
ASKED = [*((query, ARGUMENTS.get(query, {})) for query in sorted(QUERIES) if query not in RANKED), *MORE]
SHORT = [(query, ARGUMENTS.get(query, {})) for query in ("handoffs.board", "sessions.list", "agents.keys", "tot.list")]


@pytest.fixture
def stretched(monkeypatch):
    """Stretches of 13 events, so that a small log has many boundaries between them."""
    monkeypatch.setattr(store, "stretch_events", 13)


@pytest.fixture
def lived(stretched, ledger):
    """A ledger with events of every kind, some of them twice; at any time, something is in progress."""
    live(ledger)
    return ledger


def live_on(ledger) -> None:
    """Let the agents continue everything that is in progress."""
    for number in range(30):
        ledger.finish(f"later-{number}")
    ledger.claim("b")


def answer_of(reader, query, arguments, *as_of):
    try:
        return reader.answer(query, arguments, *as_of)
    except DeedbookError as error:
        return error.to_dict()


def without_marks(value):
    """Return an answer without the marks of compromised signatures and erased bodies: they follow today's knowledge."""
    if isinstance(value, dict):
        return {name: without_marks(one) for name, one in value.items() if name not in {"compromised", "redacted"}}
    return [without_marks(one) for one in value] if isinstance(value, list) else value


def unordered(answer):
    """Return an answer with each of its lists sorted."""
    lists = {name: sorted(value, key=repr) for name, value in answer.items() if isinstance(value, list)}
    return without_marks(answer | lists)


def compare(reader: Reader, index: int, asked: Any = ASKED) -> None:
    """Compare the answers about the time of an entry with those of a fresh fold of the log up to it."""
    with Prefix(reader.client, reader.settings, index + 1) as fresh:
        for query, arguments in asked:
            expected, given = answer_of(fresh, query, arguments), answer_of(reader, query, arguments, index)
            if query == "agents.compromised":
                assert given == reader.answer(query)  # compromised keys are always those known today
            else:
                form = unordered if query in RANKED else without_marks
                assert form(given) == form(expected), (index, query, arguments)


def test_every_query_answers_of_a_random_past_what_a_fresh_fold_of_the_prefix_answers(lived, reader):
    chosen = random.Random(18)
    for _ in range(times(4, 16)):
        compare(reader, chosen.randrange(lived.size))


def test_states_between_two_boundaries_are_kept_once_whatever_batches_they_came_in(lived, open_store, monkeypatch):
    def kept(path):
        made = open_store(path)
        Runner(lived.reads, made, VIEWS).catch_up()
        with made.reading() as reading:
            return {
                view.name: reading.rows(f"SELECT * FROM {store.boundary_states_table(view.name).name}")
                for view in VIEWS
                if view.state is not NoState
            }

    whole = kept(lived.home.views)
    monkeypatch.setattr(runner, "batch_events_max", 1)
    assert kept(lived.home.path / "singly.db") == whole
    assert {name for name, rows in whole.items() if rows} >= {"catalog", "agents", "handoffs", "sessions", "reasoning"}


def test_kept_state_that_was_changed_is_named(lived, reader):
    reader.catch_up()
    with reader.store.writing() as writing:
        writing.rows("UPDATE deedbook_kept_handoffs SET data = x'00' RETURNING key")
    (found,) = verify_views(lived.reads, reader.store, VIEWS)
    assert (found.view, found.table) == ("handoffs", "deedbook_kept_handoffs")


def test_past_stays_as_it_was_while_the_log_grows_and_the_views_are_made_anew(lived, reader):
    index = lived.size - 20
    before = [answer_of(reader, *asked, index) for asked in SHORT]
    live_on(lived)
    assert [answer_of(reader, *asked, index) for asked in SHORT] == before
    reader.rebuild([view.name for view in VIEWS])
    assert [answer_of(reader, *asked, index) for asked in SHORT] == before
    lived.home.views.unlink()  # the connection for the past still has the deleted file open
    assert [answer_of(reader, *asked, index) for asked in SHORT] == before
    compare(reader, index, SHORT)


def test_past_that_is_asked_again_marks_what_became_compromised_meanwhile(ledger, reader, monkeypatch):
    ledger.record_session("s1")
    asked = ("sessions.show", {"id": "s1"}, ledger.size - 1)
    before = reader.answer(*asked)
    with monkeypatch.context() as patch:
        patch.setattr(reader, "_ask_store", None)  # no entry is new, so the store is not used
        assert reader.answer(*asked) == before
    lost = KeyCompromised(key=ledger.keys["bob"].public.hex(), since=0, reason="lost")
    ledger.emit("root", "agent/bob", lost)
    assert without_marks(reader.answer(*asked)) == before != reader.answer(*asked)


def test_refused_question_leaves_a_past_that_answers(lived, reader):
    index = lived.size // 2
    assert answer_of(reader, "handoffs.show", {"id": "zz"}, index)["code"] == "NOT_FOUND"
    compare(reader, index, SHORT)


def test_time_that_the_root_gave_up_is_behind_its_setting_of_the_clock(lived, reader):
    times_ms = [lived.event(index).accepted_ms for index in range(lived.size)]
    setting = next(index for index in range(lived.size) if lived.event(index).kind == "ledger.clock_set")
    assert times_ms[setting] < times_ms[setting - 1]
    for at_ms in (times_ms[setting], times_ms[setting - 1], times_ms[-1]):
        moment = reader.answer("catalog.instant", {"at": clock_text(at_ms)})
        assert moment["event_index"] >= setting
    before = reader.answer("catalog.instant", {"at": clock_text(times_ms[setting] - 1)})
    assert before["event_index"] == max(index for index in range(setting) if times_ms[index] < times_ms[setting])


def test_lease_is_over_at_a_time_when_it_was_over_though_nobody_gave_it_up(ledger, reader):
    ledger.approve("h", ledger.hand_over("h"))
    claimed_ms = ledger.event(ledger.claim("h", lease_seconds=60).index).accepted_ms
    for after_ms, agent in ((59_000, "bob"), (61_000, None)):
        (item,) = reader.answer("handoffs.next", {"agent": "bob"}, clock_text(claimed_ms + after_ms))["items"]
        assert (item["action"] == "continue") == (agent is not None)


def test_pasts_are_kept_open_up_to_their_number_and_closed_with_the_reader(lived, reader):
    chosen = [lived.size - 1 - number for number in range(pasts_open_max + 3)]
    for index in chosen * 2:
        assert reader.answer("catalog.find", as_of=index)["total"] == index + 1
    assert [size - 1 for _, size in reader._pasts._open] == chosen[-pasts_open_max:]
    open_now = list(reader._pasts._open.values())
    reader.close()
    assert all(past.is_closed for past in open_now)


def test_threads_ask_of_many_pasts_at_once(lived, reader):
    wrong: list[Any] = []

    def ask(seed: int) -> None:
        chosen = random.Random(seed)
        for index in (chosen.randrange(lived.size) for _ in range(8)):
            total = answer_of(reader, "catalog.find", {}, index).get("total")
            if total != index + 1:
                wrong.append((index, total))

    threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(3)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert wrong == []


def test_full_folder_of_temporary_files_is_named_and_the_past_answers_once_there_is_room(lived, reader, monkeypatch):
    def full(*_):
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorname = "SQLITE_FULL"
        raise error

    index = lived.size // 2
    with monkeypatch.context() as patch:
        patch.setattr(SqliteTransaction, "shadow", full)
        refused = answer_of(reader, "handoffs.list", {}, index)
    assert (refused["code"], "TMPDIR" in refused["message"]) == ("STORE_FULL", True)
    compare(reader, index, SHORT)


def test_past_of_a_log_that_was_rolled_back_is_refused(lived, reader, tmp_path):
    reader.answer("handoffs.list", as_of=7)
    with (
        type(lived)(tmp_path / "fork") as fork,  # the same keys, so the same ledger
        Reader(fork.reads, msgspec.structs.replace(fork.settings(), home=lived.home.path)) as other,
    ):
        assert answer_of(other, "handoffs.list", {}, 7)["code"] == "HISTORY_CHANGED"


def test_what_is_open_of_another_log_is_closed_and_made_again(lived, reader, monkeypatch):
    index = lived.size // 2
    before = reader.answer("handoffs.list", as_of=index)
    (first,) = reader._pasts._open.values()
    other = msgspec.structs.replace(reader.client.consistency(0, index + 1), root="00" * 32)
    lived.hand_over("one more")
    monkeypatch.setattr(reader.client, "consistency", lambda *_: other)
    assert reader.answer("handoffs.list", as_of=index) == before
    assert first.is_closed
