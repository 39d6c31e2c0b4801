"""The names file of an import: which agent of this ledger each name in imported files means.

```toml
to = "kuro"            # the receiver of handoffs that name none
reviewer = "alex"      # the reviewer of handoffs that name none

[agents]               # a name as the files write it = an agent of this ledger, or "" for nobody
github = "alex"
"Claude Code" = "claude-code"
```

Every error is refused with the file and the line, before anything is signed.
"""

from __future__ import annotations

import re
import tomllib
from typing import Any, Final

from deedbook.consumers.handoffs.agent_names import AgentNames, Naming, alias_key
from deedbook.ledger.errors import Refused, did_you_mean, near
from deedbook.ledger.limits import config_size_max_bytes

FIELDS: Final = ("to", "reviewer", "agents")
_AT_LINE: Final = re.compile(r"\(at line (\d+)")


def read_names(content: bytes, file: str, agents: AgentNames) -> Naming:
    """Return the names in a file's bytes. All agents that it names must be registered, and its reviewer may review.

    Raises Refused: ``TOO_LARGE``, ``INVALID_FORMAT`` (not TOML), ``UNKNOWN_FIELD``, ``INVALID_FIELD``,
    ``AGENT_UNKNOWN`` or ``NOT_AUTHORIZED``, each with ``file`` and ``line``.
    """
    if len(content) > config_size_max_bytes:
        raise Refused("TOO_LARGE", f"{file} is larger than {config_size_max_bytes} bytes", file=file, line=1)
    try:
        text = content.decode("utf-8-sig")
        tables = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        place = _AT_LINE.search(str(error))
        line = int(place[1]) if place else max(1, len(content.splitlines()))  # the parser read the file to its end
        raise Refused("INVALID_FORMAT", f"{file}:{line}: this is not TOML: {error}", file=file, line=line) from error
    return _Reader(file, text, agents).naming(tables)


def check_named(naming: Naming, agents: AgentNames) -> None:
    """Refuse a receiver or reviewer that is not registered or may not review: ``AGENT_UNKNOWN``, ``NOT_AUTHORIZED``."""
    for name in filter(None, (naming.to, naming.reviewer)):
        if name not in agents.names:
            alike = near(name, agents.names)
            advice = did_you_mean(alike) or f": `deed agent add {name}` registers it"
            raise Refused("AGENT_UNKNOWN", f"no agent here is named {name!r}{advice}", name=name, near=alike)
    able = agents.having("reviewer", "human")
    if naming.reviewer and naming.reviewer not in able:
        others = f"{', '.join(able) or 'nobody'} can review"
        message = f"{naming.reviewer} has neither the role reviewer nor the role human; {others}"
        raise Refused("NOT_AUTHORIZED", message, name=naming.reviewer)


class _Reader:
    """Checks the tables of one file; it looks up the line of a key in its text, because TOML's reader reports none."""

    def __init__(self, file: str, text: str, agents: AgentNames) -> None:
        self._file, self._lines, self._agents = file, text.splitlines(), agents

    def naming(self, tables: dict[str, Any]) -> Naming:
        for field in tables:
            if field not in FIELDS:
                advice = did_you_mean(near(field, FIELDS)) or f": it may have {', '.join(FIELDS)}"
                raise self._refused("UNKNOWN_FIELD", field, f"unknown field {field!r}{advice}")
        table = tables.get("agents", {})
        if not isinstance(table, dict):
            raise self._refused("INVALID_FIELD", "agents", "agents must be a table: begin it with [agents]")
        aliases: dict[str, str] = {}
        first: dict[str, str] = {}
        for written, agent in table.items():
            key = alias_key(written)
            if not key:
                raise self._refused("INVALID_FIELD", written, f"{written!r} has no letter or digit")
            other = first.setdefault(key, written)
            aliases[key] = self._text(written, agent)
            self._check(written, Naming(to=aliases[key]))
            if other != written:
                line = self._line(other)
                raise self._refused("INVALID_FIELD", written, f"{written!r} and {other!r} on line {line} are one name")
        to, reviewer = (self._text(field, tables.get(field, "")) or None for field in ("to", "reviewer"))
        self._check("to", Naming(to=to))
        self._check("reviewer", Naming(reviewer=reviewer))
        return Naming(to, reviewer, aliases)

    def _text(self, field: str, value: object) -> str:
        if not isinstance(value, str):
            raise self._refused("INVALID_FIELD", field, f"{field} must be the name of an agent in quotes")
        return value

    def _check(self, field: str, naming: Naming) -> None:
        try:
            check_named(naming, self._agents)
        except Refused as refusal:
            raise self._refused(refusal.code, field, refusal.message, **refusal.details) from refusal

    def _refused(self, code: str, field: str, message: str, **details: Any) -> Refused:
        line = self._line(field)
        return Refused(code, f"{self._file}:{line}: {message}", **(details | {"file": self._file, "line": line}))

    def _line(self, field: str) -> int:
        key = re.compile(rf"""\s*(?:\[\s*)?(?:\w+\.)?(["']?){re.escape(field)}\1\s*[=\].]""")
        return next((number for number, line in enumerate(self._lines, 1) if key.match(line)), 1)
