"""`deed serve` and `deed watch` as processes: started, killed, refused a second time, and acting on each event."""

from __future__ import annotations

import contextlib
import json
import shlex
import signal
import socket
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import inside
import pytest
from building import trusted
from calling import Deed, Place, Running, Serving, call, call_all, wait_until
from ports import port_option

from deedbook.consumers.interfaces.cli.commands.agents import may_be_taken
from deedbook.consumers.interfaces.cli.commands.serve import last_port
from deedbook.ledger.home.config import first_ports
from deedbook.ledger.home.home import Home

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def home(alone: Deed) -> Path:
    """A ledger with agent a and a session of it."""
    alone("agent", "add", "a")
    alone("emit", "session.started", "--stream", "session/s", "--data", "{}", "--as", "a")
    return alone.home


def is_alive(pid: int) -> bool:
    """Return whether a process with this id exists and has not ended."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def bus_pid(home: Path) -> int:
    """Return the process id of the nats-server that serves a ledger."""
    (found,) = [int(path.read_text()) for path in (home / "bus").glob("*.pid")]
    return found


def find(place: Place, finding: str) -> dict[str, Any]:
    """Emit a finding as a, and return the answer."""
    server = ["--server", place.server] if place.server else []
    data = json.dumps({"finding": finding})
    emitted = ["emit", "finding.logged", "--stream", "session/s", "--as", "a", "--data", data, "--json"]
    said = inside.deed("--home", place.home, *server, *emitted)
    assert said.code == 0, said.out
    answer: dict[str, Any] = json.loads(said.out)["data"]
    return answer


def test_serve_says_where_it_listens_and_ends_cleanly(home: Path) -> None:
    with Serving(home) as serving:
        assert serving.document["kind"] == "serving"
        assert serving.document["data"]["url"] == (home / "bus" / "url").read_text().strip()
        server = bus_pid(home)
        index = find(serving.place, "over the bus")["index"]
        said = serving.signal(signal.SIGTERM)
    assert (said.code, said.out, said.err) == (0, "", "")
    assert not is_alive(server)
    assert not (home / "bus" / "url").exists()
    assert (
        json.loads(inside.deed("--home", home, "show", index, "--json").out)["data"]["data"]["finding"]
        == "over the bus"
    )


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A ledger behind a server, with agent a and a session of it."""
    home = tmp_path_factory.mktemp("shared") / ".deedbook"
    started = ["emit", "session.started", "--stream", "session/s", "--data", "{}", "--as", "a"]
    call_all(home, ["init", "--unprotected"], ["agent", "add", "a"], started)
    with Serving(home) as serving:
        yield serving.place


def test_https_uses_renewed_files_and_every_log_line_of_the_level_is_json(home: Path, tmp_path: Path) -> None:
    certify = [Path(__file__).parents[4] / "deploy" / "tls.sh", tmp_path, "web=localhost"]
    subprocess.run(certify, check=True, capture_output=True)
    tls = ["--tls", str(tmp_path / "web.pem"), str(tmp_path / "web.key")]
    assert "--tls needs --web" in call("--home", home, "serve", *tls).err
    with Serving(home, "--web", "0", *tls, DEEDBOOK_LOG_LEVEL="info") as serving:
        assert serving.document["data"]["web"].startswith("https://127.0.0.1:")
        subprocess.run(certify, check=True, capture_output=True)
        lines = [serving.error_line()]
        while "renewed" not in lines[-1] and lines[-1]:
            lines.append(serving.error_line())
        assert {json.loads(line)["level"] for line in lines} == {"info"}


def test_second_serve_of_a_ledger_is_refused(shared: Place) -> None:
    said = call("--home", shared.home, "serve")
    assert (said.code, said.out) == (7, "")
    assert said.err.startswith("STORE_IN_USE: ")
    assert "stop that process first" in said.err
    assert "or `kill " in said.err
    assert f"serves this ledger at {shared.server}" in said.err
    assert json.loads(inside.deed("--home", shared.home, "serve", "--json").out)["error"]["code"] == "STORE_IN_USE"
    assert find(shared, "still served")["is_repeat"] is False


