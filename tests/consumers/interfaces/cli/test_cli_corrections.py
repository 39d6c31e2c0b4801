"""`deed session retract` and `resolve`: findings that a session no longer believes, and unknowns that it answered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from calling import Deed

AS_A = ("--as", "a")


def test_what_is_blank_is_no_finding(deed: Deed, fresh: Any) -> None:
    deed("session", "start", name := fresh("blank"), *AS_A)
    for text in ("   ", "\u00a0\u200b\t", "\u3000\n"):
        error = deed.refuses("INVALID_FIELD", "session", "finding", name, text, *AS_A)
        assert error["message"] == "the text is blank: write something at $.data.finding"
    deed("session", "finding", name, " . ", *AS_A)
    error = deed.refuses("INVALID_FORMAT", "session", "finding", name, "half \ud800 of it", *AS_A)
    assert "$.data.finding contains a lone surrogate" in error["message"]
    deed("session", "end", name, *AS_A)
