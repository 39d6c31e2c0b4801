"""Checks the assumptions that a named check can decide.

An event is data: nothing in it is ever run. A ``validation_method`` is used only if it is exactly one of the named
checks below; each reads a bounded number of files of the tree and searches for a plain text::

    file_exists PATH             file_absent PATH
    file_contains PATH TEXT      any_match PATH|GLOB TEXT
    no_match PATH|GLOB TEXT

Arguments are quoted as in a shell; a glob knows ``*``, ``?``, ``[…]`` and ``**``; a folder means all files below it. A
search proves absence only if it was complete. An assumption fails (``refuted``) only if a check ran and contradicts it.
An assumption that nobody could check does not fail, because that would teach agents to hide assumptions.

Agents also settle assumptions in signed events. A single refutation is enough, if the conclusion rests on the
assumption. Otherwise only the validator's own statement counts as a check; ``settled`` means that only others settled
it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from functools import partial
from typing import Final, NamedTuple

from msgspec.structs import replace

from deedbook.consumers.reasoning.validator.evidence import cut
from deedbook.consumers.reasoning.validator.reads import Reads
from deedbook.consumers.reasoning.validator.trees import Parts, parts_of
from deedbook.ledger.events.reasoning import AssumptionCheck, AssumptionStatus
from deedbook.projections.briefs.critical import is_assumption
from deedbook.projections.reasoning.memory import ReasoningStep
from deedbook.projections.reasoning.outcomes import counting, outcome_of, outcome_text

method_max_chars: Final = 2_000
globstars_max: Final = 2

_GLOB: Final = re.compile(r"[*?\[]")


class Check(NamedTuple):
    """A named check with its arguments."""

    name: str
    arguments: tuple[str, ...]

    def spelled(self) -> str:
        """Return the check as it is written in a ``validation_method``."""
        return shlex.join((self.name, *self.arguments))


class Result(NamedTuple):
    """The status of a check, and a note on what it read."""

    status: AssumptionStatus
    note: str


def parse_check(method: str) -> Check | None:
    """Return the named check that a method spells exactly; None for anything else."""
    if len(method) > method_max_chars:
        return None
    try:
        name, *arguments = shlex.split(method) or [""]
    except ValueError:  # a quote without its end
        return None
    known = CHECKS.get(name)
    return Check(name, tuple(arguments)) if known is not None and known[0] == len(arguments) else None


def check_assumptions(
    step: ReasoningStep, number: int | None, reads: Reads, *, validator: str = "", is_ground: bool = True
) -> Iterator[AssumptionCheck]:
    """Yield a check for the step, if it is an assumption, and for each further assumption that it states.

    ``validator`` is the agent that checks; ``is_ground`` says whether the conclusion rests on the step.
    """
    method = step.validation_method.strip() if isinstance(step.validation_method, str) else ""
    settled = _settled(step, validator, is_ground=is_ground)
    if step.type == "assumption" or is_assumption(step) or method:
        check = check_assumption(step.content, method, reads, step=number, is_open=is_assumption(step))
        # A check that ran here counts more than a statement, unless the statement refutes.
        is_decided = check.status in {"held", "refuted"} and (settled is None or settled.status != "refuted")
        yield check if settled is None or is_decided else replace(check, status=settled.status, note=settled.note)
        settled = None
    for stated in step.assumptions:
        result = settled or Result("not_checked", "It names no method to check it")
        yield AssumptionCheck(number, cut(stated), result.status, note=result.note)


def _settled(step: ReasoningStep, validator: str, *, is_ground: bool) -> Result | None:
    """Return what agents' statements say about the step's assumption; None if there are none."""
    outcome = outcome_of(step)
    if outcome is None:
        return None
    note = cut(f"{outcome_text(step)[:1].upper()}{outcome_text(step)[1:]}")
    if not outcome.holds and is_ground:
        return Result("refuted", note)
    own = next((settlement for settlement in counting(step) if settlement.by == validator), None)
    if own is None:
        return Result("settled", note)
    return Result("held" if own.holds else "refuted", note)


def check_assumption(
    text: str, method: str, reads: Reads, *, step: int | None = None, is_open: bool = True
) -> AssumptionCheck:
    """Return the check of one assumption. If it is not ``is_open``, its author says that nobody needs to check it."""
    status: AssumptionStatus = "not_checked" if is_open else "settled"
    note = "Its author calls it settled; it was not checked"
    if (check := parse_check(method)) is not None:
        result = Result("not_checked", "There was no tree to check it against")
        if reads.is_possible:
            result = CHECKS[check.name][1](reads, *check.arguments)
        status, note = (result.status if result.status != "not_checked" else status), result.note
    elif is_open:
        unknown = f"The method is not one of the named checks: {', '.join(CHECKS)}"
        note = unknown if method else "It names no method to check it"
    spelled = "" if check is None else cut(check.spelled())
    return AssumptionCheck(step, cut(text), status, cut(method), spelled, cut(note))


def outcome_words(check: AssumptionCheck) -> str:
    """Return the outcome of a check in words; if only agents settled the assumption, with their names."""
    if check.status != "settled":
        return check.status.replace("_", " ")
    outcome = check.note.partition(":")[0]
    return f"{outcome[:1].lower()}{outcome[1:]}"


def _presence(reads: Reads, path: str, *, there: AssumptionStatus, gone: AssumptionStatus) -> Result:
    outcome, _ = _text_of(reads, path)
    if outcome in {"file", "unreadable", "too_large"}:
        return Result(there, "The file exists")
    if outcome == "gone":
        return Result(gone, "The file does not exist")
    # A folder or a link is no file, but it is not absent either.
    return _without_file(outcome)


def _file_contains(reads: Reads, path: str, text: str) -> Result:
    outcome, content = _text_of(reads, path)
    if content is None:
        return _without_file(outcome)
    if text not in content:
        return Result("refuted", "The text is not in the file")
    return Result("held", _place(content, text))


def _text_of(reads: Reads, path: str) -> tuple[str, str | None]:
    parts, outcome = parts_of(path)
    if outcome != "file":
        return outcome, None
    file = reads.file(parts)
    return ("unreadable", None) if file.outcome == "file" and file.text is None else (file.outcome, file.text)


def _without_file(outcome: str) -> Result:
    if outcome == "gone":
        return Result("refuted", "The file does not exist")
    return Result("not_checked", f"The path cannot be read: {outcome.replace('_', ' ')}")


def _searched(
    reads: Reads, pattern: str, text: str, *, where_found: AssumptionStatus, where_not: AssumptionStatus
) -> Result:
    files, is_complete = _matching(reads, pattern)
    searched = 0
    for parts in files:
        content = reads.file(parts).text
        if content is None:
            is_complete = False
        elif text in content:
            return Result(where_found, f"{'/'.join(parts)}: {_place(content, text)}")
        else:
            searched += 1
    if not searched:
        return Result("not_checked", "No file matches, so nothing was searched")
    if not is_complete:
        return Result("not_checked", f"The text is in none of {searched} files, but some files could not be read")
    return Result(where_not, f"The text is in none of {searched} files")


CHECKS: Final[dict[str, tuple[int, Callable[..., Result]]]] = {
    "file_exists": (1, partial(_presence, there="held", gone="refuted")),
    "file_absent": (1, partial(_presence, there="refuted", gone="held")),
    "file_contains": (2, _file_contains),
    "any_match": (2, partial(_searched, where_found="held", where_not="refuted")),
    "no_match": (2, partial(_searched, where_found="refuted", where_not="held")),
}


def _matching(reads: Reads, pattern: str) -> tuple[list[Parts], bool]:
    """Return the files to search, and whether the list is complete."""
    parts, outcome = parts_of(pattern)
    if outcome == "directory":  # "." or "./" names the whole tree
        listing = reads.listing(())
        return listing.files, listing.complete
    if outcome != "file" or parts.count("**") > globstars_max:
        return [], False
    if _GLOB.search(pattern) is None:
        if reads.file(parts).outcome != "directory":
            return [parts], True
        listing = reads.listing(parts)
        return listing.files, listing.complete
    fixed = next(position for position, part in enumerate(parts) if _GLOB.search(part))
    listing = reads.listing(parts[:fixed])
    return [file for file in listing.files if _fits(file[fixed:], parts[fixed:])], listing.complete


def _fits(path: Parts, pattern: Parts) -> bool:
    if not pattern:
        return not path
    if pattern[0] == "**":
        return any(_fits(path[start:], pattern[1:] or ("*",)) for start in range(len(path)))
    return bool(path) and fnmatchcase(path[0], pattern[0]) and _fits(path[1:], pattern[1:])


def _place(content: str, text: str) -> str:
    return f"The text is on line {content.count(chr(10), 0, content.index(text)) + 1}"