def test_serve_for_people_names_its_services_once_and_its_end(home: Path) -> None:
    for is_first in (True, False):
        with Running("--home", home, "serve", *port_option(home)) as serving:
            assert serving.line().startswith("ledger ")
            if is_first:
                assert "registered compressor and router" in serving.line()
            said = serving.signal(signal.SIGTERM)
            assert said.out == ""
            assert (said.code, said.err.splitlines()[-1]) == (0, "stopped")


def test_log_that_is_followed_goes_on_when_the_server_is_back(home: Path) -> None:
    with Serving(home) as serving:
        server = serving.place.server
        following = Running("--home", home, "--as", "a", "--server", server, "log", "--follow", "--json")
        with following:
            find(serving.place, "before")
            while "before" not in following.line():
                pass
            serving.signal(signal.SIGTERM)
            assert "the server is gone, waiting for it" in following.error_line()
            find(Place(home), "between")
            with Serving(home, "--port", str(server).rpartition(":")[2]) as again:
                find(again.place, "after")
                texts = [following.line() for _ in range(2)]
                while "after" not in texts[-1]:
                    texts.append(following.line())
                assert "the server is back" in following.error_line()
    assert [sum(word in text for text in texts) for word in ("before", "between", "after")] == [0, 1, 1]


def test_local_verbs_work_beside_a_server(shared: Place) -> None:
    index = find(Place(shared.home), "beside")["index"]
    shown = inside.deed("--home", shared.home, "--server", shared.server, "show", index, "--json")
    assert json.loads(shown.out)["data"]["data"]["finding"] == "beside"


def test_killed_server_starts_again_with_everything_that_was_acknowledged(home: Path) -> None:
    with Serving(home) as serving:
        server = bus_pid(home)
        acknowledged = [find(serving.place, f"number {number}") for number in range(3)]
        serving.signal(signal.SIGKILL)
    with Serving(home) as serving:
        assert not is_alive(server)
        for one in acknowledged:
            shown = inside.deed("--home", home, "--server", serving.place.server, "show", one["index"], "--json")
            assert json.loads(shown.out)["data"]["id"] == one["id"]
        assert find(serving.place, "after the kill")["index"] > acknowledged[-1]["index"]
        verified = inside.deed("--home", home, "--server", serving.place.server, "verify", "--json")
        assert json.loads(verified.out)["data"]["ok"] is True
        assert serving.signal(signal.SIGINT).code == 0


