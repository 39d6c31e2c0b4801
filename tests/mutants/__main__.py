"""Mutants of the core: small faults in the source; the tests that a mutant names must notice it.

Each ``*.toml`` here is a table of mutants: the fault (``name``), the ``file`` (Python, or JSON as in ``proto/rules``),
the text that occurs there once (``find``), the text that replaces it (``replace``), and the test files that must then
fail (``tests``). A mutant names a text and no line number, so that code may move. A text that does not occur exactly
once is reported as a failure, because a mutant that cannot be made proves nothing.

    python tests/mutants                 make each in a copy of the tree, run its tests, fail if one survives
    python tests/mutants signature key   only those with one of these words in their name or file
    python tests/mutants --check         only check that each can still be made (part of ``make check``)
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import json
import os
import queue
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
import tomllib
import venv
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
MUTANTS_MIN = 40
RUN_MAX_S = 600
ALL_MAX_S = 3600  # the time limit of all tests that mutants name, on a busy machine
KILLED, SURVIVED = 1, 0  # exit codes of pytest; any other code means that the tests could not run


class Mutant(NamedTuple):
    """One small fault and the test files that must notice it."""

    name: str
    file: str
    find: str
    replace: str
    tests: list[str]

    def faults(self, root: Path) -> list[str]:
        """Return the reasons why this mutant cannot be applied to the tree in ``root``."""
        missing = [f"{test} is not there" for test in self.tests if not (root / test).is_file()]
        if not self.tests:
            missing.append("names no test file")
        if not (root / self.file).is_file():
            return [*missing, f"{self.file} is not there"]
        text = (root / self.file).read_text("utf-8")
        if text.count(self.find) != 1:
            return [*missing, f"its text stands {text.count(self.find)} times in {self.file}, not once"]
        try:
            self._parse(self.changed(text))
        except (SyntaxError, json.JSONDecodeError) as error:
            missing.append(f"{self.file} could not be parsed any more (line {error.lineno})")
        return missing

    def _parse(self, text: str) -> None:
        if self.file.endswith(".json"):
            json.loads(text)
        else:
            ast.parse(text)

    def changed(self, text: str) -> str:
        """Return the file's text with the fault in it."""
        return text.replace(self.find, self.replace)


def load(folder: Path = HERE) -> list[Mutant]:
    """Return all mutants, in the order of their files."""
    return [
        Mutant(**fields)
        for path in sorted(folder.glob("*.toml"))
        for fields in tomllib.loads(path.read_text("utf-8"))["mutant"]
    ]


def faults(mutants: Sequence[Mutant], root: Path = ROOT) -> list[str]:
    """Return the faults of the mutants' tables: repeated names, and mutants that cannot be applied."""
    names = [mutant.name for mutant in mutants]
    found = [f"{name}: stands twice" for name in sorted({name for name in names if names.count(name) > 1})]
    if len(mutants) < MUTANTS_MIN:
        found.append(f"there are {len(mutants)} mutants, not {MUTANTS_MIN}")
    return found + [f"{mutant.name}: {fault}" for mutant in mutants for fault in mutant.faults(root)]


