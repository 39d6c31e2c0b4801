"""Families of packages: the example of the documents, installed from its folder, and readers that lack it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import inside
import pytest
from building import MAP_SIZE, Ledger
from bundles import run_alone, unpacked
from console_blocks import blocks
from faults import some_of
from forge import Forge
from judges import alone, ours

from deedbook.consumers.auditor.verify import verify_log
from deedbook.ledger import families
from deedbook.ledger.admission.follower import LogFollower
from deedbook.ledger.client.author import Draft
from deedbook.ledger.errors import Refused
from deedbook.ledger.log.log import Log
from deedbook.projections.answers.reader import Reader

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "docs/rollout-family"
HELPERS = [ROOT / "tests", ROOT / "tests/consumers/auditor"]
HELPERS += [ROOT / "tests/consumers/interfaces" / name for name in ("dashboard", "mcp", "web")]


def with_package(site: Path, *command: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run Python with a folder of packages on its path."""
    path = os.pathsep.join(map(str, [site, *HELPERS]))
    environment = {**os.environ, "PYTHONPATH": path, **more}
    return subprocess.run(
        [sys.executable, *command], env=environment, cwd=ROOT, capture_output=True, text=True, check=False, timeout=100
    )


def deeds(site: Path, *verbs: Sequence[str], **more: str) -> list[inside.Said]:
    """Call verbs in turn in one process with a folder of packages on its path; return their output."""
    program = "import inside, json, sys; print(json.dumps([inside.deed(*verb) for verb in json.loads(sys.argv[1])]))"
    done = with_package(site, "-c", program, json.dumps(verbs), **more)
    assert done.returncode == 0, done.stderr
    return [inside.Said(*said) for said in json.loads(done.stdout)]


def install(source: Path, site: Path) -> Path:
    """Build the wheel of a package outside the source, and unpack it as an installer does."""
    copy = site.with_name(f"{site.name}-source")
    shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__"))
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(site)],
        cwd=copy,
        check=True,
        capture_output=True,
    )
    (wheel,) = site.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    return site


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(EXAMPLE, tmp_path_factory.mktemp("packages") / "site")


@pytest.fixture(scope="module")
def made(site: Path) -> Path:
    """The folder with a ledger of rollouts and its bundle, after every operation that needs the package."""
    folder = site.parent / "made"
    folder.mkdir()
    tests = ROOT / "tests/consumers/auditor/rollouts_at_work.py"
    options = ["-q", "-p", "no:xdist", f"--basetemp={site.parent / 'inside'}"]
    done = with_package(site, "-m", "pytest", str(tests), *options, ROLLOUT_LEDGER=str(folder))
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    return folder


