"""PostgreSQL beside SQLite: the same rows, the same digests and the same answers, now and in the past."""

from __future__ import annotations

import random
import re
from pathlib import Path

import psycopg
import pytest
from every_kind import live
from faults import times
from folding import digests_of
from test_past import ASKED, RANKED, answer_of
from test_reader import ARGUMENTS

from deedbook.ledger.events import session
from deedbook.projections.answers.reader import Reader
from deedbook.projections.answers.view_reader import last_ms
from deedbook.projections.stores import store
from deedbook.projections.views.comparison import verify_views
from deedbook.projections.views.registry import VIEWS

PROTO = Path(__file__).parents[2] / "proto"
ALL = [*ASKED, *((query, ARGUMENTS.get(query, {})) for query in sorted(RANKED))]


@pytest.fixture
def lived(monkeypatch, ledger):
    """A ledger with events of every kind, in stretches of 13 events; every reader of it has the same time."""
    monkeypatch.setattr(store, "stretch_events", 13)
    monkeypatch.setattr(Reader, "_now_ms", lambda _, reading: last_ms(reading) + 1_000)
    live(ledger)
    return ledger


@pytest.fixture
def shared(lived, database):
    """A reader of the same ledger whose views are in PostgreSQL."""
    with Reader(lived.reads, lived.settings(), store=database) as made:
        yield made


def test_both_stores_hold_the_same_rows_and_answer_every_query_alike(lived, reader, shared):
    reader.catch_up()
    shared.catch_up()
    assert digests_of(shared.store) == digests_of(reader.store)
    for query, arguments in ALL:
        assert answer_of(shared, query, arguments) == answer_of(reader, query, arguments), (query, arguments)


def test_every_query_answers_of_a_random_past_alike_in_both_stores(lived, reader, shared):
    chosen = random.Random(19)
    for _ in range(times(2, 8)):
        index = chosen.randrange(lived.size)
        for query, arguments in ALL:
            expected, given = (answer_of(one, query, arguments, index) for one in (reader, shared))
            assert given == expected, (index, query, arguments)


def test_the_views_are_verified_and_rebuilt_in_postgres(lived, shared):
    shared.catch_up()
    assert verify_views(lived.reads, shared.store, VIEWS) == []
    before = digests_of(shared.store)
    with shared.store.writing() as writing:
        writing.rows("UPDATE handoffs SET title = 'other' WHERE id = 'e' RETURNING id")
    (difference,) = verify_views(lived.reads, shared.store, VIEWS)
    assert difference.table == "handoffs"
    shared.rebuild(["handoffs"])
    assert digests_of(shared.store) == before


def test_people_read_the_views_with_tools_of_their_own_as_the_page_says_and_change_nothing(lived, shared, postgres):
    shared.catch_up()
    grant, question = re.findall(r"```sql\n(.*?)```", (PROTO / "SQL.md").read_text(), re.DOTALL)
    with psycopg.connect(shared.store.url, autocommit=True) as owner:
        schema = shared.store.schema
        owner.execute(grant.replace("SCHEMA;", f"{schema};").replace("SCHEMA SCHEMA", f"SCHEMA {schema}"))
    shared.rebuild(["handoffs"])  # the owner's grant must hold for the new tables, too
    with psycopg.connect(shared.store.url.replace("postgres@", "grafana@"), autocommit=True) as reading:
        by_status, last = (reading.execute(one).fetchall() for one in question.split(";")[:2])
        assert dict(by_status)["pending"] == len(
            shared.answer("handoffs.list", {"status": "pending", "history": "shown"})["items"]
        )
        assert last[0][0] is not None
        reading.execute("SET default_transaction_read_only = off")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            reading.execute("DELETE FROM handoffs")


def test_every_table_and_column_stands_on_the_page():
    page = (PROTO / "SQL.md").read_text()
    for table in (table for view in VIEWS for table in view.tables):
        assert f"### `{table.name}`" in page
        assert all(f"| `{column}` |" in page for column in table.columns)


def test_how_many_rows_hold_a_word_is_counted_as_they_are_folded_and_anew_with_them(lived, reader, shared):
    shared.catch_up()
    shared.rebuild(["search"])
    for number, word in enumerate(("login", "logins", "logging", "login")):
        lived.emit(
            "bob", f"session/words-{number}", session.SessionStarted(task=f"{word} login {'x' * 600} step {number}")
        )
    shared.catch_up()
    reader.catch_up()
    with psycopg.connect(shared.store.url) as connection:
        connection.execute(f"SET search_path = {shared.store.schema}")
        counted = connection.execute("SELECT word, rows FROM deedbook_counts_search_words ORDER BY word").fetchall()
        counting = "SELECT word, ndoc FROM ts_stat('SELECT lexemes FROM search_words')"
        assert counted == sorted(connection.execute(counting).fetchall())
    for text in ("login", "log*", "step 3", '"login step"', "logins step", "x" * 600, "step nowhere"):
        for arguments in ({"text": text, "limit": 2}, {"text": text, "limit": 1, "after": 1_000_000 * lived.size + 1}):
            assert shared.answer("search.find", arguments) == reader.answer("search.find", arguments), arguments
