"""The distribution ``deedbook-verify``: one module; two builds have the same bytes; it needs no Deedbook."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
import venv
import zipfile
from importlib import util
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from building import Ledger
from tampering import fill

from deedbook.ledger.bundle import export_bundle
from deedbook.ledger.bundle.program import verify_program

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT: Final = Path(__file__).parents[2]
PROJECT: Final = "deploy/verifier/pyproject.toml"
DEPENDENCIES: Final = ("blake3", "nacl", "cffi", "_cffi_backend", "pycparser")


def built(folder: Path, *, umask: int) -> dict[str, bytes]:
    """Build the distribution as `make verifier` does, and return its files."""
    command = [sys.executable, str(ROOT / "deploy/verifier/build.py"), str(folder)]
    subprocess.run(command, cwd=folder.parent, umask=umask, check=True, capture_output=True, timeout=120)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture(scope="module")
def distribution(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of the distribution by name."""
    return built(tmp_path_factory.mktemp("first") / "built", umask=0o022)


@pytest.fixture(scope="module")
def command(distribution: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command of the wheel, installed into an environment that has its dependencies, but not Deedbook."""
    folder = tmp_path_factory.mktemp("installed")
    wheel = folder / "deedbook_verify-0.1.0-py3-none-any.whl"
    wheel.write_bytes(distribution[wheel.name])
    venv.create(folder / "venv", with_pip=False, symlinks=True)
    python = folder / "venv/bin/python"
    options = ["--no-index", "--no-deps", "--disable-pip-version-check", "--quiet"]
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", *options, str(wheel)]
    subprocess.run(pip, check=True, capture_output=True, timeout=120)
    [site] = (folder / "venv/lib").glob("python*/site-packages")
    for name in DEPENDENCIES:
        spec = util.find_spec(name)
        assert spec is not None, name
        assert spec.origin is not None, name
        path = Path(spec.origin).parent if spec.submodule_search_locations else Path(spec.origin)
        (site / path.name).symlink_to(path)
    return folder / "venv/bin/deedbook-verify"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of a small ledger."""
    path = tmp_path_factory.mktemp("bundled") / "audit.tar"
    with Ledger(tmp_path_factory.mktemp("ledger") / ".deedbook") as ledger:
        fill(ledger)
        with ledger.client() as client:
            export_bundle(client, path)
    return path


def run(command: Path, *arguments: object) -> tuple[int, Sequence[str]]:
    """Run the installed command as a stranger does; return its exit code and its lines."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    ended = subprocess.run(
        [str(command), *map(str, arguments)],
        cwd=command.parent,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return ended.returncode, (ended.stdout + ended.stderr).splitlines()


def test_equal_sources_give_equal_bytes(distribution: dict[str, bytes], tmp_path: Path) -> None:
    assert sorted(distribution) == ["deedbook_verify-0.1.0-py3-none-any.whl", "deedbook_verify-0.1.0.tar.gz"]
    assert built(tmp_path / "built", umask=0o077) == distribution


def test_wheel_is_the_program_of_bundles_and_names_its_dependencies(
    distribution: dict[str, bytes], tmp_path: Path
) -> None:
    (tmp_path / "wheel").write_bytes(distribution["deedbook_verify-0.1.0-py3-none-any.whl"])
    with zipfile.ZipFile(tmp_path / "wheel") as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    assert [name for name in files if ".dist-info/" not in name] == ["deedbook_verify.py"]
    assert files["deedbook_verify.py"] == verify_program()
    described = files["deedbook_verify-0.1.0.dist-info/METADATA"].decode()
    required = [line for line in described.splitlines() if line.startswith("Requires-Dist: ")]
    assert required == ["Requires-Dist: blake3>=1.0.5", "Requires-Dist: pynacl>=1.6"]


def test_it_has_the_version_and_the_dependencies_of_deedbook() -> None:
    ours, alone = (tomllib.loads((ROOT / name).read_text())["project"] for name in ("pyproject.toml", PROJECT))
    assert (alone["version"], alone["requires-python"]) == (ours["version"], ours["requires-python"])
    assert set(alone["dependencies"]) < set(ours["dependencies"])


def test_installed_command_judges_a_bundle(command: Path, bundle: Path, tmp_path: Path) -> None:
    code, lines = run(command, bundle)
    assert (code, lines[-1].partition(":")[0]) == (0, "VALID")
    content = bytearray(bundle.read_bytes())
    content[content.index(b"checkpoint\0") + 600] ^= 1
    (tmp_path / "wrong.tar").write_bytes(content)
    code, lines = run(command, tmp_path / "wrong.tar")
    assert (code, lines[-1][:7]) == (6, "INVALID")


def test_installed_command_asks_for_a_bundle(command: Path, tmp_path: Path) -> None:
    code, lines = run(command)
    assert (code, lines[0][:22]) == (2, "usage: deedbook-verify")
    assert run(command, tmp_path / "none")[0] == 2
