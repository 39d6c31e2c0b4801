"""Every example in a docstring and on a page runs, and its output is right."""

from __future__ import annotations

import contextlib
import doctest
import importlib
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest
from reader_shell import ReaderShell

from deedbook import Ledger
from deedbook.consumers.handoffs.operations import OPERATIONS
from deedbook.consumers.interfaces.cli.program import VERBS, deed, run
from deedbook.consumers.sdk.subscriptions import open_subscriptions
from deedbook.ledger.families import find

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    path
    for folder in ("", "ledger", "projections", "consumers", "deploy", "docs", ".github")
    for path in (ROOT.glob("*.md") if not folder else (ROOT / folder).rglob("*.md"))
    if "demo" not in path.parts and path.name != "agents_page.md"
)
WITH_COMMANDS = [
    page
    for page in PAGES
    if "```console" in page.read_text("utf-8") and page != ROOT / "deploy/runbook.md"  # tests/deploy/test_runbook.py
]


def modules() -> Iterator[str]:
    """Yield the names of all modules with an example in their text."""
    for package in ("ledger", "projections", "consumers"):
        for path in (ROOT / package).rglob("*.py"):
            if path.stem != "__main__" and ">>> " in path.read_text("utf-8"):
                yield "deedbook." + ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


@pytest.mark.parametrize("name", sorted(modules()))
def test_examples_in_docstrings_are_true(name: str) -> None:
    module = importlib.import_module(name)
    assert doctest.testmod(module).failed == 0


def blocks(language: str, *pages: str) -> list[str]:
    """Return the blocks of code in a language on some pages, in their order."""
    texts = [(ROOT / page).read_text("utf-8") for page in pages]
    return [block for text in texts for block in re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)]


