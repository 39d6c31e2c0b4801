"""`deed init` sets up a project in one step; `deed uninstall` undoes that to the byte, and names what it keeps."""

from __future__ import annotations

import getpass
import json
import shutil
import subprocess
from pathlib import Path

import pytest
from calling import Deed
from person_terminal import Terminal

from deedbook.ledger.errors import Exit
from deedbook.ledger.home.home import Home
from deedbook.ledger.service.server import unserved

PAGE = b"# Our project\n\nUse tabs.\n"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a page for agents, of a user who has Claude Code and Codex; it is the working directory."""
    user, folder = tmp_path / "user", tmp_path / "project"
    (user / ".claude").mkdir(parents=True)
    (user / ".codex").mkdir()
    folder.mkdir()
    subprocess.run(["git", "init", "-q", folder], check=True)
    (folder / "CLAUDE.md").write_bytes(PAGE)
    (user / ".claude.json").write_text('{"theme": "dark"}\n')
    monkeypatch.setenv("HOME", str(user))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "CODEX_HOME", "CLAUDE_CONFIG_DIR", "DEEDBOOK_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def here(capsys: pytest.CaptureFixture[str], project: Path) -> Deed:
    """Verbs in the project, without any option."""
    del project
    return Deed(capsys, None)


def everything(project: Path) -> dict[str, bytes | None]:
    """Return every file and folder of the project, without git's, and each of its user's files."""
    paths = [*project.rglob("*"), *(path for path in (project.parent / "user").rglob("*") if path.is_file())]
    return {
        str(path): path.read_bytes() if path.is_file() else None
        for path in paths
        if ".git" not in path.parts and ".config" not in path.parts
    }


def test_one_step_registers_a_person_and_an_agent_for_each_harness_and_sets_them_up(here: Deed, project: Path) -> None:
    made = here.data("init", "--yes", "--unprotected", "--name", "Anna")
    assert made["members"] == {"anna": ["human", "reviewer"], "claude-code": ["agent"], "codex": ["agent"]}
    assert {Path(file["path"]).name for file in made["files"]} >= {"CLAUDE.md", "AGENTS.md", ".claude.json"}
    for harness in ("claude-code", "codex"):
        assert here.data("setup", harness, "--check")["installed"] is True
    here("handoff", "create", "first", "--as", "anna", "--to", "codex", "--title", "Begin", "--criterion", "it runs")
    assert "first" in here("next", "--as", "codex")
    assert (project / "CLAUDE.md").read_bytes().startswith(PAGE)


def test_plan_is_printed_and_nothing_is_written(here: Deed, project: Path) -> None:
    before = everything(project)
    plan = here.data("init", "--yes", "--dry-run")
    assert ["human", "reviewer"] in plan["members"].values()
    assert str(project / "AGENTS.md") in plan["files"]
    assert "Nothing was written." in here("init", "--yes", "--dry-run")
    assert everything(project) == before


def test_uninstall_restores_every_byte_and_names_the_ledger_which_stays_unless_it_is_named(
    here: Deed, project: Path
) -> None:
    before = everything(project)
    here("init", "--yes", "--unprotected")
    left = here.data("uninstall")
    assert left["deleted"] is None
    assert [one["command"] for one in left["left"]] == ["deed uninstall --delete-ledger"]
    assert (project / "CLAUDE.md").read_bytes() == PAGE
    assert (project / ".deedbook").is_dir()
    here.refuses("USAGE", "uninstall", "--delete-ledger")
    assert here.data("uninstall", "--delete-ledger", "--yes") == {
        "files": [],
        "deleted": str(project / ".deedbook"),
        "left": [],
        "outside": left["outside"],
    }
    assert everything(project) == before
    here.refuses("NOT_FOUND", "uninstall", "--delete-ledger", "--yes")
    assert "No harness is set up" in here("uninstall")


@pytest.mark.parametrize("name", [".gitignore", "keys", "log"])
def test_link_in_the_folder_that_a_clone_brought_is_refused_and_not_followed(
    here: Deed, project: Path, tmp_path: Path, name: str
) -> None:
    target = tmp_path / "elsewhere"
    if name == ".gitignore":
        target.write_text("precious\n", "ascii")
    else:
        target.mkdir()
    (project / ".deedbook").mkdir()
    (project / ".deedbook" / name).symlink_to(target)
    before = everything(tmp_path)
    refusal = here.refuses("INVALID_FORMAT", "init", "--unprotected")
    assert f"{name} is a link" in refusal["message"]
    here.refuses("INVALID_FORMAT", "init", "--unprotected", "--dry-run")
    assert everything(tmp_path) == before


def test_folder_of_a_project_becomes_no_ledger(here: Deed, project: Path) -> None:
    assert "is a git repository" in here.refuses("INVALID_FORMAT", "--home", ".", "init", "--unprotected")["message"]
    shutil.rmtree(project / ".git")
    (project / ".gitignore").write_text("build/\n", "ascii")
    assert ".gitignore has other" in here.refuses("INVALID_FORMAT", "--home", ".", "init", "--unprotected")["message"]
    assert (project / ".gitignore").read_text("ascii") == "build/\n"
    assert not (project / "keys").exists()


def test_files_of_others_in_the_folder_of_a_ledger_are_not_deleted(here: Deed, tmp_path: Path) -> None:
    folder = tmp_path / "mixed"
    here("--home", folder, "init", "--name", "none", "--unprotected")
    (folder / "main.py").write_text("print()\n", "ascii")
    refusal = here.refuses("USAGE", "--home", folder, "uninstall", "--delete-ledger", "--yes")
    assert refusal["details"]["others"] == ["main.py"]
    assert Home(folder).is_local()
    (folder / "main.py").unlink()
    assert here.data("--home", folder, "uninstall", "--delete-ledger", "--yes")["deleted"] == str(folder)
    assert not folder.exists()


def test_ledger_that_a_link_in_the_project_leads_to_is_deleted_only_if_it_is_named(
    here: Deed, project: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other" / ".deedbook"
    here("--home", other, "init", "--name", "none", "--unprotected")
    (project / ".deedbook").symlink_to(other)
    refusal = here.refuses("USAGE", "uninstall", "--delete-ledger", "--yes")
    assert f"is a link to {other}" in refusal["message"]
    assert Home(other).is_local()
    assert here.data("--home", other, "uninstall", "--delete-ledger", "--yes")["deleted"] == str(other)


def test_folder_of_a_machine_that_joined_is_named_as_keys(here: Deed, project: Path) -> None:
    here("init", "--unprotected")
    shutil.rmtree(project / ".deedbook/log")
    (left,) = here.data("uninstall")["left"]
    folder = project / ".deedbook"
    assert left == {
        "thing": f"{folder}, with the keys of the agents of this machine",
        "command": f"rm -r {folder}",
    }
    here.refuses("NOT_FOUND", "uninstall", "--delete-ledger", "--yes")
    assert folder.is_dir()


def test_ledger_that_a_server_uses_is_not_deleted(here: Deed, project: Path) -> None:
    here("init", "--unprotected")
    home = Home(project / ".deedbook")
    home.bus.mkdir(exist_ok=True)
    with unserved(home.bus):
        here.refuses("STORE_IN_USE", "uninstall", "--delete-ledger", "--yes")
    assert home.is_local()


def test_reports_in_git_notes_and_files_and_other_setups_are_named(here: Deed, project: Path) -> None:
    here("init", "--yes", "--unprotected")
    (project / "docs/sessions/handoffs").mkdir(parents=True)
    commit = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "first"]
    subprocess.run(commit, check=True)
    notes = ["git", "notes", "--ref", "empirica/handoff/s1", "add", "-m", "{}"]
    subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *notes[1:]], check=True)
    here("setup", "codex", "--user")
    things = [one["thing"] for one in here.data("uninstall")["left"]]
    assert "the setup of codex for all projects" in things
    assert "1 report in git notes below refs/notes/empirica/" in things
    assert "reports in docs/sessions/handoffs" in things


def test_shared_settings_of_a_team_are_left_and_named(here: Deed, project: Path) -> None:
    here("init", "--yes", "--unprotected", "--harness", "none")
    here("agent", "add", "codex", "--as", "root")
    here("setup", "codex", "--team")
    written = (project / ".codex/hooks.json").read_bytes()
    assert {"thing": "the team's shared settings of codex", "command": "deed setup codex --team --remove"} in here.data(
        "uninstall"
    )["left"]
    assert (project / ".codex/hooks.json").read_bytes() == written


def test_file_that_somebody_edited_is_refused_before_anything_is_made(here: Deed, project: Path) -> None:
    here("init", "--yes", "--unprotected")
    page = project / "AGENTS.md"
    page.write_text(page.read_text().replace("Set DEEDBOOK_AGENT", "Please set DEEDBOOK_AGENT"))
    edited = page.read_bytes()
    here("uninstall", "--delete-ledger", "--yes", "--force")
    page.write_bytes(edited)
    before = everything(project)
    here.refuses("EDITED_BY_HAND", "init", "--yes", "--unprotected")
    assert everything(project) == before


@pytest.mark.parametrize("name", ["root", "codex"])
def test_name_of_a_key_or_an_agent_is_no_name_of_a_person(here: Deed, project: Path, name: str) -> None:
    here.refuses("USAGE", "init", "--unprotected", "--name", name)
    assert not (project / ".deedbook").exists()


@pytest.mark.parametrize(("login", "name"), [("Anna.K", "anna-k"), ("root", "reviewer"), ("安娜", "reviewer")])
def test_default_name_is_the_login_name_in_the_letters_that_names_have(
    here: Deed, login: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(getpass, "getuser", lambda: login)
    assert name in here.data("init", "--yes", "--dry-run")["members"]


def test_without_a_terminal_and_without_words_only_the_ledger_is_made(here: Deed, project: Path) -> None:
    made = here.data("init", "--unprotected")
    assert (made["members"], made["files"]) == ({}, [])
    assert not (project / "AGENTS.md").exists()


def test_home_folder_gets_a_ledger_only_if_a_person_agrees(
    here: Deed, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(project))
    before = everything(project)
    here.refuses("USAGE", "init", "--unprotected")
    assert everything(project) == before
    person = Terminal(None, "init", "--unprotected", cwd=project)
    assert "your home folder" in person.until("[y/N]")
    code, said = person.answer("n")
    assert (code, "nothing was made" in said) == (2, True)
    assert everything(project) == before


def test_person_on_a_terminal_answers_three_questions(here: Deed, project: Path) -> None:
    person = Terminal(None, "init", cwd=project)
    person.until("Your name")
    person.type("anna")
    assert "claude-code, codex" in person.until("[claude-code, codex]")
    person.type("cursor")
    assert "'cursor' is none of" in person.until("[claude-code, codex]")
    person.type("codex")
    person.until("[Y/n]")
    person.type("")
    for passphrase in ("short", "in the garden"):
        person.until("New passphrase for root and anna")
        person.type(passphrase)
        person.until("Repeat")
        if passphrase == "short":
            person.type(passphrase)
            assert "at least 8 characters" in person.until("Try again")
    code, said = person.answer("in the garden")
    assert code == 0, said
    assert "anna is registered as human, reviewer" in said
    assert {agent["name"] for agent in here.data("agent", "list")["agents"]} == {"root", "anna", "codex"}
    assert {"root", "anna"} == {
        path.stem for path in (project / ".deedbook/keys").glob("*.key") if json.loads(path.read_bytes()).get("sealed")
    }
    assert here.data("verify")["gate"]["state"] == "closed"


def test_broken_file_keeps_its_own_harness_and_no_other(here: Deed, project: Path) -> None:
    before = everything(project)
    here("init", "--yes", "--unprotected")
    settings, codex = project / ".claude/settings.local.json", project / "AGENTS.md"
    written = settings.read_bytes()
    settings.write_text("{ broken")
    for words in (["setup", "claude-code"], ["setup", "claude-code", "--remove"]):
        message = here.refuses("INVALID_FORMAT", *words)["message"]
        assert message == f"{settings}: line 1 is not JSON. Repair the file first."
    said = here.run("uninstall", "--delete-ledger", "--yes", "--force")
    assert said.code == Exit.USAGE
    assert f"  the setup of claude-code ({message}): deed setup claude-code --remove --force" in said.out
    assert not codex.exists()
    assert Home(project / ".deedbook").is_local()
    settings.write_bytes(written)
    here("uninstall", "--delete-ledger", "--yes")
    assert everything(project) == before


def test_copies_of_edited_files_outlive_the_ledger_and_are_named(here: Deed, project: Path) -> None:
    here("init", "--yes", "--unprotected")
    page, settings = project / "AGENTS.md", project / ".claude/settings.local.json"
    page.write_text(page.read_text().replace("Set DEEDBOOK_AGENT", "Please set DEEDBOOK_AGENT"))
    edited = page.read_bytes()
    assert here.run("uninstall").code == Exit.CONFLICT
    settings.unlink(missing_ok=True)
    said = here("uninstall", "--delete-ledger", "--yes", "--force")
    (copy,) = (project.parent / "user/.local/state/deedbook/setup/kept").iterdir()
    assert copy.read_bytes() == edited
    assert f"the copies of 1 file that you edited, now in {copy.parent} ({copy.name}): rm -r {copy.parent}" in said


def test_file_that_is_gone_is_no_unchanged_one(here: Deed, project: Path) -> None:
    here("init", "--yes", "--unprotected")
    (project / ".codex/hooks.json").unlink()
    assert f"missing   {project / '.codex/hooks.json'}\n" in here("setup", "codex", "--remove")


def test_folders_of_the_user_are_named_as_what_stays_outside(here: Deed, project: Path) -> None:
    here("init", "--yes", "--unprotected")
    folders = [project.parent / "user" / below for below in (".config/deedbook", ".local/state/deedbook")]
    said = here("uninstall", "--delete-ledger", "--yes")
    assert all(f" in {folder}: rm -r {folder}\n" in said for folder in folders)


def test_plan_of_an_undo_is_printed_and_nothing_is_changed(here: Deed, project: Path) -> None:
    here("init", "--yes", "--unprotected")
    before = everything(project)
    said = here("uninstall", "--dry-run", "--delete-ledger")
    assert f"restored  {project / 'CLAUDE.md'}\n" in said
    assert said.endswith("\nNothing was changed.\n")
    assert everything(project) == before
