"""Makes git repositories with notes in Empirica's formats; `git fast-import` writes many of them quickly."""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

ROOT: Final = "refs/notes/empirica/"
SESSION: Final = "5d1f0a52-0000-4000-8000-000000000001"
CLEAN: Final = {"engagement": 0.8, "know": 0.6, "do": 0.7, "context": 0.55, "uncertainty": 0.4}
_HEAD: Final = b"""blob
mark :1
data 2
hi
commit refs/heads/main
mark :2
committer t <t@example.org> 1700000000 +0000
data 1
x
M 100644 :1 file

"""


def git(folder: Path, *arguments: str, data: bytes = b"") -> str:
    """Run git in a folder and return its output."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment |= {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
    environment |= {
        f"GIT_{role}_{part}": "t@example.org" for role in ("AUTHOR", "COMMITTER") for part in ("NAME", "EMAIL")
    }
    done = subprocess.run(
        ["git", "-C", str(folder), *arguments], input=data, capture_output=True, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.decode().removesuffix("\n")


def empty(folder: Path) -> Path:
    """Make a repository without a commit."""
    folder.mkdir(parents=True)
    git(folder, "init", "--quiet", "--initial-branch=main")
    return folder


def repository(folder: Path, notes: Iterable[tuple[str, Any]], root: str = ROOT) -> Path:
    """Make a repository with notes, each at its ref below ``root`` and on the only commit."""
    empty(folder)
    stream = bytearray(_HEAD)
    for tail, note in notes:
        content = text_of(note)
        stream += (
            f"commit {root}{tail}\ncommitter t <t@example.org> 1700000000 +0000\ndata 1\nx\nN inline :2\n".encode()
        )
        stream += b"data %d\n%s\n\n" % (len(content), content)
    git(folder, "fast-import", "--quiet", data=bytes(stream))
    return folder


def tree_ref(folder: Path, ref: str, *lines: str) -> None:
    """Point a ref to a commit whose tree has these lines, in the format of `git mktree`."""
    tree = git(folder, "mktree", "--missing", data="".join(f"{line}\n" for line in lines).encode())
    git(folder, "update-ref", ref, git(folder, "commit-tree", tree, "-m", "x"))


def blob(folder: Path, content: bytes) -> str:
    """Write a blob and return its id."""
    return git(folder, "hash-object", "-w", "--stdin", data=content)


def text_of(note: Any) -> bytes:
    """Return the bytes of a note: bytes unchanged, anything else as JSON."""
    return note if isinstance(note, bytes) else json.dumps(note).encode()


def checkpoint(session: str = SESSION, phase: str = "PREFLIGHT", **changes: Any) -> dict[str, Any]:
    """Return the note of a checkpoint."""
    made: dict[str, Any] = {
        "session_id": session,
        "phase": phase,
        "round": 1,
        "timestamp": "2025-06-01T10:00:00+00:00",
        "vectors": dict(CLEAN),
        "overall_confidence": 0.6,
        "meta": {"reasoning": "The parser has to go", "prompt": "replace the parser"},
        "epistemic_tags": {},
        "git_state": {"head_commit": "a" * 40},
        "token_count": 80,
    }
    return made | changes


def handoff(session: str = SESSION, **changes: Any) -> dict[str, Any]:
    """Return the note of a handoff, a compressed report with all of its fields."""
    made: dict[str, Any] = {
        "s": session[:8],
        "ai": "claude-code",
        "ts": "2025-06-01T12:00:00.5",
        "task": "Replaced the parser",
        "dur": 91.7,
        "deltas": {"know": 0.2, "uncertainty": -0.25, "overall_confidence": 0.1},
        "findings": ["The old one was quadratic", "Tests cover it"],
        "gaps": [{"g": "Domain knowledge", "b": "KNOW: 0.60", "a": "KNOW: 0.80", "c": 0.2}],
        "unknowns": ["Does it hold at 1 GB?"],
        "next": "Measure the new one",
        "recommend": ["Ready for execution"],
        "artifacts": ["src/parser.py"],
        "tools": ["grep"],
        "cal": "good",
    }
    return made | changes


def logged(kind: str, session: str = SESSION, **fields: Any) -> dict[str, Any]:
    """Return the note of a finding, an unknown, a dead end, a mistake or a goal."""
    made = {"session_id": session, "ai_id": "claude-code", "created_at": "2025-06-01T11:00:00+00:00", "goal_id": None}
    return {f"{kind}_id": "1", **made, **fields}


def one_of_each(session: str = SESSION) -> list[tuple[str, Any]]:
    """Return notes of every kind: 10 with content, 2 without."""
    return [
        (f"handoff/{session}", handoff(session)),
        (f"session/{session}/PREFLIGHT/1", checkpoint(session)),
        (f"session/{session}/CHECK/1", checkpoint(session, "CHECK", timestamp="2025-06-01T10:30:00+00:00")),
        (f"session/{session}/POSTFLIGHT/1", checkpoint(session, "POSTFLIGHT", timestamp="2025-06-01T11:30:00+00:00")),
        ("findings/f1", logged("finding", session, finding="The cache is never emptied", impact=0.7)),
        ("unknowns/u1", logged("unknown", session, unknown="Who calls it?", resolved=True, resolved_by="x")),
        ("dead_ends/d1", logged("dead_end", session, approach="Caching", why_failed="It is stale at once")),
        ("mistakes/m1", logged("mistake", session, mistake="Guessed", why_wrong="Not read", prevention="Read")),
        ("goals/g1", logged("goal", session, goal_data={"objective": "Parse faster", "scope": {"breadth": 0.5}})),
        ("goals/g2", logged("goal", session, goal_data={"objective": "Parse less"}, created_at="2025-06-01T11:10:00Z")),
        ("tasks/g1", {"subtask_id": "t", "goal_id": "g1", "description": "Measure", "completed_timestamp": 1.7e9}),
        ("messages/direct/1", {"message_id": "1", "from": {"ai_id": "a"}, "to": {"ai_id": "b"}, "body": "hello"}),
    ]


def many(count: int) -> list[tuple[str, Any]]:
    """Return about ``count`` notes of many sessions, in groups of six."""
    made: list[tuple[str, Any]] = []
    for number in range(-(-count // 6)):
        session = f"5d1f0a52-0000-4000-8000-{number:012}"
        day = f"2025-{number // 28 % 12 + 1:02}-{number % 28 + 1:02}T"
        made += [
            (f"session/{session}/{phase}/1", checkpoint(session, phase, timestamp=f"{day}1{place}:00:00+00:00"))
            for place, phase in enumerate(("PREFLIGHT", "CHECK", "POSTFLIGHT"))
        ]
        made += [
            (f"findings/f{number}", logged("finding", session, finding=f"Fact {number}", created_at=f"{day}11:30:00Z")),
            (f"unknowns/u{number}", logged("unknown", session, unknown=f"Why {number}?", created_at=f"{day}11:40:00Z")),
            (f"handoff/{session}", handoff(session, ts=f"{day}13:00:00", task=f"Part {number}")),
        ]
    return made
