"""Hints in the errors of wrong calls: the command or the option that was probably meant.

The tables are in ``guesses``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from shlex import quote

import click

from deedbook.consumers.interfaces.cli import guesses
from deedbook.consumers.interfaces.cli.verbs import ExtraWords
from deedbook.ledger.events import KINDS


def verbs_for(path: str, word: str) -> tuple[str, ...]:
    """Return the commands that ``word`` means after ``path``: as "deed" or "deed report"; none if it is no guess."""
    return guesses.VERBS.get(" ".join([*path.split()[1:], "TEXT" if " " in word else word]), ())


def commands(lines: Iterable[str]) -> list[str]:
    """Return command lines as an error prints them.

    >>> commands(["handoff graph"])
    ['`deed handoff graph`']
    """
    return [f"`deed {line}`" for line in lines]


def option_hint(command: click.Command, path: str, option: str) -> str | None:
    """Return the text about an option that a verb lacks but that means something there, or None."""
    if (line := guesses.OPTIONS_OF_VERB.get(" ".join([*path.split()[1:], option]))) is not None:
        return f"did you mean `deed {line}`?"
    options, arguments = _options(command), _arguments(command)
    for guess in guesses.OPTIONS.get(option, ()):
        if guess.partition(" ")[0] in options:
            return f"did you mean {guess}?"
        if any(guess in (argument, argument.partition(" ")[0]) for argument in arguments):
            return f"write it without an option: `{path} {' '.join(arguments)}`"
    return None


def words_hint(error: ExtraWords) -> str | None:
    """Return how to call a verb with its surplus words, or None."""
    command, path, words = error.command, error.path, error.words
    options = _options(command)
    if (name := guesses.NAME_OPTIONS.get(path.rpartition(" ")[2])) in options:
        return f"did you mean `{path} {name} {quote(words[0])}`?"
    if error.before and error.before[0] in guesses.SHOWING_WORDS:
        return f"did you mean `{path} {quote(words[0])}`?"
    if error.before and " " in error.before[0] and "--title" in options:
        return f"did you mean `{path} --title {quote(error.before[0])} --to {quote(words[0])}`?"
    is_text = any(name in " ".join(_arguments(command)) for name in guesses.TEXT_ARGUMENTS)
    option = _option_for(command, words[0]) if len(words) == 1 else None
    if is_text and error.before and len(words) == 1 and (first := _option_for(command, error.before[-1])) is not None:
        return f"the text comes first: `{path} {quote(words[0])} {first}`"
    if option is None and (not is_text or (len(words) == 1 and " " in words[0])):
        option = next((f"{name} {quote(' '.join(words))}" for name in guesses.TEXT_OPTIONS if name in options), None)
    if option is not None:
        return f"did you mean {option}?"
    if is_text and not any(" " in word for word in (*error.before, *words)):
        *others, text = error.before or [""]
        text = " ".join([text, *words]).strip()
        quoted = quote(text) if set(text) & set('"$`\\!') else f'"{text}"'
        return f"put the text in quotes: {' '.join([path, *map(quote, others), quoted])}"
    return None


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
        names = ("--kind",)
    elif word.isdecimal():
        names = guesses.NUMBER_OPTIONS
    elif word.isprintable() and len(word) < 200 and Path(word).exists():
        names = guesses.FILE_OPTIONS
    return next((f"{name} {quote(word)}" for name in names if name in options), None)


def _options(command: click.Command) -> dict[str, click.Option]:
    return {name: option for option in command.params if isinstance(option, click.Option) for name in option.opts}


def _arguments(command: click.Command) -> list[str]:
    return [
        (argument.metavar or argument.human_readable_name)
        for argument in command.params
        if isinstance(argument, click.Argument)
    ]
