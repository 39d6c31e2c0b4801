"""Parses references to evidence, and checks whether they are still true in the tree.

A reference is ``path:line`` or ``path:5-9``; after that ``:text`` (which the line must contain) or ``:sha256:HEX`` (the
hash of the whole file, at least 8 digits); before it ``REV:``, for a file of a commit. It may also be a URL, which is
never fetched, or a ref of this ledger (``sha256:HEX``, ``blake3:HEX``, ``session/ID``). Anything else is ``malformed``,
except the path of a file of the tree, which graphs from elsewhere have: it is ``not_checked``, because nobody can say
what in the file it means. A path may have colons and spaces: the first reading whose file exists counts, and readings
without ``REV:`` come first.

- **The text is on the line** if the line contains it (white space may differ) and its last word or number does not
  continue: ``readers: 1`` is not on the line ``readers: 14``. If the line says more, the check says so.
- **The author's own hash never raises trust**: the hash of a file shows that it changed, not where. The digest of the
  cited text shows whether the text is the same. The digest comes from an earlier check, or from the author's tool,
  which signed it. Without a digest the answer is ``file_changed``.
- **Text that moved is still true**: if the text is known (quoted, hashed by the author's tool, or found by an earlier
  check), the rest of the file is searched for it. ``}`` occurs in many places: a text that says little must be unique.
- No content of the tree enters a check: notes give line numbers only.
- A ledger forgets nothing, so evidence that nobody could ever check is refused before it is signed (``cite``). Missing
  evidence is a warning, because the file may be written in the next minute, and it is signed as ``missing``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any, Final, Literal, NamedTuple, TypeAlias, TypeVar

from msgspec.structs import replace

from deedbook.consumers.reasoning.validator.reads import FileText, Reads, digest_of
from deedbook.consumers.reasoning.validator.trees import REVISION, Parts, parts_of, tree_of, work_tree
from deedbook.consumers.sdk.files import unknown_files
from deedbook.consumers.sdk.text import cut as cut_to_chars
from deedbook.ledger.client.client import Ask
from deedbook.ledger.errors import Refused, did_you_mean
from deedbook.ledger.events.reasoning import (
    MISSING,
    AssumptionSettled,
    EvidenceCheck,
    EvidenceStatus,
    ReasoningExtended,
    Step,
    excerpt_max_chars,
)
from deedbook.ledger.events.session import FindingLogged
from deedbook.ledger.families import sources
from deedbook.ledger.system.files import near_files
from deedbook.projections.reasoning.memory import ReasoningStep
from deedbook.projections.reasoning.outcomes import counting

T = TypeVar("T")
Citing = TypeVar("Citing", Step, AssumptionSettled)
Form: TypeAlias = Literal["line", "text", "hash", "url", "ref"]

HOLDING: Final = frozenset({"ok", "file_changed_line_same", "moved"})
NO_LINE: Final = "The file is there, but the reference names no line, so it shows nothing: path:line is better"
NOT_THERE: Final = "It was not there when its author cited it"
MISQUOTED: Final = "The line reads as its author quoted it, but the hash that they signed is of another text"
FORMS: Final = (
    "path:line, path:5-9, path:line:text, path:line:sha256:HEX, REV:path:line, a URL, or a ref of this ledger"
)
reference_max_chars: Final = 10_000
hash_digits_min: Final = 8
readings_max: Final = 8
finding_shown_max_chars: Final = 40
line_max_chars: Final = 20_000
# the number of lines in a file, times the number of cited lines (at least ten)
lines_searched_max: Final = 200_000
lines_cited_max: Final = 500
telling_chars_min: Final = 8
near_paths_max: Final = 3

_LINE: Final = re.compile(r":([1-9][0-9]{0,8})(?:-([1-9][0-9]{0,8}))?(?=:|\Z)")
_URL: Final = re.compile(r"https?://[^\s/?#]\S*", re.IGNORECASE)
_REF: Final = re.compile(r"(?:(?:event|sha256|blake3):[0-9a-f]{12,64}|(?P<stream>[a-z][a-z0-9_]*)/[^\s/:]+)(?:#\d+)?")
_STREAMS: Final = frozenset({"session", "reasoning", "handoff", "snapshot"})
_BARE_PATH: Final = re.compile(r"[^\s:]*[/.][^\s:/.][^\s:]*")
_HASH: Final = re.compile(r"sha256:([0-9a-fA-F]*)")
_SURROGATES: Final = re.compile("[\ud800-\udfff]")
_VERIFIED_IN: Final = re.compile(r"\(verified (?:in|at) ([^()]+)\)", re.IGNORECASE)
_IDEOGRAPHS: Final = re.compile(r"[\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]")


class Evidence(NamedTuple):
    """A parsed reference: ``text`` should be on the line, ``digest`` is the (shortened) hash of the file.

    ``end`` is the last line of a range (0: one line), ``revision`` the commit of the file ("": the tree).
    """

    path: str
    line: int
    form: Form
    text: str = ""
    digest: str = ""
    end: int = 0
    revision: str = ""


class LookUp(NamedTuple):
    """A checked reference, its reading, and the cited lines as they are now from ``line`` on (None: not there)."""

    check: EvidenceCheck
    evidence: Evidence | None = None
    line: int = 0
    text: str | None = None


class _Comparison(NamedTuple):
    """The status of cited lines, a note, the digest of the lines as they are now, and the line where they are now."""

    status: EvidenceStatus
    note: str
    digest: str = ""
    line: int = 0


def parse_evidence(reference: str) -> list[Evidence]:
    """Return the possible readings of a reference, the shortest path first; none if it has no valid form."""
    if len(reference) > reference_max_chars:
        return []
    if _URL.fullmatch(reference.strip()):
        return [Evidence(reference.strip(), 0, "url")]
    match = _REF.fullmatch(reference.strip())
    if match and (match["stream"] is None or match["stream"] in _STREAMS or match["stream"] in sources()):
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
    """Return the references of a step: its evidence, ``(verified in path:line)`` in premises, settlements' evidence.

    If an agent settled the step several times, only the newest settlement counts.
    """
    named = [match[1].strip() for premise in step.premises for match in _VERIFIED_IN.finditer(premise)]
    settling = (reference for settlement in counting(step) for reference in settlement.evidence)
    return [*step.evidence, *(reference for reference in named if parse_evidence(reference)), *settling]


def citations_of(step: ReasoningStep) -> Iterator[tuple[str, str]]:
    """Yield the references of a step, each with the digest of the text that its signer's tool read ("": none)."""
    signed = [(step.evidence, step.evidence_digests or [])]
    signed += [(settlement.evidence, settlement.evidence_digests) for settlement in counting(step)]
    digests = {reference: digest for pair in signed for reference, digest in zip(*pair, strict=False)}
    return ((reference, digests.get(reference, "")) for reference in references_of(step))