def test_example_is_small() -> None:
    files = [path for path in EXAMPLE.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    assert sum(len(path.read_text("utf-8").splitlines()) for path in files) < 150


def test_family_works_at_every_interface_and_is_refused_rightly(made: Path) -> None:
    assert (made / "bundle.tar").exists()


@pytest.fixture
def copied(made: Path, tmp_path: Path) -> Iterator[Ledger]:
    """The ledger of rollouts, in a process that lacks the package."""
    shutil.copytree(made / "ledger", tmp_path / "ledger", ignore=shutil.ignore_patterns("views.db*"))
    with Ledger(tmp_path / "ledger") as ledger:
        yield ledger


def test_verifiers_without_the_package_say_partial_and_name_the_family(made: Path, tmp_path: Path) -> None:
    assert families.find("rollout") is None
    judgement = ours(made / "bundle.tar")
    assert (judgement.word, judgement.codes) == ("PARTIAL", {})
    assert "the package of the family rollout (2 entries) missing" in judgement.text
    done = run_alone(unpacked(made / "bundle.tar", tmp_path / "bundle"))
    assert done.returncode == 6
    assert "PARTIAL: fields and rules not checked, of the families rollout" in done.stdout


@pytest.mark.parametrize(
    ("author", "stream", "code"),
    [
        ("rita", "rollout/x", None),
        ("root", "rollout/x", "NOT_AUTHORIZED"),
        ("rita", "rollout", "UNKNOWN_KIND"),
        ("rita", "session/x", "UNKNOWN_KIND"),
    ],
)
def test_verifiers_without_the_package_check_everything_else(
    tmp_path: Path, author: str, stream: str, code: str | None
) -> None:
    forge = Forge()
    first = len(forge.entries)
    forge.raw(author, forge.body(author, stream, {"service": 5}, kind="rollout.started"))
    forge.export(tmp_path / "bundle.tar")
    for judge in (ours, alone):
        judgement = judge(tmp_path / "bundle.tar")
        expected = ("PARTIAL", {}) if code is None else ("INVALID", {first: {code}})
        assert (judgement.word, judgement.codes) == expected, judgement.text


def test_unknown_kind_of_the_core_stays_invalid(tmp_path: Path) -> None:
    forge = Forge()
    forge.raw("alice", forge.body("alice", "session/x", {}, kind="session.paused"))
    forge.export(tmp_path / "bundle.tar")
    assert ours(tmp_path / "bundle.tar").word == alone(tmp_path / "bundle.tar").word == "INVALID"


def test_gate_and_follower_without_the_package_refuse_and_name_it(copied: Ledger, tmp_path: Path) -> None:
    draft = Draft(stream="rollout/web-43", kind="rollout.started", data={"service": "web"})
    refusal = copied.refusal_of(lambda: copied.submit(copied.sign("rita", draft)))
    assert (refusal.code, refusal.details["family"]) == ("FAMILY_MISSING", "rollout")
    assert "deedbook.families" in refusal.message
    with copied.log.snapshot() as snapshot:
        entries = snapshot.entries(0, limit=100, size_max_bytes=2**20)
    (tmp_path / "other").mkdir()
    with contextlib.closing(Log(tmp_path / "other", map_size=MAP_SIZE, create=True)) as other:
        with pytest.raises(Refused) as refused:
            LogFollower(other).append(0, entries)
        with other.snapshot() as snapshot:
            assert (refused.value.code, snapshot.size) == ("FAMILY_MISSING", 0)


def test_audit_and_views_without_the_package_show_what_they_lack(copied: Ledger) -> None:
    with copied.client() as client:
        report = verify_log(client)
        assert (report.outcome, report.unread) == ("PARTIAL", {"rollout": 2})
        with Reader(client, copied.settings()) as reader:
            rows = reader.answer("catalog.find", {"stream": "rollout/web-42"})["items"]
            assert [(row["kind"], row["text"], row["skipped"]) for row in rows] == [
                ("rollout.started", "", "FAMILY_MISSING"),
                ("rollout.finished", "", "FAMILY_MISSING"),
            ]
            with pytest.raises(Refused, match="there is no query"):
                reader.answer("rollout.list")


def test_fsck_without_the_package_finds_no_damage_and_repairs_nothing(copied: Ledger) -> None:
    copied.write_keys()
    home = ["--home", str(copied.home.path)]
    copied.log.close()
    deed = [sys.executable, "-m", "deedbook", *home]
    checked = subprocess.run([*deed, "fsck"], capture_output=True, text=True, check=False, cwd=ROOT)
    assert "PARTIAL" in checked.stdout + checked.stderr
    assert "contradicts" not in checked.stdout + checked.stderr
    repaired = subprocess.run(
        [*deed, "fsck", "--repair", "--json"], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert json.loads(repaired.stdout or repaired.stderr)["error"]["code"] == "FAMILY_MISSING"


BROKEN = {
    "it cannot be imported": ("raise RuntimeError('boom')", "RuntimeError: boom"),
    "it is no family": ("FAMILY = 5", "it is a int and no Family"),
    "another format": ("FAMILY = Family(format=99, name='rollout', kinds={}, rules='')", "format 99"),
    "another name": ("FAMILY = Family(format=FORMAT, name='other', kinds={}, rules='')", "'other'"),
    "a kind of the core": (
        "FAMILY = Family(format=FORMAT, name='rollout', kinds={'handoff.created': 'a:B'}, rules='')",
        "handoff.created would belong to the core",
    ),
    "a query of another family": (
        "FAMILY = Family(format=FORMAT, name='rollout', kinds={}, rules='', queries={'tot.list': 'a:B'})",
        "tot.list would belong to the family tot",
    ),
}


@pytest.mark.parametrize("name", some_of(BROKEN, "it cannot be imported", "a kind of the core"))
def test_broken_package_is_named_and_stops_only_those_who_need_it(tmp_path: Path, name: str) -> None:
    code, why = BROKEN[name]
    site = package(tmp_path, "rollout = bad:FAMILY", f"from deedbook.ledger.families import FORMAT, Family\n{code}\n")
    with Ledger(tmp_path / "ledger") as ledger:
        ledger.write_keys()
        home = str(ledger.home.path)
    emit = [
        "--as",
        "rita",
        "emit",
        "rollout.started",
        "--stream",
        "rollout/x",
        "--data",
        '{"service": "web"}',
        "--json",
    ]
    verbs = (["log", "--json"], ["handoff", "list"], ["doctor"], emit)
    logged, listed, checked, emitted = deeds(site, *(["--home", home, *verb] for verb in verbs))
    assert (logged.code, listed.code) == (0, 0)
    assert "WRONG families" in checked.out
    error = json.loads(emitted.out or emitted.err)["error"]
    assert (emitted.code, error["code"]) == (2, "FAMILY_UNUSABLE")
    assert why in error["message"]
    assert "bad-package 1.0" in error["message"].replace("_", "-")
    assert "pip uninstall" in error["message"]


FAULTS = {
    "a renamed class": ("events.py", "class RolloutFinished", "class RolloutDone", "events:"),
    "a renamed class, also in the texts": ("events.py", "RolloutFinished", "RolloutDone", "events:RolloutFinished"),
    "no texts": ("events.py", "TEXTS =", "WORDS =", "events:TEXTS"),
    "no rules": ("events.py", "MACHINE =", "RULES =", "events:MACHINE"),
    "no view": ("view.py", "VIEW =", "SIGHT =", "view:VIEW"),
}
"""A file of the example, the text that a fault replaces in it, and the part that `deed doctor` then names."""
READS = (
    *(["log"], ["next"], ["handoff", "list"], ["handoff", "show", "h1"], ["show", "1"], ["prime"]),
    *(["search", "title"], ["log", "--stream", "rollout/web-42"]),
)
"""Commands that need no family."""


class Project(NamedTuple):
    """A folder with a trial ledger, for commands that run with a folder of packages."""

    folder: Path

    def deeds(self, site: Path, *verbs: Sequence[str]) -> list[inside.Said]:
        """Call verbs as alex, in one process."""
        names = ["--home", str(self.folder / ".deedbook"), "--as", "alex"]
        return deeds(site, *([*names, *verb] for verb in verbs), XDG_STATE_HOME=str(self.folder / "state"))


def finished(name: str) -> list[str]:
    return ["emit", "rollout.finished", "--stream", f"rollout/{name}", "--data", '{"ok": true, "note": "no errors"}']


@pytest.fixture(scope="module")
def project(site: Path, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A ledger whose newest entry is of the family."""
    made = Project(tmp_path_factory.mktemp("project"))
    answers = made.deeds(
        site,
        ["init", "--trial"],
        ["handoff", "new", "h1", "--title", "A title", "--to", "kuro", "--task", "a", "--criterion", "b"],
        ["rollout", "start", "web-42", "web"],
        ["rollout", "start", "web-43", "web"],
        finished("web-42"),
    )
    assert [said.code for said in answers] == [0] * 5, answers
    for path in (made.folder / ".deedbook").glob("views.db*"):  # each test makes them with the packages that it has
        path.unlink()
    return made


@pytest.fixture
def own_project(project: Project, tmp_path: Path) -> Iterator[Project]:
    """The ledger of a test. It is restored to the same folder each time, because its user trusts only that folder."""
    shutil.copytree(project.folder, tmp_path / "before")
    yield project
    shutil.rmtree(project.folder)
    shutil.move(tmp_path / "before", project.folder)


@pytest.mark.parametrize("name", some_of(FAULTS, "a renamed class", "no view"))
def test_fault_in_a_package_stops_only_what_needs_it(
    own_project: Project, site: Path, tmp_path: Path, name: str
) -> None:
    file, old, replaced, part = FAULTS[name]
    faulty = shutil.copytree(site, tmp_path / "site")
    path = faulty / "deedbook_rollout" / file
    text = path.read_text("utf-8")
    assert old in text
    path.write_text(text.replace(old, replaced), "utf-8")
    verbs = (["verify"], ["doctor"], finished("web-43"), ["rollout", "list"])
    *read, verified, checked, emitted, listed = own_project.deeds(faulty, *READS, *verbs)
    read += own_project.deeds(faulty, *READS)
    assert not any(said.code for said in read), read
    assert verified.code == (0 if name in ("no texts", "no view") else 6), verified
    assert "WRONG families" in checked.out
    assert part in checked.out
    assert "past the gate" not in checked.out
    needs_kinds, needs_view = name not in ("no texts", "no view"), name not in ("no texts", "no rules")
    for said, is_refused in ((emitted, needs_kinds), (listed, needs_view)):
        assert (said.code == 2) == is_refused, said
        assert ("FAMILY_UNUSABLE" in said.err) == is_refused, said


def test_readers_without_the_package_work_and_are_told_what_to_install(own_project: Project, tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    *read, checked = own_project.deeds(tmp_path / "none", *READS, ["doctor"])
    assert not any(said.code for said in read), read
    assert "WRONG packages: 3 entries" in checked.out
    assert "no package here brings the family rollout: install the one that does" in checked.out
    assert "ok    entries" in checked.out
    assert "past the gate" not in checked.out


def test_commands_of_the_page_work(site: Path, tmp_path: Path) -> None:
    page = (ROOT / "docs/how-to/families.md").read_text("utf-8")
    block = next(block for block in blocks(page) if block.language == "sh")
    install_line, *commands = block.content.strip().split("\n")
    assert install_line == "pip install ./docs/rollout-family"  # the fixture has done that
    verbs = [shlex.split(command) for command in commands]
    assert {program for program, *_ in verbs} == {"deed"}
    environment = {"XDG_STATE_HOME": str(tmp_path / "state")}
    home = ["--home", str(tmp_path / ".deedbook")]
    for said in deeds(site, *([*home, *verb[1:]] for verb in verbs), **environment):
        assert said.code == 0, said


def test_two_packages_of_one_family_are_both_named(tmp_path: Path) -> None:
    site = package(tmp_path, "tot = bad:FAMILY", "FAMILY = 5\n")
    done = with_package(site, "-c", "from deedbook.ledger.families import find; print(find('tot'))")
    assert "both register it" in done.stdout
    assert "bad_package 1.0" in done.stdout
    assert "deedbook" in done.stdout


def test_current_folder_is_never_searched(tmp_path: Path) -> None:
    site = package(tmp_path, "rollout = bad:FAMILY", "raise SystemExit(9)\n")
    program = "from deedbook.ledger.families import find; print(find('rollout'))"
    for path in ("", str(site), "."):
        done = subprocess.run(
            [sys.executable, "-c", program],
            cwd=site,
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.stdout == "None\n", done.stderr


def package(folder: Path, point: str, code: str) -> Path:
    """Install a package with one entry point and one module, ``bad``."""
    site = folder / "site"
    info = site / "bad_package-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: bad-package\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[deedbook.families]\n{point}\n")
    (site / "bad.py").write_text(code)
    return site


def test_no_family_can_have_a_name_of_the_core() -> None:
    from deedbook.consumers.interfaces.cli.program import ALIASES, SECTIONS
    from deedbook.consumers.interfaces.dashboard.pages import DOWNLOADS, FORMS, ROUTES
    from deedbook.ledger.events import CORE_KINDS
    from deedbook.projections.views.registry import QUERIES

    kinds = {part for name, kind in CORE_KINDS.items() for part in (name.partition(".")[0], kind.stream)}
    queries = {name.partition(".")[0] for name in QUERIES} - {*families.sources()}
    verbs = {verb for section in SECTIONS.values() for verb in section} | {*ALIASES}
    pages = {route.path.split("/")[1] for route in (*ROUTES, *DOWNLOADS, *FORMS)}
    names = {name.replace("-", "_") for name in kinds | queries | verbs | pages}
    assert {name for name in names if re.fullmatch(families.NAME, name)} <= families.CORE_NAMES
