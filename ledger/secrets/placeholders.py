"""Tells placeholders, names and expressions from secrets, for the patterns that need a second look."""

from __future__ import annotations

import functools
import re
from typing import Final

_WORD_FOR_A_SECRET: Final = (
    # A mask, a variable of some language, or the word itself.
    rb"(.)\1*|\$\(?\w+\)?|%\(?\w+\)?[sd%]?|:\w+|(?-i:[A-Z]+(?:_[A-Z]+)+)"
    rb"|(?:(?:your|my|the|some|an?|db|user|api|access|auth|super|top)[._-]?)*"
    rb"(?:password|passwd|passphrase|passwort|passw|pass|pwd|secret|token|key|credentials?)"
    rb"(?:[._-]?(?:here|goes|[0-9]{1,3}))*"
    rb"|(?:change|replace)[._-]?(?:me|it|this)|redacted|removed|masked|hidden|example|placeholder|dummy|fake"
)
_WORDS: Final = rb"(?:[a-z]+|[A-Z]+)(?:[-_](?:[a-z]+|[A-Z]+)){4,}"
_NAME: Final = rb"(?:[A-Z]?[a-z]{2,}+|[A-Z]{2,}+)++|[A-Za-z]"
_NAMES: Final = rb"(?:%b)(?:[._~+/-]++(?:%b))*+" % (_NAME, _NAME)
_NUMBERED: Final = rb"(?:(?:%b)[0-9]{0,4}|[0-9]{1,4})" % _NAME
_NUMBERED_NAMES: Final = rb"%b(?:[._~+/-]++%b)*+=*" % (_NUMBERED, _NUMBERED)
_EXAMPLE: Final = (
    rb"your|example|placeholder|change.?(?:me|it)|redacted|dummy|sample|p[a@]ss-?w[o0]rd|passwd|secret|token|x{4}|\*{3}|\.{3}"
    rb"|1234567|abcdef|abc123|open sesame|gx1fbat3bv"
)
# A variable, an expression, a call or a path (of ``PWD=``), which code and shells have instead of a password.
_EXPRESSION: Final = (
    rb"[$@:+\[(#?_/~.|*!=-].*|%(?![0-9A-F]{2}).*|[A-Za-z_][\w.]*[(\[].*|[A-Za-z]:[\\/].*"
    rb"|(?:\w{1,3}|self|this|args|opts|options|config|settings|params|props|request|data|form)(?:\.[A-Za-z_]\w*)+"
    rb"|(?:admin|root|test|demo|guest|user|null|none)[0-9]{0,4}"
)


@functools.cache
def compiled(pattern: bytes, flags: int = re.IGNORECASE) -> re.Pattern[bytes]:
    """Return the compiled pattern of a placeholder, or of the text beside a secret. It is compiled at first use."""
    return re.compile(pattern, flags)


def is_word_for_a_secret(value: bytes) -> bool:
    """Return whether the value is a mask, a variable, or a word in place of a secret (``your-password``)."""
    return compiled(_WORD_FOR_A_SECRET).fullmatch(value) is not None


def is_example(value: bytes) -> bool:
    """Return whether the value stands in place of a secret, or contains a word of examples, such as ``sample``."""
    return is_word_for_a_secret(value) or compiled(_EXAMPLE).search(value) is not None


def is_expression(value: bytes) -> bool:
    """Return whether the value is code instead of a secret: a variable, an expression, a call or a path."""
    return compiled(_EXPRESSION).fullmatch(value) is not None


def is_words(value: bytes) -> bool:
    """Return whether the value consists of five words or more, joined by dashes."""
    return compiled(_WORDS, 0).fullmatch(value) is not None


def is_names(value: bytes) -> bool:
    """Return whether the value is a name, or several joined names, without digits."""
    return compiled(_NAMES, 0).fullmatch(value) is not None


def is_numbered_names(value: bytes) -> bool:
    """Return whether the value is a name, or several joined names, perhaps with numbers."""
    return compiled(_NUMBERED_NAMES, 0).fullmatch(value) is not None
