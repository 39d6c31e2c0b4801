"""Rows of peers: daily jobs as whole processes, against three tools that people could use instead, in the same run.

The first run of the group installs the tools, at the versions pinned here, into ``build/peers`` and nowhere else. A
short run (``--smoke``) measures only installed tools. A tool that cannot be installed has a row that says so. Each tool
has the same history: ``size`` items from alice to bob. All are done except thirty, which bob is working on. The history
is written in the tool's own storage format, because its commands would take hours. Then each tool does its nearest
equivalent of each job (``JOBS``). Only Deedbook also checks signatures, rules and approvals. Empirica lacks some jobs:
its goals have no receiver, no command shows a single goal, and its search needs a server.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import sqlite3
import statistics
import subprocess
import sys
import uuid
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from deedbook.ledger.events.handoff import HandoffApproved, HandoffClaimed, HandoffCompleted, HandoffCreated
from deedbook.ledger.lifecycle.handoff import compute_version
from deedbook.projections.answers.reader import Reader
from tests.bench.handoffs_large import append
from tests.bench.pairs import Bench, Budget, Row, ratios, scaled, seconds
from tests.bench.workload import open_ledger

if TYPE_CHECKING:
    from collections.abc import Iterable

SIZES: Final = (100, 10_000)[: scaled(2, 1)]
OPEN: Final = 30
BUDGET: Final = Budget("≤", 1.0)
JOBS: Final = ("create", "list open", "show", "complete", "search", "what waits for me")
FOLDER: Final = Path(__file__).parents[2] / "build" / "peers"

BACKLOG: Final = "backlog.md@1.52.0"
HANDOFF: Final = "baton-handoff==1.7.0"
EMPIRICA: Final = "empirica==1.14.18"


class Tool:
    """A tool, with its history in a folder; each subclass has the commands of one tool."""

    def __init__(self, program: str, folder: Path, size: int) -> None:
        """Write a history of ``size`` items into a new folder."""
        self.program, self.folder, self.size = program, folder, size
        self._runs: dict[str, Iterator[int]] = defaultdict(itertools.count)
        (folder / "home").mkdir(parents=True)
        self._environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        self._environment |= {"HOME": f"{folder}/home", "PYTHONPYCACHEPREFIX": f"{folder}/home/bytecode"}
        for role in ("AUTHOR", "COMMITTER"):
            self._environment |= {f"GIT_{role}_NAME": "bench", f"GIT_{role}_EMAIL": "bench@example.org"}
        self.fill()

    def fill(self) -> None:
        """Write the history."""
        raise NotImplementedError

    def commands(self, number: int) -> Mapping[str, Sequence[str]]:
        """Return the command's arguments for each job that the tool can do; ``number`` counts the runs of the job."""
        raise NotImplementedError

    def open_item(self, number: int) -> int:
        """Return the number of an item, from 1, that is not done yet."""
        return self.size - OPEN + 1 + number

    def call(self, *command: str) -> str:
        """Run a command in the folder, which must succeed, and return its output."""
        done = subprocess.run(
            command, cwd=self.folder, env=self._environment, input="", check=True, capture_output=True, text=True
        )
        return done.stdout

    def run(self, job: str) -> float:
        """Do a job once, and return the seconds that it takes."""
        command = (self.program, *self.commands(next(self._runs[job]))[job])
        return seconds(lambda: self.call(*command))


class Deedbook(Tool):
    """This project's command line, in a ledger in the folder."""

    def fill(self) -> None:
        """Append the handoffs with their approvals, claims and completions, and bring the views up to date."""
        self._environment |= {"DEEDBOOK_HOME": f"{self.folder}/ledger"}
        made = {
            f"step-{number}": HandoffCreated(title=title(number), to="bob", reviewer="rita", tasks=["read", "write"])
            for number in range(1, self.size + 1)
        }
        with open_ledger(self.folder / "ledger") as ledger:
            ledger.write_keys()
            append(ledger, "alice", [*made.items()])
            versions = {name: compute_version("alice", data) for name, data in made.items()}
            append(ledger, "rita", [(name, HandoffApproved(version=version)) for name, version in versions.items()])
            append(ledger, "bob", [(name, HandoffClaimed()) for name in made])
            done = [*made][: self.size - OPEN]
            append(ledger, "bob", [(name, HandoffCompleted(summary="done")) for name in done])
            with ledger.client() as client, Reader(client, ledger.settings()) as reader:
                reader.catch_up()

    def commands(self, number: int) -> Mapping[str, Sequence[str]]:
        """Return the commands; the queue of bob is checked from signed entries."""
        create = ("handoff", "create", f"new-{number}", "--as", "alice", "--to", "bob", "--reviewer", "rita")
        return {
            "create": (*create, "--title", title(number)),
            "list open": ("handoff", "list", "--status", "in_progress"),
            "show": ("handoff", "show", "step-7"),
            "complete": ("handoff", "complete", f"step-{self.open_item(number)}", "--as", "bob", "--summary", "done"),
            "search": ("search", "migration"),
            "what waits for me": ("next", "--as", "bob"),
        }


