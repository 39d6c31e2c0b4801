"""Lists with ``--since`` and ``--until``, in words, and the printed command of their next page."""

from __future__ import annotations

import shlex
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import inside
import pytest
from calling import Deed, Place

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

STARTED = '{"task": "Why?", "ai_id": "m"}'
LISTS = {
    "session list": "items",
    "handoff list": "items",
    "reasoning list": "items",
    "review list": "items",
    "decisions": "items",
    "report query": "reports",
}


@pytest.fixture(scope="module")
def home(populated: Callable[[str], Path]) -> Path:
    """A ledger with two of everything."""
    path = populated("periods")
    for name in ("one", "two"):
        for call in (
            ("session", "start", name, "--task", name),
            ("report", "generate", name, "--task-summary", "done", "--finding", name),
            ("handoff", "create", name, "--title", name, "--to", "b", "--reviewer", "rita"),
            (
                "emit",
                "reasoning.started",
                "--stream",
                f"reasoning/{name}",
                "--data",
                f'{{"task": "{name}", "ai_id": "m"}}',
            ),
            ("emit", "review.requested", "--stream", f"review/{name}", "--data", '{"question": "?", "rule": "r"}'),
            ("decide", name, "--id", name),
        ):
            said = inside.deed("--home", path, *call, "--as", "a")
            assert said.code == 0, said
    return path


@pytest.fixture
def filled(capsys: pytest.CaptureFixture[str], home: Path) -> Deed:
    return Deed(capsys, Place(home))


@pytest.mark.parametrize("verb", LISTS)
def test_a_list_has_what_happened_in_a_period(filled: Deed, verb: str) -> None:
    of, today = LISTS[verb], datetime.now(UTC).date().isoformat()
    assert len(filled.data(*verb.split(), "--since", "1 hour ago")[of]) == 2
    assert len(filled.data(*verb.split(), "--until", today)[of]) == 2  # to the end of the day
    assert filled.data(*verb.split(), "--until", "1 hour ago")[of] == []
    if verb == "report query":
        return
    # The printed command fetches the next page of the same period.
    printed = filled.document(*verb.split(), "--since", "1 hour ago", "--limit", "1")["next"]
    assert len(filled.data(*shlex.split(printed)[1:])[of]) == 1
