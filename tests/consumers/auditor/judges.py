"""The two verifiers of a bundle: Deedbook's own, and the program inside the bundle, called in this process."""

from __future__ import annotations

import contextlib
import io
import re
import sys
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from deedbook.consumers.auditor.bundle import verify_bundle
from deedbook.ledger.bundle.program import verify_program
from deedbook.ledger.errors import DeedbookError

if TYPE_CHECKING:
    from pathlib import Path


VERDICTS: Final = ("VALID", "VALID_WITH_ERASURES", "SUSPECT_KEY", "PARTIAL", "HISTORY_CHANGED", "INVALID")


class Judgement(NamedTuple):
    """A verdict: its word, the first index it names, its text, and the codes of the problems at each index.

    ``gate`` is the state of the gate that the verifier reports, if it gets that far.
    """

    word: str
    index: int | None
    text: str
    codes: dict[int | None, set[str]]
    gate: str | None

    @property
    def is_good(self) -> bool:
        """Whether nothing is wrong or missing."""
        return self.word in ("VALID", "VALID_WITH_ERASURES", "SUSPECT_KEY")


@cache
def program() -> Any:
    """Return as a module the program ``verify.py`` that each bundle contains."""
    module = ModuleType("verify")
    sys.modules["verify"] = module  # dataclasses look their module up
    module.__file__ = "verify.py"
    exec(compile(verify_program(), "verify.py", "exec"), module.__dict__)
    return module


def alone(path: Path, *arguments: str) -> Judgement:
    """Return the judgement of the bundle's own program."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        code = program().main([str(path), *arguments])
    lines = out.getvalue().splitlines()
    last = lines[-1]
    word = "INVALID" if code == 2 else last.partition(":")[0].partition(" ")[0]
    assert (code == 0) == (word in ("VALID", "VALID_WITH_ERASURES")) or "--accept" in arguments, last
    named = re.findall(r"^(?:entry (\d+): |INVALID: )?([A-Z_]+): ", out.getvalue(), re.MULTILINE)
    problems = [(int(index) if index else None, code) for index, code in named if index or code not in VERDICTS]
    return judged(word, problems, "\n".join(lines))


def ours(path: Path, checkpoint: str | None = None) -> Judgement:
    """Return Deedbook's judgement of a bundle, compared with a checkpoint from another source."""
    try:
        report = verify_bundle(path, trusted_checkpoint=checkpoint)
    except DeedbookError as error:
        return judged("INVALID", [(None, error.code)], str(error))
    problems = [f"{one.index} {one.code} {one.message}" for one in report.problems]
    text = "\n".join([report.gate_line, report.verdict, *problems])
    return judged(report.outcome, [(problem.index, problem.code) for problem in report.problems], text)


def judged(word: str, problems: list[tuple[int | None, str]], text: str) -> Judgement:
    """Return the judgement of a verifier that names these problems."""
    codes: dict[int | None, set[str]] = {}
    for index, code in problems:
        codes.setdefault(index, set()).add(code)
    gate = re.search(r"^gate: (.+)$", text, re.MULTILINE)
    first = min((index for index in codes if index is not None), default=None)
    return Judgement(word, first, text, codes, gate and gate[1])
