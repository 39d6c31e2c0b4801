"""Text that looks like a secret is refused on the command line, and recorded if a human insists."""

from __future__ import annotations

from typing import TYPE_CHECKING

from calling import start_session
from credentials import GITHUB

if TYPE_CHECKING:
    from calling import Deed


def test_only_a_human_allows_a_secret(alone: Deed) -> None:
    alone("agent", "add", "bot")
    alone("agent", "add", "rita", "--role", "human", "--unprotected")
    start_session(alone, "s1", "bot")
    finding = ("session", "finding", "s1", f"the old token {GITHUB} is revoked")
    refused = alone.refuses("SECRET_DETECTED", *finding, "--as", "bot")
    assert "a human may record it" in refused["message"]
    assert "a redaction erases it only here" in refused["message"]
    assert "only a human may" in alone.refuses("NOT_AUTHORIZED", *finding, "--as", "bot", "--allow-secret")["message"]
    assert GITHUB not in str(refused)
    before = alone.size()
    start_session(alone, "s2", "rita")
    alone("session", "finding", "s2", finding[-1], "--as", "rita", "--allow-secret")
    shown = alone.document("show", before + 1)["data"]
    assert (shown["allow_secret"], shown["author"]) == (True, "rita")
    assert "allow_secret" not in alone.document("show", before)["data"]
    assert alone("verify").startswith("VALID")