def check_evidence(
    reference: str, reads: Reads, *, step: int | None = None, earlier: EvidenceCheck | None = None, cited: str = ""
) -> EvidenceCheck:
    """Return the check of a reference; ``cited`` is the digest of the text from its author's tool, or ``MISSING``."""
    return look_up(reference, reads, step=step, earlier=earlier, cited=cited).check


def look_up(
    reference: str, reads: Reads, *, step: int | None = None, earlier: EvidenceCheck | None = None, cited: str = ""
) -> LookUp:
    """Return the check of a reference, as ``check_evidence`` does, with the cited lines as they are now."""
    if cited != MISSING:
        return _look_up(reference, reads, step, earlier, cited)
    answer = _look_up(reference, reads, step, earlier, "")
    note = cut(". ".join(filter(None, (answer.check.note, NOT_THERE))))
    return answer._replace(check=replace(answer.check, note=note))


def _look_up(reference: str, reads: Reads, step: int | None, earlier: EvidenceCheck | None, cited: str) -> LookUp:
    possible = parse_evidence(reference)
    short = cut(reference)
    if not possible:
        return LookUp(_without_line(reference, reads, step))
    if possible[0].form == "url":
        return LookUp(EvidenceCheck(step, short, "not_checked", "URLs are not fetched"))
    if possible[0].form == "ref":
        return LookUp(EvidenceCheck(step, short, *reads.look_up(possible[0].path)))
    if not reads.is_possible:
        _, where = parts_of(possible[0].path)
        if where in {"malformed", "outside"}:
            return LookUp(EvidenceCheck(step, short, where, _PATHS[where]))
        return LookUp(EvidenceCheck(step, short, "not_checked", _NO_TREE), possible[0])
    evidence, parts, outcome, note = _choose(possible, reads)
    if outcome != "ok":
        return LookUp(EvidenceCheck(step, short, outcome, cut(note)), evidence)
    reads = reads.at(evidence.revision) or reads
    file = reads.file(parts)
    earlier = earlier if earlier and earlier.line else None
    status, note, digest, line = _compare(evidence, file, earlier, earlier.line if earlier else cited, reads)
    check = EvidenceCheck(step, short, status, cut(note), f"sha256:{file.digest}", digest)
    last = line + max(evidence.end - evidence.line, 0)
    return LookUp(check, evidence, line, file.cited(line, last) if line else None)