class Backlog(Tool):
    """Tasks as files in a git repository."""

    def fill(self) -> None:
        """Let the tool create its folder and one task, write the other tasks in the same form, and commit them."""
        self.call("git", "init", "--quiet")
        self.call(self.program, "init", "bench", "--defaults")
        self.call(self.program, "task", "create", title(1), "-a", "@bob", "--plain")
        (first,) = (self.folder / "backlog" / "tasks").glob("*.md")
        text = first.read_text()
        for number in range(1, self.size + 1):
            status = "Done" if number < self.open_item(0) else "In Progress"
            own = text.replace("TASK-1\n", f"TASK-{number}\n").replace(title(1), title(number))
            name = first.name.replace("task-1 ", f"task-{number} ").replace("Step-1-", f"Step-{number}-")
            (first.parent / name).write_text(own.replace("status: To Do", f"status: {status}"))
        self.call("git", "add", ".")
        self.call("git", "commit", "--quiet", "-m", "tasks")

    def commands(self, number: int) -> Mapping[str, Sequence[str]]:
        """Return the commands."""
        listed = ("task", "list", "--status", "In Progress", "--plain")
        return {
            "create": ("task", "create", title(number), "-a", "@bob", "--plain"),
            "list open": listed,
            "show": ("task", "view", "7", "--plain"),
            "complete": ("task", "edit", str(self.open_item(number)), "--status", "Done", "--plain"),
            "search": ("search", "migration", "--plain"),
            "what waits for me": (*listed, "--assignee", "@bob", "--ready"),
        }


class BatonHandoff(Tool):
    """A board of entries in files of JSON lines."""

    def fill(self) -> None:
        """Let the tool create its board and one hand-off, and write the others and the closings in the same form."""
        self.call("git", "init", "--quiet")
        self.call(self.program, "init", "--roles", "alice,bob,rita")
        self.call(self.program, *self.commands(1)["create"])
        self.call(self.program, "close", "H-001", "--as", "bob")
        (file,) = (self.folder / ".baton" / "events").glob("*.jsonl")
        made, closed = map(json.loads, file.read_text().splitlines())
        names = {number: f"H-{number:03}" for number in range(1, self.size + 1)}
        entries = [made | {"id": name, "n": number, "title": title(number)} for number, name in names.items()]
        entries += [closed | {"id": name} for number, name in names.items() if number < self.open_item(0)]
        lines = (json.dumps(entry | {"ev": at}) for at, entry in enumerate(entries, 1))
        file.write_text("".join(f"{line}\n" for line in lines))

    def commands(self, number: int) -> Mapping[str, Sequence[str]]:
        """Return the commands."""
        about = ("--phase", f"p{number}", "--state", "READY", "--to", "bob", "--title", title(number))
        return {
            "create": ("handoff", "--as", "alice", *about, "-"),
            "list open": ("list", "--status", "open"),
            "show": ("show", "H-007"),
            "complete": ("close", f"H-{self.open_item(number):03}", "--as", "bob"),
            "search": ("grep", "migration"),
            "what waits for me": ("open", "--as", "bob"),
        }


