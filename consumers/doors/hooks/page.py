"""The page for agents: one text, written into files by setup and printed first by `baton prime`."""

from __future__ import annotations

from pathlib import Path


def agents_page() -> str:
    """Return the page as markdown, ending in a newline."""
    # Not by importlib.resources, which costs a hook as much as half a Python start.
    return Path(__file__).with_name("agents_page.md").read_text("utf-8")