def test_agent_with_nothing_but_its_keys_works_from_another_folder(shared: Place, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere" / "keys"
    elsewhere.mkdir(parents=True)
    for suffix in ("key", "nkey"):
        content = (shared.home / "keys" / f"a.{suffix}").read_bytes()
        (elsewhere / f"a.{suffix}").touch(0o600)
        (elsewhere / f"a.{suffix}").write_bytes(content)
    trusted(elsewhere.parent)
    index = find(Place(elsewhere.parent, shared.server), "from elsewhere")["index"]
    remote = ["--home", elsewhere.parent, "--server", shared.server]
    said = inside.deed(*remote, "show", index, "--json", "--as", "a")
    assert json.loads(said.out)["data"]["author"] == "a"
    assert inside.deed(*remote, "log").code == 2
    assert not (elsewhere.parent / "log").exists()


def test_stranger_is_not_let_in(shared: Place, tmp_path: Path) -> None:
    other = tmp_path / "other"
    assert inside.deed("--home", other, "init", "--unprotected").code == 0
    assert inside.deed("--home", other, "agent", "add", "eve").code == 0
    said = inside.deed("--home", other, "--server", shared.server, "log", "--as", "eve")
    assert said.code == 5
    assert said.err.startswith("BUS_DENIED: ")
    assert "Run `deed agent show eve` beside the ledger" in said.err


class Watched:
    """A watcher whose command writes each event to a file, and fails on findings that say so."""

    def __init__(self, home: Path, folder: Path) -> None:
        self.home = home
        self.file = folder / "seen"
        program = folder / "effect.py"
        program.write_text(
            "import json, os, sys\n"
            "event = json.load(sys.stdin)\n"
            f"with open({str(self.file)!r}, 'a') as file:\n"
            "    seen = [os.environ['DEEDBOOK_EVENT_ID'], event['id'], event['stream'], event['data']['finding']]\n"
            "    file.write(json.dumps(seen) + '\\n')\n"
            "sys.exit('fail' in event['data']['finding'])\n"
        )
        command = shlex.join([sys.executable, str(program)])
        self.arguments = ["--home", home, "watch", "--as", "a", "--kind", "finding.logged", "--exec", command]

    def seen(self) -> list[list[str]]:
        """Return the inputs that the command got so far."""
        return [json.loads(line) for line in self.file.read_text().splitlines()] if self.file.exists() else []

    def findings(self) -> list[str]:
        """Return the findings that the command was given."""
        return [one[-1] for one in self.seen()]

    def position(self) -> int | None:
        """Return the index that the watcher reads next, None before it has one."""
        for path in (self.home / "subscribers").glob("watch-*.db"):
            # The table may not exist yet.
            with closing(sqlite3.connect(path)) as db, contextlib.suppress(sqlite3.OperationalError):
                for (position,) in db.execute("SELECT next_index FROM deedbook_positions"):
                    return int(position)
        return None


@pytest.fixture
def watched(home: Path, tmp_path: Path) -> Watched:
    """A watcher of the ledger."""
    return Watched(home, tmp_path)


def test_watcher_reacts_once_to_each_event_and_goes_on_where_it_stopped(home: Path, watched: Watched) -> None:
    find(Place(home), "before the watch")
    with Running(*watched.arguments) as watching:
        wait_until(lambda: watched.position() is not None, "the watcher has a position")
        first = find(Place(home), "one")
        wait_until(lambda: (watched.position() or 0) > first["index"], "the command ran, and that was kept")
        assert watching.signal(signal.SIGTERM).code == 0
    assert watched.seen() == [[first["id"], first["id"], "session/s", "one"]]
    find(Place(home), "two")
    find(Place(home), "three")
    assert inside.deed(*watched.arguments, "--once").code == 0
    assert inside.deed(*watched.arguments, "--once").code == 0
    assert watched.findings() == ["one", "two", "three"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_what_ends_a_watcher_ends_its_command_with_all_that_it_started(
    home: Path, tmp_path: Path, number: signal.Signals
) -> None:
    pids = tmp_path / "pids"
    command = f"sleep 60 & echo $! > {pids}; echo $$ >> {pids}; wait"
    watch = ("--home", home, "--as", "a", "watch", "--kind", "finding.logged", "--exec", command)
    with Running(*watch, "--from-start") as watching:
        find(Place(home), "one")
        wait_until(lambda: pids.exists() and len(pids.read_text().split()) == 2, "the command runs")
        assert watching.signal(number).code == 0
    assert not any(is_alive(int(pid)) for pid in pids.read_text().split())


def test_watcher_that_was_killed_misses_nothing(home: Path, watched: Watched) -> None:
    with Running(*watched.arguments) as watching:
        wait_until(lambda: watched.position() is not None, "the watcher has a position")
        find(Place(home), "one")
        wait_until(watched.seen, "the command ran")
        watching.signal(signal.SIGKILL)
    find(Place(home), "two")
    assert inside.deed(*watched.arguments, "--once").code == 0
    # At least once: an event that was being handled at the kill may be delivered again, with the same id.
    assert list(dict.fromkeys(watched.findings())) == ["one", "two"]


def test_event_that_fails_is_a_dead_letter_and_does_not_block_the_next(home: Path, watched: Watched) -> None:
    assert inside.deed(*watched.arguments, "--once").code == 0
    bad = find(Place(home), "this will fail")
    find(Place(home), "good")
    said = inside.deed(*watched.arguments, "--once")
    assert said.code == 1
    assert watched.findings() == ["this will fail"] * 5 + ["good"]
    letters = [json.loads(line) for line in said.err.splitlines() if "dead letter" in line]
    assert [(one["index"], one["id"]) for one in letters] == [(bad["index"], bad["id"])]
    assert inside.deed(*watched.arguments, "--once").code == 0
    assert len(watched.findings()) == 6


def test_watcher_can_begin_at_the_first_entry(home: Path, watched: Watched) -> None:
    find(Place(home), "long ago")
    assert inside.deed(*watched.arguments, "--once", "--from-start").code == 0
    assert watched.findings() == ["long ago"]


def test_watcher_without_a_command_prints_one_document_a_line(home: Path) -> None:
    findings = [find(Place(home), f"number {number}") for number in range(2)]
    said = inside.deed("--home", home, "watch", "--as", "a", "--kind", "finding.logged", "--once", "--from-start")
    assert [json.loads(line)["id"] for line in said.out.splitlines()] == [one["id"] for one in findings]


def test_watcher_is_woken_through_a_server(home: Path, watched: Watched) -> None:
    with Serving(home) as serving, Running(*watched.arguments, "--server", serving.place.server) as watching:
        wait_until(lambda: watched.position() is not None, "the watcher has a position")
        find(serving.place, "remote")
        wait_until(watched.seen, "the command ran")
        assert watching.signal(signal.SIGINT).code == 0
    assert watched.findings() == ["remote"]


def test_watch_refuses_what_it_cannot_do(alone: Deed) -> None:
    alone.refuses("UNKNOWN_KIND", "watch", "--as", "a", "--kind", "finding.loged")
    alone.refuses("USAGE", "watch", "--kind", "finding.logged")
    alone.refuses("USAGE", "watch", "--as", "a")


def test_server_keeps_the_port_of_its_last_run_and_says_when_it_cannot(home: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with Serving(home, "--port", str(port)) as serving:
        assert serving.document["data"]["url"] == f"nats://127.0.0.1:{port}"
        said = inside.deed("--home", home, "agent", "invite", "bob")
        assert "The system chose that port" in said.err
        assert said.code == 0
        named = inside.deed("--home", home, "agent", "invite", "carol", "--address", "nats://ledger.example:4222")
        assert "The system chose that port" not in named.err
        assert f"The server here listens on nats://127.0.0.1:{port} only" in named.err
        assert "SSH tunnel" in named.err
    away = inside.deed("--home", home, "agent", "invite", "dave")
    assert "start `deed serve`" in away.err
    with socket.create_server(("127.0.0.1", port)):
        refused = inside.deed("--home", home, "serve")
        assert refused.code == 7
        assert f"another program uses port {port} of 127.0.0.1" in refused.err
        assert "deed join --address nats://HOST:N" in refused.err
        assert "leave --port out" in inside.deed("--home", home, "serve", "--port", port).err
    with socket.create_server(("127.0.0.1", 0)) as free:
        other = free.getsockname()[1]
    for arguments in (["--port", str(other)], []):
        with Serving(home, *arguments) as moved:
            assert moved.document["data"]["url"] == f"nats://127.0.0.1:{other}"


def test_first_start_listens_on_a_port_that_the_system_gives_nobody(home: Path) -> None:
    with Running("--home", home, "serve", "--json") as serving:
        port = int(json.loads(serving.line())["data"]["url"].rpartition(":")[2])
        assert last_port(Home(home)) == port
    assert port in first_ports


@pytest.mark.parametrize("text", ["", "x\n", "0\n", "65536\n", "-1\n", "4222"])
def test_remembered_port_that_is_none_is_ignored(home: Path, text: str) -> None:
    (home / "bus").mkdir(exist_ok=True)
    (home / "bus" / "port").write_text(text)
    assert last_port(Home(home)) is None


@pytest.mark.parametrize(
    ("server", "may"), [("nats://127.0.0.1:4222", False), ("nats://h", False), ("nats://h:60000", True)]
)
def test_port_of_the_range_of_the_system_may_be_taken(server: str, may: bool) -> None:
    assert may_be_taken(server) == may
