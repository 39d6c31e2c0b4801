"""The two that judge a bundle: Deedbook's own verifier, and the program that lies in it, called in process."""

from __future__ import annotations

import contextlib
import io
import re
import sys
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from deedbook.consumers.auditor.bundle import verify_bundle
from deedbook.ledger.bundle.program import verify_program
from deedbook.ledger.errors import DeedbookError

if TYPE_CHECKING:
    from pathlib import Path


class Judgement(NamedTuple):
    """The word of a verdict, the first index it names, and what it says."""

    word: str
    index: int | None
    text: str

    @property
    def is_good(self) -> bool:
        """Whether nothing is wrong or missing."""
        return self.word in ("VALID", "SUSPECT_KEY")


@cache
def program() -> Any:
    """Return the joined program as a module, as each bundle carries it."""
    module = ModuleType("verify")
    sys.modules["verify"] = module  # dataclasses look their module up
    module.__file__ = "verify.py"
    exec(compile(verify_program(), "verify.py", "exec"), module.__dict__)
    return module


def alone(path: Path, *arguments: str) -> Judgement:
    """Return what the program says of a bundle."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        code = program().main([str(path), *arguments])
    lines = out.getvalue().splitlines()
    last = lines[-1]
    word = "INVALID" if code == 2 else last.partition(":")[0].partition(" ")[0]
    assert (code == 0) == (word in ("VALID", "SUSPECT_KEY")) or "--partial" in arguments, last
    indexes = [int(one) for one in re.findall(r"^index (\d+):", out.getvalue(), re.MULTILINE)]
    return Judgement(word, min(indexes, default=None), "\n".join(lines))


def ours(path: Path) -> Judgement:
    """Return what Deedbook says of a bundle."""
    try:
        report = verify_bundle(path)
    except DeedbookError as error:
        return Judgement("INVALID", None, str(error))
    indexes = [one.index for one in report.problems if one.index is not None]
    text = "\n".join([report.verdict, *(f"{one.index} {one.code} {one.message}" for one in report.problems)])
    return Judgement(report.outcome, min(indexes, default=None), text)
