"""Removes characters that hide a secret from a pattern but not from a reader: invisible and full-width characters."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

# In UTF-8: soft hyphen, zero-width spaces and joiners, directions, word joiners, byte-order mark.
_INVISIBLE: Final = r"\xc2\xad|\xe2\x80[\x8b-\x8f\xaa-\xae]|\xe2\x81[\xa0-\xaf]|\xef\xbb\xbf"
# Full-width digits and letters, mathematical letters and digits, and those in circles.
_WIDE: Final = (
    r"\xef\xbc[\x90-\x99\xa1-\xba]|\xef\xbd[\x81-\x9a]|\xf0\x9d[\x90-\x9f]|\xe2\x92[\xb6-\xbf]|\xe2\x93[\x80-\xaa]"
)
HIDING: Final = f"{_INVISIBLE}|{_WIDE}"
"""The pattern of their bytes."""
ESCAPED: Final = (
    "00[aA][dD]|200[b-fB-F]|20[26]|[fF][eE][fF][fF]|[fF][fF][0-5]|[dD]835|24[b-eB-E]|5[bB]|53[eE]3|4[eE][eE]4"
)
"""The beginnings of their escapes in JSON after ``\\u``, and of those of Chinese words for secrets."""
_invisible: Final = re.compile(_INVISIBLE.encode())


def revealed(text: bytes) -> bytes:
    """Return a text in normal form NFKC (UAX #15: full-width letters are plain), without invisible characters."""
    if text.isascii():
        return text
    return unicodedata.normalize("NFKC", _invisible.sub(b"", text).decode(errors="replace")).encode()
