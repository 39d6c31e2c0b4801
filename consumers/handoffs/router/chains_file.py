"""Reads the chains of an operator: every error is refused, with file and path, before anything is signed."""

from __future__ import annotations

import re
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import structlog

from deedbook.consumers.handoffs.operations import KINDS_OF_HANDOFFS
from deedbook.consumers.handoffs.router.chains import (
    Chain,
    Condition,
    Step,
    Template,
    label_max_chars,
    line_max_chars,
    parse_template,
    text_max_chars,
)
from deedbook.ledger.errors import Refused, Unavailable
from deedbook.ledger.events.fields import Name
from deedbook.ledger.format.codec import converted
from deedbook.ledger.format.forms import NAME_PATTERN
from deedbook.ledger.home.location import CHAINS_FILE
from deedbook.ledger.limits import config_size_max_bytes
from deedbook.ledger.system.files import read_regular

log = structlog.get_logger("deedbook.router")

CONDITIONS: Final = ("from", "to", "reviewer", "author", "id", "title", "kind", "chain", "tag", "domain")

settle_wait_s: Final = 0.1
settle_reads_max: Final = 20
"""If a file is being saved, it is read again at most this often."""

chains_max: Final = 64
steps_max: Final = 16
conditions_values_max: Final = 64
lines_max: Final = 64
hops_default: Final = 8
hops_limit: Final = 64

_CHARS_MAX: Final = {
    "to": label_max_chars,
    "reviewer": label_max_chars,
    "title": label_max_chars,
    "id": label_max_chars,
    "task": text_max_chars,
    "context": text_max_chars,
    "proposal": line_max_chars,
    "answers": label_max_chars,
    "tasks": line_max_chars,
    "criteria": line_max_chars,
    "depends_on": label_max_chars,
}


