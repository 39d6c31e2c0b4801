"""Patterns over texts of reports, by RE2: matching takes time linear in the text, whatever the pattern (seed 004).

RE2 has neither backreferences nor look-around; such a pattern is refused, never tried with another engine. Its program
is bounded too: what compiles to more instructions than ``program_instructions_max`` is refused before it runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

import msgspec

from ledger.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Callable

pattern_max_chars: Final = 1_000
pattern_memory_max_bytes: Final = 8 * 1024**2
program_instructions_max: Final = 10_000

Pattern: TypeAlias = Annotated[
    str, msgspec.Meta(max_length=pattern_max_chars, description="A pattern as RE2 reads it.")
]


def matcher(pattern: str) -> Callable[[str], bool]:
    """Return the function that tells whether a pattern occurs in a text; upper and lower case are the same.

    Raises:
        Refused: ``PATTERN_NOT_SUPPORTED`` with what RE2 says about it.
    """
    import re2  # noqa: PLC0415 - only a search by pattern loads it

    options = re2.Options()
    options.case_sensitive = False
    options.log_errors = False
    options.max_mem = pattern_memory_max_bytes
    try:
        compiled = re2.compile(pattern, options)
    except re2.error as error:
        said = error.args[0] if error.args else error
        why = said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)
        raise _refusal(pattern, why) from error
    if compiled.programsize > program_instructions_max:
        raise _refusal(pattern, f"it compiles to {compiled.programsize} instructions of {program_instructions_max}")
    return lambda text: compiled.search(text) is not None


def _refusal(pattern: str, why: str) -> Refused:
    return Refused(
        "PATTERN_NOT_SUPPORTED",
        f"the pattern cannot be used: {why} (patterns are RE2's: without back references and look-around)",
        pattern=pattern,
        why=why,
    )
