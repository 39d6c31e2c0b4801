"""Answers have the types that their queries declare."""

from __future__ import annotations

import msgspec
from view_ledger import ViewLedger

from deedbook.ledger.events.authority import KeyCompromised
from deedbook.projections.answers.reader import Reader
from deedbook.projections.views.registry import QUERIES


def test_a_mark_is_on_the_rows_that_have_one_and_on_no_part_of_them(ledger: ViewLedger, reader: Reader) -> None:
    ledger.fill()
    author = reader.answer("reasoning.show", {"id": "r1"})["author"]
    stolen = KeyCompromised(key=ledger.keys[author].public.hex(), since=1)
    report = ledger.emit("root", f"agent/{author}", stolen).index
    answer = reader.answer("reasoning.show", {"id": "r1"})
    assert (answer["compromised"], {row["compromised"] for row in answer["versions"]}) == (report, {report})
    typed = msgspec.convert(answer, QUERIES["reasoning.show"].returns, str_keys=True)  # fails at unknown fields
    assert msgspec.to_builtins(typed, str_keys=True) == answer
