"""What the house's style promises and no linter holds; run by ``make check``, exits 1 with a list."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("ledger", "projections", "consumers")
FILE_LINES_MAX = 400
TRAVELS_ALONE = {"standalone"}  # the script in every bundle: one file, so that a stranger can read it whole
FUNCTION_LINES_MAX = 70
TOP_LEVEL = {
    "pyproject.toml", "README.md", "ledger", "projections", "consumers", "proto", "tests", "deploy",
    "Makefile", "LICENSE", "CHANGELOG.md", "requirements.lock", ".ci", ".gitignore", ".gitattributes",
}  # fmt: skip
FORBIDDEN_NAMES = {"utils", "helpers", "manager", "common", "misc"}


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
    """Return everything that is not as STYLE wants it."""
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
        if name.parts[0] == "tests" and path.name == "__init__.py":
            found.append(f"{name}: a package under tests/ would shadow the real one")
        if name.suffix == ".py" and name.parts[0] in PACKAGES:
            found += [f"{name}: {fault}" for fault in module_faults(path, name, taken)]
        if name.name.endswith((".lock", ".toml", ".cfg")) and re.search(
            r"://[^/]*(pypi|pythonhosted|simple)", path.read_text("utf-8")
        ):
            found.append(f"{name}: names a package host")
    return found


def module_faults(path: Path, name: Path, taken: set[str]) -> list[str]:
    """Return what is wrong with one module."""
    text = path.read_text("utf-8")
    tree = ast.parse(text)
    found = []
    if path.stem in taken and len(name.parts) <= len(("package", "module.py")):
        found.append("bears the name of a dependency")
    if path.stem in FORBIDDEN_NAMES:
        found.append("a name that says nothing")
    if text.count("\n") > FILE_LINES_MAX and path.stem not in TRAVELS_ALONE:
        found.append(f"{text.count(chr(10))} lines: split it")
    if not ast.get_docstring(tree):
        found.append("no docstring that says why it exists")
    found += [
        f"line {number}: {word}"
        for number, line in enumerate(text.split("\n"), 1)
        for word in re.findall(r"\bTODO\b|\bFIXME\b|\bXXX\b", line)
    ]
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            size = (node.end_lineno or node.lineno) - node.lineno + 1
            if size > FUNCTION_LINES_MAX:
                found.append(f"{node.name} has {size} lines")
    return found


if __name__ == "__main__":
    faulty = faults()
    print("\n".join(faulty))
    sys.exit(bool(faulty))
