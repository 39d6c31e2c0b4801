r"""The patterns of credentials, as their issuers publish them, and the rules for harmless text that looks like one.

A pattern is anchored on a feature that only that credential has (a prefix, a header, a length, the name beside it),
because a false alarm costs an agent its text and a miss stays in the log forever. RE2 does not backtrack, so all run in
time linear in the text. A row's *trace* matches an event's JSON wherever its *pattern* may match one of the strings.

Four patterns match too much, so a second check in Python decides. The text after ``Bearer`` must not be words. The text
after ``Basic`` or beside ``auth`` must decode to a user and a password. Base64 of a PEM header must decode to a private
key. ``password=`` counts only in a URL's query or beside other parameters of a connection string; a password of letters
alone passes there (``password=wonderland``), because such texts are common in documentation and look like names in
code.

A word also begins right after a Chinese character, and after an escaped line break (``\n`` within quoted source).
"""

from __future__ import annotations

import base64
import functools
import re
from typing import Any, Final, NamedTuple

import msgspec

from deedbook.ledger.secrets.disguise import ESCAPED, HIDING
from deedbook.ledger.secrets.linear import compile_linear
from deedbook.ledger.secrets.named import TRACE
from deedbook.ledger.secrets.placeholders import (
    compiled,
    is_example,
    is_expression,
    is_names,
    is_numbered_names,
    is_word_for_a_secret,
    is_words,
)

_masked_tail_bytes: Final = 12
_password_min_chars: Final = 4
_MASKS: Final = frozenset(b"xX*0.-_#")

context_max_bytes: Final = 60
encoded_header_max_bytes: Final = 160
parameters_max_bytes: Final = 300  # The search for a connection string covers this much before and after ``password=``.
_START: Final = r"(?:\b|\\[nrt])"
_URLSAFE: Final = "[A-Za-z0-9_-]"
_WORD: Final = "[A-Za-z0-9]"
_UUID: Final = "(?i:[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12})"
_BASE64: Final = "[A-Za-z0-9+/]"
# The text between a name and its value in JSON, YAML, shells and source, quoted or escaped.
_IS: Final = r"""["'\\]*\s*(?:=>|:=|=|:)\s*["'\\]*"""
_BREAK: Final = r"""(?:[\s"'+,>|-]|\\+[nrt])"""
# An escape may hide a character of a secret (``\u0067hp_``) or of a URL (``:\/\/``), or may itself hide a secret. Then
# the decoded strings decide.
_ESCAPES: Final = rf"\\u00[2-7]|\\/|[^\\](?:\\\\)*\\u(?:{ESCAPED})"
_NEAR: Final = rf"(?s:.){{0,{context_max_bytes}}}?"
# RFC 3986 §3.2.1: everything else in a user's name or password must be percent-encoded.
_USERINFO: Final = "[A-Za-z0-9._~%!$&'()*+,;=-]"
_USER_AND_PASSWORD: Final = rf"{_USERINFO}*:(?:{_USERINFO}|:){{4,}}@[A-Za-z0-9\[%$]"
_AWS_NAME: Final = "(?i:secret_?access_?key|aws_secret_key)"


class Pattern(NamedTuple):
    """The kind of a secret for error messages, its trace in JSON, and its pattern in decoded strings."""

    kind: str
    trace: str
    pattern: str


def _token(kind: str, prefix: str, rest: str, trace: str = "") -> Pattern:
    return Pattern(kind, trace or prefix, _START + prefix + rest)


PRIVATE_KEY: Final = "private key"
JWT: Final = "JSON Web Token"
IN_URL: Final = "password in a URL"
KEY_FILE: Final = "Deedbook key file"
BEARER: Final = "bearer token"
BASIC: Final = "user and password in base64"
ENCODED_KEY: Final = "private key in base64"
PARAMETER: Final = "password parameter"

