"""A task's log folder on disk: whole files, identical when repeated, without parts of older exports or of others."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import tot_story
from tot_story import N11, N12, ROOT, STORY, TASK, Said

from deedbook.consumers.thoughts import events as kinds
from deedbook.consumers.thoughts.logs import log_files, write_logs
from deedbook.ledger.errors import Unavailable

if TYPE_CHECKING:
    from pathlib import Path

    from deedbook.ledger.events.body import Event


def longer() -> list[Event]:
    """Return the events of a task with so many rounds that all its files get other numbers."""
    said = tot_story.opening()
    for _ in range(48):
        said += tot_story.level(len(said), ROOT, [N11, N12])
    return tot_story.events(said)


def test_folder_is_written_under_the_tasks_id_and_again_byte_by_byte(tmp_path: Path) -> None:
    folder = write_logs(tot_story.events(), tmp_path / "logs")
    assert folder == tmp_path / "logs" / TASK
    first = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert first == log_files(tot_story.events())
    (folder / "07-evaluator-round2.log").write_bytes(b"torn")
    write_logs(tot_story.events(), tmp_path / "logs")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == first


def test_files_whose_number_changed_are_removed_and_others_left(tmp_path: Path) -> None:
    folder = write_logs(tot_story.events(), tmp_path)
    (folder / "my-notes.log").write_text("mine")
    write_logs(longer(), tmp_path)
    names = {path.name for path in folder.iterdir()}
    assert names == set(log_files(longer())) | {"my-notes.log"}


def test_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("a file")
    with pytest.raises(Unavailable) as found:
        write_logs(tot_story.events(), tmp_path / "logs")
    assert found.value.code == "STORE_UNAVAILABLE"


def test_no_file_holds_what_moves_a_terminals_cursor_or_ends_a_line() -> None:
    wild = "a\x1b[2J\x7f\x9b31m\r\n\u202e\u2028\U000e0001😀"
    entry = kinds.LogEntry(level="info", msg=wild, data={wild: [wild]})
    problem = Said("orchestrator", tot_story.started(problem=wild))
    line = Said("explorer", kinds.TotLogWritten(sender="explorer", task_id=TASK, entries=[entry]), (3,))
    files = log_files(tot_story.events([problem, *STORY[1:], line]))
    for content in files.values():
        assert all(one.isprintable() for one in content.decode().split("\n"))
    last = json.loads(files["03-explorer.log"].splitlines()[-1])
    assert (last["msg"], last["data"], json.loads(files["00-task-info.json"])["problem"]) == (
        wild,
        {wild: [wild]},
        wild,
    )


def test_task_ends_with_its_search_whatever_is_said_later() -> None:
    late = kinds.Failure(code="EVALUATION_TIMEOUT", message="too late", recoverable=True)
    said = [*STORY, Said("evaluator", kinds.TotError(sender="evaluator", task_id=TASK, error=late), (3,))]
    name = "00-task-info.json"
    assert log_files(tot_story.events(said))[name] == log_files(tot_story.events())[name]
