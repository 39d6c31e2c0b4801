"""Setup in a harness: checks its files, writes our parts into them, and removes them.

Everything is read and decided before anything is written, so a refusal changes no file. A write that fails restores the
files written before it. Removal restores the earlier bytes of a file that nobody changed since setup, or deletes it
where there was none; from a file that somebody changed it removes only our part. A part that somebody edited is left
alone. With ``force`` it is replaced or removed, after a copy of the whole file is made beside the record or the ledger.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from difflib import unified_diff
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from deedbook.consumers.interfaces.families import family_hooks
from deedbook.consumers.interfaces.hooks import record as records
from deedbook.consumers.interfaces.hooks.harnesses import ASK_AT_STOP, COMMAND, Harness, Scope
from deedbook.consumers.interfaces.hooks.page import agents_page
from deedbook.consumers.interfaces.hooks.parts import MARKDOWN, TOML, Block, Part, Setting, Settings, State, Whole
from deedbook.consumers.sdk.files import read_file, remove_file, write_file
from deedbook.ledger.errors import DeedbookError, Refused

T = TypeVar("T")
settings_size_max_bytes: Final = 16 * 1024**2
_kept_digits: Final = 12
difference_lines_max: Final = 20
_context_lines: Final = 1
SERVER: Final = "deedbook"


class Outcome(NamedTuple):
    """The result for one file.

    ``done`` is wrote, updated, restored, removed, unchanged, or missing (there was nothing to remove); ``kept`` is the
    copy of an edited file. ``difference`` shows an edited part against the part that setup writes, as a unified diff.
    """

    path: Path
    state: State
    done: str = "unchanged"
    kept: Path | None = None
    difference: tuple[str, ...] = ()


class _Change(NamedTuple):
    path: Path
    before: bytes | None
    after: bytes | None
    record: records.FileRecord | None
    outcome: Outcome


class Installation:
    """Deedbook in one harness and one folder: a project or the user's home."""

    def __init__(
        self, harness: Harness, folder: Path, launcher: Launcher, *, scope: Scope = "local", kept: Path | None = None
    ) -> None:
        """Choose the folder; ``kept`` is the folder for copies of edited files (default: beside the record)."""
        self.harness = harness
        self.launcher = launcher
        self.folder = folder
        self.scope = scope
        self.parts = parts_of(harness, folder, launcher, scope)
        self.record_path = records.record_path(harness.name, folder)
        self.record = records.read_record(self.record_path)
        self.kept = kept or records.kept_folder()

    def check(self) -> list[Outcome]:
        """Return the state of each file.

        Raises Refused: ``INVALID_FORMAT``, ``TOO_LARGE`` or ``NESTING_TOO_DEEP`` for a file that is not in its format.
        Unavailable: a file cannot be read.
        """
        return [self._found(path, part) for path, part in self.parts.items()]

    def install(self, *, force: bool = False) -> list[Outcome]:
        """Write our parts where they are missing or outdated, and return the results.

        Raises Refused: as ``check``; ``EDITED_BY_HAND`` for a part that a person changed; ``INVALID_FIELD`` where
        a setting has another form. Unavailable: a file cannot be written; then every file is as before.
        """
        self._check_folders()
        changes = [self._insertion(path, part, force=force) for path, part in self.parts.items()]
        if all(change.before == change.after for change in changes):
            return [change.outcome for change in changes]
        folders = self.record.folders if self.record is not None else []
        made: list[Path] = []
        try:
            made += records.make_folders(self.record_path.parent, mode=0o700)
            self._remove_leftovers()
            outcomes = self._keep(changes)
            # If we crash from here on: the record names every file and folder, so removal finds them.
            planned = dict.fromkeys(
                folder for change in changes for folder in records.missing_folders(change.path.parent)
            )
            records.write_record(self.record_path, self._record(changes, [*folders, *map(str, [*made, *planned])]))
            for change in changes:
                made += records.make_folders(change.path.parent)
            _write(changes)
        except DeedbookError:
            undone = records.Record(
                agent="", home=None, server=None, files=[], folders=[str(folder) for folder in made]
            )
            records.remove_record(self.record_path, undone)
            if self.record is not None:
                records.write_record(self.record_path, self.record)
            raise
        return outcomes

    def remove(self, *, force: bool = False, is_dry: bool = False) -> list[Outcome]:
        """Remove our parts, and return the results; ``is_dry`` changes nothing.

        Raises Refused: as ``check``; ``EDITED_BY_HAND`` for a part that a person changed. Unavailable: as ``install``.
        """
        self._check_folders()
        changes = [self._removal(path, part, force=force) for path, part in self.parts.items()]
        if is_dry:
            return [change.outcome for change in changes]
        outcomes = self._keep(changes)
        _write(changes)
        self._remove_leftovers()
        if self.record is not None:
            records.remove_record(self.record_path, self.record)
        return outcomes

    def _check_folders(self) -> None:
        """Refuse to write or delete through a link that leads outside the project, such as to the user's own setup."""
        within = self.folder.resolve()
        for path in self.parts if self.scope != "user" else ():
            if path.is_relative_to(self.folder) and not path.parent.resolve().is_relative_to(within):
                message = f"{path.parent} is a link that leads out of the project. Replace it with a folder."
                raise Refused("INVALID_FORMAT", message, path=str(path.parent))

    def _found(self, path: Path, part: Part) -> Outcome:
        current = _read(path)
        state = self._state(path, part, current)
        if state is not State.EDITED or current is None:
            return Outcome(path, state)
        before, after = part.expected.splitlines(), part.present(_text(current)).splitlines()
        lines = list(unified_diff(before, after, "deed setup", path.name, lineterm="", n=_context_lines))
        more = [f"… {len(lines) - difference_lines_max} more lines"] if len(lines) > difference_lines_max else []
        return Outcome(path, state, difference=(*lines[:difference_lines_max], *more))

    def _state(self, path: Path, part: Part, current: bytes | None) -> State:
        if current is None:
            return State.MISSING
        recorded = self._known(path)
        return _in(path, lambda: part.state(_text(current), None if recorded is None else recorded.written))

    def _known(self, path: Path) -> records.FileRecord | None:
        return None if self.record is None else self.record.of(path)

    def _insertion(self, path: Path, part: Part, *, force: bool) -> _Change:
        current, recorded = _read(path), self._known(path)
        state = self._state(path, part, current)
        if state is State.INSTALLED:
            return _Change(path, current, current, recorded, Outcome(path, state))
        if state is State.EDITED and not force:
            raise _edited(path, self.harness)
        base, after = _in(path, lambda: self._bases(part, current, recorded, state))
        record = records.FileRecord(path=str(path), before=base, after=records.digest(after), written=part.written)
        done = "wrote" if state is State.MISSING else "updated"
        return _Change(path, current, after, record, Outcome(path, state, done))

    def _bases(
        self, part: Part, current: bytes | None, recorded: records.FileRecord | None, state: State
    ) -> tuple[bytes | None, bytes]:
        """Return the file's content without our part (None: no file), and its new content."""
        if current is not None and recorded is not None and records.digest(current) == recorded.after:
            current, state = recorded.before, State.MISSING
        if state is State.MISSING:
            text = part.new_file if current is None else _text(current)
            return current, part.insert(text).encode()
        text = _text(current or b"")
        rest = part.remove(text, _before(part, recorded))
        return _rest(part, recorded, rest), part.update(text).encode()

    def _removal(self, path: Path, part: Part, *, force: bool) -> _Change:
        current, recorded = _read(path), self._known(path)
        state = self._state(path, part, current)
        if current is None:
            return _Change(path, None, None, None, Outcome(path, state, "missing"))
        if recorded is not None and records.digest(current) == recorded.after:
            return _removed(path, current, recorded.before, state)
        if state is State.MISSING:
            return _Change(path, current, current, None, Outcome(path, state))
        if state is State.EDITED and not force:
            raise _edited(path, self.harness)
        rest = _in(path, lambda: part.remove(_text(current), _before(part, recorded)))
        return _removed(path, current, _rest(part, recorded, rest), state)

    def _record(self, changes: list[_Change], folders: list[str]) -> records.Record:
        files = [change.record for change in changes if change.record is not None]
        launcher = self.launcher
        return records.Record(
            agent=launcher.agent or "", home=launcher.home, server=launcher.server, files=files, folders=folders
        )

    def _keep(self, changes: list[_Change]) -> list[Outcome]:
        """Copy the files in which a person edited our part. The returned results name the copies."""
        outcomes = []
        for change in changes:
            copy = None
            if change.outcome.state is State.EDITED and change.before is not None:
                records.make_folders(self.kept, mode=0o700)
                copy = self.kept / f"{change.path.name}-{records.digest(change.before)[:_kept_digits]}"
                write_file(copy, change.before)
            outcomes.append(change.outcome._replace(kept=copy))
        return outcomes

    def _remove_leftovers(self) -> None:
        records.remove_leftovers({self.record_path.parent, *(path.parent for path in self.parts)})