_NAMED: Final = "(?i:password|passwd|pwd)"
# A value after an opening quote or brace, up to a character that ends it in any of the notations.
_VALUE: Final = r"""["'{\\]{0,3}[^\x00-\x20\x7f-\xff;&"'`<>{}\\]{4,}"""


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
    _token("Vault token", r"hv[sbr]\.", f"{_URLSAFE}{{24}}", rf"hv[sbr]\.{_URLSAFE}{{24}}"),
    Pattern("Vault token", "(?i:vault.?token)", rf"(?i:vault[_-]?token){_IS}[sbr]\.{_WORD}{{24}}\b"),
    _token("DigitalOcean token", "do[opr]_v1_", r"[0-9a-f]{64}\b"),
    _token("Databricks token", "dapi", r"[0-9a-f]{32}\b", "dapi[0-9a-f]{32}"),
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
    # RFC 7519, in the compact form of RFC 7515. ``is_harmless`` then decodes the header.
    Pattern(
        JWT,
        rf"eyJ{_URLSAFE}{{8,}}\.{_URLSAFE}{{4,}}\.{_URLSAFE}{{20}}",
        rf"{_START}eyJ{_URLSAFE}{{8,}}\.{_URLSAFE}{{4,}}\.{_URLSAFE}{{20}}",
    ),
    # RFC 6750 §2.1, RFC 7617 §2, and its form in container tools and npm (``auth``, ``_auth``).
    Pattern(BEARER, "(?i:bearer) +[A-Za-z0-9._~+/-]{20}", rf"{_START}(?i:bearer) +[A-Za-z0-9._~+/-]{{20,}}=*"),
    Pattern(BASIC, f"(?i:basic) +{_BASE64}{{10}}", rf"{_START}(?i:basic) +{_BASE64}{{6,}}={{0,2}}"),
    Pattern(BASIC, rf"auth{_IS}{_BASE64}{{8}}", rf"(?:{_START}|_)auth{_IS}{_BASE64}{{8,}}={{0,2}}"),
    # ``client-key-data`` of kubeconfig, and secrets of orchestrators: base64 of "-----BEGIN", wrapped or not.
    Pattern(ENCODED_KEY, "LS0tLS1CRUdJTi", "LS0tLS1CRUdJTi"),
    Pattern(PARAMETER, f"{_NAMED} *=", rf"[\w%./:=-](?:[?&]|&amp;|\\u0026)(?:ssl)?{_NAMED}={_VALUE}"),
    Pattern(PARAMETER, f"{_NAMED} *=", rf"{_START}{_NAMED} *= *{_VALUE}"),
    Pattern(PARAMETER, "jdbc:oracle:", r"jdbc:oracle:[a-z0-9]+:[^/\s:@]+/[^@\s/]{4,}@"),
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
    # ``consumers.interfaces.web.tokens``: 32 random bytes.
    _token("Deedbook HTTP token", "deedbook_", rf"{_URLSAFE}{{43}}(?:[^A-Za-z0-9_-]|$)", f"deedbook_{_URLSAFE}{{43}}"),
    _token("Shopify token", "shp(?:at|ca|pa|ss)_", "[0-9a-fA-F]{32}"),
    _token("Linear key", "lin_(?:api|oauth)_", f"{_WORD}{{32}}"),
    _token(
        "Doppler token", r"dp\.", rf"(?:pt|st|ct|sa|scim|audit)\.(?:[a-z0-9_-]+\.)?{_WORD}{{40}}", r"dp\.[a-z]{2,5}\."
    ),
    _token("Atlassian token", "AT(?:ATT|CTT|BB)", "[A-Za-z0-9_=-]{28}", "AT(?:ATT|CTT|BB)[A-Za-z0-9_=-]{28}"),
    Pattern("Mailgun key", "key-[0-9a-f]{32}", r"(?:^|[^A-Za-z0-9_-])key-[0-9a-f]{32}\b"),
    Pattern("Mailgun key", "[0-9a-f]{32}-[0-9a-f]{8}-", r"\b[0-9a-f]{32}-[0-9a-f]{8}-[0-9a-f]{8}(?:[^0-9a-f-]|$)"),
    _token("Square token", "sq0[a-z]{3}-", f"{_URLSAFE}{{22}}"),
    _token("Square token", "EAAA[A-Za-z]", f"{_URLSAFE}{{59}}", f"EAAA[A-Za-z]{_URLSAFE}{{59}}"),
    _token("Heroku key", "HRKU-", f"{_URLSAFE}{{36}}"),
    Pattern("Heroku key", "(?i:heroku)", rf"(?i:heroku){_NEAR}[^0-9a-zA-Z]{_UUID}\b"),
    _token("Notion token", "ntn_", f"[0-9]{{11}}{_WORD}{{30}}"),
    _token("Figma token", "fig[dou]_", f"{_URLSAFE}{{40}}", f"fig[dou]_{_URLSAFE}{{40}}"),
    _token("Grafana token", "glsa_", f"{_WORD}{{32}}_[0-9a-f]{{8}}"),
    _token("New Relic key", "NRAK-", "[A-Z0-9]{27}"),
    _token("Postman key", "PMAK-", "[0-9a-f]{24}-[0-9a-f]{34}"),
    _token("RubyGems key", "rubygems_", "[0-9a-f]{48}"),
    _token("Docker token", "dckr_(?:pat|oat)_", f"{_URLSAFE}{{27}}"),
    _token("Tailscale key", "tskey-[a-z]+-", f"{_WORD}+-{_WORD}{{20}}"),
    _token("Groq key", "gsk_", f"{_WORD}{{52}}", f"gsk_{_WORD}{{52}}"),
    _token("OpenRouter key", "sk-or-v1-", "[0-9a-f]{64}"),
    # ``ledger.client.invitation``: valid once, and for every reader until it is used.
    _token("invitation", "deedbook-invite:", f"{_URLSAFE}{{60}}"),
    # ``ledger.format.identity.KeyFile``: a public key beside its seed, or beside the seed sealed with a passphrase.
    Pattern(
        KEY_FILE, r'(?:seed|sealed)\\*"\s*:', rf'"public{_IS}[0-9a-f]{{64}}[^{{}}]*"(?:seed|sealed){_IS}[0-9a-f]{{64}}'
    ),
)

