"""The session files of the harnesses: where they are, and how a new one is written.

``importers.transcripts.messages`` describes the formats that are read. A new session holds only messages, in the
smallest form that the programs list and resume (each tried with the version named there):

- Claude Code: ``projects/FOLDER/ID.jsonl``. FOLDER is the real path of the project with ``-`` for each character that
  is no ASCII letter or digit, and of more than 200 characters the first 200 and a hash. ``--resume ID`` reads the file.
- Codex CLI: ``sessions/YYYY/MM/DD/rollout-TIME-ID.jsonl``. The first line is ``session_meta``. A turn is the event
  ``task_started``, an item and an event for each message, and ``task_complete``. Without ``model_provider`` the session
  is one of the user's default provider. ``codex resume ID`` finds a file that its database does not know yet.
- Gemini CLI: ``tmp/NAME/chats/session-TIME-ID.jsonl``. NAME is that of ``projects.json``, else of the folder whose
  ``.project_root`` has the project's path; that file claims the name. Gemini resumes no request that begins with one of
  ``GEMINI_IGNORES``.

``ID`` and the times are derived from the moved session, so the same move makes the same file.
"""

from __future__ import annotations

import json
import os
import re
import unicodedata
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

from deedbook.consumers.importers.transcripts.messages import HarnessName, SessionMessage
from deedbook.consumers.sdk.text import cut
from deedbook.ledger.errors import Refused
from deedbook.ledger.format.codec import UNREADABLE, encode_utf8, read_json
from deedbook.ledger.system.files import read_regular

rollouts_max: Final = 2_000
_shown_max: Final = 5
_named_max_chars: Final = 80
first_line_max_bytes: Final = 1024**2
_folder_max_chars: Final = 200
_registry_max_bytes: Final = 4 * 1024**2
_short_id_chars: Final = 8
_names_max: Final = 1_000
_claude_code_version: Final = "2.1.197"
_codex_version: Final = "0.171.0"
GEMINI_IGNORES: Final = ("/", "?")
_ROOT_FILE: Final = ".project_root"
_ID: Final = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}")


class NewSession(NamedTuple):
    """A session to be written: its id (empty: a prompt), its files (the session last), and the command to continue."""

    id: str
    files: dict[Path, bytes]
    command: list[str]

    @property
    def path(self) -> Path:
        """The file of the session."""
        return list(self.files)[-1]


class SessionPlace(NamedTuple):
    """The settings folder of a harness (such as ``~/.codex``), and the real path of a project."""

    harness: HarnessName
    settings: Path
    project: Path


def find_sessions(place: SessionPlace) -> list[Path]:
    """Return the session files of a project, the one that changed last first; links and sub-agents are left out."""
    files = [file for file in _FINDERS[place.harness](place) if not file.is_symlink()]
    return sorted(files, key=_changed_ns, reverse=True)


def find_session(place: SessionPlace, named: str | None) -> Path:
    """Return the session file with this path, id, or beginning of an id; without ``named``, the newest.

    Raises Refused: ``NOT_FOUND`` or ``REF_AMBIGUOUS``.
    """
    with suppress(OSError):  # the id may be no valid file name
        if named is not None and Path(named).is_file():
            return Path(named)
    files = find_sessions(place)
    if named is None and files:
        return files[0]
    # The name of a Gemini file has only the beginning of the session's id.
    part = named[:_short_id_chars] if named and place.harness == "gemini" else named
    matches = [file for file in files if part and part in file.stem]
    if len(matches) == 1:
        return matches[0]
    if matches:
        names = [file.name for file in matches]
        raise Refused(
            "REF_AMBIGUOUS",
            f"{cut(named or '', _named_max_chars)} begins the ids of {len(names)} sessions: give more of it",
            names=names,
        )
    shown = ", ".join(file.name for file in files[:_shown_max])
    sessions = f". Its newest sessions here: {shown}" if named is not None and files else ""
    what = f"has no session {cut(named, _named_max_chars)}" if named is not None else "has no session"
    raise Refused(
        "NOT_FOUND",
        f"{place.harness} {what} of {place.project} below {place.settings}: name its file with --session FILE, or run "
        f"this in the folder in which it was started{sessions}",
        sessions=[file.name for file in files[:10]],
    )


