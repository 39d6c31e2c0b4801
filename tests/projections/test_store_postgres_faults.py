"""PostgreSQL stops, refuses, or gets values that it cannot store; and workers die."""

from __future__ import annotations

import contextlib
import random
import shutil
import subprocess
import sys
import threading

import psycopg
import pytest
from faults import times
from folding import digests_of
from view_ledger import ViewLedger

from deedbook.ledger.client.local import LocalClient
from deedbook.ledger.errors import Corrupted, Refused, Unavailable
from deedbook.ledger.events import imported, reasoning, session
from deedbook.ledger.home.config import Settings
from deedbook.projections.answers.reader import Reader
from deedbook.projections.stores import postgres as of_postgres
from deedbook.projections.stores import postgres_connection
from deedbook.projections.stores.postgres import PostgresStore, schema_of
from deedbook.projections.stores.postgres_connection import Connection
from deedbook.projections.views import runner
from deedbook.projections.views.registry import VIEW_VERSIONS

SECRET = "hunter2"
# A worker that folds one event at a time and reports each, so that a test can kill it within its work.
WORKER = """
import sys
from pathlib import Path
from deedbook.ledger.client.local import LocalClient
from deedbook.ledger.home.config import Settings
from deedbook.projections.answers.reader import Reader
from deedbook.projections.views import runner
runner.batch_events_max = 3
with LocalClient(Settings(home=Path(sys.argv[1]))) as client:
    with Reader(client, Settings(home=Path(sys.argv[1])), store=sys.argv[2]) as reader:
        reader.catch_up(progress=lambda done: print(done.position, flush=True))
"""


@pytest.fixture
def shared(ledger, database):
    """A reader whose views are in PostgreSQL."""
    with Reader(ledger.reads, ledger.settings(), store=database) as made:
        yield made


def live_a_little(ledger, count: int) -> None:
    for number in range(count):
        ledger.hand_over(f"work-{number}", tasks=["登录 one"], criteria=["green"])


def fold_at_last(reader) -> None:
    """Fold; try again each time that waiting for another worker fails."""
    while True:
        with contextlib.suppress(Unavailable):
            reader.catch_up()
            return


def worker(ledger, database) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WORKER, str(ledger.home.path), database], stdout=subprocess.PIPE, text=True
    )


def test_workers_that_are_killed_in_the_middle_leave_whole_views_that_others_finish(ledger, reader, shared, database):
    for number in range(20):
        ledger.hand_over(f"work-{number}", tasks=["one"])
    for fault in range(times(3, 6)):
        shared.rebuild(["handoffs"])
        with shared.store.writing() as writing:
            for view in ("catalog", "handoffs", "search"):
                writing.drop(view, is_live=True)
        workers = [worker(ledger, database) for _ in range(2)]
        assert workers[0].stdout is not None
        for _ in range(1 + fault % 5):
            workers[0].stdout.readline()
        workers[0].kill()
        for one in workers:
            one.communicate()
        assert workers[1].returncode == 0
        shared.catch_up()
        reader.catch_up()
        assert digests_of(shared.store) == digests_of(reader.store)


def test_a_worker_that_stands_still_with_the_lock_does_not_keep_others_from_it_for_long(ledger, database, monkeypatch):
    ledger.hand_over("a")
    monkeypatch.setattr(of_postgres, "_SESSION", of_postgres._SESSION.replace("'60s'", "'1s'"))
    stopped = PostgresStore(database, ledger=ledger.reads.ledger)
    with Reader(ledger.reads, ledger.settings(), store=database) as other:
        with pytest.raises(Unavailable), stopped.writing():  # the server ends the idle connection of ``stopped``
            fold_at_last(other)
        assert other.answer("handoffs.show", {"id": "a"})["status"] == "pending"
    stopped.close()


def test_a_server_that_ends_in_the_middle_leaves_nothing_half_written_and_is_used_again(
    ledger, reader, shared, postgres, monkeypatch
):
    monkeypatch.setattr(runner, "batch_events_max", 3)
    live_a_little(ledger, 4)

    def end(done):
        if done.position > ledger.size // 2 and postgres.child.poll() is None:
            postgres.kill()

    try:
        with pytest.raises(Unavailable) as refused:
            shared.catch_up(progress=end)
        assert refused.value.code == "STORE_UNAVAILABLE"
        with pytest.raises(Unavailable):
            shared.answer("handoffs.list")
    finally:
        postgres.start()
    shared.catch_up()
    reader.catch_up()
    assert digests_of(shared.store) == digests_of(reader.store)


