"""The demo's events with texts that attack their readers: markup, scripts, control characters, huge words.

Each text is replaced by the worst attack that its field accepts; the module tries several.
"""

from __future__ import annotations

from itertools import cycle
from typing import TYPE_CHECKING, Any, Final

import msgspec
from story_pages import HUMAN, PASSPHRASE, SAMPLE

from deedbook.consumers.interfaces.demo import life
from deedbook.ledger.events import KINDS
from deedbook.ledger.home.config import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ATTACKS: Final = (
    "<script>window.hit=1</script>",
    "\"'><img src=x onerror=window.hit=1>",
    "</title></style></textarea></details></svg><svg onload=window.hit=1>",
    "{{7*7}}{% raw %}${7*7}<a href=javascript:window.hit=1>x</a>",
    "&lt;script&gt;window.hit=1&lt;/script&gt;<!--",
)
UNSEEN: Final = "\u202eesrever\u2066isolate\u200bzero\u0007bell\x9b2J"
WORD: Final = "W" * 10_000
# These fields name agents or other existing things, so their texts stay.
NAMES: Final = {
    "to",
    "reviewer",
    "depends_on",
    "by",
    "answers",
    "resumes",
    "reasoning_refs",
    "target",
    "domain",
    "ai_id",
}


def hostile(home: Path) -> Settings:
    """Play the story with hostile texts in a new ledger; return the settings with which its human opens it."""
    settings = Settings(home=home, agent=HUMAN)
    attacked = life.Life(Settings(home=home), SAMPLE, {HUMAN: PASSPHRASE})
    attacks, flooded = cycle(ATTACKS), set[str]()
    for line in attacked._story["lines"]:
        if "kind" in line and "key" not in line["kind"]:
            line["data"] = _attacked(line["data"], line["kind"], attacks, flooded)
    attacked.play("demo.test/hostile")
    return settings


def _attacked(data: dict[str, Any], kind: str, attacks: Iterator[str], flooded: set[str]) -> dict[str, Any]:
    """Return a line's data with each text replaced; the first text of each field gets the huge word, if it fits."""
    for path in list(_texts(data)):
        attack, field = next(attacks), f"{kind} {[name for name in path if isinstance(name, str)]}"
        whole = [] if field in flooded else [f"{attack} {UNSEEN} {WORD}"]
        for text in (*whole, f"{attack} {UNSEEN} {WORD[:200]}", f"{attack} {WORD[:150]}", f"{attack} {WORD[:100]}"):
            changed = _with(data, path, text)
            if _fits(changed, KINDS[kind].data):
                data = changed
                flooded.add(field)
                break
    return data


def _texts(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    if isinstance(value, str):
        if not value.startswith("@"):
            yield path
    elif isinstance(value, dict | list):
        for name, inner in value.items() if isinstance(value, dict) else enumerate(value):
            if name not in NAMES:
                yield from _texts(inner, (*path, name))


def _with(value: Any, path: tuple[str | int, ...], text: str) -> Any:
    if not path:
        return text
    first, *rest = path
    changed = value.copy()
    changed[first] = _with(value[first], tuple(rest), text)
    return changed


def _fits(data: dict[str, Any], form: Any) -> bool:
    try:
        msgspec.convert(_with_refs(data), form)
    except msgspec.ValidationError:
        return False
    return True


def _with_refs(value: Any) -> Any:
    """Return a line's data with a placeholder ref for each value that is looked up when the line is played."""
    if isinstance(value, dict):
        return {name: _with_refs(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_with_refs(inner) for inner in value]
    return "blake3:" + "0" * 64 if isinstance(value, str) and value.startswith("@") else value
