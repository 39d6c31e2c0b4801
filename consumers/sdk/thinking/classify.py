"""What sort of step a text is, by its wording alone, in English and Chinese (seed 001, ``classify_step_type``).

This is guessing, and says so: whoever uses it marks the value as inferred. Only a label that the text itself bears
("Observation: …", "结论：…") is a statement. A text without any cue is an observation, the type that claims least.
"""

from __future__ import annotations

import re
from typing import Final

_LABELS: Final = {
    "observation": "observation|fact|观察|事实|现象",
    "inference": "inference|deduction|推断|推理|推论",
    "assumption": "assumption|假设|假定|前提",
    "hypothesis": "hypothesis|假说|猜想|猜测",
    "conclusion": "(?:final )?(?:conclusion|answer)|结论|最终答案|答案",
}
_LABEL: Final = re.compile(
    r"[ \t#>*_]*+(?:"
    + "|".join(f"(?P<{name}>{words})" for name, words in _LABELS.items())
    + r")[ \t]*+\d{0,3}[ \t*_]*+[:：]",
    re.IGNORECASE,
)
_CUES: Final = (
    (
        "conclusion",
        (
            r"\b(?:in conclusion|to conclude|in summary|to sum up|(?:the|my) (?:final )?(?:answer|conclusion) is"
            r"|(?:i|we) conclude)\b|综上|总之|结论是|总的来说|总结一下|最终答案|答案[是为]|由此得出结论"
        ),
    ),
    (
        "assumption",
        (
            r"\b(?:assum(?:e|es|ed|ing|ption|ptions)|presum(?:e|es|ed|ing|ably)|take (?:it )?for granted)\b"
            r"|假设|假定|默认为|想必|姑且认为"
        ),
    ),
    (
        "hypothesis",
        (
            r"\b(?:hypothes[ie]s|hypothesi[sz]e|perhaps|maybe|possibly|what if|suppose|i suspect|my guess"
            r"|(?:might|may|could) (?:be|have)|(?:it is|it's|is) (?:likely|possible|plausible))\b"
            r"|假说|猜想|猜测|也许|或许|(?<!不)可能|怀疑|会不会"
        ),
    ),
    (
        "inference",
        (
            r"\b(?:therefore|thus|hence|consequently|because|since(?! \d)|(?:which|this|that) means"
            r"|impl(?:y|ies|ied)|it follows|follows from|must (?:be|have)|as a result|suggests?)\b|^\W*+so\b(?! far)"
            r"|因此|所以|因为|由于|说明|意味着|可见|于是|推断|推出|可得|那么|从而"
        ),
    ),
)
_REASONING_CUES: Final = (
    (
        "analogical",
        (
            r"\b(?:analog(?:y|ous|ously|ies)|similar(?:ly)? to|similarly|just (?:like|as)|in the same way|reminds me)\b"
            r"|类比|类似|如同|好比|就像|同理"
        ),
    ),
    (
        "abductive",
        (
            r"\b(?:(?:best|likely|likeliest|simplest|plausible) explanation|(?:would|could|might) explain|explains why"
            r"|(?:probably|likely|perhaps) because|suggests?|i suspect|must have been)\b"
            r"|最可能的(?:原因|解释)|可能是因为|解释了|合理的解释|怀疑是"
        ),
    ),
    (
        "inductive",
        (
            r"\b(?:in general|generally|usually|typically|tends? to|every time|always|so far|in (?:all|most|every) case"
            r"|the pattern)\b|通常|一般来说|往往|总是|每次|规律|归纳"
        ),
    ),
    (
        "deductive",
        (
            r"\b(?:therefore|thus|hence|it follows|follows from|necessarily|by definition|must be|implies)\b"
            r"|^\W*+so\b(?! far)|因此|所以|必然|必定|可得|推出|由此|意味着"
        ),
    ),
)


def _compile(cues: tuple[tuple[str, str], ...]) -> tuple[tuple[str, re.Pattern[str]], ...]:
    return tuple((name, re.compile(pattern, re.IGNORECASE)) for name, pattern in cues)


_STEP_CUES: Final = _compile(_CUES)
_TYPE_CUES: Final = _compile(_REASONING_CUES)


def stated_step_type(text: str) -> str | None:
    """Return the type that a text gives itself by a label at its start, or None."""
    label = _LABEL.match(text)
    return label.lastgroup if label else None


def classify_step_type(text: str) -> str:
    """Return the type of a step: by its label, else by the first cue found, else ``observation`` (seed 001)."""
    return stated_step_type(text) or _first(_STEP_CUES, text) or "observation"


def infer_reasoning_type(text: str) -> str:
    """Return how a step infers, as far as its wording tells; empty when it does not (seed 001)."""
    return _first(_TYPE_CUES, text) or ""


def _first(cues: tuple[tuple[str, re.Pattern[str]], ...], text: str) -> str | None:
    return next((name for name, pattern in cues if pattern.search(text)), None)
