"""Runs the small witness of deploy/ as a process of its own, as an operator does."""

from __future__ import annotations

import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Final, Self

from deedbook.ledger.format.merkle import consistency_proof, root_of, subtrees_of

PROGRAM: Final = Path(__file__).parent.parent / "deploy" / "witness.py"


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Call a verb of the witness."""
    command = [sys.executable, "-I", str(PROGRAM), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def make(state: Path, *vkeys: str, name: str = "witness.example/one") -> str:
    """Make a witness that knows these logs; return its vkey."""
    made = run("init", state, "--name", name)
    assert made.returncode == 0, made.stderr
    assert not vkeys or run("add", state, *vkeys).returncode == 0
    return made.stdout.strip()


class WitnessProcess:
    """`witness.py serve` on a free port."""

    def __init__(self, state: Path) -> None:
        command = [sys.executable, "-I", str(PROGRAM), "serve", str(state), "--listen", "127.0.0.1:0"]
        self.child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert self.child.stdout is not None
        self.vkey, self.url = (self.child.stdout.readline().strip() for _ in range(2))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def kill(self) -> None:
        """Kill the process without warning."""
        self.child.kill()
        self.child.wait()
        assert self.child.stdout is not None
        self.child.stdout.close()

    def ask(self, body: bytes, path: str = "/add-checkpoint") -> tuple[int, str, str]:
        """Return status, type and text of the answer to a POST."""
        return answer(urllib.request.Request(self.url + path, data=body, method="POST"))

    def show(self, path: str) -> tuple[int, str, str]:
        """Return status, type and text of the answer to a GET."""
        return answer(urllib.request.Request(self.url + path))


def answer(request: urllib.request.Request) -> tuple[int, str, str]:
    """Return status, type and text of an answer, which may be an error."""
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            return response.status, response.headers["content-type"], response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers["content-type"], error.read().decode()


def proof(leaves: list[bytes], old_size: int) -> list[bytes]:
    """Return the consistency proof from the tree of the first ``old_size`` leaves to the tree of all leaves."""
    return consistency_proof(old_size, len(leaves), subtrees_of(leaves)) if leaves else []


def root(leaves: list[bytes]) -> bytes:
    """Return the root of a tree."""
    return root_of(leaves)
