r"""Finding credentials before they enter a log that forgets nothing.

Three places look: the author before signing, so that a secret never leaves its process; the gate, for authors in
other languages; and whoever stores a blob that is text. What is found is named by its place and its kind, never by
itself, not even in part. What *looks like* a secret may be judged better tomorrow, so this is no rule of the format:
replay and audits do not ask.

Not looked at: blobs that are binary (compressed and sealed ones are) or longer than ``blob_scan_max_bytes``, text in
another encoding (base64 of a key), and passwords in prose, which no form tells from words. There is no switch. What
only shows the form of a secret passes: masked with ``x``, ``*`` or ``0``, cut short, or words in a token's place.

``PATTERNS`` is what credentials look like, as their issuers publish it. A pattern is anchored on what only that
credential has (a prefix, a header, a length, the name beside it), because a false alarm costs an agent its words and a
log forgets nothing. All run in time linear in the text: RE2 does not backtrack. A row's *trace* finds in an event's
JSON, as it is written, whatever the *pattern* may find in its strings; only where a trace lies are strings looked at
one by one, so that the usual event costs one short search.

A word begins also right after a Chinese character, and after an escaped line break (``\n`` within quoted source).
"""

from __future__ import annotations

import base64
import functools
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from ledger.errors import Refused
from ledger.limits import blob_scan_max_bytes

harmless_max: Final = 1000
"""So many placeholders in one text are looked into; a text with more is refused, which bounds the work."""

_masked_tail_bytes: Final = 12
_name_max_chars: Final = 64
_seed_digits: Final = 64
_MASKS: Final = frozenset(b"xX*0.-_#")

context_max_bytes: Final = 60
pattern_memory_max_bytes: Final = 32 * 1024**2

_START: Final = r"(?:\b|\\[nrt])"
_URLSAFE: Final = "[A-Za-z0-9_-]"
_WORD: Final = "[A-Za-z0-9]"
_BASE64: Final = "[A-Za-z0-9+/]"
# What stands between a name and its value in JSON, YAML, shells and source, quoted or escaped.
_IS: Final = r"""["'\\]*\s*(?:=>|:=|=|:)\s*["'\\]*"""
_BREAK: Final = r"""(?:[\s"'+,>|-]|\\+[nrt])"""
_NEAR: Final = rf"(?s:.){{0,{context_max_bytes}}}?"
# RFC 3986 §3.2.1: everything else in a user's name or password must be percent-encoded.
_USERINFO: Final = "[A-Za-z0-9._~%!$&'()*+,;=-]"
_USER_AND_PASSWORD: Final = rf"{_USERINFO}*:(?:{_USERINFO}|:){{4,}}@[A-Za-z0-9\[%$]"
_AWS_NAME: Final = "(?i:secret_?access_?key|aws_secret_key)"


class Pattern(NamedTuple):
    """The kind of a secret as an error calls it, what betrays it in JSON, and what it looks like."""

    kind: str
    trace: str
    pattern: str


def _token(kind: str, prefix: str, rest: str, trace: str = "") -> Pattern:
    return Pattern(kind, trace or prefix, _START + prefix + rest)


PRIVATE_KEY: Final = "private key"
JWT: Final = "JSON Web Token"
IN_URL: Final = "password in a URL"
KEY_FILE: Final = "Baton key file"

