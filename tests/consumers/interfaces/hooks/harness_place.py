"""A project with a ledger and a home of its own, in which setup, hooks and verbs run as a harness runs them."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any, Final, NamedTuple

import inside
from forked_deed import deed_command

from deedbook.consumers.interfaces.hooks.harnesses import HARNESSES

DEED: Final = str(Path(sys.executable).with_name("deed"))
wait_max_s: Final = 100.0
# The seconds that a hook may take: in tests of its answer, and in tests of hooks that are stopped.
PATIENCE: Final = str(Path(__file__).with_name("patience"))
patience_s: Final = "60"
given_up: Final = {"DEEDBOOK_TEST_HOOK_S": "0.5"}

# The input of each harness, in the form of its documentation (see consumers/interfaces/hooks/harnesses.py).
COMMON: Final[dict[str, dict[str, Any]]] = {
    "claude-code": {"transcript_path": "/home/u/.claude/projects/p/t.jsonl", "permission_mode": "default"},
    "codex": {"transcript_path": None, "model": "a-model"},
    "gemini": {"transcript_path": "/home/u/.gemini/tmp/t.json", "timestamp": "2026-11-20T10:00:00Z"},
}
OF_EVENT: Final[dict[str, dict[str, Any]]] = {
    "SessionStart": {"source": "startup"},
    "PreCompact": {"trigger": "auto", "custom_instructions": ""},
    "PreCompress": {"trigger": "auto"},
    "Stop": {"stop_hook_active": False, "last_assistant_message": "done"},
    "AfterAgent": {"prompt": "do it", "prompt_response": "done", "stop_hook_active": False},
    "SessionEnd": {"reason": "other"},
    "PreToolUse": {"tool_name": "Edit", "tool_input": {"file_path": "src/a.py", "old_string": "a", "new_string": "b"}},
}


class Said(NamedTuple):
    """The result of a process: exit code, output and errors."""

    code: int
    out: bytes
    err: bytes


class Place:
    """A project in a folder, with a home and a state folder that nobody else uses."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.project = folder / "a project"
        self.home.mkdir()
        self.project.mkdir()
        self.ledger = self.project / ".deedbook"
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("DEEDBOOK_", "CLAUDE_"))}
        self.environment = kept | {"HOME": str(self.home), "PYTHONPATH": PATIENCE, "DEEDBOOK_TEST_HOOK_S": patience_s}
        self.environment.pop("XDG_STATE_HOME", None)

    def run(self, *words: object, given: bytes = b"", **changed: str) -> Said:
        """Run a command in the project."""
        done = subprocess.run(
            [str(word) for word in words],
            input=given,
            cwd=self.project,
            env=self.environment | changed,
            capture_output=True,
            check=False,
            timeout=wait_max_s,
        )
        return Said(done.returncode, done.stdout, done.stderr)

    def deed(self, *words: object, **changed: str) -> str:
        """Call a verb that succeeds, in this process, and return its output."""
        surroundings = {"HOME": str(self.home)} | changed
        said = inside.deed(*words, cwd=self.project, **surroundings)
        assert said.code == 0, (words, said)
        return said.out

    def data(self, *words: object, **changed: str) -> Any:
        """Call a verb with ``--json`` and return its data."""
        return json.loads(self.deed(*words, "--json", **changed))["data"]

    def with_ledger(self, *agents: str) -> Place:
        """Make the ledger and register agents."""
        self.deed("init", "--unprotected")
        for name in agents:
            self.deed("agent", "add", name, "--role", "agent")
        return self

    def commands(self, harness: str) -> dict[str, str]:
        """Return the hook commands that setup registered, by event."""
        hooks = json.loads(HARNESSES[harness].files(self.project, "local").settings.read_text())["hooks"]
        return {event: groups[0]["hooks"][0]["command"] for event, groups in hooks.items()}

    def event(self, harness: str, event: str, **changed: Any) -> bytes:
        """Return the JSON that a harness sends at an event."""
        sent = {"session_id": "0a1b-2c3d", "cwd": str(self.project), "hook_event_name": event}
        return json.dumps(sent | COMMON[harness] | OF_EVENT[event] | changed).encode()

    def hook(self, harness: str, given: bytes, *options: str, **changed: str) -> Said:
        """Call a hook as a harness does: through a shell."""
        words = [*deed_command(), "hook", harness, "--as", harness, *options]
        return self.run("sh", "-c", shlex.join(words), given=given, **changed)

    def log(self) -> list[dict[str, Any]]:
        """Return the lines of the log of hooks."""
        path = self.ledger / "hooks.log"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def tree(folder: Path) -> dict[str, bytes | None]:
    """Return every file and folder under a folder, with its bytes."""
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}