@pytest.mark.parametrize("page", WITH_COMMANDS, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_on_a_page_do_what_it_says(page: Path, tmp_path: Path) -> None:
    with ReaderShell(tmp_path) as shell:
        assert shell.read(page, is_writing=os.environ.get("DEEDBOOK_TRANSCRIPTS") == "write") > 0


NOT_RUN = {
    "pip": "it asks a package index",
    "npm": "it asks a package index",
    "make": "make test would run itself",
    "gh": "it asks the host of the repository",
    "export": "it changes the shell of the reader",
    "python3": "verify.py runs in the test of bundles, and in a block of the same page",
    "node": "tests/interop runs the agent in TypeScript",
    "./http.sh": "tests/interop runs the agent in bash",
    "backlog": "a tool of others",
    "baton": "a tool of others",
    "sed": "it changes a file of such a tool",
    "echo": "its output goes to such a tool",
    "deed": "it needs a terminal, a browser or a second machine: its options are checked",
}
"""The first words of the commands in blocks ``sh``, each with the reason why no test runs it from the page."""


@pytest.mark.parametrize("page", [page for page in PAGES if page.is_relative_to(ROOT / "docs") or page.parent == ROOT])
def test_commands_that_no_test_runs_have_a_reason_and_their_options(page: Path) -> None:
    for block in blocks("sh", str(page.relative_to(ROOT))):
        for line in block.strip().splitlines():
            words = [word for word in shlex.split(line, comments=True) if not re.match(r"[A-Z_]+=", word)]
            assert words[0] in NOT_RUN, (page, line)
            if words[0] == "deed":
                command, context = deed, click.Context(deed)
                for word in words[1:]:
                    if isinstance(command, click.Group) and (inner := command.get_command(context, word)):
                        command = inner
                names = {name for option in command.get_params(context) for name in option.opts}
                assert {word for word in words if word.startswith("--")} <= names | {"--as", "--home"}, (page, line)


@pytest.mark.parametrize(("page", "output"), [("ledger/README.md", "2 1\n"), ("projections/README.md", "2 0\n")])
def test_the_example_of_a_page_runs_on_a_new_ledger(
    page: str, output: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (example,) = blocks("python", page)
    exec(compile(example, "README.md", "exec"), {})
    assert capsys.readouterr().out == output


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """The Python programs of the pages as files, in a folder outside the repository."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    pages = [f"docs/how-to/{name}.md" for name in ("python-agent", "own-events", "audit")]
    for program in blocks("python", *pages, "consumers/sdk/README.md"):
        name = program.splitlines()[0].removeprefix("# ")
        (folder / name).write_text(program)
    assert len(list(folder.glob("*.py"))) == 10
    return folder


def test_programs_on_the_pages_pass_a_strict_type_checker(programs: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mypy", "--strict", *programs.glob("*.py")]
    checked = subprocess.run(command, cwd=programs, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout


@pytest.mark.parametrize("suffix", ["", "_async", "_postgres"])
def test_programs_on_the_pages_publish_react_and_audit(
    programs: Path, tmp_path: Path, suffix: str, request: pytest.FixtureRequest
) -> None:
    home = tmp_path / ".deedbook"
    database = request.getfixturevalue("database") if suffix == "_postgres" else ""
    environment = program_environment(home) | {"DATABASE_URL": database}

    def call(*words: str) -> None:
        assert run(["--home", str(home), *words]) == 0

    def start(name: str) -> subprocess.Popen[str]:
        command = [sys.executable, str(programs / f"{name}.py")]
        return subprocess.Popen(command, cwd=programs, env=environment, stdout=subprocess.PIPE, text=True)

    def finish(name: str) -> str:
        with start(name) as process:
            out, _ = process.communicate(timeout=60)
        assert process.returncode == 0
        return out

    call("init", "--unprotected")
    for agent, roles in (("kuro", ("agent",)), ("claude-code", ("agent",)), ("alex", ("human", "reviewer"))):
        call("agent", "add", agent, *(word for role in roles for word in ("--role", role)), "--unprotected")
    assert finish("publish") == "ten-lines is not ready: it waits for the approval of alex.\n"
    assert finish("publish").startswith("TRANSITION_NOT_ALLOWED handoff ten-lines already exists")
    assert decide(programs, environment, "yes").startswith("Ten lines\ntests pass\n")
    with start(f"react{suffix}") as reacting:
        try:
            name = "mail-async" if suffix == "_async" else "mail"
            store = database or home / "subscribers" / f"{name}.db"
            until(lambda: position(store, name) is not None)
            call("handoff", "claim", "ten-lines", "--as", "claude-code")
            call("handoff", "check", "ten-lines", "--all", "--as", "claude-code")
            call("handoff", "complete", "ten-lines", "--summary", "all ten", "--as", "claude-code")
            assert reacting.stdout is not None
            if suffix == "_async":
                assert reacting.stdout.readline() == "2 events under one signature\n"
            assert reacting.stdout.readline() == "ten-lines is done: all ten\n"
        finally:
            reacting.kill()
    if not suffix:
        verdict, approval = finish("audit").splitlines()
        assert verdict.startswith("VALID: ")
        assert approval.startswith("alex approved ten-lines at index ")
        call("receipt", "verify", str(programs / f"{approval.split()[-1]}.tlog-proof"))


@pytest.fixture
def approved(tmp_path: Path) -> Path:
    """The folder of a trial ledger with an approved handoff to claude-code."""
    home = tmp_path / ".deedbook"
    assert run(["--home", str(home), "init", "--trial", "--origin", "example.org/team"]) == 0
    with Ledger(agent="kuro", home=home) as kuro, Ledger(agent="alex", home=home) as alex:
        kuro.handoff("lines").create(to="claude-code", reviewer="alex", title="Lines", criteria=["tests pass"])
        alex.handoff("lines").approve(alex.handoff("lines").show().version)
    return home


def start_agent(programs: Path, home: Path, command: str) -> subprocess.Popen[str]:
    """Start the program ``agent.py`` of the page, which proves its work by a command."""
    return subprocess.Popen(
        [sys.executable, str(programs / "agent.py"), command],
        cwd=programs,
        env=program_environment(home),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_the_agent_of_the_page_works_on_what_becomes_free(programs: Path, approved: Path) -> None:
    with Ledger(agent="kuro", home=approved) as kuro, Ledger(agent="alex", home=approved) as alex:
        kuro.handoff("after").create(
            to="claude-code", reviewer="alex", title="After", criteria=["shown"], depends_on=["lines"]
        )
        alex.handoff("after").approve(alex.handoff("after").show().version)
        kuro.handoff("later").create(to="claude-code", reviewer="alex", title="Later", criteria=["shown"])
        with start_agent(programs, approved, "echo 12 passed") as agent:
            assert agent.stdout is not None
            assert [agent.stdout.readline() for _ in range(2)] == ["lines completed\n", "after completed\n"]
            alex.handoff("later").approve(alex.handoff("later").show().version)
            assert agent.stdout.readline() == "later completed\n"
            agent.kill()
        assert kuro.handoff("later").show().criteria[0].evidence == "echo 12 passed: exit code 0: 12 passed"


def test_the_agent_of_the_page_continues_work_after_it_was_killed(programs: Path, approved: Path) -> None:
    with Ledger(home=approved) as ledger:
        killed = start_agent(programs, approved, "kill -9 $PPID")  # after the claim, before any evidence
        killed.communicate(timeout=60)
        assert (killed.returncode, ledger.handoff("lines").show().status) == (-signal.SIGKILL, "in_progress")
        with start_agent(programs, approved, "echo 12 passed") as restarted:
            assert restarted.stdout is not None
            assert restarted.stdout.readline() == "lines completed\n"
            restarted.kill()


def test_the_agent_of_the_page_blocks_work_whose_command_fails(programs: Path, approved: Path) -> None:
    with Ledger(home=approved) as ledger, start_agent(programs, approved, "echo 1 failed; exit 3") as agent:
        assert agent.stdout is not None
        assert agent.stdout.readline() == "lines blocked\n"
        assert "exit code 3: 1 failed" in ledger.handoff("lines").why().sentence
        agent.send_signal(signal.SIGINT)
        assert agent.communicate(timeout=60) == ("", "")
        assert agent.returncode == 0


def test_a_wrong_passphrase_is_refused_when_the_program_of_the_page_signs(programs: Path, approved: Path) -> None:
    rotate = [sys.executable, "-m", "deedbook", "key", "rotate", "--as", "alex", "--passphrase-fd", "0"]
    passphrase = "correct horse battery staple"
    # A separate process: in this one, the tests derive keys from passphrases with less work, so decide.py could not.
    subprocess.run(rotate, env=program_environment(approved), input=passphrase, text=True, check=True)
    with Ledger(agent="kuro", home=approved) as kuro:
        kuro.handoff("ten-lines").create(to="claude-code", reviewer="alex", title="Ten lines", criteria=["tests pass"])
        said = decide(programs, program_environment(approved), "yes", "wrong passphrase")
        assert said.startswith("Ten lines\ntests pass\n")
        assert "KEY_LOCKED" in said
        assert kuro.handoff("ten-lines").show().status == "pending"
        decide(programs, program_environment(approved), "yes", passphrase)
        assert kuro.handoff("ten-lines").show().status == "approved"


def program_environment(home: Path) -> dict[str, str]:
    """Return the environment of a program that uses the ledger in a folder."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DEEDBOOK_")}
    return kept | {"DEEDBOOK_HOME": str(home)}