def _without_line(reference: str, reads: Reads, step: int | None) -> EvidenceCheck:
    """Return the check of a reference without a valid form, which may be the path of a file."""
    path, short = reference.strip(), cut(reference)
    parts, outcome = parts_of(path)
    if outcome == "file" and not reads.is_possible and _BARE_PATH.fullmatch(path):
        return EvidenceCheck(step, short, "not_checked", _NO_TREE)
    if outcome == "file" and reads.is_possible and (file := reads.file(parts)).outcome == "file":
        return EvidenceCheck(step, short, "not_checked", NO_LINE, f"sha256:{file.digest}")
    return EvidenceCheck(step, short, "malformed", f"{_misread(reference)}A reference is {FORMS}")


def cite(
    drafts: Sequence[T], view: Ask, *, is_own: bool = True, retractions: Sequence[str] = ()
) -> tuple[list[T], list[str]]:
    """Return the drafts with the digests of the cited text, and a warning for each piece of evidence that is missing.

    ``retractions`` has a command for each draft that retracts a step; a warning about a step shows it with the step's
    number.
    Evidence is looked up in the git work tree of the working folder, and refs in the ledger of ``view``. For a graph
    from elsewhere (not ``is_own``) all problems are warnings. Raises Refused: ``INVALID_FIELD`` for evidence that has
    no valid form, or leads out of the tree.
    """
    warnings: list[str] = []
    cited: list[Any] = list(drafts)
    parts = (part for data in drafts for part in (data.steps if isinstance(data, ReasoningExtended) else [data]))
    if not any(isinstance(part, Step | AssumptionSettled | FindingLogged) and part.evidence for part in parts):
        return cited, warnings
    root = work_tree(Path.cwd())
    with tree_of(root) as tree:
        reads = Reads(tree, partial(is_known, view))
        for at, data in enumerate(drafts):
            if isinstance(data, ReasoningExtended):
                call = retractions[at] if retractions else ""
                steps = [_cited(step, step.step_number, reads, warnings, call, is_own=is_own) for step in data.steps]
                cited[at] = replace(data, steps=steps)
            elif isinstance(data, AssumptionSettled):
                cited[at] = _cited(data, data.step, reads, warnings, is_own=is_own)
            elif isinstance(data, FindingLogged):  # its evidence may be free text
                checks = [check_evidence(reference, reads) for reference in data.evidence if parse_evidence(reference)]
                known = [check for check in checks if check.status not in {"malformed", "outside"}]
                of = f"finding {cut_to_chars(data.finding, finding_shown_max_chars)!r}"
                warnings += [f"evidence of {of}: {text}" for text in unknown_files(data.evidence)]
                warnings += doubts(known, of, reads, "cite other evidence in a new finding")
    return cited, warnings


def _cited(
    data: Citing, number: int, reads: Reads, warnings: list[str], retraction: str = "", *, is_own: bool
) -> Citing:
    checks = [check_evidence(reference, reads) for reference in data.evidence]
    of = f"step {number}"
    for reference, check in zip(data.evidence, checks, strict=True):
        if is_own and (check.status in {"malformed", "outside"} or not parse_evidence(reference)):
            note = f"It names no line. A reference is {FORMS}" if check.status == "not_checked" else check.note
            message = f"evidence {check.reference!r} of {of} cannot be checked: {note}"
            raise Refused("INVALID_FIELD", message, field="evidence")
    remedy = "settle it again: of each agent, the newest statement counts"
    if isinstance(data, Step):
        remedy = (
            f"{f'`{retraction} --step {number} --reason TEXT`' if retraction else 'retract it'}, and record it again"
        )
    warnings += doubts(checks, of, reads, remedy)
    digests = [_cited_digest(check) for check in checks]
    return replace(data, evidence_digests=digests) if any(digests) else data


