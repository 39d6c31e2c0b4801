"""Subscriptions in PostgreSQL: an effect happens once even if the server dies during it; one run at a time."""

from __future__ import annotations

import json
import random
import shutil
import sys
import threading
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from faults import metrics, settle, times

from deedbook.consumers.interfaces.cli.program import run as cli_run
from deedbook.consumers.sdk.postgres import PostgresSubscriptions
from deedbook.consumers.sdk.reactor import Reactor
from deedbook.consumers.sdk.subscriptions import open_subscriptions
from deedbook.ledger.errors import DeedbookError, Refused, Unavailable
from deedbook.ledger.events.session import FindingLogged, SessionStarted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from building import Ledger
    from postgres import Postgres

    from deedbook.ledger.client.local import LocalClient
    from deedbook.ledger.events.body import Event

SESSION = "session/s1"


@pytest.fixture
def kept(database: str) -> Iterator[PostgresSubscriptions]:
    """Subscriptions in a database, with a table for effects."""
    opened = PostgresSubscriptions(database)
    opened.run("CREATE TABLE done (event_index BIGINT, finding TEXT)")
    yield opened
    opened.close()


@pytest.fixture
def run(ledger: Ledger, local_client: LocalClient, kept: PostgresSubscriptions) -> Callable[..., DeedbookError | None]:
    """React to all findings with a function; return the error that ended it."""
    ledger.emit("alice", SESSION, SessionStarted())

    def run(effect: Callable[[Event, Any], Any]) -> DeedbookError | None:
        reactor = Reactor(local_client, kept, "rows", attempts=3, retry_wait_s=0.001, wait_s=0.05)
        reactor.on("finding.logged")(effect)
        reactor.start_at(0)
        try:
            reactor.run(threading.Event(), until=ledger.head()[0])
        except DeedbookError as error:
            return error
        return None

    return run


def find(ledger: Ledger, *texts: str) -> None:
    """Append findings."""
    for text in texts:
        ledger.emit("alice", SESSION, FindingLogged(finding=text))


def write(event: Event, db: Any) -> None:
    """Write a row: the effect under test."""
    db.execute("INSERT INTO done VALUES (%s, %s)", (event.index, event.data.finding))


def done(kept: PostgresSubscriptions) -> list[str]:
    """Return the findings whose effect happened, in order."""
    return [finding for (finding,) in kept.run("SELECT finding FROM done ORDER BY ctid")]


def test_server_that_goes_in_an_effect_and_is_back_finds_it_done_once_and_nothing_given_up(
    ledger: Ledger, run: Callable[..., DeedbookError | None], kept: PostgresSubscriptions, postgres: Postgres
) -> None:
    chance, outages = random.Random("outages"), times(2, 30)
    texts = [str(number) for number in range(4)]
    find(ledger, *texts)
    deadly = [chance.choice(texts) for _ in range(outages)] + ["0"] * 5  # more outages than attempts for one event

    def effect(event: Event, db: Any) -> None:
        if is_before := chance.random() < 0.5:
            write(event, db)
        if deadly and event.data.finding >= deadly[-1]:
            deadly.pop()
            metrics("outages of PostgreSQL in an effect")
            postgres.kill()
            postgres.start()
        if not is_before:
            write(event, db)

    ended = [run(effect)]
    while ended[-1] is not None:
        ended.append(run(effect))
    assert {(error.code, type(error)) for error in ended[:-1] if error} == {("STORE_UNAVAILABLE", Unavailable)}
    assert len(ended) > 5
    settle("PostgreSQL gone and back in an effect", outages + 5, events=texts, published=texts, effects=done(kept))
    assert (done(kept), kept.dead_letters("rows"), kept.position("rows")) == (texts, [], ledger.head()[0])


def test_commit_whose_answer_is_lost_is_not_made_again(
    ledger: Ledger, run: Callable[..., DeedbookError | None], kept: PostgresSubscriptions, database: str
) -> None:
    find(ledger, "a")
    # A deferred trigger runs within COMMIT: the session ends after everything was written, and before the confirmation.
    kept.run(
        "CREATE FUNCTION vanish() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NULL; END $$;"
        "CREATE CONSTRAINT TRIGGER vanishing AFTER INSERT ON done DEFERRABLE INITIALLY DEFERRED "
        "FOR EACH ROW EXECUTE FUNCTION vanish()"
    )
    assert getattr(run(write), "code", None) == "STORE_UNAVAILABLE"
    kept.run("DROP TRIGGER vanishing ON done")
    assert run(write) is None
    assert (done(kept), kept.dead_letters("rows")) == (["a"], [])


