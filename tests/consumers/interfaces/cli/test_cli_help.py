"""Every verb has help: one line in the table, which needs no import, and a matching page."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import click
from calling import environment

from deedbook.consumers.interfaces.cli.app import Group
from deedbook.consumers.interfaces.cli.program import ALIASES, VERBS, deed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from calling import Deed

COMMON = ("--home", "--server", "--as", "--passphrase-fd", "--json")
# Spellings that others rely on, as far as the verbs exist.
RELIED_ON = {
    "init": "--origin",
    "agent add": "NAME --role",
    "key delegate": "--ttl",
    "emit": "KIND --stream --data",
    "log": "--kind --stream --after --limit --follow",
    "show": "INDEX|REF",
    "verify": "--views --bundle --root",
    "export": "FILE --stream",
    "project": "--view",
    "reasoning brief": "--level --budget minimal|standard|full",
    "handoff create": "--to --reviewer --title --task --criterion --depends-on --body --context --proposal",
    "session start": "--task --ai-id --resumes",
    "session assess": "PHASE --vector --vectors --reasoning --round --overall-confidence --no-report",
    "session sweep": "--older-than --dry-run",
    "report generate": "SESSION --task-summary --finding --unknown --context --artifact",
    "report resume": "--ai-id --resume-mode --session-id --count --detail-level summary|detailed|full",
    "report query": "--ai-id --since --until --task-pattern --limit --after",
    "search": "TEXT --type --author --limit --after reasoning|record",
    "import empirica": "--git --refs --dry-run",
    "import handoffs": "FILE|DIR",
    "import thinking": "FILE|DIR",
    "setup": "claude-code|codex|gemini --check --remove",
    "prime": "--task --budget",
    "mcp": "--http --port",
    "tot run": "--problem --task-type --strategy --depth --branching --threshold",
    "watch": "--kind --exec",
    "demo": "--keep",
}


def commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    """Yield every verb with the words it is called by."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield " ".join((*path, name)), command
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))


ALL = dict(commands(deed))


def test_every_verb_explains_itself_and_takes_the_common_options(nowhere: Deed) -> None:
    faults = []
    for verb, command in ALL.items():
        said = nowhere.run(*verb.split(), "--help")
        is_told = (said.code, said.err) == (0, "") and said.out.startswith(f"Usage: deed {verb}")
        faults += [] if is_told else [f"{verb}: --help says {said}"]
        faults += [f"{verb}: its help leaves out {option}" for option in COMMON if option not in said.out]
        if not (command.help or "").split("\n\n")[0].rstrip().endswith("."):
            faults.append(f"{verb}: its help does not begin with a sentence")
    assert faults == []


def test_examples_in_help_keep_their_lines(nowhere: Deed) -> None:
    """Click reflows a paragraph unless it begins with a backspace character; as two characters it would be printed."""
    faults = []
    for verb, command in ALL.items():
        text, shown = inspect.cleandoc(command.help or ""), nowhere(*verb.split(), "--help").splitlines()
        faults += [f"{verb}: it prints {line}" for line in shown if "\\b" in line]
        for paragraph in text.split("\n\n"):
            mark, _, example = paragraph.rpartition("\b\n")
            if mark or paragraph != example:
                faults += [f"{verb}: {line} is reflowed" for line in example.splitlines() if f"  {line}" not in shown]
            elif re.search(r"^(\S+ = |\[\w+\]|\$ |deed )", paragraph, re.MULTILINE) and "\n" in paragraph:
                faults.append(f"{verb}: an example is reflowed: {paragraph}")
    assert faults == []


def test_every_option_and_argument_can_be_understood() -> None:
    faults = []
    for verb, command in ALL.items():
        if isinstance(command, Group):
            continue
        for parameter in command.params:
            if isinstance(parameter, click.Option) and not parameter.is_flag:
                says_itself = parameter.required or parameter.show_default or parameter.default == ""
                if not (parameter.help or says_itself):
                    faults.append(f"{verb}: nobody learns what --{parameter.name} is")
    assert faults == []


def test_relied_on_spellings_stand_in_the_help(nowhere: Deed) -> None:
    faults = []
    for verb, words in RELIED_ON.items():
        text = re.sub(r"\s+", " ", nowhere(*verb.split(), "--help"))
        faults += [f"{verb}: {word}" for word in words.split() if word not in text]
    assert faults == []


def test_table_of_verbs_is_the_help_of_the_whole(nowhere: Deed) -> None:
    text = nowhere("--help")
    for name, verb in VERBS.items():
        assert re.search(rf"^  {name} +{re.escape(verb.help)}$", text, re.MULTILINE), name
        assert verb.help.endswith(".")


def test_aliases_name_verbs_there_are_and_hide_none() -> None:
    assert set(ALIASES.values()) <= set(VERBS)
    assert not set(ALIASES) & set(VERBS)


def test_help_of_a_group_is_not_cut_short(nowhere: Deed) -> None:
    for verb, command in ALL.items():
        if isinstance(command, click.Group):
            assert "..." not in nowhere(verb, "--help").replace("[ARGS]...", "")


def test_version_is_that_of_the_distribution_and_its_commit(nowhere: Deed) -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+ \(commit [0-9a-f]{12}(-dirty)?\)\n", nowhere("--version"))


def test_help_and_a_wrong_call_load_nothing_heavy() -> None:
    program = (
        "import sys; from deedbook.consumers.interfaces.cli.program import run\n"
        "run(['--help']); run(['log', '--limit', 'x'])\n"
        "heavy = {'nats', 'pydantic', 'rich', 'structlog', 'sqlite3', 'httpx', 'stamina'} & set(sys.modules)\n"
        "sys.exit(', '.join(heavy) or 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        # Measuring coverage would itself load sqlite3 into the fresh process.
        env={name: value for name, value in environment().items() if not name.startswith("COVERAGE")},
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
