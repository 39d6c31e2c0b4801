"""The tags of a reasoning, by which work can be routed without reading it: findings, action, urgency, domain. Pure."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Final

from deedbook.ledger.events.brief import Tag, TagType
from deedbook.ledger.format.chinese import both_scripts
from deedbook.projections.briefs.critical import concluding_steps, fact_text, own_conclusion
from deedbook.projections.briefs.embedding import STOP_WORDS
from deedbook.projections.briefs.text import clauses
from deedbook.projections.reasoning.memory import ReasoningMemory, ReasoningStep
from deedbook.projections.reasoning.outcomes import is_refuted_assumption

tags_max: Final = 8
tag_words_max: Final = 5
identifier_min_chars: Final = 16
_findings_max: Final = 3
_tag_cjk_max_chars: Final = 8

_WORD: Final = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+|\w+")
# Within a tag, between two words: jwt_secret_in_logs.
_PREPOSITIONS: Final = frozenset(
    re.findall(
        r"\w+",
        "in on of at to for from with without by into over under between before after during through across against"
        " around within per than as like near along behind below above",
    )
)
_ARTICLES: Final = frozenset(
    {
        "a",
        "an",
        "the",
        "this",
        "that",
        "these",
        "those",
        "its",
        "their",
        "our",
        "your",
        "his",
        "her",
        "my",
        "all",
        "each",
        "every",
        "any",
        "some",
        "both",
        "most",
        "many",
        "same",
        "own",
        "more",
        "such",
    }
)
_NEGATIONS: Final = frozenset({"not", "no", "never"})
# These words end the phrase of a tag that already has two words.
_BREAKS: Final = frozenset(
    re.findall(r"\w+", "and or but because since so which that who whose when while if unless until although whether")
)
_FILLERS: Final = STOP_WORDS - _PREPOSITIONS - _NEGATIONS - _BREAKS | frozenset(
    re.findall(
        r"\w+",
        "whoever whom anyone somebody someone each every all any some both only just now already still also very more"
        " most much many few about however therefore thus hence indeed actually really appears appear seems seem them"
        " he she his her him us me my yes yeah ok answer option result cannot let lets make sure own same such",
    )
)
# A clause whose subject is only a pronoun. "It is" and "there are" lead to a noun or state, and are not among them.
_PRONOUN: Final = re.compile(
    r"^(?:(?:so|then|now|next|thus|therefore|hence|and|but|also|if|since|because|when|after|in total|th(?:is|at) means)"
    r"(?: that)?,? )*(?:he|she|it|they|this|that|these|those|there|which|who)\b"
    r"(?! (?:is|are|was|were|[a-z]+ (?:is|are|was|were))\b)"
)
# A calculation, such as 60*6=$360, a price and a part of a number end the phrase.
_CALCULATION: Final = re.compile(
    r"(?:\sx\s)?[$€£¥]\s?\d.*|\d[\d.,]*\s*(?:[-+*/x×÷=%–]\s*[$€£¥]?\d|[.,]\d).*|\s[-+*/×÷=]\s.*"
)
_POSSESSING: Final = frozenset({"has", "have", "had"})
# At the end of a cut phrase, these words say nothing without the words that follow.
_HANGING: Final = _POSSESSING | frozenset(
    re.findall(
        r"\w+",
        "made formed caused known found used called given taken left done seen kept held brought put become becomes"
        " get gets goes go went needs need likely usually often once twice always less together back away up"
        " down out off full based able due part kind source example equal similar occur occurs occurred times",
    )
)
_URGENT: Final = re.compile(
    both_scripts(r"\b(immediately|urgent(?:ly)?|right now|at once|asap)\b|立即|立刻|马上|紧急"), re.IGNORECASE
)
_SHORTENED: Final = re.compile(r"(?<=\w)\s?['’](?:re|s|ll|ve|d|m)\b")  # you're, it's
_NOT: Final = re.compile(r"(?<=\bcan)not\b|n['’]t\b")  # cannot, don't
_PHRASE_END: Final = re.compile(r"[.;:,!?]\s|\s\(|[：，。；！？（]|\s[-–—]\s")
_PATIENT: Final = re.compile(
    both_scripts(r"\b(eventually|later|some day|low priority|can wait)\b|以后|稍后|不急"), re.IGNORECASE
)


def tags_of(memory: ReasoningMemory, domain: str | None) -> list[Tag]:
    """Return at most eight tags of four kinds, each with its step."""
    concluding = concluding_steps(memory)
    final = concluding[-1].step_number if concluding else None
    wanted: list[tuple[str, TagType, int | None]] = [
        (snake_case(_finding(step)), "finding", step.step_number) for step in _findings(memory, concluding)
    ]
    wanted.append((snake_case(_URGENT.sub(" ", _PATIENT.sub(" ", memory.conclusion))), "action", final))
    if _URGENT.search(memory.conclusion):
        wanted.append(("high_urgency", "urgency", final))
    elif _PATIENT.search(memory.conclusion):
        wanted.append(("low_urgency", "urgency", final))
    if domain and (words_of_domain := _WORD.findall(domain.lower().replace("_", " "))):
        wanted.append((f"{'_'.join(words_of_domain[:tag_words_max])}_domain", "domain", None))
    tags: dict[str, Tag] = {}
    for tag, kind, step in wanted:
        if tag:
            tags.setdefault(tag, Tag(tag, kind, step))
    return list(tags.values())[:tags_max]


def snake_case(text: str) -> str:
    """Return the first phrase of a text as one label, without function words at its ends; empty for a single word.

    A phrase that is too long is cut before its last preposition, so that no part of it is broken off.

    >>> [snake_case(text) for text in ("The JWT_SECRET appears in the logs", "The pool is closed, so it leaks", "Yes.")]
    ['jwt_secret_in_logs', 'pool_closed', '']
    """
    spelled = _NOT.sub(" not", _SHORTENED.sub("", text.lower()).replace("_", " "))
    spelled, calculations = _CALCULATION.subn("", spelled, count=1)
    phrase = _PHRASE_END.split(spelled, maxsplit=1)[0]
    if _PRONOUN.match(phrase):
        return ""
    telling, is_cut = _telling(phrase)
    is_cut = is_cut or (bool(calculations) and phrase == spelled)
    last = max((at for at, word in enumerate(telling) if word in _PREPOSITIONS), default=0)
    if len(telling) > tag_words_max:
        telling = telling[: last if 1 < last <= tag_words_max else tag_words_max]
    while telling and (telling[-1] in _PREPOSITIONS | _NEGATIONS or (is_cut and _is_hanging(telling))):
        telling.pop()
    return "_".join(telling) if _is_phrase(telling) else ""


def _telling(phrase: str) -> tuple[list[str], bool]:
    """Return the meaningful words of a phrase (one more than a tag has), and whether the phrase continues."""
    telling: list[str] = []
    for word, following in pairwise([*_WORD.findall(phrase), ""]):
        if len(word) >= identifier_min_chars and not word.isalpha():
            continue  # the id of a call or a digest
        if len(telling) > tag_words_max:
            return telling, True
        is_main_verb = word in _POSSESSING and following != "been" and not following.endswith("ed")
        if word in _BREAKS or is_main_verb:
            if len(telling) > 1:
                return telling, True
            telling += [word] * (is_main_verb and bool(telling))
            continue
        is_function = word in _FILLERS
        if is_function and telling and telling[-1] in _PREPOSITIONS and word not in _ARTICLES:
            return telling[:-1], True  # in "by how they are formed", a clause follows the preposition, not a noun
        if not is_function and (telling or word not in _PREPOSITIONS):
            telling.append(word if word.isascii() else word[:_tag_cjk_max_chars])
    return telling, len(telling) > tag_words_max


def _is_hanging(telling: list[str]) -> bool:
    """Return whether the last word of a phrase that continues is a number, an adverb or a participle.

    In a phrase of two words, a participle may be the found state: pool_closed.
    """
    word = telling[-1]
    return word in _HANGING or (len(telling) > 2 and (word.isdigit() or word.endswith(("ed", "ly"))))


def _is_phrase(words: list[str]) -> bool:
    """Return whether words say enough: two, of which one is no number or letter; or one of a script without spaces.

    A number before a single word, such as 8_weeks, says too little.
    """
    said = [word for word in words if word not in _PREPOSITIONS | _NEGATIONS]
    named = [word for word in said if len(word) > 1 and not word.isdigit()]
    is_amount = bool(said) and said[0].isdigit() and len(named) == 1
    return (len(said) > 1 and bool(named) and not is_amount) or any(
        len(word) > 1 and not word.isascii() for word in said
    )


def _findings(memory: ReasoningMemory, concluding: list[ReasoningStep]) -> list[ReasoningStep]:
    premises = {number for step in concluding for number in memory.dependencies.get(step.step_number, ())}
    direct = [step for step in memory.steps if step.step_number in premises]
    candidates = direct or [step for step in memory.steps if step.type != "conclusion"]
    candidates = [step for step in candidates if not is_refuted_assumption(step)]
    return sorted(candidates, key=lambda step: step.type != "inference")[:_findings_max]


def _finding(step: ReasoningStep) -> str:
    return (clauses(own_conclusion(step) or fact_text(step)) or [""])[0]
