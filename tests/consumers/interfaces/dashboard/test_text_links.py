from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deedbook.consumers.interfaces.dashboard.text_links import link_pieces, place_pieces

HASH = "sha256:70d37a3155f3a5969fcac9b2f7c2ddb35992cdfc20f23d6ee52537423d60c5ab"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("task done: Wake readers (handoff store-1)", [("store-1", "handoff", "store-1")]),
        ("the handoff was late (handoff or not)", []),
        (
            "as session/rotation-1, reasoning/r.2 and tot/x say.",
            [
                ("session/rotation-1", "session", "rotation-1"),
                ("reasoning/r.2", "reasoning", "r.2"),
                ("tot/x", "tot", "x"),
            ],
        ),
        ("src/handoff/x.py, handoff/x/y, https://a.b/session/s", []),
        (
            f"done. (Reasoning: {HASH}) (handoff a)",
            [
                ("sha256:70d37a31", "reasoning", HASH),
                ("a", "handoff", "a"),
            ],
        ),
        (f"entry {HASH}", [("sha256:70d37a31", "event", HASH)]),
        ("as event:70d37a3155f3 says", [("event:70d37a315", "event", "event:70d37a3155f3")]),
        ("sha256:70d3", []),
        ("见 handoff/x。", [("handoff/x", "handoff", "x")]),
    ],
)
def test_things_that_a_text_names_are_found(text: str, expected: list[tuple[str, str, str]]) -> None:
    assert [piece for piece in link_pieces(text) if piece.kind] == expected


@given(st.lists(st.sampled_from(["handoff/", "(handoff ", "a-1", ")", " ", ".", "session/s", HASH, "\u202e"])))
def test_nothing_of_a_text_is_lost(parts: list[str]) -> None:
    text = "".join(parts)
    assert "".join(piece.id if piece.id.startswith("sha256:") else piece.text for piece in link_pieces(text)) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("see [src/a.py:1], not src/a.py:12 or src/a.py:1-3", [("src/a.py:1", 1)]),
        ("src/a.py:12-14: checked; x/src/a.py:1", [("src/a.py:12-14", 2)]),
        ("没有 src/a.py:1。", [("src/a.py:1", 1)]),
        ("nothing", []),
    ],
)
def test_places_that_a_text_names_are_found(text: str, expected: list[tuple[str, int]]) -> None:
    lines = ((1, 0, 1), (12, 14, 2))
    places = [{"path": "src/a.py", "line": line, "end": end, "number": number} for line, end, number in lines]
    pieces = place_pieces(text, [*places, {"path": "", "line": 0, "end": 0, "number": 3}])
    assert [piece for piece in pieces if piece[1]] == expected
    assert "".join(piece for piece, _ in pieces) == text
