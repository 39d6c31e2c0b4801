"""`deed project` with a store of PostgreSQL: workers that follow the log, and take over from each other."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING

import inside
import psycopg
import pytest
from calling import Running, emit_finding, start_session

if TYPE_CHECKING:
    from pathlib import Path

    from calling import Deed
    from postgres import Postgres


@pytest.fixture
def following(alone: Deed, database: str) -> tuple[str, ...]:
    """Return the command that follows the log of a ledger with one session."""
    alone("agent", "add", "a", "--role", "agent")
    start_session(alone, "s1")
    return ("project", "--store", database, "--follow", "--home", str(alone.home))


def test_worker_that_is_killed_is_followed_by_another(alone: Deed, following: tuple[str, ...], database: str) -> None:
    with Running(*following) as first, Running(*following) as second:
        size = alone.size()
        assert first.line() == second.line() == f"folded up to {size}\n"
        first.signal(signal.SIGKILL)
        emit_finding(alone, "session/s1", "A worker died")
        assert second.line() == f"folded up to {size + 1}\n"
        assert second.signal(signal.SIGTERM).code == 0
    here = json.loads(alone("project", "--json"))["data"]
    there = json.loads(alone("project", "--store", database, "--json"))["data"]
    assert here == there


def test_worker_waits_for_a_database_that_is_away(alone: Deed, following: tuple[str, ...], postgres: Postgres) -> None:
    with Running(*following) as worker:
        size = alone.size()
        assert worker.line() == f"folded up to {size}\n"
        postgres.kill()
        try:
            emit_finding(alone, "session/s1", "The database is away")
            assert "STORE_UNAVAILABLE" in worker.error_line()
        finally:
            postgres.start()
        assert worker.line() == f"folded up to {size + 1}\n"
        assert worker.signal(signal.SIGTERM).code == 0


def test_store_is_refused_in_words_and_a_password_not_repeated(alone: Deed) -> None:
    refused = alone.refuses("INVALID_FIELD", "project", "--store", "postgresql://a:hunter2@host/views")
    assert "without a password" in refused["message"]
    assert "hunter2" not in str(refused)
    alone.refuses("USAGE", "project", "--follow", "--rebuild")


def test_setting_names_the_store_once_it_is_trusted(alone: Deed, database: str, tmp_path: Path) -> None:
    (alone.home / "config.toml").write_text(f'[views]\nstore = "{database}"\nother = "x"\n')
    inside.deed("trust", "--yes", "--home", str(alone.home))
    assert "UNKNOWN_FIELD" in inside.deed("session", "list", "--home", str(alone.home)).err
    (alone.home / "config.toml").write_text(f'[views]\nstore = "{database}"\n')
    inside.deed("trust", "--yes", "--home", str(alone.home))
    assert inside.deed("session", "list", "--home", str(alone.home)).code == 0
    with psycopg.connect(database) as connection:
        assert connection.execute("SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'deedbook\\_%'").fetchone() == (
            1,
        )
    assert "views equal what the log gives" in alone("verify", "--views")
