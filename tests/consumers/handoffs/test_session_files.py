"""A session that is written for a harness is found there, and read back with the same messages."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from itertools import permutations
from pathlib import Path
from typing import TYPE_CHECKING, Final, get_args

import pytest
from harness_sessions import (
    CLAUDE_ID,
    CODEX_ID,
    GEMINI_ID,
    REQUEST,
    claude_lines,
    codex_rows,
    gemini_rows,
    write,
)

from deedbook.consumers.handoffs.moves.session_files import (
    SessionPlace,
    claude_folder,
    find_session,
    find_sessions,
    new_prompt,
    new_session,
)
from deedbook.consumers.importers.transcripts.messages import HarnessName, SessionMessage, read_messages
from deedbook.ledger.errors import Refused

if TYPE_CHECKING:
    from deedbook.consumers.handoffs.moves.session_files import NewSession

HARNESSES: Final[tuple[HarnessName, ...]] = get_args(HarnessName)
END: Final = datetime(2026, 11, 29, 10, 0, 30, tzinfo=UTC)
PROJECT: Final = Path("/shop/my_app")
SAMPLES: Final = {
    "claude-code": claude_lines("/shop").rows,
    "codex": codex_rows("/shop"),
    "gemini": gemini_rows("/shop"),
}


def written(new: NewSession) -> Path:
    for path, content in new.files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return new.path


@pytest.mark.parametrize(("old", "new"), list(permutations(HARNESSES, 2)))
def test_moved_session_is_read_back_with_the_same_messages(tmp_path: Path, old: HarnessName, new: HarnessName) -> None:
    messages = read_messages(write(tmp_path / "old.jsonl", SAMPLES[old]), old).messages
    place = SessionPlace(new, tmp_path / "home", PROJECT)
    path = written(new_session(place, messages, "seed", END))
    assert find_sessions(place) == [path]
    again = read_messages(path, new)
    assert again.messages == messages
    assert again.left_out == again.calls == {}
    assert new_session(place, messages, "seed", END).files[path] == path.read_bytes(), (
        "the same move makes the same file"
    )


def test_new_session_of_claude_code_is_a_chain_of_lines(tmp_path: Path) -> None:
    place = SessionPlace("claude-code", tmp_path, PROJECT)
    said = [SessionMessage("user", REQUEST, "2026-11-29T10:00:00.000Z"), SessionMessage("assistant", "Yes.")]
    new = new_session(place, said, "seed", END)
    first, second = map(json.loads, new.files[new.path].splitlines())
    assert new.path == tmp_path / "projects/-shop-my-app" / f"{new.id}.jsonl"
    assert (first["parentUuid"], second["parentUuid"]) == (None, first["uuid"])
    assert {line["sessionId"] for line in (first, second)} == {new.id}
    assert {line["timestamp"] for line in (first, second)} == {"2026-11-29T10:00:00.000Z"}
    assert new.command == ["claude", "--resume", new.id]


def test_new_session_of_codex_has_whole_turns(tmp_path: Path) -> None:
    said = [SessionMessage(role, role) for role in ("user", "assistant", "assistant", "user")]
    new = new_session(SessionPlace("codex", tmp_path, PROJECT), said, "seed", END)
    meta, *rows = map(json.loads, new.files[new.path].splitlines())
    assert new.path == tmp_path / f"sessions/2026/11/29/rollout-2026-11-29T10-00-30-{new.id}.jsonl"
    assert meta["payload"]["id"] == new.id
    assert meta["payload"]["cwd"] == str(PROJECT)
    kinds = [row["payload"]["type"] for row in rows]
    answer = ["message", "agent_message"]
    request = ["task_started", "message", "user_message"]
    assert kinds == [*request, *answer, *answer, "task_complete", *request, "task_complete"]
    assert rows[-1]["payload"]["last_agent_message"] is None


def test_name_of_a_project_is_that_of_gemini(tmp_path: Path) -> None:
    place = SessionPlace("gemini", tmp_path, PROJECT)
    said = [SessionMessage("user", REQUEST)]
    new = new_session(place, said, "seed", END)
    assert new.files[tmp_path / "tmp/my-app/.project_root"] == b"/shop/my_app"
    written(new)
    assert list(new_session(place, said, "other", END).files) == [tmp_path / f"tmp/my-app/chats/{_name(place, said)}"]

    other = SessionPlace("gemini", tmp_path, Path("/elsewhere/my_app"))
    assert new_session(other, said, "seed", END).path.parts[-3] == "my-app-1"
    (tmp_path / "projects.json").write_text(json.dumps({"projects": {"/elsewhere/my_app": "known"}}))
    assert new_session(other, said, "seed", END).path.parts[-3] == "known"
    (tmp_path / "projects.json").write_text(json.dumps({"projects": {"/elsewhere/my_app": "../../escape"}}))
    assert new_session(other, said, "seed", END).path.parts[-3] == "my-app-1"


def _name(place: SessionPlace, said: list[SessionMessage]) -> str:
    return new_session(place, said, "other", END).path.name


def test_long_path_has_a_hash_as_claude_code_makes_it() -> None:
    name = claude_folder(Path("/" + "very-long_name/" * 20))
    assert name == ("-very-long-name" * 20)[:200] + "-gdstc0"
    assert claude_folder(Path("/home/ann/caf\u0065\u0301")) == "-home-ann-caf-"


def sessions_of(harness: HarnessName, home: Path) -> tuple[SessionPlace, str, list[Path]]:
    """Write three sessions of a harness: an old one, the newest one, and one of another project."""
    id_ = {"claude-code": CLAUDE_ID, "codex": CODEX_ID, "gemini": GEMINI_ID}[harness]
    folders = {
        "claude-code": ("projects/-shop/{}.jsonl", "projects/-other/{}.jsonl"),
        "codex": ("sessions/2026/11/29/rollout-2026-11-29T10-00-00-{}.jsonl",) * 2,
        "gemini": ("tmp/shop/chats/session-2026-11-29T10-00-{:.8}.jsonl", "tmp/o/chats/session-2026-{:.8}.jsonl"),
    }[harness]
    files = []
    for number, (path, project) in enumerate(((folders[0], "/shop"), (folders[0], "/shop"), (folders[1], "/other"))):
        rows = {"claude-code": claude_lines(project).rows, "codex": codex_rows(project), "gemini": gemini_rows(project)}
        files.append(write(home / path.format(f"{number}{id_[1:]}"), rows[harness]))
        os.utime(files[-1], (number, number))
    if harness == "gemini":
        for name in ("shop", "o"):
            (home / f"tmp/{name}/.project_root").write_text("/shop" if name == "shop" else "/other")
    return SessionPlace(harness, home, Path("/shop")), id_, files


@pytest.mark.parametrize("harness", HARNESSES)
def test_newest_session_of_the_project_is_found_and_any_by_its_id(tmp_path: Path, harness: HarnessName) -> None:
    place, id_, (old, newest, _) = sessions_of(harness, tmp_path)
    (newest.parent / f"{newest.stem[:-8]}99999999.jsonl").symlink_to(newest)
    assert find_sessions(place) == [newest, old]
    assert find_session(place, None) == newest
    assert find_session(place, f"0{id_[1:8]}") == old
    assert find_session(place, f"0{id_[1:]}") == old
    assert find_session(place, str(old)) == old
    with pytest.raises(Refused, match="REF_AMBIGUOUS"):
        find_session(place, id_[1:8])
    for unknown in ("ffffffff", ""):
        with pytest.raises(Refused, match=r"NOT_FOUND.*--session FILE") as refusal:
            find_session(place, unknown)
        newest = find_sessions(place)[0].name
        assert f"Its newest sessions here: {newest}" in refusal.value.message


@pytest.mark.parametrize("harness", HARNESSES)
def test_without_a_session_the_refusal_says_where_it_was_looked_for(tmp_path: Path, harness: HarnessName) -> None:
    with pytest.raises(Refused, match=f"NOT_FOUND: {harness} has no session of /shop below {tmp_path}"):
        find_session(SessionPlace(harness, tmp_path, Path("/shop")), None)


def test_session_of_a_sub_agent_of_codex_is_none_of_the_user(tmp_path: Path) -> None:
    rows = codex_rows("/shop")
    assert isinstance(rows[0], dict)
    rows[0]["payload"]["source"] = {"subagent": "review"}
    write(tmp_path / "sessions/2026/11/29/rollout-2026-11-29T10-00-00-x.jsonl", rows)
    write(tmp_path / "sessions/2026/11/29/rollout-2026-11-29T10-00-00-y.jsonl", ["{broken"])
    assert find_sessions(SessionPlace("codex", tmp_path, Path("/shop"))) == []


def test_prompt_begins_with_the_last_message(tmp_path: Path) -> None:
    said = [SessionMessage("user", REQUEST), SessionMessage("assistant", "Yes."), SessionMessage("user", "Go on.")]
    new = new_prompt("gemini", tmp_path / "p.md", said)
    assert new.files[new.path].decode() == f"Go on.\n\n## user\n\n{REQUEST}\n\n## assistant\n\nYes.\n"
    assert new.command == ["gemini", "-i", f"Read {tmp_path}/p.md and go on from there."]