def _read(path: Path) -> bytes | None:
    return read_file(path, size_max_bytes=settings_size_max_bytes)


def _write(changes: list[_Change]) -> None:
    """Write all changes; if one fails, restore the files that were already written."""
    written: list[_Change] = []
    try:
        for change in changes:
            if change.before != change.after:
                _put(change.path, change.after, expected=change.before)
                written.append(change)
    except DeedbookError as error:
        if lost := [str(change.path) for change in reversed(written) if not _is_restored(change)]:
            error.with_details(not_put_back=lost)
        raise


def _removed(path: Path, current: bytes, rest: bytes | None, state: State) -> _Change:
    """Return the removal of our part of a file; a file that had nothing else is deleted."""
    return _Change(path, current, rest, None, Outcome(path, state, "removed" if rest is None else "restored"))


def _is_restored(change: _Change) -> bool:
    try:
        _put(change.path, change.before, expected=change.after)
    except DeedbookError:
        return False
    return True


def _put(path: Path, content: bytes | None, *, expected: bytes | None) -> None:
    is_expected = _read(path) == expected
    if is_expected and content is None:
        remove_file(path)
    elif not is_expected or not write_file(path, content or b"", expected=expected):
        raise Refused("EDITED_BY_HAND", f"somebody saved {path} just now. Run the command again.", path=str(path))


