"""One line of help for each operation on a handoff: the first sentence of its help.

It is a module of its own because the module of the commands takes 0.15 s longer to import than the table of operations.
"""

from __future__ import annotations

from typing import Final

from deedbook.consumers.handoffs.operations import OPERATIONS, QUESTIONS, spelled

LINES: Final = {
    spelled(verb): operation.words.partition(". ")[0].removesuffix(".") + "."
    for verb, operation in OPERATIONS.items()
    if verb not in QUESTIONS
}
