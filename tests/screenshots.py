"""``make screenshots``: every page of the demo's past, in two widths, light and dark, as PNG files to look at.

    python tests/screenshots.py [FOLDER] [PART OF AN ADDRESS]     (default: build/screenshots, all)

Each file bears the address of its page. What a page does wrong in the browser is printed beside it.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from pathlib import Path

from browser import LOOKS, Browser, Shown
from story_pages import live, shown

FOLDER = Path(__file__).parents[1] / "build" / "screenshots"


def main(folder: Path = FOLDER, part: str = "") -> None:
    """Write them, and say where."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="baton-screenshots-") as made:
        os.environ |= {"XDG_CONFIG_HOME": f"{made}/config", "XDG_STATE_HOME": f"{made}/state"}
        story = live(Path(made) / ".baton")
        with Browser(Path(made) / "profile") as browser, Shown(story.home) as dashboard:
            browser.open(dashboard.link)
            for _, address in shown(story):
                if part in address:
                    print(address, *picture(browser, dashboard.url, address, folder), sep="\n  ")
    print(folder)


def picture(browser: Browser, url: str, address: str, folder: Path) -> list[str]:
    """Write the four pictures of a page; return what is wrong with it."""
    faults: list[str] = []
    browser.open(url + address)
    name = (
        re.sub(r"[^A-Za-z0-9_-]+", "_", re.sub(r"[0-9]{8}-[0-9]{6}-[a-z0-9]{6}", "task", address)).strip("_") or "home"
    )
    for look in LOOKS:
        browser.look(look)
        faults += [f"{look.width} {look.scheme}: {fault}" for fault in browser.overflow()]
        (folder / f"{name}-{look.width}-{look.scheme}.png").write_bytes(browser.picture(is_whole=True))
    return faults + browser.problems()


if __name__ == "__main__":
    main(*(Path(one) if number == 0 else one for number, one in enumerate(sys.argv[1:])))
