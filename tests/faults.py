"""How often tests kill, flip and race: a few times in ``make test``, as often as promised in ``make faults``.

``make test`` proves that each program survives a real kill at all, and crashes at each step in process; ``make faults``
sets ``BATON_FAULTS`` and looks for the moment that nobody thought of.
"""

from __future__ import annotations

import os
import random
from typing import Final

FAULTS: Final = int(os.environ.get("BATON_FAULTS", "1"))
is_long_run: Final = FAULTS > 1


def times(quick: int, each: int) -> int:
    """Return ``quick``, or in the long run ``each`` as many times as were asked for."""
    return each * FAULTS if is_long_run else quick


def chances(name: str, count: int) -> list[random.Random]:
    """Return so many seeded sources of chance, so that a failure names what to repeat."""
    return [random.Random(f"{name}/{number}") for number in range(count)]
