"""What each harness has: which file holds what, which events its hooks are told of, and what a hook may print there.

Read from their documentation, November 2026:

- Claude Code: "Hooks reference" and "MCP", code.claude.com/docs/en/hooks and /mcp (text of 2026-10-08). Servers for one
  user in one project stand in .claude.json, under the project's path. Timeouts are
  seconds. Standard output of SessionStart reaches the model; exit code 2 blocks Stop and PreCompact. SessionEnd hooks
  share 1.5 s, raised to the longest timeout that settings give. A fork carries the conversation it was forked from.
- Codex CLI: "Hooks" and "Model Context Protocol", learn.chatgpt.com/docs/hooks and /docs/extend/mcp, and the schemas in
  openai/codex, codex-rs/hooks/schema/generated. Timeouts are seconds, at most 3 for SessionEnd. Stop takes JSON or
  nothing. The `.codex` folder of a project is read once the project is trusted; new hooks run once they are trusted.
- Gemini CLI: docs/hooks/reference.md and docs/tools/mcp-server.md in google-gemini/gemini-cli (August 2026). Timeouts
  are milliseconds. Standard output is one JSON object or nothing; where it is empty, standard error is read in its
  place, so a hook is silent on both. Its settings may hold comments. A resumed session brings its history along.

The command `/tot` is Markdown in .claude/commands for Claude Code, TOML in .gemini/commands for Gemini CLI. Codex reads
no prompts of users since 0.117 (April 2026): there it is a skill in .agents/skills, called by `$tot`.

All three call the same command with one JSON object on standard input: ``session_id``, ``cwd``, ``hook_event_name``,
and ``source`` at SessionStart. All three take ``hookSpecificOutput.additionalContext`` there, and nothing from us else.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Final, Literal, NamedTuple

from deedbook.consumers.sdk.files import read_file
from deedbook.ledger.errors import DeedbookError
from deedbook.ledger.home.environment import environment_variable

Does = Literal["start", "save", "end"]
Scope = Literal["local", "team", "user"]
"""Whose setup it is: this user's in a project, that of everybody who has the project, this user's in all projects."""

timeout_s: Final = 5
"""What a harness gives a hook; the hook ends itself before that (``supervisor.deadline_s``)."""

session_end_timeout_s: Final = 3
brief_sources: Final = frozenset({"startup", "clear", "compact"})
"""The sources of a SessionStart that get a brief; after the others (resume, fork) the earlier one is still there."""


class Files(NamedTuple):
    """The places of a harness in one scope; settings and MCP servers may be one file."""

    settings: Path
    servers: Path
    page: Path
    command: Path


_FOUR_EVENTS: Final[Mapping[str, Does]] = MappingProxyType(
    {"SessionStart": "start", "PreCompact": "save", "Stop": "save", "SessionEnd": "end"}
)


class Harness(NamedTuple):
    """A program that agents run in."""

    name: str
    title: str
    project: Files
    advice: str
    events: Mapping[str, Does] = _FOUR_EVENTS
    timeout_units_per_s: int = 1
    servers_format: Literal["json", "toml"] = "json"
    server_fields: Mapping[str, str] = MappingProxyType({})
    has_env_file: bool = False

    def files(self, folder: Path, scope: Scope) -> Files:
        """Return where its files are: in a project's ``folder``, or in the user's home.

        A project's settings may be its team's and committed; Claude Code alone has others for this user.
        """
        if scope == "user":
            return _USER[self.name](folder)
        files = Files(*(folder / path for path in self.project))
        if not self.is_apart(scope):
            return files
        local = files.settings.with_name("settings.local.json")
        return files._replace(settings=local, servers=_claude_user(Path.home()).servers)

    def is_apart(self, scope: Scope) -> bool:
        """Whether a project's local settings are others than its team's."""
        return scope == "local" and self.name == "claude-code"

    def command(self) -> str:
        """Return how a hook is called where the command is installed: on no machine by a path."""
        return f"deed hook {self.name}"

    def is_shared(self, folder: Path) -> bool:
        """Whether the settings of a project's team call our hooks already."""
        with suppress(DeedbookError):  # a link, a pipe, an unreadable file: whoever writes there is told
            return f'"{self.command()}'.encode() in (read_file(self.files(folder, "team").settings) or b"")
        return False

    def timeout(self, event: str) -> int:
        """Return the timeout of a hook in the harness's own unit."""
        return self.timeout_units_per_s * (session_end_timeout_s if event == "SessionEnd" else timeout_s)


_GEMINI: Final = Path(".gemini/settings.json")
_TOT: Final = Path("commands/tot.md")
_TOT_TOML: Final = Path("commands/tot.toml")
_TOT_SKILL: Final = Path(".agents/skills/tot/SKILL.md")


def _claude_user(home: Path) -> Files:
    given = environment_variable("CLAUDE_CONFIG_DIR")
    folder = Path(given) if given else home / ".claude"
    return Files(
        folder / "settings.json", (folder if given else home) / ".claude.json", folder / "CLAUDE.md", folder / _TOT
    )


def _codex_user(home: Path) -> Files:
    folder = Path(environment_variable("CODEX_HOME") or home / ".codex")
    return Files(folder / "hooks.json", folder / "config.toml", folder / "AGENTS.md", home / _TOT_SKILL)


def _gemini_user(home: Path) -> Files:
    folder = home / ".gemini"
    return Files(folder / "settings.json", folder / "settings.json", folder / "GEMINI.md", folder / _TOT_TOML)


_USER: Final = {"claude-code": _claude_user, "codex": _codex_user, "gemini": _gemini_user}

HARNESSES: Final = {
    one.name: one
    for one in (
        Harness(
            name="claude-code",
            title="Claude Code",
            project=Files(Path(".claude/settings.json"), Path(".mcp.json"), Path("CLAUDE.md"), ".claude" / _TOT),
            server_fields={"type": "stdio"},
            has_env_file=True,
            advice="What was written here is this machine's: keep .claude/settings.local.json out of git.",
        ),
        Harness(
            name="codex",
            title="Codex CLI",
            servers_format="toml",
            project=Files(Path(".codex/hooks.json"), Path(".codex/config.toml"), Path("AGENTS.md"), _TOT_SKILL),
            advice="Codex runs new hooks once you have trusted them with /hooks, and a project's once it is trusted.",
        ),
        Harness(
            name="gemini",
            title="Gemini CLI",
            timeout_units_per_s=1000,
            events={"SessionStart": "start", "PreCompress": "save", "AfterAgent": "save", "SessionEnd": "end"},
            project=Files(_GEMINI, _GEMINI, Path("GEMINI.md"), ".gemini" / _TOT_TOML),
            advice="Gemini CLI warns once of the new hooks.",
        ),
    )
}