PATTERNS: Final = (
    # RFC 7468 §10 and §11, RFC 1421 (Proc-Type), RFC 4716, RFC 9580 §6.2: the header alone is no key.
    Pattern(
        PRIVATE_KEY,
        "PRIVATE KEY",
        rf"-----BEGIN (?:[A-Z0-9]+ ){{0,3}}PRIVATE KEY(?: BLOCK)?-----{_BREAK}+"
        rf"(?:[A-Za-z][A-Za-z-]*: [^\n\\]*{_BREAK}+)*{_BASE64}{{40}}",
    ),
    # A C2SP signed-note signer, as Go's sumdb writes it.
    Pattern("signed-note key", r"PRIVATE\+KEY\+", rf"PRIVATE\+KEY\+[^\s+]+\+[0-9a-f]{{8}}\+{_BASE64}{{40}}"),
    _token("AWS access key id", "(?:AKIA|ASIA)", r"[A-Z2-7]{16}\b", "(?:AKIA|ASIA)[A-Z2-7]"),
    Pattern("AWS secret access key", _AWS_NAME, rf"{_AWS_NAME}{_IS}{_BASE64}{{40}}(?:[^A-Za-z0-9/+=]|$)"),
    _token("GitHub token", "gh[pousr]_", f"{_WORD}{{36}}"),
    _token("GitHub token", "ghs_", f"(?:[0-9]+_)?eyJ{_URLSAFE}{{20}}"),
    _token("GitHub token", "github_pat_", "[A-Za-z0-9_]{60}"),
    _token("GitLab token", "gl(?:pat|dt|rt|ptt|cbt|agent|oas|soat)-", f"{_URLSAFE}{{20}}"),
    _token("Slack token", "xox(?:[abeoprs]-|e[.]xox[bp]-)", "[A-Za-z0-9-]{20}"),
    _token("Slack token", "xapp-", "[0-9]-[A-Za-z0-9-]{20}"),
    Pattern(
        "Slack webhook",
        r"hooks\.slack\.com",
        r"hooks\.slack\.com/(?:services|workflows|triggers)/[A-Z0-9]{6,}/[A-Z0-9]{6,}/[A-Za-z0-9]{16}",
    ),
    Pattern(
        "Discord webhook",
        "/webhooks/[0-9]",
        rf"discord(?:app)?\.com/api/(?:v[0-9]+/)?webhooks/[0-9]{{17,20}}/{_URLSAFE}{{60}}",
    ),
    _token("Stripe key", "[rs]k_live_", f"{_WORD}{{20}}"),
    _token("OpenAI key", "sk-(?:proj|svcacct|admin)-", f"{_URLSAFE}{{20}}"),
    _token("OpenAI key", "sk-", f"{_WORD}{{20}}T3BlbkFJ{_WORD}{{20}}", "T3BlbkFJ"),
    _token("Anthropic key", "sk-ant-", f"(?:[a-z]+[0-9]+-)?{_URLSAFE}{{20}}"),
    _token("Google API key", "AIza", f"{_URLSAFE}{{35}}"),
    _token("Google OAuth client secret", "GOCSPX-", f"{_URLSAFE}{{28}}"),
    _token("npm token", "npm_", f"{_WORD}{{36}}", f"npm_{_WORD}{{36}}"),
    _token("PyPI token", "pypi-AgE", f"{_URLSAFE}{{16}}"),
    _token("Hugging Face token", "hf_", f"{_WORD}{{34}}", f"hf_{_WORD}{{34}}"),
    _token("SendGrid key", r"SG\.", rf"{_URLSAFE}{{22}}\.{_URLSAFE}{{43}}", rf"SG\.{_URLSAFE}{{22}}\."),
    Pattern("Twilio key", "(?i:twilio)", rf"(?i:twilio){_NEAR}{_START}SK[0-9a-f]{{32}}\b"),
    Pattern("Twilio key", "(?i:twilio)", rf"{_START}SK[0-9a-f]{{32}}\b{_NEAR}(?i:twilio)"),
    Pattern("Twilio token", "(?i:twilio)", rf"(?i:twilio_?auth_?token){_IS}[0-9a-f]{{32}}\b"),
    Pattern(
        "Telegram bot token",
        f"[0-9]:AA{_URLSAFE}{{33}}",
        rf"(?:{_START}|bot)[0-9]{{8,10}}:AA{_URLSAFE}{{33}}(?:[^A-Za-z0-9_-]|$)",
    ),
    # RFC 7519, in the compact form of RFC 7515; the header is decoded after.
    Pattern(
        JWT,
        rf"eyJ{_URLSAFE}{{8,}}\.{_URLSAFE}{{4,}}\.{_URLSAFE}{{20}}",
        rf"{_START}eyJ{_URLSAFE}{{8,}}\.{_URLSAFE}{{4,}}\.{_URLSAFE}{{20}}",
    ),
    Pattern(IN_URL, f"://{_USER_AND_PASSWORD}", rf"[A-Za-z][A-Za-z0-9+.-]*:\\*/\\*/{_USER_AND_PASSWORD}"),
    Pattern(
        "Azure key",
        "(?:Account|SharedAccess)Key=",
        rf"(?:Account|SharedAccess)Key=(?:{_BASE64}{{86}}==|{_BASE64}{{43}}=)",
    ),
    # A NATS nkey seed: 36 bytes of base32, whose first five bits spell S and the next ones the kind of key.
    _token("NATS seed", "S[ACNOUX]", r"[A-Z2-7]{56}\b", "S[ACNOUX][A-Z2-7]{56}"),
    _token("webhook secret", "whs(?:ec|k)_", f"{_BASE64}{{32}}"),
    _token("age key", "AGE-SECRET-KEY-", "(?:PQ-)?1[02-9AC-HJ-NP-Z]{50}"),
    # ``ledger.identity.KeyFile``: a public key beside its seed, or beside the seed sealed with a passphrase.
    Pattern(
        KEY_FILE,
        r'(?:seed|sealed)\\*"\s*:',
        rf'"public{_IS}[0-9a-f]{{64}}[^{{}}]*"(?:seed|sealed){_IS}[0-9a-f]{{64}}',
    ),
)

