"""The reader: it folds first, returns plain values, and checks its arguments."""

from __future__ import annotations

import json

import pytest
from view_ledger import ARGUMENTS, ViewLedger

from deedbook.ledger.errors import Refused
from deedbook.projections.answers.reader import Reader
from deedbook.projections.views.registry import QUERIES


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    with (
        ViewLedger(tmp_path_factory.mktemp("filled") / ".deedbook") as ledger,
        Reader(ledger.reads, ledger.settings()) as reader,
    ):
        ledger.fill()
        ledger.brief("r1", reader.answer("reasoning.show", {"id": "r1"})["ref"])
        yield reader


@pytest.mark.parametrize("query", sorted(QUERIES))
def test_every_query_answers_plain_json_values(filled, query):
    answer = filled.answer(query, ARGUMENTS.get(query))
    assert answer
    assert json.loads(json.dumps(answer)) == answer


def test_an_answer_holds_what_was_in_the_log_when_it_was_asked(ledger, reader):
    assert reader.answer("handoffs.list")["total"] == 0
    ledger.hand_over("a")
    assert reader.answer("handoffs.list")["total"] == 1


def test_a_snapshot_never_gets_rows_that_another_thread_cached_for_other_versions(ledger):
    class RacedReader(Reader):
        """A reader whose cache another thread replaces as soon as it is set."""

        @property
        def _cached(self):
            return self.stored

        @_cached.setter
        def _cached(self, _):
            self.stored = ([], {"SELECT 1 AS number": [{"number": 2}]})

    with RacedReader(ledger.reads, ledger.settings()) as reader:
        reader.fold(group="")
        with reader.store.reading() as reading:
            assert reader._context(reading).cached("SELECT 1 AS number") == [{"number": 1}]


@pytest.mark.parametrize(
    ("query", "arguments", "code"),
    [
        ("handoffs.dance", {}, "USAGE"),
        ("handoffs.show", {}, "INVALID_FIELD"),
        ("handoffs.show", {"id": 3}, "INVALID_FIELD"),
        ("handoffs.show", {"id": "a", "colour": "red"}, "UNKNOWN_FIELD"),
        ("handoffs.list", {"stauts": "pending"}, "UNKNOWN_FIELD"),
        ("handoffs.list", {"status": "finished"}, "INVALID_FIELD"),
        ("handoffs.list", {"limit": 0}, "INVALID_FIELD"),
        ("handoffs.list", {"limit": 100_000}, "INVALID_FIELD"),
        ("catalog.why", {"id": "1", "depth": 10_000}, "INVALID_FIELD"),
        ("sessions.list", {"after": 2**53}, "INTEGER_OUT_OF_RANGE"),
        ("reports.list", {"after": 10**30}, "INTEGER_OUT_OF_RANGE"),
        ("reports.list", {"ai_id": "not\udcff text"}, "INVALID_FORMAT"),
        ("agents.show", {"id": "nobody"}, "NOT_FOUND"),
        ("reports.list", {"task_pattern": "(leak"}, "PATTERN_NOT_SUPPORTED"),
        ("reports.show", {"id": "none"}, "NOT_FOUND"),
        ("search.similar", {"task": ""}, "INVALID_FIELD"),
        ("sessions.show", {"id": "none"}, "NOT_FOUND"),
        ("reasoning.full", {"id": "none"}, "NOT_FOUND"),
    ],
)
def test_a_wrong_question_is_refused_with_its_code(reader, query, arguments, code):
    with pytest.raises(Refused) as refused:
        reader.answer(query, arguments)
    assert refused.value.code == code


def test_values_are_bound_and_never_part_of_the_sql(ledger, reader):
    ledger.hand_over("a")
    for value in ("' OR 1=1 --", "a'; DROP TABLE handoffs; --", '"'):
        assert reader.answer("handoffs.list", {"to": value})["total"] == 0
        assert reader.answer("catalog.find", {"stream": value})["total"] == 0
    assert reader.answer("handoffs.list")["total"] == 1


def test_as_of_answers_from_a_prefix_of_the_log(ledger, reader):
    ledger.hand_over("a")
    size = ledger.size
    ledger.hand_over("b")
    assert reader.answer("handoffs.list", as_of=size - 1)["total"] == 1
    assert reader.answer("catalog.find", as_of=size - 1)["total"] == size
    assert reader.answer("handoffs.list")["total"] == 2


def test_rebuild_leaves_the_same_answers(ledger, reader):
    ledger.fill()
    # These answers contain an age, which changes while the test runs.
    timed = {"briefs.best", "validations.latest"}
    before = {query: reader.answer(query, ARGUMENTS.get(query)) for query in QUERIES if query not in timed}
    assert reader.rebuild(["handoffs", "catalog"]) == ledger.size
    assert before == {query: reader.answer(query, ARGUMENTS.get(query)) for query in before}


def test_two_readers_of_one_folder_agree(ledger, reader):
    ledger.fill()
    with Reader(ledger.reads, ledger.settings()) as other:
        assert other.answer("handoffs.list") == reader.answer("handoffs.list")
