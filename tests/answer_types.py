"""A fixture that fails a test if a query answers with another type than it declares (only in the test's process)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from deedbook.projections.answers import checked, view_reader
from deedbook.projections.answers.query import Plain
from deedbook.projections.views.registry import QUERIES


def conforming(query: str, answer: Plain) -> Plain:
    """Return the answer; the test fails if a field is missing, unknown or of another type."""
    returns = QUERIES[query].returns
    again = msgspec.to_builtins(msgspec.convert(answer, returns, str_keys=True), str_keys=True)
    assert again == answer, f"{query} does not answer what {returns} says"
    return answer


@pytest.fixture(autouse=True, scope="session")
def answers_have_their_types() -> Any:
    """Check the type of each answer, from views and from signed entries."""
    marked, mark = view_reader.marked, checked.mark
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            view_reader, "marked", lambda context, query, answer: conforming(query, marked(context, query, answer))
        )
        patch.setattr(checked, "mark", lambda query, answer, *looks: conforming(query, mark(query, answer, *looks)))
        yield
