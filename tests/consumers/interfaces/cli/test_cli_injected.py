"""Any write or sync of the machine fails, or a process is killed anywhere: all acknowledged events are there, whole."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import inside
import pytest
from building import MAP_SIZE
from checking import check_log
from faults import is_long_run, made, note
from injection import FAULTS, Fault, Place, Ran, Table, need_strace

from deedbook.ledger.log.log import Log

if TYPE_CHECKING:
    from collections.abc import Iterator

DEEDBOOK: Final = [sys.executable, "-m", "deedbook"]
LONG_LIVED: Final = [sys.executable, str(Path(__file__).parent / "long_lived_program.py")]
ACKNOWLEDGED: Final = re.compile(r"^(\d+)  (event:[0-9a-f]{64})\n", re.MULTILINE)
EMIT: Final = ("emit", "session.started", "--as", "alice", "--data", "{}", "--stream")
before_events: Final = 250


class Scene(NamedTuple):
    """A command with its name, and the possible numbers of new events; every ``stride``-th call gets a fault."""

    name: str
    command: list[str]
    given: str
    sizes: tuple[int, ...]
    stride: int = 1

    def __str__(self) -> str:
        return self.name


def lines(stream: str, count: int, size: int) -> str:
    """Return a batch for ``emit -``."""
    findings = [{"finding": f"{number} " + "x" * (number * 37 % size)} for number in range(count)]
    made = [{"stream": stream, "kind": "finding.logged", "data": data} for data in findings]
    return "\n".join(json.dumps(line) for line in [{"stream": stream, "kind": "session.started", "data": {}}, *made])


SCENES: Final = (
    Scene("one event", [*DEEDBOOK, *EMIT, "session/one"], "", (1,)),
    Scene(
        "a batch over a tile's edge", [*DEEDBOOK, "emit", "-", "--as", "alice"], lines("session/batch", 40, 9000), (41,)
    ),
    Scene("three appends of one process", [*LONG_LIVED, "session/long"], "", (1, 2, 3)),
    Scene("a key and its agent", [*DEEDBOOK, "agent", "add", "carol"], "", (1,)),
    Scene("a key replaced", [*DEEDBOOK, "key", "rotate", "--as", "alice"], "", (1,)),
    Scene("a session key replaced", [*DEEDBOOK, "key", "delegate", "--as", "alice", "--ttl", "12h"], "", (1,)),
    Scene("views folded", [*DEEDBOOK, "log", "--limit", "1"], "", (), 31),
)
COMMIT: Final = "pwrite64 after fdatasync"
"""LMDB commits by writing a meta page, once the pages that it counts are on disk."""

QUICK: Final = {
    "one event": (("writev", "killed"), ("fdatasync", "EIO"), (COMMIT, "killed"), ("rename", "killed")),
    "three appends of one process": ((COMMIT, "EIO"),),
}


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A ledger with alice and 250 events, and its readers' decisions and trust stores."""
    need_strace()
    folder = tmp_path_factory.mktemp("injected") / "stage"
    folder.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        steer(patch, folder)
        for arguments in (("init", "--unprotected"), ("agent", "add", "alice")):
            assert inside.deed("--home", folder / ".deedbook", *arguments).code == 0
        done = subprocess.run(
            [*DEEDBOOK, "emit", "-", "--as", "alice"],
            input=lines("session/before", before_events - 3, 900),
            text=True,
            check=False,
        )
        assert done.returncode == 0
        yield Place(folder)


@pytest.fixture(autouse=True)
def steered(stage: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let processes find this ledger and no user's decisions; restore the folder to its first state."""
    steer(monkeypatch, stage.folder)
    stage.restore()


def steer(patch: pytest.MonkeyPatch, folder: Path) -> None:
    """Let processes use only the ledger in ``folder``."""
    for name, below in (("DEEDBOOK_HOME", ".deedbook"), ("XDG_STATE_HOME", "state"), ("XDG_CONFIG_HOME", "config")):
        patch.setenv(name, str(folder / below))


def ids_in(stage: Place) -> list[str]:
    """Return the ids of all events of the log, after every invariant of it was checked."""
    with Log(stage.folder / ".deedbook", map_size=MAP_SIZE) as log:
        return check_log(log)


def deed(stage: Place, *arguments: str) -> inside.Said:
    """Call a verb without injecting a fault."""
    return inside.deed("--home", stage.folder / ".deedbook", *arguments)


def check_after(stage: Place, scene: Scene, ran: Ran) -> None:
    """Check the state that a run left, and that work continues."""
    ids = ids_in(stage)
    acknowledged = {int(index): identity for index, identity in ACKNOWLEDGED.findall(ran.out)}
    assert {index: ids[index] for index in acknowledged if index < len(ids)} == acknowledged
    added = len(ids) - before_events
    assert added in (0, *scene.sizes), "neither whole nor absent"
    assert not (ran.code == 0 and scene.sizes and added != scene.sizes[-1])
    assert ran.code in {0, 7, -9}, ran.err
    assert "Traceback" not in ran.err
    following = deed(stage, *EMIT, "session/after")
    assert following.code == 0, following.err
    assert int(following.out.split()[0]) == len(ids)
    if not scene.sizes:
        assert deed(stage, "verify", "--views").code == 0


def sample(stage: Place, scene: Scene) -> Iterator[Fault]:
    """Yield a few faults of those that matter most."""
    calls = stage.calls(scene.command, scene.given)
    for wanted, name in QUICK[scene.name]:
        if wanted == COMMIT:
            yield Fault("pwrite64", calls[: calls.index("fdatasync")].count("pwrite64") + 1, name)
        else:
            yield Fault(next(call for call in calls if call.startswith(wanted)), 1, name)


def all_faults(stage: Place, scene: Scene) -> Iterator[Fault]:
    """Yield every fault of every call of a scene."""
    counts = Counter(stage.calls(scene.command, scene.given))
    for call, count in sorted(counts.items()):
        for number, name in itertools.product(range(1, count + 1, scene.stride), FAULTS):
            yield Fault(call, number, name)


@pytest.mark.parametrize("scene", [one for one in SCENES if is_long_run or one.name in QUICK], ids=str)
def test_what_was_acknowledged_outlives_every_failed_call_and_every_kill_and_the_next_append_works(
    stage: Place, scene: Scene
) -> None:
    table = Table()
    for fault in all_faults(stage, scene) if is_long_run else sample(stage, scene):
        stage.restore()
        ran = stage.run(scene.command, scene.given, fault)
        made(1)
        try:
            check_after(stage, scene, ran)
        except Exception as error:  # noqa: BLE001 - every state is looked at, and the bad ones are listed
            table.add(scene.name, fault, ran, f"{type(error).__name__}: {error}")
        else:
            table.add(scene.name, fault, ran)
    note(str(table))
    assert table.bad == []
    assert table.missed == []
