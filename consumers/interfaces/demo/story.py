"""The demo: a stage with a ledger, a node and one process for each actor; its acts in order, with expected results.

Any other result ends the demo with an error. Every process is stopped by its own pid.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shlex
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from importlib.resources import as_file, files
from itertools import cycle
from pathlib import Path
from shutil import copytree
from typing import IO, Any, Final, NamedTuple, Self

import msgspec

from deedbook.consumers.interfaces.demo.actor import AUDIT, PHASE_2A, PHASE_2C, RETURN_2A
from deedbook.consumers.interfaces.demo.life import Life
from deedbook.consumers.sdk.git import Git
from deedbook.consumers.sdk.ledger import Ledger
from deedbook.ledger.errors import Corrupted, DeedbookError, Unavailable
from deedbook.ledger.events.body import Event
from deedbook.ledger.format.identity import read_key_file
from deedbook.ledger.home.config import Settings
from deedbook.ledger.home.home import Home
from deedbook.ledger.home.location import FOLDER
from deedbook.ledger.lifecycle.authority import ROOT
from deedbook.projections.briefs.prompt import fidelity_text

audits_max: Final = 5
"""The number of attempts to audit the log and a bundle of it with no write between the two."""

stop_wait_s: Final = 15.0
wait_max_s: Final = 30.0
poll_s: Final = 0.02
pace_s: Final = 4.0
HUMAN: Final = "alex"
ORIGIN: Final = "demo.deedbook.example/reactive"
_DEED: Final = ("-m", "deedbook")


class Process:
    """A child process that answers each JSON line with a JSON line."""

    def __init__(self, arguments: list[str], environment: dict[str, str], folder: Path | None = None) -> None:
        # In a session of its own: ^C reaches only the demo, which then ends its processes in order.
        self._child = subprocess.Popen(  # noqa: S603 - this Python, with arguments of our own
            [sys.executable, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            cwd=folder,
            start_new_session=True,
        )
        self.pid = self._child.pid

    def send(self, line: Any) -> None:
        """Write one line."""
        stream = _pipe(self._child.stdin)
        stream.write(msgspec.json.encode(line) + b"\n")
        stream.flush()

    def read(self) -> dict[str, Any]:
        """Return the next answer."""
        line = _pipe(self._child.stdout).readline()
        if not line:
            code = self._child.wait(stop_wait_s)
            raise Unavailable("BUS_UNAVAILABLE", f"process {self.pid} ended early with exit code {code}")
        answer: dict[str, Any] = msgspec.json.decode(line)
        if failed := answer.get("failed") or answer.get("error"):
            raise DeedbookError.from_dict(failed)
        return answer

    def act(self, act: str, **arguments: Any) -> dict[str, Any]:
        """Let an actor do something; return its answer."""
        self.send({"act": act, "arguments": arguments})
        return self.read()

    def end(self) -> None:
        """End the process: terminate it, wait, and only then kill it."""
        with contextlib.suppress(BrokenPipeError):
            _pipe(self._child.stdin).close()
        self._child.terminate()
        try:
            self._child.wait(stop_wait_s)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        _pipe(self._child.stdout).close()


class Stage:
    """A ledger in ``folder`` with its agents registered; ``open`` starts the node and the actors.

    With ``has_past`` it begins with the story of ``life``, which is played before any process starts.
    """

    def __init__(self, folder: Path, *, has_past: bool = False) -> None:
        self.folder = folder
        self.home = Home(folder / FOLDER)
        self.settings = Settings(home=self.home.path)
        self.url = ""
        self.actors: dict[str, Process] = {}
        self.passphrases = {HUMAN: secrets.token_urlsafe(12)}
        self._exit = contextlib.ExitStack()
        with as_file(files("deedbook.consumers.interfaces.demo").joinpath("sample_project")) as sample:
            copytree(sample, folder / "project")
        self.keys = Life(self.settings, folder / "project", self.passphrases, has_past=has_past).play(ORIGIN)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._exit.close()  # in reverse order

    def open(self) -> None:
        """Start the node, then the actors."""
        self.url = self.start([*_DEED, "serve", "--json"]).read()["data"]["url"]
        for name in self.keys:
            actor = self.start(["-m", "deedbook.consumers.interfaces.demo.actor"])
            passphrase = self.passphrases.get(name)
            actor.send({"name": name, "home": str(self.home.path), "server": self.url, "passphrase": passphrase})
            self.actors[name] = actor
        for actor in self.actors.values():
            actor.read()

    def start(self, arguments: list[str], folder: Path | None = None) -> Process:
        """Start a process of this demo with its ledger as DEEDBOOK_HOME, in ``folder`` (default: this one)."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("DEEDBOOK_")}
        process = Process(arguments, environment | {"DEEDBOOK_HOME": str(self.home.path)}, folder)
        self._exit.callback(process.end)
        return process

    def run_deedbook(self, *arguments: str) -> tuple[int, dict[str, Any]]:
        """Run one `deed` command to its end as a process of its own; return its pid and its data."""
        process = self.start([*_DEED, *arguments, "--json"])
        data: dict[str, Any] = process.read()["data"]
        return process.pid, data