_PASSWORD: Final = (
    # A mask, a variable of some language, or the word itself.
    rb"(.)\1*|\$\(?\w+\)?|%\(?\w+\)?[sd%]?|:\w+|(?-i:[A-Z]+(?:_[A-Z]+)+)"
    rb"|(?:(?:your|my|the|some|an?|db|user|api|access|auth|super|top)[._-]?)*"
    rb"(?:password|passwd|passphrase|passwort|passw|pass|pwd|secret|token|key|credentials?)"
    rb"(?:[._-]?(?:here|goes|[0-9]{1,3}))*"
    rb"|(?:change|replace)[._-]?(?:me|it|this)|redacted|removed|masked|hidden|example|placeholder|dummy|fake"
)
_WORDS: Final = rb"(?:[a-z]+|[A-Z]+)(?:[-_](?:[a-z]+|[A-Z]+)){4,}"

# An escape may spell any character of a secret (``\u0067hp_``) or of a URL (``:\/\/``): then the strings tell.
_ESCAPES: Final = r"\\u00[2-7]|\\/"


class Secret(NamedTuple):
    """Where something that looks like a secret stands (as ``$.data.finding``), and what kind of secret it is."""

    path: str
    kind: str


def scan(value: Any, path: str = "$") -> Secret | None:
    """Return the first secret in the strings and keys of plain decoded JSON; ``path`` is the value's own.

    Each string is read with the key it stands under, because some credentials are only known by their name.
    """
    waiting: list[tuple[str, str, Any]] = [(path, "", value)]
    while waiting:
        here, name, node = waiting.pop()
        if isinstance(node, str):
            kind = _kind_of(f"{name}={node}".encode(errors="replace") if name else node.encode(errors="replace"))
            if kind is not None:
                return Secret(here, kind)
        elif isinstance(node, dict):
            for key in node:
                kind = _kind_of(str(key).encode(errors="replace"))
                if kind is not None:
                    return Secret(f"{here}[...]", kind)  # the key is the secret, so it is not shown
            if _is_key_file(node):
                return Secret(here, KEY_FILE)
            waiting += reversed(list(_fields(here, node)))
        elif isinstance(node, list):
            waiting += reversed([(f"{here}[{place}]", name, item) for place, item in enumerate(node)])
    return None


def scan_bodies(bodies: Sequence[bytes]) -> dict[int, Secret]:
    """Return the first secret of each event's body that holds one, by position: head and data are looked at.

    Bodies must be JSON. Those without a trace of a secret, which are nearly all, cost one search over all of them.
    """
    search = traces().search
    if search(b"\n".join(bodies)) is None:
        return {}
    secrets = {position: scan(msgspec.json.decode(body)) for position, body in enumerate(bodies) if search(body)}
    return {position: secret for position, secret in secrets.items() if secret is not None}


