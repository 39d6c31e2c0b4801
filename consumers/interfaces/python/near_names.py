"""Refuses misspelt names in Python programs with similar names, and words advice with arguments instead of options.

A type checker refuses misspelt names before the program runs.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakSet

from deedbook.consumers.handoffs.option_names import with_arguments
from deedbook.ledger.errors import DeedbookError, Refused, did_you_mean, near, refuse_name

R = TypeVar("R")

_CHECKED = WeakSet[Callable[..., Any]]()
"""The methods that were checked: subclasses inherit them."""


class Spelled:
    """The base of classes that refuse misspelt names of methods and arguments."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name in dir(cls):
            method = inspect.getattr_static(cls, name)
            if (
                (not name.startswith("_") or name == "__init__")
                and inspect.isfunction(method)
                and method not in _CHECKED
            ):
                setattr(cls, name, _checked(method))

    if not TYPE_CHECKING:  # if a type checker saw it, it would accept any attribute name
        __getattr__ = refuse_name


def _checked(method: Callable[..., R]) -> Callable[..., R]:
    """Return a method that also refuses unknown arguments, and whose errors name arguments instead of options."""
    parameters = inspect.signature(method).parameters.values()
    takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
    names = [parameter.name for parameter in parameters][1:]

    @wraps(method)
    def call(*args: Any, **named: Any) -> R:
        for name in () if takes_all else named.keys() - names:
            alike = near(name, names)
            listed = "" if alike else f". It takes {', '.join(names) or 'no arguments'}"
            message = f"{method.__name__} takes no argument {name!r}{did_you_mean(alike)}{listed}"
            raise Refused("UNKNOWN_FIELD", message, field=name, near=alike)
        try:
            return method(*args, **named)
        except DeedbookError as error:
            error.message = with_arguments(error.message)
            raise

    _CHECKED.add(call)
    return call
