"""Evidence: what a reference says, and whether it still stands in the tree.

``path:line`` or ``path:5-9``; behind that ``:text`` (the text must stand there) or ``:sha256:HEX`` (the hash of the
whole file, at least 8 of its digits); before it ``REV:``, for what a commit holds. Beside these a URL, which nobody
fetches, and a ref of this ledger (``sha256:HEX``, ``blake3:HEX``, ``session/ID``). Anything else is ``malformed``. A
path may hold colons and spaces: of two readings the first whose file is there counts, one without ``REV:`` before it.

- **The text stands on the line** when the line holds it, whatever the white space, and no word or number of it goes on:
  ``readers: 1`` does not stand on ``readers: 14``. The line may say more, and then the check says so.
- **A hash of the author's own never raises trust**: that of a file says that it changed, not where. Whether the cited
  text is the same is known from its digest, which an earlier check has or, when nobody has checked it, the author's
  tool took along; else the answer is ``file_changed``.
- **Text that moved still stands**: where it is known (quoted, hashed by its author's tool, or found by an earlier
  check), it is looked for in the rest of the file. ``}`` stands in many places: a text that says little must be unique.
- No content of the tree enters a check: notes name lines by number.
- A ledger forgets nothing, so evidence that nobody could ever check is refused when it is to be signed (``cite``); what
  is not there is warned of, because the file may be written in the next minute.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final, Literal, NamedTuple, TypeAlias, TypeVar

from msgspec.structs import replace

from deedbook.consumers.reasoning.validator.reads import FileText, Reads, digest_of, searches_max
from deedbook.consumers.reasoning.validator.trees import REVISION, Parts, open_tree, parts_of, work_tree
from deedbook.consumers.sdk.text import cut as cut_to_chars
from deedbook.ledger.client.client import Ask
from deedbook.ledger.errors import Refused
from deedbook.ledger.events.reasoning import (
    EvidenceCheck,
    EvidenceStatus,
    ReasoningExtended,
    Step,
    excerpt_max_chars,
)
from deedbook.ledger.events.session import FindingLogged
from deedbook.projections.reasoning.memory import ReasoningStep

T = TypeVar("T")
Form: TypeAlias = Literal["line", "text", "hash", "url", "ref"]

HOLDING: Final = frozenset({"ok", "file_changed_line_same", "moved"})
FORMS: Final = (
    "path:line, path:5-9, path:line:text, path:line:sha256:HEX, REV:path:line, a URL, or a ref of this ledger"
)
reference_max_chars: Final = 10_000
hash_digits_min: Final = 8
readings_max: Final = 8
finding_shown_max_chars: Final = 40
line_max_chars: Final = 20_000
lines_searched_max: Final = 200_000  # of a file, times the lines that are cited, taken for ten at least
lines_cited_max: Final = 500
telling_chars_min: Final = 8

_LINE: Final = re.compile(r":([1-9][0-9]{0,8})(?:-([1-9][0-9]{0,8}))?(?=:|\Z)")
_URL: Final = re.compile(r"https?://[^\s/?#]\S*", re.IGNORECASE)
_REF: Final = re.compile(
    r"(?:(?:sha256|blake3):[0-9a-f]{12,64}|(?:session|reasoning|handoff|snapshot|tot)/[^\s/:]+)(?:#\d+)?"
)
_HASH: Final = re.compile(r"sha256:([0-9a-fA-F]*)")
_SURROGATES: Final = re.compile("[\ud800-\udfff]")
_VERIFIED_IN: Final = re.compile(r"\(verified (?:in|at) ([^()]+)\)", re.IGNORECASE)
_IDEOGRAPHS: Final = re.compile(r"[\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]")


class Evidence(NamedTuple):
    """A reference as it reads: ``text`` should stand there, ``digest`` is the (shortened) hash of the file.

    ``end`` is the last line of a range (0: one line), ``revision`` the commit that holds the file ("": the tree).
    """

    path: str
    line: int
    form: Form
    text: str = ""
    digest: str = ""
    end: int = 0
    revision: str = ""


def parse_evidence(reference: str) -> list[Evidence]:
    """Return the ways in which a reference can be read, the shortest path first; none if it has none of the forms."""
    if len(reference) > reference_max_chars:
        return []
    if _URL.fullmatch(reference.strip()):
        return [Evidence(reference.strip(), 0, "url")]
    if _REF.fullmatch(reference.strip()):
        return [Evidence(reference.strip(), 0, "ref")]
    lines = (
        (reference[: at.start()].strip(), int(at[1]), int(at[2] or 0), reference[at.end() + 1 :])
        for at in _LINE.finditer(reference)
    )
    readings = list(islice(filter(None, (_read(*line) for line in lines if line[0])), readings_max))
    for first in readings[:1]:
        revision, _, path = first.path.partition(":")
        if path and REVISION.fullmatch(revision):
            readings.append(first._replace(path=path, revision=revision))
    return readings


def references_of(step: ReasoningStep) -> list[str]:
    """Return the step's references, and those that its premises name as ``(verified in path:line)``."""
    named = [match[1].strip() for premise in step.premises for match in _VERIFIED_IN.finditer(premise)]
    return [*step.evidence, *(reference for reference in named if parse_evidence(reference))]


