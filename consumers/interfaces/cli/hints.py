"""Hints in the errors of wrong calls: the command or the option that was probably meant.

The tables are in ``guesses``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from shlex import join, quote
from typing import Final

import click

from deedbook.consumers.interfaces.cli import guesses
from deedbook.consumers.interfaces.cli.verbs import ExtraWords, Options, VerbBase
from deedbook.consumers.interfaces.hooks.harnesses import HARNESSES
from deedbook.ledger.errors import DeedbookError, did_you_mean, near
from deedbook.ledger.events import KINDS
from deedbook.ledger.format.forms import NAME_PATTERN
from deedbook.ledger.home.settings import read_settings

_DATE: Final = re.compile(r"\d{4}-\d\d|\d+ ?(d|h|days?|hours?|weeks?)\b|today|yesterday")
_SUFFIX: Final = re.compile(r"\.[a-z]\w{0,7}$")


def verbs_for(group: click.Group, ctx: click.Context, args: Sequence[str]) -> Sequence[str]:
    """Return the commands that the user probably means by ``args``, which begin with no verb of the group."""
    name, words = args[0], ctx.command_path.split()[1:]
    form = "TEXT" if " " in name else "FILE" if _SUFFIX.search(name) else name
    for guess in ([*words, *args[:2]], [*words, form]):
        if (lines := guesses.VERBS.get(" ".join(guess))) is not None:
            return _with_facts(ctx, name, args, lines)
    singular = name.removesuffix("s")
    command = None if singular == name else group.get_command(ctx, singular)
    if not isinstance(command, click.Group):
        return ()
    if len(args) > 1 and command.get_command(ctx, args[1]) is not None:
        return (join([*words, singular, *args[1:]]),)
    return (join([*words, singular, "list"]),) if command.get_command(ctx, "list") is not None else ()


def _with_facts(ctx: click.Context, name: str, args: Sequence[str], lines: Sequence[str]) -> Sequence[str]:
    """Return the suggested commands with the agent's name from the call, for `whoami` with the agent who acts here."""
    is_name = len(args) > 1 and re.fullmatch(NAME_PATTERN, args[1]) is not None
    if is_name and all(word.startswith("-") for word in args[2:3]) and len(lines) == 1:
        return [re.sub(r"^(agent \S+) NAME$", rf"\1 {args[1]}", lines[0])]
    if name == "whoami":
        options = ctx.find_object(Options) or Options()
        with suppress(DeedbookError):
            agent = read_settings(home=options.home, agent=options.agent).agent
            return lines if agent is None else [f"agent show {agent}", *lines]
    return lines


def explanation(ctx: click.Context, args: Sequence[str]) -> str | None:
    """Return how it works here what ``args``, which begin with no verb of the group, mean, if no command does that."""
    path = ctx.command_path.split()[1:]
    return _explained([*path, *args[:2]], [*path, *args[:1]])


def _explained(*calls: Sequence[str]) -> str | None:
    lines = map(" ".join, calls)
    return next((guesses.EXPLANATIONS[line] for line in lines if line in guesses.EXPLANATIONS), None)


def showing(group: click.Group, ctx: click.Context, name: str) -> list[str]:
    """Return a call of the group's verb `show` for a word that looks like an id: it has a digit or a dash."""
    return [f"show {quote(name)}"] if _looks_like_id(name) and group.get_command(ctx, "show") is not None else []


def absent_argument_hint(path: str) -> str:
    """Return the end of the error for a missing argument: an explanation, a command without arguments, or nothing."""
    verb = path.partition(" ")[2]
    if (explained := guesses.ARGUMENTS.get(verb)) is not None:
        return f": {explained}"
    line = guesses.WITHOUT_ARGUMENT.get(verb)
    return "" if line is None else f"; without it: `deed {line}`"


