r"""Finds secrets that only the name beside them reveals: ``DB_PASSWORD=…``, ``X-Api-Key: …``, ``--token …``.

Such a secret has no form of its own. So two conditions must hold: the name ends in a word for secrets, and nobody would
write the value as a word. Placeholders, variables, calls, paths, versions, dates, and names joined by dots and dashes
are harmless. Any other value is a secret if its characters look random (Shannon's entropy), and if it has at least 8
characters beside a word for passwords, or 12 beside another word.

A digest or a UUID beside a bare word (``token: 3f2a…``) passes, because logs and this ledger are full of them. Beside a
longer name (``HEROKU_API_KEY=…``), in a header or in an option it is a secret. Not found: a password of letters alone
that reads like words (``password=wonderland``), and a secret that a sentence separates from its name.

The names are those of gitleaks' rule ``generic-api-key``, which rejects harmless values by a list of words instead.
"""

from __future__ import annotations

import functools
import math
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from deedbook.ledger.secrets.linear import compile_linear
from deedbook.ledger.secrets.placeholders import (
    compiled,
    is_expression,
    is_names,
    is_numbered_names,
    is_word_for_a_secret,
)

NAMED: Final = "secret beside its name"
QUOTED: Final = "secret after its name"
COOKIE: Final = "secret in a cookie"
LOGIN: Final = "user and password of a command"

password_min_chars: Final = 8
secret_min_chars: Final = 12
cookie_min_chars: Final = 16
quoted_min_chars: Final = 20
letters_min_chars: Final = 16
"""A value of letters alone is a secret only with this many letters, of upper and lower case."""
entropy_min_bits: Final = 2.8
password_entropy_min_bits: Final = 2.0
name_max_bytes: Final = 60
named_max: Final = 20_000

_PASSWORDS: Final = (
    "password|passwort|passwd|passphrase|passcode|pass_key|pwd|密码|密碼|口令|パスワード|비밀번호"
    "|kennwort|contrasena|mot[ _-]?de[ _-]?passe|senha|wachtwoord"
    # The search folds the case of ASCII only.
    "|(?:п|П)ароль|ПАРОЛЬ|contrase(?:ñ|Ñ)a|has(?:ł|Ł)o|l(?:ö|Ö)senord|(?:ş|Ş)ifre"
    "|(?:db|mysql|postgres|redis|smtp|mail|ldap|ftp|ssh|become|sudo|root|admin|user)_pass"
)
_SECRETS: Final = (
    "secret|token|(?:api|access|secret|private|auth|encryption|master|account|subscription|app)[_-]?key"
    "|credentials?|密钥|密鑰|令牌"
)
_WORDS: Final = f"(?i:{_PASSWORDS}|{_SECRETS})(?:_?(?:value|[0-9]{{1,2}}))?"
_QUOTE: Final = r"""["'\\`*]*"""
_VALUE: Final = r"""[^\x00-\x20\x7f-\xff"'`<>\\;,]{6,}"""
_TYPE: Final = r"[A-Za-z][A-Za-z\[\]. |]{0,30}"
_SIGN: Final = rf"(?:=>|:=|\?=|===?|=|:\s*{_TYPE}=|:)"
_SCHEME: Final = r"""(?:(?i:bearer|basic|digest|token|bot|api-?key|key) +|[bfru]["'])?"""
_IS: Final = rf"{_QUOTE}\]?\s*{_SIGN}\**\s*{_QUOTE}{_SCHEME}"
_DASHES: Final = r"""(?:^|[\s"'`(\[])--?[A-Za-z0-9-]{0,40}?"""

_PORT: Final = r"(?:[0-9]{4,5}|\*)"
_USER: Final = r"(?:\*|[\w.-]{2,63})"

