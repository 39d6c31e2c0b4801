"""Three nodes with their servers: after a redaction no file of any node, server or client holds the body."""

from __future__ import annotations

import contextlib
import json
import random
import shutil
import subprocess
import threading
import time
from typing import TYPE_CHECKING
from uuid import uuid4

import inside
import pytest
from building import trusted
from bundles import run_alone, unpacked
from erasing import SECRET, files_with, signed_redaction
from faults import is_long_run, times
from three_nodes import Nodes, eventually, wait_s
from typescript_agent import ask_agent

from deedbook.consumers.auditor.bundle import verify_bundle
from deedbook.ledger.client.author import Author, Draft
from deedbook.ledger.client.remote import RemoteClient
from deedbook.ledger.errors import Unavailable
from deedbook.ledger.events.session import SessionStarted, UnknownLogged
from deedbook.ledger.format.identity import open_key
from deedbook.ledger.home.config import Settings
from deedbook.ledger.home.home import Home
from deedbook.ledger.home.location import FOLDER
from deedbook.ledger.lifecycle.authority import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.timeout(3600)


def log_secret(nodes: Nodes, secret: str = SECRET) -> int:
    """Let an agent log a secret over the bus, and wait until every node that runs has it."""
    name = nodes.scene.agents[0]
    key = open_key(Home(nodes.folder / "clients").key_file(name))
    with nodes._client(name) as client:
        author = Author(client, name, lambda _: key)
        stream = f"session/{uuid4().hex}"  # the name of a stream is never erased, so it must not contain the secret
        author.emit(Draft(stream=stream, data=SessionStarted()))
        unknown = UnknownLogged(unknown=f"is the password {secret}?")
        index = author.emit(Draft(stream=stream, data=unknown))[0].index
    eventually(lambda: all(nodes._size(name) > index for name in nodes.names), "every node has the secret")
    return index


def views_of(nodes: Nodes, name: str) -> str:
    """Return the answer of one node's views to a question about the secret."""
    settings = Settings(home=nodes.folder / "clients", server=nodes.url_by_node[name], agent=nodes.scene.agents[0])
    with RemoteClient(settings) as client:
        return json.dumps(client.view("search.find", {"text": "password"}), sort_keys=True)


def streams_of(home: Path) -> frozenset[str]:
    """Return the log streams of which a node's server has a copy."""
    return frozenset(path.name for path in home.glob("bus/jetstream-cluster/jetstream/*/streams/DEEDBOOK_*"))


def begin_redaction(nodes: Nodes, index: int) -> threading.Thread:
    """Let root erase an entry, and send the event until it is acknowledged."""
    root = open_key(Home(nodes.scene.homes["node"]).key_file(ROOT))
    with nodes._client(nodes.scene.agents[0]) as client:
        submission = signed_redaction(client, index, root)

    def submit() -> None:
        while True:
            with contextlib.suppress(Unavailable), nodes._client(nodes.scene.agents[0]) as client:
                client.submit(submission)
                return

    thread = threading.Thread(target=submit)
    thread.start()
    return thread