def argument_before_text(ctx: click.Context, absent: click.Parameter) -> tuple[str, str] | None:
    """Return the argument that the call left out, if its text was therefore read as that argument; else None.

    With it comes the end of the message: the ids that the call may mean, if the verb knows them (``open_ids``).
    ``absent`` is the argument that a parser reports: the last one, which takes the text.
    """
    arguments = [parameter for parameter in ctx.command.params if isinstance(parameter, click.Argument)]
    if absent not in arguments[1:] or not str(absent.metavar).startswith(guesses.TEXT_ARGUMENTS):
        return None
    before = arguments[arguments.index(absent) - 1]
    word = str(ctx.params.get(str(before.name), ""))
    if isinstance(ctx.command, VerbBase) and ctx.command.open_ids is not None:
        with suppress(DeedbookError):  # without a ledger, the form of the word decides
            ids = ctx.command.open_ids(ctx.ensure_object(Options), word)
            return None if ids is None else (before.make_metavar(ctx), f"; {ids}")
    return (before.make_metavar(ctx), "") if " " in word else None


def choice_hint(path: str, value: str, choices: Sequence[str]) -> str:
    """Return the end of the error for a value that an argument does not take: the command or value probably meant."""
    verb = path.partition(" ")[2]
    if lines := guesses.VERBS.get(f"{verb} {value}"):
        return did_you_mean([f"`deed {line}`" for line in lines])
    other = guesses.OTHER_VALUES.get(verb)
    return did_you_mean(near(value, choices)) or (f": {other}" if other else "")


def option_hint(
    command: click.Command, path: str, option: str, value: str, arguments: Sequence[str] = ()
) -> str | None:
    """Return a hint about an option, or about its value, that the verb does not take; None if there is no hint.

    ``value`` is the word after the option, or empty; ``arguments`` are those of the whole call.
    """
    options, taken = _options(command), _arguments(command)
    forms = [f"{option} {guesses.DATE}"] * bool(_DATE.match(value)) + [f"{option} {value}"]
    forms += [] if option in options else [option]
    for form in forms:
        call = " ".join([*path.split()[1:], form])
        if call in guesses.EXPLANATIONS:
            return guesses.EXPLANATIONS[call]
        if (line := guesses.OPTIONS_OF_VERB.get(call)) is not None:
            return f"did you mean `deed {line}{_acting(line, arguments)}`?"
    for guess in next((guesses.OPTIONS[form] for form in forms if form in guesses.OPTIONS), ()):
        name = guess.partition(" ")[0]
        if name in options and option in guesses.NO_DATES:
            return f"there are no dates: write it in {guess}"
        if name in options:
            return f"did you mean {guess}?"
        if any(guess in (argument, argument.partition(" ")[0]) for argument in taken):
            return f"write it without an option: `{path} {' '.join(taken)}`"
    alike = [] if option in options else near(option.lstrip("-"), [name.lstrip("-") for name in options])
    return did_you_mean([f"--{name}" for name in alike])[2:] or None


def passphrase_line(arguments: Sequence[str]) -> str:
    """Return a whole call that reads its passphrase from a file: in a command, the shell's history would store it.

    >>> passphrase_line(["init", "--passphrase", "x", "--name", "ana"])
    'deed init --name ana --passphrase-fd 3 3<FILE'
    """
    kept: list[str] = []
    is_value = False
    for word in arguments:
        name = word.partition("=")[0]
        if name in guesses.PASSPHRASES:
            is_value = name == word
        elif is_value and not word.startswith("-"):
            is_value = False
        else:
            kept.append(word)
    at = kept.index("--") if "--" in kept else len(kept)
    return f"{join(['deed', *kept[:at], '--passphrase-fd', '3', *kept[at:]])} 3<FILE"


