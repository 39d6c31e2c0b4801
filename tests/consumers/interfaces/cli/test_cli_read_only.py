"""A ledger on read-only media, such as an evidence copy: the verbs can read and audit it, but not write.

The folder is mounted read-only in a namespace of its own, which stops root, too.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import httpx
import pytest
from building import Ledger
from faults import some_of

from deedbook.ledger.events.session import SessionStarted

if TYPE_CHECKING:
    from pathlib import Path

MOUNTED: Final = 'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" && shift && exec "$@"'
CALL: Final = (sys.executable, "-P", "-m", "deedbook")


def run(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a verb on a home that is mounted read-only."""
    # For a user, -r gives a namespace in which they may mount; root may mount already.
    command = ["unshare", "-r", "-m", "sh", "-c", MOUNTED, "sh", str(home), *CALL, "--home", str(home), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, cwd=home.parent)


@pytest.fixture
def evidence(home: Path) -> Path:
    """A ledger's folder with a handoff and a session."""
    with Ledger(home) as ledger:
        ledger.finish("first", verify=True, criteria=["it is checked"])
        ledger.emit("alice", "session/s1", SessionStarted(task="audit"))
        ledger.write_keys()
    return home


def test_mount_is_really_read_only(evidence: Path) -> None:
    words = ["unshare", "-r", "-m", "sh", "-c", MOUNTED, "sh", str(evidence), "touch", str(evidence / "new")]
    answer = subprocess.run(words, capture_output=True, text=True, check=False)
    assert answer.returncode != 0
    assert "ead-only" in answer.stderr


READING = (
    *(
        "verify",
        "verify --views",
        "fsck",
        "log",
        "handoff list",
        "handoff show first",
        "show 3",
        "search audit",
        "next",
    ),
    *("session list", "agent list", "doctor", "export ../out.tar", "checkpoint"),
)


@pytest.mark.parametrize("words", some_of(READING, "verify --views", "fsck", "next", "doctor", "export ../out.tar"))
def test_verb_that_reads_works_on_read_only_media(evidence: Path, words: str) -> None:
    answer = run(evidence, *words.replace("../", f"{evidence.parent}/").split())
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert not (evidence / "views.db").exists()


def test_verb_that_writes_is_refused_as_read_only(evidence: Path) -> None:
    answer = run(evidence, "session", "start", "s2", "--as", "alice")
    assert answer.returncode == 7, answer.stdout + answer.stderr
    assert "STORE_UNAVAILABLE" in answer.stderr
    assert "read-only" in answer.stderr


def test_verb_on_a_log_cut_short_says_how_to_restore(evidence: Path) -> None:
    with (evidence / "log" / "data.mdb").open("r+b") as file:
        file.truncate(5 * 4096)
    for words in ("log", "verify", "handoff list", "serve", "doctor", "init"):
        command = [*CALL, "--home", str(evidence), *words.split()]
        answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert answer.returncode == (7 if words == "doctor" else 6), answer.stdout + answer.stderr
        assert "deed restore" in answer.stdout + answer.stderr


def test_dashboard_shows_an_evidence_copy(evidence: Path) -> None:
    command = ["unshare", "-r", "-m", "sh", "-c", MOUNTED, "sh", str(evidence), *CALL, "--home", str(evidence)]
    command += ["--as", "rita", "dashboard", "--port", "0", "--json"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=evidence.parent
    ) as one:
        assert one.stdout is not None
        try:
            shown = json.loads(one.stdout.readline())["data"]
            with httpx.Client(base_url=shown["url"], timeout=60) as browser:
                browser.get(shown["link"])
                assert "first" in browser.get("/events").text
                assert browser.get("/", params={"as_of": 5}).status_code == 200
        finally:
            one.terminate()
    assert one.returncode == 0
    assert not (evidence / "dashboard.json").exists()
