"""Checks rules of the source that no linter checks, in ``make check``. CONTRIBUTING.md gives the reasons."""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import grimp

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ROOT = Path(__file__).parents[1]
PACKAGES = ("deedbook", "ledger", "projections", "consumers")
FUNCTION_LINES_MAX = 70
LATE_IMPORTS_MAX = 30
CHANGELOG_LINES_MAX = 40
TYPED = "ledger/format/codec.py"
PRINTS = "consumers/interfaces/cli/terminal.py"
FORBIDDEN_NAMES = {"utils", "helpers", "manager", "common", "misc"}
# Modules are nouns. These names in -ing are nouns, too: a term of the field, or the name of a task.
NOUNS_IN_ING = {"reasoning", "thinking", "embedding", "mapping", "planning", "debugging"}
# Names of documents that are not in this repository.
CITATION = re.compile(r"\b(?:DESIGN|SEEDS|STYLE)\b|[Ss]eeds? 00\d|\b[Tt]he seed's\b")
# The beginnings of sentences that name no actor: readers had to read such sentences twice.
HEADLESS = re.compile(r"(?:What|Who|Whoever|Whom|Whose|Where|Which|Of)\b", re.IGNORECASE)
FORMATTER_OFF = re.compile(r"#\s*fmt:\s*(?:skip|off)")
THIS_FILE = "tests/house.py"


def tracked() -> list[Path]:
    """Return the existing files of the repository; links of deedbook/ to the packages do not count."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return [ROOT / name for name in listed.split("\n") if name and (ROOT / name).is_file()]


def faults() -> list[str]:
    """Return everything that breaks a rule."""
    files = tracked()
    found = [*package_faults(files), *citations(files), *names_twice(files), *cycles()]
    late_imports = 0
    for path in files:
        name = str(path.relative_to(ROOT))
        if path.suffix == ".py" and name != THIS_FILE and FORMATTER_OFF.search(path.read_text("utf-8")):
            found.append(f"{name}: the formatter decides the layout")
        if path.suffix == ".py" and name.partition("/")[0] in (*PACKAGES, "deploy", "tests"):
            found += [f"{name}: {fault}" for fault in headless_faults(path.read_text("utf-8"))]
        if path.suffix == ".py" and name.partition("/")[0] in PACKAGES:
            source = path.read_text("utf-8")
            tree = ast.parse(source)
            found += [f"{name}: {fault}" for fault in module_faults(path.stem, source, tree)]
            found += [f"{name}: {fault}" for fault in trick_faults(name, tree)]
            imports = late_imports_of(tree)
            late_imports += len(imports)
            found += [f"{name}: {fault}" for fault in late_import_faults(source, imports)]
    if late_imports > LATE_IMPORTS_MAX:
        found.append(f"{late_imports} imports inside functions, at most {LATE_IMPORTS_MAX}")
    return found


def package_faults(files: list[Path]) -> Iterator[str]:
    """Yield the faults in files' names and paths."""
    for path in files:
        name = path.relative_to(ROOT)
        if name.parts[0] == "proto" and path.suffix == ".py":
            yield f"{name}: proto/ is data"
        if str(name) == "CHANGELOG.md":
            for section in path.read_text("utf-8").split("\n## ")[1:]:
                if (size := section.count("\n")) > CHANGELOG_LINES_MAX:
                    yield f"{name}: {section[:7]} has {size} lines, at most {CHANGELOG_LINES_MAX}"
        if name.parts[0] == "tests" and path.name == "__init__.py":
            yield f"{name}: a package under tests/ would shadow the real one"
        if path.suffix == ".lock" and re.search(r"://[^/]*(pypi|pythonhosted|simple)", path.read_text("utf-8")):
            yield f"{name}: names a package host"
    typed = [str(path.relative_to(ROOT)) for path in files if path.name == "py.typed"]
    if typed != ["deedbook/py.typed"]:
        yield f"one py.typed, in deedbook/, says that all of it is typed; there are {typed}"


def names_twice(files: list[Path]) -> Iterator[str]:
    """Yield the test modules that share a name: without packages under tests/, only one of them can be imported."""
    found: dict[str, Path] = {}
    for path in files:
        name = path.relative_to(ROOT)
        if name.parts[0] != "tests" or name.parts[1] in {"bench", "mutants"} or path.suffix != ".py":
            continue
        if path.stem != "conftest" and (other := found.setdefault(path.stem, name)) != name:
            yield f"{name}: there is {other} already, and only one of them could be imported"


def citations(files: list[Path]) -> Iterator[str]:
    """Yield every line that cites a document which is not in the repository."""
    for path in files:
        name = str(path.relative_to(ROOT))
        try:
            text = path.read_text("utf-8")
        except UnicodeDecodeError:
            continue  # not a text file
        if name != THIS_FILE:
            for number, line in enumerate(text.split("\n"), 1):
                if match := CITATION.search(line):
                    yield f"{name}: line {number} cites {match.group().strip()}: say the reason itself"


