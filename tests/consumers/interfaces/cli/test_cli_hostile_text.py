"""``--json`` escapes control characters and invisible characters. A refused agent leaves no key."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import msgspec
from building import Ledger

from deedbook.consumers.interfaces.cli.app import App
from deedbook.consumers.interfaces.cli.program import run
from deedbook.consumers.sdk.text import json_text
from deedbook.ledger.lifecycle.authority import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    import pytest
    from calling import Deed

HOSTILE = "a\x7fb\x85c\x9b2Jd\u202ee\u2066f\u2028g\u2029h\ufeffi\U000e0041j 中文 é"


def test_json_holds_no_character_that_a_terminal_obeys(capsys: pytest.CaptureFixture[str]) -> None:
    App().line({"title": HOSTILE, HOSTILE: 1})
    text = capsys.readouterr().out.removesuffix("\n")
    assert text.isprintable()
    assert json.loads(text) == {"title": HOSTILE, HOSTILE: 1}
    assert "中文 é" in text
    assert json_text({"title": text}) == msgspec.json.encode({"title": text}).decode()


def test_refused_agent_leaves_no_key(home: Path) -> None:
    with Ledger(home) as ledger:
        ledger.write_keys()
    keys = sorted(home.joinpath("keys").iterdir())
    words = ["--home", str(home), "agent", "add", "carol", "--role", "agent"]
    assert run([*words, "--as", "alice"]) != 0
    assert sorted(home.joinpath("keys").iterdir()) == keys
    home.joinpath("keys", f"{ROOT}.key").rename(home / "root.key")
    assert run([*words, "--as", ROOT]) != 0
    assert sorted(home.joinpath("keys").iterdir()) == [path for path in keys if path.name != f"{ROOT}.key"]


def test_a_refusal_shows_nothing_that_a_terminal_obeys(deed: Deed) -> None:
    said = deed.run("handoff", "show", "\u202ex\x9b2J\u2028")
    assert said.err.startswith("NOT_FOUND: there is no handoff \ufffdx\ufffd2J\ufffd")
