"""Fetching with a local version: the smallest form is sent, and the receiver's own hash decides whether it is right."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from building import Ledger
from graphs import audit_graph

from deedbook.consumers.reasoning.compressor.transfer import (
    FetchedGraph,
    GraphCache,
    fetch,
    find_base,
    graphs_cached_max,
    read_graph_file,
)
from deedbook.ledger.errors import Corrupted, Refused
from deedbook.ledger.events.reasoning import (
    AssumptionSettled,
    ReasoningConcluded,
    ReasoningExtended,
    ReasoningStarted,
    Step,
)
from deedbook.projections.answers.reader import Reader
from deedbook.projections.briefs import tokens
from deedbook.projections.briefs.tokens import ESTIMATE_NAME, Tokenizer, estimate_tokens
from deedbook.projections.reasoning import delta
from deedbook.projections.reasoning.delta import read_payload
from deedbook.projections.reasoning.memory import canonical_json, compute_reasoning_ref

AUDIT = audit_graph()


def record(ledger: Ledger, name: str, *, settled: bool = True) -> None:
    """Let bob record the demo's audit, one event for each step, settle step 3 and conclude."""
    stream = f"reasoning/{name}"
    ledger.emit("bob", stream, ReasoningStarted(task=AUDIT.task, ai_id="bob-1", domain="security"))
    for one in AUDIT.steps:
        number = one.step_number
        rests_on = {number: AUDIT.dependencies[number]} if number in AUDIT.dependencies else {}
        step = msgspec.convert(one.to_dict(), Step)
        ledger.emit("bob", stream, ReasoningExtended(steps=[step], dependencies=rests_on))
    if settled:
        ledger.emit("bob", stream, AssumptionSettled(step=3, holds=True, how="Validated: 日志已加密 since 2024-10"))
    ledger.emit("bob", stream, ReasoningConcluded(conclusion=AUDIT.conclusion, confidence_in_reasoning=0.9))


@pytest.fixture
def reader(ledger: Ledger) -> Iterator[Reader]:
    """A reader of a ledger in which bob recorded the audit."""
    record(ledger, "audit")
    with ledger.client() as client, Reader(client, ledger.settings()) as made:
        yield made


def refs(reader: Reader, name: str = "audit") -> list[str]:
    """Return the refs of all versions, oldest first."""
    return [one["ref"] for one in reader.answer("reasoning.show", {"id": name})["versions"]]


def test_receiver_of_a_delta_computes_the_ref_he_asked_for(reader: Reader) -> None:
    found = refs(reader)
    for base in found:
        have = fetch(reader.answer, base).memory
        fetched = fetch(reader.answer, found[-1], have=have)
        assert fetched.ref == found[-1] == "sha256:" + hashlib.sha256(fetched.canonical.encode()).hexdigest()
        assert fetched.memory == fetch(reader.answer, found[-1]).memory


def test_little_is_sent_for_the_last_step(reader: Reader) -> None:
    found = refs(reader)
    fetched = fetch(reader.answer, found[-1], have=fetch(reader.answer, found[-3]).memory)
    assert (fetched.sent.sent_as, fetched.sent.base) == ("squashed", found[-3])
    assert fetched.sent.transferred.tokens < 0.25 * fetched.sent.full.tokens
    whole = fetch(reader.answer, found[-1])
    assert (whole.sent.sent_as, whole.sent.base) == ("full", None)
    assert whole.sent.transferred == whole.sent.full == fetched.sent.full


@pytest.mark.parametrize("exact", [True, False])
def test_nothing_larger_than_the_smallest_of_the_three_is_sent(
    reader: Reader, monkeypatch: pytest.MonkeyPatch, *, exact: bool
) -> None:
    if not exact:
        estimate = Tokenizer(ESTIMATE_NAME, exact=False, count=estimate_tokens)
        for module in (delta, tokens):
            monkeypatch.setattr(module, "tokenizer", lambda: estimate)
    unit = "tokens" if exact and tokens.tokenizer().exact else "bytes"
    found = refs(reader)
    sent = set()
    for position, base in enumerate(found):
        for later, wanted in enumerate(found):
            answer = reader.answer("reasoning.fetch", {"id": wanted, "have": base})
            sizes = {name: size[unit] for name, size in answer["sizes"].items() if size is not None}
            assert (answer["ref"], answer["base"]) == (wanted, base)
            assert sizes[answer["sent_as"]] == min(sizes.values())
            assert answer["sizes"][answer["sent_as"]]["bytes"] == len(answer["payload"].encode())
            assert ("chain" in sizes) == (position <= later)
            sent.add(answer["sent_as"])
    assert sent >= {"full", "squashed"}


