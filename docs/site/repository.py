"""A hook of MkDocs: the pages of the whole repository, with the links that they have there.

A page stays in the folder that it describes (``deploy/runbook.md``), and its links work in the repository. So each file
gets its path in the repository as its name for MkDocs; a page of ``docs/`` has an address without ``docs/``. A link to
another file of the repository leads to a copy of it; a link to a folder becomes its text.
"""

from __future__ import annotations

import re
from os.path import normpath
from pathlib import Path
from typing import TYPE_CHECKING, Final

from command_line import pages as command_line_pages
from contract import (
    errors_page,
    events_page,
    files_page,
    http_page,
    http_types_page,
    limits_page,
    mcp_page,
    rules_page,
    settings_reference,
)
from markdown_it import MarkdownIt
from mkdocs.structure.files import File, Files
from python_names import python_nouns_page, python_page, python_queries_page

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = (
    "*.md",
    "consumers/README.md",
    "consumers/*/README.md",
    "deploy/*.md",
    "deploy/verifier/README.md",
    "ledger/README.md",
    "projections/README.md",
    "proto/*.md",
    "proto/*/README.md",
    "tests/bench/README.md",
    "tests/simulation/README.md",
)
"""The pages outside of docs/."""

REFERENCE: Final = {
    "python": python_page,
    "python-nouns": python_nouns_page,
    "python-queries": python_queries_page,
    "http": http_page,
    "http-types": http_types_page,
    "mcp": mcp_page,
    "events": events_page,
    "rules": rules_page,
    "errors": errors_page,
    "limits": limits_page,
    "settings": settings_reference,
    "files": files_page,
}
"""The generated pages, in docs/reference/."""

LINK: Final = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s:#]+)(#[^)\s]*)?\)")
_INDENT: Final = 4


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Return all pages, by their paths in the repository."""
    named = Files([])
    for file in files:
        if file.abs_src_path is None or not Path(file.abs_src_path).is_relative_to(ROOT / "docs"):
            named.append(file)  # a file of the theme or a plugin
        else:
            renamed = File.generated(config, f"docs/{file.src_uri}", abs_src_path=file.abs_src_path)
            renamed.dest_uri, renamed.inclusion = file.dest_uri, file.inclusion
            named.append(renamed)
    for path in sorted(path for pattern in PAGES for path in ROOT.glob(pattern)):
        named.append(_file(path, config))
    generated = {name: "\n".join(lines()) + "\n" for name, lines in REFERENCE.items()}
    for name, text in (*command_line_pages(), *generated.items()):
        page = File.generated(config, f"docs/reference/{name}.md", content=text)
        page.dest_uri = f"reference/{name}/index.html"
        named.append(page)
    return named


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Return the text of a page as Python-Markdown must have it."""
    folder = (ROOT / page.file.src_uri).parent

    def link(match: re.Match[str]) -> str:
        target = Path(normpath(folder / match[2]))
        if not target.is_relative_to(ROOT) or not target.exists():
            return match[0]  # MkDocs reports that the link leads nowhere
        name = target.relative_to(ROOT).as_posix()
        if target.is_dir():
            page_there = files.get_file_from_path(f"{name}/README.md")
            return match[1] if page_there is None else match[0].replace(match[2], f"{match[2]}/README.md")
        if files.get_file_from_path(name) is None:
            files.append(_file(target, config))
        return match[0]

    return LINK.sub(link, _indented(markdown))


def _file(path: Path, config: MkDocsConfig) -> File:
    return File.generated(config, path.relative_to(ROOT).as_posix(), abs_src_path=str(path))


def _indented(markdown: str) -> str:
    """Indent the content of lists by four spaces a level, which Python-Markdown wants and CommonMark does not."""
    lines = markdown.split("\n")
    indents: list[list[tuple[int, bool]]] = [[] for _ in lines]  # of each line: the items around it, outermost first
    offset = 0
    for token in MarkdownIt("commonmark").enable("table").parse(markdown):
        if token.type == "list_item_open" and token.map is not None:
            first, end = token.map
            marker = lines[first]
            before = sum(width for width, _ in indents[first])
            content = re.match(r"\s*(?:[-*+]|\d+[.)])(?: {1,4}|$)", marker[before:])
            offset = len(content[0]) if content else 2
            for number in range(first, end):
                indents[number].append((offset, number == first))
    for number, around in enumerate(indents):
        old = sum(width for width, _ in around)
        is_first = bool(around) and around[-1][1]
        text = lines[number]
        if not around:
            continue
        if is_first:
            outer = sum(width for width, _ in around[:-1])
            lines[number] = " " * _INDENT * (len(around) - 1) + text[outer:].lstrip(" ")
        elif text[:old].strip() == "":
            lines[number] = (" " * _INDENT * len(around) + text[old:]).rstrip() if text.strip() else ""
    return "\n".join(lines)