def check_evidence(
    reference: str, reads: Reads, *, step: int | None = None, earlier: EvidenceCheck | None = None, cited: str = ""
) -> EvidenceCheck:
    """Return what stands where a reference points; ``cited`` is the digest that its author's tool made of the text."""
    possible = parse_evidence(reference)
    shown = cut(reference)
    if not possible:
        return EvidenceCheck(step, shown, "malformed", f"{_misread(reference)}A reference is {FORMS}")
    if possible[0].form == "url":
        return EvidenceCheck(step, shown, "not_checked", "A URL is not fetched")
    if possible[0].form == "ref":
        return EvidenceCheck(step, shown, *reads.look_up(possible[0].path))
    if not reads.is_possible:
        _, where = parts_of(possible[0].path)
        if where in {"malformed", "outside"}:
            return EvidenceCheck(step, shown, where, _PATHS[where])
        return EvidenceCheck(step, shown, "not_checked", "There was no tree to check it against")
    evidence, parts, outcome, note = _choose(possible, reads)
    if outcome != "ok":
        return EvidenceCheck(step, shown, outcome, cut(note))
    reads = reads.at(evidence.revision) or reads
    file = reads.file(parts)
    earlier = earlier if earlier and earlier.line else None
    status, note, line = _compare(evidence, file, earlier, earlier.line if earlier else cited, reads)
    return EvidenceCheck(step, shown, status, cut(note), f"sha256:{file.digest}", line)


def cite(drafts: Sequence[T], view: Ask, *, is_own: bool = True) -> tuple[list[T], list[str]]:
    """Return what is to be signed with the digests of what its steps cite, and a warning for each that is not there.

    Evidence is looked up in the git work tree that this process is in, and refs in the ledger that ``view`` asks. That
    of a graph from elsewhere (not ``is_own``) is warned of, whatever it is. Raises Refused: ``INVALID_FIELD`` for
    evidence that has none of the forms, or leads out of any tree.
    """
    warnings: list[str] = []
    cited = list(drafts)
    signed = (one for data in drafts for one in (data.steps if isinstance(data, ReasoningExtended) else [data]))
    if not any(isinstance(one, Step | FindingLogged) and one.evidence for one in signed):
        return cited, warnings
    root = work_tree(Path.cwd())
    with open_tree(root) if root is not None else nullcontext() as tree:
        reads = Reads(tree, partial(is_known, view))
        for at, data in enumerate(drafts):
            if isinstance(data, ReasoningExtended):
                steps = [_cited(step, reads, warnings, is_own=is_own) for step in data.steps]
                cited[at] = replace(data, steps=steps)
            elif isinstance(data, FindingLogged):  # its evidence may be words
                checks = [check_evidence(reference, reads) for reference in data.evidence]
                known = [check for check in checks if check.status not in {"malformed", "outside"}]
                warnings += doubts(known, f"finding {cut_to_chars(data.finding, finding_shown_max_chars)!r}")
    return cited, warnings


