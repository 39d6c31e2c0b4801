"""Verbs and groups: options that are allowed anywhere, and verbs that are imported only when they are called."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from deedbook.ledger.errors import Refused, Unavailable, did_you_mean, near
from deedbook.ledger.families import Family, installed
from deedbook.ledger.packages import family_of, install_command, part_of

help_width_max: Final = 150


class Options:
    """The options that are allowed before or after any verb."""

    def __init__(self) -> None:
        self.home: Path | None = None
        self.server: str | None = None
        self.agent: str | None = None
        self.spool = False
        self.passphrase_fd: int | None = None
        self.allow_secret = False
        self.as_json = False
        self.as_of: str | None = None
        self.bundle: Path | None = None
        self.unseals = False
        self.names_sealed = False
        self.only_looks = False


class ClosableOptions(Options):
    """Options with resources that are closed when the verb ends."""

    def finish(self) -> None:
        """Do the last step of a verb that has not failed."""

    def close(self) -> None:
        """Close whatever was opened."""


class Lazy(msgspec.Struct, frozen=True):
    """A command: ``module:attribute`` under ``cli.commands``, and its one line of help.

    The command of a ``family`` has its full module name.
    """

    target: str
    help: str
    is_group: bool = False
    family: Family | None = None

    def load(self) -> click.Command:
        """Import the command now. Raises: as ``load``; Refused: ``FAMILY_UNUSABLE``."""
        command: click.Command = (
            load(f"commands.{self.target}") if self.family is None else part_of(self.family, self.target)
        )
        return command


class VerbsWithFamilies(Mapping[str, Lazy]):
    """Verbs of the core, and after them one group for each family that has commands."""

    def __init__(self, core: Mapping[str, Lazy]) -> None:
        self._core = core

    def __getitem__(self, name: str) -> Lazy:
        if name in self._core:
            return self._core[name]
        family = family_of(name)
        if family is None or family.command is None:
            raise KeyError(name)
        return Lazy(family.command.group, family.command.help, is_group=True, family=family)

    def __iter__(self) -> Iterator[str]:
        return chain(self._core, self.of_families())

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def of_families(self) -> list[str]:
        """Return the names of the groups of families."""
        return [family.name for family in installed() if family.command is not None]


_COMMON: Final[dict[str, dict[str, Any]]] = {
    "home": {
        "param_decls": ["--home"],
        "type": click.Path(path_type=Path, file_okay=False),
        "help": "The ledger's folder (default: DEEDBOOK_HOME, or .deedbook here or in the nearest parent folder).",
    },
    "server": {
        "param_decls": ["--server"],
        "metavar": "URL",
        "help": "Use the ledger on this server; several URLs with commas (or DEEDBOOK_SERVER).",
    },
    "agent": {"param_decls": ["--as"], "metavar": "NAME", "help": "The agent that acts and signs (or DEEDBOOK_AGENT)."},
    "passphrase_fd": {
        "param_decls": ["--passphrase-fd"],
        "type": click.IntRange(0),
        "help": "Read the passphrase of a sealed key from this file descriptor.",
    },
    "spool": {
        "param_decls": ["--spool"],
        "is_flag": True,
        "help": "If no server answers, store reports to send them later (exit code 9).",
    },
    "allow_secret": {
        "param_decls": ["--allow-secret"],
        "is_flag": True,
        "help": "Record text that looks like a secret, for ever. Only a human may, and signs that.",
    },
    "as_json": {"param_decls": ["--json", "json_"], "is_flag": True, "help": "Print one JSON document."},
    "as_of": {"param_decls": ["--as-of"], "metavar": "INDEX|TIME", "help": "Answer as of this entry or time."},
    "unseals": {
        "param_decls": ["--unseal"],
        "is_flag": True,
        "help": "Show sealed texts, with the keys that you have. Who reads the output has read them.",
    },
    "bundle": {
        "param_decls": ["--bundle"],
        "metavar": "FILE|DIR",
        "type": click.Path(path_type=Path),
        "help": "Verify this exported bundle (its file, or the folder of the unpacked one), and read it only.",
    },
}
"""The common options, allowed before or after any verb, by the attribute of ``Options`` that stores the value."""


class _Common(click.Option):
    """An option of every verb. Help names all of them in one line at its end, instead of a line for each."""

    def get_help_record(self, ctx: click.Context) -> None:
        """Return nothing, because ``_COMMON_LINE`` names the option."""


_COMMON_LINE: Final = "Everywhere: --as --home --server --spool --json --passphrase-fd{} (see `deed --help`)"


class _WithCommon(click.Command):
    """A command or group with the common options, which ``Options`` stores."""

    reading_options = " --as-of --bundle --unseal"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name, option in _COMMON.items():
            self.params.append(_Common(**option, expose_value=False, callback=partial(_keep, name)))

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """End a page with the common options: in one line, or explained on the page of the whole program."""
        if ctx.parent is not None:
            formatter.write_paragraph()
            formatter.write_text(_COMMON_LINE.format(self.reading_options))
            return
        with formatter.section("Everywhere"):
            records = (
                click.Option.get_help_record(option, ctx) for option in self.params if isinstance(option, _Common)
            )
            formatter.write_dl([record for record in records if record is not None])


def _keep(name: str, context: click.Context, _: click.Parameter, value: Any) -> None:
    if value is not None and value is not False:
        setattr(context.ensure_object(Options), name, value)


_ARGUMENTS: Final = "deedbook.arguments"


class ExtraWords(click.UsageError):
    """A verb got more words than it takes. Holds the words that it used, the surplus words, and all arguments."""

    def __init__(self, ctx: click.Context, before: list[str], words: list[str], message: str) -> None:
        super().__init__(message, ctx)
        self.command, self.path = ctx.command, ctx.command_path
        self.before, self.words = before, words
        self.arguments: list[str] = ctx.meta.get(_ARGUMENTS, [])


class VerbBase(_WithCommon):
    """A verb with the common options; its function gets an app first.

    A verb with ``only_looks``, such as `deed verify`, only warns if the history changed (``ledger.trust.store``), and
    continues. A verb with ``looks_back`` shows only answers of views, so ``--as-of`` can show earlier answers. A verb
    with ``reads_bundle`` (default: as ``looks_back``) shows nothing that a bundle does not have. A verb with
    ``names_sealed`` (default: as ``reads_bundle``) shows people that a text is sealed; others show its reference, such
    as those that write files. A verb with ``unseals`` can show the text itself (``--unseal``).
    """

    def __init__(
        self,
        name: str | None,
        callback: Callable[..., Any],
        *,
        only_looks: bool = False,
        looks_back: bool = False,
        reads_bundle: bool | None = None,
        names_sealed: bool | None = None,
        unseals: bool = False,
        open_ids: Callable[[Options, str], str | None] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(name, callback=click.pass_obj(callback), **kwargs)
        self.open_ids = open_ids
        self.only_looks, self.looks_back = only_looks, looks_back
        self.reads_bundle = looks_back if reads_bundle is None else reads_bundle
        self.names_sealed = self.reads_bundle if names_sealed is None else names_sealed
        self.unseals = unseals
        options = {"--as-of": looks_back, "--bundle": self.reads_bundle, "--unseal": self.unseals}
        self.reading_options = "".join(f" {name}" for name, is_allowed in options.items() if is_allowed)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments. Raises ExtraWords: there are more words than the verb takes."""
        arguments = ctx.meta[_ARGUMENTS] = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            is_extra = error.message.startswith("Got unexpected extra argument")
            if not is_extra and not isinstance(error, click.MissingParameter):
                raise
            values, words, _ = self.make_parser(ctx).parse_args(list(arguments))
            if not words:
                raise
            places = [str(parameter.name) for parameter in self.params if isinstance(parameter, click.Argument)]
            before = [values[name] for name in places if isinstance(values.get(name), str)]
            raise ExtraWords(ctx, before, words, f"too many words ({' '.join(words)})") from error

    def check_reading(self, ctx: click.Context, options: Options) -> None:
        """Refuse --as-of, --bundle and --unseal if they do not fit the verb. Raises Refused: ``USAGE``."""
        if options.unseals and not self.unseals:
            message = f"`{ctx.command_path}` opens no sealed texts: `show`, `log` and `search` do. Omit --unseal"
            raise Refused("USAGE", message)
        if options.bundle is not None and (not self.reads_bundle or ctx.params.get("is_following")):
            what = "--follow" if self.reads_bundle else f"`{ctx.command_path}`"
            raise Refused("USAGE", f"{what} needs a ledger, and a bundle can only be read: omit --bundle")
        if options.as_of is not None and (not self.looks_back or ctx.params.get("is_following")):
            what = "--follow" if self.looks_back else f"`{ctx.command_path}`"
            raise Refused(
                "USAGE", f"{what} needs the present state, and --as-of shows an earlier one: omit one of them"
            )

    def call(self, ctx: click.Context, app: ClosableOptions) -> Any:
        """Call the verb's function with an app, which is closed at its end."""
        app.only_looks, app.names_sealed, ctx.obj = self.only_looks, self.names_sealed, app
        with contextlib.closing(app):
            answer = super().invoke(ctx)
            app.finish()
            return answer


