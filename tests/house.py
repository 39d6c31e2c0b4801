"""What the house's style promises and no linter holds; run by ``make check``, exits 1 with a list.

python tests/house.py --print (``make house``) shows the house instead: lines and files, rooms and arrows.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PACKAGES = ("ledger", "projections", "consumers")
TYPED = (*PACKAGES, "consumers/interfaces/python/deedbook")
FILE_LINES_MAX = 400
FUNCTION_LINES_MAX = 70
TOP_LEVEL = {
    "pyproject.toml",
    "README.md",
    "ledger",
    "projections",
    "consumers",
    "proto",
    "tests",
    "deploy",
    "docs",
    "Makefile",
    "LICENSE",
    "CHANGELOG.md",
    "requirements.lock",
    ".ci",
    ".github",
    ".gitignore",
    ".gitattributes",
}
FORBIDDEN_NAMES = {"utils", "helpers", "manager", "common", "misc"}
# Modules are nouns. These end in -ing and are: what the field calls the thing itself, or the name of a task.
NOUNS_IN_ING = {"reasoning", "thinking", "embedding", "mapping", "planning", "debugging"}
# Pages and plans that whoever inherits the house does not have: the reason stands where the code is.
CITATION = re.compile(r"\b(?:DESIGN|SEEDS|STYLE)\b|[Ss]eeds? 00\d|\b[Tt]he seed's\b")
CITES_ITSELF = {"tests/house.py"}
# The rooms of `consumers`, from the street inwards: whoever stands further left may ask who stands further right.
ROOMS = ("interfaces", "handoffs", "reasoning", "thoughts", "auditor", "importers", "sessions", "sdk")
ROOMS_MAX = 9
ARROWS_MAX = 15


class Arrow(NamedTuple):
    """One room imports another; ``count`` is by how many imports."""

    room: str
    other: str
    count: int

    @property
    def is_up(self) -> bool:
        """Whether it points outwards, to whom it should not know."""
        return ROOMS.index(self.other) < ROOMS.index(self.room)


def tracked() -> list[Path]:
    """Return the files of the repository that are there."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return [ROOT / name for name in listed.split("\n") if name and (ROOT / name).is_file()]


def dependencies() -> set[str]:
    """Return the import names of what the lock installs."""
    names = re.findall(r"^([A-Za-z0-9_.-]+)==", (ROOT / "requirements.lock").read_text("utf-8"), re.MULTILINE)
    return {name.lower().replace("-", "_") for name in names} | {"nats", "nacl", "proto"}


def faults() -> list[str]:
    """Return everything that is not as it should be."""
    files = tracked()
    found = [
        f"{path.name}: nothing else belongs at the top"
        for path in files
        if path.relative_to(ROOT).parts[0] not in TOP_LEVEL
    ]
    taken = dependencies()
    for path in files:
        name = path.relative_to(ROOT)
        if name.parts[0] == "proto" and path.suffix == ".py":
            found.append(f"{name}: proto/ is data")
        if name.parts[0] == "docs" and path.suffix != ".png":
            found.append(f"{name}: docs/ holds the pictures of the README, and no page")
        if name.parts[0] == "tests" and path.name == "__init__.py":
            found.append(f"{name}: a package under tests/ would shadow the real one")
        if name.suffix == ".py" and name.parts[0] in PACKAGES:
            found += [f"{name}: {fault}" for fault in module_faults(path, name, taken)]
        if name.name.endswith((".lock", ".toml", ".cfg")) and re.search(
            r"://[^/]*(pypi|pythonhosted|simple)", path.read_text("utf-8")
        ):
            found.append(f"{name}: names a package host")
    found += [f"{name}/py.typed is missing: types would reach nobody" for name in TYPED if not is_typed(name)]
    return found + room_faults() + citations(files) + names_twice(files)


def names_twice(files: list[Path]) -> list[str]:
    """Return the test modules that share a name: without packages under tests/, only one of them can be imported."""
    found: dict[str, Path] = {}
    faulty = []
    for path in files:
        name = path.relative_to(ROOT)
        if name.parts[0] != "tests" or name.parts[1] in {"bench", "mutants"} or path.suffix != ".py":
            continue
        if path.stem != "conftest" and (other := found.setdefault(path.stem, name)) != name:
            faulty.append(f"{name}: there is {other} already, and only one of them could be imported")
    return faulty


def is_typed(package: str) -> bool:
    """Return whether type checkers believe a package."""
    return (ROOT / package / "py.typed").is_file()


