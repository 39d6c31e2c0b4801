from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deedbook.consumers.interfaces.dashboard.text_links import link_pieces

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
