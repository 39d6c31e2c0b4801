"""The scanner finds credentials, passes harmless text, and reports a secret only by its path and kind."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from blake3 import blake3
from building import Actors, key_named
from credentials import ALNUM, CREDENTIALS, GITHUB, PASSWORD, drawn, jwt, pem
from hypothesis import given
from hypothesis import strategies as st

from deedbook.ledger.errors import Refused
from deedbook.ledger.format.codec import encode_canonical
from deedbook.ledger.format.identity import write_key
from deedbook.ledger.limits import blob_scan_max_bytes
from deedbook.ledger.secrets import scanner as secrets
from deedbook.ledger.secrets.credentials import PATTERNS, traces

if TYPE_CHECKING:
    from collections.abc import Iterator

ALL = [(kind, text) for kind, texts in CREDENTIALS.items() for text in texts]
ROOT = Path(__file__).parents[2]
HARMLESS = {
    "header without a key": "the file began with -----BEGIN RSA PRIVATE KEY----- and was removed",
    "header, then a hash": "-----BEGIN PRIVATE KEY----- was in commit " + drawn("c", "0123456789abcdef", 40),
    "cut": pem("PRIVATE KEY")[:40] + "\n...\n-----END PRIVATE KEY-----",
    "public key": pem("PRIVATE KEY").replace("PRIVATE", "PUBLIC"),
    "certificate": pem("CERTIFICATE"),
    "masked with x": "ghp_" + "x" * 36,
    "masked with stars": "the token ghp_************************************ was used",
    "masked key id": "AKIA" + "X" * 16,
    "masked webhook": "https://hooks.slack.com/services/T00000000/B00000000/" + "X" * 24,
    "first characters": GITHUB[:12],
    "prefix in prose": "tokens that begin with ghp_, sk-ant-, AKIA, xoxb- or glpat- are refused",
    "words for a token": "glpat-put-your-own-token-here-please",
    "part of an identifier": "my_ghp_" + drawn("x", ALNUM, 36),
    "names": "JWT_SECRET, AWS_SECRET_ACCESS_KEY and TWILIO_AUTH_TOKEN are in the vault",
    "address": "https://example.org:8080/a@b",
    "user in an address": "ssh://git@github.com/o/r.git",
    "image digest": "docker://registry.example:5000/app@sha256:" + "a1" * 32,
    "three dotted words": "eyJust.kidding.aboutAllOfTheseManyWords",
    "JWT without an algorithm": jwt('{"type":"JWT","a":"long enough"}'),
    "key of another file": '{"seed": "' + "a1" * 32 + '"}',
}
PLACEHOLDERS = (
    *("pass", "password", "PASSWORD", "passwd", "secret", "your-password", "your_password_here", "changeme", "xxxxx"),
    *("****", "$PASSWORD", "$(password)", "%(pw)s", "DB_PASS", "redacted", "token123", "user"),
)


@pytest.mark.parametrize("kind", CREDENTIALS)
def test_credential_is_found_leaves_a_trace_in_json_and_is_never_repeated(kind: str) -> None:
    for text in CREDENTIALS[kind]:
        secret = secrets.scan({"data": {"finding": f"see: {text} (do not share)"}})
        assert secret == secrets.Secret("$.data.finding", kind), text
        error = json.dumps(secrets.refusal(secret).to_dict())
        assert not any(text[start : start + 6] in error for start in range(len(text) - 6) if text[start].isdigit())
        for value in (text, json.dumps({"output": text}), f"a\n{text}\n"):
            assert traces().search(encode_canonical({"finding": value})), text
        assert secrets.scan_bodies([b"{}", encode_canonical({"finding": text})]).keys() == {1}, text


def test_every_kind_has_an_example() -> None:
    assert {pattern.kind for pattern in PATTERNS} == CREDENTIALS.keys()


@pytest.mark.parametrize("text", HARMLESS.values(), ids=HARMLESS.keys())
def test_text_that_only_mentions_secrets_passes(text: str) -> None:
    assert secrets.scan({"finding": text}) is None


@pytest.mark.parametrize("password", [*PLACEHOLDERS, "<password>", "${PASSWORD}", "{password}", "[secret]"])
def test_placeholder_in_a_url_passes(password: str) -> None:
    assert secrets.scan(f"postgres://user:{password}@db.example/app") is None


def test_secret_after_a_placeholder_is_found() -> None:
    text = f"postgres://user:password@db, ghp_{'x' * 36}, then {GITHUB}"
    assert secrets.scan([text]) == secrets.Secret("$[0]", "GitHub token")


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"a": {"b": ["x", {"c": GITHUB}]}}, "$.a.b[1].c"),
        ({"a": {"not a name": GITHUB}}, "$.a[...]"),
        ({"a": {GITHUB: 1}}, "$.a[...]"),
        ({"a": [{GITHUB: GITHUB}]}, "$.a[0][...]"),
        ({"first": "fine", "second": GITHUB, "third": GITHUB}, "$.second"),
        (GITHUB, "$"),
    ],
)
def test_path_names_the_field_and_never_a_key_that_is_the_secret(value: Any, path: str) -> None:
    assert secrets.scan(value) == secrets.Secret(path, "GitHub token")


def test_value_is_scanned_together_with_its_name() -> None:
    value = drawn("aws", ALNUM, 40)
    assert secrets.scan({"aws_secret_access_key": value}) == secrets.Secret(
        "$.aws_secret_access_key", "AWS secret access key"
    )
    assert secrets.scan({"commit": value}) is None


def test_key_file_is_found_whole_and_in_fields(tmp_path: Path) -> None:
    for number, passphrase in enumerate([None, "open sesame"]):
        file = tmp_path / f"key{number}"
        write_key(file, key_named("bob"), ledger="0" * 32, name="bob", passphrase=passphrase)
        for value in (file.read_text(), json.dumps(file.read_text()), json.loads(file.read_text())):
            secret = secrets.scan({"data": [value]})
            assert secret == secrets.Secret("$.data[0]", "Deedbook key file")


@pytest.mark.parametrize("escaped", [r"\u0067hp_", r"g\u0068p_", r"ghp\u005f"])
def test_escapes_hide_nothing(escaped: str) -> None:
    body = b'{"finding":"%b"}' % (escaped + GITHUB.removeprefix("ghp_")).encode()
    assert secrets.scan_bodies([body]) == {0: secrets.Secret("$.finding", "GitHub token")}


@pytest.mark.parametrize("invisible", ["\u00ad", "\u200b", "\u200d", "\u2060", "\u202e", "\u2066", "\ufeff"])
def test_invisible_characters_hide_nothing(invisible: str) -> None:
    text = invisible.join((GITHUB[:2], GITHUB[2:20], GITHUB[20:]))
    bodies = [encode_canonical({"finding": text}), json.dumps({"finding": "\\" + text}).encode()]
    secret = secrets.Secret("$.finding", "GitHub token")
    assert secrets.scan_bodies(bodies) == {0: secret, 1: secret}
    with pytest.raises(Refused):
        secrets.check_text(text.encode())


@pytest.mark.parametrize("form", ["user=a;password=%s", "x?a=/?password=%s", "host=a password=%s", "Bearer %s"])
def test_placeholder_of_a_parameter_or_header_passes(form: str) -> None:
    assert [value for value in PLACEHOLDERS if secrets.scan(form % value) is not None] == []


def test_password_counts_beside_other_parameters_only() -> None:
    assert secrets.scan(f"the field password={PASSWORD} of a form") is None
    assert secrets.scan(f"user=app password={PASSWORD}") == secrets.Secret("$", "password parameter")


def test_malformed_header_of_a_token_is_no_error() -> None:
    for header in ('{"a":' + "[" * 9000, '{"alg', '{"\xff\xfe"', '["alg","HS256"]'):
        assert secrets.scan(jwt(header)) is None


def test_deep_value_is_scanned() -> None:
    value: Any = GITHUB
    for _ in range(5000):
        value = [value]
    secret = secrets.scan(value)
    assert secret is not None
    assert secret.kind == "GitHub token"


def test_text_with_too_many_placeholders_is_refused() -> None:
    assert secrets.scan("x://user:pass@h " * secrets.harmless_max) is None
    assert secrets.scan("x://user:pass@h " * (secrets.harmless_max + 1)) is not None


def test_text_blob_is_scanned_and_binary_or_large_blob_is_not() -> None:
    with pytest.raises(Refused) as refused:
        secrets.check_text(f"# Handoff\n\nUse {GITHUB}.\n".encode())
    assert refused.value.to_dict() == secrets.refusal(secrets.Secret("the blob", "GitHub token")).to_dict()
    assert GITHUB[4:] not in str(refused.value.to_dict())
    for content in (b"", b"# Handoff", b"\xff" + GITHUB.encode(), b"\0" + GITHUB.encode()):
        secrets.check_text(content)
    secrets.check_text(GITHUB.encode() + b" " * blob_scan_max_bytes)


def own_texts() -> Iterator[str]:
    """Yield texts that Deedbook itself writes: event bodies, a public checkpoint key, and the published contract."""
    actors = Actors()
    yield from (body.decode() for body in actors.sign("root", actors.created(), actors.registered("al", [])).bodies)
    yield actors.checkpoint_key.verifier.vkey
    for file in sorted((ROOT / "proto").rglob("*.*")):
        yield file.read_text(encoding="utf-8")


def test_own_texts_are_never_taken_for_a_secret() -> None:
    for text in own_texts():
        assert secrets.scan(text) is None, text[:100]


KEY_STARTS = st.binary(min_size=1, max_size=16)


@given(KEY_STARTS)
def test_refs_keys_signatures_and_ids_never_match(seed: bytes) -> None:
    digest = blake3(seed)
    key = key_named(seed.hex())
    texts = [
        f"blake3:{digest.hexdigest()}",
        f"sha256:{digest.hexdigest()}",
        key.public.hex(),
        key.sign(seed).hex(),
        digest.hexdigest(length=20),
        str(uuid.UUID(bytes=digest.digest(length=16))),
        digest.hexdigest(length=16),
    ]
    names = ["key", "proof", "secret", "token", "password", "commit", "seed"]
    assert secrets.scan(dict(zip(names, texts, strict=True))) is None
    assert secrets.scan(" ".join(texts)) is None


@given(st.recursive(st.text() | st.integers(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_any_value_is_scanned_without_an_error(value: Any) -> None:
    assert secrets.scan(value) is None


@given(st.text(), st.text(), st.sampled_from(ALL))
def test_secret_is_found_anywhere_in_a_text(before: str, after: str, credential: tuple[str, str]) -> None:
    text = f"{before} {credential[1]} {after}"
    assert secrets.scan({"a": [text]}) is not None
    assert secrets.scan_bodies([encode_canonical({"a": [text.encode(errors="replace").decode()]})])
