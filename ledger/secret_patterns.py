r"""What credentials look like, as their issuers publish it: one table of traces and patterns, compiled by RE2.

A pattern is anchored on what only that credential has (a prefix, a header, a length, the name beside it), because a
false alarm costs an agent its words and a log forgets nothing. All run in time linear in the text: RE2 does not
backtrack. A row's *trace* finds in an event's JSON, as it is written, whatever the *pattern* may find in its
strings; only where a trace lies are strings looked at one by one, so that the usual event costs one short search.

Words are of ASCII, so a token right after a Chinese character begins one; and so does a token after an escaped line
break (``\n`` within quoted source or JSON).
"""

from __future__ import annotations

import functools
import re
from typing import Any, Final, NamedTuple

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
    """The sort of a secret as an error calls it, what betrays it in JSON, and what it looks like."""

    sort: str
    trace: str
    pattern: str


def _token(sort: str, prefix: str, rest: str, trace: str = "") -> Pattern:
    return Pattern(sort, trace or prefix, _START + prefix + rest)


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
    # A NATS nkey seed: 36 bytes of base32, whose first five bits spell S and the next ones the sort of key.
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


@functools.cache
def traces() -> Any:
    """Return the compiled search for a trace of any secret in JSON as it is written."""
    return _compiled("|".join([*dict.fromkeys(one.trace for one in PATTERNS), _ESCAPES]))


@functools.cache
def patterns() -> Any:
    """Return the compiled search for any secret in a text; group ``sN`` is row N of the table."""
    return _compiled("|".join(f"(?P<s{number}>{one.pattern})" for number, one in enumerate(PATTERNS)))


class Placeholders(NamedTuple):
    """What stands for a password in a URL, and words joined where a token would be random."""

    password: re.Pattern[bytes]
    words: re.Pattern[bytes]


@functools.cache
def placeholders() -> Placeholders:
    """Return the compiled patterns of what only shows the form of a secret."""
    return Placeholders(re.compile(_PASSWORD, re.IGNORECASE), re.compile(_WORDS))


def _compiled(pattern: str) -> Any:
    import re2  # noqa: PLC0415 - reading needs no patterns

    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1  # a character is a byte: a tenth of the states
    options.max_mem = pattern_memory_max_bytes
    options.log_errors = False
    return re2.compile(pattern.encode(), options)
