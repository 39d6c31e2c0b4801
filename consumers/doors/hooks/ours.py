"""What setup writes: the commands of the hooks, the MCP server and the page, as each harness's files take them."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from consumers.doors.hooks.fenced import MARKDOWN, TOML, Block
from consumers.doors.hooks.page import agents_page
from consumers.doors.hooks.parts import Setting, Settings

if TYPE_CHECKING:
    from pathlib import Path

    from consumers.doors.hooks.harnesses import Harness
    from consumers.doors.hooks.parts import Part

SERVER: Final = "baton"


class Launcher(NamedTuple):
    """How a harness calls Baton: the interpreter by its path, so that no virtual environment need be active.

    ``-P`` keeps the folder it is called in, which is the project's, out of the module path.
    """

    python: str
    agent: str
    home: str | None = None
    server: str | None = None

    @property
    def _options(self) -> list[str]:
        given = {"--as": self.agent, "--home": self.home, "--server": self.server}
        return [word for name, value in given.items() if value is not None for word in (name, value)]

    def hook(self, harness: str) -> str:
        """Return the command line of a hook, for a shell."""
        return shlex.join([self.python, "-P", "-m", "consumers.doors.hooks", harness, *self._options])

    def mcp(self) -> tuple[str, list[str]]:
        """Return the command and the arguments of the MCP server."""
        return self.python, ["-P", "-m", "consumers.doors.cli", "mcp", *self._options]


def parts_of(harness: Harness, folder: Path, launcher: Launcher, *, is_user: bool) -> dict[Path, Part]:
    """Return our part of each file; where settings and servers are one file, they are one part."""
    files = harness.files(folder, is_user=is_user)
    hooks = tuple(_hook(harness, event, launcher) for event in harness.events)
    command, arguments = launcher.mcp()
    server: dict[str, Any] = {**harness.server_fields, "command": command, "args": arguments}
    note = f"(by `baton setup {harness.name}`, which also removes it: --remove)"
    parts: dict[Path, Part] = {}
    if harness.servers_format == "json":
        setting = Setting(("mcpServers", SERVER), server, is_item=False, mark="")
        if files.servers == files.settings:
            parts[files.settings] = Settings((*hooks, setting))
        else:
            parts |= {files.settings: Settings(hooks), files.servers: Settings((setting,))}
    else:
        lines = [f"[mcp_servers.{SERVER}]", *(f"{name} = {_toml_value(value)}" for name, value in server.items())]
        parts |= {files.settings: Settings(hooks), files.servers: Block(TOML, "\n".join(lines) + "\n", note)}
    parts[files.page] = Block(MARKDOWN, agents_page(), note)
    return parts


def _hook(harness: Harness, event: str, launcher: Launcher) -> Setting:
    handler = {"type": "command", "command": launcher.hook(harness.name), "timeout": harness.timeout(event)}
    return Setting(
        ("hooks", event), {"hooks": [handler]}, is_item=True, mark=f" -m consumers.doors.hooks {harness.name} "
    )


def _toml_value(value: str | list[str]) -> str:
    """Return a value as TOML: a basic string takes JSON's escapes, and DEL must be escaped too."""
    return json.dumps(value).replace("\x7f", "\\u007f")