FORMS: Final = (
    (NAMED, rf"{_DASHES}{_WORDS}[\s=]+{_QUOTE}", _VALUE),
    (NAMED, rf"{_WORDS}{_IS}", _VALUE),
    (NAMED, rf"\b(?i:authorization){_IS}", _VALUE),
    (COOKIE, rf"\b(?i:(?:set-)?cookies?){_QUOTE}\s*[:=]\s*{_QUOTE}", r"""[^\s=;:"'\\]{1,60}=[^\r\n"'\\]{8,}"""),
    (NAMED, rf"{_WORDS}>", _VALUE),  # an element of XML
    (QUOTED, rf"""{_WORDS}["']\s+value\s*=\s*["']""", _VALUE),  # two attributes of an element
    (QUOTED, rf"""\(\s*["'][\w.-]{{0,40}}?{_WORDS}["']\s*,\s*["']""", _VALUE),  # a call: define("NAME", "…")
    (QUOTED, rf"\|[ \t]+{_QUOTE}[\w.-]{{0,40}}?{_WORDS}{_QUOTE}[ \t]+\|[ \t]+{_QUOTE}", _VALUE),  # cells of a table
    (LOGIN, r"\bmachine\s+\S{1,255}\s+login\s+\S{1,255}\s+password\s+", _VALUE),
    (LOGIN, rf"\b(?:sshpass|redis-cli|(?:docker|podman) login)\b[^\n|;&]{{0,80}}?\s-[ap][ =]*{_QUOTE}", _VALUE),
    (LOGIN, rf"\bmysql(?:dump|admin)?\b[^\n|;&]{{0,80}}?\s-p{_QUOTE}", _VALUE),
    (LOGIN, r"-pass(?:in|out)?\s+pass:", _VALUE),  # openssl
    # A line of .pgpass.
    (
        LOGIN,
        r"(?:(?m:^)[ \t`]*|=)[A-Za-z0-9.*_-]{1,255}:(?:[0-9]{4,5}|\*):(?:\*|[A-Za-z_][\w-]{1,62}):(?:\*|[\w.-]{2,63}):",
        _VALUE,
    ),
    (LOGIN, rf"""(?:^|[\s"'`])(?:-u|--user|--proxy-user)[ =]*{_QUOTE}[^\s:="'\\$<{{/]{{1,60}}:""", _VALUE),
)
# The characters between a name and its value, such as quotes and line breaks, as JSON encodes them.
_IN_JSON: Final = r"""(?:["'\\`*\]\s=]|\\[nrt])*"""
# Unlike in ``FORMS``, the length of an option has no limit here: RE2 needs a state for each character that it counts,
# and would build new states for each random salt (this took two thirds of the search time).
TRACE: Final = (
    rf"{_WORDS}{_IN_JSON}(?:[=:?>,|]|value|\xef\xbc[\x9a\x9d])|-[A-Za-z0-9-]*{_WORDS}(?:[\s=]|\\)"
    rf"|(?i:authorization|cookies?){_IN_JSON}[:=]|(?:-u|--user|--proxy-user)[ =\\\"'][^:]{{1,62}}:"
    r"|machine(?:\s|\\[nrt])|sshpass|redis-cli|(?:docker|podman) login|mysql|-pass(?:in|out)?\s"
    rf"|:{_PORT}:[\w*]"
)

_BARE: Final = re.compile(
    r"(?:password|passwort|passwd|passphrase|passcode|pwd|secret|token|credentials?|密码|密碼|口令|密钥|密鑰|令牌"
    r"|パスワード|비밀번호|пароль|kennwort|contraseña|contrasena|senha|wachtwoord|hasło|lösenord|şifre)\d?"
)
_FOR_PASSWORDS: Final = re.compile(f"(?i:{_PASSWORDS})[0-9]?$")
# Names that end like those of secrets but are not: cursors, nonces of forms, marks of language models, and words about
# the naming, finding or counting of secrets.
_OTHER_NAMES: Final = re.compile(
    r"(?i)(?:next|prev(?:ious)?|page|continuation|cursor|sync|resume|cancel(?:lation)?|csrf|xsrf|idempotency|client"
    r"|eos|bos|pad|unk|sep|cls|stop|start|end|special|mask|prompt|input|output|per|max|min|public|no|if)[_. -]*token"
)
_STAND_INS: Final = (
    rb"your|p[a@]ss-?w[o0]rd|example|placeholder|change.?(?:me|it)|redacted|dummy|sample|x{4}|\*{3}|\.{3}|1234567|abcdef"
    rb"|abc123"
)
_DIGEST: Final = rb"(?i:[0-9a-f]{32}|[0-9a-f]{40}|[0-9a-f]{64}|[0-9a-f]{96}|[0-9a-f]{128})"
_UUID: Final = rb"(?i:[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12})"
_REFERENCE: Final = (
    rb"(?i:[a-z][a-z0-9]{1,12}[:-][0-9a-f]{32,}|sha(?:256|384|512)-[a-z0-9+/]+=*)|[a-z][a-z0-9+.-]*://.*"
    rb"|vault:[a-z0-9/_.-]+#[a-z0-9_.-]+"
)
_IDENTIFIERS: Final = rb"[A-Za-z_]\w{0,30}(?:\.[A-Za-z_]\w{0,30})+"
_MOMENT: Final = rb"[0-9][0-9:.,_+/TZ-]*"
_LONG_NUMBER: Final = rb"[0-9]{5,14}"
# In a call, a cell or an attribute, the value after a name may also be a message or label. So a
# short value counts as a secret only in this form.
_CHOSEN: Final = rb"[A-Za-z0-9!@#$%^&*+/_]{12,}"
# Names of algorithms and encodings, ordinals and units: their digits do not make a word random.
_TERMS: Final = (
    rb"(?i)argon2i?d?|pbkdf2|sha-?(?:1|2|3|224|256|384|512)|md5|base(?:16|32|58|64)|utf-?(?:8|16)|oauth2?|x509|ed25519"
    rb"|[hrep]s(?:256|384|512)|aes-?(?:128|192|256)|k8s|i18n|b64|http2|ipv[46]|s3|ec2|p256"
    rb"|(?<![a-z0-9])[0-9]+(?:st|nd|rd|th|ms|s|min|h|d|k|[kmg]i?b)(?![a-z0-9])"
)