def module_faults(path: Path, name: Path, taken: set[str]) -> list[str]:
    """Return what is wrong with one module."""
    text = path.read_text("utf-8")
    tree = ast.parse(text)
    found = []
    if path.stem in taken and len(name.parts) <= len(("package", "module.py")):
        found.append("bears the name of a dependency")
    if path.stem in FORBIDDEN_NAMES:
        found.append("a name that says nothing")
    last_word = path.stem.rpartition("_")[2]
    if last_word.endswith("ing") and last_word not in NOUNS_IN_ING:
        found.append("a module is named by a noun")
    if text.count("\n") > FILE_LINES_MAX:
        found.append(f"{text.count(chr(10))} lines: split it")
    if not ast.get_docstring(tree):
        found.append("no docstring that says why it exists")
    lines = text.split("\n")
    found += [
        f"line {number}: {word}"
        for number, line in enumerate(lines, 1)
        for word in re.findall(r"\bTODO\b|\bFIXME\b|\bXXX\b", line)
    ]
    found += open_cases(lines)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            size = (node.end_lineno or node.lineno) - node.lineno + 1
            if size > FUNCTION_LINES_MAX:
                found.append(f"{node.name} has {size} lines")
    return found


def open_cases(lines: list[str]) -> list[str]:
    """Return every ``case _:`` that does not name the open set it stands for: over a union it hides what is new."""
    return [
        f"line {number}: `case _:` over a union hides what is new: assert_never, or name the open set beside it"
        for number, (line, following) in enumerate(zip(lines, [*lines[1:], ""], strict=True), 1)
        if re.match(r"\s*case _:\s*$", line) and "assert_never(" not in following
    ]


def citations(files: list[Path]) -> list[str]:
    """Return every line that cites a page which is not in the repository."""
    found = []
    for path in files:
        name = str(path.relative_to(ROOT))
        try:
            text = path.read_text("utf-8")
        except UnicodeDecodeError:
            continue  # no text
        if name not in CITES_ITSELF:
            found += [
                f"{name}: line {number} cites {match.group().strip()}: say the reason itself"
                for number, line in enumerate(text.split("\n"), 1)
                if (match := CITATION.search(line))
            ]
    return found


def arrows() -> list[Arrow]:
    """Return which room of ``consumers`` imports which."""
    counts: dict[tuple[str, str], int] = {}
    for path in tracked():
        parts = path.relative_to(ROOT).parts
        if parts[0] != "consumers" or path.suffix != ".py" or len(parts) < len(("consumers", "room", "module.py")):
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            for name in names:
                words = name.split(".")
                if words[0] == "consumers" and len(words) > 1 and words[1] != parts[1]:
                    counts[parts[1], words[1]] = counts.get((parts[1], words[1]), 0) + 1
    return [Arrow(*key, count) for key, count in sorted(counts.items())]


def room_faults() -> list[str]:
    """Return what is wrong with the rooms of ``consumers``."""
    rooms = {path.name for path in (ROOT / "consumers").iterdir() if (path / "__init__.py").is_file()}
    if rooms != set(ROOMS):
        return [f"consumers has other rooms than tests/house.py knows: {', '.join(sorted(rooms ^ set(ROOMS)))}"]
    found = arrows()
    faulty = [f"consumers.{one.room} imports consumers.{one.other}: that runs up" for one in found if one.is_up]
    if len(found) > ARROWS_MAX or len(rooms) > ROOMS_MAX:
        faulty.append(f"{len(rooms)} rooms and {len(found)} arrows, at most {ROOMS_MAX} and {ARROWS_MAX}")
    return faulty


def sizes() -> dict[str, tuple[int, int]]:
    """Return the files and lines of each package, and of each room of ``consumers``."""
    found: dict[str, tuple[int, int]] = {}
    for path in tracked():
        parts = path.relative_to(ROOT).parts
        if parts[0] not in PACKAGES or path.suffix != ".py":
            continue
        lines = path.read_text("utf-8").count("\n")
        room = [f"  {parts[0]}.{parts[1]}"] if parts[0] == "consumers" and len(parts) > len(("consumers", "x")) else []
        for name in (parts[0], *room, "together"):
            files, before = found.get(name, (0, 0))
            found[name] = (files + 1, before + lines)
    order = [name for package in PACKAGES for name in sorted(found, key=str.strip) if name.strip().startswith(package)]
    return {name: found[name] for name in (*order, "together")}


def show() -> None:
    """Print the house: its size, its rooms and who knows whom."""
    print(f"{'':<24} files   lines")
    for name, (files, lines) in sizes().items():
        print(f"{name:<24} {files:>5} {lines:>7,}")
    found = arrows()
    print(f"\n{len(ROOMS)} rooms in consumers, {len(found)} arrows, {sum(one.is_up for one in found)} up")
    for room in ROOMS:
        known = [f"{one.other} ({one.count})" for one in found if one.room == room]
        print(f"  {room:<10} → {', '.join(known) or 'nobody beside the packages below'}")


if __name__ == "__main__":
    if sys.argv[1:] == ["--print"]:
        show()
        sys.exit(0)
    faulty = faults()
    print("\n".join(faulty))
    sys.exit(bool(faulty))
