"""The harnesses: their files, the events of their hooks, and the output that a hook may print.

Read from their documentation, November 2026:

- Claude Code: "Hooks reference" and "MCP", code.claude.com/docs/en/hooks and /mcp (text of 2026-10-08). The servers of
  one user in one project are in .claude.json, under the project's path. Timeouts are seconds. The model reads
  standard output of SessionStart. Exit code 2 blocks Stop and PreCompact. SessionEnd hooks share 1.5 s, or the longest
  timeout in the settings. A fork keeps the conversation it was forked from. PreToolUse has a matcher of tool names, and
  its ``additionalContext`` is added before the tool runs (since 2.1.9). Stop continues the turn with ``{"decision":
  "block", "reason": …}``; then ``stop_hook_active`` is true at the next Stop.
- Codex CLI: "Hooks" and "Model Context Protocol", learn.chatgpt.com/docs/hooks and /docs/extend/mcp, and the schemas in
  openai/codex, codex-rs/hooks/schema/generated. Timeouts are seconds, at most 3 for SessionEnd. Stop takes JSON or
  nothing. The `.codex` folder of a project is read once the project is trusted; new hooks run once they are trusted.
- Gemini CLI: docs/hooks/reference.md and docs/tools/mcp-server.md in google-gemini/gemini-cli (August 2026). Timeouts
  are milliseconds. Standard output is one JSON object or nothing. If it is empty, Gemini reads standard error
  instead, so a hook is silent on both. The settings may hold comments. A resumed session keeps its history.

The command of a family, `/NAME`, is Markdown in .claude/commands for Claude Code, TOML in .gemini/commands for Gemini
CLI. Codex reads no prompts of users since 0.117 (April 2026): there the command is a skill in .agents/skills, called
by `$NAME`.

All three call the same command with one JSON object on standard input: ``session_id``, ``cwd``, ``hook_event_name``,
and ``source`` at SessionStart. All three read ``hookSpecificOutput.additionalContext`` there. Our hooks print nothing
else, except the reminders for Claude Code (``reminders``).
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Final, Literal, NamedTuple

from deedbook.consumers.sdk.files import read_file
from deedbook.ledger.errors import DeedbookError
from deedbook.ledger.home.environment import environment_variable

Does = Literal["start", "edit", "save", "end"]
Scope = Literal["local", "team", "user"]
"""The users of a setup: this user in one project, everybody who has the project, or this user in all projects."""

COMMAND: Final = "deed"
ASK_AT_STOP: Final = "--ask-at-stop"
"""The option of setup and of the hook: at the end of a turn, ask once for unrecorded findings."""

timeout_s: Final = 5
"""The timeout that a harness gives a hook. The hook ends itself earlier (``supervisor.deadline_s``)."""

session_end_timeout_s: Final = 3
brief_sources: Final = frozenset({"startup", "clear", "compact"})
"""The sources of a SessionStart that get a brief; after resume and fork the earlier brief is still there."""


class Files(NamedTuple):
    """The files of a harness in one scope; settings and MCP servers may be one file."""

    settings: Path
    servers: Path
    page: Path
    command: Path

    def command_of(self, family: str) -> Path:
        """Return the file of a family's command."""
        parts = [part.replace("NAME", family) for part in self.command.parts[-2:]]
        return self.command.parents[1].joinpath(*parts)


_FOUR_EVENTS: Final[Mapping[str, Does]] = MappingProxyType(
    {"SessionStart": "start", "PreCompact": "save", "Stop": "save", "SessionEnd": "end"}
)


