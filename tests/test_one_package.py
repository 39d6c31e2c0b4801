"""There is one import name: no module is loaded under two names; a wheel contains all of ``deedbook``, nothing else.

Builds of equal sources have equal bytes. Wheel and source distribution name their commit.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Final

import pytest
from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder

from deedbook.consumers.sdk.version import commit, version_text

ROOT: Final = Path(__file__).parents[1]
FOLDERS: Final = ("ledger", "projections", "consumers")
# Imports all modules of a package except programs; prints the name and the real path of each loaded module.
IMPORT_ALL: Final = """
import importlib, json, os, pkgutil, sys
import deedbook
broken = []
for module in pkgutil.walk_packages(deedbook.__path__, "deedbook.", onerror=broken.append):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
assert not broken, broken
loaded = {name: getattr(module, "__file__", None) for name, module in sys.modules.items()}
json.dump({name: os.path.realpath(path) for name, path in loaded.items() if path}, sys.stdout)
"""


def python(program: str, *, folder: Path, path: str = "") -> subprocess.CompletedProcess[str]:
    """Run a Python program that can import modules from ``path`` and installed ones, but not from its own folder."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("DEEDBOOK_", "PYTHON"))}
    environment |= {"PYTHONPATH": path} if path else {}
    command = [sys.executable, "-P", "-c", program]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def built(source: Path, folder: Path) -> dict[str, bytes]:
    """Build wheel and source distribution as every front end does, by hatchling; return them by name."""
    for builder in (WheelBuilder(str(source)), SdistBuilder(str(source))):
        assert len(list(builder.build(directory=str(folder), versions=["standard"]))) == 1
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def files_of_checkout() -> set[str]:
    """Return the names that the package's files must have in a wheel."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "deedbook", *FOLDERS, "proto/rules"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    names = {name for name in listed if name and (ROOT / name).is_file()}
    return {name if name.startswith("deedbook/") else f"deedbook/{name}" for name in names}


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the wheel and the source distribution of the checkout."""
    folder = tmp_path_factory.mktemp("distributions")
    built(ROOT, folder)
    return folder


@pytest.fixture(scope="module")
def wheel(distributions: Path) -> Path:
    """Return the wheel."""
    return distributions / "deedbook-0.1.0-py3-none-any.whl"


def test_no_module_is_loaded_under_two_names(tmp_path: Path) -> None:
    ended = python(IMPORT_ALL, folder=tmp_path, path=str(ROOT))
    assert ended.returncode == 0, ended.stderr
    loaded: dict[str, str] = json.loads(ended.stdout)
    ours = {name: path for name, path in loaded.items() if Path(path).is_relative_to(ROOT) and ".venv" not in path}
    assert len(ours) > 400
    assert {name.partition(".")[0] for name in ours} == {"deedbook"}
    assert len(set(ours.values())) == len(ours)


def test_wheel_holds_one_package_with_every_file_of_the_checkout(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        members = archive.infolist()
    assert {member.filename.partition("/")[0] for member in members} == {"deedbook", "deedbook-0.1.0.dist-info"}
    files = {member.filename for member in members if not member.filename.startswith("deedbook-")}
    assert files == files_of_checkout() | {"deedbook/commit.txt"}
    assert {Path(name).suffix for name in files} >= {".py", ".typed", ".html", ".css", ".js", ".toml", ".md", ".json"}
    assert not any((member.external_attr >> 16) & 0o170000 == 0o120000 for member in members)  # no links


def test_equal_sources_give_equal_bytes_anywhere(distributions: Path, tmp_path: Path) -> None:
    with tarfile.open(distributions / "deedbook-0.1.0.tar.gz") as archive:
        archive.extractall(tmp_path)  # this folder has no .git
    (tmp_path / "deedbook-0.1.0/PKG-INFO").unlink()  # each build writes this file
    (tmp_path / "deedbook-0.1.0/README.md").chmod(0o600)
    os.utime(tmp_path / "deedbook-0.1.0/README.md", (1, 1))
    again = built(tmp_path / "deedbook-0.1.0", tmp_path / "again")
    assert again == {path.name: path.read_bytes() for path in distributions.iterdir()}


def test_installed_wheel_says_its_commit_without_git(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    ended = python(
        "import os; os.environ['PATH'] = ''; from deedbook.consumers.sdk.version import version_text as v; print(v())",
        folder=tmp_path,
        path=str(tmp_path),
    )
    assert ended.stdout == f"{version_text()}\n", ended.stderr
    assert re.fullmatch(r"[0-9a-f]{12}(-dirty)?", commit())


def test_wheel_has_the_command_and_the_name_that_uvx_looks_for(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        commands = (
            archive.read("deedbook-0.1.0.dist-info/entry_points.txt").decode().partition("[console_scripts]\n")[2]
        )
    main = "deedbook.consumers.interfaces.cli.program:main"
    assert commands.split("\n\n")[0].split("\n") == [f"deed = {main}", f"deedbook = {main}"]


def test_links_of_the_readme_lead_somewhere_on_a_package_index(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        text = archive.read("deedbook-0.1.0.dist-info/METADATA").decode()
    links = re.findall(r"\]\(([^)]*)\)", text)
    assert len(links) > 10
    paths = [
        re.sub(r"https://(github|raw\.githubusercontent)\.com/deedbook/deedbook/(blob/)?v0.1.0/", "", x) for x in links
    ]
    assert all((ROOT / path).exists() for path in paths)
    assert [link for link in links if link.endswith(".png")] == [
        "https://raw.githubusercontent.com/deedbook/deedbook/v0.1.0/docs/needs-you.png"
    ]


def test_installed_wheel_is_found_by_one_name_only(wheel: Path, tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")  # an installer does the same; the files are our own
    where = "import deedbook.ledger.errors as e; print(e.__file__)"
    found = python(where, folder=tmp_path, path=str(tmp_path / "site"))
    assert found.stdout == f"{tmp_path}/site/deedbook/ledger/errors.py\n", found.stderr
    # An editable installation adds the checkout to sys.path. Remove it: otherwise its folders could be imported.
    listed = (
        f"import sys; sys.path[:] = [one for one in sys.path if one != {str(ROOT)!r}]; import importlib.util as u; "
    )
    listed += f"print([name for name in {FOLDERS!r} if u.find_spec(name) is not None])"
    assert python(listed, folder=tmp_path, path=str(tmp_path / "site")).stdout == "[]\n"
    assert python("import deedbook.__main__", folder=tmp_path, path=str(tmp_path / "site")).returncode == 0