_OTHER_NAME: Final = (
    rb"\b(?:server|data source|host(?:name|addr)?|addr(?:ess)?|initial catalog|data ?base|db ?name|uid"
    rb"|user(?: ?id|_?name)?|driver|dsn|provider|port|ssl ?mode|encrypt|trusted_connection)"
)
_SPACE: Final = rb"(?:\s|\\[nrt])"
_BEFORE: Final = (
    rb"(?:%b\s*=[^;\n]*|jdbc:\w+:[^\s;]*);\s*(?:[\w .]+=[^;\n]*;\s*)*$"
    rb"|%b=[^\s,;\\]+%b+(?:\w+=[^\s,;\\]+%b+)*$"
) % (_OTHER_NAME, _OTHER_NAME, _SPACE, _SPACE)
_AFTER: Final = (rb"""[\\"'}]{0,2};\s*(?:[\w .]+=[^;\n]*;\s*)*%b\s*=|[\\"']{0,2}%b+(?:\w+=[^\s,;\\]+%b+)*%b=""") % (
    _OTHER_NAME,
    _SPACE,
    _SPACE,
    _OTHER_NAME,
)


def is_harmless(kind: str, text: bytes, start: int, end: int) -> bool:
    """Return whether the match at these bytes of a text only looks like a secret."""
    match = text[start:end]
    if kind == IN_URL:
        user, _, password = match[: match.rindex(b"@")].rpartition(b"/")[2].partition(b":")
        return password == user or is_word_for_a_secret(password)
    if kind == PARAMETER:
        return not _is_parameter(text, start, end)
    if kind == BEARER:
        return is_example(token := value_of(match)) or is_numbered_names(token)
    if kind == BASIC:
        return not _is_user_and_password(match)
    if kind == ENCODED_KEY:
        return not _is_encoded_key(text[start : start + encoded_header_max_bytes])
    if kind == JWT and not _names_its_algorithm(match[match.index(b"eyJ") : match.index(b".")]):
        return True
    tail = set(match[-_masked_tail_bytes - 1 : -1])  # the last character may be the one that ended the match
    is_masked = len(tail) == 1 and tail <= _MASKS
    return is_masked or b"EXAMPLE" in match or is_words(match)


