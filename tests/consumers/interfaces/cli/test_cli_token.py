"""`deed token`: created once, listed without its secret, revoked."""

from __future__ import annotations

import json
import stat
from typing import TYPE_CHECKING

import pytest
from building import Ledger
from calling import Deed, Place

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def deed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Deed:
    """A shell in front of a ledger of this test's own."""
    with Ledger(tmp_path / ".deedbook") as ledger:
        ledger.write_keys()
    return Deed(capsys, Place(tmp_path / ".deedbook"))


def test_a_token_is_shown_once_and_its_hash_is_kept(deed: Deed) -> None:
    said = deed.run("token", "create", "alice")
    token = said.out.strip()
    assert token.startswith("deedbook_")
    assert "is a token of alice (reader) until" in said.err
    file = deed.home / "tokens.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    (listed,) = deed.data("token", "list")["tokens"]
    assert token not in file.read_text() + json.dumps(listed)
    assert (listed["agent"], listed["role"], listed["state"]) == ("alice", "reader", "valid")
    assert listed["expires_ms"] - listed["created_ms"] == pytest.approx(30 * 86_400_000, abs=60_000)


def test_a_token_of_a_role_and_a_time(deed: Deed) -> None:
    made = deed.data("token", "create", "bob", "--role", "metrics", "--expires", "12h")
    assert (made["role"], made["agent"], made["token"][:9]) == ("metrics", "bob", "deedbook_")
    assert "metrics" in deed("token", "list")


def test_tokens_are_revoked_by_their_id_or_their_agent(deed: Deed) -> None:
    first, _, _ = (deed.data("token", "create", name) for name in ("alice", "alice", "bob"))
    assert deed.data("token", "revoke", first["id"]) == {"revoked": [first["id"]]}
    assert len(deed.data("token", "revoke", "alice")["revoked"]) == 1
    assert [one["agent"] for one in deed.data("token", "list")["tokens"]] == ["bob"]
    deed.refuses("NOT_FOUND", "token", "revoke", "alice")


def test_nobody_has_a_token_who_is_not_registered(deed: Deed) -> None:
    deed.refuses("AGENT_UNKNOWN", "token", "create", "nobody")
    deed.refuses("USAGE", "token", "create", "alice", "--expires", "soon")
    deed.refuses("USAGE", "serve", "--public-log")


def test_a_scraper_needs_no_agent_and_a_reader_does(deed: Deed) -> None:
    made = deed.data("token", "create", "prometheus", "--role", "metrics")
    assert (made["agent"], made["state"]) == ("prometheus", "valid")
    deed.refuses("AGENT_UNKNOWN", "token", "create", "prometheus")
    deed.refuses("INVALID_FIELD", "token", "create", "Not a name", "--role", "metrics")
    deed("token", "revoke", "prometheus")
