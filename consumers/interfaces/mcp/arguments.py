"""The arguments of tools from the tables of operations, as JSON Schema or as text.

Every session of a model pays for the list of tools. So a schema has types, choices and one short description of each
argument. It has no bounds, because the ledger checks them. A single value is accepted for a list, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

from deedbook.consumers.sdk.operations import Argument, Form

_SCHEMAS: Final[dict[Form, dict[str, Any]]] = {
    "text": {"type": "string"},
    "texts": {"type": "array", "items": {"type": "string"}},
    "names": {"type": "array", "items": {"type": "string"}},
    "number": {"type": "integer"},
    "numbers": {"type": "array", "items": {"type": "integer"}},
    "share": {"type": "number"},
    "flag": {"type": "boolean"},
    "object": {"type": "object"},
}
_words_min: Final = 4
"""A shorter description says no more than the argument's name."""


def schemas_of(operations: Mapping[str, Iterable[Argument]]) -> tuple[str, list[tuple[Argument, dict[str, Any]]]]:
    """Return a text, and each argument of any operation with its schema.

    The description in a schema names the operations that take the argument. The text names the operations that most
    arguments have, so that they are not repeated in each schema.
    """
    arguments: dict[str, Argument] = {}
    takers: dict[str, list[str]] = {}
    for operation, taken in operations.items():
        for argument in taken:
            if not argument.is_of_terminal:
                arguments.setdefault(argument.name, argument)
                takers.setdefault(argument.name, []).append(operation)
    named = {name: ", ".join(verbs) for name, verbs in takers.items()}
    ((most, _),) = Counter(named.values()).most_common(1)
    schemas = []
    for name, argument in arguments.items():
        description = ": ".join(filter(None, ("" if named[name] == most else named[name], _words(argument))))
        schema = {"enum": list(argument.choices)} if argument.choices else _SCHEMAS[argument.form]
        schemas.append((argument, schema | ({"description": description} if description else {})))
    return most, schemas


def text_of(operations: Mapping[str, Iterable[Argument]]) -> str:
    """Return a line for each operation. Each argument is explained at its first occurrence; ``*`` means required."""
    explained: set[tuple[str, str]] = set()
    lines = []
    for operation, arguments in operations.items():
        parts = []
        for argument in arguments:
            words = "|".join(argument.choices) or "; ".join(filter(None, ("list" * argument.is_list, _words(argument))))
            hint = "" if (argument.name, words) in explained else words
            explained.add((argument.name, words))
            parts.append(f"{argument.name}{'*' * argument.is_needed}{hint and f' ({hint})'}")
        lines.append(f"{operation}: {', '.join(parts)}")
    return "\n".join(lines)


def _words(argument: Argument) -> str:
    words = (argument.words or "").partition(". ")[0].removesuffix(".")
    return words if len(words.split()) >= _words_min else ""


def as_list(value: Any) -> Any:
    """Return a single value as a list of one, for an argument that is a list."""
    return [value] if isinstance(value, str | dict) else value
