"""Every ranked answer is in the order of its scores, and a young ledger warns of no unrelated dead end."""

from __future__ import annotations

import random
import re
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from view_ledger import ViewLedger

from deedbook.consumers.interfaces.hooks.prime import prime, said_by
from deedbook.consumers.sdk.quotation import Origin
from deedbook.ledger.events import reasoning, session
from deedbook.projections.answers.reader import Reader
from deedbook.projections.search import similar

if TYPE_CHECKING:
    from collections.abc import Iterator

WORDS: Final = [
    "pool",
    "leaks",
    "handles",
    "token",
    "expires",
    "parser",
    "grammar",
    "cache",
    "grows",
    "backup",
    "disk",
    "queue",
    "登录",
    "超时",
    "index",
    "scan",
    "release",
    "notes",
]
SAID: Final = st.lists(st.sampled_from([*WORDS, "leaking", "zebra", "the"]), min_size=1, max_size=7)
QUESTIONS: Final = SAID.filter(lambda words: {*words} != {"the"}).map(" ".join)


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    """A ledger with sessions, dead ends, reports and reasonings of few words, so that many of them are similar."""
    chosen = random.Random(5)

    def text() -> str:
        return " ".join(chosen.choices(WORDS, k=chosen.randint(1, 9)))

    with ViewLedger(tmp_path_factory.mktemp("ranked") / ".deedbook") as ledger:
        for number in range(30):
            name = f"s{number}"
            found = [session.FindingLogged(finding=text()) for _ in range(chosen.randint(0, 3))]
            failed = [session.DeadEndLogged(approach=text(), why_failed=text()) for _ in range(chosen.randint(0, 3))]
            ledger.emit_all("bob", f"session/{name}", session.SessionStarted(task=text()), *found, *failed)
            if number % 3:
                findings = [text() for _ in range(3)]
                ledger.report(name, task=text(), task_summary=text(), key_findings=findings, remaining_unknowns=[])
        for number in range(10):
            started = reasoning.ReasoningStarted(task=text(), ai_id="bob")
            step = reasoning.Step(step_number=1, type="observation", content=text())
            concluded = reasoning.ReasoningConcluded(conclusion=text())
            extended = reasoning.ReasoningExtended(steps=[step])
            ledger.emit_all("bob", f"reasoning/r{number}", started, extended, concluded)
        with Reader(ledger.reads, ledger.settings()) as made:
            yield made


def in_order(rows: list[dict[str, float]]) -> bool:
    scores = [row["score"] for row in rows]
    return scores == sorted(scores, reverse=True)


@settings(max_examples=30)
@given(question=QUESTIONS)
def test_every_ranked_list_is_in_the_order_of_its_scores(reader: Reader, question: str) -> None:
    assert in_order(reader.answer("search.similar", {"task": question, "limit": 50})["items"])
    related = reader.answer("search.related", {"task": question, "limit": 50})
    lists = [related[name] for name in ("dead_ends", "reasonings", "sessions")]
    assert all(map(in_order, lists))
    assert {row["near"] for rows in lists for row in rows} <= {"near", "related"}
    found = reader.answer("search.find", {"text": question, "limit": 50})
    assert found["holds"] == "all" or in_order(found["items"])
    if found["holds"] == "some" and found["total"] > 1:
        first = reader.answer("search.find", {"text": question, "limit": 1})
        second = reader.answer("search.find", {"text": question, "limit": 1, "after": first["next"]})
        assert [*first["items"], *second["items"]] == found["items"][:2]


@settings(max_examples=10)
@given(task=QUESTIONS)
def test_prime_lists_what_is_near_before_what_is_only_related(reader: Reader, task: str) -> None:
    text = prime(reader.answer, lambda _: b"", Origin("0", "open"), task=task, budget=20_000).text
    for heading in ("### Dead ends", "### Earlier work"):
        section = text.partition(heading)[2].partition("###")[0]
        nearness = re.findall(r"^- .*?, (near|related): ", section, flags=re.MULTILINE)
        assert len(nearness) == len(re.findall(r"^- ", section, flags=re.MULTILINE))
        assert nearness == sorted(nearness)
    first, _, rows = section.partition("\n")
    assert ("`deed report resume --session-id ID`" in first) == ("\n- session " in f"\n{rows}")
    assert ("`deed reasoning brief ID`" in first) == ("\n- reasoning " in f"\n{rows}")


def test_pairs_of_reports_are_in_the_order_of_their_scores(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(similar, "few_reports_min", 30)  # each of the few words is in many reports
    pairs = reader.answer("reports.overlap", {"limit": 100})["items"]
    assert len(pairs) > 1
    assert in_order(pairs)


YOUNG: Final = (
    ("Looking for duplicate hooks", "None are left"),
    ("Clear the plugin cache before the release", "It comes back"),
    ("Change the Tailscale ACL", "Port 22 stays closed"),
)


@pytest.fixture
def young(home) -> Iterator[Reader]:
    """A ledger of one day: three dead ends, and too few events to know which words are common."""
    with ViewLedger(home) as ledger:
        for number, (approach, why) in enumerate(YOUNG):
            failed = session.DeadEndLogged(approach=approach, why_failed=why)
            ledger.emit_all("bob", f"session/y{number}", session.SessionStarted(task=approach), failed)
        with Reader(ledger.reads, ledger.settings()) as made:
            yield made


@pytest.mark.parametrize("task", ["Write the release notes", "Look at the buffer", "Fix the cache of the compiler"])
def test_a_young_ledger_warns_of_no_dead_end_of_strangers(young: Reader, task: str) -> None:
    assert reader_warns(young, task) == []
    assert young.answer("search.related", {"task": task})["dead_ends"] == []
    hits = young.answer("search.find", {"text": task})["items"]
    assert {hit["near"] for hit in hits} == {"far"}


@pytest.mark.parametrize("number", range(len(YOUNG)))
def test_a_young_ledger_warns_of_what_failed_in_such_a_task(young: Reader, number: int) -> None:
    (line,) = reader_warns(young, f"{YOUNG[number][0]} again")
    assert f", near: {YOUNG[number][0]}" in line


def reader_warns(reader: Reader, task: str) -> list[str]:
    """Return the lines of prime about dead ends."""
    text = prime(reader.answer, lambda _: b"", Origin("0", "open"), task=task).text
    section = text.partition("do not try these again")[2].partition("###")[0]
    return [line for line in section.splitlines() if line.startswith("- ")]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"author": "bob", "imported": None, "ai_id": "opus"}, "bob"),
        ({"author": "bob"}, "bob"),  # a reasoning
        ({"author": "bob", "imported": {"importer": "bob"}, "ai_id": "opus"}, "opus (imported by bob)"),
        ({"author": "bob", "imported": {"importer": "bob"}, "ai_id": ""}, "unknown (imported by bob)"),
    ],
)
def test_imported_work_is_not_said_to_be_its_importers(row: dict[str, object], said: str) -> None:
    assert said_by(row) == said
