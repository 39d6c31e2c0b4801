"""Rows of sessions and reports: whole runs of their verbs against ``python -c pass``, and beside `empirica`'s.

The ledger holds 100 sessions of one agent, each with assessments, findings and a report, and 20 handoffs. `empirica` is
a tool with similar sessions and reports (``peers`` installs it). It runs with a home and a repository of the
benchmark's own. It has no handoffs between agents; its nearest equivalent is its list of goals. It stores one session
and one report, our ledger a hundred of each.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from deedbook.consumers.sessions.generator import ReportInputs
from deedbook.consumers.sessions.report import publish_report
from deedbook.ledger.client.author import Author
from deedbook.ledger.events.session import (
    AssessmentRecorded,
    FindingLogged,
    SessionStarted,
    UnknownLogged,
    Vectors,
)
from deedbook.projections.answers.reader import Reader
from tests.bench.pairs import Bench, Budget, Row, ratios, scaled, seconds
from tests.bench.peers import EMPIRICA, installed
from tests.bench.workload import AUTHOR, open_ledger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tests.building import Ledger

SESSIONS: Final = scaled(100, 10)
HANDOFFS: Final = 20
RUNS_A_ROUND: Final = 2
START_BUDGET: Final = Budget("≤", 6.0)
BUDGET: Final = Budget("≤", 0.3)
PASS: Final = (sys.executable, "-c", "pass")
BEFORE: Final = Vectors(know=0.5, do=0.7, context=0.6, uncertainty=0.5)
AFTER: Final = Vectors(know=0.9, do=0.9, context=0.8, uncertainty=0.2)
ASSESS: Final = (
    *("session", "assess", "session-0", "PREFLIGHT", "--as", AUTHOR, "--vector", "know=0.5", "--vector", "do=0.6"),
    *("--vector", "context=0.6", "--vector", "uncertainty=0.4", "--reasoning", "r"),
)


class Verb(NamedTuple):
    """One of our verbs, and its equivalent in `empirica` (arguments and standard input)."""

    ours: tuple[str, ...]
    theirs: tuple[str, ...]
    given: dict[str, Any] | None = None


VERBS: Final = (
    Verb(("report", "resume", "--json"), ("sessions-resume", "--ai-id", "bench", "--output", "json")),
    Verb(("report", "query", "--json"), ("handoff-query", "--ai-id", "bench", "--output", "json")),
    Verb(("handoff", "list", "--json"), ("goals-list", "--output", "json")),
    Verb(
        ASSESS,
        ("preflight-submit", "-"),
        {
            "vectors": {"know": 0.5, "do": 0.6, "context": 0.6, "uncertainty": 0.4},
            "reasoning": "r",
            "task_context": "t",
        },
    ),
)


def rows(bench: Bench) -> Iterator[Row]:
    """Yield the rows of this group."""
    bench.say(f"recording {SESSIONS} sessions with reports")
    with open_ledger(bench.folder / "ledger") as ledger:
        fill(ledger)
    program = Path(sys.executable).with_name("deed")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment |= {
        "DEEDBOOK_HOME": str(bench.folder / "ledger"),
        "PYTHONPYCACHEPREFIX": str(bench.folder / "bytecode"),
    }

    def run(command: Sequence[str], _number: int) -> float:
        return seconds(lambda: subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL))

    rival = empirica(bench)
    noted = f"{SESSIONS} sessions with reports, views up to date, byte code cached"
    for verb in VERBS:
        name = " ".join(verb.ours[:2])
        note = f"{noted}; loads the tokenizer, to count exactly" if name == "report resume" else noted
        bench.say(f"deed {name}")
        ours = functools.partial(run, (str(program), *verb.ours))
        rounds = bench.rounds * RUNS_A_ROUND
        found = bench.paired(ours, functools.partial(run, PASS), rounds=rounds)
        yield Row(f"reports: deed {name}", ratios(found), "python -c pass", START_BUDGET, note)
        if rival is not None:
            beside = bench.paired(ours, functools.partial(rival, verb), rounds=bench.rounds)
            yield Row(f"reports: deed {name}", ratios(beside), f"empirica {verb.theirs[0]}", BUDGET, note)


def fill(ledger: Ledger) -> None:
    """Record the sessions and handoffs, publish a report of each session, and bring the views up to date."""
    for number in range(HANDOFFS):
        ledger.hand_over(f"2026-02-12-step-{number}", tasks=["read", "write"], criteria=["tests pass"])
    with ledger.client() as client, Reader(client, ledger.settings()) as reader:
        author = Author(client, AUTHOR, lambda _: ledger.keys[AUTHOR])
        for number in range(SESSIONS):
            name = f"session-{number}"
            for data in (
                SessionStarted(task=f"Find out why part {number} of the backup stalls", ai_id="bench"),
                AssessmentRecorded(phase="PREFLIGHT", vectors=BEFORE),
                *(FindingLogged(finding=f"Region {n} of part {number} keeps an index in memory") for n in range(4)),
                UnknownLogged(unknown=f"Whether part {number} ever frees it"),
                AssessmentRecorded(phase="POSTFLIGHT", vectors=AFTER),
            ):
                ledger.emit(AUTHOR, f"session/{name}", data)
            publish_report(author, reader.answer, name, ReportInputs(next_session_context="Look at the index first."))
        reader.answer("reports.list", {"limit": 1})


def empirica(bench: Bench) -> Callable[[Verb, int], float] | None:
    """Return a function that runs `empirica` in a project with one session and report; None if not installed."""
    program, folder = installed(bench, EMPIRICA), bench.folder / "empirica"
    if program is None:
        return None
    folder.mkdir()
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment |= {"HOME": str(folder), "PYTHONPYCACHEPREFIX": str(folder / "bytecode")}

    def call(*words: str, given: dict[str, Any] | None = None) -> str:
        command = words if words[0] == "git" else (str(program), *words)
        text = "" if given is None else json.dumps(given)
        done = subprocess.run(
            command, cwd=folder, env=environment, input=text, check=True, capture_output=True, text=True, timeout=120
        )
        return done.stdout

    try:
        call("git", "init", "-q")
        who = ("-c", "user.name=bench", "-c", "user.email=bench@example.org")
        call("git", *who, "commit", "-q", "--allow-empty", "-m", "first")
        session = json.loads(call("session-create", "--ai-id", "bench", "--auto-init", "--output", "json"))[
            "session_id"
        ]
        findings = json.dumps([f"Region {n} keeps an index in memory" for n in range(4)])
        call(
            *("handoff-create", "--session-id", session, "--task-summary", "Find out why the backup stalls"),
            *("--key-findings", findings, "--next-session-context", "Look at the index first.", "--planning-only"),
        )
    except (OSError, subprocess.SubprocessError, ValueError, KeyError) as error:
        bench.say(f"empirica is not measured: {program}: {error}")
        return None

    def run(verb: Verb, _number: int) -> float:
        given = None if verb.given is None else verb.given | {"session_id": session}
        return seconds(lambda: call(*verb.theirs, given=given))

    return run
