"""An evaluator in TypeScript, with its own key, takes part in a search over a real node, and the log proves it."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

import inside
from building import Ledger
from served import bus_seed, public_key, write_bus_key
from serving import ServeProcess

from deedbook.consumers.thoughts.run import role_keys, run_task
from deedbook.consumers.thoughts.settings import TaskOptions
from deedbook.ledger.client.local import LocalClient
from deedbook.ledger.events.authority import AgentRegistered
from deedbook.ledger.home.config import Settings
from deedbook.ledger.lifecycle.authority import NODE, ROOT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

AGENT = "node-judge"
SEED = "08" * 32


def test_evaluator_in_another_language_judges_a_search_and_the_proof_names_its_key(
    ask: Callable[..., Any], built: tuple[str, Path], tmp_path: Path
) -> None:
    with Ledger(tmp_path / ".deedbook") as ledger:
        (possessed,) = ask("possess", keys=[{"seed": SEED, "ledger": ledger.id, "agent": AGENT}])["keys"]
        key, proof = possessed["public"], possessed["proof"]
        data = AgentRegistered(name=AGENT, key=key, proof=proof, roles=["agent"], nkey=public_key(AGENT))
        ledger.emit(ROOT, f"agent/{AGENT}", data)
        ledger.write_keys()
        write_bus_key(ledger.home, NODE)
        settings, identity = ledger.settings(), ledger.id
    with LocalClient(settings) as client:
        role_keys(settings, client)
    node = ServeProcess(settings)
    command, pipe = [built[0], str(built[1] / "evaluator.js")], subprocess.PIPE
    told = {"url": node.url, "nkey": bus_seed(AGENT), "seed": SEED, "ledger": identity, "agent": AGENT}
    with subprocess.Popen(command, stdin=pipe, stderr=pipe) as evaluator:
        try:
            assert evaluator.stdin is not None
            evaluator.stdin.write(json.dumps(told).encode())
            evaluator.stdin.close()
            remote, options = Settings(home=settings.home, server=node.url), TaskOptions(bound={"evaluator": AGENT})
            found = run_task(remote, "4 9 10 13", options)
            assert evaluator.poll() is None
        finally:
            evaluator.kill()
            node.stop()
    assert (found["verification"]["is_valid"], found["error"]) == (True, None)
    assert "evaluator" not in found["pids"]
    proven = inside.deed("--home", settings.home, "tot", "prove", found["task_id"], "--json")
    answers = json.loads(proven.out)["data"]["answers"]
    judged = [answer for answer in answers if answer["type"] == "evaluation_results"]
    assert judged
    assert {(answer["signer"], answer["key"]) for answer in judged} == {(AGENT, key)}