def test_text_that_postgres_cannot_hold_comes_back_as_it_was(ledger, reader, shared):
    ledger.emit("bob", "session/s", session.SessionStarted(task="a\0b \ue000 c\ue0000", ai_id="bob"))
    words = " ".join(["x" * 3_000, "登录" * 900, "é" * 700, *(f"w{number}" for number in range(2_000))])
    evidence = ["\ue000.py:1", "\\u0000", "\\\\u0000", "é" * 2_000]
    found = session.FindingLogged(finding=f"zero \0 and \ue000e {words}", evidence=evidence, impact=-0.0)
    step = reasoning.Step(step_number=1, type="observation", content="zero \0 there", evidence=evidence)
    ledger.emit("bob", "session/s", found)
    ledger.emit("bob", "reasoning/r", reasoning.ReasoningStarted(task="zero \0", ai_id="bob"))
    ledger.emit("bob", "reasoning/r", reasoning.ReasoningExtended(steps=[step], dependencies={}))
    reader.catch_up()
    shared.catch_up()
    assert digests_of(shared.store) == digests_of(reader.store)
    for query, arguments in (
        ("sessions.show", {"id": "s"}),
        ("knowledge.graph", {"id": "session/s"}),
        ("knowledge.graph", {"id": "evidence/\ue000.py:1"}),
        ("knowledge.graph", {"id": "evidence/\\u0000"}),
        ("reasoning.show", {"id": "r"}),
        ("search.find", {"text": "x" * 3_000}),
        ("search.find", {"text": "x" * 600 + "*"}),
        ("search.find", {"text": '"w1 w2"'}),
        ("search.find", {"text": "登录"}),
        ("catalog.why", {"id": str(ledger.size - 1)}),
    ):
        assert shared.answer(query, arguments) == reader.answer(query, arguments), query


def test_names_of_any_length_have_room_in_every_index_and_are_found(ledger, reader, shared):
    chance = random.Random("names")  # random names, which cannot be compressed
    label, line = ("".join(chr(chance.randrange(0x4E00, 0x9FA5)) for _ in range(count)) for count in (9_000, 2_000))
    ledger.emit("bob", "session/own", session.SessionStarted(task="t", ai_id=label))
    report = {"report_type": "complete", "ai_id": label, "task_summary": "s", "calibration_status": "not_assessable"}
    report |= {"key_findings": ["f"], "recommended_next_steps": ["n"], "epistemic_deltas": {}}
    for stream, kind, mapped in (
        ("session/s", "session.started", {"task": "t", "ai_id": label}),
        ("session/s", "report.generated", report),
        ("handoff/h", "handoff.created", {"title": "t"}),
        ("reasoning/r", "reasoning.started", {"task": "t", "ai_id": label}),
    ):
        claimed = {"claimed_author": line, "claimed_at": "2025-06-01T00:00:00Z", "source": line, "format": "f" * 200}
        fields = claimed | {"mapped_kind": kind, "mapped": mapped}
        ledger.emit("bob", stream, imported.RecordImported(original="blake3:" + "1" * 64, **fields))
    reader.catch_up()
    shared.catch_up()
    shared.rebuild([*VIEW_VERSIONS])  # a rebuild makes all indexes at once
    assert digests_of(shared.store) == digests_of(reader.store)
    for query, arguments in (
        ("sessions.list", {"ai_id": label}),
        ("sessions.list", {"ai_id": line}),
        ("reports.list", {"ai_id": label}),
        ("handoffs.list", {"from": line}),
        ("records.existing", {"places": [{"original": "blake3:" + "1" * 64, "source": line}]}),
    ):
        found = shared.answer(query, arguments)
        assert found == reader.answer(query, arguments), query
        assert any(found.values()), query


def test_a_server_that_wants_a_password_gets_it_from_the_file_that_the_url_names(ledger, postgres, database, tmp_path):
    with psycopg.connect(database, autocommit=True) as owner:
        owner.execute(
            f"CREATE ROLE guarded LOGIN PASSWORD '{SECRET}'; GRANT CREATE ON DATABASE {owner.info.dbname} TO guarded"
        )
    rules = postgres.folder / "data" / "pg_hba.conf"
    rules.write_text("local all guarded scram-sha-256\n" + rules.read_text())
    with psycopg.connect(database, autocommit=True) as owner:
        owner.execute("SELECT pg_reload_conf()")
    passwords = tmp_path / "pgpass"
    url = f"{database.replace('postgres@', 'guarded@')}&passfile={passwords}"
    for given in ("", "*:*:*:guarded:wrong\n"):
        passwords.write_text(given)
        passwords.chmod(0o600)
        with pytest.raises(Unavailable, match="password") as refused:
            PostgresStore(url, ledger="x")
        assert "wrong" not in str(refused.value.to_dict()).replace("wrong password", "")
    passwords.write_text(f"*:*:*:guarded:{SECRET}\n")
    ledger.hand_over("a")
    with Reader(ledger.reads, ledger.settings(), store=url) as guarded:
        assert guarded.answer("handoffs.list")["total"] == 1
        with psycopg.connect(database) as owner:
            (method,) = owner.execute("SELECT rolpassword FROM pg_authid WHERE rolname = 'guarded'").fetchone() or ("",)
    assert method.startswith("SCRAM-SHA-256")


