"""Two processes that write handoffs into one ledger, an oracle that foretells each answer, and a reader of the views.

``Contest.look`` re-checks after every step what must always hold; ``Contest.end`` what must hold of the whole log.
"""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from building import START_MS, Ledger
from checking import check_log
from handoff_chronicle import Chronicle
from handoff_oracle import Handoff, Oracle, Step
from hypothesis import note

from deedbook.consumers.auditor.verify import verify_log
from deedbook.ledger.lifecycle.authority import ROOT
from deedbook.ledger.lifecycle.clock import Span
from deedbook.projections.answers.reader import Reader
from deedbook.projections.views.comparison import verify_views
from deedbook.projections.views.registry import VIEWS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from deedbook.ledger.events.authority import Role
    from deedbook.projections.stores.store import ReadTransaction

_WAITING = {"DEPENDENCY_MISSING", "DEPENDENCY_PENDING"}


class Process:
    """A process of its own that writes into the ledger."""

    def __init__(self) -> None:
        program = Path(__file__).with_name("handoff_actor.py")
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "bufsize": 1}
        self.child = subprocess.Popen([sys.executable, str(program)], env=environment, **pipes)

    def send(self, command: dict[str, Any]) -> None:
        """Give a command; the process starts on it at once."""
        assert self.child.stdin
        self.child.stdin.write(json.dumps(command) + "\n")
        self.child.stdin.flush()

    def answer(self) -> dict[str, Any]:
        """Wait for the answer."""
        assert self.child.stdout
        answer: dict[str, Any] = json.loads(self.child.stdout.readline())
        return answer

    def close(self) -> None:
        """Let the process end by itself."""
        self.child.communicate(timeout=60)


class ReaderAt(Reader):
    """A reader whose *now* is the machine's."""

    now_ms = START_MS

    def _now_ms(self, _reading: ReadTransaction) -> int:
        return self.now_ms


