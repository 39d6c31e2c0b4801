"""Every pattern of the published schemas compiles in JavaScript, and accepts the same ids as the gate."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from building import SALT
from node_packages import program

from deedbook.ledger.format.forms import SALT_PATTERN, STREAM_PATTERN

if TYPE_CHECKING:
    from collections.abc import Iterator

PROTO: Final = Path(__file__).parents[2] / "proto"
PUBLISHED: Final = sorted([*PROTO.glob("schemas/*.json"), PROTO / "openapi.json", PROTO / "asyncapi.json"])
# Patterns are compiled as validators of JSON Schema do it: with the Unicode flag, which refuses unknown escapes.
PROGRAM: Final = """
const {patterns, texts} = JSON.parse(require("fs").readFileSync(0, "utf8"));
const answers = patterns.map(pattern => {
  try { const made = new RegExp(pattern, "u"); return texts.map(text => made.test(text)); }
  catch (error) { return String(error); }
});
console.log(JSON.stringify(answers));
"""
STREAMS: Final = [
    "handoff/paypal",
    "handoff/п\u0430\u0443",
    "handoff/p\u0430ypal",  # with a Cyrillic letter
    "handoff/\u03b1lpha",  # with a Greek letter
    "handoff/修复缓存 two",
    "handoff/-a",
    "handoff/a\n",
    "handoff/",
    "handoff",
]


def _patterns(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("pattern"), str):
            yield value["pattern"]
        for part in value.values():
            yield from _patterns(part)
    elif isinstance(value, list):
        for part in value:
            yield from _patterns(part)


def _in_javascript(patterns: list[str], texts: list[str]) -> Any:
    given = json.dumps({"patterns": patterns, "texts": texts})
    command = [program("node"), "-e", PROGRAM]
    done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_every_published_pattern_compiles_in_javascript() -> None:
    patterns = sorted({one for file in PUBLISHED for one in _patterns(json.loads(file.read_text("utf-8")))})
    assert len(patterns) > 20
    answers = _in_javascript(patterns, [])
    faults = {pattern[:60]: answer for pattern, answer in zip(patterns, answers, strict=True) if answer != []}
    assert faults == {}


@pytest.mark.parametrize("kind", ["handoff.created", "handoff.claimed"])
def test_a_kinds_schema_takes_the_streams_that_the_gate_takes(kind: str) -> None:
    schema = json.loads((PROTO / "schemas" / f"{kind}.json").read_text("utf-8"))
    taken = [re.search(STREAM_PATTERN, stream) is not None and stream.startswith("handoff/") for stream in STREAMS]
    assert taken == [True, True, False, False, True, False, False, False, False]
    assert _in_javascript([schema["properties"]["stream"]["pattern"]], STREAMS) == [taken]


def test_the_bodys_schema_takes_the_salts_that_the_gate_takes() -> None:
    schema = json.loads((PROTO / "schemas" / "body.json").read_text("utf-8"))
    assert "salt" in schema["required"]
    bodies = json.loads((PROTO / "vectors" / "invalid_bodies.json").read_bytes())["cases"]
    wrong = [json.loads(bytes.fromhex(case["hex"])).get("salt") for case in bodies if "salt" in case["name"]]
    salts = [SALT, *(salt for salt in wrong if isinstance(salt, str))]
    taken = [re.search(SALT_PATTERN, salt) is not None for salt in salts]
    assert taken == [True] + [False] * (len(salts) - 1)
    assert len(salts) > 6
    assert _in_javascript([schema["properties"]["salt"]["pattern"]], salts) == [taken]