def value_of(match: bytes) -> bytes:
    """Return the value in a match: the text after its name and sign, or after its scheme."""
    return re.split(rb"[ =]+", match, maxsplit=1)[-1] if match[:1] != b"=" else value_of(match[1:])


def _is_parameter(text: bytes, start: int, end: int) -> bool:
    """Return whether this is a password in a query or beside other parameters, and not a placeholder."""
    if text.startswith(b"jdbc:oracle:", start):
        password = text[start:end].rpartition(b"/")[2].rstrip(b"@")
        return not is_example(password) and not is_names(password)
    name = re.compile(rb"(?i:password|passwd|pwd) *= *").search(text, start, end)
    if name is None:
        return False
    value = text[name.end() : end]
    is_braced = b"{" in value[:3]
    value = value.lstrip(b"\"'{\\").rstrip(b",.)]:")
    if is_names(value) or is_expression(value) or is_example(value):
        return False
    if (is_braced and value.replace(b".", b"_").decode("latin-1").isidentifier()) or len(value) < _password_min_chars:
        return False
    before = text[max(0, name.start() - parameters_max_bytes) : name.start()]
    if before.endswith((b"&", b"&amp;", b"\\u0026", b"ssl")):
        return True
    if before.endswith(b"?"):  # the ? of a URL, and not of ``a ? password=b : c``
        return b"/" in re.split(rb"[\s\"'<>(){};,]", before)[-1]
    if (user := re.search(rb"(?i:user(?: ?id|_?name)?|uid)\s*=\s*([^;\s]+)", before)) and user[1] == value:
        return False
    after = text[end : end + parameters_max_bytes]
    return compiled(_BEFORE).search(before) is not None or compiled(_AFTER).match(after) is not None


def _is_user_and_password(match: bytes) -> bool:
    encoded = re.search(rb"[A-Za-z0-9+/]*={0,2}$", match)
    try:
        decoded = base64.b64decode(encoded.group() if encoded else b"", validate=True).decode()
    except ValueError:
        return False
    user, _, password = decoded.partition(":")
    is_text = bool(user) and decoded.isprintable() and len(password) >= _password_min_chars
    return is_text and password != user and not is_example(password.encode())


def _is_encoded_key(head: bytes) -> bool:
    encoded = re.sub(rb"\\+[nrt]|[^A-Za-z0-9+/]", b"", head)
    decoded = base64.b64decode(encoded[: len(encoded) // 4 * 4])
    return re.search(rb"PRIVATE KEY(?: BLOCK)?-----[\r\n]+(?:[A-Za-z-]+: |[A-Za-z0-9+/]{8})", decoded) is not None


def _names_its_algorithm(header: bytes) -> bool:
    """Return whether this is the header of a JSON Web Token: an object with ``alg`` (RFC 7515 §4.1.1)."""
    try:
        fields = msgspec.json.decode(base64.urlsafe_b64decode(header + b"=" * (-len(header) % 4)))
    except (ValueError, RecursionError, msgspec.DecodeError):
        return False
    return isinstance(fields, dict) and "alg" in fields


@functools.cache
def traces() -> Any:
    """Return the compiled search for a trace of any secret in encoded JSON."""
    return compile_linear("|".join([*dict.fromkeys(row.trace for row in PATTERNS), TRACE, _ESCAPES, HIDING]))


@functools.cache
def patterns() -> Any:
    """Return the compiled search for any secret in a text; group ``sN`` is row N of the table."""
    return compile_linear("|".join(f"(?P<s{number}>{row.pattern})" for number, row in enumerate(PATTERNS)))