class Contest:
    """One ledger, two processes that write into it, and what is known of it; this process only reads."""

    def __init__(self, processes: tuple[Process, Process]) -> None:
        self.processes = processes
        self.folder = tempfile.TemporaryDirectory(prefix="deedbook-contest-")
        self.home = Path(self.folder.name) / ".deedbook"
        self.ledger = Ledger(self.home)
        self.client = self.ledger.client()
        self.reader = ReaderAt(self.client, self.ledger.settings())
        self.oracle, self.chronicle = Oracle(last_ms=START_MS), Chronicle()
        self.now_ms, self.count = START_MS, 0
        self.behind_ms = (0, 0)
        self.touched: set[str] = set()

    def begin(self, agents: Mapping[str, Sequence[Role]], behind_s: int) -> None:
        """Register more agents; the second process's clock may be behind the first's."""
        self.behind_ms = (0, 1000 * behind_s)
        for name, roles in agents.items():
            self.ledger.submit(self.ledger.sign(ROOT, self.ledger.registered(name, roles)))
        with self.ledger.log.snapshot() as snapshot:
            self.oracle.roles = {agent.name: set(agent.roles) for agent in snapshot.agents()}
        for process in self.processes:
            process.send({"open": str(self.home)})
            assert process.answer() == {}

    def attempt(self, side: int, step: Step) -> None:
        """Let one process try a step, and hold its answer against the oracle's."""
        note(f"{side}: {step}")
        self.processes[side].send(self.command(side, step))
        answer = self.processes[side].answer()
        assert self.agrees(self.oracle, side, step, answer), (step, answer, self.foretold(self.oracle, side, step))
        self.take(side, step, answer)

    def attempt_both(self, *steps: Step) -> list[str | None]:
        """Let both try at once: their answers are those of one order or of the other. Return the codes."""
        note(f"at once: {steps}")
        for side, step in enumerate(steps):
            self.processes[side].send(self.command(side, step))
        answers = [process.answer() for process in self.processes]
        for order in ((0, 1), (1, 0)):
            if self.is_order(order, steps, answers):
                for side in order:
                    self.take(side, steps[side], answers[side])
                return [answer.get("code") for answer in answers]
        raise AssertionError((steps, answers))

    def is_order(self, order: tuple[int, int], steps: tuple[Step, ...], answers: list[dict[str, Any]]) -> bool:
        """Whether both answers are what the oracle foretells when the steps come in this order."""
        oracle = copy.deepcopy(self.oracle)
        indexes = [answers[side]["index"] for side in order if "index" in answers[side]]
        for side in order:
            if not self.agrees(oracle, side, steps[side], answers[side]):
                return False
            if "code" not in answers[side]:
                oracle.apply(steps[side], self.clock(oracle, side), answers[side]["id"])
        return indexes == sorted(indexes)

    def agrees(self, oracle: Oracle, side: int, step: Step, answer: dict[str, Any]) -> bool:
        """Whether an answer is what the oracle foretells."""
        expected = self.foretold(oracle, side, step)
        if "code" in answer:
            return answer["code"] in expected
        return not expected and answer["accepted_ms"] == self.clock(oracle, side) and not answer["is_repeat"]

    def foretold(self, oracle: Oracle, side: int, step: Step) -> set[str]:
        """Return the codes that the oracle has against a step."""
        return oracle.objections(step, self.clock(oracle, side))

    def clock(self, oracle: Oracle, side: int) -> int:
        """Return when the ledger accepts what a process sends now: its clock never goes back."""
        return max(oracle.last_ms, self.now_ms - self.behind_ms[side])

    def command(self, side: int, step: Step) -> dict[str, Any]:
        """Return a step as a process takes it; no two are ever the same event."""
        self.count += 1
        self.touched.add(step.name)
        data = {"key": self.ledger.keys[step.name].public.hex()} if step.kind == "key.revoked" else step.data
        at = datetime.fromtimestamp(START_MS / 1000 + self.count, UTC).isoformat(timespec="milliseconds")
        sort = "handoff" if step.kind.startswith(("handoff.", "record.")) else "agent"
        return {
            "author": step.author,
            "stream": f"{sort}/{step.name}",
            "kind": step.kind,
            "data": data,
            "at": at.replace("+00:00", "Z"),
            "now_ms": self.now_ms - self.behind_ms[side],
        }

    def take(self, side: int, step: Step, answer: dict[str, Any]) -> None:
        """Let an accepted step happen in the oracle and in the chronicle."""
        if "code" in answer:
            return
        now_ms, is_human = self.clock(self.oracle, side), "human" in self.oracle.roles[step.author]
        self.oracle.apply(step, now_ms, answer["id"])
        if step.kind.startswith(("handoff.", "record.")):
            self.chronicle.add(step, now_ms, is_human=is_human)

    def look(self) -> None:
        """Check that gate, oracle and view agree on every handoff, and that none waits for itself.

        All that is shown is compared for those that somebody tried something with since the last look.
        """
        self.chronicle.has_no_cycle()
        self.reader.now_ms = self.clock(self.oracle, 0)
        listed = {one["id"]: one for one in self.reader.answer("handoffs.list")["handoffs"]}
        assert listed.keys() == self.oracle.handoffs.keys()
        for name, expected in self.oracle.handoffs.items():
            gate = self.ledger.handoff(name)
            assert {key: _plain(getattr(gate, key)) for key in vars(expected)} == vars(expected), name
            assert (listed[name]["status"], listed[name]["reason"]) == (gate.status, gate.reason)
            objections = self.against_claim(name, expected)
            assert listed[name]["is_ready"] == (not objections), (name, objections)
            if name in self.touched:
                self._look_at(name, expected, objections)
        self.touched.clear()

    def _look_at(self, name: str, expected: Handoff, objections: set[str]) -> None:
        """Check that `show` tells what the gate knows, and `why` what it would answer to a claim."""
        shown = self.reader.answer("handoffs.show", {"id": name})
        assert _as_shown(shown) == vars(expected), name
        codes = {reason["code"] for reason in shown["why"]["reasons"]}
        assert shown["is_ready"] == shown["why"]["is_ready"] == (not codes) == (not objections), (shown, objections)
        assert codes <= objections, (shown["why"], objections)
        # A claim that its own state forbids is refused for that, whatever else it waits for. Who has no receiver at all
        # hears of the approval first.
        if expected.receiver:
            assert objections - _WAITING <= codes, (shown["why"], objections)

    def against_claim(self, name: str, handoff: Handoff) -> set[str]:
        """Return the codes against a claim now by the receiver, as if he were registered and could work."""
        oracle = copy.copy(self.oracle)
        oracle.revoked = set()
        oracle.roles = {handoff.receiver: {"agent"}}
        return self.foretold(oracle, 0, Step(handoff.receiver, "handoff.claimed", name, {}))

    def end(self) -> None:
        """Check the whole log: entries, tree, signatures, replay, rebuilt views, and an audit by a stranger."""
        self.touched = set(self.oracle.handoffs)
        self.look()
        check_log(self.ledger.log)
        assert verify_views(self.client, self.reader.store, VIEWS) == []
        report = verify_log(self.client)
        assert report.ok, report.problems

    def close(self) -> None:
        """Close everything but the processes."""
        self.reader.close()
        self.client.close()
        self.ledger.close()
        self.folder.cleanup()


def _plain(value: Any) -> Any:
    match value:
        case tuple():
            return list(value)
        case Span():
            return [value.from_ms, value.until_ms]
        case _:  # texts and numbers
            return value


def _as_shown(shown: dict[str, Any]) -> dict[str, Any]:
    """Return what `show` answers in the oracle's words."""
    return {
        "sender": shown["from"],
        "importer": shown["importer"] or "",
        "receiver": shown["to"],
        "reviewer": shown["reviewer"] or shown["from"],
        "status": shown["status"],
        "version": shown["version"],
        "depends_on": [one["id"] for one in shown["depends_on"]],
        "unlock_at": shown["unlock_at"],
        "tasks": ["done" if task["done"] else "open" for task in shown["tasks"]],
        "criteria": [one["mark"] for one in shown["criteria"]],
        "lease": None if shown["lease_until_ms"] is None else [shown["lease_from_ms"], shown["lease_until_ms"]],
        "claimed_status": shown["claimed_status"],
        "is_announced": bool(shown["is_announced"]),
        "completion": shown["completion"],
    }