@pytest.mark.parametrize(("exact", "smallest"), [(True, "squashed"), (False, "full")])
def test_tokens_decide_only_where_they_are_counted_exactly(
    monkeypatch: pytest.MonkeyPatch, *, exact: bool, smallest: str
) -> None:
    words = Tokenizer("words", exact=exact, count=lambda text: len(text.split()))
    monkeypatch.setattr(delta, "tokenizer", lambda: words)
    monkeypatch.setattr(delta, "count_tokens", words.count)
    assert delta.choose({"full": "a b c", "squashed": "one-long-word", "chain": "another-long-word"})[0] == smallest


def test_every_way_of_sending_comes_to_the_same_graph(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    found = refs(reader)
    have = fetch(reader.answer, found[2]).memory
    for way in ("full", "chain", "squashed"):
        with monkeypatch.context() as patched:
            patched.setattr("deedbook.projections.reasoning.queries.choose", _always(way))
            fetched = fetch(reader.answer, found[-1], have=have)
        assert (fetched.sent.sent_as, fetched.ref) == (way, found[-1])


def _always(way: Any) -> Callable[[Any], Any]:
    return lambda payloads: (way, {name: delta.measure(payload) for name, payload in payloads.items()})


def test_version_that_is_at_hand_costs_nothing_but_its_name(reader: Reader) -> None:
    fetched = fetch(reader.answer, "audit", have=fetch(reader.answer, "audit").memory)
    assert fetched.sent.transferred.tokens < 40
    assert fetched.sent.sizes.full.bytes


def test_base_of_another_reasoning_has_no_chain_but_may_help(ledger: Ledger, reader: Reader) -> None:
    record(ledger, "twin", settled=False)
    answer = reader.answer("reasoning.fetch", {"id": "audit", "have": "twin"})
    assert (answer["sent_as"], answer["sizes"]["chain"]) == ("squashed", None)
    twin = reader.answer("reasoning.show", {"id": "twin"})
    fetched = fetch(reader.answer, "audit", have=fetch(reader.answer, "twin").memory)
    assert fetched.sent.base == twin["ref"]
    assert fetched.ref == refs(reader)[-1]


def test_base_that_two_reasonings_came_through_is_a_link_of_both_chains(ledger: Ledger, reader: Reader) -> None:
    record(ledger, "twin")
    shared = refs(reader, "twin")[4]
    assert shared == refs(reader)[4]
    for name in ("audit", "twin"):
        assert reader.answer("reasoning.fetch", {"id": name, "have": shared})["sizes"]["chain"] is not None


def test_base_that_the_ledger_does_not_know_is_refused(reader: Reader) -> None:
    with pytest.raises(Refused) as refused:
        fetch(reader.answer, "audit", have=AUDIT)
    assert refused.value.code == "NOT_FOUND"


# A dishonest sender


def answering(reader: Reader, **changes: Any) -> Callable[[str, dict[str, Any]], dict[str, Any]]:
    """Return a view that answers as the reader does, except for ``changes``."""
    return lambda query, arguments: reader.answer(query, arguments) | changes


def test_tampered_delta_never_passes_for_the_graph(reader: Reader) -> None:
    found = refs(reader)
    have = fetch(reader.answer, found[-3]).memory
    honest = reader.answer("reasoning.fetch", {"id": found[-1], "have": found[-3]})
    for old, new in (("Validated", "Refuted"), ("0.9", "0.8"), (found[-1][7:19], found[-2][7:19]), ("{", "")):
        assert old in honest["payload"]
        view = answering(reader, payload=honest["payload"].replace(old, new, 1))
        with pytest.raises(Corrupted) as noticed:
            fetch(view, found[-1], have=have)
        assert noticed.value.code == "VERIFICATION_FAILED"


def test_delta_that_leads_elsewhere_is_noticed_though_it_is_consistent(reader: Reader) -> None:
    found = refs(reader)
    have = fetch(reader.answer, found[-3]).memory
    other = reader.answer("reasoning.fetch", {"id": found[-2], "have": found[-3]})
    for view in (answering(reader, payload=other["payload"]), lambda *_: other):
        with pytest.raises(Corrupted):
            fetch(view, found[-1], have=have)


def test_delta_for_another_base_than_the_receiver_has_is_refused(reader: Reader) -> None:
    found = refs(reader)
    other = reader.answer("reasoning.fetch", {"id": found[-1], "have": found[-4]})
    with pytest.raises(Refused) as refused:
        fetch(lambda *_: other, found[-1], have=fetch(reader.answer, found[-3]).memory)
    assert refused.value.code == "VERSION_MISMATCH"
    with pytest.raises(Corrupted):
        fetch(lambda *_: other, found[-1])


# Versions that are kept


def test_full_reasoning_is_fetched_by_its_ref_with_or_without_an_earlier_version(reader: Reader) -> None:
    (first, *_, last) = refs(reader)
    memory = fetch(reader.answer, last).memory
    assert compute_reasoning_ref(memory) == last
    assert fetch(reader.answer, last, have=fetch(reader.answer, first).memory).memory == memory
    with pytest.raises(Refused):
        fetch(reader.answer, "sha256:" + "0" * 64)


def test_cache_gives_back_what_was_fetched_and_nothing_that_was_changed(reader: Reader, tmp_path: Path) -> None:
    cache, fetched = GraphCache(tmp_path), fetch(reader.answer, "audit")
    assert cache.find(fetched.ref) is None
    assert cache.keep(fetched)
    for asked in (fetched.ref, fetched.ref[7:19]):
        assert cache.find(asked) == fetched.memory
    assert (cache.find("audit"), cache.find("../../x")) == (None, None)
    (file,) = (tmp_path / "cache" / "graphs").iterdir()
    file.write_bytes(file.read_bytes().replace(b"0.9", b"0.8", 1))
    assert cache.find(fetched.ref) is None


def test_cache_keeps_a_limited_number_of_graphs(reader: Reader, tmp_path: Path) -> None:
    cache, fetched = GraphCache(tmp_path), fetch(reader.answer, "audit")
    folder = tmp_path / "cache" / "graphs"
    folder.mkdir(parents=True)
    for number in range(graphs_cached_max + 5):
        (folder / f"{number}.json").touch()
    cache.keep(fetched)
    assert len(list(folder.iterdir())) == graphs_cached_max


def test_graph_that_cannot_be_kept_is_fetched_all_the_same(reader: Reader, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("not a folder")
    cache = GraphCache(tmp_path)
    base = find_base(reader.answer, cache, "audit", None)
    assert (base.origin, cache.find(refs(reader)[-1])) == ("ledger", None)


def test_file_with_a_graph_must_be_one(reader: Reader, tmp_path: Path) -> None:
    file = tmp_path / "graph.json"
    file.write_bytes(canonical_json(AUDIT))
    assert compute_reasoning_ref(read_graph_file(file)) == compute_reasoning_ref(AUDIT)
    wrong = {
        "INVALID_FORMAT": b"{",
        "DUPLICATE_KEY": b'{"a": 1, "a": 1}',
        "INVALID_FIELD": b"{}",
        "UNKNOWN_FIELD": json.dumps(json.loads(canonical_json(AUDIT)) | {"colour": "red"}).encode(),
    }
    for code, text in wrong.items():
        file.write_bytes(text)
        with pytest.raises(Refused) as refused:
            read_graph_file(file)
        assert refused.value.code == code
    for missing in (tmp_path / "none.json", tmp_path):
        with pytest.raises(Refused) as refused:
            find_base(reader.answer, GraphCache(tmp_path), None, missing)
        assert refused.value.code == "NOT_FOUND"


def test_payload_is_all_that_a_receiver_needs(reader: Reader) -> None:
    answer = reader.answer("reasoning.fetch", {"id": "audit"})
    assert canonical_json(read_payload("full", answer["payload"])) == fetch(reader.answer, "audit").canonical.encode()
    assert isinstance(fetch(reader.answer, "audit"), FetchedGraph)
