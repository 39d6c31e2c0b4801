"""Two processes that write handoffs into one ledger, and a reader of the views.

``Contest.look`` checks the invariants after every step; ``Contest.end`` checks those of the whole log, also with the
verifier that has its own implementation of the rules.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from building import START_MS, Ledger
from bundles import run_alone, unpacked
from checking import check_log
from forked_deed import ScriptProcess
from handoff_chronicle import Chronicle
from handoff_moves import Known
from hypothesis import note

from deedbook.consumers.auditor.verify import verify_log
from deedbook.ledger.bundle.export import export_bundle
from deedbook.ledger.lifecycle.authority import ROOT
from deedbook.projections.answers.reader import Reader
from deedbook.projections.views.comparison import verify_views
from deedbook.projections.views.registry import VIEWS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from handoff_chronicle import Step

    from deedbook.ledger.events.authority import Role
    from deedbook.ledger.lifecycle.handoff import HandoffState
    from deedbook.projections.stores.store import ReadTransaction


class Process:
    """A process of its own that writes into the ledger."""

    def __init__(self) -> None:
        program = Path(__file__).with_name("handoff_actor.py")
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "bufsize": 1}
        self.child = ScriptProcess(program, env=environment, **pipes)

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
    """A reader that takes the test's ``now_ms`` for the present time."""

    now_ms = START_MS

    def _now_ms(self, _reading: ReadTransaction) -> int:
        return self.now_ms


