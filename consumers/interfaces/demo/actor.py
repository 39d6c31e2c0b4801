"""The process of one agent: it reads operations as JSON lines, does them over NATS with its own key, and answers.

Each line is ``{"act": name, "arguments": {…}}``; each answer ``{"done": …}`` or ``{"refused": {code, …}}``. The first
line has the address of the ledger and the passphrase of a sealed key, which is never in the process's arguments.

The audit and the handoffs of the actors are in files beside this one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.resources import files
from typing import Any, Final

import msgspec

from deedbook.consumers.reasoning.compressor.transfer import described, fetch, receive_brief
from deedbook.consumers.sdk.ledger import Ledger
from deedbook.ledger.errors import DeedbookError, Refused
from deedbook.ledger.events import handoff, reasoning
from deedbook.ledger.format.codec import convert
from deedbook.projections.briefs.prompt import TransferLevel
from deedbook.projections.reasoning.memory import ReasoningMemory, memory_from_dict

AUDIT: Final = "jwt-audit"
DOMAIN: Final = "security"
PHASE_2A: Final = "2026-02-12-reactive-phase-2a"
PHASE_2C: Final = "2026-02-12-reactive-phase-2c"
RETURN_2A: Final = "2026-02-12-reactive-phase-2a-return"


def audit_graph() -> ReasoningMemory:
    """Return a security audit: more than ten steps with evidence in the sample project."""
    memory, _ = memory_from_dict(_data("audit_reasoning.json"))
    return memory


def _data(name: str) -> dict[str, Any]:
    content: dict[str, Any] = msgspec.json.decode(
        files("deedbook.consumers.interfaces.demo").joinpath(name).read_bytes()
    )
    return content


class Actor:
    """One agent at work."""

    def __init__(self, *, name: str, home: str, server: str, passphrase: str | None) -> None:
        self.ledger = Ledger(name, home=home, server=server, passphrase=passphrase)

    def record_audit(self, name: str) -> list[int]:
        """Record the audit like a working agent, one signed event for each step; return the entries' indexes."""
        graph, stream = audit_graph(), f"reasoning/{name}"
        names = ("task", "ai_id", "reasoning_strategy")
        started = reasoning.ReasoningStarted(**{name: getattr(graph, name) for name in names}, domain=DOMAIN)
        indexes = [self._emit(stream, started)]
        for step in graph.steps:
            number = step.step_number
            added = reasoning.ReasoningExtended(
                steps=[convert(step.to_dict(), reasoning.Step)],
                dependencies={number: graph.dependencies[number]} if number in graph.dependencies else {},
            )
            indexes.append(self._emit(stream, added))
        ends = reasoning.ReasoningConcluded.__struct_fields__
        concluded = reasoning.ReasoningConcluded(**{name: getattr(graph, name) for name in ends})
        return [*indexes, self._emit(stream, concluded)]

    def create_handoff(self, name: str) -> int:
        """Create one of the script's handoffs."""
        return self._emit(f"handoff/{name}", convert(_data("handoffs.json")[name], handoff.HandoffCreated))

    def approve(self, name: str) -> int:
        """Approve the present version of a handoff."""
        facts = self.ledger.ask("handoffs.facts", id=name)
        return self._emit(f"handoff/{name}", handoff.HandoffApproved(version=facts["version"]))

    def claim(self, name: str) -> int:
        """Claim a handoff."""
        return self._emit(f"handoff/{name}", handoff.HandoffClaimed())

    def work(self, name: str, reasoning_ref: str) -> int:
        """Check all tasks and criteria of a claimed handoff and complete it; return the index of the completion."""
        facts = self.ledger.ask("handoffs.show", id=name)
        stream = f"handoff/{name}"
        for items, checked in (("tasks", handoff.HandoffTaskChecked), ("criteria", handoff.HandoffCriterionChecked)):
            for position in range(len(facts[items])):
                self._emit(stream, checked(position=position))
        done = handoff.HandoffCompleted(
            summary="event-bus.ts 完成，測試通過", artifacts=["src/event-bus.ts"], reasoning_refs=[reasoning_ref]
        )
        return self._emit(stream, done)

    def go_on(self) -> tuple[str, int] | None:
        """Do one piece of the work that waits for this agent.

        Return a sentence and its entry, or None if no work waits.
        """
        waiting = self.ledger.ask("handoffs.next", agent=self.ledger.agent)["items"]
        item = next((row for row in waiting if row["act"] in {"claim", "check", "complete"}), None)
        if item is None:
            return None
        name, stream = item["id"], f"handoff/{item['id']}"
        if item["act"] == "claim":
            return f"claims {name}", self.claim(name)
        facts = self.ledger.ask("handoffs.show", id=name)
        if task := next((row for row in facts["tasks"] if not row["done"]), None):
            checked = handoff.HandoffTaskChecked(position=task["position"])
            return f"ticks “{task['text']}” of {name}", self._emit(stream, checked)
        if criterion := next((row for row in facts["criteria"] if row["mark"] == "open"), None):
            met = handoff.HandoffCriterionChecked(position=criterion["position"])
            return f"finds “{criterion['text']}” met in {name}", self._emit(stream, met)
        return f"completes {name}", self._emit(stream, handoff.HandoffCompleted(summary="All of it is done."))

    def receive_brief(self, name: str, level: str) -> dict[str, Any]:
        """Receive the brief of a reasoning and return the rule that requires the whole graph, if any."""
        return described(receive_brief(self.ledger.query_with, name, TransferLevel(level))).to_dict()

    def fetch_graph(self, ref: str) -> dict[str, Any]:
        """Fetch a graph by its ref, recompute its hash, and compare the published brief with it."""
        fetched = fetch(self.ledger.query_with, ref)
        holds = receive_brief(self.ledger.query_with, ref, TransferLevel.STANDARD).rejected is None
        return {"ref": fetched.ref, "verified": holds and fetched.ref == ref, "steps": len(fetched.memory.steps)}

    def _emit(self, stream: str, data: Any) -> int:
        return self.ledger.publish(stream, data)[0].index


def main() -> None:
    """Do the operations from standard input until its end."""
    lines = sys.stdin.buffer
    actor = Actor(**msgspec.json.decode(lines.readline()))
    _answer({"done": actor.ledger.client.ledger})
    with actor.ledger:
        for line in lines:
            request = msgspec.json.decode(line)
            act: Callable[..., Any] = getattr(actor, request["act"])
            try:
                _answer({"done": act(**request["arguments"])})
            except Refused as refusal:
                _answer({"refused": refusal.to_dict()})


def _answer(answer: dict[str, Any]) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(answer) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    try:
        main()
    except DeedbookError as error:
        _answer({"failed": error.to_dict()})
        sys.exit(error.exit_code)