def test_function_that_goes_on_after_a_failed_statement_is_told_how_it_may(
    ledger: Ledger, run: Callable[..., DeedbookError | None], kept: PostgresSubscriptions
) -> None:
    find(ledger, "a")

    def careless(event: Event, db: Any) -> None:
        write(event, db)
        with pytest.raises(psycopg.Error):
            db.execute("SELECT 1 / 0")

    def careful(event: Event, db: Any) -> None:
        write(event, db)
        with pytest.raises(psycopg.Error), db.transaction():
            db.execute("SELECT 1 / 0")

    assert run(careless) is None
    (letter,) = kept.dead_letters("rows")
    assert "db.transaction()" in letter.error
    assert done(kept) == []
    find(ledger, "b")
    assert run(careful) is None
    assert done(kept) == ["b"]


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_function_cannot_end_its_transaction(
    end: str, ledger: Ledger, run: Callable[..., DeedbookError | None], kept: PostgresSubscriptions
) -> None:
    find(ledger, "a")

    def ends(event: Event, db: Any) -> None:
        write(event, db)
        getattr(db, end)()

    assert run(ends) is None
    assert (done(kept), len(kept.dead_letters("rows"))) == ([], 1)


def test_statement_that_ends_the_transaction_is_refused(
    ledger: Ledger, run: Callable[..., DeedbookError | None], kept: PostgresSubscriptions
) -> None:
    find(ledger, "a")
    assert run(lambda _, db: db.execute("ROLLBACK")) is None
    assert "ended its transaction" in kept.dead_letters("rows")[0].error


def test_constraint_that_is_checked_when_it_commits_is_the_events_fault(
    ledger: Ledger, run: Callable[..., DeedbookError | None], kept: PostgresSubscriptions
) -> None:
    kept.run("CREATE TABLE once (finding TEXT UNIQUE DEFERRABLE INITIALLY DEFERRED)")
    find(ledger, "a", "A", "b")
    assert run(lambda event, db: db.execute("INSERT INTO once VALUES (lower(%s))", [event.data.finding])) is None
    assert kept.run("SELECT finding FROM once ORDER BY 1") == [("a",), ("b",)]
    assert "UniqueViolation" in kept.dead_letters("rows")[0].error


def test_lock_ends_with_the_session_that_held_it(kept: PostgresSubscriptions, database: str) -> None:
    other = open_subscriptions(database)
    with kept.held("rows"):
        with pytest.raises(Unavailable) as refused, other.held("rows"):
            pass
        assert refused.value.code == "STORE_IN_USE"
        other.run("SELECT pg_terminate_backend(?)", kept.db.info.backend_pid)
        with pytest.raises(Unavailable) as lost, kept.transaction():
            kept.run("SELECT 1")
        assert lost.value.code == "STORE_UNAVAILABLE"
        with other.held("rows"), pytest.raises(Unavailable), kept.transaction():
            pass  # nothing more is committed without the lock
    other.close()
    with kept.held("rows"):
        assert kept.position("rows") is None  # the store has connected again


def test_many_that_make_the_tables_at_once_all_find_them(database: str) -> None:
    barrier, opened = threading.Barrier(4), list[int]()

    def make() -> None:
        barrier.wait()
        made = PostgresSubscriptions(database)
        opened.append(made.start_at("rows", 7))
        made.close()

    threads = [threading.Thread(target=make) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert opened == [7] * 4


@pytest.mark.parametrize("uri", ["postgresql://me:hunter2@[/x", "postgresql://me:hunter2@h/d?hunter2"])
def test_wrong_uri_is_refused_without_its_password(uri: str) -> None:
    with pytest.raises(Refused) as refused:
        open_subscriptions(uri)
    assert refused.value.code == "USAGE"
    assert "hunter2" not in str(refused.value)
    assert refused.value.__suppress_context__


def test_server_that_is_not_there_is_unavailable_and_no_password_is_told(postgres: Postgres) -> None:
    with pytest.raises(Unavailable) as refused:
        open_subscriptions(f"postgresql://me:hunter2@/nothing?host={postgres.folder}/none")
    assert refused.value.code == "STORE_UNAVAILABLE"
    assert "hunter2" not in str(refused.value)


def test_program_without_the_driver_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    monkeypatch.delitem(sys.modules, "deedbook.consumers.sdk.postgres")
    with pytest.raises(Unavailable) as refused:
        open_subscriptions("postgresql://h/d")
    assert refused.value.code == "EXTRA_MISSING"
    assert "deedbook[postgres]" in refused.value.message


def test_watcher_goes_on_where_another_machines_stopped(
    ledger: Ledger, database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger.write_keys()
    ledger.emit("alice", SESSION, SessionStarted())
    words = [
        "watch",
        "--kind",
        "finding.logged",
        "--as",
        "alice",
        "--store",
        database,
        "--once",
        "--from-start",
        "--json",
    ]
    printed = list[str]()
    for folder, finding in (("one", "a"), ("two", "b")):
        find(ledger, finding)
        shutil.copytree(ledger.home.path, tmp_path / folder, ignore=shutil.ignore_patterns("subscribers"))
        assert cli_run(["--home", str(tmp_path / folder), *words]) == 0
        printed += [json.loads(line)["data"]["finding"] for line in capsys.readouterr().out.splitlines()]
    assert printed == ["a", "b"]