class Contest:
    """One ledger, the two processes that write into it, and the facts known of it; this process only reads."""

    def __init__(self, processes: tuple[Process, Process]) -> None:
        self.processes = processes
        self.folder = tempfile.TemporaryDirectory(prefix="deedbook-contest-")
        self.home = Path(self.folder.name) / ".deedbook"
        self.ledger = Ledger(self.home)
        self.client = self.ledger.client()
        self.reader = ReaderAt(self.client, self.ledger.settings())
        self.known, self.chronicle = Known(), Chronicle()
        self.now_ms, self.count = START_MS, 0
        self.behind_ms = (0, 0)
        self.touched: set[str] = set()

    def begin(self, agents: Mapping[str, Sequence[Role]], behind_s: int) -> None:
        """Register more agents; the second process's clock may be behind the first's."""
        self.behind_ms = (0, 1000 * behind_s)
        for name, roles in agents.items():
            self.ledger.submit(self.ledger.sign(ROOT, self.ledger.registered(name, roles)))
        self.read_agents()
        for process in self.processes:
            process.send({"open": str(self.home)})
            assert process.answer() == {}

    def read_agents(self) -> None:
        """Read the roles of all agents."""
        with self.ledger.log.snapshot() as snapshot:
            self.known.roles = {agent.name: frozenset(agent.roles) for agent in snapshot.agents()}

    def attempt(self, side: int, step: Step) -> None:
        """Let one process try a step. A claim is accepted if the view says that it is ready, or refused as it says."""
        note(f"{side}: {step}")
        told = self.told_of_claim(side, step)
        self.processes[side].send(self.command(side, step))
        answer = self.processes[side].answer()
        if told is not None:
            assert {answer["code"]} & told if "code" in answer else not told, (step, answer, told)
        self.take(step, answer)

    def told_of_claim(self, side: int, step: Step) -> set[str] | None:
        """Return the reasons against a claim by a receiver who works here; None for any other step."""
        handoff = self.known.handoffs.get(step.name)
        if handoff is None or step.kind != "handoff.claimed" or step.author != handoff.receiver:
            return None
        if step.author in self.known.revoked or self.known.roles.get(step.author, frozenset()) <= {"admin"}:
            return None
        self.reader.now_ms = max(
            self.known.last_ms, self.now_ms - self.behind_ms[side]
        )  # the gate's clock never goes back
        shown = self.reader.answer("handoffs.show", {"id": step.name})
        reasons = {reason["code"] for reason in shown["why"]["reasons"]}
        assert shown["is_ready"] == shown["why"]["is_ready"] == (not reasons), shown
        return reasons

    def attempt_both(self, *steps: Step) -> list[str | None]:
        """Let both try at once; return the codes of the refusals."""
        note(f"at once: {steps}")
        for side, step in enumerate(steps):
            self.processes[side].send(self.command(side, step))
        answers = [process.answer() for process in self.processes]
        for answer, step in sorted(zip(answers, steps, strict=True), key=lambda pair: pair[0].get("index", 0)):
            self.take(step, answer)
        return [answer.get("code") for answer in answers]

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

    def take(self, step: Step, answer: dict[str, Any]) -> None:
        """Report an accepted step to the chronicle, and read the gate's present state."""
        if "code" in answer:
            return
        assert answer["accepted_ms"] >= self.known.last_ms
        assert not answer["is_repeat"]
        self.known.last_ms = answer["accepted_ms"]
        if step.kind.startswith(("handoff.", "record.")):
            self.chronicle.add(step, answer["accepted_ms"], is_human="human" in self.known.roles[step.author])
            self.known.handoffs[step.name] = self.ledger.handoff(step.name)
            return
        if step.kind == "key.revoked":
            self.known.revoked.add(step.name)
        self.read_agents()

    def look(self) -> None:
        """Check that gate and view agree on every handoff, and that none waits for itself.

        All fields are compared for those handoffs on which an operation was tried since the last look.
        """
        self.chronicle.has_no_cycle()
        self.reader.now_ms = max(self.known.last_ms, self.now_ms)
        listed = {row["id"]: row for row in self.reader.answer("handoffs.list", {"history": "shown"})["items"]}
        assert listed.keys() == self.known.handoffs.keys()
        for name, gate in self.known.handoffs.items():
            # The view keeps the reasons of requested changes while the work continues, also after it was released.
            reason = gate.reason or (self.chronicle.changes(name) if gate.status == "in_progress" else "")
            seen = (listed[name]["status"], listed[name]["reason"])
            assert seen == (gate.status, reason), (name, seen, gate)
            if name in self.touched:
                shown = self.reader.answer("handoffs.show", {"id": name})
                assert _as_shown(shown) == _as_known(gate), name
                assert shown["is_ready"] == shown["why"]["is_ready"] == listed[name]["is_ready"]
        self.touched.clear()

    def end(self) -> None:
        """Check the whole log: entries, tree, signatures, replay, rebuilt views, and an audit by a stranger."""
        self.touched = set(self.known.handoffs)
        self.look()
        check_log(self.ledger.log)
        assert verify_views(self.client, self.reader.store, VIEWS) == []
        report = verify_log(self.client)
        assert report.ok, report.problems
        export_bundle(self.client, self.home.parent / "log.tar")
        verdict = run_alone(unpacked(self.home.parent / "log.tar", self.home.parent / "unpacked"))
        assert verdict.returncode == 0, verdict.stdout

    def close(self) -> None:
        """Close everything but the processes."""
        self.reader.close()
        self.client.close()
        self.ledger.close()
        self.folder.cleanup()


def _as_known(gate: HandoffState) -> dict[str, Any]:
    """Return the gate's knowledge in the fields of ``_as_shown``."""
    lease = None if gate.lease is None else [gate.lease.from_ms, gate.lease.until_ms]
    lists = {name: list(getattr(gate, name)) for name in ("depends_on", "tasks", "criteria")}
    names = ("sender", "importer", "receiver", "reviewer", "status", "version", "unlock_at", "claimed_status")
    names = (*names, "is_announced", "result")
    return {name: getattr(gate, name) for name in names} | lists | {"lease": lease}


def _as_shown(shown: dict[str, Any]) -> dict[str, Any]:
    """Return the answer of `show` in the gate's terms."""
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
        "result": shown["result"],
    }