def _cited(step: Step, reads: Reads, warnings: list[str], *, is_own: bool) -> Step:
    checks = [check_evidence(reference, reads) for reference in step.evidence]
    of = f"step {step.step_number}"
    for check in checks:
        if is_own and check.status in {"malformed", "outside"}:
            told = f"evidence {check.reference!r} of {of} cannot be checked: {check.note}"
            raise Refused("INVALID_FIELD", told, field="evidence")
    warnings += doubts(checks, of)
    digests = [check.line if check.status in HOLDING else "" for check in checks]
    return replace(step, evidence_digests=digests) if any(digests) else step


def doubts(checks: Sequence[EvidenceCheck], of: str) -> list[str]:
    """Return a warning for each piece of evidence that is not there as it was said."""
    return [
        f"evidence {check.reference!r} of {of}: {check.status.replace('_', ' ')}"
        + (f" ({check.note})" if check.note else "")
        + "; mend that, or cite another place in a new step: every validation looks again"
        for check in checks
        if check.status not in {"ok", "not_checked"}
    ]


def is_known(view: Ask, ref: str) -> bool:
    """Tell whether a ref names something of the ledger."""
    try:
        return bool(view("resolve", {"ref": ref}))
    except Refused as refusal:
        if refusal.code not in {"NOT_FOUND", "REF_AMBIGUOUS"}:
            raise
        return False


def stands(text: str, line: str) -> bool:
    """Tell whether a text stands on a line: the same but for white space, and no word or number of it goes on."""
    wanted, there = " ".join(text.split()), " ".join(line.split())
    start = there.find(wanted)
    while wanted and start >= 0:
        end = start + len(wanted)
        if not _goes_on(there[:start][-2:], wanted[:1], before=True) and not _goes_on(there[end:][:2], wanted[-1:]):
            return True
        start = there.find(wanted, start + 1)
    return False


def cut(text: str, limit: int = excerpt_max_chars) -> str:
    """Return a text of at most so many characters that an event can hold; what was cut or unsayable is marked."""
    return cut_to_chars(_SURROGATES.sub("�", text[: limit + 1]), limit)


def _misread(reference: str) -> str:
    for at in islice(_LINE.finditer(reference), readings_max):
        first, last = int(at[1]), int(at[2] or at[1])
        if last < first:
            return f"The range {first}-{last} runs backwards. "
        if last >= first + lines_cited_max:
            return f"The range {first}-{last} has more than {lines_cited_max} lines. "
    return ""


def _read(path: str, line: int, end: int, rest: str) -> Evidence | None:
    if end and not line <= end < line + lines_cited_max:
        return None
    hashed = _HASH.fullmatch(rest)
    digits = hashed[1].lower() if hashed is not None else ""
    if hashed is not None and not hash_digits_min <= len(digits) <= 64:
        return None
    form: Form = "hash" if digits else "text" if rest.strip() else "line"
    return Evidence(path, line, form, "" if digits else rest.strip(), digits, end)


def _choose(possible: list[Evidence], reads: Reads) -> tuple[Evidence, Parts, EvidenceStatus, str]:
    """Return the first reading whose file is there and ``ok``, else what is wrong: more than "gone", if anything."""
    problems: list[tuple[Evidence, Parts, EvidenceStatus, str]] = []
    for evidence in possible:
        parts, outcome = parts_of(evidence.path)
        there = reads.at(evidence.revision)
        if there is None:
            note = f"There is no such file, and no commit {evidence.revision} in this repository"
            problems.append((evidence, parts, "gone", note))
        elif outcome != "file":
            problems.append((evidence, parts, outcome, _PATHS[outcome]))
        elif (file := there.file(parts)).outcome != "file":
            problems.append((evidence, parts, file.outcome, file.note or _PATHS.get(file.outcome, "")))
        elif file.text is None:
            return evidence, parts, "unreadable", "The file is not UTF-8 text"
        else:
            return evidence, parts, "ok", ""
    return next((problem for problem in problems if problem[2] != "gone"), problems[-1])