def refusal(secret: Secret) -> Refused:
    """Return the refusal that says where it stands and what to write instead."""
    return Refused(
        "SECRET_DETECTED",
        f"{secret.path} holds what looks like a secret ({secret.kind}), and a ledger forgets nothing: write where it "
        "is kept (the name of a variable, a path in a vault), or mask it with x",
        path=secret.path,
        secret=secret.kind,
    )


def check_text(content: bytes) -> None:
    """Refuse a blob that is text, of at most ``blob_scan_max_bytes``, and holds a secret.

    Raises:
        Refused: ``SECRET_DETECTED``.
    """
    if len(content) > blob_scan_max_bytes or not _is_text(content):
        return
    kind = _kind_of(content)
    if kind is not None:
        raise refusal(Secret("the blob", kind))


def _fields(path: str, fields: dict[Any, Any]) -> Iterator[tuple[str, str, Any]]:
    for key, value in fields.items():
        name = str(key)
        is_name = len(name) <= _name_max_chars and name.isascii() and name.replace("-", "_").isidentifier()
        yield (f"{path}.{name}" if is_name else f"{path}[...]", name if is_name else "", value)


def _is_key_file(fields: dict[Any, Any]) -> bool:
    """Tell whether these are the fields of ``ledger.identity.KeyFile``, which no string of them shows by itself."""
    hidden = fields.get("seed") or fields.get("sealed")
    return "public" in fields and isinstance(hidden, str) and len(hidden) >= _seed_digits


def _is_text(content: bytes) -> bool:
    if b"\0" in content:
        return False
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


def _kind_of(text: bytes) -> str | None:
    for count, match in enumerate(_patterns().finditer(text), 1):
        kind = PATTERNS[int(match.lastgroup[1:])].kind
        if count > harmless_max or not _is_harmless(kind, match.group()):
            return kind
    return None


def _is_harmless(kind: str, text: bytes) -> bool:
    """Tell whether what has the form of a secret only shows the form."""
    if kind == IN_URL:
        user, _, password = text[: text.rindex(b"@")].rpartition(b"/")[2].partition(b":")
        return password == user or _placeholders().password.fullmatch(password) is not None
    if kind == JWT and not _names_its_algorithm(text[text.index(b"eyJ") : text.index(b".")]):
        return True
    tail = set(text[-_masked_tail_bytes - 1 : -1])  # the last character may be what ended the match
    return (len(tail) == 1 and tail <= _MASKS) or _placeholders().words.fullmatch(text) is not None


def _names_its_algorithm(header: bytes) -> bool:
    """Tell whether this is the header of a JSON Web Token: an object with ``alg`` (RFC 7515 §4.1.1)."""
    try:
        fields = msgspec.json.decode(base64.urlsafe_b64decode(header + b"=" * (-len(header) % 4)))
    except (ValueError, RecursionError, msgspec.DecodeError):
        return False
    return isinstance(fields, dict) and "alg" in fields


@functools.cache
def traces() -> Any:
    """Return the compiled search for a trace of any secret in JSON as it is written."""
    return _compiled("|".join([*dict.fromkeys(row.trace for row in PATTERNS), _ESCAPES]))


@functools.cache
def _patterns() -> Any:
    """Return the compiled search for any secret in a text; group ``sN`` is row N of the table."""
    return _compiled("|".join(f"(?P<s{number}>{row.pattern})" for number, row in enumerate(PATTERNS)))


class _Placeholders(NamedTuple):
    """What stands for a password in a URL, and words joined where a token would be random."""

    password: re.Pattern[bytes]
    words: re.Pattern[bytes]


@functools.cache
def _placeholders() -> _Placeholders:
    """Return the compiled patterns of what only shows the form of a secret."""
    return _Placeholders(re.compile(_PASSWORD, re.IGNORECASE), re.compile(_WORDS))


def _compiled(pattern: str) -> Any:
    import re2  # noqa: PLC0415 - reading needs no patterns

    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1  # a character is a byte: a tenth of the states
    options.max_mem = pattern_memory_max_bytes
    options.log_errors = False
    return re2.compile(pattern.encode(), options)
