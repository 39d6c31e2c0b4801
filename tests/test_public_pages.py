"""The pages about the public API, the environment and the dependencies match the code."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path
from typing import Final

import pytest

import deedbook
import deedbook.audit
import deedbook.seeds
from deedbook.consumers.sdk.text import SCHEMA_VERSION
from deedbook.ledger import families
from deedbook.ledger.bundle import layout, signed_file
from deedbook.ledger.format.envelope import ENTRY_VERSION
from deedbook.ledger.log import tables
from deedbook.ledger.seal import sealed_blob
from deedbook.projections.stores import postgres_schema, sqlite

ROOT: Final = Path(__file__).parents[1]
PUBLIC: Final = ("deedbook", "deedbook.audit", "deedbook.seeds")
PAGES: Final = sorted(
    path
    for folder in ("docs", "consumers")
    for path in (ROOT / folder).rglob("*")
    if path.suffix == ".md" or "rollout-family" in path.parts
)
# The licences of packages that state them only as a classifier.
CLASSIFIERS: Final = {
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD-3-Clause",
    "MIT License": "MIT",
}


def page(name: str) -> str:
    """Return the text of a page of docs/."""
    return (ROOT / "docs" / name).read_text("utf-8")


def rows(text: str) -> list[list[str]]:
    """Return the cells of all rows of all tables, without the headers."""
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in text.split("\n") if line[:2] == "| "]
    return [row for row in cells if row[0] not in ("package", "variable", "format", "surface")]


def test_programs_on_the_pages_import_only_public_or_provisional_names() -> None:
    text = page("public-api.md").partition("imports more:")[2].partition("**provisional**")[0]
    provisional = {f"deedbook.{name}" for name in re.findall(r"`([a-z_.]+\.[a-z_.]+)`", text)}
    imported: dict[str, set[str]] = {}
    for path in (path for path in PAGES if path.is_file()):
        for module in re.findall(r"^\s*from (deedbook(?:\.[\w.]+)?) import", path.read_text("utf-8"), re.MULTILINE):
            imported.setdefault(module, set()).add(str(path))
    of_kinds = {module for module in imported if module.startswith("deedbook.ledger.events.")}
    of_families = {module for module in imported if all("famil" in name for name in imported[module])}
    assert set(imported) - of_kinds - of_families <= {*PUBLIC}
    assert of_families - {*PUBLIC} <= provisional <= of_families


@pytest.mark.parametrize("module", [deedbook, deedbook.audit, deedbook.seeds])
def test_public_names_are_listed_and_there(module: object) -> None:
    names: list[str] = module.__all__
    assert all(hasattr(module, name) for name in names)


def test_versions_of_formats_are_those_of_the_source() -> None:
    table = {row[0]: row[1] for row in rows(page("public-api.md").partition("## Versions of formats")[2])}
    assert {name: int(version) for name, version in table.items() if version.isdigit()} == {
        "log (LMDB)": tables.FORMAT,
        "entry, and the rules of its replay": ENTRY_VERSION,
        "bundle": int(layout.FORMAT.rpartition("-")[2]),
        "signed file": int(signed_file.SignedFile.__annotations__["format"].rpartition("-")[2].strip("\"']")),
        "sealed blob": sealed_blob.VERSION,
        "views in SQLite": sqlite.FORMAT,
        "views in PostgreSQL": postgres_schema.FORMAT,
        "answers of `--json`": SCHEMA_VERSION,
        "families of packages": families.FORMAT,
    }


def test_page_of_the_environment_has_each_variable_that_the_source_names() -> None:
    sources = [path for folder in ("ledger", "projections", "consumers") for path in (ROOT / folder).rglob("*.py")]
    named = set(re.findall(r"\bDEEDBOOK_[A-Z_]*[A-Z]\b", "\n".join(path.read_text("utf-8") for path in sources)))
    listed = {name for row in rows(page("environment.md")) for name in re.findall(r"`(DEEDBOOK_[A-Z_]+)`", row[0])}
    assert listed == named


def test_table_of_dependencies_is_that_of_the_project_and_their_licences() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    declared: dict[str, list[str]] = {}
    for extra, lines in {"core": project["dependencies"], **project["optional-dependencies"]}.items():
        for line in lines:
            declared.setdefault(re.split(r"[>\[]", line)[0], []).append(extra)
    table = {row[0]: row for row in rows(page("dependencies.md"))}
    assert {name: sorted(row[1].split(", ")) for name, row in table.items()} == {
        name: sorted(extras) for name, extras in declared.items()
    }
    for name, row in table.items():
        try:
            fields = metadata(name)
        except PackageNotFoundError:
            continue  # a dependency of an extra that is not installed here
        classifiers = [value.rpartition(" :: ")[2] for value in fields.get_all("Classifier") or []]
        known = fields["License-Expression"] or next(
            (CLASSIFIERS[value] for value in classifiers if value in CLASSIFIERS), row[3]
        )
        assert row[3] == known, name