def copy_tree(root: Path, target: Path) -> None:
    """Copy the tracked files of the repository, as they are in the work tree."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout
    for name in listed.splitlines():
        if (root / name).exists():  # otherwise it was deleted from the work tree
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, target / name, follow_symlinks=False)


def make_python(tree: Path) -> None:
    """Create a Python environment in a tree: our packages come from the tree, all others from this environment.

    ``PYTHONPATH`` would not do: programs that tests start without it would import the source without the fault.
    """
    venv.create(tree / ".venv", symlinks=True, with_pip=False)
    made = Path(sysconfig.get_path("purelib", vars={"base": str(tree / ".venv")}))
    installed = Path(sysconfig.get_path("purelib"))
    ours = [line for file in installed.glob("*deedbook*.pth") for line in file.read_text("utf-8").splitlines()]
    moved = [line.replace(str(ROOT), str(tree), 1) for line in ours]
    (made / "tree.pth").write_text("\n".join([*moved, str(installed), ""]))
    for program in Path(sys.prefix, "bin").iterdir():
        copy = tree / ".venv/bin" / program.name
        if not program.is_file() or copy.exists() or program.name.lower().startswith(("activate", "python")):
            continue
        script = program.read_bytes()
        if script.startswith(b"#!"):
            copy.write_bytes(script.replace(sys.prefix.encode(), bytes(tree / ".venv"), 1))
            copy.chmod(0o755)
        else:
            copy.symlink_to(program)


def run_tests(tree: Path, tests: Sequence[str], *options: str, limit_s: int = RUN_MAX_S) -> tuple[int, str]:
    """Run test files in a tree of their own and return pytest's exit code and output."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DEEDBOOK_")}
    environment["PYTHONDONTWRITEBYTECODE"] = "1"
    command = [
        str(tree / ".venv/bin/python"),
        "-m",
        "pytest",
        "-q",
        "--no-header",
        "--durations=0",
        "--durations-min=60",
        *options,
    ]
    try:
        done = subprocess.run(
            [*command, *tests],
            cwd=tree,
            env=environment,
            capture_output=True,
            text=True,
            timeout=limit_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return KILLED, "the tests did not end"
    return done.returncode, done.stdout + done.stderr


@contextlib.contextmanager
def mutated(tree: Path, mutant: Mutant, number: int) -> Iterator[None]:
    """Apply the mutant within a ``with`` block. Each mutant has another ``number``."""
    path = tree / mutant.file
    text, before = path.read_text("utf-8"), path.stat()
    path.write_text(mutant.changed(text), "utf-8")
    # Python uses a compiled module if its recorded size and time (in seconds) equal those of the file. Two mutants of a
    # file may have the same size. So each gets another time: otherwise the tests of one would run the other.
    os.utime(path, (before.st_atime, before.st_mtime + 10 * number))
    try:
        yield
    finally:
        path.write_text(text, "utf-8")
        os.utime(path, (before.st_atime, before.st_mtime))


def survivors(mutants: Sequence[Mutant], jobs: int, root: Path = ROOT) -> list[str]:
    """Apply each mutant in a copy of the tree; return the survivors, and those that could not be applied."""
    found: list[str] = []
    with tempfile.TemporaryDirectory(prefix="deedbook-mutants-") as folder:
        trees: queue.Queue[Path] = queue.Queue()
        for number in range(jobs):
            copy_tree(root, Path(folder) / str(number))
            make_python(Path(folder) / str(number))
            trees.put(Path(folder) / str(number))
        tests = sorted({test for mutant in mutants for test in mutant.tests})
        code, output = run_tests(Path(folder) / "0", tests, "-n", str(jobs), limit_s=ALL_MAX_S)
        if code != SURVIVED:
            return [f"without any mutant the tests fail already:\n{output[-3000:]}"]

        def attempt(mutant: Mutant, number: int) -> None:
            tree, began_s = trees.get(), time.monotonic()
            try:
                with mutated(tree, mutant, number):
                    code, output = run_tests(tree, mutant.tests, "-x")
            finally:
                trees.put(tree)
            verdict = {KILLED: "killed", SURVIVED: "SURVIVED"}.get(code, "NOT TRIED")
            print(f"{verdict:9} {time.monotonic() - began_s:5.1f} s  {mutant.name}", flush=True)
            if code == SURVIVED:
                found.append(f"{mutant.name}: {mutant.file} may hold this fault unnoticed")
            elif code != KILLED:
                found.append(f"{mutant.name}: the tests could not be run:\n{output[-2000:]}")

        with ThreadPoolExecutor(jobs) as pool:
            list(pool.map(attempt, mutants, range(1, len(mutants) + 1)))
    return found


def main() -> int:
    """Run the mutants that the command line selects; print faults and return 1 if there are any, otherwise 0."""
    parser = argparse.ArgumentParser(prog="python tests/mutants", description="Mutants that the tests must kill.")
    parser.add_argument("words", nargs="*", help="only mutants whose name or file holds one of these")
    parser.add_argument("--check", action="store_true", help="only look whether each can still be made")
    parser.add_argument("--jobs", type=int, default=min(4, os.cpu_count() or 1), help="how many are tried at once")
    asked = parser.parse_args()
    mutants = load()
    found = faults(mutants)
    if not found and not asked.check:
        words = asked.words or [""]
        mutants = [one for one in mutants if any(word in one.name or word in one.file for word in words)]
        found = survivors(mutants, max(1, asked.jobs))
        if not found:
            print(f"all {len(mutants)} mutants were killed")
    print("\n".join(found), end="\n" if found else "")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
