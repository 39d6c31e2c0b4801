"""The program in a bundle reads an event as the gate does: it refuses the same events."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from event_examples import PROTO
from faults import chances, times
from json_mutations import bodies, mutated_text
from judges import program

from deedbook.ledger.bundle.program import schemas
from deedbook.ledger.errors import Refused
from deedbook.ledger.events import CORE_KINDS
from deedbook.ledger.events.body import decode_body
from deedbook.ledger.format.envelope import Entry
from deedbook.ledger.limits import body_size_max_bytes


def is_read_by_gate(text: bytes) -> bool:
    """Whether the gate takes a body for an event."""
    try:
        decode_body(text)
    except Refused:
        return False
    return len(text) <= body_size_max_bytes


def is_read_alone(kinds: Any, text: bytes) -> bool:
    """Whether the program in a bundle does."""
    entry = Entry(1, text, bytes(32), 1, bytes(64), 0, 1, 0, 1, 1)
    try:
        kinds.read(0, program().read_entry(entry.encode()))
    except program().FAULTS:
        return False
    return True


def test_example_of_each_kind_is_read_by_both() -> None:
    kinds = program().Kinds(schemas())
    assert kinds.kinds.keys() == CORE_KINDS.keys()


def test_refused_bodies_are_refused_with_the_same_code() -> None:
    kinds = program().Kinds(schemas())
    cases = json.loads((PROTO / "vectors" / "invalid_bodies.json").read_bytes())["cases"]
    codes = {}
    for case in cases:
        entry = Entry(1, bytes.fromhex(case["hex"]), bytes(32), 1, bytes(64), 0, 1, 0, 1, 1)
        try:
            kinds.read(0, program().read_entry(entry.encode()))
        except program().FAULTS as fault:
            codes[case["name"]] = fault.code
    assert codes == {case["name"]: case["code"] for case in cases}


def test_changed_bodies_are_read_alike() -> None:
    kinds, given = program().Kinds(schemas()), bodies()
    counts: Counter[bool] = Counter()
    for chance in chances("fields", times(250, 2000)):
        text = mutated_text(chance.choice(given), chance)
        is_read = is_read_by_gate(text)
        assert is_read_alone(kinds, text) == is_read, text
        counts[is_read] += 1
    assert min(counts[True], counts[False]) > 20, counts