class _Chain(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: Name
    when: str | list[str]
    then: Step[str] | list[Step[str]]
    where: dict[str, str | list[str]] = {}
    hops_max: Annotated[int, msgspec.Meta(ge=1, le=hops_limit)] = hops_default


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    chain: list[_Chain] = []


def read_chains(content: bytes, file: str = CHAINS_FILE) -> tuple[Chain, ...]:
    """Return the chains in a TOML file's bytes; an empty file has none.

    Raises Refused: ``INVALID_FORMAT`` (not TOML), ``UNKNOWN_FIELD``, ``INVALID_FIELD`` or ``TOO_LARGE``, each with the
    ``file`` and, for a field, its ``path``.
    """
    if len(content) > config_size_max_bytes:
        raise Refused("TOO_LARGE", f"{file} is larger than {config_size_max_bytes} bytes", file=file)
    try:
        text = content.decode()
        tables = converted(tomllib.loads(text), _File, "$").chain
        _require(len(tables) <= chains_max, "$.chain", f"there are more than {chains_max} chains")
        chains = [_chain(table, f"$.chain[{position}]", text) for position, table in enumerate(tables)]
        names = [chain.name for chain in chains]
        for position, name in enumerate(names):
            _require(name not in names[:position], f"$.chain[{position}].name", f"there are two chains {name!r}")
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refused("INVALID_FORMAT", f"{file} is not TOML: {error}", file=file) from error
    except Refused as refusal:
        raise Refused(refusal.code, f"{file}: {refusal.message}", **(refusal.details | {"file": file})) from refusal
    return tuple(chains)


class ChainsFile:
    """The chains of a file that its operator edits while the router runs."""

    def __init__(
        self, path: Path, default_reviewer: str | None = None, *, permit: Callable[[bytes], None] = lambda _: None
    ) -> None:
        """Read ``path`` on demand. ``permit`` refuses untrusted bytes; without it, all bytes are trusted."""
        self.path = path
        self._permit = permit
        self.default_reviewer = default_reviewer
        self.problem: Refused | Unavailable | None = None
        self._content: bytes | None = None
        self._is_judged = False
        self._chains: tuple[Chain, ...] | None = None

    def current(self) -> tuple[Chain, ...] | None:
        """Return the chains of the file as it is now; without a file there are none.

        A file that becomes unreadable or wrong is reported once (``problem``, and the log), and its former chains stay
        in use. None if no version of it could be read: then nothing must be routed.
        """
        is_judged = False  # an unreadable or untrusted file is checked again although its bytes are the same
        try:
            content = self._settled()
            is_judged = self._is_judged and content == self._content
            if not is_judged:
                self._content = content
                self._permit(content)
                is_judged = True
                self._chains = read_chains(content, str(self.path))
                self.problem = None
                log.info("chains read", file=str(self.path), chains=len(self._chains))
        except (Refused, Unavailable) as error:
            if self.problem is None or self.problem.message != error.message:
                count = None if self._chains is None else len(self._chains)
                log.error("chains file not used", code=error.code, error=error.message, chains_kept=count)
            self.problem = error
        self._is_judged = is_judged
        return self._chains

    def read(self) -> tuple[Chain, ...]:
        """Return the chains of the file.

        Raises Refused: as ``read_chains``; ``INVALID_FORMAT`` if it is no regular file; ``NOT_TRUSTED``. Unavailable:
        ``STORE_UNAVAILABLE`` if it exists and cannot be read.
        """
        content = self._read()
        self._permit(content)
        return read_chains(content, str(self.path))

    def _settled(self) -> bytes:
        """Return the file's bytes; after a change, wait until they stay the same: an editor may still be writing."""
        # The beginning of a file may be valid, and would be read as a file with fewer chains or none.
        content = self._read()
        for _ in range(settle_reads_max):
            if self._content is None or content == self._content:
                break
            time.sleep(settle_wait_s)
            before, content = content, self._read()
            if content == before:
                break
        return content

    def _read(self) -> bytes:
        return read_regular(self.path, size_max_bytes=config_size_max_bytes, follow=True) or b""


def _chain(table: _Chain, path: str, text: str) -> Chain:
    kinds = _several(table.when)
    _require(bool(kinds), f"{path}.when", "it names no kind of event")
    for kind in kinds:
        known = ", ".join(sorted(KINDS_OF_HANDOFFS))
        _require(
            kind in KINDS_OF_HANDOFFS,
            f"{path}.when",
            f"{kind!r} is not a kind of event on a handoff: use one of {known}",
        )
    steps = table.then if isinstance(table.then, list) else [table.then]
    _require(bool(steps), f"{path}.then", "the chain has no step")
    _require(len(steps) <= steps_max, f"{path}.then", f"there are more than {steps_max} steps")
    return Chain(
        name=table.name,
        kinds=frozenset(kinds),
        where=tuple(_condition(name, value, f"{path}.where") for name, value in table.where.items()),
        steps=tuple(_step(step, f"{path}.then[{position}]", text) for position, step in enumerate(steps)),
        hops_max=table.hops_max,
    )


def _condition(name: str, value: str | list[str], path: str) -> Condition:
    if name not in CONDITIONS:
        message = f"unknown field {name!r} at {path}: use one of {', '.join(CONDITIONS)}"
        raise Refused("UNKNOWN_FIELD", message, field=name, path=path)
    patterns = _several(value)
    fits = 1 <= len(patterns) <= conditions_values_max
    _require(fits, f"{path}.{name}", f"a condition has 1 to {conditions_values_max} values")
    for pattern in patterns:
        _require(len(pattern) <= label_max_chars, f"{path}.{name}", f"a value has at most {label_max_chars} characters")
    return Condition(name, patterns)


def _step(table: Step[str], path: str, text: str) -> Step[Template]:
    templates: dict[str, Any] = {}
    for name, chars_max in _CHARS_MAX.items():
        value: str | tuple[str, ...] | None = getattr(table, name)
        if isinstance(value, str):
            templates[name] = _template(value, chars_max, f"{path}.{name}", text)
        elif value is not None:
            _require(len(value) <= lines_max, f"{path}.{name}", f"there are more than {lines_max} lines")
            templates[name] = tuple(
                _template(line, chars_max, f"{path}.{name}[{position}]", text) for position, line in enumerate(value)
            )
    step = Step[Template](unlock_at=table.unlock_at, **templates)
    for name, template in (("to", step.to), ("reviewer", step.reviewer)):
        literal = None if template is None else template.literal
        is_name = literal is None or re.match(NAME_PATTERN, literal) is not None
        _require(is_name, f"{path}.{name}", f"{literal!r} is not a valid agent name")
    _require(bool(step.title.source.strip()), f"{path}.title", "it is empty")
    return step


def _template(source: str, chars_max: int, path: str, text: str) -> Template:
    _require(len(source) <= chars_max, path, f"the template has more than {chars_max} characters")
    try:
        return parse_template(source)
    except Refused as refusal:
        placeholder = refusal.details["placeholder"]
        # TOML's reader reports no lines: search for the template in the file, else for its first placeholder.
        line = text[: max(text.find(source), text.find(placeholder), 0)].count("\n") + 1
        message = f"{refusal.message}, at {path} (line {line})"
        raise Refused(refusal.code, message, path=path, line=line, placeholder=placeholder) from refusal


def _several(value: str | list[str]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)


def _require(is_met: bool, path: str, message: str) -> None:  # noqa: FBT001 - what is required comes first
    if not is_met:
        raise Refused("INVALID_FIELD", f"{message}, at {path}", path=path)
