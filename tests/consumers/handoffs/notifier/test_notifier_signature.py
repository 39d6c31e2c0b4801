"""Signatures are those of Standard Webhooks, and a secret shows itself nowhere."""

from __future__ import annotations

import base64

import pytest
from webhook_receiver import KEY, SECRET, Received

from deedbook.consumers.handoffs.notifier.delivery import signed_headers
from deedbook.consumers.handoffs.notifier.settings import read_secret
from deedbook.ledger.errors import Refused


def test_signature_is_the_one_that_the_specification_publishes() -> None:
    # The example that the specification's own libraries are tested with.
    secret = read_secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "V", "$")
    headers = signed_headers("msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}', secret)
    assert headers == {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


@pytest.mark.parametrize("change", ["id", "timestamp", "body", "key"])
def test_signature_covers_id_time_body_and_key(change: str) -> None:
    headers = signed_headers("abc", 1614265330, b"{}", read_secret(SECRET, "V", "$"))
    assert Received("/", headers, b"{}").is_signed_with(KEY)
    changed = {
        "id": headers | {"webhook-id": "abd"},
        "timestamp": headers | {"webhook-timestamp": "1614265331"},
    }.get(change, headers)
    body, key = b"{ }" if change == "body" else b"{}", bytes(32) if change == "key" else KEY
    assert not Received("/", changed, body).is_signed_with(key)


def test_plain_secret_is_its_own_bytes() -> None:
    assert read_secret("correct horse battery staple\n", "V", "$").key == b"correct horse battery staple"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "too short",
        "whsec_",
        "whsec_not base64 at all, not even nearly",
        "whsec_" + base64.b64encode(b"x" * 23).decode(),
        "x" * 257,
    ],
)
def test_wrong_secret_is_refused_without_being_repeated(text: str) -> None:
    with pytest.raises(Refused) as refused:
        read_secret(text, "HOOK_SECRET", "$.notify[0].secret_variable")
    assert refused.value.code == "INVALID_FIELD"
    assert "HOOK_SECRET" in refused.value.message
    assert not text or text not in refused.value.message


def test_secret_does_not_show_itself() -> None:
    secret = read_secret(SECRET, "V", "$")
    assert repr(secret) == str(secret) == f"{secret}" == "WebhookSecret()"
    assert KEY.decode() not in repr(secret)
