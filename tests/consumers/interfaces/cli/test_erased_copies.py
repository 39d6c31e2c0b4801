"""`deed redact` and the copies of a text on this machine: a raw search over all files of a project finds none."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import sqlite3
import subprocess
import time
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import inside
import pytest
from building import trusted
from calling import Deed, Place, Running, Serving, emit_finding, start_session, wait_max_s
from faults import some_of
from test_cli_notes import git, make_repository, report

from deedbook.consumers.handoffs.files.sync import SyncStore
from deedbook.consumers.interfaces import erased_copies
from deedbook.consumers.interfaces.cli.commands import redact as redact_command
from deedbook.consumers.interfaces.hooks.responses import respond_to
from deedbook.consumers.interfaces.hooks.supervisor import Call, Work
from deedbook.consumers.interfaces.mcp.server import DeedbookServer
from deedbook.consumers.interfaces.mcp.tool_ledger import ToolLedger
from deedbook.consumers.sdk.redaction import find_holders, kept_texts, plan_erasure
from deedbook.ledger.client.author import Draft
from deedbook.ledger.client.local_reader import LocalReader
from deedbook.ledger.events.session import FindingLogged, SessionStarted
from deedbook.ledger.format.envelope import Submission, commitment_to, signed_bytes
from deedbook.ledger.home.location import FOLDER
from deedbook.ledger.home.settings import read_settings
from deedbook.ledger.system.files import files_that_hold

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from building import Ledger

STEPS = ("delete_caches", "erase_reports", "erase_handoff_files", "_erase_in_home")
SECRET = "correct-horse-battery-staple"


@pytest.fixture(autouse=True)
def _own_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "gitconfig"))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")


def in_repository(deed: Deed) -> Deed:
    """Make a repository around a ledger's folder, with folders for handoffs and reports."""
    folder = make_repository(deed.home.parent)
    for name in ("docs/handoffs", "docs/sessions/handoffs"):
        (folder / name).mkdir(parents=True)
    return deed


@pytest.fixture
def project(populated: Callable[[str], Path], capsys: pytest.CaptureFixture[str]) -> Deed:
    """A ledger in a repository of its own."""
    return in_repository(Deed(capsys, Place(populated("erased"))))


class Machines(NamedTuple):
    """A ledger behind a server, with all keys, and the project of an agent on another machine."""

    ledger: Deed
    other: Deed