def test_a_schema_of_another_ledger_or_a_newer_version_is_refused_and_left_alone(ledger, shared, database):
    with psycopg.connect(database, autocommit=True) as other:
        books = f'"{schema_of(ledger.reads.ledger)}".deedbook'
        other.execute(f"UPDATE {books} SET format = format + 1")
        with pytest.raises(Refused, match=r"UNSUPPORTED_VERSION: .*: install a newer Deedbook, or drop the schema"):
            PostgresStore(database, ledger=ledger.reads.ledger)
        other.execute(f"UPDATE {books} SET format = format - 2")
        with pytest.raises(Corrupted, match=r"an older version of Deedbook made the schema .*: drop the schema"):
            PostgresStore(database, ledger=ledger.reads.ledger)
        other.execute(f"UPDATE {books} SET format = format + 1, ledger = 'another'")
        with pytest.raises(Corrupted, match="of another ledger"):
            PostgresStore(database, ledger=ledger.reads.ledger)


def test_a_schema_that_somebody_else_made_first_is_not_used(postgres, database):
    with psycopg.connect(database, autocommit=True) as other:
        other.execute(f'CREATE ROLE eve; GRANT CREATE ON DATABASE "{other.info.dbname}" TO eve; SET ROLE eve')
        other.execute(f"CREATE SCHEMA {schema_of('x')}")
        other.execute(f"CREATE FUNCTION {schema_of('x')}.spy() RETURNS text RETURN current_user || ' ran this'")
        other.execute(f"CREATE VIEW {schema_of('x')}.deedbook AS SELECT {schema_of('x')}.spy() AS ledger, 1 AS format")
        other.execute(f"GRANT USAGE ON SCHEMA {schema_of('x')} TO PUBLIC")
        with pytest.raises(Corrupted, match=r"another role owns the schema .*: drop the schema"):
            PostgresStore(database, ledger="x")
        other.execute(f"DROP SCHEMA {schema_of('x')} CASCADE; RESET ROLE; DROP OWNED BY eve; DROP ROLE eve")
    PostgresStore(database, ledger="x").close()


def test_a_password_is_neither_taken_from_a_setting_nor_shown(ledger, postgres, database, tmp_path):
    for url in (
        f"postgresql://views:{SECRET}@/test",
        f"postgresql://views@/test?password={SECRET}",
        f"postgresql://views@/%zz{SECRET}",
        f"mysql://{SECRET}",
        f"dbname=x password={SECRET}",
    ):
        with pytest.raises(Refused) as refused:
            PostgresStore(url, ledger="x")
        assert SECRET not in str(refused.value.to_dict())
    passwords = tmp_path / "pgpass"
    passwords.write_text(f"*:*:*:views:{SECRET}\n")
    passwords.chmod(0o600)
    for url in (
        f"postgresql://views@/nowhere?host={postgres.folder}&passfile={passwords}",
        f"postgresql://views@127.0.0.1:1/test?passfile={passwords}",
        f"postgresql://views@host.invalid/test?passfile={passwords}",
    ):
        with pytest.raises(Unavailable) as unavailable:
            PostgresStore(url, ledger="x")
        assert unavailable.value.code == "STORE_UNAVAILABLE"
        assert SECRET not in str(unavailable.value.to_dict())


def test_many_ask_at_once_while_a_view_is_made_anew_under_them(ledger, shared):
    live_a_little(ledger, 5)
    expected = shared.answer("handoffs.list")
    wrong: list[object] = []

    def ask():
        answers = [shared.answer("handoffs.list") for _ in range(20)]
        wrong.extend(answer for answer in answers if answer != expected)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(5):
        shared.rebuild(["handoffs", "catalog"])
    for thread in threads:
        thread.join()
    assert not wrong


def test_views_that_somebody_dropped_are_made_again(ledger, shared, database):
    live_a_little(ledger, 1)
    expected = shared.answer("handoffs.list")
    with psycopg.connect(database, autocommit=True) as other:
        other.execute(f'DROP SCHEMA "{schema_of(ledger.reads.ledger)}" CASCADE')
    assert shared.answer("handoffs.list") == expected


