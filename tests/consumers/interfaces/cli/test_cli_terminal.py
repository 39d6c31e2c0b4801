"""The output in a real terminal: no line of a list is wider than it, with colour and without.

One tmux server has a session for each width and for ``NO_COLOR``; in each, one process calls every verb in turn. The
screens are stored as text; tmux reports which lines it had to wrap. Times, keys and digests are replaced by ones of the
same width.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import shutil
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Final
from unittest import mock

import inside
import pytest
from calling import environment
from hypothesis import given
from hypothesis import strategies as st

from deedbook.consumers.interfaces.cli import output

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SCREENS: Final = Path(__file__).with_name("screens")
VERBS: Final = (
    "handoff list",
    "handoff list --board",
    "handoff graph",
    "next",
    "log --limit 8",
    "log --after 6 --limit 3",
    "session list",
    "agent list",
    "why cache",
    "--help",
    "handoff create --help",
)
COLOURED: Final = re.compile(r"\x1b\[(?:9|3)[0-7]m")
A_TIME: Final = re.compile(r"(?<!\d)2\d{3}-\d\d-\d\d( \d[\d:]*Z?)?")
A_VERSION: Final = re.compile(r"sha256:[0-9a-f]{6}")
A_KEY: Final = re.compile(r"(?<![0-9a-f])[0-9a-f]{16}(?![0-9a-f])")
DRIVER: Final = """
import os, subprocess, sys
from deedbook.consumers.interfaces.cli.program import run
home, tmux, name, *verbs = sys.argv[1:]
os.environ["DEEDBOOK_HOME"] = home  # found without --home, so printed commands do not repeat it
for verb in verbs:
    print("$ deed " + verb, flush=True)
    run(["--home", home, *verb.split()])
    print(flush=True)
