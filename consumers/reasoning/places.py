"""Looks up cited places for pages that show the signed text beside the present lines.

All pages use ``Places``, so that two pages never differ. A validator's report says how a place was at that time; it
counts only if there is no work tree. If nobody signed the text of a place (only ``path:line``), it cannot be compared:
its file may still have the line, but with another text.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from deedbook.consumers.reasoning.validator.evidence import HOLDING, Evidence, LookUp, citations_of, is_known, look_up
from deedbook.consumers.reasoning.validator.reads import FileText, Reads, digest_of, file_size_max_bytes
from deedbook.consumers.reasoning.validator.trees import Tree, committed_contents, parts_of
from deedbook.consumers.reasoning.validator.validator import assumptions_of
from deedbook.consumers.sdk.text import cut as cut_to_chars
from deedbook.ledger.client.client import Ask
from deedbook.ledger.events.reasoning import MISSING
from deedbook.ledger.secrets.redaction import redact
from deedbook.projections.reasoning.memory import ReasoningMemory

page_read_max_bytes: Final = 16 * 1024**2
"""All files that one page looks into have at most this size together."""

page_search_max_chars: Final = 32 * 1024**2
"""The limit of searches for moved text on one page: about a second."""

histories_max: Final = 5
"""The number of places on a page for which earlier commits are searched, if only the digest of a text was signed."""

text_shown_max_chars: Final = 2_000
places_of_text_max: Final = 10
ONLY_PLACE: Final = "Only the place was signed, not its text"

_CHANGED: Final = ("file_changed", "line_changed", "no_such_line")
_FRESHNESS: Final = dict.fromkeys(HOLDING, "as_signed") | dict.fromkeys(_CHANGED, "changed") | {"gone": "gone"}
_DOUBT: Final = ("gone", "changed", "not_checkable", "as_signed")
_LINES: Final = r":[1-9][0-9]{0,8}(?:-[1-9][0-9]{0,8})?"
# A remark follows a colon and a space; a quote follows the colon at once.
_CITATION: Final = re.compile(rf"[\w.@+-]+(?:/[\w.@+-]+)*\.[A-Za-z]\w*{_LINES}(?::\S.*)?")
# Within a sentence, a path needs a folder, so that no time (10:30) and no server (localhost:8080) counts as a file.
_PLACE: Final = re.compile(rf"(?<![\w./:@+-])[\w.@+-]+(?:/[\w.@+-]+)+{_LINES}(?!\w)")


class Places:
    """Looks up places for one page: in one tree, each file once."""

    def __init__(self, view: Ask, tree: Tree | None) -> None:
        """Look up files in ``tree`` (None: nowhere), and refs in the ledger of ``view``."""
        self.folder = None if tree is None else str(tree.folder)
        self._reads = Reads(tree, partial(is_known, view))
        self._reads.bytes_left, self._reads.search_chars_left = page_read_max_bytes, page_search_max_chars
        self._histories_left = histories_max

    def of_graph(self, memory: ReasoningMemory, validations: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
        """Return the places that a graph cites, the doubtful ones first.

        Without a tree, the last validation gives them. ``counts`` is the number of ``evidence`` items that are
        as_signed, changed, gone, or not_checkable. ``by`` and ``at_ms`` are those of the validation, if there is no
        tree. Each of ``assumptions`` is held, refuted, settled by agents or not_checked.
        """
        last = next((entry for entry in validations if entry["tree"] != "none"), None) if not self.folder else None
        if last is None:
            rows = [
                self._row(look_up(reference, self._reads, step=step.step_number, cited=cited), cited)
                for step in memory.steps
                for reference, cited in citations_of(step)
            ]
        else:
            rows = [_NOTHING | check | {"freshness": _freshness(check["status"])} for check in last["data"]["evidence"]]
        return {
            "tree": self.folder,
            "by": last and last["author"],
            "at_ms": last and last["accepted_ms"],
            "evidence": _numbered(sorted(rows, key=lambda row: _DOUBT.index(row["freshness"]))),
            "counts": dict(Counter(row["freshness"] for row in rows)),
            "assumptions": [msgspec.to_builtins(check) for check, _ in assumptions_of(memory, self._reads)],
        }

    def of_text(self, *texts: str) -> list[dict[str, Any]]:
        """Return the places that evidence in an agent's own words cites."""
        references = dict.fromkeys(reference for text in texts for reference in places_in(text))
        return _numbered(self._row(look_up(reference, self._reads), "") for reference in references)

    def _row(self, look: LookUp, digest: str) -> dict[str, Any]:
        """Return a place with its ``signed`` text (None: unknown) and its text ``now`` (None: not there)."""
        check, cited = look.check, look.evidence
        row = _NOTHING | {name: getattr(check, name) for name in ("step", "reference", "status", "note")}
        row["freshness"] = _freshness(check.status)
        if cited is None:
            return row
        signed = cited.text or self._signed(look, cited, digest)
        if check.status == "ok" and cited.form == "line" and digest in ("", MISSING):
            row |= {"freshness": "not_checkable", "note": ". ".join(filter(None, (check.note, ONLY_PLACE)))}
        row |= {"path": cited.path, "line": cited.line, "end": cited.end, "now_line": look.line}
        return row | {
            "signed": signed and _shown(signed),
            "now": look.text and _shown(look.text),
        }

    def _signed(self, look: LookUp, cited: Evidence, digest: str) -> str | None:
        """Return the text whose digest an author signed, from the present file or from an earlier commit."""
        if look.text is not None and digest_of(look.text) == digest:
            return look.text
        parts, outcome = parts_of(cited.path)
        if digest in ("", MISSING) or outcome != "file" or self.folder is None or not self._histories_left:
            return None
        self._histories_left -= 1
        for content in committed_contents(Path(self.folder), parts, file_size_max_bytes):
            text = FileText("file", content).cited(cited.line, cited.end or cited.line)
            if text is not None and digest_of(text) == digest:
                return text
        return None


def places_in(text: str) -> list[str]:
    """Return the references to files in evidence that is free text.

    >>> places_in("src/a.py:12:limit = 14"), places_in("42 tests at 10:30, see src/a.py:12-14: all green")
    (['src/a.py:12:limit = 14'], ['src/a.py:12-14'])
    """
    whole = text.strip()
    if _CITATION.fullmatch(whole):
        return [whole]
    return list(dict.fromkeys(match[0] for match in _PLACE.finditer(text)))[:places_of_text_max]


def _shown(text: str) -> str:
    """Return a text, shortened and without secrets: an agent may cite a file that the page's reader must not see."""
    return cut_to_chars(redact(cut_to_chars(text, 2 * text_shown_max_chars)).text, text_shown_max_chars)


def _numbered(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows with their numbers, which the page uses for links."""
    return [row | {"number": number} for number, row in enumerate(rows, 1)]


def _freshness(status: str) -> str:
    return _FRESHNESS.get(status, "not_checkable")


_NOTHING: Final[dict[str, Any]] = {
    "step": None,
    "reference": "",
    "note": "",
    "path": "",
    "line": 0,
    "end": 0,
    "now_line": 0,
    "signed": None,
    "now": None,
}
