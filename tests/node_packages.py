"""Installs the npm packages that tests need, from a lock, once, below ``build/``. An error names a missing package.

npm would wait three times five minutes for a registry that does not answer, so a shorter time limit stops it.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
from pathlib import Path
from typing import Final, TextIO

import pytest

BUILD: Final = Path(__file__).parents[1] / "build"
install_max_s: Final = 100.0  # 9 s with an empty cache; less than the time limit of a test


def program(name: str) -> str:
    """Return the path of a program; if it is not installed, skip the test with the reason."""
    path = shutil.which(name)
    if path is None:
        pytest.skip(
            f"not run: the command `{name}` (Node 20 or later with npm) is missing: `apt-get install nodejs npm`"
        )
    return path


def install(source: Path, name: str, *, build: tuple[str, ...] = ()) -> Path:
    """Install a folder with sources and the packages of their lock, run the command ``build`` in it, and return it.

    If npm cannot install, the tests are skipped. If the build fails, the tests fail.
    """
    npm = program("npm")
    files = sorted(file for file in source.rglob("*") if file.suffix in {".json", ".ts"} or file.name == ".npmrc")
    files = [file for file in files if "vectors" not in file.parts]
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
    place = BUILD / f"{name}-{digest[:12]}"
    BUILD.mkdir(exist_ok=True)
    with (BUILD / f"{name}.lock").open("w") as held:
        is_second = _is_held_by_another(held)
        if not (place / "installed").exists():
            if is_second:
                pytest.skip(f"not run: another process of these tests could not install {name}")
            for file in files:
                (place / file.relative_to(source)).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(file, place / file.relative_to(source))
            try:
                done = run(npm, "ci", "--prefer-offline", "--no-audit", "--no-fund", "--loglevel=error", cwd=place)
            except subprocess.TimeoutExpired as stalled:
                pytest.skip(
                    f"not run: `npm ci` of {name} took longer than {stalled.timeout:.0f} s: is there a network?"
                )
            if done.returncode != 0:
                pytest.skip(f"not run: `npm ci` of {name} failed: {done.stderr.strip()[-300:]}")
            if build:
                built = run(*build, cwd=place)
                assert built.returncode == 0, built.stdout + built.stderr
            (place / "installed").touch()
    return place


def _is_held_by_another(held: TextIO) -> bool:
    """Lock a file; return whether another process held the lock before."""
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        fcntl.flock(held, fcntl.LOCK_EX)
        return True
    return False


def run(*command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a command of the installation."""
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=install_max_s, check=False)
