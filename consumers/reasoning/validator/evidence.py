"""Evidence: what a reference says, and whether it still stands in the tree.

Three forms: ``path:line``, ``path:line:text`` (the text must stand on that line) and ``path:line:sha256:HEX`` (the hash
of the whole file, at least 8 of its digits). Anything else is ``malformed``. A path may hold colons and spaces: of two
readings the first whose file is there counts.

Rules this module keeps:

- **the text stands on the line** when the line holds it, whatever the white space, and no word or number of it goes on:
  ``readers: 1`` does not stand on ``readers: 14``. The line may say more, and then the check says so;
- **a hash of the author's own never raises trust**: it says that a file changed, not where. Whether the cited line is
  the same is known from an earlier check (hence the line's digest in each), from another reference that quotes the
  line, or from the version with that hash in git's history; else the answer is ``file_changed``;
- ``ok`` and ``file_changed_line_same`` hold; everything else is an issue, also what could not be looked up: a report
  that passes must mean that every reference was seen to stand;
- no content of the tree enters a check: notes name lines by number.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Final, Literal, NamedTuple, TypeAlias

from consumers.reasoning.validator.reads import FileText, Reads, lines_of, text_of
from consumers.reasoning.validator.trees import Parts, parts_of
from consumers.sdk.text import cut as cut_to_chars
from ledger.events.reasoning import EvidenceCheck, EvidenceStatus, excerpt_max_chars
from projections.reasoning.memory import ReasoningStep

Form: TypeAlias = Literal["line", "text", "hash"]
Quotes: TypeAlias = "Mapping[tuple[str, int], str]"

HOLDING: Final = frozenset({"ok", "file_changed_line_same"})
reference_max_chars: Final = 10_000
hash_digits_min: Final = 8
readings_max: Final = 8
line_digest_digits: Final = 16
line_max_chars: Final = 20_000
lines_searched_max: Final = 5_000

_LINE: Final = re.compile(r":([1-9][0-9]{0,8})(?=:|\Z)")
_HASH: Final = re.compile(r"sha256:\s*([0-9a-fA-F]*)\s*")
_SHA256_DIGITS: Final = 64
_SURROGATES: Final = re.compile("[\ud800-\udfff]")
_VERIFIED_IN: Final = re.compile(r"\(verified (?:in|at) ([^()]+)\)", re.IGNORECASE)
_IDEOGRAPHS: Final = re.compile(r"[\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]")


class Evidence(NamedTuple):
    """A reference as it reads: ``text`` should stand on the line, ``digest`` is the (shortened) hash of the file."""

    path: str
    line: int
    form: Form
    text: str = ""
    digest: str = ""


def parse_evidence(reference: str) -> list[Evidence]:
    """Return the ways in which a reference can be read, the shortest path first; none if it has none of the forms."""
    if len(reference) > reference_max_chars:
        return []
    lines = (
        (reference[: at.start()].strip(), int(at[1]), reference[at.end() + 1 :]) for at in _LINE.finditer(reference)
    )
    readings = (_read(path, line, rest) for path, line, rest in lines if path)
    return list(islice(filter(None, readings), readings_max))


def quotes_of(steps: Sequence[ReasoningStep]) -> dict[tuple[str, int], str]:
    """Return the lines that the references of a graph quote, by path and number."""
    quoted: dict[tuple[str, int], str] = {}
    for step in steps:
        for reference in step.evidence:
            for evidence in parse_evidence(reference)[:1]:
                if evidence.form == "text":
                    quoted.setdefault((evidence.path, evidence.line), evidence.text)
    return quoted


def references_of(step: ReasoningStep) -> list[str]:
    """Return the step's references, and those that its premises name as ``(verified in path:line)``."""
    named = [match[1].strip() for premise in step.premises for match in _VERIFIED_IN.finditer(premise)]
    return [*step.evidence, *(reference for reference in named if parse_evidence(reference))]


def check_evidence(
    reference: str,
    reads: Reads,
    *,
    step: int | None = None,
    quotes: Quotes | None = None,
    earlier: EvidenceCheck | None = None,
) -> EvidenceCheck:
    """Return what stands where a reference points; ``earlier`` is a former check of the same reference."""
    possible = parse_evidence(reference)
    shown = cut(reference)
    if not possible:
        note = "A reference is path:line, path:line:text or path:line:sha256:HEX"
        return EvidenceCheck(step, shown, "malformed", note)
    if not reads.is_possible:
        return EvidenceCheck(step, shown, "not_checked", "There was no tree to check it against")
    evidence, parts, outcome, note = _choose(possible, reads)
    if outcome != "ok":
        return EvidenceCheck(step, shown, outcome, cut(note))
    file = reads.file(parts)
    quote = (quotes or {}).get((evidence.path, evidence.line))
    status, note, line = _compare(evidence, parts, reads, quote, earlier if earlier and earlier.line else None)
    return EvidenceCheck(step, shown, status, cut(note), f"sha256:{file.digest}", line)


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


