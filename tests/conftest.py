"""Fixtures that every package's tests may use: a folder, a real ledger in it, and a client of that ledger."""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import settings
from nacl.bindings import crypto_pwhash_argon2id_MEMLIMIT_MODERATE, crypto_pwhash_argon2id_OPSLIMIT_MODERATE
from nacl.pwhash import argon2id

pytest.register_assert_rewrite("checking", "client_suite", "given", "calling", "reported_sessions")

import bytecode  # noqa: E402, F401 - before our other modules: its setting applies to all later imports
import faults  # noqa: E402 - modules whose assertions are rewritten are named first
from answer_types import answers_have_their_types  # noqa: E402, F401 - a fixture
from building import Ledger  # noqa: E402
from forked_deed import ChildProcess  # noqa: E402
from forking import CHEAP  # noqa: E402
from postgres import database, postgres  # noqa: E402, F401 - fixtures
from stores import store  # noqa: E402, F401 - a fixture

from deedbook.consumers.interfaces.cli import progress  # noqa: E402
from deedbook.consumers.sdk import child  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deedbook.ledger.client.local import LocalClient

MEMORY: Final = Path("/dev/shm")
memory_free_min_bytes: Final = 2 * 1024**3
collected_every: Final = 20_000  # the number of new objects after which garbage is collected

# Keep the ledgers of tests in memory if there is room: every commit is synced, which takes a disk a thousand times as
# long. This weakens no test: tests kill processes, not the machine, and data that a killed process wrote survives both
# in memory and on disk.
if MEMORY.is_dir() and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free >= memory_free_min_bytes:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))

# Tests that run mypy on a user's program share one cache, so that mypy checks Deedbook itself only once.
os.environ.setdefault("MYPY_CACHE_DIR", str(Path(__file__).parents[1] / "build" / "mypy"))

# A shell starts background commands with SIGINT ignored, and `nohup` commands with SIGHUP ignored. Child processes
# would inherit that, and survive the tests that stop them with these signals. A handler prevents this, because a signal
# with a handler gets its default action in child processes.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda *_: None)  # the test process itself ignores it, as before

# By default hypothesis fails an example that takes 0.2 s, which happens on a busy machine. Each run draws new examples;
# max_examples is their number for most properties.
settings.register_profile("untimed", deadline=None, max_examples=200 if faults.is_long_run else 30)
settings.load_profile("untimed")

# On a busy machine even quick work is slow and would show its progress, but tests compare standard error. Tests of
# progress set their own time.
progress.shown_after_s = 600.0

_numbers: Final = itertools.count()

STARTS_PROCESSES: Final = re.compile(
    r"\b(subprocess|DeedProcess|ScriptProcess|run_deed|multiprocessing|Running|Serving|ServeProcess|HttpServer|Inspector)\b"
)


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Let each worker begin to collect tests at another file.

    In a fresh clone, the first worker to read a file compiles it, rewrites its assertions and stores the result. The
    others only load it. Garbage collection is off meanwhile, because all objects that collection makes are needed.
    """
    gc.disable()
    worker, paths = getattr(session.config, "workerinput", None), session.config.getini("testpaths")
    if worker and session.config.args == paths and not session.config.option.ignore_glob:  # not for single files
        files = sorted(map(str, Path(__file__).parent.rglob("test_*.py")))
        begin = len(files) * int(worker["workerid"].removeprefix("gw")) // worker["workercount"]
        session.config.args = files[begin:] + files[:begin]


def pytest_collection_finish() -> None:
    """Never collect the half million objects made so far, which outlive all tests; collect later ones seldom."""
    gc.freeze()
    gc.set_threshold(collected_every)
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Sort the tests, and mark those of modules that start processes: they take longest (``-m "not process"``).

    Only ``make faults`` runs the tests of the long run.
    """
    if not faults.is_long_run:
        later = [item for item in items if item.get_closest_marker("long_run")]
        items[:] = [item for item in items if item not in later]
        config.hook.pytest_deselected(items=later)
    items.sort(key=lambda item: item.path)
    marked = {path: STARTS_PROCESSES.search(path.read_text("utf-8")) for path in {item.path for item in items}}
    for item in items:
        if marked[item.path]:
            item.add_marker(pytest.mark.process)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Send a worker's counts of faults to the process that prints them."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["faults"] = faults.counted()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Add the counts of a worker; a worker that was killed reported none."""
    if counts := getattr(node, "workeroutput", {}).get("faults"):
        faults.add(counts)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the results of the long run of faults."""
    if faults.is_long_run:
        terminalreporter.section("faults")
        passed, failed = (terminalreporter.stats.get(outcome, []) for outcome in ("passed", "failed"))
        for line in faults.table(passed, failed):
            terminalreporter.write_line(line)


@pytest.fixture(scope="session", autouse=True)
def no_server_stays(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Stop the servers that still run because a test killed their node and then failed."""
    yield
    for file in tmp_path_factory.getbasetemp().rglob("server.pid"):
        with contextlib.suppress(OSError, ValueError):  # the server has ended, or its folder is just being deleted
            pid = int(file.read_text())
            if str(file.parent).encode() in Path("/proc", str(pid), "cmdline").read_bytes():
                os.kill(pid, signal.SIGTERM)