def new_session(place: SessionPlace, messages: Sequence[SessionMessage], seed: str, at: datetime) -> NewSession:
    """Return a new session of a project with these messages.

    ``seed`` identifies the move. ``at`` is the time at which the moved session ended. Raises Refused:
    ``INVALID_FORMAT`` if the project's path is not UTF-8, or if every folder name for this project is taken in Gemini.
    """
    encode_utf8(str(place.project), "path of the project")
    id_ = _uuid(seed)
    timed = _timed(messages, at)
    return _WRITERS[place.harness](place, timed, id_, at)


def new_prompt(harness: HarnessName, file: Path, messages: Sequence[SessionMessage]) -> NewSession:
    """Return the messages as one text for a harness that cannot take a session; the last message comes first."""
    *said, brief = messages
    parts = [brief.text, *(f"## {message.role} {message.at}".rstrip() + f"\n\n{message.text}" for message in said)]
    command = [*_STARTERS[harness], f"Read {file} and go on from there."]
    return NewSession("", {file: "\n\n".join(parts).encode() + b"\n"}, command)


def _changed_ns(file: Path) -> int:
    try:
        return file.stat().st_mtime_ns
    except OSError:
        return 0


def _uuid(*seed: str) -> str:
    return str(uuid.UUID(bytes=sha256("\0".join(seed).encode()).digest()[:16], version=4))


def _timed(messages: Sequence[SessionMessage], at: datetime) -> list[SessionMessage]:
    """Return the messages with times. A message without a time gets the time of the message before it."""
    last = next((message.at for message in messages if message.at), _stamp(at))
    timed = []
    for message in messages:
        last = message.at or last
        timed.append(SessionMessage(message.role, message.text, last))
    return timed


