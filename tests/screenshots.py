"""``make screenshots`` writes every page of the demo, in three widths, light and dark, as PNG files.

    python tests/screenshots.py [FOLDER] [PART OF AN ADDRESS]     (default: build/screenshots, all)
    python tests/screenshots.py --readme                          the two that README shows, small, into docs/

Each file is named after the address of its page. The program prints each address with the faults that the browser
finds in the page.
"""

from __future__ import annotations

import os
import re
import struct
import sys
import tempfile
import zlib
from collections import Counter
from functools import partial
from pathlib import Path

from browser import DARK, LIGHT, LOOKS, WIDE, Browser, Look, Shown
from story_pages import live, project_of, shown

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "build" / "screenshots"
README = {"/?open=auth-rotate": "needs-you", "/graph?id=rel-0-4&depth=2": "graph"}
colours_max = 128
PNG = b"\x89PNG\r\n\x1a\n"


def main(folder: Path = FOLDER, part: str = "") -> None:
    """Write the pictures, and print their folder."""
    is_readme = str(folder) == "--readme"
    folder = ROOT / "docs" if is_readme else folder
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="deedbook-screenshots-") as made:
        os.environ |= {"XDG_CONFIG_HOME": f"{made}/config", "XDG_STATE_HOME": f"{made}/state"}
        story = live(Path(made) / ".deedbook")
        project = project_of(story.home)
        with Browser(Path(made) / "profile") as browser, Shown(story.home, project=project) as dashboard:
            browser.open(dashboard.link)
            for look, (address, name) in zip(
                (Look(WIDE, LIGHT), Look(WIDE, DARK)), README.items() if is_readme else (), strict=False
            ):
                browser.look(look)
                browser.open(dashboard.url + address)
                (folder / f"{name}.png").write_bytes(small(browser.picture()))
            for _, address in () if is_readme else shown(story):
                if part in address:
                    print(address, *picture(browser, dashboard.url, address, folder), sep="\n  ")
    print(folder)


def picture(browser: Browser, url: str, address: str, folder: Path) -> list[str]:
    """Write the six pictures of a page; return the faults in it."""
    faults: list[str] = []
    browser.open(url + address)
    name = (
        re.sub(r"[^A-Za-z0-9_-]+", "_", re.sub(r"[0-9]{8}-[0-9]{6}-[a-z0-9]{6}", "task", address)).strip("_") or "home"
    )
    for look in LOOKS:
        browser.look(look)
        faults += [f"{look.width} {look.scheme}: {fault}" for fault in browser.overflow() + browser.unreadable()]
        (folder / f"{name}-{look.width}-{look.scheme}.png").write_bytes(browser.picture(is_whole=True))
    return faults + browser.problems()


def small(png: bytes) -> bytes:
    """Return a PNG with only its most frequent colours: a third of the bytes, and as readable."""
    width, height, rows = pixels(png)
    counts = Counter(row[at : at + 3] for row in rows for at in range(0, len(row), 3))
    palette = [colour for colour, _ in counts.most_common(colours_max)]
    near = {colour: min(range(len(palette)), key=partial(distance, colour, palette)) for colour in counts}
    lines = [b"\0" + bytes(near[row[at : at + 3]] for at in range(0, len(row), 3)) for row in rows]
    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    parts = [
        (b"IHDR", header),
        (b"PLTE", b"".join(palette)),
        (b"IDAT", zlib.compress(b"".join(lines), 9)),
        (b"IEND", b""),
    ]
    chunks = [
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in parts
    ]
    return PNG + b"".join(chunks)


def distance(colour: bytes, palette: list[bytes], at: int) -> int:
    """Return the squared distance of a colour from the colour at a position of a palette."""
    return sum((one - other) ** 2 for one, other in zip(colour, palette[at], strict=True))


def pixels(png: bytes) -> tuple[int, int, list[bytes]]:
    """Return the width, the height and the rows of a PNG, three bytes a pixel, without filters (W3C PNG, 9.2)."""
    data, at = b"", len(PNG)
    width, height, depth, sort = struct.unpack(">IIBB", png[at + 8 : at + 18])
    assert (depth, sort) == (8, 2)
    while at < len(png):
        (size,), kind = struct.unpack(">I", png[at : at + 4]), png[at + 4 : at + 8]
        data += png[at + 8 : at + 8 + size] if kind == b"IDAT" else b""
        at += size + 12
    raw, rows, above = zlib.decompress(data), [], bytes(3 * width)
    for number in range(height):
        line = bytearray(raw[number * (3 * width + 1) + 1 : (number + 1) * (3 * width + 1)])
        unfilter(raw[number * (3 * width + 1)], line, above)
        above = bytes(line)
        rows.append(above)
    return width, height, rows


def unfilter(sort: int, line: bytearray, above: bytes) -> None:
    """Undo the PNG filter of a line, in place."""
    for at, value in enumerate(line):
        left, up, corner = (line[at - 3], above[at], above[at - 3]) if at > 2 else (0, above[at], 0)
        near = min((left, up, corner), key=lambda one: abs(left + up - corner - one))
        line[at] = (value + (0, left, up, (left + up) // 2, near)[sort]) & 0xFF


if __name__ == "__main__":
    main(*(Path(one) if number == 0 else one for number, one in enumerate(sys.argv[1:])))