@pytest.fixture(scope="session", autouse=True)
def decisions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder for trust decisions (``ledger.home.trust``), so that tests do not touch those of the user."""
    folder = tmp_path_factory.mktemp("decisions")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(folder / "shared"))
        yield folder


@pytest.fixture(autouse=True)
def decisions_of_test(decisions: Path) -> Iterator[Path]:
    """A folder of trust decisions for each test; it starts with those about ledgers that several tests share."""
    folder = decisions / str(next(_numbers))
    if (decisions / "shared").exists():
        shutil.copytree(decisions / "shared", folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(folder))
        yield folder


@pytest.fixture(scope="session")
def memories(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder for readers' trust stores (``ledger.trust.store``), so that tests do not touch those of the user."""
    folder = tmp_path_factory.mktemp("memories")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(folder / "session"))
        yield folder


@pytest.fixture(scope="module", autouse=True)
def module_memory(memories: Path) -> Iterator[Path]:
    """A trust store for a module's shared ledgers. They all have equal keys, so a common store would report forks."""
    folder = memories / f"module-{next(_numbers)}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(folder))
        yield folder


@pytest.fixture(autouse=True)
def memory_of_readers(memories: Path, module_memory: Path) -> Iterator[Path]:
    """The folder of each test's own trust store."""
    folder = memories / str(next(_numbers))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(folder))
        yield folder


@pytest.fixture(scope="session", autouse=True)
def cheap_passphrases() -> Iterator[None]:
    """Give Argon2id its lowest cost, here and in forked processes: a call at the real cost takes most of a second."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in CHEAP.items():
            patch.setattr(argon2id, name, value)
        yield


@pytest.fixture
def costly_passphrases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give passphrases their real cost in this process."""
    monkeypatch.setattr(argon2id, "OPSLIMIT_MODERATE", crypto_pwhash_argon2id_OPSLIMIT_MODERATE)
    monkeypatch.setattr(argon2id, "MEMLIMIT_MODERATE", crypto_pwhash_argon2id_MEMLIMIT_MODERATE)


@pytest.fixture(scope="session", autouse=True)
def forked_children() -> Iterator[None]:
    """Fork each ``Child`` instead of starting it (``forked_deed``): this is faster, and few tests are about starts."""

    def start(command: list[str], **options: Any) -> ChildProcess:
        return ChildProcess(command[-1], **options)

    names = {"DEVNULL": subprocess.DEVNULL, "TimeoutExpired": subprocess.TimeoutExpired}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(child, "subprocess", SimpleNamespace(Popen=start, **names))
        yield


@pytest.fixture
def started_children(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start each ``Child`` as a new process, as it is outside of tests."""
    monkeypatch.setattr(child, "subprocess", subprocess)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder for a ledger, not created yet."""
    return tmp_path / ".deedbook"


@pytest.fixture
def ledger(home: Path) -> Iterator[Ledger]:
    """A ledger with root, node, alice and bob (agents) and rita (the human reviewer)."""
    with Ledger(home) as made:
        yield made


@pytest.fixture
def local_client(ledger: Ledger) -> Iterator[LocalClient]:
    """A client of ``ledger`` on the same open log."""
    with ledger.client() as client:
        yield client
