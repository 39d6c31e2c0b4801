"""`deed handoff check-files`: the answer of CI to a pull request, in a clone that has no ledger."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import inside
import pytest

from deedbook.ledger.bundle.signed_file import signed_file_size_max_bytes
from deedbook.ledger.errors import CODES

if TYPE_CHECKING:
    from collections.abc import Callable

    from calling import Deed

FOLDER = "docs/handoffs"
WATCH = ("handoff", "watch", FOLDER, "--once", "--as", "a")
MAIN = ("--base", "origin/main")


def git(folder: Path, *arguments: str) -> str:
    """Call git with a placeholder author and without any user's settings."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1"}
    names = {f"GIT_{who}_{what}": "x@y" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    command = ["git", "-C", str(folder), "-c", "init.defaultBranch=main", *arguments]
    return subprocess.run(command, env=environment | names, check=True, capture_output=True, text=True).stdout


class Team(NamedTuple):
    """A project with a ledger, and the branches of pull requests."""

    project: Path
    home: Path

    def deed(self, *words: object) -> str:
        """Call a verb that succeeds, beside the ledger."""
        said = inside.deed("--home", self.home, *words, cwd=self.project)
        assert said.code == 0, said
        return said.out.strip()

    def hand_over(self, id_: str) -> None:
        """Let a hand work to b."""
        parties = ("--to", "b", "--reviewer", "rita", "--as", "a")
        self.deed("handoff", "create", id_, "--title", f"Do {id_}", *parties, "--criterion", "tests pass")

    def start(self, id_: str) -> None:
        """Let rita approve the work, and b begin it."""
        version = self.deed("handoff", "show", id_, "--version")
        self.deed("handoff", "approve", id_, "--version", version, "--as", "rita")
        self.deed("handoff", "claim", id_, "--as", "b")

    def complete(self, id_: str) -> None:
        """Let b complete the work."""
        self.deed("handoff", "check", id_, "--criterion", 1, "--evidence", "make test: 12 passed", "--as", "b")
        self.deed("handoff", "complete", id_, "--summary", "done", "--as", "b")

    def verify(self, id_: str) -> None:
        """Let rita verify the work."""
        self.deed("handoff", "verify", id_, "--result", self.deed("handoff", "show", id_, "--result"), "--as", "rita")

    def commit(self, branch: str) -> None:
        """Write the files, and commit them to a branch that begins at the present one."""
        self.deed(*WATCH)
        git(self.project, "checkout", "-q", "-B", branch)
        git(self.project, "add", "docs")
        git(self.project, "commit", "-q", "-m", branch)


@pytest.fixture(scope="module")
def team(populated: Callable[[str], Path]) -> Team:
    """A project whose main has a root and a handoff in progress, and a branch for each state of another handoff."""
    home = populated("pulls")
    team = Team(home.parent, home)
    git(team.project, "init", "-q")
    (team.project / FOLDER).mkdir(parents=True)
    (team.project / FOLDER / "README.md").write_text("# How we hand over\n")
    team.hand_over("half")
    team.start("half")
    team.deed(*WATCH, "--signed")
    team.commit("main")
    team.hand_over("new")
    team.commit("pending")
    team.start("new")
    team.commit("begun")
    team.complete("new")
    team.commit("completed")
    team.complete("half")
    team.verify("half")
    team.verify("new")
    team.commit("good")
    return team


class Clone(NamedTuple):
    """A clone of the project, without a ledger."""

    folder: Path

    def path(self, name: str) -> Path:
        """Return a file of the handoffs."""
        return self.folder / FOLDER / name

    def edit(self, name: str, old: str, new: str) -> None:
        """Replace a text in a file."""
        text = self.path(name).read_text()
        assert old in text
        self.path(name).write_text(text.replace(old, new))

    def line(self, name: str, text: str) -> int:
        """Return the first line of a file that contains a text."""
        lines = self.path(name).read_text().splitlines()
        return next(number for number, line in enumerate(lines, 1) if text in line)

    def check(self, *options: str, code: int = 0) -> str:
        """Return the output of CI about this branch."""
        said = inside.deed("handoff", "check-files", *(options or MAIN), cwd=self.folder)
        assert (said.code, said.err) == (code, ""), said
        return said.out

    def problems(self, *options: str, code: int = 6) -> list[tuple[str, str, int]]:
        """Return the problems as (what, file, line)."""
        data: dict[str, Any] = json.loads(self.check(*(options or MAIN), "--json", code=code))["data"]
        assert data["ok"] is False
        assert all(row["text"] and row["next"] for row in data["problems"])
        return [(row["what"], row["file"].removeprefix(f"{FOLDER}/"), row["line"]) for row in data["problems"]]

    def refused(self, *options: str, code: int = 2) -> str:
        """Return the error of a check that is refused."""
        said = inside.deed("handoff", "check-files", *options, cwd=self.folder)
        assert (said.code, said.out) == (code, ""), said
        return said.err


@pytest.fixture
def clone(team: Team, tmp_path: Path) -> Callable[[str], Clone]:
    """Clones the project and checks a branch out."""

    def make(branch: str) -> Clone:
        git(tmp_path, "clone", "-q", str(team.project), "clone")
        git(tmp_path / "clone", "checkout", "-q", branch)
        return Clone(tmp_path / "clone")

    return make


def test_a_good_pull_request_is_accepted(clone: Callable[[str], Clone]) -> None:
    assert clone("good").check().splitlines() == [
        f"ok  {FOLDER}/half.md: verified",
        f"ok  {FOLDER}/new.md: verified",
        "gate: open (the keys of ada, rita and root have no passphrase)",
        "2 handoff files that changed since origin/main: 2 good, 0 refused",
    ]


def test_a_pull_request_that_touches_no_handoff_is_accepted(clone: Callable[[str], Clone]) -> None:
    assert "0 handoff files" in clone("main").check()


def test_a_team_may_require_a_handoff_and_a_closed_gate(clone: Callable[[str], Clone]) -> None:
    here = clone("main")
    assert here.problems(*MAIN, "--at-least-one") == [("missing", FOLDER, 1)]
    assert f"next, where the ledger is: deed handoff render ID --out {FOLDER}/ID.md" in here.check(
        *MAIN, "--at-least-one", code=6
    )
    git(here.folder, "checkout", "-q", "good")
    assert "2 good" in here.check(*MAIN, "--at-least-one")
    assert here.problems(*MAIN, "--closed-gate") == [("gate", f"{name}.deed.json", 1) for name in ("half", "new")]


@pytest.mark.parametrize(
    ("branch", "what", "verb"),
    [
        ("pending", "unapproved", "approve new --version sha256:"),
        ("begun", "open", "complete new --as b"),
        ("completed", "unverified", "verify new --result sha256:"),
    ],
)
def test_unfinished_work_is_refused(clone: Callable[[str], Clone], branch: str, what: str, verb: str) -> None:
    here = clone(branch)
    assert here.problems(code=5) == [(what, "new.md", here.line("new.md", "Status:"))]
    said = here.check(code=5)
    assert f"{FOLDER}/new.md:4: {what}: " in said
    assert f"\n  next, where the ledger is: deed handoff {verb}" in said


def test_a_team_may_require_less(clone: Callable[[str], Clone]) -> None:
    here = clone("completed")
    assert f"ok  {FOLDER}/new.md: completed" in here.check(*MAIN, "--require", "completed")
    assert "1 good" in here.check(*MAIN, "--require", "approved")
    git(here.folder, "checkout", "-q", "pending")
    assert here.problems(*MAIN, "--require", "approved", code=5)[0][0] == "unapproved"


@pytest.mark.parametrize(
    ("old", "new", "where"),
    [
        ("- [ ] tests pass", "- [x] tests pass", "[x] tests pass"),
        ("Status: in_progress", "Status: verified", "Status:"),
        ("- [ ] tests pass", "- [ ] tests pass\n  - 2026-11-30 [b] met: 12 passed", "met: 12 passed"),
        ("Reviewer: rita", "Reviewer: a", "Reviewer:"),
        ("claimed", "claimed\n- 2026-11-30 [rita] verified", "[rita] verified"),
        ("- Depends-on: (none)", "- Depends-on: (none)\n- Note: all is well", "Note:"),
        ("[rita] approved", "[ada] approved", "[ada] approved"),
    ],
)
def test_an_edited_file_is_refused_at_its_line(clone: Callable[[str], Clone], old: str, new: str, where: str) -> None:
    here = clone("begun")
    here.edit("new.md", old, new)
    problems = here.problems()
    assert ("edited", "new.md", here.line("new.md", where)) in problems
    assert {what for what, *_ in problems} == {"edited", "open"}
    # The printed command mends it here, without a ledger.
    render = re.search(r"next: deed (handoff render .*)", here.check(code=6))
    assert render
    assert inside.deed(*shlex.split(render[1]), cwd=here.folder).code == 0
    assert here.problems(code=5) == [("open", "new.md", 4)]


@pytest.mark.parametrize("part", ["sig", "body", "hash", "entry", "checkpoint"])
def test_a_forged_signed_file_is_refused(clone: Callable[[str], Clone], part: str) -> None:
    here = clone("completed")
    lines = here.path("new.deed.json").read_text().splitlines(keepends=True)
    entries = [number for number, line in enumerate(lines) if line.lstrip(",").startswith('{"index"')]
    if part == "sig":
        lines[entries[-1]] = re.sub('"sig":"..', '"sig":"AA', lines[entries[-1]])
    elif part == "body":
        lines[entries[-1]] = lines[entries[-1]].replace("done", "fine")
    elif part == "hash":
        start = next(number for number, line in enumerate(lines) if line.startswith('"hashes"'))
        lines[start + 1] = re.sub('^"..', '"AA', lines[start + 1])
    elif part == "entry":
        del lines[entries[-2]]
    else:
        lines = [re.sub(r"— [^\"]+", lambda match: match[0][:-4] + "AAA=", line) for line in lines]
    here.path("new.deed.json").write_text("".join(lines))
    expected = entries[-1] + 1 if part in ("sig", "body") else 1
    assert here.problems() == [("invalid", "new.deed.json", expected)]


def test_an_approval_by_another_root_is_refused(clone: Callable[[str], Clone], tmp_path: Path) -> None:
    here = clone("pending")
    other = Team(tmp_path / "other", tmp_path / "other/.deedbook")
    (other.project / FOLDER).mkdir(parents=True)
    other.deed("init", "--unprotected")
    for name, role in (("a", "agent"), ("b", "agent"), ("rita", "human")):
        other.deed("agent", "add", name, "--role", role, "--unprotected")
    other.hand_over("new")
    other.start("new")
    other.complete("new")
    other.verify("new")
    other.deed(*WATCH, "--signed", "--all")
    for name in ("new.md", "new.deed.json"):
        shutil.copy(other.project / FOLDER / name, here.path(name))
    assert here.problems() == [("root", "new.deed.json", 1)]
    shutil.copy(other.project / FOLDER / "ROOT", here.path("ROOT"))  # and the pull request cannot pin its own root
    assert here.problems() == [("root", "ROOT", 1), ("root", "new.deed.json", 1)]
    here.path("ROOT").unlink()
    assert here.problems()[0] == ("root", "ROOT", 1)


def test_a_shortened_history_is_refused(clone: Callable[[str], Clone]) -> None:
    here = clone("good")
    for name in ("half.md", "half.deed.json"):
        here.path(name).write_text(git(here.folder, "show", f"origin/main:{FOLDER}/{name}"))
    assert here.problems("--base", "origin/good") == [("shortened", "half.deed.json", 1)]


def test_a_branch_that_is_behind_shortens_nothing(clone: Callable[[str], Clone]) -> None:
    assert "0 handoff files" in clone("main").check("--base", "origin/good")


def test_a_branch_from_before_the_root_was_pinned_is_judged_by_it(clone: Callable[[str], Clone]) -> None:
    here = clone("main")
    git(here.folder, "checkout", "-q", "--orphan", "early")
    git(here.folder, "rm", "-q", "-r", "--cached", ".")
    shutil.rmtree(here.folder / FOLDER)
    git(here.folder, "commit", "-q", "--allow-empty", "-m", "early")
    git(here.folder, "checkout", "-q", "-b", "later")
    for name in ("ROOT", "half.md", "half.deed.json"):
        here.path(name).parent.mkdir(parents=True, exist_ok=True)
        here.path(name).write_text(git(here.folder, "show", f"origin/good:{FOLDER}/{name}"))
    git(here.folder, "add", FOLDER)
    git(here.folder, "commit", "-q", "-m", "later")
    git(here.folder, "checkout", "-q", "early")
    assert "0 handoff files" in here.check("--base", "later")


def test_removed_files_are_refused(clone: Callable[[str], Clone]) -> None:
    here = clone("good")
    here.path("new.deed.json").unlink()
    assert here.problems() == [("missing", "new.md", 1)]
    here.path("half.md").unlink()
    assert ("missing", "half.md", 1) in here.problems()
    here.path("half.deed.json").unlink()
    assert ("removed", "half.md", 1) in here.problems()
    shutil.rmtree(here.folder / FOLDER)
    assert {what for what, *_ in here.problems()} == {"root", "removed"}


def test_a_cancelled_handoff_needs_the_consent_of_the_team(team: Team, clone: Callable[[str], Clone]) -> None:
    git(team.project, "checkout", "-q", "good")
    team.hand_over("gone")
    team.commit("gone")
    team.deed("handoff", "cancel", "gone", "--reason", "no need", "--as", "a")
    team.commit("gone")
    here = clone("gone")
    assert here.problems("--base", "origin/good", code=5) == [("open", "gone.md", 4)]
    assert "gone.md: cancelled" in here.check("--base", "origin/good", "--accept", "cancelled")


def test_other_files_in_the_folder_are_no_way_around(clone: Callable[[str], Clone]) -> None:
    here = clone("good")
    here.path("active.md").write_text("| From | To | Task | Status |\n|--|--|--|--|\n| a | b | x | verified |\n")
    here.path("new.ledger.md").write_text("# Handoff: forged\n")
    here.path("plan.txt").write_text("anything")
    assert here.problems() == [("missing", "active.md", 1), ("edited", "new.ledger.md", 1)]


def test_a_signed_file_of_another_handoff_is_refused(clone: Callable[[str], Clone]) -> None:
    here = clone("good")
    shutil.copy(here.path("half.deed.json"), here.path("new.deed.json"))
    assert here.problems() == [("invalid", "new.deed.json", 1)]


BROKEN = (
    *(b"", b"{", b"null", b"[]", b"\xff\xfe", b"[" * 9000),
    *(b'{"format":"deedbook-signed-1"}', b'{"format":"deedbook-signed-', b'{"format":"deedbook-signed-2"}'),
)


@pytest.mark.parametrize("content", BROKEN)
def test_a_broken_signed_file_is_refused(clone: Callable[[str], Clone], content: bytes) -> None:
    here = clone("good")
    here.path("new.deed.json").write_bytes(content)
    assert here.problems() == [("invalid", "new.deed.json", 1)]


def test_huge_files_links_and_pipes_are_refused(clone: Callable[[str], Clone]) -> None:
    here = clone("good")
    with here.path("new.deed.json").open("ab") as file:
        file.truncate(signed_file_size_max_bytes + 1)
    here.path("half.md").rename(here.folder / "elsewhere.md")
    here.path("half.md").symlink_to("../../elsewhere.md")
    os.mkfifo(here.path("pipe.md"))
    problems = [(what, file) for what, file, _ in here.problems()]
    assert problems == [("invalid", "half.md"), ("invalid", "new.md"), ("invalid", "pipe.md")]


def test_a_folder_that_is_a_link_is_refused(clone: Callable[[str], Clone]) -> None:
    here = clone("good")
    (here.folder / FOLDER).rename(here.folder / "docs/other")
    (here.folder / FOLDER).symlink_to("other")
    assert "docs/handoffs is a link" in here.refused(*MAIN)


def test_hostile_names_are_shown_on_one_line(clone: Callable[[str], Clone]) -> None:
    here = clone("good")
    for name in ("a\n::error::b.md", "\x1b[31mred.md", "-rf.md", os.fsdecode(b"\xff.md"), "$(touch x).deed.json"):
        here.path(name).write_text("# Handoff: x\n")
    said = here.check(code=6)
    assert "\x1b" not in said
    assert not any(line.startswith("::") for line in said.splitlines())
    assert [line for line in said.splitlines() if line.startswith(f"{FOLDER}/-rf.md:1: invalid")]
    assert len([line for line in said.splitlines() if ":1: invalid: " in line]) == 5
    assert said.endswith("3 handoff files that changed since origin/main: 2 good, 1 refused, 4 other problems\n")
    assert not (here.folder / "x").exists()


def test_nothing_that_a_repository_names_is_run(clone: Callable[[str], Clone]) -> None:
    here = clone("good")
    mark = here.folder / "ran"
    for name in (
        "core.fsmonitor",
        "diff.external",
        "core.pager",
        "core.sshCommand",
        "filter.x.smudge",
        "filter.x.clean",
    ):
        git(here.folder, "config", name, f"touch {mark}; cat")
    (here.folder / ".gitattributes").write_text("* filter=x diff=x\n")
    here.check()
    assert not mark.exists()


def test_the_root_must_come_from_where_the_branch_cannot_change_it(clone: Callable[[str], Clone], team: Team) -> None:
    here = clone("good")
    root = (team.project / FOLDER / "ROOT").read_text().strip()
    assert "add --base origin/main, where docs/handoffs/ROOT names it, or --root" in here.refused()
    assert "there is no folder elsewhere" in here.refused("elsewhere", code=CODES["NOT_FOUND"].exit)
    assert "2 good" in here.check("--root", root)
    git(here.folder, "checkout", "-q", "--orphan", "bare")
    git(here.folder, "rm", "-q", "-r", "--cached", ".")
    git(here.folder, "commit", "-q", "--allow-empty", "-m", "bare")
    said = here.refused("--base", "bare")
    assert "bare has no file docs/handoffs/ROOT" in said
    assert "`deed handoff watch docs/handoffs --signed --once --as NAME`" in said
    assert "--root takes the fingerprint" in here.refused("--root", "xyz")


def test_an_unknown_base_is_told(clone: Callable[[str], Clone], tmp_path: Path) -> None:
    here = clone("good")
    assert "fetch-depth: 0" in here.refused("--base", "origin/none", code=3)
    assert "fetch-depth: 0" in here.refused("--base=--output=x", code=3)
    (tmp_path / "none").mkdir()
    assert inside.deed("handoff", "check-files", *MAIN, cwd=tmp_path / "none").code == 3


def test_a_clone_reads_a_handoff_from_its_signed_file(clone: Callable[[str], Clone]) -> None:
    here = clone("good")
    said = inside.deed("handoff", "show", "new", "--bundle", f"{FOLDER}/new.deed.json", cwd=here.folder)
    assert said.code == 0, said
    assert "[verified → b]" in said.out
    hint = inside.deed("handoff", "show", "new", cwd=here.folder)
    assert f"`deed handoff show ID --bundle {FOLDER}/ID.deed.json` needs no ledger" in hint.err
    assert "make test: 12 passed" in said.out


def test_an_approval_by_a_stolen_key_is_refused(
    clone: Callable[[str], Clone], populated: Callable[[str], Path]
) -> None:
    here, home = clone("good"), populated("stolen")
    other = Team(home.parent, home)
    (other.project / FOLDER).mkdir(parents=True)
    for step in (other.hand_over, other.start, other.complete, other.verify):
        step("new")
    since = json.loads(other.deed("log", "--limit", 1, "--json"))["data"]["items"][0]["index"]
    other.deed("key", "compromised", "rita", "--since", since, "--reason", "stolen")
    other.deed(*WATCH, "--signed", "--all")
    for name in ("new.md", "new.deed.json"):
        shutil.copy(other.project / FOLDER / name, here.path(name))
    assert here.problems() == [("invalid", "new.deed.json", 1)]
    assert "SUSPECT_KEY" in here.check(code=6)


@pytest.mark.served
def test_a_signed_file_comes_from_a_server_too(deed: Deed, tmp_path: Path) -> None:
    id_ = f"from-{'server' if deed.is_remote else 'folder'}"
    deed("handoff", "create", id_, "--title", "x", "--to", "b", "--reviewer", "rita", "--as", "a")
    deed("export", "--stream", f"handoff/{id_}", "--text", tmp_path / "x.json")
    said = inside.deed("verify", "--bundle", tmp_path / "x.json", cwd=tmp_path)
    assert (said.code, said.out.partition(":")[0]) == (0, "VALID"), said
    deed("handoff", "watch", tmp_path, "--signed", "--once", "--as", "a")
    root = (tmp_path / "ROOT").read_text().strip()
    found = Clone(tmp_path).problems(".", "--root", root, code=5)  # other tests left handoffs in this ledger
    assert [problem[0] for problem in found if problem[1].startswith(f"{id_}.")] == ["unapproved"]
    deed.refuses("NOT_FOUND", "export", "--stream", "handoff/none", "--text", tmp_path / "y.json")
    deed.refuses("USAGE", "export", "--text", tmp_path / "y.json")
    assert not (tmp_path / "y.json").exists()


def test_the_signed_file_changes_only_with_its_handoff(team: Team) -> None:
    git(team.project, "checkout", "-q", "good")
    before = (team.project / FOLDER / "new.deed.json").read_bytes()
    team.hand_over("more")
    team.deed(*WATCH)
    assert (team.project / FOLDER / "new.deed.json").read_bytes() == before
    (team.project / FOLDER / "more.deed.json").unlink()
    team.deed(*WATCH)
    assert (team.project / FOLDER / "more.deed.json").exists()


def test_a_folder_keeps_one_root(team: Team, tmp_path: Path) -> None:
    git(team.project, "checkout", "-q", "good")
    shutil.copytree(team.project / FOLDER, tmp_path / FOLDER)
    other = Team(tmp_path, tmp_path / ".deedbook")
    other.deed("init", "--unprotected")
    other.deed("agent", "add", "a", "--role", "agent", "--unprotected")
    said = inside.deed("--home", other.home, *WATCH, cwd=tmp_path)
    assert (said.code, "pins another ledger" in said.err) == (2, True), said