def _read(path: str, line: int, rest: str) -> Evidence | None:
    if not rest.strip():
        return Evidence(path, line, "line")
    hashed = _HASH.fullmatch(rest)
    if hashed is None:
        return Evidence(path, line, "text", text=rest.strip())
    digits = hashed[1].lower()
    return Evidence(path, line, "hash", digest=digits) if hash_digits_min <= len(digits) <= _SHA256_DIGITS else None


def _choose(possible: list[Evidence], reads: Reads) -> tuple[Evidence, Parts, EvidenceStatus, str]:
    """Return the first reading whose file is there and ``ok``, else the first with what is wrong with its path."""
    problems: list[tuple[Evidence, Parts, EvidenceStatus, str]] = []
    for evidence in possible:
        parts, outcome = parts_of(evidence.path)
        if outcome != "file":
            problems.append((evidence, parts, outcome, _PATHS[outcome]))
            continue
        file = reads.file(parts)
        if file.outcome != "file":
            problems.append((evidence, parts, file.outcome, file.note))
        elif file.text is None:
            return evidence, parts, "unreadable", "The file is not UTF-8 text"
        else:
            return evidence, parts, "ok", ""
    return problems[0]


def _compare(
    evidence: Evidence, parts: Parts, reads: Reads, quote: str | None, earlier: EvidenceCheck | None
) -> tuple[EvidenceStatus, str, str]:
    """Return the status, a note, and the digest of the line as it is.

    ``quote`` is how another reference quotes the line, ``earlier`` what a former check found there.
    """
    file = reads.file(parts)
    if evidence.line > len(file.lines):
        return "no_such_line", f"The file has {len(file.lines)} lines", ""
    line = file.lines[evidence.line - 1]
    if len(line) > line_max_chars:
        return "unreadable", f"The line has more than {line_max_chars} characters", ""
    digest = hashlib.sha256(line.encode()).hexdigest()[:line_digest_digits]
    if evidence.form == "text" and not stands(evidence.text, line):
        return "line_changed", _whereabouts(evidence.text, file), digest
    if earlier is not None and earlier.line != digest:
        return "line_changed", "The line is not what an earlier validation found", digest
    if evidence.form == "hash" and not file.digest.startswith(evidence.digest):
        status, note = _with_other_hash(evidence, line, reads.earlier(parts), quote, is_known=earlier is not None)
        return status, f"The file has another hash; {note}", digest
    if earlier is not None and earlier.file != f"sha256:{file.digest}":
        return "file_changed_line_same", "The file is not what an earlier validation found", digest
    says_more = evidence.form == "text" and " ".join(evidence.text.split()) != " ".join(line.split())
    return "ok", "The line says more than the reference quotes" if says_more else "", digest


def _with_other_hash(
    evidence: Evidence, line: str, versions: Iterable[bytes], quote: str | None, *, is_known: bool
) -> tuple[EvidenceStatus, str]:
    """Return what is known of a line whose file no longer has the hash that the reference gives."""
    if quote is not None and not stands(quote, line):
        return "line_changed", "another reference quotes the line otherwise"
    if is_known:  # its digest of the line was compared before
        return "file_changed_line_same", "the line is what an earlier validation found"
    for content in versions:
        if hashlib.sha256(content).hexdigest().startswith(evidence.digest):
            before = lines_of(text_of(content) or "")
            if evidence.line <= len(before) and before[evidence.line - 1] == line:
                return "file_changed_line_same", "in the version with that hash the line is the same"
            return "line_changed", "in the version with that hash the line is another"
    if quote is not None:
        return "file_changed_line_same", "another reference quotes the line as it is"
    return "file_changed", "nothing tells whether the line is the same"


def _whereabouts(text: str, file: FileText) -> str:
    """Say where else a text stands, for a file that is quickly searched."""
    if len(file.lines) > lines_searched_max:
        return "The text does not stand there"
    for number, line in enumerate(file.lines, start=1):
        if len(line) <= line_max_chars and stands(text, line):
            return f"The text now stands on line {number}"
    return "The text stands nowhere in the file"


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
    "outside": "The path leads out of the tree",
    "private": "Files of this name hold credentials: a validator does not look into them",
    "directory": "The path is a directory",
}