def _pipe(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None  # noqa: S101 - both were asked for as pipes
    return stream


class Line(NamedTuple):
    """One line of the story: the actor, the operation, and its result."""

    who: str
    did: str
    came_of_it: str


class Story:
    """Plays the acts on a stage; ``tell`` gets each line as it happens, ``data`` the facts for a program."""

    def __init__(self, stage: Stage, tell: Callable[[Line], None]) -> None:
        self._stage = stage
        self._tell = tell
        self.data: dict[str, Any] = {"refusals": [], "brief": [], "agents": {}}

    @property
    def acts(self) -> list[Callable[[], None]]:
        """The acts in order."""
        return [
            self._cast,
            self._reasoning,
            self._handoffs,
            self._gate,
            self._dependency,
            self._work,
            self._reaction,
            self._brief,
            self._audit,
            self._count,
        ]

    def open_dashboard(self, *, is_opened: bool) -> dict[str, Any]:
        """Start the dashboard; return its link, and the passphrase of the human who decides there."""
        arguments = ["dashboard", "--port", "0", "--json", *(["--open"] if is_opened else [])]
        project = self._stage.folder / "project"  # its files are the evidence in the reasonings
        with contextlib.suppress(Unavailable):  # without git, the dashboard does not read it
            Git(project).ask("init", "--quiet")
        address: dict[str, Any] = self._stage.start([*_DEED, "--as", HUMAN, *arguments], project).read()["data"]
        return address | {"passphrase": self._stage.passphrases[HUMAN], "home": str(self._stage.home.path)}

    def go_on(self) -> None:
        """Let the agents do their waiting work one after another, slowly enough for a reader, until interrupted."""
        for name in cycle(self._stage.keys):
            did = None if name == HUMAN else self._stage.actors[name].act("go_on").get("done")
            if did is not None:
                self._tell(Line(name, did[0], f"entry {did[1]}"))
            time.sleep(pace_s if did else poll_s * 10)

    def _cast(self) -> None:
        self._stage.open()
        for name, actor in self._stage.actors.items():
            self.data["agents"][name] = {"pid": actor.pid, "key": self._stage.keys[name]}
        self._tell(Line("deed serve", "serves the ledger", self._stage.url))

    def _reasoning(self) -> None:
        indexes = self._do("claude-code", "record_audit", name=AUDIT)
        entries = f"entries {indexes[0]} to {indexes[-1]}"
        self._tell(Line("claude-code", f"records the security audit, {len(indexes) - 2} steps", entries))

        def briefed(events: list[Event]) -> list[Event]:
            return [event for event in events if event.kind == "reasoning.briefed" and event.name == AUDIT]

        briefs = self._wait(briefed, at_least=2)
        levels = ", ".join(f"{event.data.brief.level} {event.data.tokens} tokens" for event in briefs)
        self._tell(Line("compressor", "publishes signed briefs of it", levels))

    def _handoffs(self) -> None:
        for name in (PHASE_2A, PHASE_2C):
            index = self._do("kuro", "create_handoff", name=name)
            self._tell(Line("kuro", f"hands over {name}", f"entry {index}"))

    def _gate(self) -> None:
        self._refused("claude-code", "approve", PHASE_2A, "SELF_APPROVAL")
        for name in (PHASE_2A, PHASE_2C):
            index = self._do("alex", "approve", name=name)
            self._tell(Line("alex", f"approves {name}, with a sealed key", f"entry {index}"))

    def _dependency(self) -> None:
        self._refused("minimax", "claim", PHASE_2C, "DEPENDENCY_PENDING")
        deed = [*_DEED, "--as", "minimax", "--server", self._stage.url]
        claim = shlex.join([sys.executable, *deed, "handoff", "claim", PHASE_2C, "--json"])
        # a ledger with a past has other completions
        command = f"if grep -qF 'handoff/{PHASE_2A}\"'; then {claim} >/dev/null; fi"
        watch = ["watch", "--kind", "handoff.completed", "--from-start", "--exec", command, "--json"]
        watcher = self._stage.start([*deed, *watch])
        self.data["agents"]["minimax"]["subscriber_pid"] = watcher.pid
        self._tell(Line("minimax", "subscribes to handoff.completed", f"deed watch, pid {watcher.pid}"))

    def _work(self) -> None:
        index = self._do("claude-code", "claim", name=PHASE_2A)
        self._tell(Line("claude-code", f"claims {PHASE_2A}", f"entry {index}"))
        ref = self._stage.actors["minimax"].act("receive_brief", name=AUDIT, level="minimal")["done"]["reasoning_ref"]
        index = self._do("claude-code", "work", name=PHASE_2A, reasoning_ref=ref)
        self.data["reaction"] = {"after_index": index}
        self._tell(Line("claude-code", "checks every task and criterion, completes", f"entry {index}"))
        index = self._do("claude-code", "create_handoff", name=RETURN_2A)
        self._tell(Line("claude-code", f"hands back to kuro: {RETURN_2A}", f"entry {index}"))

    def _reaction(self) -> None:
        def claims(events: list[Event]) -> list[Event]:
            return [event for event in events if event.kind == "handoff.claimed" and event.name == PHASE_2C]

        claimed = self._wait(claims)[0]
        after = self.data["reaction"]["after_index"]
        if claimed.index <= after:
            raise Corrupted("VERIFICATION_FAILED", f"{PHASE_2C} was claimed before {PHASE_2A} was completed")
        self.data["reaction"] |= {"event": claimed.kind, "by": claimed.author, "index": claimed.index}
        self._tell(Line("minimax", f"is woken by entry {after} and claims {PHASE_2C}", f"entry {claimed.index}"))

    def _brief(self) -> None:
        ref = ""
        for level in ("minimal", "standard"):
            received = self._do("minimax", "receive_brief", name=AUDIT, level=level)
            ref = received["reasoning_ref"]
            rule = received["rule_fired"]
            brief = {name: received[name] for name in ("tokens", "exact", "budget", "fidelity")}
            fired = None if rule is None else rule["name"]
            self.data["brief"].append({"level": level.upper(), **brief, "rule_fired": fired})
            came = (
                f"{received['tokens']} of {received['budget']} tokens, fidelity {fidelity_text(received['fidelity'])}"
            )
            self._tell(Line("minimax", f"receives the {level} brief", came))
            if fired is None:
                raise Corrupted("VERIFICATION_FAILED", "a security brief must not be enough by itself")
        self._tell(Line("minimax", "must not act on a brief here", f"{rule['name']}: {rule['reason']}"))
        self.data["fetch"] = self._do("minimax", "fetch_graph", ref=ref)
        self._tell(Line("minimax", "fetches the whole graph and recomputes its hash", f"{ref[:19]}… is right"))

    def _audit(self) -> None:
        fingerprint = read_key_file(self._stage.home.key_file(ROOT)).public
        bundle = self._stage.folder / "demo.tar"
        for _ in range(audits_max):
            # the past of the story has a stolen key
            verify = ("verify", "--root", fingerprint, "--accept", "SUSPECT_KEY")
            pid, report = self._stage.run_deedbook(*verify, "--views")
            bundle.unlink(missing_ok=True)
            self._stage.run_deedbook("export", str(bundle))
            _, bundled = self._stage.run_deedbook(*verify, "--bundle", str(bundle))
            if bundled["size"] == report["size"]:  # otherwise somebody wrote between audit and export
                break
        self.data["agents"]["auditor"] = {"pid": pid, "key": fingerprint}
        self.data["bundle"] = str(bundle)
        is_same = all(bundled[of] == report[of] for of in ("size", "tree_head", "outcome"))
        audit = {name: report[name] for name in ("signatures", "views", "outcome")}
        self.data["audit"] = audit | {"tree": is_same, "ok": report["outcome"] in ("VALID", "SUSPECT_KEY")}
        if not all(self.data["audit"].values()):
            raise Corrupted("VERIFICATION_FAILED", f"the audit did not come out right: {self.data['audit']}")
        self._tell(Line("auditor", "verifies every signature, rule and hash", f"{report['signatures']} signatures"))
        self._tell(Line("auditor", "rebuilds the views and compares them", "equal"))
        self._tell(Line("auditor", "verifies the exported bundle", bundle.name))

    def _count(self) -> None:
        kinds = Counter(event.kind for event in self._events())
        self.data |= {"events": kinds.total(), "kinds": dict(kinds), "home": str(self._stage.home.path)}

    def _do(self, who: str, act: str, **arguments: Any) -> Any:
        answer = self._stage.actors[who].act(act, **arguments)
        if "refused" in answer:
            refusal = answer["refused"]
            raise Corrupted("VERIFICATION_FAILED", f"{who} was refused: {refusal['code']}: {refusal['message']}")
        return answer["done"]

    def _refused(self, name: str, act: str, handoff: str, code: str) -> None:
        answer = self._stage.actors[name].act(act, name=handoff)
        refusal = answer.get("refused", {"code": None, "message": "it was accepted"})
        if refusal["code"] != code:
            raise Corrupted("VERIFICATION_FAILED", f"{name}'s {act} should be refused with {code}: {refusal}")
        self.data["refusals"].append({"code": code, "by": name, "act": act, "handoff": handoff})
        self._tell(Line(name, f"tries to {act} {handoff}", f"refused: {code}: {refusal['message']}"))

    def _events(self) -> list[Event]:
        with Ledger(settings=self._stage.settings) as ledger:
            return list(ledger.events())

    def _wait(self, wanted: Callable[[list[Event]], list[Event]], *, at_least: int = 1) -> list[Event]:
        deadline = time.monotonic() + wait_max_s
        while time.monotonic() < deadline:
            event = wanted(self._events())
            if len(event) >= at_least:
                return event
            time.sleep(poll_s)
        raise Unavailable("BUS_UNAVAILABLE", f"nothing happened within {wait_max_s:g} s")
