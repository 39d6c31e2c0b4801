"""Compiles patterns whose search takes time linear in the text (RE2), whatever an attacker writes into it."""

from __future__ import annotations

from typing import Any, Final

import re2

pattern_memory_max_bytes: Final = 32 * 1024**2


def compile_linear(pattern: str) -> Any:
    """Return a compiled RE2 pattern that searches bytes."""
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1  # one character is one byte, which needs a tenth of the states
    options.max_mem = pattern_memory_max_bytes
    options.log_errors = False
    return re2.compile(pattern.encode(), options)
