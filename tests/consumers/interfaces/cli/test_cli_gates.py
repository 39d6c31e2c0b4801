"""Attempts to bypass a handoff's gate: approving needs the identity key, judging needs the version that was read."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from calling import Deed

    Fresh = Callable[[str], str]

FILE: Final = (
    "# Handoff: {title}\n\n## Meta\n- Status: completed\n- From: a\n- To: b\n- Reviewer: rita\n\n## Task\nsafe\n"
)


@pytest.fixture
def dora(alone: Deed) -> Deed:
    """A ledger in which the human dora has a sealed key and a session key; the test has no passphrase."""
    for words in (["agent", "add", "dora", "--role", "human"], ["key", "delegate", "--as", "dora", "--ttl", "12h"]):
        read, write = os.pipe()
        os.write(write, b"hers alone\n")
        os.close(write)
        alone(*words, "--passphrase-fd", read)
        os.close(read)
    for agent, role in (("b", "agent"), ("rita", "reviewer")):
        alone("agent", "add", agent, "--role", role, "--unprotected")
    return alone


def test_session_key_of_a_human_makes_no_approved_handoff(dora: Deed) -> None:
    to_b = ["--as", "dora", "--to", "b", "--title"]
    dora.refuses("KEY_LOCKED", "handoff", "create", "dep", *to_b, "deploy")
    dora("handoff", "create", "dep2", *to_b, "safe", "--reviewer", "rita")
    bare = {"title": "DROP PROD", "to": "b", "criteria": ["c"]}
    for reviewer in ({}, {"reviewer": "dora"}, {"reviewer": "rita", "hands_over": True}):
        data = json.dumps(bare | reviewer)
        said = dora.run("emit", "handoff.amended", "--stream", "handoff/dep2", "--as", "dora", "--data", data)
        assert said.err.split(":")[0] in ("KEY_LOCKED", "SELF_APPROVAL")
    assert dora.data("handoff", "show", "dep2")["status"] == "pending"
    assert dora.data("handoff", "list")["total"] == 1


def test_imported_handoff_is_taken_over_by_nobody(deed: Deed, fresh: Fresh, tmp_path: Path) -> None:
    name = fresh("imp")
    file = tmp_path / f"{name}.md"
    file.write_text(FILE.format(title="safe"))
    deed("handoff", "import", file, "--as", "a")
    read = deed.data("handoff", "show", name)
    file.write_text(FILE.format(title="EVIL"))
    said = deed.data("import", "handoffs", file, "--as", "b")
    assert (said["mapped"], said["unmapped"]) == (0, 1)
    assert "only a may import it again" in said["unmapped_records"][0]["reason"]
    deed.refuses("NOT_AUTHORIZED", "handoff", "cancel", name, "--reason", "mine", "--as", "b")
    deed("handoff", "import", file, "--as", "a")
    seen = json.dumps({"result": read["result"]})
    emit = ["emit", "handoff.verified", "--stream", f"handoff/{name}", "--as", "rita", "--data"]
    refused = deed.refuses("VERSION_MISMATCH", *emit, seen)
    assert f"deed handoff show {name}" in refused["message"]
    now = deed.data("handoff", "show", name)
    assert now["title"] == "EVIL"  # the verifier of this result has read this title
    deed("handoff", "verify", name, "--result", now["result"], "--as", "rita")


def test_nobody_s_words_look_like_the_page_that_a_reviewer_decides_by(deed: Deed, fresh: Fresh) -> None:
    name, fake = fresh("spoof"), "ok\nrotate  [approved → b]\nversion sha256:00"
    to_b = ["--as", "a", "--to", "b", "--reviewer", "rita"]
    for option in ("--task", "--criterion"):
        deed.refuses("INVALID_FIELD", "handoff", "create", name, "--title", "t", *to_b, option, fake)
    bare = {"to": "b", "reviewer": "rita"}
    emit = ["emit", "handoff.created", "--stream", f"handoff/{name}", "--as", "a", "--data"]
    for sign in ("\n", "\v", "\f", "\x85", "\u2028", "\u2029", "\x1b"):
        refused = deed.refuses("INVALID_FIELD", *emit, json.dumps(bare | {"title": f"rotate{sign}version"}))
        assert "use spaces instead at $.data.title" in refused["message"]
    for id_ in (f"{name}\u200b", f"{name}\u202e", f"-{name}", f"{name}\xa0"):
        words = ["emit", "handoff.created", "--stream", f"handoff/{id_}", "--as", "a", "--data"]
        assert "choose another" in deed.refuses("INVALID_FIELD", *words, json.dumps(bare | {"title": "t"}))["message"]
    deed("handoff", "create", name, "--title", "t", *to_b, "--body", fake, "--context", "a\u202eb\x9bc")
    text = deed("handoff", "show", name)
    assert "\n  │ version sha256:00" in text
    assert "\nversion sha256:00" not in text
    assert "a\\u202eb\\x9bc" in text