def _cited_digest(check: EvidenceCheck) -> str:
    """Return what an author signs about a cited text: its digest, or that the text was missing."""
    if check.status == "not_checked":
        return ""
    return check.line if check.status in HOLDING else MISSING


def doubts(checks: Sequence[EvidenceCheck], of: str, reads: Reads, remedy: str) -> list[str]:
    """Return a warning for each reference that failed its check or names no line, with similar file names.

    ``of`` names the step or finding that cites the evidence. ``remedy`` says what its author can do.
    """
    warnings: list[str] = []
    for check in checks:
        if check.note == NO_LINE:
            warnings.append(f"evidence {check.reference!r} of {of}: {NO_LINE}")
        elif check.status not in {"ok", "not_checked"}:
            note = check.note + (did_you_mean(_near_paths(check.reference, reads)) if check.status == "gone" else "")
            about = check.status.replace("_", " ") + (f" ({note})" if note else "")
            again = f"every validation checks again: correct the file, or {remedy}"
            warnings.append(f"evidence {check.reference!r} of {of}: {about}; {again}")
    return warnings


def _near_paths(reference: str, reads: Reads) -> list[str]:
    """Return paths similar to that of a missing file: its name in other folders, else similar names in its folder."""
    evidence = next(iter(parse_evidence(reference)), None)
    if evidence is None or evidence.form == "ref" or not reads.is_possible:
        return []
    path = PurePosixPath(evidence.path.rpartition(":")[2])
    files = [PurePosixPath(*parts) for parts in reads.listing(()).files]
    same = [str(file) for file in files if file.name == path.name][:near_paths_max]
    return same or near_files(path, [file for file in files if file.parent == path.parent])


def is_known(view: Ask, ref: str) -> bool:
    """Return whether a ref names something in the ledger."""
    try:
        return bool(view("resolve", {"id": ref}))
    except Refused as refusal:
        if refusal.code not in {"NOT_FOUND", "REF_AMBIGUOUS"}:
            raise
        return False


def stands(text: str, line: str) -> bool:
    """Return whether a line contains a text, apart from white space.

    The text's last word or number must not continue.
    """
    wanted, content = " ".join(text.split()), " ".join(line.split())
    start = content.find(wanted)
    while wanted and start >= 0:
        end = start + len(wanted)
        before, after = content[:start][-2:], content[end:][:2]
        if not _continues(before, wanted[:1], before=True) and not _continues(after, wanted[-1:]):
            return True
        start = content.find(wanted, start + 1)
    return False


def cut(text: str, limit: int = excerpt_max_chars) -> str:
    """Return a text of at most ``limit`` characters that an event can hold; cuts and lone surrogates are marked."""
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
    """Return the first reading whose file is ``ok``.

    If there is none, return a reading with a problem: "gone" only if no reading has another problem.
    """
    problems: list[tuple[Evidence, Parts, EvidenceStatus, str]] = []
    for evidence in possible:
        parts, outcome = parts_of(evidence.path)
        tree_reads = reads.at(evidence.revision)
        if tree_reads is None:
            note = f"The file does not exist, and neither does the commit {evidence.revision} in this repository"
            problems.append((evidence, parts, "gone", note))
        elif outcome != "file":
            problems.append((evidence, parts, outcome, _PATHS[outcome]))
        elif (file := tree_reads.file(parts)).outcome != "file":
            problems.append((evidence, parts, file.outcome, file.note or _PATHS.get(file.outcome, "")))
        elif file.text is None:
            return evidence, parts, "unreadable", "The file is not UTF-8 text"
        else:
            return evidence, parts, "ok", ""
    return next((problem for problem in problems if problem[2] != "gone"), problems[-1])


