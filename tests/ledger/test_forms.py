"""Lines have no line breaks, labels no invisible characters, ids no ambiguous characters; refusals explain this."""

from __future__ import annotations

from typing import Any

import pytest
from building import Actors
from hypothesis import given
from hypothesis import strategies as st

from deedbook.consumers.sdk.text import replace_line_breaks
from deedbook.ledger.client.author import Draft
from deedbook.ledger.errors import Refused
from deedbook.ledger.events.body import decode_body
from deedbook.ledger.events.fields import Label, Line
from deedbook.ledger.events.handoff import HandoffId
from deedbook.ledger.format.codec import converted

BREAKS = ["\n", "\r", "\v", "\f", "\x1c", "\x85", "\u2028", "\u2029"]
UNSEEN = ["\u200b", "\u202e", "\u2066", "\ufeff", "\xad", "\U000e0041", "\u3164"]
ALIKE = ["e\u0301", "\xa0x", "\u3000x", "x\ufe0f", "\u1112\u1161", "-x", " x", "x ", "a  b", "\u2800"]


def refusal(text: str, kind: object) -> Refused:
    """Return the refusal of a text, and check that it does not repeat the text."""
    with pytest.raises(Refused) as refused:
        converted(text, kind, "$.data.title")  # type: ignore[type-var]  # any field's type
    assert refused.value.code == "INVALID_FIELD"
    assert text not in refused.value.message
    return refused.value


@pytest.mark.parametrize("text", [*BREAKS, "\x1b", "\x00", "\x9b"])
def test_line_holds_no_break(text: str) -> None:
    assert "use spaces instead at $.data.title" in refusal(f"safe{text}status", Line).message
    refusal(f"safe{text}status", Label)
    assert converted(replace_line_breaks(f"safe{text}status"), Line) == "safe status"  # type: ignore[arg-type]


@pytest.mark.parametrize("text", UNSEEN)
def test_label_holds_nothing_that_nobody_sees(text: str) -> None:
    refusal(f"safe{text}", Label)
    assert converted(f"safe{text}", Line)  # type: ignore[arg-type]  # words of any language


@pytest.mark.parametrize(
    ("kind", "data"),
    {
        "handoff.logged": {"text": "x"},
        "session.ended": {},
        "reasoning.started": {"task": "x"},
        "snapshot.taken": {"vectors": {}, "context_source": "none"},
        "review.answered": {"verdict": "approved"},
        "record.imported": {"original": "sha256:" + "0" * 64, "source": "x", "format": "x"},
    }.items(),
)
def test_id_that_looks_like_another_is_refused_on_every_stream(kind: str, data: dict[str, Any]) -> None:
    family, actors = kind.partition(".")[0], Actors()
    for name in (*ALIKE, *(f"a{text}b" for text in (*BREAKS, *UNSEEN))):
        (body,) = actors.sign("alice", Draft(stream=f"{family}/{name}", kind=kind, data=data)).bodies
        with pytest.raises(Refused, match="choose another") as refused:
            decode_body(body)
        assert (refused.value.code, refused.value.details) == ("INVALID_FIELD", {"path": "$.stream"}), ascii(name)
    (body,) = actors.sign("alice", Draft(stream=f"{family}/修复 a-b_c.1", kind=kind, data=data)).bodies
    decode_body(body)


@pytest.mark.parametrize("text", [*UNSEEN, *ALIKE, ".x", "a/b"])
def test_dependency_has_the_form_of_an_id(text: str) -> None:
    assert "a handoff's id names its file" in refusal(text, HandoffId).message


@given(st.text(min_size=1, max_size=200))
def test_text_put_on_a_line_is_one(text: str) -> None:
    assert len(converted(replace_line_breaks(text), Line).splitlines()) == 1  # type: ignore[arg-type]


def test_refusal_of_a_choice_does_not_repeat_what_was_chosen() -> None:
    draft = Draft(stream="review/x", kind="review.answered", data={"verdict": "hunter2-hunter2"})
    with pytest.raises(Refused) as refused:
        decode_body(Actors().sign("alice", draft).bodies[0])
    assert "hunter2" not in str(refused.value)
