"""The sessions most similar to a task, with their dead ends and reasonings; and repeated work that is recognized."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from building import key_named
from note_repository import repository
from paraphrases import PAIRS
from retold import ALONE, TWICE
from view_ledger import ViewLedger

from deedbook.consumers.importers.empirica.importer import import_notes, read_notes
from deedbook.consumers.importers.empirica.notes import Repository
from deedbook.consumers.interfaces.hooks.prime import prime
from deedbook.consumers.sdk.quotation import Origin
from deedbook.ledger.client.author import Author
from deedbook.ledger.events import session
from deedbook.projections.answers.query import QueryContext, Where
from deedbook.projections.answers.reader import Reader
from deedbook.projections.briefs import embedding
from deedbook.projections.search import nearness, similar
from deedbook.projections.search.nearness import Question
from deedbook.projections.search.words import words_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from retold import Account

POOL = "Find out why the connection pool leaks file handles under load"
DOCS = "Translate the user manual into French"
CASES = Path(os.environ.get("DEEDBOOK_CASES", Path(__file__).parents[3] / "shared" / "cases")) / "empirica-notes"


@pytest.fixture
def reports(ledger):
    """Three sessions: two about the pool, one about something else."""
    for name, task, finding in (
        ("pool", POOL, "The pool is never closed after an exception"),
        ("again", "The connection pool leaks handles", "After an exception the pool is never closed"),
        ("docs", DOCS, "The glossary lacks 40 terms"),
    ):
        failed = session.DeadEndLogged(approach=f"Tried {name}", why_failed="It did not help")
        ledger.emit_all("bob", f"session/{name}", session.SessionStarted(task=task, ai_id=name), failed)
        ledger.report(name, task=task, task_summary="Found it", key_findings=[finding, f"Only {name}"], ai_id=name)
    return ledger


def write(ledger: ViewLedger, name: str, told: Account) -> None:
    """Let bob record the session that an account describes, and publish a report on it."""
    findings = [session.FindingLogged(finding=finding) for finding in told.findings]
    ledger.emit_all("bob", f"session/{name}", session.SessionStarted(task=told.task), *findings)
    ledger.report(name, task=told.task, task_summary=told.outcome, key_findings=list(told.findings), ai_id="bob")


@pytest.fixture(scope="module")
def retold(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    """A reader of a ledger with work that was done once, and both accounts of work that was done twice."""
    with ViewLedger(tmp_path_factory.mktemp("retold") / ".deedbook") as ledger:
        for number, told in enumerate(ALONE):
            write(ledger, f"alone-{number}", told)
        for number, pair in enumerate(TWICE):
            for account, told in zip("ab", pair, strict=True):
                write(ledger, f"{account}-{number}", told)
        for number, (text, _) in enumerate(PAIRS):
            ledger.emit("bob", f"session/said-{number}", session.SessionStarted(task=text))
        with Reader(ledger.reads, ledger.settings()) as made:
            yield made


def names(reader: Reader, task: str, **more: Any) -> list[str]:
    """Return the sessions nearest to a task."""
    return [one["session_id"] for one in reader.answer("search.similar", {"task": task} | more)["items"]]


def words_alone(reader: Reader, goal: str, own: str, count: int = 5) -> bool:
    """Return whether plain BM25, on whole words alone, ranks a session among the first ``count``."""
    words = " OR ".join(f'"{word}"' for word in dict.fromkeys(words_of(goal)))
    sql = (
        "SELECT e.stream FROM search_words JOIN events e ON e.event_index = search_words.rowid "
        "WHERE search_words MATCH ? AND e.stream >= 'session/' AND e.stream < 'session0' ORDER BY search_words.rank"
    )
    with reader.store.reading() as reading:
        streams = dict.fromkeys(row["stream"] for row in reading.rows(sql, (words,)))
    return f"session/{own}" in list(streams)[:count]


def test_the_nearest_sessions_come_first_and_how_near_is_said(reports, reader):
    found = reader.answer("search.similar", {"task": "a pool that leaks handles"})
    assert [one["session_id"] for one in found["items"]][2:] == ["docs"]
    assert [one["near"] for one in found["items"]][:2] == ["near", "near"]
    assert found["items"][2]["score"] < 0.5
    first = next(one for one in found["items"] if one["session_id"] == "pool")
    assert (first["task"], first["outcome"], first["key_findings"][1]) == (POOL, "Found it", "Only pool")
    assert (found["total"], found["embedder"]) == (3, str(embedding.best_embedder()))


def test_a_session_without_a_task_says_which_passage_is_near(ledger, reader):
    lines = [session.FindingLogged(finding=text) for text in ("The glossary lacks terms", "The pool leaks handles")]
    ledger.emit_all("bob", "session/untold", session.SessionStarted(), *lines)
    (row,) = reader.answer("search.similar", {"task": "leaking handles"})["items"]
    assert (row["task"], row["outcome"], row["excerpt"]) == ("", "", "The pool leaks handles")
    (row,) = reader.answer("search.related", {"task": "leaking handles"})["sessions"]
    assert row["excerpt"] == "The pool leaks handles"
    text = prime(reader.answer, lambda _: b"", Origin("0", "open"), task="leaking handles").text
    assert "near: “The pool leaks handles”" in text


@pytest.mark.parametrize(
    "task", ["found it", "glossary terms lacking", "Übersetzung", "!!!", "the", "数据库", "0a" * 6]
)
def test_task_outcome_and_findings_are_searched_and_there_is_always_a_nearest(reports, reader, task):
    found = names(reader, task)
    assert bool(found) == (task not in {"!!!", "the"})
    if "glossary" in task:
        assert found[0] == "docs"


@pytest.mark.parametrize("task", ["xglossary xlacks xterms", "'; DROP TABLE events;--"])
def test_spellings_show_a_way_where_no_word_is_found_and_are_never_called_near(reports, reader, monkeypatch, task):
    monkeypatch.setattr(embedding, "_semantic", lambda: None)
    found = reader.answer("search.similar", {"task": task})["items"]
    assert {one["near"] for one in found} == {"far"}
    assert found[0]["session_id"] == "docs" or "DROP" in task


def test_a_session_need_not_find_itself_and_agents_can_be_chosen(reports, reader):
    assert "pool" not in names(reader, POOL, session="pool")
    assert names(reader, POOL, ai_id="docs") == ["docs"]
    assert len(names(reader, POOL, limit=1)) == 1
    assert names(reader, POOL, since=reports.clock.now_ms + 1) == []


def test_what_failed_and_was_reasoned_about_a_task_comes_without_what_is_far(reports, reader):
    recent = session.DeadEndLogged(approach="Tried recent", why_failed="The pool leaks handles all the same")
    reports.emit_all("bob", "session/recent", session.SessionStarted(task=POOL), recent)
    reports.reason("login")
    found = reader.answer("search.related", {"task": POOL})
    assert {one["session_id"] for one in found["dead_ends"]} == {"pool", "recent", "again"}
    assert found["dead_ends"][0]["approach"] == "Tried recent"
    assert {one["session_id"] for one in found["sessions"]} >= {"pool", "recent", "again"}
    assert (found["reasonings"], found["total"]) == ([], 3 + len(found["sessions"]))
    others = reader.answer("search.related", {"task": POOL, "session": "recent"})["sessions"]
    assert "recent" not in {one["session_id"] for one in others}
    (login,) = reader.answer("search.related", {"task": "is 登入 safe?"})["reasonings"]
    assert (login["id"], login["near"], login["conclusion"]) == ("login", "near", "It is.")
    assert len(reader.answer("search.related", {"task": POOL, "limit": 1})["dead_ends"]) == 1


def test_a_text_with_few_other_words_comes_before_a_long_one_with_the_same(ledger, reader, monkeypatch):
    monkeypatch.setattr(embedding, "_semantic", lambda: None)
    ledger.emit("bob", "session/short", session.SessionStarted(task="The backup job fails on the full disk"))
    padding = " ".join(f"matter{number}" for number in range(200))
    long = f"The backup is fine {padding}, the disk too; full of hope"
    ledger.emit("bob", "session/long", session.SessionStarted(task=long))
    rows = reader.answer("search.similar", {"task": "backup to a full disk"})["items"]
    assert [row["session_id"] for row in rows] == ["short", "long"]
    assert rows[0]["score"] > 1.5 * rows[1]["score"]


def test_the_digits_of_a_version_are_no_common_words(ledger, reader, monkeypatch):
    monkeypatch.setattr(embedding, "_semantic", lambda: None)
    tasks = {"same": "numpy 1.2.3 crashes", "v": "Tag v1.2.3", "other": "1 of 2 jobs took 3 s", "next": "numpy 1.2.4"}
    for name, task in tasks.items():
        ledger.emit("bob", f"session/{name}", session.SessionStarted(task=task))
    rows = reader.answer("search.similar", {"task": "Upgrade numpy to 1.2.3"})["items"]
    assert [row["session_id"] for row in rows] == ["same", "next", "v"]
    assert [row["near"] for row in rows] == ["near", "far", "far"]
    assert names(reader, "release 1.2") == ["next", "v", "same"]


def test_a_report_whose_words_are_spread_over_its_findings_warns_of_no_dead_end(ledger, reader):
    failed = session.DeadEndLogged(approach="Restarting the mail queue", why_failed="It stops again")
    ledger.emit_all("bob", "session/mail", session.SessionStarted(task="Mail is late"), failed)
    findings = ["The parser is quick", "A token of the queue is stale", "The grammar book is out of print"]
    ledger.report("mail", task="Mail is late", task_summary="Mail is on time", key_findings=findings)
    related = reader.answer("search.related", {"task": "Parser for the token grammar"})
    assert [row["session_id"] for row in related["sessions"]] == ["mail"]
    assert related["dead_ends"] == []
    for task in ("restart the queue of mail", "why is mail late"):
        (row,) = reader.answer("search.related", {"task": task})["dead_ends"]
        assert (row["approach"], row["near"]) == ("Restarting the mail queue", "near")


def test_the_work_of_somebody_else_is_found_by_the_words_in_which_it_was_set_again(retold):
    asked = [(f"a-{number}", again.task) for number, (_, again) in enumerate(TWICE)]
    asked += [(f"b-{number}", first.task) for number, (first, _) in enumerate(TWICE)]
    others = [names(retold, goal, session=("b" if own[0] == "a" else "a") + own[1:]) for own, goal in asked]
    assert all(others)
    ours = sum(own in found for (own, _), found in zip(asked, others, strict=True))
    plain = sum(words_alone(retold, goal, own, 6) for own, goal in asked)  # 6: first comes the goal's own session
    assert ours >= plain
    assert ours >= 22


def test_a_goal_in_quite_other_words_is_found_more_often_by_meaning(retold, monkeypatch):
    goals = [(f"said-{number}", goal) for number, (_, goal) in enumerate(PAIRS)]
    with_all = [own in names(retold, goal) for own, goal in goals]
    assert all(names(retold, goal) for _, goal in goals)
    plain = sum(words_alone(retold, goal, own) for own, goal in goals)
    assert sum(with_all) > plain
    if embedding.best_embedder().is_same(embedding.HASH_V1):
        pytest.skip("needs the extra semantic")
    monkeypatch.setattr(nearness, "meanings_compared_max", 0)
    assert sum(with_all) > sum(own in names(retold, goal) for own, goal in goals)


def test_work_that_was_done_twice_is_named_and_hardly_any_other(retold):
    found = retold.answer("reports.overlap", {"limit": 100})
    pairs = [sorted(one["session_id"] for one in overlap["sessions"]) for overlap in found["items"]]
    true = [pair for pair in pairs if pair[0][0] == "a" and pair[1] == f"b{pair[0][1:]}"]
    assert len(true) == len(TWICE)
    assert len(pairs) == len(true)
    assert all(overlap["score"] >= found["threshold"] and len(overlap["shared"]) >= 3 for overlap in found["items"])


def test_boilerplate_is_no_common_ground_and_words_are_told_as_they_were_written(ledger, reader):
    for number, task in enumerate(("Securities are closed when empty", "Closing empty securities", "Found an outcome")):
        ledger.emit("bob", f"session/s{number}", session.SessionStarted())
        ledger.report(f"s{number}", task_summary=task, key_findings=["Found it", "No outcome", "Session complete"])
    (pair,) = reader.answer("reports.overlap")["items"]
    assert pair["shared"] == ["closing", "empty", "securities"]


def test_words_that_many_reports_have_make_no_pair(ledger, reader):
    said = "Verified the suite, all checks passing"
    for number, subject in enumerate(("Kettle", "Harbour", "Violin", "Glacier", "Pepper", "Saddle")):
        ledger.emit("bob", f"session/s{number}", session.SessionStarted())
        ledger.report(f"s{number}", task_summary=f"{subject} 2026-02-1{number} v1.2", key_findings=[said, "Fixed 1.2"])
    assert reader.answer("reports.overlap")["items"] == []
    for number in (6, 7):
        findings = [said, "The anchor of the lighthouse boat is rusty"]
        ledger.emit("bob", f"session/s{number}", session.SessionStarted())
        ledger.report(f"s{number}", task_summary="Harbour again", key_findings=findings)
    (pair,) = reader.answer("reports.overlap")["items"]
    assert {*pair["shared"]} >= {"anchor", "lighthouse", "boat", "rusty"}
    assert not any(word.isdigit() for word in pair["shared"])


def test_findings_that_say_nothing_make_no_pair(ledger, reader):
    for number, task in enumerate(("Cal over", "Cal under", "Awkward chinese", "Test handoff from MCP")):
        findings = ["Finding 1", "Finding 2", "a", "b"]
        ledger.emit("bob", f"session/s{number}", session.SessionStarted())
        ledger.report(f"s{number}", task_summary=task, key_findings=findings)
    assert reader.answer("reports.overlap")["items"] == []


def test_overlap_tells_both_sessions_and_what_was_not_compared(reports, reader, monkeypatch):
    (pair,) = reader.answer("reports.overlap")["items"]
    assert [one["session_id"] for one in pair["sessions"]] == ["again", "pool"]
    assert {"pool", "leaks", "handles"} <= set(pair["shared"])
    now = reports.clock.now_ms
    assert reader.answer("reports.overlap", {"since": now})["total"] == 1
    assert reader.answer("reports.overlap", {"since": now + 1})["total"] == 0
    monkeypatch.setattr(similar, "overlap_compared_max", 2)
    found = reader.answer("reports.overlap")
    assert (found["total"], found["not_compared"]) == (0, 1)


def test_what_was_taken_back_is_neither_told_nor_counted(reports, reader):
    again = reports.emit(
        "bob", "session/pool", session.FindingLogged(finding="The pool is never closed after an exception")
    )
    dead_end = reader.answer("search.related", {"task": POOL})["dead_ends"][0]
    target = reports.event(dead_end["event_index"]).id
    name = dead_end["session_id"]
    reports.emit("bob", f"session/{name}", session.DeadEndRetracted(target=target, reason="It helps"))
    reports.emit("bob", "session/pool", session.FindingRetracted(target=again.id, reason="It is closed"))
    assert name not in {one["session_id"] for one in reader.answer("search.related", {"task": POOL})["dead_ends"]}
    told = {one["session_id"]: one["key_findings"] for one in reader.answer("search.similar", {"task": POOL})["items"]}
    assert told["pool"] == ["Only pool"]


def test_a_session_of_many_findings_leaves_room_for_others(reports, reader):
    reports.emit_all("bob", "session/many", session.SessionStarted(task="x"))
    for start in range(0, 400, 200):
        found = [session.FindingLogged(finding=f"pool leaks handles {number}") for number in range(start, start + 200)]
        reports.emit_all("bob", "session/many", *found)
    assert {"pool", "again", "many"} <= set(names(reader, "pool leaks handles"))


def test_many_words_and_no_condition_are_ranked_within_bounds(reports, reader):
    names(reader, POOL)  # brings the view up to date
    with reader.store.reading() as reading:
        moment = QueryContext(reading, 0)
        long = " ".join(f"w{number} pool" for number in range(5_000))
        assert nearness.nearest(moment, Question.weigh(moment, long), Where())
        assert nearness.nearest(moment, Question.weigh(moment, ""), Where()) == []
        assert len(nearness.nearest(moment, Question.weigh(moment, "pool"), Where(), count_max=2)) == 2


@pytest.mark.skipif(not CASES.is_dir(), reason="needs the notes of a real tool (DEEDBOOK_CASES)")
def test_the_goal_of_a_real_session_finds_what_else_it_recorded(ledger, reader, tmp_path):
    goals: list[tuple[str, str]] = []
    notes: list[tuple[str, Any]] = []
    for path in sorted(CASES.glob("*/*.json")):
        kind, session_id, *rest = path.stem.split("__")
        try:
            note = json.loads(path.read_bytes())
        except ValueError:
            continue
        if kind == "goals":
            continue  # goals are the queries of this test, so they are not imported
        if kind == "handoff" and len(note.get("task") or "") > 30:
            goals.append((session_id, note.pop("task")))
        notes.append(("/".join((kind, session_id, *rest)), note))
    author = Author(ledger.reads, "alice", lambda _: key_named("alice"))
    found = Repository(repository(tmp_path / "r", notes))
    read = read_notes(found, ("refs/notes/empirica",), reader.answer, put_blob=author.put_blob, importer="alice")
    import_notes(author, read)
    nearest = [names(reader, goal) for _, goal in goals]
    assert len(goals) >= 8
    assert all(nearest)
    ours = sum(own in first for (own, _), first in zip(goals, nearest, strict=True))
    assert ours >= sum(words_alone(reader, goal, own) for own, goal in goals)
