"""``proto/OPERATIONS.md``, generated from the tables of operations on handoffs, sessions and reasonings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from handoff_page import table

from deedbook.consumers.handoffs.operations import OPERATIONS as HANDOFF
from deedbook.consumers.handoffs.operations import QUESTIONS
from deedbook.consumers.reasoning.operations import OPERATIONS as REASONING
from deedbook.consumers.sessions.operations import OPERATIONS as SESSION
from deedbook.ledger.events import KIND_OF

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from deedbook.consumers.sdk.operations import Argument, Operation

_HEAD: Final = """# Operations and their arguments

Generated: `make contract`, from the tables of operations. An operation is a verb of the command line (`deed session
finding`), a method of Python (`ledger.session(ID).finding(…)`) and, for sessions and reasonings, an entry of a file of
`deed session record` and of the MCP tool `record_reasoning`. Over MCP an argument has the name of its field. A field in
bold is needed. A list may be given as a single value.
"""
_NOUNS: Final[dict[str, Mapping[str, Operation]]] = {"handoff": HANDOFF, "session": SESSION, "reasoning": REASONING}


def operations_page() -> str:
    """Return the page."""
    return "\n".join([_HEAD, *(line for noun, operations in _NOUNS.items() for line in _section(noun, operations))])


def _section(noun: str, operations: Mapping[str, Operation]) -> Iterator[str]:
    yield f"## Of a {noun}\n"
    for verb, operation in operations.items():
        kinds = ", ".join(f"`{KIND_OF[data]}`" for data in operation.signs)
        name = verb if noun == "handoff" and verb in QUESTIONS else f"{noun} {verb.replace('_', '-')}"
        yield f"### `{name}`\n\n{operation.words} Signs {kinds}.\n"
        if operation.arguments:
            yield from table(("field", "option", "type", "meaning"), map(_row, operation.arguments))
            yield ""


def _row(argument: Argument) -> tuple[str, ...]:
    name = f"**`{argument.name}`**" if argument.is_needed else f"`{argument.name}`"
    choices = ", ".join(f"`{choice}`" for choice in argument.choices)
    return name, f"`{argument.option}`", choices or argument.form, argument.words or ""
