"""`deed setup` prints what it wrote, checks with an exit code, and is removed without a trace."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from calling import Deed, Place, call, environment

from deedbook.consumers.interfaces.hooks.harnesses import HARNESSES, own_command
from deedbook.consumers.interfaces.hooks.prime import agents_page
from deedbook.ledger.errors import Exit

each_harness = pytest.mark.parametrize("harness", list(HARNESSES))


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a project, with a home beside it."""
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("XDG_STATE_HOME", "CODEX_HOME", "CLAUDE_CONFIG_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def ready(alone: Deed, project: Path) -> Deed:
    """Verbs on a ledger in the project, in which each harness has its agent."""
    for name in HARNESSES:
        alone("agent", "add", name, "--role", "agent")
    return Deed(alone._capsys, None)


def files(folder: Path) -> dict[str, bytes]:
    """Return the files in a folder, without the ledger and its readers' trust stores."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and ".deedbook" not in path.parts and not re.fullmatch("[0-9a-f]{32}", path.parent.name)
    }


@each_harness
@pytest.mark.parametrize("scope", [[], ["--user"]], ids=["project", "user"])
def test_setup_check_and_removal_say_what_they_find_and_do(
    harness: str, scope: list[str], ready: Deed, project: Path
) -> None:
    said = ready.run("setup", harness, "--check", *scope)
    assert (said.code, said.err) == (Exit.UNVERIFIED, "")
    assert {line.split()[0] for line in said.out.splitlines()} == {"missing"}
    before = files(project)
    made = ready.document("setup", harness, *scope)
    assert made["kind"] == "setup"
    assert {one["done"] for one in made["data"]["files"]} == {"wrote"}
    assert all((project / one["path"]).is_file() for one in made["data"]["files"])
    assert ready.data("setup", harness, "--check", *scope)["installed"] is True
    written = files(project)
    assert {one["done"] for one in ready.data("setup", harness, *scope)["files"]} == {"unchanged"}
    assert files(project) == written
    assert "removed" in ready("setup", harness, "--remove", *scope)
    assert files(project) == before
    assert ready.run("setup", harness, "--check", *scope).code == Exit.UNVERIFIED


def test_each_harness_gets_the_page_and_the_server_where_it_reads_them(ready: Deed, project: Path) -> None:
    for harness in HARNESSES:
        ready("setup", harness)
    for name in ("CLAUDE.md", "AGENTS.md", "GEMINI.md"):
        assert agents_page() in (project / name).read_text()
    of_claude = json.loads((project / "home/.claude.json").read_text())["projects"][str(project)]
    servers = {
        "claude-code": of_claude["mcpServers"]["deedbook"],
        "codex": tomllib.loads((project / ".codex/config.toml").read_text())["mcp_servers"]["deedbook"],
        "gemini": json.loads((project / ".gemini/settings.json").read_text())["mcpServers"]["deedbook"],
    }
    for harness, server in servers.items():
        assert server["command"] == str(Path(sys.executable).with_name("deed"))
        assert server["args"] == ["mcp", "--as", harness]
    assert not (project / ".mcp.json").exists()  # only a team shares this file, like the settings
    assert sorted(path.name for path in (project / ".claude").iterdir()) == ["commands", "settings.local.json"]


@each_harness
def test_a_team_gets_commands_that_name_no_path_and_no_second_setup(
    harness: str, ready: Deed, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "DEEDBOOK_AGENT" in ready.refuses("USAGE", "setup", harness, "--team", "--as", harness)["message"]
    made = ready.document("setup", harness, "--team")["data"]
    assert (made["scope"], made["agent"]) == ("team", None)
    shared = {name: text for name, text in files(project).items() if not name.startswith("home/")}
    for name, content in shared.items():
        assert str(project).encode() not in content, name
        assert str(Path(sys.executable).parent).encode() not in content, name
    settings = json.loads((project / HARNESSES[harness].project.settings).read_text())
    assert settings["hooks"]["SessionStart"][0]["hooks"][0]["command"] == f"deed hook {harness}"
    written = files(project)
    assert {one["done"] for one in ready.data("setup", harness)["files"]} == {"unchanged"}
    monkeypatch.setenv("DEEDBOOK_AGENT", "codex")  # this user's agent, which the team's settings do not name
    assert {one["done"] for one in ready.data("setup", harness)["files"]} == {"unchanged"}
    assert files(project) == written
    assert ready.data("setup", harness, "--check")["installed"] is True
    assert "--team" in ready.refuses("USAGE", "setup", harness, "--as", "codex")["message"]
    assert "--team" in ready.refuses("USAGE", "setup", harness, "--remove")["message"]
    ready("setup", harness, "--team", "--remove")
    assert not [name for name in files(project) if not name.startswith("home/")]


def test_own_settings_go_before_a_teams_come_and_leave_its_page(ready: Deed, project: Path) -> None:
    ready("setup", "claude-code")
    own = (project / ".claude/settings.local.json").read_bytes()
    assert "--remove" in ready.refuses("USAGE", "setup", "claude-code", "--team")["message"]
    ready("setup", "claude-code", "--remove")
    ready("setup", "claude-code", "--team")
    (project / ".claude/settings.local.json").write_bytes(own)  # as if a colleague's file came by a pull
    ready("setup", "claude-code", "--remove")
    assert b"deed" not in (project / ".claude/settings.local.json").read_bytes()
    assert ready.data("setup", "claude-code", "--check")["installed"] is True
    assert agents_page() in (project / "CLAUDE.md").read_text()


def test_a_teams_setup_refuses_what_others_do_not_have(ready: Deed, project: Path, tmp_path: Path) -> None:
    elsewhere = Deed(ready._capsys, Place(tmp_path / "elsewhere"))
    elsewhere("init", "--unprotected")
    elsewhere("agent", "add", "codex", "--role", "agent")
    assert "writes no path" in elsewhere.refuses("USAGE", "setup", "codex", "--team")["message"]
    before = files(project)
    ready("agent", "add", "rita", "--role", "human", "--unprotected")
    assert "role human" in ready.refuses("NOT_AUTHORIZED", "setup", "codex", "--as", "rita")["message"]
    assert files(project) == before


def test_two_colleagues_work_with_one_committed_settings_file(ready: Deed, project: Path) -> None:
    ready("setup", "claude-code", "--team")
    command = json.loads((project / ".claude/settings.json").read_text())["hooks"]["SessionStart"][0]["hooks"][0]
    colleague = project / "colleague"
    (colleague / ".claude").mkdir(parents=True)
    (colleague / ".claude/settings.json").write_bytes((project / ".claude/settings.json").read_bytes())
    theirs = Deed(ready._capsys, Place(colleague / ".deedbook"))
    theirs("init", "--unprotected")
    theirs("agent", "add", "bob", "--role", "agent")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # the folder that has `deed`
    for folder, given, whose in ((project, {}, "claude-code"), (colleague, {"DEEDBOOK_AGENT": "bob"}, "bob")):
        event = json.dumps({"session_id": "1", "cwd": str(folder), "hook_event_name": "SessionStart"})
        patient = {"PYTHONPATH": str(Path(__file__).parents[1] / "hooks/patience"), "DEEDBOOK_TEST_HOOK_S": "60"}
        shell, surroundings = ["sh", "-c", command["command"]], environment(PATH=path, **patient, **given)
        said = subprocess.run(
            shell, input=event, cwd=folder, env=surroundings, capture_output=True, text=True, check=True
        )
        assert "additionalContext" in said.stdout
        listed = Deed(ready._capsys, Place(folder / ".deedbook")).data("session", "list")["items"]
        assert [one["author"] for one in listed] == [whose]


@pytest.mark.parametrize("scope", [[], ["--team"], ["--user"]], ids=["project", "team", "user"])
def test_setup_ends_with_what_to_do_where_a_shell_does_not_find_the_command(
    scope: list[str], ready: Deed, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = Path(sys.executable).with_name("deed")
    line = f"Agents call `deed` without a path: put {installed.parent} first on PATH."
    (elsewhere := project / "bin").mkdir()
    for path, is_missing in (("/usr/bin:/bin", True), (f"{elsewhere}:/usr/bin", False), (str(installed.parent), False)):
        monkeypatch.setenv("PATH", path)
        assert (ready("setup", "codex", *scope).splitlines()[-1] == line) == is_missing
        assert ready.data("setup", "codex", *scope)["advice"].endswith(f"\n{line}") == is_missing
        assert line not in ready("setup", "codex", "--remove", *scope)
        (elsewhere / "deed").unlink(missing_ok=True)
        (elsewhere / "deed").symlink_to(installed)  # as uv and pipx install it
    (elsewhere / "deed").unlink()
    (elsewhere / "deed").write_text("#!/bin/sh\n")
    (elsewhere / "deed").chmod(0o755)
    monkeypatch.setenv("PATH", f"{elsewhere}:{installed.parent}")
    assert ready("setup", "codex", *scope).splitlines()[-1] == line


def test_files_name_the_command_beside_the_interpreter_else_on_path_else_its_name(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert own_command() == str(Path(sys.executable).with_name("deed"))
    monkeypatch.setattr(sys, "executable", str(project / "python"))
    (project / "bin").mkdir()
    monkeypatch.setenv("PATH", str(project / "bin"))
    assert own_command() == "deed"
    (project / "bin" / "deed").touch(mode=0o755)
    assert own_command() == str(project / "bin" / "deed")


def test_hooks_that_name_the_command_alone_are_not_taken_for_a_teams(
    ready: Deed, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(project / "python"))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    assert ready("setup", "codex").splitlines()[-1].endswith("put the folder of `deed` first on PATH.")
    assert '"deed hook codex --as codex"' in (project / ".codex/hooks.json").read_text()
    assert ready.data("setup", "codex", "--as", "codex")["scope"] == "local"
    ready("setup", "codex", "--remove")
    assert not (project / ".codex").exists()


def test_an_agent_that_is_not_registered_is_refused_with_the_command(alone: Deed, project: Path) -> None:
    error = Deed(alone._capsys, None).refuses("AGENT_UNKNOWN", "setup", "codex")
    assert "`deed agent add codex --role agent`" in error["message"]
    assert "Codex CLI" in error["message"]
    assert files(project) == {}


def test_another_agent_acts_where_one_is_named_and_again_without_being_named(ready: Deed, project: Path) -> None:
    ready("agent", "add", "ann", "--role", "agent")
    ready("setup", "codex", "--as", "ann")
    assert "--as ann" in (project / ".codex/hooks.json").read_text()
    assert {one["done"] for one in ready.data("setup", "codex")["files"]} == {"unchanged"}
    assert ready.data("setup", "codex", "--check")["installed"] is True


def test_a_ledger_elsewhere_is_named_in_every_command(alone: Deed, tmp_path: Path) -> None:
    elsewhere = tmp_path / "else where"
    there = Deed(alone._capsys, Place(elsewhere))
    there("init", "--unprotected")
    there("agent", "add", "gemini", "--role", "agent")
    there("setup", "gemini")
    settings = json.loads((tmp_path / ".gemini/settings.json").read_text())
    command = settings["hooks"]["SessionStart"][0]["hooks"][0]["command"]
    assert command.endswith(f"--home '{elsewhere}'")
    assert settings["mcpServers"]["deedbook"]["args"][-2:] == ["--home", str(elsewhere)]


def test_without_a_ledger_setup_is_refused_and_removal_still_works(ready: Deed, project: Path) -> None:
    before = files(project)
    ready("setup", "claude-code")
    (project / ".deedbook").rename(project / "gone")
    ready.refuses("NO_LEDGER", "setup", "codex")
    ready("setup", "claude-code", "--remove")
    (project / "gone").rename(project / ".deedbook")
    assert files(project) == before


def test_an_edited_block_is_refused_until_forced_and_its_copy_named(ready: Deed, project: Path) -> None:
    ready("setup", "codex")
    page = project / "AGENTS.md"
    edited = page.read_text().replace("Set DEEDBOOK_AGENT", "Tick nothing")
    page.write_text(edited)
    said = ready.run("setup", "codex", "--check")
    assert said.code == Exit.UNVERIFIED
    assert f"edited    {page}" in said.out
    assert re.search(r"\n          -.*Set DEEDBOOK_AGENT.*\n          \+.*Tick nothing", said.out)
    error = ready.refuses("EDITED_BY_HAND", "setup", "codex", "--remove")
    assert "--force" in error["message"]
    assert page.read_text() == edited
    removed = ready.data("setup", "codex", "--remove", "--force")
    (kept,) = (one["kept"] for one in removed["files"] if one["kept"])
    assert Path(kept).read_text() == edited
    assert not page.exists()


@pytest.mark.parametrize("name", [".claude/settings.local.json", "CLAUDE.md", ".claude/commands/tot.md"])
def test_a_check_shows_at_most_twenty_lines_of_an_edit(name: str, ready: Deed, project: Path) -> None:
    ready("setup", "claude-code")
    path = project / name
    path.write_text(re.sub(r'"timeout": 5|^(?=[A-Z-])', r"\g<0>9", path.read_text(), flags=re.MULTILINE))
    files_found = json.loads(ready.run("setup", "claude-code", "--check", "--json").out)["data"]["files"]
    (edited,) = [file for file in files_found if file["state"] == "edited"]
    assert edited["path"] == str(path)
    assert edited["difference"][:2] == ["--- deed setup", f"+++ {path.name}"]
    assert len(edited["difference"]) == 21
    assert re.fullmatch("… [0-9]+ more lines", edited["difference"][-1])
    assert not any(file["difference"] for file in files_found if file is not edited)


def test_a_setup_for_all_projects_advises_nothing_about_files_that_it_did_not_write(ready: Deed) -> None:
    assert "settings.local.json" not in ready("setup", "claude-code", "--user")
    assert "settings.local.json" in ready("setup", "claude-code")


def test_an_agent_with_a_wrong_name_is_answered_with_the_near_one(ready: Deed) -> None:
    message = ready.refuses("AGENT_UNKNOWN", "setup", "codex", "--as", "codx")["message"]
    assert "is not registered in this ledger: did you mean codex? Else register it with" in message


def test_the_last_harness_to_go_takes_every_folder_along(ready: Deed, project: Path) -> None:
    before = set((project / "home").rglob("*"))
    for harness in HARNESSES:
        ready("setup", harness, "--user")
    for harness in HARNESSES:
        ready("setup", harness, "--user", "--remove")
    assert set((project / "home").rglob("*")) == before


def test_a_table_that_toml_cannot_take_is_refused(ready: Deed, project: Path) -> None:
    (project / ".codex").mkdir()
    (project / ".codex/config.toml").write_text('mcp_servers = { theirs = { command = "x" } }\n')
    before = files(project)
    ready.refuses("INVALID_FORMAT", "setup", "codex")
    assert files(project) == before


def test_setup_below_the_project_sets_up_the_project(
    ready: Deed, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "src").mkdir()
    monkeypatch.chdir(project / "src")
    ready("setup", "claude-code")
    assert (project / "CLAUDE.md").is_file()
    assert not (project / "src" / "CLAUDE.md").exists()


def test_a_harness_that_there_is_not_is_a_usage_error(ready: Deed) -> None:
    assert "claude-code" in ready.refuses("USAGE", "setup", "emacs")["message"]


def test_prime_of_a_served_ledger_is_that_of_its_folder(deed: Deed) -> None:
    made = deed.data("prime", "--as", "a")
    assert made["text"].startswith("`deed prime --page` prints how")
    assert "You act as a." in made["text"]
    assert made["tokens"] <= 2000


def test_a_hook_called_by_its_verb_answers_and_ends_with_0(ready: Deed, project: Path) -> None:
    said = call("hook", "codex", "--as", "codex", cwd=project)
    assert (said.code, said.out, said.err) == (0, "", "")


@pytest.mark.parametrize("words", [[], ["nobody"], ["codex", "--what"], ["codex", "--as-of", "5"], ["codex", "--home"]])
def test_a_hook_called_wrongly_says_nothing_and_ends_with_0(words: list[str], nowhere: Deed) -> None:
    assert nowhere.run("hook", *words) == (0, "", "")
