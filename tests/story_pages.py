"""A ledger with the demo's events, for tests of the dashboard, and addresses of all pages that show the events."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

from building import trusted
from starlette.routing import compile_path

from deedbook.consumers.interfaces.dashboard.pages import page_routes
from deedbook.consumers.interfaces.demo import life
from deedbook.consumers.sdk.ledger import Ledger
from deedbook.ledger.home.config import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest

HUMAN: Final = "alex"
PASSPHRASE: Final = "correct horse battery staple"
SAMPLE: Final = Path(life.__file__).with_name("sample_project")


def live(home: Path) -> Settings:
    """Play the demo's events in a new ledger; return the settings with which its human opens it."""
    settings, project = Settings(home=home, agent=HUMAN), project_of(home)
    shutil.copytree(SAMPLE, project)
    subprocess.run(["git", "init", "--quiet", project], check=True)
    life.Life(Settings(home=home), project, {HUMAN: PASSPHRASE}).play("demo.test/story")
    return settings


def live_copy(folders: pytest.TempPathFactory, name: str) -> Settings:
    """Return the settings of a copy of the demo's ledger. All processes of a run copy the same original."""
    base = folders.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    with (shared / "story.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        if not (shared / "story").exists():
            played = folders.mktemp("played")
            live(played / ".deedbook")
            played.rename(shared / "story")  # renamed when complete, so that no other process copies a part
    copy = shutil.copytree(shared / "story", folders.mktemp(name) / "story")
    return Settings(home=trusted(copy / ".deedbook"), agent=HUMAN)


def project_of(home: Path) -> Path:
    """Return the folder of the sample project, a git work tree beside the ledger."""
    return home.with_name("project")


def addresses(settings: Settings) -> list[str]:
    """Return addresses that show the story: each page at least once, and its variants."""
    with Ledger(settings=settings) as ledger:
        tree = ledger.ask("tot.list")["items"][0]
        head = ledger.client.head().size - 1
    return [
        "/",
        "/?open=auth-rotate",
        "/?open=store-subscriptions",
        "/accept?over=1",
        f"/?as_of={head // 2}",
        "/h/auth-rotate",
        "/h/bench-fold",
        "/h/tiles-http",
        "/h/redact-blob",
        "/h/store-snapshots",
        "/h/rel-0-4",
        "/h/auth-rotate/v/1",
        "/h/auth-rotate/diff?from=1",
        "/graph",
        "/graph?id=rel-0-4&depth=2",
        "/events",
        "/events?agent=codex",
        f"/e/{head}",
        "/e/0",
        "/e/291",
        "/proof/291",
        "/proof/294",
        "/r/reader-cursors",
        "/r/auth-rotation",
        "/r/auth-rotation?full=1",
        "/r/bigrams",
        "/s/store-1",
        "/s/snapshots-1",
        "/s/colours-1",
        f"/tot/{tree['id']}",
        f"/tot/{tree['id']}?at={tree['started_index'] + 20}",
        "/agents",
        "/a/minimax",
        "/a/codex",
        "/a/alex",
        "/audit",
        "/me",
        "/week",
        "/week?text=cursor&since=30+days+ago",
        "/week?kind=learned",
        "/s",
        "/r",
        "/h",
        "/reports",
        "/reviews",
        "/timeline",
        "/k",
        "/k?agent=minimax",
        "/search?text=cursor",
        "/search?text=快照",
        "/reviews/tape-backups",
        "/tot",
    ]


def shown(settings: Settings, *, each: int = 1000) -> Iterator[tuple[str, str]]:
    """Yield addresses with the names of their routes, at most ``each`` addresses of a route."""
    routes = [(route.name, compile_path(route.path)[0]) for route in page_routes()]
    counts = Counter[str]()
    for address in addresses(settings):
        path = address.partition("?")[0]
        name = next((name for name, pattern in routes if pattern.match(path)), None)
        if name is not None and counts[name] < each:
            counts[name] += 1
            yield name, address
