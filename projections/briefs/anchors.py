"""The anchors of a text: strings that must survive letter by letter.

There are four kinds: numbers, paths (with a line if there is one), identifiers and hashes. A word can be paraphrased;
``30``, ``api/auth.py:23``, ``JWT_SECRET`` and a hash cannot. Anchors are compared as a set of exact spellings. Numbers
are compared without thousands separators and trailing zeros.
"""

from __future__ import annotations

import re
from typing import Final

_CHUNK: Final = re.compile(r"(?:[A-Za-z0-9_~@./\\-]|(?<=[0-9]),(?=[0-9]{3}))+(?:\(\))?(?::[0-9]+)?")
_TRAILING: Final = ".-,"
_HASH: Final = re.compile(r"(?=.*[0-9])(?=.*[a-f])[0-9a-f]{12,128}")
_NUMBER: Final = re.compile(r"(?<![A-Za-z0-9_.])(?:(?<![\w)\]])-)?[0-9]+(?:,[0-9]{3})*(?:\.[0-9]+)?")
_FILE: Final = re.compile(
    r".*[A-Za-z0-9_]\.(?:py|pyi|js|ts|tsx|jsx|json|jsonl|ya?ml|toml|ini|cfg|conf|env|md|txt|log|rs|go|c|h|cc|cpp|hpp"
    r"|java|kt|rb|php|sh|sql|html|css|csv|xml|lock|example|pdf|db)(?::[0-9]+)?",
    re.IGNORECASE,
)
_DOTTED: Final = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*){2,}(?:\(\))?", re.ASCII)
_WORD: Final = re.compile(r"[A-Za-z]\w*", re.ASCII)
_WORD_WITH_NUMBER: Final = re.compile(r"[A-Za-z]+[0-9]")
_CAMEL: Final = re.compile("[a-z][A-Z]")
_EVIDENCE: Final = re.compile(r"(?P<location>[^:\s][^:\n]*:[0-9]+)(?::|$)")


def anchors(text: str) -> frozenset[str]:
    """Return the numbers, paths, identifiers and hashes of a text, each in the form to compare."""
    spellings: set[str] = set()
    for match in _CHUNK.finditer(text):
        chunk = match[0]
        if chunk.isalpha() and not _CAMEL.search(chunk):
            continue  # Most of a text is plain words.
        chunk = chunk.rstrip(_TRAILING)
        if _is_whole_anchor(chunk):
            spellings.add(chunk)
        else:
            spellings.update(number_value(number) for number in _NUMBER.findall(chunk))
    return frozenset(spellings)


def number_value(spelling: str) -> str:
    """Return a number in the form to compare: no thousands separators, no trailing zeros of a fraction."""
    plain = spelling.replace(",", "")
    return plain.rstrip("0").rstrip(".") if "." in plain else plain


def evidence_location(evidence: str) -> str:
    """Return ``path:line`` of an evidence reference, or the whole trimmed text if it has another form."""
    match = _EVIDENCE.match(evidence.strip())
    return match["location"] if match else evidence.strip()


def _is_whole_anchor(chunk: str) -> bool:
    if not any(sign.isalpha() for sign in chunk):
        return False
    if _HASH.fullmatch(chunk) or _FILE.fullmatch(chunk) or _DOTTED.fullmatch(chunk):
        return True
    if "/" in chunk or "\\" in chunk:
        # "and/or" is prose; "logs/", "./run" and "a/b/c" are places.
        return chunk.count("/") > 1 or chunk.endswith("/") or chunk.startswith(("/", "./", "~")) or ":" in chunk
    return _is_name(chunk.removesuffix("()")) or (":" in chunk and "." in chunk)


def _is_name(chunk: str) -> bool:
    # No single pattern: one for all three forms takes quadratic time on a long run of underscores.
    if not _WORD.fullmatch(chunk):
        return False
    return "_" in chunk.strip("_") or bool(_CAMEL.search(chunk)) or bool(_WORD_WITH_NUMBER.match(chunk))