def test_a_node_whose_log_is_behind_the_shared_views_reads_on(ledger, shared, database, tmp_path):
    live_a_little(ledger, 1)
    behind = Settings(home=tmp_path / "behind")
    shutil.copytree(ledger.home.path, behind.home)
    ledger.hand_over("later")
    shared.catch_up()
    with LocalClient(behind) as client, Reader(client, behind, store=database) as other:
        assert other.catch_up() == client.head().size
        assert other.answer("handoffs.show", {"id": "later"})["status"] == "pending"


def test_a_node_of_another_past_is_refused_by_the_shared_views(ledger, shared, database, tmp_path):
    live_a_little(ledger, 2)
    shared.catch_up()
    with ViewLedger(tmp_path / "fork") as fork:  # the same keys, so the same ledger
        fork.hand_over("there")
        with (
            Reader(fork.reads, fork.settings(), store=database) as other,
            pytest.raises(Corrupted, match="another history"),
        ):
            other.catch_up()


def test_a_question_that_takes_too_long_is_given_up_and_the_connection_used_again(ledger, shared, monkeypatch):
    expected = shared.answer("handoffs.list")
    with monkeypatch.context() as patched:
        begin = [one._replace(sql=one.sql.replace("'30s'", "'50ms'")) for one in of_postgres._READING]
        patched.setattr(of_postgres, "_READING", begin)
        with pytest.raises(Unavailable, match="did not finish the query"), shared.store.reading() as reading:
            reading.rows("SELECT 1 AS one FROM pg_sleep(60)")
    with pytest.raises(Unavailable, match="read-only"), shared.store.reading() as reading:
        reading.rows("DELETE FROM handoffs")
    assert shared.answer("handoffs.list") == expected


def test_views_that_somebody_took_away_between_two_questions_are_made_again_where_they_were(ledger, database):
    live_a_little(ledger, 1)
    notices: list[str] = []
    with Reader(ledger.reads, ledger.settings(), store=database, notice=notices.append) as shared:
        expected = shared.answer("handoffs.list")
        with shared.store.writing() as writing:
            writing.drop("handoffs", is_live=True)
        assert shared.answer("handoffs.list") == expected
    assert not notices  # the missing view is not reported as damage


def test_what_a_question_asks_of_postgres_travels_with_its_beginning_and_is_prepared_at_once(
    ledger, shared, monkeypatch
):
    live_a_little(ledger, 2)
    journeys: list[int] = []
    together = Connection.together
    monkeypatch.setattr(
        Connection, "together", lambda self, asked: journeys.append(len(asked)) or together(self, asked)
    )
    # Each query with its number of round trips. A list of events needs one more, for the sentences of its events.
    asked = (("agents.list", {}, 1), ("handoffs.facts", {"id": "work-1"}, 1), ("catalog.find", {}, 2))
    asked += (("handoffs.next", {"agent": "alice"}, 1),)  # nothing waits for alice, so no states are read
    for query, arguments, trips in asked:
        shared.answer(query, arguments)
        journeys.clear()
        shared.answer(query, arguments)
        assert len(journeys) == trips, query
    with shared.store.reading() as reading:
        prepared = reading.rows("SELECT count(*) AS number FROM pg_prepared_statements WHERE statement LIKE '%agents%'")
    assert prepared[0]["number"] > 0


def test_statements_that_nobody_asked_for_lately_are_forgotten_and_prepared_again(ledger, shared, monkeypatch):
    live_a_little(ledger, 1)
    shared.catch_up()
    monkeypatch.setattr(postgres_connection, "statements_prepared_max", 5)
    for _ in range(2):
        for number in range(30):
            with shared.store.reading() as reading:
                assert reading.rows(f"SELECT {number} AS one") == [{"one": number}]
    with shared.store.reading() as reading:
        (held,) = reading.rows("SELECT count(*) AS number FROM pg_prepared_statements")
    assert held["number"] < 15


def test_of_questions_that_travel_together_the_one_that_fails_is_named_and_the_connection_used_again(ledger, shared):
    live_a_little(ledger, 1)
    expected = shared.answer("handoffs.list")
    with pytest.raises(Corrupted, match="division by zero"), shared.store.reading() as reading:
        reading.together(("SELECT 1 AS one", ()), ("SELECT 1 / 0 AS none", ()), ("SELECT 2 AS two", ()))
    with pytest.raises(UnicodeEncodeError), shared.store.reading() as reading:
        reading.rows("SELECT ? AS one", ("\ud800",))
    assert shared.answer("handoffs.list") == expected
