"""Files are replaced as a whole. Unfinished files of killed processes are deleted; those of running ones stay."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from deedbook.ledger.system.files import replacing

PROGRAM = """
import pathlib, signal, sys
from deedbook.ledger.system.files import replacing
with replacing(pathlib.Path(sys.argv[1]), label="bundle-") as file:
    file.write(b"half")
    file.flush()
    print("writing", flush=True)
    signal.pause()
"""


def hidden(folder: Path) -> list[Path]:
    """Return the temporary files in a folder."""
    return sorted(folder.glob(".deedbook-*"))


def test_file_of_a_relative_path_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    with replacing(Path("folder/file")) as file:
        file.write(b"whole")
    assert [path.name for path in (tmp_path / "folder").iterdir()] == ["file"]
    assert (tmp_path / "folder" / "file").read_bytes() == b"whole"


def test_next_writer_deletes_the_file_of_a_killed_process_and_not_that_of_a_living_one(tmp_path: Path) -> None:
    (tmp_path / ".deedbook-settings").write_text("somebody's own")
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "large")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"writing\n"
        with replacing(tmp_path / "other", label="bundle-") as file:
            file.write(b"whole")
        assert len(hidden(tmp_path)) == 2
        writer.send_signal(signal.SIGKILL)
    assert len(hidden(tmp_path)) == 2
    with replacing(tmp_path / "large", label="bundle-") as file:
        file.write(b"whole")
    assert [path.name for path in hidden(tmp_path)] == [".deedbook-settings"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [".deedbook-settings", "large", "other"]