class Empirica(Tool):
    """Goals of a session, in a SQLite file."""

    def fill(self) -> None:
        """Let the tool create a session and one goal, and copy its row."""
        self.call("git", "init", "--quiet")
        self.call("git", "commit", "--quiet", "--allow-empty", "-m", "first")
        session = self.call(self.program, "session-create", "--ai-id", "bench", "--auto-init", "--output", "json")
        self._session = json.loads(session)["session_id"]
        self.call(self.program, *self.commands(0)["create"])
        with sqlite3.connect(self.folder / ".empirica" / "sessions" / "sessions.db") as database:
            cursor = database.execute("SELECT * FROM goals")
            columns = [column[0] for column in cursor.description]
            row = dict(zip(columns, cursor.fetchone(), strict=True))
            database.executemany(
                f"INSERT INTO goals ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})",
                ([*self._copy(row, number).values()] for number in range(2, self.size + 1)),
            )

    def _copy(self, row: Mapping[str, object], number: int) -> dict[str, object]:
        is_done, own = number < self.open_item(0), str(uuid.UUID(int=number))
        data = str(row["goal_data"]).replace(str(row["id"]), own)
        ended = {"is_completed": 1, "status": "completed"} if is_done else {}
        return {**row, "id": own, "objective": title(number), "goal_data": data, **ended}

    def commands(self, number: int) -> Mapping[str, Sequence[str]]:
        """Return the commands."""
        goal = str(uuid.UUID(int=self.open_item(number)))
        return {
            "create": ("goals-create", "--session-id", self._session, "--force", "--objective", title(number)),
            "list open": ("goals-list",),
            "complete": ("goals-complete", "--goal-id", goal, "--reason", "done"),
        }


PEERS: Final[Mapping[str, tuple[type[Tool], str]]] = {
    BACKLOG: (Backlog, "node_modules/.bin/backlog"),
    HANDOFF: (BatonHandoff, "bin/baton"),
    EMPIRICA: (Empirica, "bin/empirica"),
}


NOT_INSTALLED: Final = "it could not be installed" if scaled(1, 0) else "a short run installs nothing"


def rows(bench: Bench) -> Iterator[Row]:
    """Yield the rows of this group."""
    programs = {name: installed(bench, name) for name in PEERS}
    for size in SIZES:
        bench.say(f"{size:,} items")
        ours = Deedbook(str(Path(sys.executable).with_name("deed")), bench.folder / f"deedbook-{size}", size)
        for name, (kind, _) in PEERS.items():
            if (program := programs[name]) is None:
                yield Row(f"peers: {size:,} items", [math.nan], name, None, f"not measured: {NOT_INSTALLED}")
                continue
            theirs = kind(str(program), bench.folder / f"{kind.__name__}-{size}", size)
            yield from compared(bench, name, ours, theirs)


def compared(bench: Bench, name: str, ours: Tool, theirs: Tool) -> Iterable[Row]:
    """Yield a row for each job that both tools do; its figures have the milliseconds of each, for people."""
    for job in (job for job in JOBS if job in theirs.commands(0)):
        bench.say(f"{job}, beside {name}")
        found = bench.paired(lambda _, job=job: ours.run(job), lambda _, job=job: theirs.run(job))
        ours_ms, theirs_ms = (1000 * statistics.median(side) for side in zip(*found, strict=True))
        figures = {"job": job, "items": ours.size, "ms": {"Deedbook": ours_ms, name: theirs_ms}}
        note = f"{ours_ms:.0f} ms, beside {theirs_ms:.0f}"
        budget = None if name == HANDOFF else BUDGET
        yield Row(f"peers: {job}, {ours.size:,} items", ratios(found), name, budget, note, figures)


def title(number: int) -> str:
    """Return the title of an item."""
    return f"Step {number} of the migration"


def installed(bench: Bench, name: str) -> Path | None:
    """Return the program of a tool. Install it first, except in a short run. None if it is not installed."""
    folder = FOLDER / name
    program = folder / PEERS[name][1]
    if not program.exists() and scaled(1, 0):
        bench.say(f"installing {name}")
        npm = ("npm", "install", "--prefix", str(folder), "--no-audit", "--no-fund", name)
        pip = (f"{folder}/bin/python", "-m", "pip", "install", "--quiet", name)
        try:
            for command in [npm] if "@" in name else [(sys.executable, "-m", "venv", str(folder)), pip]:
                subprocess.run(command, check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError) as error:
            bench.say(f"{name} could not be installed: {error}")
    return program if program.exists() else None
