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
OTHER_STEPS: Final = "Other steps:"
CHECK: Final = "CHECK: "
POINTER: Final = "Available via reasoning_ref="
CALL: Final = "Call: snapshot_provider.get_full_reasoning(reasoning_ref)"
CUT: Final = "…"

_UNCOUNTED: Final = frozenset({CONTEXT, TAGS, FIDELITY, FULL_REASONING})
_HEADING: Final = re.compile(rf"^({'|'.join(HEADINGS)}):[ \t]?", re.MULTILINE)
_LINK: Final = r"\[#\d+(?:<[\d,]+)?\]"
_COUNTS: Final = r"The graph has \d+ steps?\.|Of these, \d+ (?:is|are) critical\.|This brief leaves out \d+ of them\."
_LABELS: Final = re.compile(
    rf"^(?:- )?(?:{LIMITATION}|{ALTERNATIVE}|{OTHER_STEPS})|\({CHECK}|{_LINK}|{_COUNTS}|{CUT}", re.MULTILINE
)


def link(step: int, premises: list[int]) -> str:
    """Return the label that says which step a fact is and which steps it rests on."""
    return f"[#{step}{'<' if premises else ''}{','.join(str(number) for number in premises)}]"


def counting_sentences(steps: int, critical: int, left_out: int) -> list[str]:
    """Return the sentences that fill a brief up to three when the graph has too few facts (SEEDS: 3 to 6 always)."""
    return [
        f"The graph has {steps} step{'' if steps == 1 else 's'}.",
        f"Of these, {critical} {'is' if critical == 1 else 'are'} critical.",
        f"This brief leaves out {left_out} of them.",
    ]


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
