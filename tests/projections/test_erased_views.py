"""Views after bodies were erased: their answers, which files still have the texts, and how often views start over."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from every_kind import live
from faults import is_long_run, times
from folding import digests_of
from fresh_fold import Beginning
from test_past import answer_of

from deedbook.consumers.reasoning.citations import Citations
from deedbook.consumers.reasoning.compressor.transfer import fetch
from deedbook.consumers.reasoning.snapshots.act import act_on
from deedbook.ledger.admission.rewriter import finish_erasures
from deedbook.ledger.client.local import LocalClient
from deedbook.ledger.errors import Refused, Unavailable
from deedbook.ledger.events.handoff import HandoffLogged
from deedbook.ledger.events.session import FindingLogged, SessionStarted
from deedbook.ledger.system.files import files_that_hold
from deedbook.projections.answers import checked
from deedbook.projections.answers.reader import Reader
from deedbook.projections.stores import store as store_module
from deedbook.projections.views import runner as runner_module
from deedbook.projections.views.comparison import verify_views
from deedbook.projections.views.registry import VIEWS
from deedbook.projections.views.runner import Runner

if TYPE_CHECKING:
    from collections.abc import Callable

    from postgres import Postgres
    from view_ledger import ViewLedger

    from deedbook.projections.stores.store import LocalStore

SECRET = "correct-horse-battery-staple"
COMPARED: list[tuple[str, dict[str, Any]]] = [
    *((f"{family}.list", {}) for family in ("handoffs", "sessions", "decisions", "questions", "reviews", "agents")),
    *((f"{family}.list", {}) for family in ("snapshots", "tot", "reasoning", "records", "validations")),
    *(("handoffs.show", {"id": name}) for name in "abdefgh"),
    *(("handoffs.why", {"id": name}) for name in "abdefgh"),
    *(("handoffs.next", {"agent": name}) for name in ("bob", "rita")),
    ("handoffs.board", {"all": True}),
    ("sessions.show", {"id": "s2"}),
    ("catalog.find", {"limit": 500}),
]
# Fields derived from texts: digests, sizes, and tags.
OF_TEXTS = {"body_ref", "size", "ref", "tags", "tree_digest"}


def log_secrets(ledger: ViewLedger, number: int = 1) -> list[int]:
    """Let bob log findings with the secret among other findings; return their indexes."""
    ledger.record_session("s1")
    ledger.emit("bob", "session/s2", SessionStarted(task="Find the leak"))
    found = []
    for at in range(number):
        found.append(ledger.emit("bob", "session/s2", FindingLogged(finding=f"{at}: the password is {SECRET}")).index)
        ledger.emit("bob", "session/s2", FindingLogged(finding=f"{at}: nothing else"))
    return found


def redact_step(ledger: ViewLedger, reader: Reader, name: str) -> int:
    """Let root erase step 1 of a reasoning, as `deed redact` does; return the index of the entry."""
    (version,) = [row for row in reader.answer("reasoning.show", {"id": name})["versions"] if row["version"] == 2]
    index: int = version["event_index"]
    versions = reader.answer("redactions.versions", {"entry": index})["versions"]
    named = {int(number): ref for number, ref in versions.items()}
    ledger.emit("root", "ledger", ledger.redaction(index, "a name", versions=named))
    return index


def files_of(ledger: ViewLedger) -> list[Path]:
    """Return the files of views that contain the secret."""
    found = files_that_hold(ledger.home.path.rglob("*"), [SECRET])
    return [path for path in found if path.name.startswith("views.db")]


def count_starts(monkeypatch: pytest.MonkeyPatch, store: type) -> list[None]:
    """Return a list to which an item is added each time that views start over."""
    starts: list[None] = []
    empty: Callable[..., None] = store.empty
    monkeypatch.setattr(store, "empty", lambda self, is_expected: (starts.append(None), empty(self, is_expected))[1])
    return starts


def check_whole(reader: Reader) -> None:
    """Check that the stored views equal views that are folded from the log."""
    reader.catch_up()
    assert verify_views(reader.client, reader.store, VIEWS) == []


def test_no_file_of_the_views_holds_an_erased_text_and_every_row_names_who_erased_it(
    ledger: ViewLedger, reader: Reader
) -> None:
    (index,) = log_secrets(ledger)
    reader.catch_up()
    assert reader.answer("search.find", {"text": SECRET})["total"] == 1
    damaged = ledger.home.views.with_name("views.db.damaged")
    damaged.write_bytes(SECRET.encode())  # the repair of a damaged file leaves such a copy
    assert files_of(ledger)
    redaction = ledger.redact(index).index
    assert reader.answer("sessions.show", {"id": "s2"})["redacted"]["entry"] == index
    assert files_of(ledger) == []
    shown = reader.answer("catalog.show", {"id": str(index)})
    mark = shown["redacted"]
    assert (mark["redaction"], mark["by"], mark["reason"]) == (redaction, "root", "it holds a password")
    assert "redacted" not in reader.answer("catalog.show", {"id": str(index + 1)})
    assert SECRET not in str(reader.answer("search.find", {"text": f'"{SECRET}"'}))
    (listed,) = reader.answer("redactions.list", {"stream": "session/s2"})["items"]
    assert (listed["entry"], listed["kind"], listed["is_erased"]) == (index, "finding.logged", True)
    check_whole(reader)
    assert files_of(ledger) == []


def test_log_with_many_redactions_is_folded_once(
    ledger: ViewLedger, reader: Reader, monkeypatch: pytest.MonkeyPatch, open_store: Callable[..., LocalStore]
) -> None:
    entries = log_secrets(ledger, 20)
    reader.catch_up()
    starts = count_starts(monkeypatch, type(reader.store))
    for index in entries:
        ledger.redact(index)
    monkeypatch.setattr(runner_module, "batch_events_max", 7)
    check_whole(reader)
    assert len(starts) == 1
    store = open_store(ledger.home.path / "other.db")
    Runner(ledger.reads, store, VIEWS).catch_up()
    reader.rebuild([view.name for view in VIEWS])
    assert len(starts) == 1
    assert digests_of(store) == digests_of(reader.store)


@pytest.mark.parametrize("unlinked", range(5))
def test_process_that_is_killed_while_it_deletes_the_file_leaves_the_rest_to_the_next(
    ledger: ViewLedger, reader: Reader, monkeypatch: pytest.MonkeyPatch, unlinked: int
) -> None:
    (index,) = log_secrets(ledger)
    reader.catch_up()
    ledger.redact(index)
    unlink, done = Path.unlink, []

    def killed(path: Path, **options: Any) -> None:
        if path.name.startswith("views.db"):
            if len(done) == unlinked:
                raise KeyboardInterrupt
            done.append(path)
        unlink(path, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", killed)
        with pytest.raises(KeyboardInterrupt):
            reader.answer("sessions.list")
    assert len(done) == unlinked
    with Reader(ledger.reads, ledger.settings()) as other:
        assert other.answer("sessions.show", {"id": "s2"})["redacted"]["entry"] == index
        check_whole(other)
    assert files_of(ledger) == []


def test_two_readers_that_are_open_go_on_and_start_over_once(
    ledger: ViewLedger, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    (index,) = log_secrets(ledger)
    with Reader(ledger.reads, ledger.settings()) as other:
        before = [each.answer("sessions.list") for each in (reader, other)]
        ledger.redact(index)
        after = [each.answer("sessions.list") for each in (reader, other)]
        assert after[0] == after[1] != before[0]
        check_whole(other)
        check_whole(reader)
    assert files_of(ledger) == []


def test_open_past_loses_the_text_and_nothing_else(ledger: ViewLedger, reader: Reader) -> None:
    (index,) = log_secrets(ledger)
    question = ("sessions.show", {"id": "s2"}, ledger.size - 1)
    before = reader.answer(*question)
    assert SECRET in str(before)
    ledger.redact(index)
    for _ in range(2):
        after = reader.answer(*question)
        assert SECRET not in str(after)
        assert after.pop("redacted")["entry"] == index
        findings = zip(before["findings"], after["findings"], strict=True)
        assert [old["event_index"] for old, new in findings if old != new] == [index]
        assert after | {"findings": 0} == before | {"findings": 0}


def test_checked_answers_name_the_redaction_too(ledger: ViewLedger) -> None:
    ledger.hand_over("h", task=f"use {SECRET}")
    index = ledger.size - 1
    ledger.emit("alice", "handoff/h", HandoffLogged(text="begun"))
    before = ledger.size - 1
    ledger.redact(index)
    with LocalClient(ledger.settings(), log=ledger.log, views=Reader) as client:
        for as_of in (None, before):
            answers = [ask(client, "handoffs.show", {"id": "h"}, as_of) for ask in (checked.ask, LocalClient.view)]
            assert [answer["redacted"]["entry"] for answer in answers] == [index, index]
            assert answers[0]["redacted"] == answers[1]["redacted"]
            assert SECRET not in str(answers)


def test_cited_version_of_a_redacted_reasoning_is_found_and_opens_no_gate(ledger: ViewLedger, reader: Reader) -> None:
    ref = ledger.reason("r1")
    ledger.validate("r1", ref)
    ledger.brief("r1", ref)
    ledger.hand_over("h", reasoning_refs=[ref])
    cited = ledger.size - 1
    assert not reader.answer("validations.latest", {"id": ref})["erased"]
    index = redact_step(ledger, reader, "r1")
    with LocalClient(ledger.settings(), log=ledger.log, views=Reader) as client:
        for ask in (reader.answer, lambda query, arguments: checked.ask(client, query, arguments)):
            shown = ask("reasoning.show", {"id": ref})
            assert (shown["id"], shown["asked_version"], shown["redacted"]["entry"]) == ("r1", 6, index)
            verdict = ask("validations.latest", {"id": ref})
            assert (verdict["outcome"], verdict["latest"], verdict["erased"]) == ("unchecked", None, [index])
            assert ask("validations.list", {"id": ref})["total"] == 1
            with pytest.raises(Refused, match="was redacted") as refused:
                fetch(ask, ref)
            assert refused.value.details["redacted"] == [index]
            with pytest.raises(Refused, match="was redacted"):
                act_on(ask, ref)
            decision = act_on(ask, "reasoning/r1")
            assert (decision.action, decision.rule and decision.rule.name) == ("human_review_required", "redacted")
            assert not decision.may_act
            (citation,) = Citations(ask).of([ref])
            assert f"entry {index} was redacted by root" in citation["said"]
    assert reader.answer("resolve", {"id": ref})["reasoning_id"] == "r1"
    step = next(
        row for row in reader.answer("catalog.why", {"id": str(cited)})["causes"] if row["via"] == "reasoning_ref"
    )
    assert step["stream"] == "reasoning/r1"
    assert reader.answer("reasoning.show", {"id": ref}, cited)["asked_version"] == 6


def test_erased_conclusions_are_no_equal_conclusions(ledger: ViewLedger, reader: Reader) -> None:
    for name in ("r1", "r2"):
        ledger.reason(name)
    last = ledger.size - 1
    ledger.redact(last)
    assert reader.answer("validations.latest", {"id": "r1"})["rederived"] == []
    assert reader.answer("validations.latest", {"id": "r2"})["rederived"] == []


def test_node_whose_log_lags_does_not_fold_into_views_that_erased_more(ledger: ViewLedger, database: str) -> None:
    (index,) = log_secrets(ledger)
    behind = Beginning(ledger.reads, ledger.size)
    with Reader(ledger.reads, ledger.settings(), store=database) as reader:
        reader.catch_up()
        ledger.redact(index)
        store = reader.store
        leading = Runner(ledger.reads, store, VIEWS)
        leading._step(None)  # the views start over, and their worker is killed
        leading._step(None)
        with pytest.raises(Unavailable, match="a node whose log is ahead"):
            Runner(behind, store, VIEWS).catch_up()
        check_whole(reader)


def test_no_file_of_postgres_but_its_own_log_holds_an_erased_text(
    ledger: ViewLedger, database: str, postgres: Postgres
) -> None:
    entries = log_secrets(ledger, 20)
    for _ in range(20):
        ledger.clock.advance(1)
        ledger.emit("bob", "session/s2", FindingLogged(finding=f"often: {SECRET}"))
    entries += range(ledger.size - 20, ledger.size)
    with Reader(ledger.reads, ledger.settings(), store=database) as reader:
        reader.catch_up()
        reader.answer("sessions.show", {"id": "s2"}, ledger.size - 1)  # leaves a connection with shadow tables open
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute("ANALYZE")
            connection.execute("CHECKPOINT")
            assert postgres_files(postgres)
            for index in entries:
                ledger.redact(index)
            check_whole(reader)
            connection.execute("CHECKPOINT")
        assert postgres_files(postgres) == []
        assert reader.answer("sessions.show", {"id": "s2"}, ledger.size - 1)["redacted"]["entries"] == 40


def postgres_files(postgres: Postgres) -> list[Path]:
    """Return the files of the server that contain the secret, except its write-ahead log."""
    found = files_that_hold((postgres.folder / "data").rglob("*"), [SECRET])
    return [path for path in found if "pg_wal" not in path.parts]


@pytest.mark.parametrize("seed", range(times(1, 6)))
def test_random_redactions_change_no_answer_but_its_texts(
    ledger: ViewLedger, reader: Reader, database: str, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(store_module, "stretch_events", 13)
    chosen = random.Random(seed)
    live(ledger)
    with Reader(ledger.reads, ledger.settings(), store=database) as shared:
        for _ in range(2):
            at = [chosen.randrange(20, ledger.size) for _ in range(3 if is_long_run else 1)]
            questions = [(*question, index) for index in at for question in COMPARED]
            before = {str(question): answer_of(reader, *question) for question in questions}
            shared.catch_up()
            redacted = redact_some(ledger, reader, chosen, 5)
            for each in (reader, shared):
                check_whole(each)
            assert digests_of(shared.store) == digests_of(reader.store)
            for question in questions:
                check_same(before[str(question)], answer_of(reader, *question), (redacted, question))


def redact_some(ledger: ViewLedger, reader: Reader, chosen: random.Random, number: int) -> list[int]:
    """Let root redact random entries that may be erased; return their indexes."""
    redacted: list[int] = []
    candidates = [index for index in range(ledger.size) if ledger.event(index).erased is None]
    for index in chosen.sample(candidates, len(candidates)):
        if len(redacted) == number:
            break
        versions = reader.answer("redactions.versions", {"entry": index})["versions"]
        try:
            data = ledger.redaction(index, versions={int(number): ref for number, ref in versions.items()})
        except Refused:
            continue  # the entry has no text, or its texts decide whether later entries are valid
        ledger.clock.advance(1)
        ledger.emit("root", "ledger", data)
        finish_erasures(ledger.log)
        redacted.append(index)
    return redacted


def check_same(before: Any, after: Any, about: Any, name: str = "") -> None:
    """Check that two answers differ only in texts and in fields derived from texts."""
    if isinstance(before, dict) and isinstance(after, dict):
        names = [{*answer} - {"redacted", "compromised"} for answer in (before, after)]
        assert names[0] == names[1], (about, name)
        for each in names[0]:
            check_same(before[each], after[each], about, each)
    elif isinstance(before, list) and isinstance(after, list):
        assert len(before) == len(after) or name in OF_TEXTS, (about, name, before, after)
        for old, new in zip(before, after, strict=False):
            check_same(old, new, about, name)
    elif before != after:
        are_texts = isinstance(before, str) and isinstance(after, str)
        is_erased = are_texts and ("[redacted]" in after or "*" in after or before.startswith(after))
        assert is_erased or name in OF_TEXTS, (about, name, before, after)