class ListOption(click.Option):
    """An option for names or numbers. It may be repeated, or its values joined by commas, numbers by spaces, too."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs | {"multiple": True})

    def type_cast_value(self, ctx: click.Context, value: Any) -> Any:
        """Return the values, each of them checked."""
        is_number = isinstance(self.type, click.types.IntParamType)
        separated = (str(item).replace(" ", ",") if is_number else str(item) for item in value or ())
        names = [word.strip() for item in separated for word in item.split(",")]
        return super().type_cast_value(ctx, names if value else value)


class LazyGroup(_WithCommon, click.Group):
    """A group of verbs that are imported when called. An unknown verb is refused with similar names."""

    def __init__(
        self,
        *args: Any,
        lazy: Mapping[str, Lazy] | None = None,
        sections: Mapping[str, Iterable[str]] | None = None,
        aliases: dict[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self._lazy = {} if lazy is None else lazy  # not `lazy or {}`: its length requires a search for families
        self._sections = sections
        self._aliases = aliases or {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all verbs."""
        return sorted({*super().list_commands(ctx), *self._lazy})

    def name_of(self, name: str) -> str:
        """Return the name of the verb that a name or alias means."""
        return self._aliases.get(name, name)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a verb, importing it now."""
        name = self.name_of(cmd_name)
        verb = self._lazy.get(name)
        if verb is None:
            return super().get_command(ctx, name)
        return verb.load()

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the verb that was called; an unknown one is refused with the nearest names."""
        name = args[0]
        if name == "help":  # `deed help handoff` is `deed handoff --help`
            return self.resolve_command(ctx, [*args[1:], "--help"])
        if self.get_command(ctx, name) is None and not name.startswith("-"):
            if (explained := load("hints:explanation")(ctx, args)) is not None:
                ctx.fail(f"there is no verb {name!r}: {explained}")
            hints = [f"`deed {line}`" for line in load("hints:verbs_for")(self, ctx, args)]
            if not hints:
                names = self._nested(ctx, name) or self._near(ctx, name) or load("hints:showing")(self, ctx, name)
                hints = [f"`{ctx.command_path} {verb}`" for verb in names]
            ctx.fail(f"there is no verb {name!r}{did_you_mean(hints)}")
        return super().resolve_command(ctx, [self.name_of(name), *args[1:]])

    def _nested(self, ctx: click.Context, name: str) -> list[str]:
        """Return the verbs called ``name`` in this group's own groups: `claim` is `handoff claim`."""
        names = []
        for group_name in sorted(verb for verb, lazy in self._lazy.items() if lazy.is_group):
            with contextlib.suppress(Unavailable):  # the verb needs an extra that is not installed
                group = self.get_command(ctx, group_name)
                if isinstance(group, LazyGroup) and group.get_command(ctx, name) is not None:
                    names.append(f"{group_name} {group.name_of(name)}")
        return names

    def _near(self, ctx: click.Context, name: str) -> list[str]:
        alike = near(name, [*self.list_commands(ctx), *self._aliases])
        return list(dict.fromkeys(self._aliases.get(alias, alias) for alias in alike))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Print the verbs with their help from the table, importing nothing."""
        sections = dict(self._sections or {"Verbs": self.list_commands(ctx)})
        if isinstance(self._lazy, VerbsWithFamilies):
            sections["Families of events"] = self._lazy.of_families()
        for section, names in sections.items():
            if not names:
                continue
            with formatter.section(section):
                formatter.write_dl([(name, self.help_line(ctx, name)) for name in names])
        if self._aliases:
            with formatter.section("Other names"):
                formatter.write_text(", ".join(f"{alias} for {name}" for alias, name in self._aliases.items()))

    def help_line(self, ctx: click.Context, name: str) -> str:
        """Return the line of help of a verb."""
        if name in self._lazy:
            return self._lazy[name].help
        command = super().get_command(ctx, name)
        return "" if command is None else command.get_short_help_str(help_width_max)


EXTRAS: Final = {
    "graphlay": "web",
    "jinja2": "web",
    "mcp": "mcp",
    "nats": "bus",
    "prometheus_client": "web",
    "prov": "prov",
    "psycopg": "postgres",
    "pydantic": "mcp",
    "pydantic_core": "mcp",
    "starlette": "web",
    "uvicorn": "web",
}
"""For each package that some installations lack, the extra that brings it."""


def load(target: str) -> Any:
    """Import ``module:attribute`` of this package, or ``.module:attribute`` of the one above.

    Each verb imports only what it needs.
    """
    module, _, attribute = target.partition(":")
    try:
        return getattr(import_module(f".{module}", __package__), attribute)
    except ModuleNotFoundError as error:
        name = str(error.name).partition(".")[0]
        if name not in EXTRAS:
            raise
        message = f"this needs the package {name}: {install_command(EXTRAS[name])}"
        raise Unavailable("EXTRA_MISSING", message, package=name, extra=EXTRAS[name]) from error
