"""The words that Baton itself puts into a prompt, and how a reader tells them from the graph's (seed 001).

The headings are the seed's, in the seed's order. ``readable_text`` is the other direction: of a rendered prompt it
returns only what conveys the graph, so that anybody can measure a prompt's fidelity from the prompt and the ref.
CONTEXT is the sender's own summary, TAGS are routing labels, FIDELITY and FULL REASONING speak about the brief:
none of them counts as kept reasoning.
"""

from __future__ import annotations

import re
from typing import Final

CONTEXT: Final = "CONTEXT"
CONCLUSION: Final = "CONCLUSION"
TAGS: Final = "TAGS"
TOP_ASSUMPTIONS: Final = "TOP ASSUMPTIONS"
REASONING_BRIEF: Final = "REASONING BRIEF"
EVIDENCE: Final = "EVIDENCE"
FIDELITY: Final = "FIDELITY"
FULL_REASONING: Final = "FULL REASONING"
HEADINGS: Final = (
    CONTEXT,
    CONCLUSION,
    TAGS,
    TOP_ASSUMPTIONS,
    REASONING_BRIEF,
    EVIDENCE,
    FIDELITY,
    FULL_REASONING,
)

LIMITATION: Final = "Limitation: "
ALTERNATIVE: Final = "Alternative considered: "
CHECK: Final = " CHECK: "
LINKS: Final = "Links: "
OTHER_STEPS: Final = "Other steps:"
STOCK_SENTENCES: Final = (
    "No further step is critical.",
    "No assumption is open.",
    "The full graph has the rest.",
)
"""What fills a brief up to three sentences when the graph is too small to (SEEDS: always 3 to 6 sentences)."""

CUT: Final = "…"

_UNCOUNTED: Final = frozenset({CONTEXT, TAGS, FIDELITY, FULL_REASONING})
_HEADING: Final = re.compile(rf"^({'|'.join(HEADINGS)}):[ \t]?", re.MULTILINE)
_LABELS: Final = re.compile(
    rf"^(?:- )?(?:{LIMITATION}|{ALTERNATIVE}|{OTHER_STEPS})|^{LINKS}.*$|{CHECK.strip()}(?= )|"
    + "|".join(re.escape(sentence) for sentence in STOCK_SENTENCES),
    re.MULTILINE,
)


def readable_text(prompt: str) -> str:
    """Return the lines of a prompt that convey the graph, without headings and labels; plain text stays as it is."""
    kept: list[str] = []
    starts = list(_HEADING.finditer(prompt))
    kept.append(prompt[: starts[0].start()] if starts else prompt)
    for position, match in enumerate(starts):
        end = starts[position + 1].start() if position + 1 < len(starts) else len(prompt)
        if match[1] not in _UNCOUNTED:
            kept.append(prompt[match.end() : end])
    return _LABELS.sub("\n", "\n".join(kept))


def looks_like_heading(line: str) -> bool:
    """Tell whether a line of the graph's own text would read as one of the headings or labels."""
    return bool(_HEADING.match(line)) or bool(_LABELS.match(line))