def words_hint(error: ExtraWords) -> str | None:
    """Return a hint how to write the surplus words of a call, or None."""
    command, path, words = error.command, error.path, error.words
    call = [*path.split()[1:], *error.before, *words]
    if (explained := _explained(call, call[:-1])) is not None:
        return explained
    options = _options(command)
    is_text = _takes_text(command)
    if (meaning := guesses.ARGUMENTS.get(path.partition(" ")[2])) is not None:
        return meaning
    is_shown = words[0].isdecimal() and f"{path.partition(' ')[2]} N" in guesses.COMMANDS_OF_WORD
    found = [None if is_shown else _option_for(command, word) for word in words]
    option = " ".join(filter(None, found)) if all(found) and (len(words) == 1 or not is_text) else None
    if option is None and (line := _other_command(error)) is not None:
        return f"did you mean `deed {line}{_acting(line, error.arguments)}`?"
    acting = _acting("", error.arguments)
    if error.before and error.before[0] in guesses.SHOWING_WORDS:
        return f"did you mean `{path} {quote(words[0])}{acting}`?"
    if error.before and " " in error.before[0] and "--title" in options:
        return f"did you mean `{path} --title {quote(error.before[0])} --to {quote(words[0])}{acting}`?"
    if is_text and error.before and len(words) == 1 and (first := _option_for(command, error.before[-1])) is not None:
        return f"the text comes first: `{path} {quote(words[0])} {first}{acting}`"
    if (line := _quoted_call(error, is_text=is_text)) is not None:
        return f"put the text in quotes: {path} {line}"
    if option is None and (not is_text or (len(words) == 1 and " " in words[0])):
        option = next((f"{name} {quote(' '.join(words))}" for name in _text_options(command)), None)
    return None if option is None else _with_needed_options(error, option)


def absent_options(command: click.Command, arguments: Sequence[str]) -> list[click.Option]:
    """Return the needed options that a call lacks."""
    names = {word.partition("=")[0] for word in arguments}
    needed = [parameter for parameter in command.params if isinstance(parameter, click.Option) and parameter.required]
    return [option for option in needed if names.isdisjoint(option.opts + option.secondary_opts)]


def spelled(option: click.Option, ctx: click.Context) -> str:
    """Return an option as it is written in a call."""
    names = " or ".join(option.opts[:1] + option.secondary_opts)
    return names if option.is_flag else f"{names} {option.make_metavar(ctx)}"


def _with_needed_options(error: ExtraWords, option: str) -> str:
    """Return a hint that names an option. If the call also lacks required options, the hint is a whole call."""
    needed = absent_options(error.command, [*error.arguments, *option.split()])
    if not needed:
        return f"did you mean {option}?"
    context = click.Context(error.command)
    values = [spelled(absent, context) for absent in needed if not absent.is_flag]
    flags = [spelled(absent, context) for absent in needed if absent.is_flag]
    line = " ".join([error.path, *map(quote, error.before), option, *values])
    return f"did you mean `{line}`{f', with {flags[0]}' if flags else ''}?"


def _acting(line: str, arguments: Sequence[str]) -> str:
    """Return the ``--as NAME`` of a call, to add to the suggested command ``line``; empty if that names an agent."""
    names = [name for word, name in pairwise(arguments) if word == "--as" and not name.startswith("-")]
    return f" --as {quote(names[-1])}" if names and "--as " not in line else ""


def _other_command(error: ExtraWords) -> str | None:
    """Return the command that was probably meant by a call with one surplus word, or None."""
    *before, word = [*error.before, *error.words]
    if len(before) > 1:
        return None
    name, of_word = error.path.partition(" ")[2].strip(), guesses.COMMANDS_OF_WORD
    line = of_word.get(f"{name} {before[0]}") if before else None
    if line is None:
        form = "HARNESS" if word in HARNESSES else "N" if word.isdecimal() else "ID" if _looks_like_id(word) else ""
        line = of_word.get(f"{name} {word}", of_word.get(f"{name} {form}", of_word.get(name)))
        if line is None or ("BEFORE" in line) != bool(before):
            return None
    return line.replace("BEFORE", quote("".join(before))).replace("WORD", quote(word))


