"""Operations as data: the events that each signs, and its arguments.

A table has one row for each operation. The command line makes its verbs and options from it, MCP its arguments, and
`deed session record` the format of its files. Arguments that are fields of the signed event come from the event's type:
their descriptions, bounds and defaults are written there once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Final, Literal, TypeAlias, TypeVar, get_args, get_origin

import msgspec
from msgspec import NODEFAULT, inspect
from msgspec.structs import replace

from deedbook.ledger.errors import Refused, did_you_mean, near
from deedbook.ledger.events.fields import EventData
from deedbook.ledger.format.codec import converted
from deedbook.ledger.limits import json_integer_max

StructT = TypeVar("StructT", bound=msgspec.Struct)
Form: TypeAlias = Literal["text", "texts", "names", "number", "numbers", "share", "flag", "object"]
"""The type of a value; a ``share`` is a number from 0 to 1."""

_LISTS: Final = frozenset({"texts", "names", "numbers"})


class Argument(msgspec.Struct, frozen=True):
    """An argument. An ``option`` without hyphens is positional; ``is_of_terminal``: only the command line has it.

    Its text may come from a file if its ``metavar``, or a positional ``option``, has ``@FILE``. A number is at least
    ``least``, at most ``most``.
    """

    name: str
    option: str
    form: Form = "text"
    words: str | None = None
    metavar: str | None = None
    is_needed: bool = False
    most: int | None = None
    choices: tuple[str, ...] = ()
    is_of_terminal: bool = False
    least: int = 1
    default: Any = None

    @property
    def is_list(self) -> bool:
        """Whether the argument takes several values."""
        return self.form in _LISTS

    @property
    def takes_file(self) -> bool:
        """Whether ``@FILE`` means the content of a file."""
        return "@FILE" in (self.metavar or self.option)


class Operation(msgspec.Struct, frozen=True):
    """One operation: the types of the events that it signs, its help, and its arguments.

    ``form`` is the type whose fields are the arguments: that of the event, or one from which the event is made.
    """

    signs: tuple[type[EventData], ...]
    words: str
    arguments: tuple[Argument, ...] = ()
    form: type[msgspec.Struct] | None = None


def operation_on(
    form: type[msgspec.Struct],
    words: str,
    only: Sequence[str] = (),
    /,
    signs: tuple[type[EventData], ...] = (),
    **spelled: str,
) -> Operation:
    """Return an operation whose arguments are the fields of a type, in their order: all, or ``only`` some.

    ``spelled`` has the option (and after a space the metavar) of each field whose option is not its name.
    """
    fields = {field.name: field for field in msgspec.structs.fields(form)}
    options = {name: spelled.get(name, f"--{name.replace('_', '-')}") for name in fields}
    arguments = tuple(_argument(fields[name], options[name]) for name in only or fields)
    return Operation(signs or (form,), words, arguments, form)  # type: ignore[arg-type]  # without signs, an event


def _argument(field: msgspec.structs.FieldInfo, spelled: str) -> Argument:
    option, _, metavar = spelled.partition(" ")
    words, plain = _described(inspect.type_info(field.type))
    default = field.default if field.default_factory is NODEFAULT else field.default_factory()
    argument = Argument(field.name, option, words=words, metavar=metavar or None, is_needed=default is NODEFAULT)
    if isinstance(default, str | int | float):
        argument = replace(argument, default=default)
    match plain:
        case inspect.LiteralType():
            return replace(argument, choices=tuple(filter(None, _choices(field.type))))
        case inspect.ListType(item_type=item):
            is_number = isinstance(_described(item)[1], inspect.IntType)
            return replace(argument, form="numbers" if is_number else "texts")
        case inspect.IntType(ge=least, le=most):
            most = None if most == json_integer_max else most
            return replace(argument, form="number", least=1 if least is None else least, most=most)
        case inspect.FloatType():
            return replace(argument, form="share")
        case inspect.BoolType():
            return replace(argument, form="flag")
        case inspect.StrType():
            return argument
        case _:  # every other type: an object
            return replace(argument, form="object")


def _choices(annotation: Any) -> list[str]:
    """Return the values of a Literal in their order, which ``inspect`` does not keep."""
    parts = get_args(annotation)
    if get_origin(annotation) is Literal:
        return list(parts)
    return next(filter(None, map(_choices, parts)), [])


def _described(form: inspect.Type) -> tuple[str | None, inspect.Type]:
    """Return the description of a type, and the type without metadata and None."""
    words = None
    while isinstance(form, inspect.Metadata | inspect.UnionType):
        if isinstance(form, inspect.Metadata):
            words = words or (form.extra_json_schema or {}).get("description")
            form = form.type
        else:
            form = next(each for each in form.types if not isinstance(each, inspect.NoneType))
    return words, form


def with_lists(arguments: Iterable[Argument], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values in the form of their arguments: a value may become a list, or a list with one item its value."""
    lists = {argument.name: argument.is_list for argument in arguments}

    def one_or_several(value: Any, *, is_list: bool) -> Any:
        if isinstance(value, list):
            return value[0] if not is_list and len(value) == 1 else value
        return [value] if is_list and isinstance(value, str | int | float) else value

    return {
        name: one_or_several(value, is_list=lists.get(name, isinstance(value, list))) for name, value in values.items()
    }


def check_values(arguments: Iterable[Argument], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values of arguments after checking their types, choices and bounds; single values become lists.

    Raises Refused: ``INVALID_FIELD``.
    """
    known = {argument.name: argument for argument in arguments}
    values = with_lists(known.values(), values)
    return {name: converted(value, _type_of(known[name]), name) for name, value in values.items()}


def _type_of(argument: Argument) -> Any:
    if argument.choices:
        return Literal[argument.choices]
    number = Annotated[int, msgspec.Meta(ge=argument.least, le=argument.most)]
    types: dict[Form, Any] = {"number": number, "numbers": list[number], "flag": bool, "share": float}
    return types.get(argument.form, list[str] if argument.is_list else str)


def read_values(what: str, form: type[StructT], values: Mapping[str, Any]) -> StructT:
    """Return values as the type of an event or entry.

    Raises Refused: ``UNKNOWN_FIELD`` with the near names, ``INVALID_FIELD``.
    """
    try:
        return converted(dict(values), form)
    except Refused as refusal:
        if refusal.code != "UNKNOWN_FIELD" or "." in refusal.details["path"]:
            raise
        names = [field.encode_name for field in msgspec.structs.fields(form)]
        name = refusal.details["field"]
        alike = near(name, names)
        rest = did_you_mean(alike) or f": it takes {', '.join(names)}"
        raise Refused("UNKNOWN_FIELD", f"{what} has no {name!r}{rest}", field=name, near=alike) from refusal