def _before(part: Part, recorded: records.FileRecord | None) -> str:
    return part.new_file if recorded is None or recorded.before is None else _text(recorded.before)


def _rest(part: Part, recorded: records.FileRecord | None, text: str) -> bytes | None:
    """Return a file's content without our part; None if setup made the file and nobody added to it."""
    if isinstance(part, Whole):
        return None
    is_ours_alone = recorded is not None and recorded.before is None and "".join(text.split()) == part.new_file.strip()
    return None if is_ours_alone else text.encode()


def _text(content: bytes) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Refused("INVALID_FORMAT", "the file is not UTF-8") from error


def _in(path: Path, decide: Callable[[], T]) -> T:
    """Return the decision about a file; a refusal contains the file's name."""
    try:
        return decide()
    except Refused as refusal:
        raise Refused(refusal.code, f"{path}: {refusal.message}", **refusal.details | {"file": str(path)}) from refusal


def _edited(path: Path, harness: Harness) -> Refused:
    advice = "Move the edit elsewhere, or add --force: setup then keeps a copy of the file."
    message = f"{path}: somebody edited the part that `deed setup {harness.name}` wrote. {advice}"
    return Refused("EDITED_BY_HAND", message, file=str(path))


class Launcher(NamedTuple):
    """How a harness calls Deedbook: by the path of its command, so that no virtual environment need be active.

    The files of a team hold only the command's name, because each machine has it elsewhere. Without an agent, the agent
    of DEEDBOOK_AGENT acts, else the agent with the name of the harness.
    """

    command: str
    agent: str | None
    home: str | None = None
    server: str | None = None
    asks_at_stop: bool = False

    @property
    def _options(self) -> list[str]:
        options = {"--as": self.agent, "--home": self.home, "--server": self.server}
        return [word for name, value in options.items() if value is not None for word in (name, value)]

    def hook(self, harness: Harness, event: str) -> str:
        """Return the command line of a hook, for a shell."""
        asks = [ASK_AT_STOP] if self.asks_at_stop and event == "Stop" else []
        return shlex.join([self.command, "hook", harness.name, *self._options, *asks])

    def mcp(self, harness: Harness) -> tuple[str, list[str]]:
        """Return the command and the arguments of the MCP server."""
        return self.command, ["mcp", *self._options, *([] if self.agent else ["--harness", harness.name])]


