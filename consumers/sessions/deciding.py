"""What a sweep does with a session: end it, make its report, both or neither. Pure.

Rules this module keeps (SEEDS, 004):

- a session is ended only when it is open and idle for longer than was asked;
- a report is missing when the last POSTFLIGHT came after the last report; a CHECK asks for one only in a session that
  is over, because one that is going on may still reach its POSTFLIGHT;
- so what was swept once needs nothing the next time.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

SWEPT: Final = "never closed: swept"
"""The summary of a session that a sweep ended: it says nothing about the work."""

REPORTING_PHASES: Final = ("POSTFLIGHT", "CHECK")


class Seen(NamedTuple):
    """What a sweep knows of a session; indexes are those of the log, None where there is none."""

    session_id: str
    is_open: bool
    last_ms: int
    assessed: dict[str, int]
    report_index: int | None = None


class Decision(NamedTuple):
    """What is to be done with a session."""

    end: bool
    report: bool


def decide(seen: Seen, *, now_ms: int, older_than_ms: int) -> Decision:
    """Return what a sweep does with a session."""
    end = seen.is_open and now_ms - seen.last_ms >= older_than_ms
    is_over = end or not seen.is_open
    phases = REPORTING_PHASES if is_over else REPORTING_PHASES[:1]
    asking = max((seen.assessed[phase] for phase in phases if phase in seen.assessed), default=-1)
    return Decision(end, asking > (-1 if seen.report_index is None else seen.report_index))


def last_of_each_phase(assessments: list[dict[str, Any]]) -> dict[str, int]:
    """Return the index of the last assessment of each phase, out of an answer of ``sessions.show``."""
    return {one["phase"]: one["event_index"] for one in assessments}