def _compare(
    evidence: Evidence, file: FileText, earlier: EvidenceCheck | None, known: str, reads: Reads
) -> _Comparison:
    """Return the status of the lines. If the text moved, the result has the digest and line of the new place.

    ``earlier`` is the result of an earlier check, ``known`` the digest that the lines should have ("": unknown).
    """
    line = file.cited(evidence.line, evidence.end or evidence.line)
    if line is None:
        return _elsewhere(
            evidence, file, known, reads, _Comparison("no_such_line", f"The file has {len(file.lines)} lines")
        )
    if len(line) > line_max_chars:
        return _Comparison("unreadable", f"The cited text has more than {line_max_chars} characters")
    digest, at = digest_of(line), evidence.line
    if evidence.form == "text" and not stands(evidence.text, line):
        here = _Comparison("line_changed", "The text is not on the line", digest, at)
        return _elsewhere(evidence, file, known, reads, here)
    is_whole = evidence.form == "text" and " ".join(evidence.text.split()) == " ".join(line.split())
    if known and known != digest:
        note = f"The line is not what {'its author cited' if earlier is None else 'an earlier validation found'}"
        note = MISQUOTED if is_whole and earlier is None else note
        return _elsewhere(evidence, file, known, reads, _Comparison("line_changed", note, digest, at))
    if evidence.form == "hash" and not file.digest.startswith(evidence.digest):
        if known:
            return _Comparison("file_changed_line_same", "The file has another hash; the line is the same", digest, at)
        note = "The file has another hash; whether the line is the same is unknown"
        return _Comparison("file_changed", note, digest, at)
    if earlier is not None and earlier.file != f"sha256:{file.digest}":
        return _Comparison("file_changed_line_same", "The file changed since an earlier validation", digest, at)
    says_more = evidence.form == "text" and not is_whole
    return _Comparison("ok", "The line says more than the reference quotes" if says_more else "", digest, at)


def _elsewhere(evidence: Evidence, file: FileText, known: str, reads: Reads, here: _Comparison) -> _Comparison:
    """Return ``moved`` if the file has the cited text elsewhere and is small enough to be searched, else ``here``."""
    many = max(evidence.end - evidence.line, 0)
    if len(file.lines) * max(many + 1, 10) > lines_searched_max or not (known or evidence.form == "text"):
        return here
    if not reads.can_search(len(file.text or "") * (many + 1)):
        note = f"{here.note}; moved text was not searched for, because earlier references used up the limit"
        return here._replace(note=note)
    texts = ((number, file.cited(number, number + many) or "") for number in range(1, len(file.lines) - many + 1))
    places = {
        number: text
        for number, text in texts
        if len(text) <= line_max_chars
        and (not known or digest_of(text) == known)
        # else a matching digest would confirm a different quote
        and (evidence.form != "text" or stands(evidence.text, text))
    }
    if not places:
        return (
            here
            if here.note == MISQUOTED
            else here._replace(note=f"{here.note}, and the file has that text nowhere else")
        )
    nearest = min(places, key=lambda number: abs(number - evidence.line))
    says = sum(map(str.isalnum, evidence.text or places[nearest]))
    if len(places) > 1 and says < telling_chars_min:
        note = f"{here.note}; it is on {len(places)} lines, and too short to tell which is meant"
        return here._replace(note=note)
    return _Comparison("moved", f"Moved to line {nearest}, still true", digest_of(places[nearest]), nearest)


def _continues(beside: str, edge: str, *, before: bool = False) -> bool:
    """Return whether the word or number at the edge of a quote continues beyond it."""
    near, far = (beside[-1:], beside[:-1]) if before else (beside[:1], beside[1:])
    if _in_word(edge) and _in_word(near):
        return True
    return edge.isdigit() and near in {".", ","} and far.isdigit()


def _in_word(character: str) -> bool:
    """Return whether this character can continue a word. An ideograph cannot: it is a word of its own."""
    return (character.isalnum() or character == "_") and _IDEOGRAPHS.fullmatch(character) is None


_NO_TREE: Final = "There was no tree to check it against"
_PATHS: Final[dict[str, str]] = {
    "malformed": "The path is too long, or has a character that no path has (backslash, control character, URL)",
    "outside": "The path leads out of the tree: name it from the root of the tree",
    "gone": "The file does not exist",
    "symlink": "Links are not followed",
    "private": "Files of this name hold credentials: a validator does not read them",
    "directory": "The path is a directory",
}