def parts_of(harness: Harness, folder: Path, launcher: Launcher, scope: Scope) -> dict[Path, Part]:
    """Return our part of each file; settings and servers in one file are one part."""
    files = harness.files(folder, scope)
    hooks = tuple(_hook(harness, event, launcher) for event in harness.events)
    command, arguments = launcher.mcp(harness)
    server: dict[str, Any] = {**harness.server_fields, "command": command, "args": arguments}
    note = f"(by `deed setup {harness.name}`, which also removes it: --remove)"
    parts: dict[Path, Part] = {}
    if harness.servers_format == "json":
        within = ("projects", str(folder)) if harness.is_apart(scope) else ()
        setting = Setting((*within, "mcpServers", SERVER), server, is_item=False)
        if files.servers == files.settings:
            parts[files.settings] = Settings((*hooks, setting))
        else:
            parts |= {files.settings: Settings(hooks), files.servers: Settings((setting,))}
    else:
        lines = [f"[mcp_servers.{SERVER}]", *(f"{name} = {_toml_value(value)}" for name, value in server.items())]
        parts |= {files.settings: Settings(hooks), files.servers: Block(TOML, "\n".join(lines) + "\n", note)}
    if not (harness.is_apart(scope) and harness.is_shared(folder)):  # otherwise the team's files hold the page
        parts[files.page] = Block(MARKDOWN, agents_page(), note)
        for name, source in family_hooks("slash_command"):
            path = files.command_of(name)
            parts[path] = Whole(slash_command(name, source, path))
    return parts


def slash_command(name: str, source: Path, path: Path) -> str:
    """Return the text of a family's command `/NAME` for the file at ``path``: TOML, a skill, or a command in Markdown.

    ``source`` has one line about it, an empty line, and the text for the agent.
    """
    about, _, text = source.read_text("utf-8").partition("\n\n")
    match path.suffix, path.name:
        case ".toml", _:
            text = text.replace("$ARGUMENTS", "{{args}}")
            return f"description = {_toml_value(about)}\nprompt = '''\n{text}'''\n"
        case _, "SKILL.md":
            text = text.replace("$ARGUMENTS", f"what the user wrote with ${name}")
            head = f"name: {name}\ndescription: {about}"
        case _:  # the file of Claude Code
            head = f"description: {about}\nargument-hint: [problem]"
    return f"---\n{head}\n---\n\n{text}"


def _hook(harness: Harness, event: str, launcher: Launcher) -> Setting:
    handler = {"type": "command", "command": launcher.hook(harness, event), "timeout": harness.timeout(event)}
    matcher = {"matcher": "|".join(harness.edit_tools)} if harness.events[event] == "edit" else {}
    # A path with a space is quoted.
    marks = (f"{COMMAND} hook {harness.name} ", f"{COMMAND}' hook {harness.name} ")
    return Setting(("hooks", event), {**matcher, "hooks": [handler]}, is_item=True, marks=marks)


def _toml_value(value: str | list[str]) -> str:
    """Return a value as TOML: a basic string takes the escapes of JSON, and DEL must be escaped, too."""
    return json.dumps(value).replace("\x7f", "\\u007f")
