"""Runs with the example's package on the path: a separate process, which ``test_families`` starts with pytest.

A process reads entry points only once. So these tests, which need the package, cannot run in the process of most tests.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from building import Ledger
from deedbook_rollout.events import RolloutFinished, RolloutStarted
from forge import Forge
from judges import alone, ours
from looking import look
from mcp_clients import call_tools
from web_reading import opened

from deedbook import Ledger as Open
from deedbook.consumers.interfaces.cli.program import deed
from deedbook.ledger.bundle.export import export_bundle
from deedbook.ledger.client.author import Draft
from deedbook.ledger.errors import Refused
from deedbook.ledger.home.config import Settings
from deedbook.projections.answers.reader import Reader

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deedbook.ledger.events.fields import EventData

AGENTS = {"alice": ["agent"], "bot": ["service"], "rita": ["human", "reviewer"]}
STREAM = "rollout/web-42"
STARTED, FINISHED = RolloutStarted(service="web"), RolloutFinished(ok=True, note="quiet for ten minutes")
# Everything that is refused: the author, the stream, the data (typed or plain), and the code.
WRONG: dict[str, tuple[str, str, EventData | dict[str, Any], str]] = {
    "a field without a value": ("bot", STREAM, {"service": ""}, "INVALID_FIELD"),
    "a field that there is not": ("bot", STREAM, {"service": "web", "cluster": "eu"}, "UNKNOWN_FIELD"),
    "a role that may not": ("alice", STREAM, STARTED, "NOT_AUTHORIZED"),
    "a stream of another family": ("bot", "session/s", STARTED, "INVALID_FIELD"),
    "a stream without an id": ("bot", "rollout", STARTED, "INVALID_FIELD"),
    "the end of nothing": ("bot", STREAM, FINISHED, "NOT_FOUND"),
}


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger(tmp_path / "ledger", agents=AGENTS) as made:
        yield made


def draft_of(stream: str, data: EventData | dict[str, Any]) -> Draft:
    return Draft(stream=stream, kind="rollout.started" if isinstance(data, dict) else "", data=data)


@pytest.mark.parametrize("name", WRONG)
def test_gate_refuses(ledger: Ledger, name: str) -> None:
    author, stream, data, code = WRONG[name]
    assert ledger.refusal_of(lambda: ledger.submit(ledger.sign(author, draft_of(stream, data)))).code == code


def test_gate_keeps_the_order_of_the_rules(ledger: Ledger) -> None:
    ledger.emit("bot", STREAM, STARTED)
    again = RolloutStarted(service="another")
    assert ledger.refusal_of(lambda: ledger.emit("bot", STREAM, again)).code == "TRANSITION_NOT_ALLOWED"
    assert ledger.refusal_of(lambda: ledger.emit("rita", STREAM, FINISHED)).code == "NOT_AUTHORIZED"
    ledger.emit("bot", STREAM, FINISHED)
    failed = RolloutFinished(ok=False, note="it broke")
    assert ledger.refusal_of(lambda: ledger.emit("bot", STREAM, failed)).code == "TRANSITION_NOT_ALLOWED"


@pytest.mark.parametrize("name", WRONG)
def test_auditor_with_the_package_names_the_entry(tmp_path: Path, name: str) -> None:
    author, stream, data, code = WRONG[name]
    forge = Forge(agents=AGENTS)
    forge.register("bot", "service")
    first = len(forge.entries)
    forge.raw(author, forge.body(author, stream, data, kind="rollout.started" if isinstance(data, dict) else ""))
    bundle = tmp_path / "wrong.tar"
    forge.export(bundle)
    judgement = ours(bundle)
    assert (judgement.word, judgement.codes) == ("INVALID", {first: {code}}), judgement.text
    word = "INVALID" if stream != STREAM else "PARTIAL"  # `verify.py` knows the names of a family, but not its rules
    assert alone(bundle).word == word


def test_every_interface_has_it(tmp_path: Path) -> None:
    for viewer in look(tmp_path / "ledger", agents=AGENTS):
        bot = viewer.ledger
        index = bot.emit("bot", STREAM, STARTED).index
        expected = {"id": "web-42", "service": "web", "author": "bot", "started_index": index, "status": "running"}
        with Open(settings=Settings(home=bot.home.path, agent="bot")) as python:
            (row,) = python.rollout.list(limit=5)  # a type checker does not know it
            assert {name: getattr(row, name) for name in expected} == expected
            with pytest.raises(Refused, match="UNKNOWN_FIELD"):
                python.rollout.list(colour="red")
            assert python.search.find(text="web").items[0].stream == STREAM
            assert python.catalog.find(stream=STREAM).items[0].did == "began to roll out: web"
            assert python.rollout.list(as_of=index - 1).items == []
        page = viewer.page("/rollout")
        assert "Rollouts" in page
        assert "web-42" in page
        assert viewer.data("/rollout")["items"][0]["id"] == "web-42"
        with contextlib.ExitStack() as stack:
            answer = opened(stack, stack.enter_context(bot.client())).get("/v1/rollout/list")
            assert (answer.status_code, answer.json()["data"]["items"][0]["service"]) == (200, "web")


def test_agents_record_it_over_mcp(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger", agents=AGENTS) as ledger:
        ledger.write_keys()
        home = ledger.home.path
    entry = {"type": "rollout", "kind": "started", "id": "web-1", "data": {"service": "web"}}

    async def work(call: Any) -> tuple[Any, Any]:
        wrong = await call("record_reasoning", entries=[entry | {"id": "web-2", "data": {}}])
        return await call("record_reasoning", entries=[entry]), wrong

    right, wrong = call_tools(home, work, "bot")
    assert right.data["first_index"] == right.data["last_index"] > 0
    assert wrong.code == "INVALID_FIELD"


def test_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with Ledger(tmp_path / "ledger", agents=AGENTS) as ledger:
        ledger.write_keys()
        monkeypatch.setenv("DEEDBOOK_HOME", str(ledger.home.path))

    def run(*words: str) -> str:
        assert deed.main([*words], prog_name="deed", standalone_mode=False) in (None, 0)
        return capsys.readouterr().out

    assert "rollout" in run("--help").partition("Families of events")[2]
    assert "web-7: entry" in run("rollout", "start", "web-7", "web", "--as", "bot")
    assert "web-7" in run("rollout", "list", "--as", "bot")
    assert json.loads(run("rollout", "list", "--json"))["data"]["items"][0]["service"] == "web"
    assert "began to roll out" in run("log", "--stream", "rollout/web-7") or "rollout.started" in run("log")


def test_ledger_for_those_without_the_package() -> None:
    folder = Path(os.environ["ROLLOUT_LEDGER"])
    with Ledger(folder / "ledger", agents=AGENTS) as ledger:
        ledger.emit("bot", STREAM, STARTED)
        ledger.emit("bot", STREAM, FINISHED)
        ledger.write_keys()
        with ledger.client() as client:
            export_bundle(client, folder / "bundle.tar")
        assert ours(folder / "bundle.tar").is_good
        with Reader(ledger.client(), ledger.settings()) as reader:
            assert reader.answer("rollout.list")["items"][0]["status"] == "done"