class Project:
    """The project of an agent on a separate machine, in a git repository, and the verbs that are called there."""

    def __init__(self, nodes: Nodes, agent: str) -> None:
        self.nodes, self.agent, self.folder = nodes, agent, nodes.folder / "project"
        self.home = self.folder / FOLDER
        for path in (self.home, self.folder / "docs/handoffs", self.folder / "docs/sessions/handoffs"):
            path.mkdir(parents=True)
        shutil.copytree(nodes.folder / "clients" / "keys", self.home / "keys")
        trusted(self.home)
        for words in (("init", "--quiet"), ("commit", "--quiet", "--allow-empty", "--message", "begin")):
            self.git(*words)

    def run(self, *words: object) -> inside.Said:
        """Call a verb as the agent."""
        return inside.deed(
            "--home", self.home, "--server", self.nodes.urls, *words, "--as", self.agent, cwd=self.folder
        )

    def __call__(self, *words: object) -> inside.Said:
        """Call a verb that may be called again, until it succeeds."""
        return until_done(lambda: self.run(*words))

    def write(self, *words: object) -> None:
        """Call a verb that writes."""
        write(lambda: self.run(*words))

    def git(self, *words: str) -> str:
        """Call git."""
        who = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
        done = subprocess.run(
            ["git", "-C", str(self.folder), *who, *words], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def notes(self) -> str:
        """Return the text of all git notes."""
        refs = self.git("for-each-ref", "--format=%(refname)", "refs/notes").split()
        return "".join(self.git("show", ref) for ref in refs)

    def spread(self) -> None:
        """Put the secret into a finding, a brief, a handoff and a report, and into files and notes of these."""
        self.write("session", "start", "s", "--task", "Look")
        self.write("session", "finding", "s", f"the password is {SECRET}")
        self.write("reasoning", "start", "r", "--task", f"Is {SECRET} safe?")
        self.write("reasoning", "step", "r", f"the password is {SECRET}")
        self.write("reasoning", "conclude", "r", f"It is {SECRET}", "--rests-on", "1")
        self.write("reasoning", "fetch", "r")
        ref = json.loads(self("reasoning", "show", "r", "--json").out)["data"]["ref"]
        parties = ("--to", self.nodes.scene.agents[1], "--reviewer", "rita", "--reasoning", ref)
        self.write("handoff", "create", "h", "--title", "Rotate it", *parties, "--task", f"replace {SECRET}")
        self("handoff", "watch", self.folder / "docs/handoffs", "--once", "--signed")
        report = {
            "report_type": "planning",
            "ai_id": "claude-code",
            "task_summary": "Learn",
            "key_findings": [f"the password is {SECRET}"],
            "recommended_next_steps": ["Go on"],
            "calibration_status": "not_assessable",
        }
        self.write("emit", "report.generated", "--stream", "session/s", "--data", json.dumps(report))
        self("notes", "sync")


def write(call: Callable[[], inside.Said]) -> None:
    """Call a verb that writes. Its answer may come from a following node, which does not have the event yet."""
    while (said := call()).err.startswith("BUS_UNAVAILABLE: the server at "):
        time.sleep(0.1)
    is_behind = said.err.startswith(("NOT_FOUND: there is no ", "VERIFICATION_FAILED: the ledger sent an answer"))
    assert said.code == 0 or is_behind, said.err
    time.sleep(0.5)


def until_done(call: Callable[[], inside.Said]) -> inside.Said:
    """Call a verb until it succeeds: a node that has just started refuses, and a following node may be behind."""
    until = time.monotonic() + wait_s
    while (said := call()).code != 0:
        assert time.monotonic() < until, said.err
    return said


def called(*words: object) -> inside.Said:
    """Call a verb that may be called again, until it succeeds."""
    return until_done(lambda: inside.deed(*words))


def verdict(bundle: Path) -> tuple[str, list[int]]:
    """Return a bundle's verdict and erased entries, on which our auditor, its program and TypeScript agree."""
    folder, report = unpacked(bundle, bundle.with_suffix("")), verify_bundle(bundle)
    assert run_alone(folder).stdout.splitlines()[-1].partition(":")[0] == report.outcome
    (found,) = ask_agent("bundles", folders=[str(folder)])["bundles"]
    erased = [erasure.entry for erasure in report.erased]
    assert found["answer"]["erased"] == erased
    return report.outcome, erased


# In the quick run, two tests each show one half: one node (test_erasing_nodes.py), one project (test_erased_copies.py).
@pytest.mark.long_run
def test_secret_everywhere_is_gone_after_a_redaction_except_in_copies_that_lie_outside(
    nodes: Nodes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = tmp_path_factory.mktemp("outside")
    node = nodes.scene.homes["node"]
    beside = ("--home", node)
    through = (*beside, "--server", nodes.urls)
    roles = ("--role", "human", "--role", "reviewer")
    write(lambda: inside.deed(*through, "agent", "add", "rita", *roles, "--unprotected", "--as", "root"))
    project = Project(nodes, nodes.scene.agents[0])
    with nodes.work():
        project.spread()
        rows = json.loads(project("log", "--limit", "500", "--json").out)["data"]["items"]
        own = [row["index"] for row in rows if row["stream"] in {"session/s", "reasoning/r", "handoff/h"}]
        eventually(lambda: all(nodes._size(name) > max(own) for name in nodes.names), "every node has the secret")
        assert all(SECRET in views_of(nodes, name) for name in nodes.names)  # from now on, their files hold it, too
        held = files_with(nodes.folder)
        for part in ("bus", "log", "views"):
            assert all(any(f"{name}/{part}" in path for path in held) for name in nodes.names), part
        assert {"h.md", "h.deed.json", "s.md", "s.json"} <= {path.rpartition("/")[2] for path in held}
        assert SECRET in project.notes()
        receipts = {index: outside / f"{index}.tlog-proof" for index in own}
        for index, receipt in receipts.items():
            called(*beside, "receipt", index, "--output", receipt)
        called(*beside, "export", outside / "before.tar")
        called(*beside, "backup", outside / "backup.tar")
        away = nodes.names[-1]
        nodes.kill(away)
        (outside / "secret").write_text(SECRET)
        options = ("--repeated", "--reason", "it is a password", "--yes", "--as", "root")
        called(*through, "redact", "--containing", outside / "secret", *options)
        nodes.progress(5)
        nodes.start(away)
        nodes.progress(5)
        nodes.whole()
        assert "rewritten: " in project("handoff", "list").err  # the next command erases its copies
        eventually(lambda: not files_with(nodes.folder), "no file holds it")
    eventually(lambda: len({views_of(nodes, name) for name in nodes.names}) == 1, "the views of all nodes agree")
    assert SECRET not in views_of(nodes, away)
    assert not files_with(nodes.folder)
    assert SECRET not in project.notes()
    nodes.settle("redaction while a node was away")

    # Every earlier proof still holds, and the copies outside of the nodes are unchanged: nobody can erase these.
    for receipt in receipts.values():
        assert json.loads(called(*beside, "receipt", "verify", receipt, "--json").out)["data"]["outcome"] == "VALID"
    called(*beside, "export", outside / "after.tar")
    assert files_with(outside) == ["backup.tar", "before.tar", "secret"]
    assert verdict(outside / "before.tar") == ("VALID", [])
    word, erased = verdict(outside / "after.tar")
    assert word == "VALID_WITH_ERASURES"
    assert len(erased) >= 7
    assert {*erased} <= {*own}
    said = called("--home", outside / FOLDER, "restore", outside / "backup.tar")
    assert "holds this ledger, too: write to only one of the two" in said.out
    assert files_with(outside / FOLDER)


@pytest.mark.skipif(not is_long_run, reason="three nodes and their servers: made by `make faults`")
@pytest.mark.parametrize("is_one_alone", [True, False], ids=["one", "all"])
def test_nodes_that_are_killed_during_redactions_erase_whole(nodes: Nodes, *, is_one_alone: bool) -> None:
    chance, count = random.Random(f"erasing/{is_one_alone}"), times(1, 0.4)
    for number in range(count):
        secret = f"{SECRET} {number:03} of several"
        with nodes.work():
            redacting = begin_redaction(nodes, log_secret(nodes, secret))
            time.sleep(chance.uniform(0, 4))
            killed = [chance.choice(nodes.names)] if is_one_alone else nodes.names
            nodes.kill(*killed)
            nodes.start(*killed)
            redacting.join()
            nodes.progress(3)
            nodes.whole()
            eventually(lambda secret=secret: not files_with(nodes.folder, secret), "no file holds it")
            # A server that was away copies the new stream late. Otherwise the next kill would leave only one whole
            # copy.
            eventually(lambda: len(set(map(streams_of, nodes.scene.homes.values()))) == 1, "every server has a copy")
    nodes.settle(f"kill -9 of {'a node' if is_one_alone else 'all nodes'} during a redaction", count)