def _stamp(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _jsonl(rows: Sequence[Mapping[str, Any]]) -> bytes:
    return b"".join(json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in rows)


# Claude Code


def claude_folder(project: Path) -> str:
    """Return the name of a project's folder.

    >>> claude_folder(Path("/home/ann/my_app"))
    '-home-ann-my-app'
    """
    path = unicodedata.normalize("NFC", str(project))
    name = re.sub(r"[^a-zA-Z0-9]", "-", path)
    if len(name) <= _folder_max_chars:
        return name
    units = path.encode("utf-16-le")
    hash_ = 0
    for unit in (units[start] | units[start + 1] << 8 for start in range(0, len(units), 2)):
        hash_ = (hash_ * 31 + unit) & 0xFFFFFFFF
    return f"{name[:_folder_max_chars]}-{_base36(abs(hash_ - (hash_ >> 31 << 32)))}"


def _base36(number: int) -> str:
    digits = ""
    while number or not digits:
        number, digit = divmod(number, 36)
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[digit] + digits
    return digits


def _find_claude_code(place: SessionPlace) -> Iterator[Path]:
    folder = place.settings / "projects" / claude_folder(place.project)
    yield from (file for file in folder.glob("*.jsonl") if _ID.fullmatch(file.stem))


def _new_claude_code(place: SessionPlace, messages: Sequence[SessionMessage], id_: str, _at: datetime) -> NewSession:
    rows: list[dict[str, Any]] = []
    parent = None
    for number, message in enumerate(messages):
        line = _uuid(id_, str(number))
        content: dict[str, Any] = {"role": message.role, "content": message.text}
        if message.role == "assistant":
            content = {
                "id": f"msg_{line.replace('-', '')}",
                "type": "message",
                "role": "assistant",
                "model": "<synthetic>",
                "content": [{"type": "text", "text": message.text}],
                "stop_reason": "end_turn",
                "stop_sequence": None,
                "usage": {"input_tokens": 0, "output_tokens": 0},
            }
        rows.append(
            {
                "parentUuid": parent,
                "isSidechain": False,
                "userType": "external",
                "cwd": str(place.project),
                "sessionId": id_,
                "version": _claude_code_version,
                "type": message.role,
                "message": content,
                "uuid": line,
                "timestamp": message.at,
            }
        )
        parent = line
    path = place.settings / "projects" / claude_folder(place.project) / f"{id_}.jsonl"
    return NewSession(id_, {path: _jsonl(rows)}, ["claude", "--resume", id_])


# Codex CLI


def _find_codex(place: SessionPlace) -> Iterator[Path]:
    for file in islice(_rollouts(place.settings / "sessions"), rollouts_max):
        meta = _session_meta(file)
        if meta.get("cwd") == str(place.project) and not isinstance(meta.get("source"), dict):  # an object: a sub-agent
            yield file


def _rollouts(folder: Path) -> Iterator[Path]:
    """Yield the rollouts, the newest days first."""
    for below, folders, files in os.walk(folder):
        folders.sort(reverse=True)
        names = (name for name in sorted(files, reverse=True) if name.startswith("rollout-"))
        yield from (Path(below) / name for name in names if name.endswith(".jsonl"))


def _session_meta(file: Path) -> dict[str, Any]:
    with suppress(OSError, *UNREADABLE), file.open("rb") as opened:
        line = read_json(opened.readline(first_line_max_bytes), dict[str, Any])
        payload = line.get("payload")
        if line.get("type") == "session_meta" and isinstance(payload, dict):
            return payload
    return {}


def _new_codex(place: SessionPlace, messages: Sequence[SessionMessage], id_: str, at: datetime) -> NewSession:
    meta = {"session_id": id_, "id": id_, "timestamp": _stamp(at), "cwd": str(place.project)}
    meta |= {"originator": "deedbook", "cli_version": _codex_version, "source": "cli"}
    rows = [_codex_row(_stamp(at), "session_meta", meta)]
    for number, turn in enumerate(_turns(messages)):
        name = {"turn_id": _uuid(id_, str(number))}
        answers = [message.text for message in turn if message.role == "assistant"]
        rows.append(_codex_row(turn[0].at, "event_msg", {"type": "task_started"} | name))
        for message in turn:
            rows += _codex_message(message)
        complete = {"type": "task_complete"} | name | {"last_agent_message": answers[-1] if answers else None}
        rows.append(_codex_row(turn[-1].at, "event_msg", complete))
    day = place.settings / "sessions" / f"{at:%Y}" / f"{at:%m}" / f"{at:%d}"
    path = day / f"rollout-{at:%Y-%m-%dT%H-%M-%S}-{id_}.jsonl"
    return NewSession(id_, {path: _jsonl(rows)}, ["codex", "resume", id_])


def _turns(messages: Sequence[SessionMessage]) -> list[list[SessionMessage]]:
    turns: list[list[SessionMessage]] = []
    for message in messages:
        if message.role == "user" or not turns:
            turns.append([])
        turns[-1].append(message)
    return turns


def _codex_message(message: SessionMessage) -> Iterator[dict[str, Any]]:
    is_user = message.role == "user"
    block = {"type": "input_text" if is_user else "output_text", "text": message.text}
    item = {"type": "message", "role": message.role, "content": [block]}
    yield _codex_row(message.at, "response_item", item)
    event = {"type": "user_message" if is_user else "agent_message", "message": message.text}
    more: dict[str, list[str]] = {"images": [], "local_images": [], "text_elements": []} if is_user else {}
    yield _codex_row(message.at, "event_msg", event | more)


def _codex_row(at: str, type_: str, payload: Mapping[str, Any]) -> dict[str, Any]:
    return {"timestamp": at, "type": type_, "payload": payload}


# Gemini CLI


def _find_gemini(place: SessionPlace) -> Iterator[Path]:
    for name in {_gemini_name(place), _hash_of(place.project)} - {None}:
        chats = place.settings / "tmp" / str(name) / "chats"
        lines = set(chats.glob("session-*.jsonl"))
        yield from lines
        # Gemini resumes a document of an older version in a file of lines beside it.
        yield from (file for file in chats.glob("session-*.json") if file.with_suffix(".jsonl") not in lines)


def _hash_of(project: Path) -> str:
    return sha256(os.fsencode(project)).hexdigest()


def _gemini_name(place: SessionPlace) -> str | None:
    """Return the name that Gemini uses for a project; None if it uses none yet."""
    registered = _registered(place.settings / "projects.json").get(str(place.project))
    tmp = place.settings / "tmp"
    if registered is not None and _owner(tmp / registered) in (None, str(place.project)):
        return registered
    with suppress(OSError):
        folders = islice(sorted(tmp.iterdir()), _names_max)
        return next((folder.name for folder in folders if _owner(folder) == str(place.project)), None)
    return None


def _registered(file: Path) -> dict[str, str]:
    with suppress(Refused, *UNREADABLE):
        content = read_regular(file, size_max_bytes=_registry_max_bytes, follow=True)
        names = read_json(content or b"{}", dict[str, dict[str, Any]]).get("projects", {})
        return {path: name for path, name in names.items() if re.fullmatch(r"[a-z0-9-]+", str(name))}
    return {}


def _owner(folder: Path) -> str | None:
    try:
        content = read_regular(folder / _ROOT_FILE, size_max_bytes=first_line_max_bytes)
    except Refused:
        return ""
    return None if content is None else content.decode("utf-8", "replace").strip()


def _free_name(place: SessionPlace) -> str:
    slug = re.sub(r"[^a-z0-9]+", "-", place.project.name.lower()).strip("-") or "project"
    taken = set(_registered(place.settings / "projects.json").values())
    for number in range(_names_max):
        name = f"{slug}-{number}" if number else slug
        if name not in taken and not (place.settings / "tmp" / name / _ROOT_FILE).exists():
            return name
    raise Refused("INVALID_FORMAT", f"{place.settings / 'tmp'} has {_names_max} folders like {slug}: start gemini once")


def _new_gemini(place: SessionPlace, messages: Sequence[SessionMessage], id_: str, at: datetime) -> NewSession:
    name = _gemini_name(place)
    files: dict[Path, bytes] = {}
    if name is None:
        name = _free_name(place)
        files[place.settings / "tmp" / name / _ROOT_FILE] = os.fsencode(place.project)
    start = messages[0].at if messages else _stamp(at)
    rows: list[dict[str, Any]] = [
        {"sessionId": id_, "projectHash": _hash_of(place.project), "startTime": start, "lastUpdated": _stamp(at)}
        | {"kind": "main"}
    ]
    for number, message in enumerate(messages):
        type_ = "user" if message.role == "user" else "gemini"
        content = {"type": type_, "content": [{"text": message.text}]}
        rows.append({"id": _uuid(id_, str(number)), "timestamp": message.at} | content)
    path = place.settings / "tmp" / name / "chats" / f"session-{at:%Y-%m-%dT%H-%M}-{id_[:_short_id_chars]}.jsonl"
    return NewSession(id_, files | {path: _jsonl(rows)}, ["gemini", "--resume", id_])


_STARTERS: Final[Mapping[HarnessName, list[str]]] = {
    "claude-code": ["claude"],
    "codex": ["codex"],
    "gemini": ["gemini", "-i"],
}
_FINDERS: Final[Mapping[HarnessName, Callable[[SessionPlace], Iterator[Path]]]] = {
    "claude-code": _find_claude_code,
    "codex": _find_codex,
    "gemini": _find_gemini,
}
_WRITERS: Final[Mapping[HarnessName, Callable[[SessionPlace, Sequence[SessionMessage], str, datetime], NewSession]]] = {
    "claude-code": _new_claude_code,
    "codex": _new_codex,
    "gemini": _new_gemini,
}