def decide(programs: Path, environment: dict[str, str], *answers: str) -> str:
    """Run the program ``decide.py`` of the page, which approves; return its output."""
    decided = subprocess.run(
        [sys.executable, "-W", "ignore", str(programs / "decide.py")],
        cwd=programs,
        env=environment,
        input="".join(f"{answer}\n" for answer in answers),
        capture_output=True,
        text=True,
        check=True,
        start_new_session=True,  # without a terminal, getpass reads standard input
    )
    return decided.stdout


def position(store: Path | str, name: str) -> int | None:
    """Return the position of a subscription, or None while it has not begun."""
    if isinstance(store, Path) and not store.exists():
        return None
    with contextlib.closing(open_subscriptions(store)) as kept:
        return kept.position(name)


def until(is_true: Callable[[], bool], wait_s: float = 60) -> None:
    """Wait until something is true."""
    deadline = time.monotonic() + wait_s
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_the_page_of_commands_names_every_verb_and_no_page_names_another() -> None:
    table = (ROOT / "consumers/interfaces/README.md").read_text("utf-8").split("## Commands")[1].split("## ")[0]
    for verb in (verb for verb in VERBS if find(verb) is None):  # verbs of family packages have their own pages
        assert re.search(rf"\b{verb}\b", table), f"the page of commands leaves out {verb}"
        group = deed.get_command(click.Context(deed), verb)
        rows = " ".join(row for row in table.splitlines() if f"deed {verb}" in row)
        for name in group.list_commands(click.Context(group)) if isinstance(group, click.Group) else ():
            is_said = re.search(rf"\b{name}\b", rows) or (verb == "handoff" and name.replace("-", "_") in OPERATIONS)
            assert is_said, f"the page of commands leaves out {verb} {name}"
    for page in PAGES:
        named = set(re.findall(r"[`$] ?deed ([a-z]+)", page.read_text("utf-8")))
        assert named <= {*VERBS, "rollout"}, page  # ``rollout`` is the verb of an example package


def test_pages_name_the_make_targets_there_are_and_link_to_files_that_are_there() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    for page in PAGES:
        text = page.read_text("utf-8")
        for target in re.findall(r"`make ([a-z-]+)`", text):
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), (page, target)
        for link in re.findall(r"\]\(([^)#:]+)\)", text):
            assert (page.parent / link).exists(), (page, link)
