"""Quotas: a record per agent counts its appends; repeats are free; a quota recovers with time and affects no others."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from building import Ledger
from checking import check_log

from deedbook.ledger.admission.check import check
from deedbook.ledger.admission.gate import Gate
from deedbook.ledger.client.author import Draft
from deedbook.ledger.errors import Unavailable
from deedbook.ledger.events.session import FindingLogged, SessionStarted
from deedbook.ledger.home.quota import Quota, QuotaUsage, spend

if TYPE_CHECKING:
    from pathlib import Path

    from deedbook.ledger.format.envelope import Submission


def findings(ledger: Ledger, author: str, number: int, count: int = 1) -> Submission:
    """Return a submission of findings in an agent's session."""
    drafts = [Draft(stream=f"session/{author}", data=FindingLogged(finding=f"{number}.{n}")) for n in range(count)]
    return ledger.sign(author, *drafts)


def start(ledger: Ledger, *authors: str) -> None:
    """Start a session for each agent."""
    for author in authors:
        ledger.emit(author, f"session/{author}", SessionStarted())


def test_agent_appends_up_to_its_quota_and_continues_later(ledger: Ledger) -> None:
    gate = Gate(ledger.log, clock_ms=ledger.clock, quota=Quota(events_per_minute=3))
    start(ledger, "alice", "bob")
    accepted = [gate.submit(findings(ledger, "alice", number))[0] for number in range(3)]
    with pytest.raises(Unavailable) as refused:
        gate.submit(findings(ledger, "alice", 3))
    assert refused.value.code == "QUOTA_EXCEEDED"
    assert refused.value.recoverable
    assert refused.value.details["wait_s"] == 21
    assert "events_per_minute" in refused.value.message
    gate.submit(findings(ledger, "bob", 0))
    (again,) = gate.submit(findings(ledger, "alice", 0))  # a repeat gets the first answer, even beyond the quota
    assert (again.index, again.is_repeat) == (accepted[0].index, True)
    ledger.clock.advance(21)
    gate.submit(findings(ledger, "alice", 4))
    check_log(ledger.log)


def test_one_author_beyond_its_quota_does_not_affect_the_others_of_a_group(ledger: Ledger) -> None:
    gate = Gate(ledger.log, clock_ms=ledger.clock, quota=Quota(events_per_minute=2))
    start(ledger, "alice", "bob")
    sent = (("alice", 0), ("alice", 1), ("alice", 2), ("bob", 0))
    group = [check(findings(ledger, author, number)) for author, number in sent]
    answers = gate.admit(group)
    assert [isinstance(answer, Unavailable) for answer in answers] == [False, False, True, False]
    check_log(ledger.log)


def test_bytes_are_counted_over_a_day() -> None:
    quota = Quota(event_bytes_per_day=1000)
    usage = spend(QuotaUsage(), quota, author="alice", events=1, size=900, now_ms=0)
    with pytest.raises(Unavailable) as refused:
        spend(usage, quota, author="alice", events=1, size=500, now_ms=0)
    assert refused.value.details["setting"] == "event_bytes_per_day"
    wait_ms = refused.value.details["wait_s"] * 1000
    assert wait_ms <= 24 * 3600 * 1000 * 0.41
    assert spend(usage, quota, author="alice", events=1, size=500, now_ms=wait_ms).size <= 1000


def test_submission_larger_than_the_limit_passes_if_the_quota_is_unused() -> None:
    quota = Quota(events_per_minute=10)
    usage = spend(QuotaUsage(), quota, author="alice", events=256, size=1, now_ms=0)
    with pytest.raises(Unavailable):
        spend(usage, quota, author="alice", events=1, size=1, now_ms=0)


def test_a_clock_that_went_back_gives_nothing_away() -> None:
    usage = spend(QuotaUsage(), Quota(events_per_minute=10), author="alice", events=10, size=1, now_ms=1_000_000)
    with pytest.raises(Unavailable):
        spend(usage, Quota(events_per_minute=10), author="alice", events=1, size=1, now_ms=0)


APPEND = """
import sys
from pathlib import Path
from building import Ledger
from deedbook.ledger.admission.gate import Gate
from deedbook.ledger.client.author import Draft
from deedbook.ledger.errors import Unavailable
from deedbook.ledger.events.session import FindingLogged
from deedbook.ledger.home.quota import Quota
with Ledger(Path(sys.argv[1])) as ledger:
    gate = Gate(ledger.log, clock_ms=ledger.clock, quota=Quota(events_per_minute=10))
    try:
        drafts = [Draft(stream="session/alice", data=FindingLogged(finding=sys.argv[2]))]
        gate.submit(ledger.sign("alice", *drafts))
    except Unavailable as error:
        print(error.code)
"""


def test_processes_that_append_one_event_each_are_counted_together(home: Path) -> None:
    with Ledger(home) as ledger:
        start(ledger, "alice")
        gate = Gate(ledger.log, clock_ms=ledger.clock, quota=Quota(events_per_minute=10))
        gate.submit(findings(ledger, "alice", 0, 8))
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    program = [sys.executable, "-c", APPEND, str(home)]
    processes = [subprocess.run([*program, f"{n}"], env=environment, capture_output=True, check=True) for n in range(3)]
    assert [process.stdout.strip() for process in processes] == [b"", b"", b"QUOTA_EXCEEDED"]