subprocess.run([tmux, "wait-for", "-S", name], check=True)
sys.stdin.read()
"""
Screen = tuple[int, bool]
ALL: Final[list[Screen]] = [*product((80, 120), (True, False))]


@pytest.fixture(scope="module")
def home(populated: Callable[[str], Path]) -> Path:
    """A ledger with content that makes lists wide: Chinese, emoji, accents, long ids, reasons and names."""
    folder = populated("terminal")

    def call(*words: str) -> None:
        said = inside.deed("--home", folder, *words)
        assert said.code == 0, said.err

    def create(id_: str, title: str, *more: str) -> None:
        call("handoff", "create", id_, "--as", "a", "--to", "b", "--reviewer", "rita", "--title", title, *more)

    create("cache", "Sessions never expire, because the cache holds each one for ever and nobody asks it to let go")
    create(
        "事件总线",
        "重寫事件總線 🚀 並且保證每一條消息都不會因為重新連接而丟失或者重複",
        "--task",
        "寫",
        "--criterion",
        "試過",
    )
    create("2026-01-01-an-id-made-of-the-day-and-of-a-title", "Café — naïve", "--depends-on", "cache", "--task", "one")
    create("stuck", "What waits for what is not there", "--depends-on", "schema")
    for name in ("cache", "stuck"):
        version = inside.deed("--home", folder, "handoff", "show", name, "--version").out.strip()
        call("handoff", "approve", name, "--as", "rita", "--version", version)
    call("handoff", "claim", "cache", "--as", "b")
    call(
        "handoff",
        "block",
        "cache",
        "--as",
        "b",
        "--reason",
        "the machine that holds the cache cannot be reached from here",
    )
    call(
        "session", "start", "--as", "a", "--task", "Find out why the sessions of those who were away never end 🚀", "s1"
    )
    return folder


@pytest.fixture(scope="module")
def screens(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Screen, str], str]]:
    """Return a function that reads the screen of a width, in colour or not, with further options of capture-pane."""
    program = shutil.which("tmux")
    if program is None:
        pytest.skip("not run: the command `tmux` is missing (`apt-get install tmux`)")
    folder = tmp_path_factory.mktemp("tmux")
    command = [program, "-f", "/dev/null", "-S", str(folder / "socket")]
    names = {(width, colour): f"at{width}{colour}" for width, colour in ALL}

    def tmux(*words: str) -> str:
        done = subprocess.run([*command, *words], check=True, capture_output=True, text=True, timeout=60)
        return done.stdout

    around = environment() | {"LC_ALL": "C.UTF-8"}
    around.pop("COLUMNS", None)
    (folder / "driver.py").write_text(DRIVER)
    try:
        for (width, colour), name in names.items():
            called = [
                "env",
                f"NO_COLOR={'' if colour else 1}",
                sys.executable,
                str(folder / "driver.py"),
                str(home),
                program,
                name,
                *VERBS,
            ]
            size = ["-x", str(width), "-y", "300"]
            subprocess.run([*command, "new-session", "-d", "-s", name, *size, *called], check=True, env=around)
        for name in names.values():
            tmux("wait-for", name)
        yield lambda screen, options: tmux("capture-pane", "-p", "-t", names[screen], *options.split())
    finally:
        subprocess.run([*command, "kill-server"], check=False)


def shown(screen: str) -> list[str]:
    """Return the lines of a screen, without the parts that differ from run to run."""
    screen = A_TIME.sub(lambda time: "2026-01-01 00:00:00Z"[: len(time[0])], A_KEY.sub("0123456789abcdef", screen))
    screen = A_VERSION.sub("sha256:000000", screen)  # the hash of a content that includes its date
    return [line.rstrip() for line in screen.rstrip().split("\n")]


@pytest.mark.parametrize("screen", ALL, ids=str)
def test_no_line_is_wider_than_the_terminal(screens: Callable[[Screen, str], str], screen: Screen) -> None:
    as_seen, as_written = shown(screens(screen, "")), shown(screens(screen, "-J"))
    wrapped = [line for line in as_written if line not in as_seen]
    assert wrapped == []
    assert sum(line.startswith("$ deed ") for line in as_seen) == len(VERBS)
    assert not any("UNEXPECTED" in line for line in as_seen)


@pytest.mark.parametrize("width", [80, 120])
def test_screen_is_the_one_that_is_kept(screens: Callable[[Screen, str], str], width: int, tmp_path: Path) -> None:
    every, kept = shown(screens((width, True), "")), SCREENS / f"{width}.txt"
    lines = every[: every.index("$ deed --help")]
    (tmp_path / kept.name).write_text("\n".join(lines) + "\n")
    again = f"if the new screen is right, copy {tmp_path / kept.name} to {kept}"
    assert lines == (kept.read_text().splitlines() if kept.exists() else []), again
    assert shown(screens((width, False), "")) == every


@pytest.mark.parametrize("width", [80, 120])
def test_states_have_a_colour_unless_nobody_wants_one(screens: Callable[[Screen, str], str], width: int) -> None:
    coloured = screens((width, True), "-e")
    assert "\x1b[31m[blocked →" in coloured
    assert "\x1b[33m[pending →" in coloured
    assert COLOURED.search(screens((width, False), "-e")) is None


@given(words=st.lists(st.text("ab '\"$\\寫🚀", max_size=30), min_size=1, max_size=6), cells=st.integers(1, 60))
def test_command_that_is_broken_is_the_same_command(words: list[str], cells: int) -> None:
    printed = io.StringIO()
    with mock.patch.object(output, "terminal_cells", return_value=cells), contextlib.redirect_stdout(printed):
        output.print_command(shlex.join(["deed", *words]), "          ")
    lines = printed.getvalue().split(" \\\n")  # as a shell reads a line that ends in a backslash
    assert shlex.split(" ".join(lines)) == ["deed", *words]
    assert all(output.width(line) + len(" \\") <= cells for line in lines[:-1] if len(shlex.split(line)) > 1)


def test_what_is_piped_is_whole(home: Path) -> None:
    command = [sys.executable, "-m", "deedbook", "--home", str(home), "handoff", "list"]
    asked = environment() | {"COLUMNS": "40"}
    listed = subprocess.run(command, capture_output=True, text=True, env=asked, check=True).stdout
    header, *rows = listed.splitlines()
    assert header.split() == ["id", "status", "title", "why", "tasks", "depends", "on"]
    assert [row.partition(" ")[0] for row in rows][-1] == "cache"
    assert "the machine that holds the cache cannot be reached from here" in listed
    assert "\x1b" not in listed
