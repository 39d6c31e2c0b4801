"""A reader of the documentation, who types every command of a page into a shell and compares the answers.

The reader begins in an empty folder. A comment on the page, "the tests run this page after FILE", names the page that
the reader has read before. The reader handles the blocks in order:

- ```` ```console ````: each command is after ``$``. The lines below it must be what it prints, apart from values that
  differ between runs (``console_blocks.normalized``); a line ``...`` stands for any lines. A command without such lines
  only has to succeed. A refusal on the page begins with its code, and the command must end with that code's exit code.
- A block with ``title="NAME"``, or a program whose first line is ``# NAME``, is a file that the reader writes.
- Other blocks do nothing.

A plain ``deed`` command runs in this process, everything else in bash. The folder to which a command changes is that of
the next commands, as in one shell. A command that ends in ``&`` runs until the page ends. With
``DEEDBOOK_TRANSCRIPTS=write``, answers that differ are written into the page: read them before you commit.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Self

import inside
from console_blocks import FENCED, blocks, commands_of, is_as_expected, normalized
from forked_deed import deed_command
from ports import free_port

from deedbook.ledger.errors import CODES

if TYPE_CHECKING:
    from types import TracebackType

ROOT: Final = Path(__file__).parents[1]
wait_max_s: Final = 120.0
HOME_ON_PAGES: Final = "/home/alex"
PORTS: Final = ("4222", "8080", "4280")
"""Ports on pages; each page of a test has its own."""

_BEFORE: Final = re.compile(r"<!-- .*run this page after (\S+)\. -->")
_VARIABLE: Final = re.compile(r"(?:export )?([A-Za-z_]\w*)=(\S*|\"[^\"]*\"|\$\(.*\))")
_NESTED: Final = re.compile(r'"?\$\((deed [^()]*)\)"?')


class Answer(NamedTuple):
    """The output of a command, and its exit code."""

    text: str
    code: int


class Compared(NamedTuple):
    """A command, its answer on the page and in this run, and whether both are equal in all invariant parts."""

    command: str
    expected: str
    answer: str
    is_equal: bool

    def text(self) -> str:
        """Return the command with its answer in this run; an answer that the page omits or shortens stays so."""
        is_kept = not self.expected or (self.is_equal and "\n...\n" in f"\n{self.expected}\n")
        answer = self.expected if is_kept else self.answer
        return f"$ {self.command}" + (f"\n{answer}" if answer else "")


class ReaderShell:
    """A shell in an empty folder, in the home of a new user."""

    def __init__(self, folder: Path) -> None:
        self._home = folder / "home"
        self.folder = self._home / "project"
        self.folder.mkdir(parents=True)
        self._present = self.folder
        self._ports = {port: str(free_port()) for port in PORTS}
        self._background: list[subprocess.Popen[bytes]] = []
        installed = folder / "installed"
        installed.mkdir()
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        program = f'#!/bin/sh\nPATH={shlex.quote(path)} exec {shlex.join(deed_command())} "$@"\n'
        (installed / "deed").write_text(program)
        (installed / "deed").chmod(0o755)
        self._installed = str(installed)
        self._variables = {"HOME": str(self._home), "COLUMNS": "100", "PATH": path}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        for process in self._background:
            process.terminate()
        for process in self._background:
            process.wait(wait_max_s)

    def read(self, page: Path, *, is_writing: bool = False) -> int:
        """Run the commands of a page, after those of the page that it follows; return how many ran."""
        text = page.read_text("utf-8")
        before = _BEFORE.search(text)
        for block in blocks((ROOT / before[1]).read_text("utf-8")) if before else ():
            for command, _ in commands_of(block.content) if block.language == "console" else ():
                self.run(command)  # that page's own test compares the answers
        replaced: list[list[Compared]] = []
        for block in blocks(text):
            if block.name:
                path = self.folder / block.name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(self._here(block.content), "utf-8")
            elif block.language == "console":
                replaced.append([self._compared(*command, is_writing) for command in commands_of(block.content)])
        compared = [one for answers in replaced for one in answers]
        if is_writing and not all(one.is_equal for one in compared):
            page.write_text(_with_answers(text, replaced), "utf-8")
        return len(compared)

    def _compared(self, command: str, expected: str, is_writing: bool) -> Compared:
        """Run a command, and compare its answer with the page."""
        answer = self.run(command)
        code = next((line.partition(":")[0] for line in expected.split("\n") if line.partition(":")[0] in CODES), "")
        wanted = CODES[code].exit if code else 0
        assert is_writing or answer.code == wanted, f"$ {command}\n{answer.text}\n[{answer.code}]"
        equal = not expected or is_as_expected(self._normalized(expected), self._normalized(answer.text))
        assert is_writing or equal, f"$ {command}\n{answer.text}\n--- the page says:\n{expected}"
        return Compared(command, expected, self._there(answer.text).rstrip("\n"), equal)

    def run(self, command: str) -> Answer:
        """Run a command as the user's shell would, and return its answer."""
        command = self._here(command)
        if assigned := _VARIABLE.fullmatch(command):
            name, value = assigned.groups()
            self._variables[name] = self._bash(f'printf %s "{value.strip(chr(34))}"', errors=subprocess.DEVNULL).text
            return Answer("", 0)
        if command.endswith(" &"):
            return self._start(command.removesuffix(" &"))
        command = _NESTED.sub(lambda match: shlex.quote(self.run(match[1]).text.strip()), command)
        command = re.sub(r"\$([A-Z_]+)\b", lambda match: self._variables.get(match[1], match[0]), command)
        words = shlex.split(command)
        operators = set(shlex.shlex(command, posix=True, punctuation_chars=True))
        if words[0] != "deed" or operators & {"|", "<", "<<", ">", "&&", ";", ">>"}:
            return self._bash(command)
        said = inside.deed(*words[1:], cwd=self._present, **self._variables)
        return Answer(said.out + said.err, said.code)

    def _bash(self, command: str, *, errors: int = subprocess.STDOUT) -> Answer:
        present = self._home.parent / "present-folder"
        done = subprocess.run(
            ["bash", "-c", f"trap 'pwd > {shlex.quote(str(present))}' EXIT\n{command}"],
            cwd=self._present,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            check=False,
            timeout=wait_max_s,
        )
        self._present = Path(present.read_text("utf-8").removesuffix("\n"))
        return Answer(done.stdout, done.returncode)

    def _start(self, command: str) -> Answer:
        """Start a command that runs until the page ends; wait for its first line."""
        output = self._home.parent / f"background-{len(self._background)}"
        with output.open("wb") as file:
            arguments = ["bash", "-c", f"exec {command}"]
            process = subprocess.Popen(
                arguments,
                cwd=self._present,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
            )
        self._background.append(process)
        deadline = time.monotonic() + wait_max_s
        while not output.stat().st_size and process.poll() is None:
            assert time.monotonic() < deadline, f"{command} prints nothing"
            time.sleep(0.02)
        return Answer(output.read_text(), process.poll() or 0)

    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("DEEDBOOK_")}
        return kept | self._variables | {"PATH": f"{self._installed}{os.pathsep}{self._variables['PATH']}"}

    def _here(self, text: str) -> str:
        """Return a text of a page with its folder and ports replaced by those of this test."""
        for port, free in self._ports.items():
            text = re.sub(rf"\b{port}\b", free, text)
        return text.replace(HOME_ON_PAGES, str(self._home))

    def _there(self, text: str) -> str:
        for port, free in self._ports.items():
            text = re.sub(rf"\b{free}\b", port, text)
        return text.replace(str(self._home), HOME_ON_PAGES)

    def _normalized(self, text: str) -> str:
        text = re.sub(r"\+[0-9a-f]{8}\+[\w+/=]{40,}", "+KEY", self._here(text))
        return normalized(text, self.folder)


def _with_answers(text: str, answers: list[list[Compared]]) -> str:
    """Return a page with the answers of this run in its console blocks: all come from one run, so hashes agree."""
    left = iter(answers)

    def put(match: re.Match[str]) -> str:
        indent, language, info, _ = match.groups()
        if language != "console" or "title=" in info:
            return match[0]
        lines = "".join(f"{indent}{line}\n" if line else "\n" for one in next(left) for line in one.text().split("\n"))
        return f"{indent}```{language}{info}\n{lines}{indent}```"

    return FENCED.sub(put, text)
