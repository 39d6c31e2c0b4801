"""Looks up families for callers that need them, and names the command that installs a missing extra.

A missing or unusable family is refused.
"""

from __future__ import annotations

import shlex
import sys
from typing import Any, Final

from deedbook.ledger.errors import Refused
from deedbook.ledger.families import GROUP, Family, UnusableFamily, find, load

families_cached_max: Final = 256  # the names are those in submissions, so anybody can send any number of them


def family_of(stream_type: str) -> Family | None:
    """Return the family of a package whose streams are ``stream_type/ID``; None for one of the core, or an unknown one.

    Raises Refused: ``FAMILY_UNUSABLE``: the package is installed and cannot be used.
    """
    family = find(stream_type)
    if isinstance(family, UnusableFamily):
        raise Refused("FAMILY_UNUSABLE", str(family), family=stream_type, package=family.source.distribution)
    return family


def part_of(family: Family, reference: str) -> Any:
    """Return the object that ``"module:attribute"`` names in a family's package.

    Raises Refused: ``FAMILY_UNUSABLE``.
    """
    try:
        return load(reference)
    except (Exception, SystemExit) as error:
        why = f"{type(error).__name__}: {error}"[:300]
        message = f"the family {family.name} has no {reference} that can be used ({why}): update its package"
        raise Refused("FAMILY_UNUSABLE", message, family=family.name) from error


def family_missing(name: str) -> Refused:
    """Return the refusal of an event whose family has no package here."""
    message = (
        f"no package here brings the family {name}: install the one that does, on every machine that admits, "
        f"copies or shows its events (it has an entry point {name} in the group {GROUP})"
    )
    return Refused("FAMILY_MISSING", message, family=name, group=GROUP)


def install_command(extra: str) -> str:
    """Return the command that installs an extra for the Python that runs now, which may not be the shell's."""
    return f"{shlex.quote(sys.executable)} -m pip install 'deedbook[{extra}]'"
