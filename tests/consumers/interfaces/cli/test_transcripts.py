"""Transcripts: the commands on a page of ``transcripts/``, and the exact output of the command line.

Each page begins in an empty folder, with a copy of one ledger. It has the agents a and b, the admin ada, and the human
reviewer rita. The blocks of a page run one after the other in this process:

- ```` ```console ````: after ``$`` a command, and below it what it prints. ``[3]`` is its exit code. A line ``...``
  stands for any lines.
- A block with another language and a name (```` ```json graph.json ````) is a file that is written.
- ``NAME=$(deed …)`` keeps an answer for ``$NAME``. ``NAME=value`` before a command is its environment, ``< FILE`` its
  input. ``| grep TEXT`` shows the lines with a text, ``| data.tasks.*.done`` a part of a document, and ``> /dev/null``
  nothing if the command succeeds.

A page that says so runs through a server, too. ``normalized`` replaces what differs from run to run. A refused command
is called again with ``--json``, and must give the same code. With ``DEEDBOOK_TRANSCRIPTS=write`` the answers are
written into the pages: read them before you commit them.
"""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from calling import Deed, Place
from console_blocks import commands_of, is_as_expected, normalized

from deedbook.consumers.handoffs.operations import OPERATIONS, QUESTIONS, spelled
from deedbook.ledger.errors import CODES

if TYPE_CHECKING:
    from collections.abc import Callable

FOLDER: Final = Path(__file__).with_name("transcripts")
PAGES: Final = sorted(FOLDER.glob("*.md"))
SERVED: Final = [page for page in PAGES if "runs in a folder and through a server" in page.read_text("utf-8")]
BLOCK: Final = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def part_of(document: Any, path: list[str]) -> Any:
    """Return a part of a document; ``*`` is every item of a list."""
    if not path:
        return document
    if path[0] == "*":
        return [part_of(item, path[1:]) for item in document]
    return part_of(document[int(path[0]) if isinstance(document, list) else path[0]], path[1:])


class Shell:
    """A user's shell, as far as the pages need one."""

    def __init__(self, deed: Deed, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.deed, self.folder, self.patch = deed, folder, patch
        self.variables: dict[str, str] = {}

    def answer(self, line: str) -> str:
        """Return the output of a line, normalized."""
        if assigned := re.fullmatch(r"(\w+)=\$\((.*)\)", line):
            self.variables[assigned[1]] = self.call(assigned[2])[0].strip()
            return ""
        text, code = self.call(line.removesuffix(" > /dev/null"))
        text = "" if line.endswith(" > /dev/null") and not code else normalized(text, self.folder, is_shared=True)
        return text + (f"\n[{code}]" if code else "")

    def call(self, line: str) -> tuple[str, int]:
        """Call a command, and return its filtered output and its exit code."""
        line = re.sub(r"\$\((deed .*?)\)", lambda match: self.call(match[1])[0].strip(), line)
        for name, value in self.variables.items():
            line = re.sub(rf"\${name}\b", value, line)
        command, _, chosen = line.partition(" | ")
        command, _, file = command.partition(" < ")
        words = shlex.split(command)
        with self.patch.context() as patch:
            while re.fullmatch(r"[A-Z_]+=.*", words[0]):
                patch.setenv(*words.pop(0).split("=", 1))
            assert words.pop(0) == "deed", line
            if file:
                content = (self.folder / file).read_bytes()
                patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content), "utf-8"))
            said = self.deed.run(*words)
            code = said.err.partition(":")[0]
            if code in CODES and not file and not self.deed.is_remote:
                assert (said.code, said.out) == (CODES[code].exit, ""), line
                if "--json" not in words:
                    self.deed.refuses_programs(code, *words)
        return filtered(said.out + said.err, chosen), said.code


def filtered(text: str, chosen: str) -> str:
    """Return the lines with a text, or a part of a document."""
    if chosen.startswith("grep "):
        (wanted,) = shlex.split(chosen)[1:]
        return "\n".join(line for line in text.splitlines() if wanted in line)
    if not chosen:
        return text
    found = part_of(json.loads(text), chosen.split("."))
    return found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)


@pytest.mark.parametrize("verb", [spelled(verb) for verb in OPERATIONS])
def test_a_page_shows_each_operation_on_a_handoff(verb: str) -> None:
    noun = "" if verb in QUESTIONS else "handoff "
    command = re.compile(rf"^\$ .*deed {noun}{verb}\b(?!-)", re.MULTILINE)
    assert any(command.search(page.read_text("utf-8")) for page in PAGES)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_command_line_answers_as_on_the_page(
    page: Path,
    populated: Callable[[str], Path],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    home = populated("transcript")
    play(page, Shell(Deed(capsys, Place(home)), home.parent, monkeypatch))


@pytest.mark.parametrize("page", SERVED, ids=lambda page: page.stem)
def test_server_answers_as_on_the_page(
    page: Path, served: Place, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deed = Deed(capsys, served)
    for session in deed.data("session", "list", "--status", "open")["items"]:  # the page would show them, too
        deed("session", "end", session["id"], "--as", session["author"])
    play(page, Shell(deed, tmp_path, monkeypatch))


def play(page: Path, shell: Shell) -> None:
    """Run the blocks of a page."""
    shell.patch.chdir(shell.folder)
    shell.patch.setenv("COLUMNS", "100")
    is_writing = os.environ.get("DEEDBOOK_TRANSCRIPTS") == "write" and not shell.deed.is_remote

    def run(block: re.Match[str]) -> str:
        language, name, content = block.groups()
        if language != "console":
            (shell.folder / name).write_text(content, "utf-8")
            return block[0]
        lines = []
        for command, expected in commands_of(content):
            printed = shell.answer(command)
            lines += [f"$ {command}", *([printed] if printed else [])]
            if not is_writing:
                assert is_as_expected(expected, printed), f"$ {command}\n{printed}\n--- the page says:\n{expected}"
            elif expected and is_as_expected(expected, printed):
                lines[-1] = expected
        return "```console\n" + "\n".join(lines) + "\n```"

    written = BLOCK.sub(run, page.read_text("utf-8"))
    if is_writing:
        page.write_text(written, "utf-8")
