"""The agents that may read over HTTP, and the pages that anybody may read."""

from __future__ import annotations

import contextlib
import stat
import time
from typing import TYPE_CHECKING

import msgspec
import pytest
from test_web_api import code_of
from view_ledger import ViewLedger
from web_reading import LATER_MS, opened

from deedbook.consumers.interfaces.web.app import Web
from deedbook.consumers.interfaces.web.tokens import FILE, Tokens, state_of
from deedbook.ledger.errors import Refused
from deedbook.ledger.events.authority import AgentRemoved, KeyRevoked
from deedbook.ledger.home.trust import forget

if TYPE_CHECKING:
    from pathlib import Path

    from web_reading import Own, Reading

OURS = ("/v1/agents/list", "/v1/events", "/v1/checkpoint", "/checkpoint", "/tile/0/000.p/1", "/v1/receipts/0")


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


@pytest.mark.parametrize("path", [*OURS, "/metrics", "/elsewhere"])
def test_nothing_of_the_ledger_is_read_without_a_token_on_loopback_either(reading: Reading, path: str) -> None:
    for headers in (
        {},
        bearer("deedbook_" + "A" * 43),
        {"authorization": reading.token},
        {"authorization": f"Basic {reading.token}"},
        bearer(reading.token[:-1]),
        bearer(""),
        {"authorization": "Bearer é".encode()},
        {"cookie": f"token={reading.token}"},
    ):
        answer = reading.client.get(path, headers=headers)
        assert code_of(answer) == (401, "TOKEN_INVALID")
        assert answer.headers["www-authenticate"] == 'Bearer realm="deedbook"'
    assert reading.client.get(f"{path}?token={reading.token}").status_code == 401


@pytest.mark.parametrize("path", ["/v1", "/v1/openapi.json", "/healthz"])
def test_what_there_is_to_ask_is_no_secret(reading: Reading, path: str) -> None:
    assert reading.client.get(path).status_code == 200


def test_the_listing_names_every_path_with_its_arguments(reading: Reading) -> None:
    paths = {one["path"]: one for one in reading.client.get("/v1").json()["data"]["paths"]}
    assert paths["/v1/handoffs/list"]["arguments"][:2] == ["after", "limit"]
    assert "as_of" in paths["/v1/handoffs/list"]["arguments"]
    assert set(paths) == set(reading.client.get("/v1/openapi.json").json()["paths"])


def test_a_public_log_shows_tiles_and_checkpoint_and_nothing_else(home: Path) -> None:
    with contextlib.ExitStack() as stack:
        ledger = stack.enter_context(ViewLedger(home))
        ledger.write_keys()
        reading = opened(stack, ledger.reads, is_public=True)
        assert reading.client.get("/checkpoint").text == ledger.reads.published_checkpoint()
        assert reading.client.get("/tile/0/000.p/1").status_code == 200
        assert reading.client.get("/v1/checkpoint").status_code == 401
        assert reading.client.get("/v1/agents/list").status_code == 401


def test_no_cache_that_readers_share_may_keep_what_needs_a_token(reading: Reading) -> None:
    for path in (*OURS, "/tile/0/000.p/1", "/tile/entries/000.p/1", "/checkpoint"):
        answer = reading.get(path)
        assert answer.status_code == 200, answer.text
        assert "public" not in answer.headers["cache-control"], path  # RFC 9111, section 3.5


def test_a_scraper_needs_no_agent(own: Own) -> None:
    kept, counts = Tokens(own.reading.home).create("prometheus", "metrics", LATER_MS)
    assert own.reading.client.get("/metrics", headers=bearer(counts)).status_code == 200
    assert code_of(own.reading.client.get("/v1/events", headers=bearer(counts))) == (403, "NOT_AUTHORIZED")
    with own.ledger.log.snapshot() as snapshot:
        assert state_of(kept, snapshot) == "valid"
        assert state_of(msgspec.structs.replace(kept, role="reader"), snapshot) == "agent removed"


def test_a_token_reads_what_its_role_is_for(own: Own) -> None:
    _, counts = Tokens(own.reading.home).create("bob", "metrics", LATER_MS)
    assert own.reading.client.get("/metrics", headers=bearer(counts)).status_code == 200
    for path in OURS:
        assert code_of(own.reading.client.get(path, headers=bearer(counts))) == (403, "NOT_AUTHORIZED")
        assert (answer := own.reading.get(path)).status_code == 200, answer.text
    assert code_of(own.reading.get("/metrics")) == (403, "NOT_AUTHORIZED")


def test_a_token_ends_with_its_time_its_agent_and_its_key(own: Own) -> None:
    tokens = Tokens(own.reading.home)
    of_bob = bearer(tokens.create("bob", "reader", LATER_MS)[1])
    assert own.reading.client.get("/v1/agents/list", headers=of_bob).status_code == 200
    own.ledger.emit("bob", "agent/bob", KeyRevoked(key=own.ledger.keys["bob"].public.hex(), reason="lost"))
    refused = own.reading.client.get("/v1/agents/list", headers=of_bob)
    assert (code_of(refused), refused.json()["details"]["state"]) == ((401, "TOKEN_INVALID"), "key ended")
    own.ledger.emit("root", "agent/alice", AgentRemoved(agent="alice", reason="left"))
    refused = own.reading.get("/v1/agents/list")
    assert (code_of(refused), refused.json()["details"]["state"]) == ((401, "TOKEN_INVALID"), "agent removed")
    over = bearer(tokens.create("rita", "reader", time.time_ns() // 1_000_000 - 1)[1])
    refused = own.reading.client.get("/v1/agents/list", headers=over)
    assert (code_of(refused), refused.json()["details"]["state"]) == ((401, "TOKEN_INVALID"), "expired")


def test_a_revoked_token_reads_nothing_more_from_the_next_request_on(own: Own) -> None:
    tokens = Tokens(own.reading.home)
    kept, text = tokens.create("bob", "reader", LATER_MS)
    assert own.reading.client.get("/v1/agents/list", headers=bearer(text)).status_code == 200
    assert tokens.revoke(kept.id) == [kept]
    assert own.reading.client.get("/v1/agents/list", headers=bearer(text)).status_code == 401
    assert own.reading.get("/v1/agents/list").status_code == 200
    with pytest.raises(Refused, match="NOT_FOUND"):
        tokens.revoke(kept.id)


def test_the_file_holds_no_token_and_is_its_owners(own: Own) -> None:
    file = own.reading.home / FILE
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert own.reading.token.encode() not in file.read_bytes()
    file.chmod(0o644)
    refused = own.reading.get("/v1/agents/list")
    assert code_of(refused) == (503, "STORE_UNAVAILABLE")
    assert str(own.reading.home) not in refused.text


def test_a_strangers_folder_lets_nobody_in_by_the_tokens_in_it(home: Path) -> None:
    with ViewLedger(home) as ledger:
        forget(home)
        with pytest.raises(Refused, match="NOT_TRUSTED"):
            Web(ledger.reads)