class Harness(NamedTuple):
    """A program that agents run in."""

    name: str
    title: str
    program: str
    project: Files
    advice: str
    events: Mapping[str, Does] = _FOUR_EVENTS
    timeout_units_per_s: int = 1
    servers_format: Literal["json", "toml"] = "json"
    server_fields: Mapping[str, str] = MappingProxyType({})
    has_env_file: bool = False
    edit_tools: tuple[str, ...] = ()
    """The tools that edit files, if a hook may speak before an edit and at the end of a turn."""

    def files(self, folder: Path, scope: Scope) -> Files:
        """Return its files in a project's ``folder`` or in the user's home.

        The team may share and commit a project's settings. Only Claude Code also has settings for this user.
        """
        if scope == "user":
            return _USER[self.name](folder)
        files = Files(*(folder / path for path in self.project))
        if not self.is_apart(scope):
            return files
        local = files.settings.with_name("settings.local.json")
        return files._replace(settings=local, servers=_claude_user(Path.home()).servers)

    def is_present(self) -> bool:
        """Whether its program is on PATH, or this user has its folder of settings."""
        settings = self.files(Path.home(), "user").settings
        return shutil.which(self.program) is not None or settings.parent.is_dir()

    def is_apart(self, scope: Scope) -> bool:
        """Whether this user's settings in a project are in another file than the team's."""
        return scope == "local" and self.name == "claude-code"

    def is_shared(self, folder: Path) -> bool:
        """Whether the settings of a project's team call our hooks already: without a path and without an agent."""
        call = rf'"{COMMAND} hook {self.name}(?! --as )'.encode()
        with suppress(DeedbookError):  # a link, a pipe, an unreadable file: writing there reports it
            return re.search(call, read_file(self.files(folder, "team").settings) or b"") is not None
        return False

    def asks_at_stop(self, folder: Path, scope: Scope) -> bool:
        """Whether the settings call our hook so that it asks once at the end of a turn (``ASK_AT_STOP``)."""
        call = rf'{COMMAND}\b[^"]* hook {self.name}\b[^"]* {ASK_AT_STOP}'.encode()
        with suppress(DeedbookError):  # as above
            return re.search(call, read_file(self.files(folder, scope).settings) or b"") is not None
        return False

    def timeout(self, event: str) -> int:
        """Return the timeout of a hook in the harness's own unit."""
        return self.timeout_units_per_s * (session_end_timeout_s if event == "SessionEnd" else timeout_s)


_GEMINI: Final = Path(".gemini/settings.json")
_COMMAND: Final = Path("commands/NAME.md")
_TOML_COMMAND: Final = Path("commands/NAME.toml")
_SKILL: Final = Path(".agents/skills/NAME/SKILL.md")


def _claude_user(home: Path) -> Files:
    configured = environment_variable("CLAUDE_CONFIG_DIR")
    folder = Path(configured) if configured else home / ".claude"
    return Files(
        folder / "settings.json",
        (folder if configured else home) / ".claude.json",
        folder / "CLAUDE.md",
        folder / _COMMAND,
    )


def _codex_user(home: Path) -> Files:
    folder = Path(environment_variable("CODEX_HOME") or home / ".codex")
    return Files(folder / "hooks.json", folder / "config.toml", folder / "AGENTS.md", home / _SKILL)


def _gemini_user(home: Path) -> Files:
    folder = home / ".gemini"
    return Files(folder / "settings.json", folder / "settings.json", folder / "GEMINI.md", folder / _TOML_COMMAND)


_USER: Final = {"claude-code": _claude_user, "codex": _codex_user, "gemini": _gemini_user}

HARNESSES: Final = {
    harness.name: harness
    for harness in (
        Harness(
            name="claude-code",
            title="Claude Code",
            program="claude",
            project=Files(Path(".claude/settings.json"), Path(".mcp.json"), Path("CLAUDE.md"), ".claude" / _COMMAND),
            server_fields={"type": "stdio"},
            has_env_file=True,
            events={**_FOUR_EVENTS, "PreToolUse": "edit"},
            edit_tools=("Edit", "MultiEdit", "NotebookEdit", "Write"),
            advice="These files are for this machine: keep .claude/settings.local.json out of git.",
        ),
        Harness(
            name="codex",
            title="Codex CLI",
            program="codex",
            servers_format="toml",
            project=Files(Path(".codex/hooks.json"), Path(".codex/config.toml"), Path("AGENTS.md"), _SKILL),
            advice="Trust the new hooks in Codex with /hooks, and trust the project: Codex runs them only then.",
        ),
        Harness(
            name="gemini",
            title="Gemini CLI",
            program="gemini",
            timeout_units_per_s=1000,
            events={"SessionStart": "start", "PreCompress": "save", "AfterAgent": "save", "SessionEnd": "end"},
            project=Files(_GEMINI, _GEMINI, Path("GEMINI.md"), ".gemini" / _TOML_COMMAND),
            advice="Gemini CLI shows one warning about the new hooks.",
        ),
    )
}


def own_command() -> str:
    """Return the path of the installed command: beside the interpreter, else on PATH; else only its name."""
    beside = Path(sys.executable).with_name(COMMAND)
    return str(beside) if beside.is_file() else shutil.which(COMMAND) or COMMAND
