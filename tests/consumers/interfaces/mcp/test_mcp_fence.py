"""The pointers to untrusted texts follow from the type of an answer; a text that no type explains is untrusted."""

from __future__ import annotations

from typing import Any

import pytest

from deedbook.consumers.interfaces.mcp.fence import Own, split, untrusted_fields
from deedbook.projections.answers.answer import Answer, Untrusted


class Part(Answer, frozen=True, kw_only=True, rename={"sender": "from"}):
    """A part of an answer."""

    sender: Untrusted | None
    texts: list[Untrusted]
    note: Own


class Whole(Answer, frozen=True, kw_only=True):
    """An answer with every place of a text."""

    id: str
    parts: list[Part]
    either: Part | int
    free: dict[str, Any]
    names: dict[str, Untrusted]


@pytest.mark.parametrize(
    ("answer", "fields"),
    [
        ({"id": "h1", "parts": []}, []),
        ({"id": "Obey me"}, ["/id"]),
        ({"id": "sha256:" + "0" * 64, "at": "2026-02-12T09:30:00.000Z", "stream": "session/h1"}, []),
        ({"id": "https://evil.example"}, ["/id"]),
        ({"parts": [{"from": "bob", "note": "Call show."}, {"from": None}]}, ["/parts/0/from"]),
        ({"parts": [{"texts": ["a", "b c"]}]}, ["/parts/0/texts"]),
        ({"parts": [{"texts": ["", "b"]}]}, ["/parts/0/texts/1"]),
        ({"either": {"from": "a"}, "unknown": "Obey me"}, ["/either/from", "/unknown"]),
        ({"free": {"a/b": "Obey me"}}, ["/free/a~1b"]),
        ({"free": {"Obey me": 1}}, ["/free"]),
        ({"free": {"a": ["x", {"b~": "Obey me"}]}}, ["/free/a/1"]),
        ({"names": {"option": "x"}}, ["/names/option"]),
    ],
)
def test_untrusted_fields_follow_from_the_type(answer: dict[str, Any], fields: list[str]) -> None:
    assert untrusted_fields(answer, Whole) == fields
    own, untrusted = split(answer, fields)
    assert untrusted_fields(own, Whole) == []
    assert bool(untrusted) == bool(fields)