def cycles() -> Iterator[str]:
    """Yield every group of modules that import each other, also by imports for types alone."""
    graph = grimp.build_graph("deedbook", cache_dir=None)
    imported = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    # Remove modules that import no remaining module, or that no remaining module imports: they are in no cycle.
    rest = set(imported)
    while True:
        used = {other for module in rest for other in imported[module]}
        kept = {module for module in rest if module in used and imported[module] & rest}
        if kept == rest:
            break
        rest = kept
    if rest:
        yield f"modules that import each other, or stand between such: {', '.join(sorted(rest))}"


def module_faults(stem: str, source: str, tree: ast.Module) -> Iterator[str]:
    """Yield the faults in a module's name, docstring, lines and functions."""
    if stem in FORBIDDEN_NAMES:
        yield "a name that says nothing"
    last_word = stem.rpartition("_")[2]
    if last_word.endswith("ing") and last_word not in NOUNS_IN_ING:
        yield "a module is named by a noun"
    if not ast.get_docstring(tree):
        yield "no docstring that says why it exists"
    lines = source.split("\n")
    for number, line in enumerate(lines, 1):
        for word in re.findall(r"\bTODO\b|\bFIXME\b|\bXXX\b", line):
            yield f"line {number}: {word}"
    yield from open_cases(lines)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            size = (node.end_lineno or node.lineno) - node.lineno + 1
            if size > FUNCTION_LINES_MAX:
                yield f"{node.name} has {size} lines, at most {FUNCTION_LINES_MAX}"


def headless_faults(source: str) -> Iterator[str]:
    """Yield every docstring and comment that begins with a word of ``HEADLESS``, such as "What was read"."""
    texts = [
        (node.lineno, node.value.value.strip())
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    ]
    end = (0, 0)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            text = token.string.lstrip("#: ")
            # A line that continues a comment begins a sentence only if it begins with a capital letter.
            if token.start != (end[0] + 1, end[1]) or text[:1].isupper():
                texts.append((token.start[0], text))
            end = token.start
    for number, text in sorted(texts):
        if match := HEADLESS.match(text):
            yield f'line {number}: begins with "{match.group()} …": name the actor or the thing first'


def open_cases(lines: list[str]) -> Iterator[str]:
    """Yield every ``case _:`` without a comment about its values: in a union it would hide new members."""
    for number, (line, following) in enumerate(zip(lines, [*lines[1:], ""], strict=True), 1):
        if re.match(r"\s*case _:\s*$", line) and "assert_never(" not in following:
            yield f"line {number}: `case _:` hides what is new in a union: assert_never, or name the open set beside it"


def trick_faults(name: str, tree: ast.Module) -> Iterator[str]:
    """Yield where a module uses ``sys.modules`` or the garbage collector, decodes to a type, or prints."""
    for node in ast.walk(tree):
        match node:
            case ast.Subscript(value=ast.Attribute(value=ast.Name("sys"), attr="modules")):
                yield f"line {node.lineno}: sys.modules[…]: whoever reads an import must be able to believe it"
            case ast.Attribute(value=ast.Name("gc")):
                yield f"line {node.lineno}: the garbage collector belongs to the program, not to a module"
            case ast.Call(func=ast.Attribute(value=value, attr="convert" | "Decoder" as made)) if name != TYPED:
                if ast.unparse(value).startswith("msgspec"):
                    yield f"line {node.lineno}: msgspec's {made} is not safe for threads: take that of {TYPED}"
            case ast.Call(func=ast.Attribute(value=value, attr="decode"), keywords=[ast.keyword("type"), *_]):
                if name != TYPED and ast.unparse(value).startswith("msgspec"):
                    yield f"line {node.lineno}: msgspec's decode is not safe for threads: take that of {TYPED}"
            case ast.Call(func=ast.Attribute(value=ast.Name("click"), attr="echo" | "secho")) if name != PRINTS:
                yield f"line {node.lineno}: text of others may control the terminal: print with echo of {PRINTS}"
            case _:  # any other node of the language
                pass


def late_imports_of(tree: ast.Module) -> list[tuple[ast.AST, ast.AST]]:
    """Return the imports inside functions, each with the innermost function around it."""
    around: dict[ast.AST, ast.AST] = {}
    for function in ast.walk(tree):  # outer functions come first, so that inner ones overwrite them
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            around |= {node: function for node in ast.walk(function) if isinstance(node, ast.Import | ast.ImportFrom)}
    return list(around.items())


def late_import_faults(source: str, imports: Iterable[tuple[ast.AST, ast.AST]]) -> Iterator[str]:
    """Yield the functions that import something and do not name the optional extra that it belongs to."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    named = re.compile(rf"\bextra\W{{1,4}}(?:{'|'.join(extras)})\b")
    for function in dict.fromkeys(function for _, function in imports):
        if not named.search(ast.get_source_segment(source, function) or ""):
            yield f"line {function.lineno}: imports stand at the top, or beside the name of an optional extra"


if __name__ == "__main__":
    found = faults()
    print("\n".join(found))
    sys.exit(bool(found))