def _compare(
    evidence: Evidence, file: FileText, earlier: EvidenceCheck | None, known: str, reads: Reads
) -> tuple[EvidenceStatus, str, str]:
    """Return the status, a note, and the digest of the lines as they are (of text that moved: where it is now).

    ``earlier`` is what a former check found there, ``known`` the digest that the lines should have ("": nobody says).
    """
    line = file.cited(evidence.line, evidence.end or evidence.line)
    if line is None:
        return _elsewhere(evidence, file, known, reads, ("no_such_line", f"The file has {len(file.lines)} lines", ""))
    if len(line) > line_max_chars:
        return "unreadable", f"What is cited has more than {line_max_chars} characters", ""
    digest = digest_of(line)
    if evidence.form == "text" and not stands(evidence.text, line):
        return _elsewhere(evidence, file, known, reads, ("line_changed", "The text does not stand there", digest))
    if known and known != digest:
        who = "its author cited" if earlier is None else "an earlier validation found"
        return _elsewhere(evidence, file, known, reads, ("line_changed", f"The line is not what {who}", digest))
    if evidence.form == "hash" and not file.digest.startswith(evidence.digest):
        if known:
            return "file_changed_line_same", "The file has another hash; the line is what it was", digest
        return "file_changed", "The file has another hash; nothing tells whether the line is the same", digest
    if earlier is not None and earlier.file != f"sha256:{file.digest}":
        return "file_changed_line_same", "The file is not what an earlier validation found", digest
    says_more = evidence.form == "text" and " ".join(evidence.text.split()) != " ".join(line.split())
    return "ok", "The line says more than the reference quotes" if says_more else "", digest


def _elsewhere(
    evidence: Evidence, file: FileText, known: str, reads: Reads, here: tuple[EvidenceStatus, str, str]
) -> tuple[EvidenceStatus, str, str]:
    """Return ``moved`` where what was cited stands elsewhere in a file that is quickly searched, else ``here``."""
    many = max(evidence.end - evidence.line, 0)
    if len(file.lines) * max(many + 1, 10) > lines_searched_max or not (known or evidence.form == "text"):
        return here
    status, note, digest = here
    if not reads.whole.searches_left:
        return status, f"{note}; whether it moved was not looked up, for more than {searches_max} references", digest
    reads.whole.searches_left -= 1
    texts = ((number, file.cited(number, number + many) or "") for number in range(1, len(file.lines) - many + 1))
    places = {
        number: text
        for number, text in texts
        if len(text) <= line_max_chars
        and (not known or digest_of(text) == known)
        and (evidence.form != "text" or stands(evidence.text, text))  # else a digest would vouch for any quote
    }
    if not places:
        return status, f"{note}, nor anywhere in the file", digest
    nearest = min(places, key=lambda number: abs(number - evidence.line))
    says = sum(map(str.isalnum, evidence.text or places[nearest]))
    if len(places) > 1 and says < telling_chars_min:
        return status, f"{note}; it stands on {len(places)} lines, and says too little to tell which is meant", digest
    return "moved", f"Moved to line {nearest}, still true", digest_of(places[nearest])


def _goes_on(beside: str, edge: str, *, before: bool = False) -> bool:
    """Tell whether what stands beside a quote's edge belongs to the word or number at that edge."""
    near, far = (beside[-1:], beside[:-1]) if before else (beside[:1], beside[1:])
    if _in_word(edge) and _in_word(near):
        return True
    return edge.isdigit() and near in {".", ","} and far.isdigit()


def _in_word(character: str) -> bool:
    """Tell whether a character makes words that only end where another kind of character stands."""
    return (character.isalnum() or character == "_") and _IDEOGRAPHS.fullmatch(character) is None


_PATHS: Final[dict[str, str]] = {
    "malformed": "The path holds what no path of a tree does (backslash, control character, URL), or is too long",
    "outside": "The path leads out of the tree: name it from the root of the tree",
    "gone": "There is no such file",
    "symlink": "A link is not followed",
    "private": "Files of this name hold credentials: a validator does not look into them",
    "directory": "The path is a directory",
}
