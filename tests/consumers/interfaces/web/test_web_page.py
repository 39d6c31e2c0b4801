"""The examples on the page about HTTP are answered."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from web_reading import Reading

PAGE = Path(__file__).parents[4] / "docs/how-to/http.md"


def test_every_address_on_the_page_is_answered(reading: Reading) -> None:
    calls = [shlex.split(line) for line in re.findall(r"^curl .*$", PAGE.read_text("utf-8"), re.MULTILINE)]
    assert len(calls) >= 2
    for call in calls:
        given = dict(call[at + 1].split(": ") for at, word in enumerate(call) if word == "-H")
        headers = {name.lower(): value.replace("$TOKEN", reading.token) for name, value in given.items()}
        url = next(word for word in call if word.startswith("http://127.0.0.1:8080"))
        if "-N" in call:  # it has no end
            headers["accept"] = "application/x-ndjson"
        assert reading.client.get(url, headers=headers).status_code == 200, call
