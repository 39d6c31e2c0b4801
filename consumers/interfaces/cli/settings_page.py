"""All settings of ``config.toml`` on one commented page. It is generated from the types that read the settings.

Each setting follows a ``#``, with the value that applies if it is left out. A setting without such a value shows its
form.
"""

from __future__ import annotations

import inspect
import json
import textwrap
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
from msgspec import inspect as types

from deedbook.consumers.handoffs.notifier.settings import ChannelSettings
from deedbook.consumers.interfaces.node.witnessed import WitnessSettings
from deedbook.consumers.sdk.llm.settings import LlmSettings
from deedbook.consumers.sessions.settings import ReportsSettings
from deedbook.ledger.home.config import Actions, Cluster, Config, Seal
from deedbook.ledger.home.quota import Quota
from deedbook.projections.answers.view_reader import ViewsSettings

TABLES: Final[dict[str, type[msgspec.Struct]]] = {
    "quota": Quota,
    "llm": LlmSettings,
    "notify": ChannelSettings,
    "reports": ReportsSettings,
    "witness": WitnessSettings,
    "cluster": Cluster,
    "views": ViewsSettings,
    "seal": Seal,
}
"""The settings that are tables, by name; of ``notify`` there may be several."""
_comment_chars: Final = 98
_FORMS: Final[dict[type[types.Type], str]] = {
    types.StrType: '"…"',
    types.BoolType: "true",
    types.ListType: '["…"]',
    types.DictType: "{}",
    types.FloatType: "1.0",
}


def settings_page() -> Iterator[str]:
    """Yield the lines of the page."""
    yield "# What config.toml in the ledger's folder may say, each with its default."
    for section in (Config, Actions):
        yield from ("", *_prose(section))
        yield from (_line(field) for field in _fields(section) if field.name not in TABLES)
    for name, table in TABLES.items():
        yield from ("", *_prose(table), f"# [[{name}]]" if table is ChannelSettings else f"# [{name}]")
        yield from map(_line, _fields(table))


def _fields(section: type[msgspec.Struct]) -> tuple[types.Field, ...]:
    described = types.type_info(section)
    assert isinstance(described, types.StructType)  # noqa: S101 - the sections are structs
    return described.fields


def _prose(section: type[msgspec.Struct]) -> Iterator[str]:
    text = " ".join((inspect.getdoc(section) or "").replace("``", "`").split())
    yield from (f"# {line}" for line in textwrap.wrap(text, _comment_chars))


def _line(field: types.Field) -> str:
    forms = field.type.types if isinstance(field.type, types.UnionType) else (field.type,)
    choices = [form.type if isinstance(form, types.Metadata) else form for form in forms]
    default = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
    limits = ", ".join(filter(None, map(_limits, choices)))
    if default in (msgspec.NODEFAULT, None):
        needed = "needed" if field.required else "none by default"
        return f"# {field.encode_name} = {_form(choices)}  # {', '.join(filter(None, (needed, limits)))}"
    return f"# {field.encode_name} = {json.dumps(default)}" + (f"  # {limits}" if limits else "")


def _form(choices: Sequence[types.Type]) -> str:
    (first, *_) = [choice for choice in choices if not isinstance(choice, types.NoneType)]
    if isinstance(first, types.IntType):
        return str(first.ge)
    return json.dumps(first.values[0]) if isinstance(first, types.LiteralType) else _FORMS[type(first)]


def _limits(form: types.Type) -> str:
    if isinstance(form, types.LiteralType):
        return " or ".join(map(json.dumps, form.values))
    if isinstance(form, types.ListType) and isinstance(form.item_type, types.LiteralType):
        return f"of {_limits(form.item_type)}"
    if isinstance(form, types.IntType | types.FloatType):
        return f"{f'more than {form.gt}' if form.ge is None else form.ge} to {form.le}"
    return ""