def _quoted_call(error: ExtraWords, *, is_text: bool) -> str | None:
    """Return the arguments of a call with its unquoted text in quotes, or None if the text is not certain."""
    words, options, of_text = list(error.arguments), _options(error.command), _text_options(error.command)
    places, texts, at = [], [], 0  # the positions of the arguments, and of the values of options for a text
    while at < len(words):
        name, equals, _ = words[at].partition("=")
        if not name.startswith("-"):
            places.append(at)
        elif name not in options:
            return None
        elif not options[name].is_flag and not equals:
            at += 1
            texts += [at] if name in of_text else []
        at += 1
    arguments = [parameter for parameter in error.command.params if isinstance(parameter, click.Argument)]
    needed = max(is_text, sum(argument.required for argument in arguments))
    before: list[str] = []
    for start in texts:
        run = _run_from(start, places)
        if run and needed <= len(places) - len(run) <= len(arguments):
            return _joined(words, [start, *run], before)
    others = len(error.before) if any(argument.nargs < 0 for argument in arguments) else len(arguments) - 1
    if not is_text:
        is_title = not needed and "--title" in options and "--title" not in words
        if not is_title or _looks_like_id(words[places[0]]):
            return None
        others, before = 0, ["--title"]
    text = places[others:]
    is_certain = text[0] - 1 not in texts and text[1:] == _run_from(text[0], places)
    return _joined(words, text, before) if is_certain else None


def _run_from(start: int, places: Sequence[int]) -> list[int]:
    """Return those of ``places`` that follow ``start`` without a gap."""
    return [place for step, place in enumerate((at for at in places if at > start), 1) if place == start + step]


def _joined(words: Sequence[str], text: Sequence[int], before: Sequence[str]) -> str | None:
    """Return ``words`` as a line for a shell, with the words at ``text`` in quotes together.

    Return None if one of these words has a space, because then it was in quotes already.
    """
    if any(" " in words[at] for at in text):
        return None
    joined = " ".join(words[at] for at in text)
    quoted = quote(joined) if set(joined) & set('"$`\\!') else f'"{joined}"'
    first, last = text[0], text[-1]
    return " ".join([*map(quote, [*words[:first], *before]), quoted, *map(quote, words[last + 1 :])])


def _text_options(command: click.Command) -> list[str]:
    options = _options(command)
    return [name for name in guesses.TEXT_OPTIONS if name in options and options[name].type is click.STRING]


def _looks_like_id(word: str) -> bool:
    return not word.startswith("-") and any(letter == "-" or letter.isdecimal() for letter in word)


def _takes_text(command: click.Command) -> bool:
    return any(name in " ".join(_arguments(command)) for name in guesses.TEXT_ARGUMENTS)


def _option_for(command: click.Command, word: str) -> str | None:
    """Return the option that fits a word, with the word, or None."""
    options = _options(command)
    if not getattr(command, "reads_bundle", False):
        options.pop("--bundle", None)
    if (guess := guesses.WORDS.get(word)) is not None and guess.partition(" ")[0] in options:
        return guess
    choices = [name for name, option in options.items() if word in (getattr(option.type, "choices", None) or ())]
    if len(choices) == 1:
        return f"{choices[0]} {word}"
    names: Sequence[str] = ()
    if word in KINDS:
        names = ("--kind ",)
    elif word.isdecimal():
        known = [name for name in guesses.NUMBER_OPTIONS if name in options]
        return " or ".join(f"{name} {word}" for name in known if isinstance(options[name].type, click.IntRange)) or None
    elif word.isprintable() and len(word) < 200 and (_SUFFIX.search(word) or Path(word).exists()):
        names = guesses.FILE_OPTIONS
    return next((f"{name}{quote(word)}" for name in names if name.partition(" ")[0] in options), None)


def _options(command: click.Command) -> dict[str, click.Option]:
    return {
        name: option
        for option in command.params
        if isinstance(option, click.Option)
        for name in (*option.opts, *option.secondary_opts)
    }


def _arguments(command: click.Command) -> list[str]:
    return [
        (argument.metavar or argument.human_readable_name)
        for argument in command.params
        if isinstance(argument, click.Argument)
    ]
