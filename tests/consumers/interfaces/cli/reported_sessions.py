"""A session with a report, recorded with the verbs of the command line."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from calling import Deed

    Fresh = Callable[[str], str]

AS_A = ("--as", "a")
BEFORE = '{"know": 0.5, "do": 0.8, "uncertainty": 0.6}'
AFTER = '{"know": 0.9, "do": 0.9, "uncertainty": 0.2}'
CACHE = "Find the leak in the cache of the event bus"


def begin(deed: Deed, name: str, task: str = CACHE, *more: object) -> str:
    """Start a session of a with a PREFLIGHT and a finding; return its id."""
    deed("session", "start", name, *AS_A, "--task", task, *more)
    deed("session", "assess", name, "PREFLIGHT", *AS_A, "--vectors", BEFORE)
    deed("session", "finding", name, f"We learned how {name} evicts", *AS_A)
    return name


def finish(deed: Deed, name: str, *more: object) -> dict[str, Any]:
    """Record the POSTFLIGHT of a session; return the answer about its report."""
    said = deed.run("session", "assess", name, "POSTFLIGHT", *AS_A, "--vectors", AFTER, *more, "--json")
    assert said.code == 0, said.out
    report: dict[str, Any] = json.loads(said.out)["data"]["report"]
    return report