@pytest.fixture
def machines(
    populated: Callable[[str], Path], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Iterator[Machines]:
    """Two machines with one ledger."""
    home, other = populated("redacting"), tmp_path / "other" / FOLDER
    other.mkdir(parents=True)
    shutil.copytree(home / "keys", other / "keys")
    with Serving(home) as serving:
        place = Place(trusted(other), serving.place.server)
        yield Machines(Deed(capsys, serving.place), in_repository(Deed(capsys, place)))


def spread(deed: Deed) -> None:
    """Put the secret into a finding, a reasoning with brief, a handoff with files, and a report with copies."""
    folder = deed.home.parent
    deed("session", "start", "s0", "--as", "a", "--task", "Look")
    deed("session", "finding", "s0", f"the password is {SECRET}", "--as", "a")
    deed("reasoning", "start", "r1", "--task", f"Is {SECRET} safe?", "--as", "a")
    deed("reasoning", "step", "r1", f"the password is {SECRET}", "--as", "a")
    deed("reasoning", "conclude", "r1", f"It is {SECRET}", "--rests-on", "1", "--as", "a")
    deed("reasoning", "fetch", "r1")
    ref = deed.data("reasoning", "show", "r1")["ref"]
    parties = ("--as", "a", "--to", "b", "--reviewer", "rita", "--reasoning", ref)
    deed("handoff", "create", "h1", "--title", "Rotate it", *parties, "--task", f"replace {SECRET}")
    deed("handoff", "watch", folder / "docs/handoffs", "--as", "a", "--once", "--signed")
    report(deed, "s1", f"the password is {SECRET}")
    deed("notes", "sync")
    deed("search", SECRET)
    (deed.home / "hooks.log").write_text(f"an agent printed {SECRET}\n")


def holding(deed: Deed) -> list[str]:
    """Return the files of the project and of the user's state that contain the secret, without git's own."""
    found = files_that_hold(deed.home.parent.rglob("*"), [SECRET]) + files_that_hold(
        (Path.home() / "state").rglob("*"), [SECRET]
    )
    return [str(path.relative_to(deed.home.parent.parent)) for path in found if ".git" not in path.parts]


def redact(deed: Deed, *options: str) -> dict[str, Any]:
    """Let root redact every entry with the secret."""
    text = deed.home.parent / "secret"
    text.write_text(SECRET)
    try:
        options = ("--containing", str(text), "--repeated", "--reason", "it is a password", "--yes", *options)
        return deed.data("redact", *options, "--as", "root")
    finally:
        text.unlink()


def test_after_a_redaction_no_file_holds_the_text(project: Deed) -> None:
    spread(project)
    folder = project.home.parent
    notes = git(folder, "for-each-ref", "--format=%(refname)", "refs/notes").split()
    assert len(notes) == 2
    before = {Path(name).name for name in holding(project)}
    assert before >= {"h1.md", "h1.deed.json", "s1.md", "s1.json", "views.db", "data.mdb", "hooks.log"}
    answer = redact(project)
    assert holding(project) == []
    assert {Path(copy["place"]).name for copy in answer["copies"] if copy["done"] == "left"} == {".git"}
    for ref in notes:
        (commit,) = git(folder, "log", "--format=%H", ref).split()
        assert SECRET not in git(folder, "show", ref)
        assert commit in git(folder, "rev-list", "--no-walk", ref)
        assert git(folder, "reflog", "show", ref) == ""
    assert SECRET not in git(folder, "notes", "--ref", "empirica/handoff/s1", "show", "HEAD")
    assert "replace" not in (folder / "docs/handoffs/h1.md").read_text()
    assert "[redacted]" in (folder / "docs/handoffs/h1.md").read_text()
    assert project.data("notes", "sync")["written"] == 0
    said = project("handoff", "show", "h1")
    assert "was redacted by root" in said
    assert "it is a password" in said


def test_evidence_goes_with_the_entry_that_names_it_unless_another_one_does(project: Deed) -> None:
    project("session", "start", "s0", "--as", "a", "--task", "Look")
    files = [project.home.parent / name for name in ("one", "two", "three")]
    refs: list[str] = []
    for file in files:
        file.write_text(f"{SECRET} in file {file.name}")
        refs.append(project("blob", "put", file, "--as", "a").strip())
        file.unlink()
    one, two, three = refs
    by_other_digest = "sha256:" + sha256(f"{SECRET} in file three".encode()).hexdigest()
    named = [option for ref in (one, two, three, "blake3:" + "0" * 64) for option in ("--evidence", ref)]
    index = project.data("session", "finding", "s0", "see there", *named, "--as", "a")["accepted"]["index"]
    for ref in (two, by_other_digest):
        project("session", "finding", "s0", "and there", "--evidence", ref, "--as", "a")
    options = ("--reason", "it is a password", "--yes", "--as", "root")
    (erased,) = json.loads(project.run("redact", index, *options, "--json").out)["data"]["entries"]
    assert erased["blobs"] == [one]
    assert [ref["ref"] for ref in project.data("blob", "list")["blobs"]] == sorted([two, three])


def test_edits_of_a_person_stay_and_the_watcher_goes_on(project: Deed) -> None:
    spread(project)
    file = project.home.parent / "docs/handoffs/h1.md"
    file.write_text(file.read_text() + "\nA line of a person.\n")
    redact(project)
    assert holding(project) == []
    assert "A line of a person." in file.read_text()
    said = inside.deed("--home", project.home, "handoff", "watch", file.parent, "--as", "a", "--once")
    assert SECRET not in said.out + said.err
    assert holding(project) == []


def test_texts_go_from_stores_of_messages_and_a_spool_is_named(project: Deed) -> None:
    spread(project)
    path = project.home / "notifier.db"
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE queue (id INTEGER, body TEXT, raw BLOB)")
        row = (f"it is {SECRET}!", json.dumps({"text": f"it is {SECRET}!"}).encode())
        db.execute("INSERT INTO queue VALUES (1, ?, ?)", row)
        db.commit()
    spool = project.home / "spool" / "a"
    spool.mkdir(parents=True)
    (spool / "00000001").write_bytes(SECRET.encode())
    answer = redact(project)
    with closing(sqlite3.connect(path)) as db:
        ((body, raw),) = db.execute("SELECT body, raw FROM queue")
        assert (body, json.loads(raw)) == ("it is [redacted]!", {"text": "it is [redacted]!"})
    left = [copy for copy in answer["copies"] if copy["done"] == "left" and "spool" in copy["place"]]
    assert "deed spool drop" in left[0]["reason"]


def test_git_still_has_the_old_objects_until_it_prunes_them(project: Deed) -> None:
    spread(project)
    folder = project.home.parent
    objects = git(folder, "rev-list", "--objects", "--all").split("\n")
    blobs = [line.split()[0] for line in objects if " " in line]
    old = [blob for blob in blobs if SECRET in git(folder, "cat-file", "-p", blob)]
    assert old
    answer = redact(project)
    assert any("git gc --prune=now" in copy["reason"] for copy in answer["copies"])
    git(folder, "gc", "--quiet", "--prune=now")
    for blob in old:
        command = ["git", "-C", str(folder), "cat-file", "-e", blob]
        assert subprocess.run(command, check=False, capture_output=True).returncode != 0


def test_every_verb_that_shows_an_erased_entry_says_by_whom_when_and_why(project: Deed) -> None:
    spread(project)
    rows = project.data("log", "--limit", "500")["items"]
    index = next(row["index"] for row in rows if row["kind"] == "finding.logged")
    redact(project)
    for verb in (
        ("show", str(index)),
        ("session", "show", "s0"),
        ("reasoning", "show", "r1"),
        ("handoff", "show", "h1"),
    ):
        said = project(*verb)
        assert "REDACTED: entry" in said, verb
        assert "was redacted by root on " in said
        assert "it is a password" in said
    assert f"REDACTED: entry {index} was redacted by root" in project("show", str(index))
    shown = project.data("show", str(index))
    assert (shown["redacted"]["entry"], shown["data"]["finding"]) == (index, "[redacted]")
    assert "erased" in shown
    assert "erased" not in project.data("show", "0")
    listed = next(row for row in project.data("log", "--limit", "500")["items"] if row["index"] == index)
    assert listed["redacted"]["by"] == "root"
    assert "REDACTED: " in project("handoff", "list")
    assert "REDACTED: " in project("next", "--as", "rita")


def test_entries_that_hold_the_text_only_in_a_name_do_not_keep_the_others_from_being_erased(project: Deed) -> None:
    project("session", "start", "correct-horse", "--as", "a", "--task", "Look")
    project("session", "finding", "correct-horse", "the password is correct-horse", "--as", "a")
    project("session", "end", "correct-horse", "--as", "a")
    text = project.home.parent / "secret"
    text.write_text("correct-horse")
    options = ("redact", "--containing", str(text), "--reason", "a password", "--yes", "--as", "root")
    stream = {"entry": project.size() - 1, "fields": ["stream"]}
    dry = json.loads(project.run("redact", "--containing", str(text), "--dry-run", "--json").out)["data"]
    assert (dry["is_done"], dry["kept"][-1]) == (False, stream)
    assert {tuple(row["fields"]) for row in dry["kept"]} == {("stream",)}
    said = project.run(*options)
    assert "session.ended has no text to erase" in said.err
    for told in (said.err, said.out):
        assert f"entry {stream['entry']} keeps the text in stream: it cannot be erased there" in told
    assert "the password is" not in project("session", "show", "correct-horse")
    project.refuses("NOTHING_CHANGED", *options)


def test_names_and_keys_that_keep_a_text_are_named_without_repeating_it(ledger: Ledger) -> None:
    data = FindingLogged(finding=SECRET, evidence=[SECRET])
    ledger.emit("alice", "session/s", SessionStarted())
    ledger.emit("alice", f"session/{SECRET}", SessionStarted(task="Look"))
    draft = Draft(stream="session/s", data=data, corr=f"of-{SECRET}", idem=SECRET)
    ledger.submit(ledger.sign("alice", draft))
    with ledger.client() as client:
        (holders,) = find_holders(client, [SECRET]).values()
        planned = [plan_erasure(client, index) for index in holders]
        kept = kept_texts(client, holders, planned, SECRET)
        assert [(row.entry - holders[0], row.fields) for row in kept] == [(0, ["stream"]), (1, ["corr", "idem"])]
        whole = kept_texts(client, holders, [], SECRET)
    assert whole[1].fields == ["corr", "data.evidence", "data.finding", "idem"]


def test_text_is_found_in_every_spelling_of_json(ledger: Ledger) -> None:
    ledger.emit("alice", "session/s", SessionStarted())
    body = ledger.body_of("alice", Draft(stream="session/s", data=FindingLogged(finding="http://x/é")))
    for old, new in (("/x/", "\\/x\\/"), ("é", "\\u00e9"), ("é", "é")):
        ledger.clock.advance(1)
        spelled = body.replace(old.encode(), new.encode()).replace(b'"causes"', b'"corr":"%d","causes"' % len(new))
        key = ledger.keys["alice"]
        ledger.submit(Submission(1, key.public, key.sign(signed_bytes([commitment_to(spelled)])), (spelled,)))
    with ledger.client() as client:
        size = client.head().size
        assert find_holders(client, ["http://x/é"])["http://x/é"] == [*range(size - 3, size)]


class KilledError(Exception):
    """The process was killed here."""


def redact_until_copies(project: Deed, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, tuple[str, ...]]:
    """Redact with a command that is killed before it cleans the copies; return the text's file and the command."""
    spread(project)
    text = project.home.parent / "secret"
    text.write_text(SECRET)
    options = ("redact", "--containing", str(text), "--reason", "a password", "--yes", "--as", "root")
    with monkeypatch.context() as patch:
        patch.setattr(redact_command, "_finish", raising(KilledError))
        assert project.run(*options).code == 1
    return text, options


def test_redaction_that_was_killed_before_it_came_to_the_copies_is_finished_by_the_same_command(
    project: Deed, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, options = redact_until_copies(project, monkeypatch)
    assert "docs/handoffs/h1.md" in "\n".join(holding(project))
    assert [copy["done"] for copy in project.data(*options)["copies"] if copy["place"].endswith("h1.md")] == [
        "rewritten"
    ]
    text.unlink()
    assert holding(project) == []


def test_verb_that_signs_nothing_takes_the_texts_out_of_the_copies_too(
    project: Deed, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, _ = redact_until_copies(project, monkeypatch)
    text.unlink()
    assert "docs/handoffs/h1.md" in "\n".join(holding(project))
    assert "redacted since the last look here" in project.run("next", "--as", "a").err
    assert "docs/handoffs/h1.md" not in "\n".join(holding(project))
    assert project.run("next", "--as", "a").err == ""


def test_body_that_a_ledger_still_gives_out_after_its_redaction_is_not_shown(
    project: Deed, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = start_session(project, "s")
    index = emit_finding(project, session, f"the password is {SECRET}")["index"]
    with LocalReader(read_settings(home=project.home)) as reader:
        kept = reader.entry(index)
    assert SECRET in project("show", index)
    redact(project)
    monkeypatch.setattr(LocalReader, "entry", lambda *_: kept)
    for options in ((), ("--dsse",)):
        assert SECRET not in str(project.refuses("ERASED_BODY_SERVED", "show", index, *options))


def raising(error: type[Exception]) -> Callable[..., Any]:
    """Return a function that raises an error."""

    def fail(*_arguments: Any, **_more: Any) -> Any:
        raise error

    return fail


def test_another_machine_takes_the_texts_out_of_its_copies_when_it_next_runs(machines: Machines) -> None:
    other, folder = machines.other, machines.other.home.parent
    watched = folder / "work"
    watched.mkdir()
    spread(other)
    other("handoff", "watch", watched, "--as", "a", "--once")
    note = "- a line of a person\n"
    (watched / "h1.md").write_text((watched / "h1.md").read_text() + note)
    before = {str(Path(name).relative_to("other")) for name in holding(other)}
    assert before >= {"docs/handoffs/h1.md", "docs/handoffs/h1.deed.json", "work/h1.md", ".deedbook/hooks.log"}
    assert any(name.startswith("docs/sessions/handoffs/") for name in before)
    assert any(name.startswith(".deedbook/subscribers/files-") for name in before)
    notes = git(folder, "for-each-ref", "--format=%(refname)", "refs/notes").split()
    redact(machines.ledger)
    said = other.run("handoff", "list", "--as", "b")
    assert "redacted since the last look here" in said.err
    assert f"rewritten: {folder / 'docs/handoffs/h1.md'}" in said.err
    # No entry refers to the text printed into a log of this machine, and nobody on this machine knows the text.
    assert holding(other) == ["other/.deedbook/hooks.log"]
    assert [SECRET in git(folder, "show", ref) for ref in notes] == [False, False]
    assert (watched / "h1.md").read_text().endswith(note)
    size = machines.ledger.size()
    said = other.run("handoff", "watch", watched, "--as", "a", "--once")
    assert [line.split()[0] for line in said.out.splitlines()] == ["held"]  # only the line that a person added is held
    assert machines.ledger.size() == size
    assert other.run("handoff", "list", "--as", "b").err == ""
    redact(other)
    assert holding(other) == []


def by_watcher(other: Deed) -> None:
    """Let a watcher of handoff files run."""
    other.run("handoff", "watch", other.home.parent / "docs/handoffs", "--as", "a", "--once")


def by_hook(other: Deed) -> None:
    """Let a harness begin a session."""
    call = Call("claude-code", "a", other.home, other.place and other.place.server)
    respond_to(Work(call, other.home, {"hook_event_name": "SessionStart", "session_id": "s", "source": "startup"}))


def by_mcp(other: Deed) -> None:
    """Let an agent call a tool over MCP."""
    settings = read_settings(home=other.home, server=other.place and other.place.server, agent="a")
    with ToolLedger(settings=settings) as ledger:
        asyncio.run(DeedbookServer(ledger).call_tool("search", {"text": "password"}))


@pytest.mark.parametrize("runs", [by_watcher, by_hook, by_mcp])
def test_each_program_of_another_machine_notices_a_redaction(machines: Machines, runs: Callable[[Deed], None]) -> None:
    spread(machines.other)
    (machines.other.home / "hooks.log").unlink()
    redact(machines.ledger)
    assert holding(machines.other)
    runs(machines.other)
    assert holding(machines.other) == []


def test_running_watcher_notices_a_redaction(machines: Machines) -> None:
    other, folder = machines.other, machines.other.home.parent
    spread(other)
    (other.home / "hooks.log").unlink()
    assert other.place is not None
    options = ("--home", other.home, "--server", other.place.server)
    with Running(*options, "handoff", "watch", folder / "docs/handoffs", "--as", "a", "--json") as watching:
        redact(machines.ledger)
        deadline = time.monotonic() + wait_max_s
        while held := holding(other):
            assert time.monotonic() < deadline, held
            time.sleep(0.1)
        watching.signal(signal.SIGTERM)


@pytest.mark.parametrize("step", some_of(STEPS, "erase_handoff_files", "_erase_in_home"))
def test_machine_that_is_killed_meanwhile_goes_on_with_its_next_command(
    machines: Machines, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    other = machines.other
    spread(other)
    (other.home / "hooks.log").unlink()
    redact(machines.ledger)
    with monkeypatch.context() as patch:
        patch.setattr(erased_copies, step, raising(KilledError))
        assert other.run("next", "--as", "b").code == 1
    other("next", "--as", "b")
    assert holding(other) == []


def test_a_kill_between_a_file_and_its_watcher_s_state_makes_no_edit_of_the_old_text(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = machines.other
    spread(other)
    redact(machines.ledger)
    size = machines.ledger.size()
    with monkeypatch.context() as patch:
        patch.setattr(SyncStore, "agree", raising(KilledError))
        assert other.run("next", "--as", "b").code == 1
    by_watcher(other)
    assert machines.ledger.size() == size
    assert holding(other) == ["other/.deedbook/hooks.log"]


def test_a_folder_outside_of_the_project_is_left_to_its_own_watcher(machines: Machines, tmp_path: Path) -> None:
    other, outside = machines.other, tmp_path / "outside"
    outside.mkdir()
    spread(other)
    watch = ("handoff", "watch", outside, "--as", "a", "--once", "--signed")
    other(*watch)
    (other.home / "hooks.log").unlink()
    redact(machines.ledger)
    other("next", "--as", "b")
    assert len(files_that_hold(outside.iterdir(), [SECRET])) == 2
    other(*watch)
    assert files_that_hold(outside.iterdir(), [SECRET]) == []


def test_a_stranger_s_folder_is_not_rewritten(machines: Machines, monkeypatch: pytest.MonkeyPatch) -> None:
    spread(machines.other)
    redact(machines.ledger)
    before = holding(machines.other)
    with monkeypatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(machines.other.home.parent / "stranger"))
        machines.other.run("next", "--as", "b")
    assert holding(machines.other) == before