@functools.cache
def _forms() -> Any:
    """Return the compiled search for all forms; group N is the value of the Nth."""
    return compile_linear("|".join(f"{start}({value})" for _, start, value in FORMS))


def named_secrets(text: bytes) -> Iterator[tuple[str, int, int]]:
    """Yield the kind, the start and the end of each secret that the name beside it reveals.

    In a text with more than ``named_max`` values, the rest count as secrets, which limits the work.
    """
    for count, match in enumerate(_forms().finditer(text), 1):
        kind, (start, end) = FORMS[match.lastindex - 1][0], match.span(match.lastindex)
        if count > named_max or _is_found(kind, text, (match.start(), start, end)):
            yield kind, start, end


def _is_found(kind: str, text: bytes, span: tuple[int, int, int]) -> bool:
    """Return whether the name and the value at these bytes are those of a secret."""
    start, middle, end = span
    value = text[middle:end]
    if kind == COOKIE:
        return any(_is_random(cookie, cookie_min_chars) for cookie in _cookies(value))
    if kind == LOGIN:
        return _is_password(_trimmed(value), is_named=True)
    if kind == QUOTED and not (len(value) >= quoted_min_chars or compiled(_CHOSEN).fullmatch(value)):
        return False
    before = text[start:middle]
    return _is_secret(
        _name(text, start, middle), _trimmed(value), before, is_quoted=before.endswith((b'"', b"'", b"`"))
    )


def _is_secret(name: str, value: bytes, before: bytes, *, is_quoted: bool) -> bool:
    """Return whether the value beside this name is a secret. ``before`` is the text from the name to the value."""
    if _OTHER_NAMES.search(name):
        return False
    is_assigned = b"=" in before and not before.endswith(b" ")
    is_named = (
        _BARE.fullmatch(name.strip("_-.").lower()) is None or name.startswith("-") or (name.isupper() and is_assigned)
    )
    if not is_named and compiled(rb"%b|%b" % (_DIGEST, _UUID), 0).fullmatch(value):
        return False
    if not (is_named or is_quoted) and compiled(_IDENTIFIERS, 0).fullmatch(value):
        return False
    if _FOR_PASSWORDS.search(name):
        return _is_password(value, is_named=is_named or is_quoted or is_assigned)
    return _is_random(value, secret_min_chars)


def _is_password(value: bytes, *, is_named: bool) -> bool:
    """Return whether this is a password that people or programs chose.

    With ``is_named``, a value that consists of names and numbers may be a password, too.
    """
    if len(value) < password_min_chars or _is_harmless(value) or is_expression(value):
        return False
    if is_names(value) or (not is_named and is_numbered_names(value)):
        return False
    return _varies(value, password_entropy_min_bits)


def _is_random(value: bytes, least: int) -> bool:
    if len(value) < least or _is_harmless(value):
        return False
    if is_numbered_names(value.replace(b":", b"/")) or is_expression(value.lstrip(b"/_+-")):
        return False
    return _varies(value, entropy_min_bits)


def _is_harmless(value: bytes) -> bool:
    if (
        value.startswith(b"{")
        or is_word_for_a_secret(value)
        or compiled(_STAND_INS).search(value)
        or compiled(_REFERENCE).fullmatch(value)
    ):
        return True
    if compiled(_MOMENT, 0).fullmatch(value):
        return True
    plain = compiled(_LONG_NUMBER).sub(b"0", compiled(_TERMS, 0).sub(b"", value))
    return plain != value and (not plain or is_numbered_names(plain.strip(b"._~+/-")))


def _varies(value: bytes, least_bits: float) -> bool:
    """Return whether the characters of a value are of several types, and distributed like those of a secret."""
    letters = [byte for byte in value if chr(byte).isalpha()]
    if not letters or _bits(value) < least_bits:
        return False
    if len(letters) < len(value):
        return any(chr(byte).isdigit() for byte in value) or any(byte in b"!@#$%^&*" for byte in value)
    return len(value) >= letters_min_chars and not value.islower() and not value.isupper() and not is_names(value)


def _bits(value: bytes) -> float:
    """Return the entropy of a value's characters, in bits a character."""
    return -sum(count / len(value) * math.log2(count / len(value)) for count in Counter(value).values())


def _cookies(value: bytes) -> Iterator[bytes]:
    """Yield the values of a header's cookies."""
    for pair in value.split(b";"):
        yield pair.partition(b"=")[2].strip()


def _trimmed(value: bytes) -> bytes:
    """Return a value without what follows it in a query, a call or a sentence."""
    return re.split(rb"&(?=\w+=)|\\u0026", value)[0].rstrip(b".,:!?)]}|*").removeprefix(b"[")


def _name(text: bytes, start: int, end: int) -> str:
    """Return the whole name; a form found its last word at ``start``."""
    before = re.search(rb"[A-Za-z0-9_.-]*$", text[max(0, start - name_max_bytes) : start])
    here = re.match(rb"[\s\"'`(\[|*]*([A-Za-z0-9_.\x80-\xff-]+)", text[start:end])
    return ((before.group() if before else b"") + (here[1] if here else b"")).decode(errors="replace")
