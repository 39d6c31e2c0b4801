"""The ledgers' folders that this user trusts.

In any other folder nothing runs, nothing is sent and nothing is signed. ``trust.toml`` in the user's configuration
folder has a record for each trusted folder (its path without links):

- ``root``: the fingerprint of the key that signed entry 0, because another ledger may replace the one in the folder.
  For a folder without a log (a remote agent's) it is that of the first ledger used there. An agent's key names only
  the ledger's id, which is the first half of the fingerprint.
- ``config``, ``chains`` and ``client``: the digests of the files. If one changes, the user must trust the folder again.
  The bytes that are hashed are the bytes that are used, so nobody can exchange a file in between.
- ``settings``: a digest for each setting that acts, so that a refusal can name the settings that changed.

The file is TOML in one fixed form. It is read strictly, without the standard library's parser, because importing that
takes a fifth of a bare start. The file is used only if this user owns it and nobody else can read it; otherwise no
folder is trusted.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from shlex import quote
from typing import Annotated, Any, Final, Protocol

import msgspec
from blake3 import blake3

from deedbook.ledger import limits
from deedbook.ledger.errors import DeedbookError, Refused, Unavailable
from deedbook.ledger.format.codec import UNREADABLE, convert, json_decoder, read_json, schema_error
from deedbook.ledger.format.envelope import decode_entry
from deedbook.ledger.home.config import Actions, Settings, parse_config
from deedbook.ledger.home.location import CHAINS_FILE, CONFIG_FILE, config_folder, project_path, read_file, resolved
from deedbook.ledger.home.membership import CLIENT_FILE, Membership, read_membership
from deedbook.ledger.system.files import as_unavailable, lock_file, read_regular, write_whole

TRUST_FILE: Final = "trust.toml"
# Agents get this text for an untrusted folder. It has no path and no text of the folder: both may be a stranger's.
UNTRUSTED: Final = (
    "This user does not trust the folder of this project's ledger, so nothing in it is read, run or signed. "
    "Only a person should decide this: in a terminal, `deed trust` shows what the folder would do, and asks."
)
_HEADING: Final = "[[home]]"
_LINE: Final = r'([a-z]+) = ("[^\n]*")'
_NOTE: Final = "# Ledgers' folders that this user trusts: `deed trust` adds one, `deed trust --remove` removes one."
_digest_digits: Final = 16


class EntryReader(Protocol):
    """Reads entries of a ledger, for example a ``Client``: entry 0 identifies the ledger."""

    def entry(self, index: int) -> bytes:
        """Return the bytes of one entry."""


class TrustedFolder(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The record of one trusted folder. Digests are BLAKE3 in hex, empty for no file; ``root`` is empty until known."""

    path: str
    root: str = ""
    config: str = ""
    chains: str = ""
    client: str = ""
    settings: str = ""
    at: str = ""


class FolderContent(msgspec.Struct, frozen=True):
    """The files of a ledger's folder, read once, and the settings in them that would act."""

    path: Path
    config: bytes
    chains: bytes
    actions: Actions
    client: Membership | None

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that would act, by name."""
        chains = {"chains": self.chains.decode("utf-8", "replace")} if self.chains.strip() else {}
        client = {"client": msgspec.to_builtins(self.client)} if self.client else {}
        return {**msgspec.to_builtins(self.actions), **chains, **client}


def read_folder(home: Path) -> FolderContent:
    """Return the content of a ledger's folder for display. Nothing of it takes effect.

    Raises Refused, Unavailable: as ``config.parse_config`` and ``config.read_file``.
    """
    path = resolved(home)
    config = read_file(path, CONFIG_FILE)
    actions = parse_config(config, path / CONFIG_FILE)[1]
    return FolderContent(path, config, read_file(path, CHAINS_FILE), actions, read_membership(path))


def actions_of(settings: Settings, client: EntryReader | None = None) -> Actions:
    """Return the settings that act. All callers get them only here.

    Raises Refused: ``NOT_TRUSTED`` if the folder is not trusted, or if ``config.toml`` with such settings has changed.
    """
    if settings.actions is not None:
        return settings.actions
    record = demand(settings.home, client)
    _, actions = parse_config(settings.text, settings.home / CONFIG_FILE)
    if actions != Actions() and digest(settings.text) != record.config:
        names = _changed_settings(record, msgspec.to_builtins(actions))
        raise _changed_file(settings.home, CONFIG_FILE, names)
    return actions


def server_program(settings: Settings, client: EntryReader | None = None) -> Path | None:
    """Return the path of the nats-server that the folder names; None for the installation's own.

    Raises Refused: as ``actions_of``.
    """
    program = actions_of(settings, client).nats_server
    return None if program is None else project_path(resolved(settings.home), program)


def check_chains(home: Path, content: bytes) -> None:
    """Refuse the content of ``chains.toml`` if it is not the trusted one. An empty file is harmless.

    Raises Refused: ``NOT_TRUSTED``.
    """
    record = demand(home)
    if content.strip() and digest(content) != record.chains:
        raise _changed_file(home, CHAINS_FILE, ["chains"])


def check_client(home: Path, client: Membership, environment: Mapping[str, str] = os.environ) -> None:
    """Refuse the servers and agent of a trusted folder if they changed: a ``git pull`` may have brought them.

    Raises Refused: ``NOT_TRUSTED``.
    """
    record = find_record(home, environment)
    if record is not None and record.client != _membership_digest(client):
        raise _changed_file(home, CLIENT_FILE, ["client"])


def demand(
    home: Path,
    client: EntryReader | None = None,
    *,
    ledger: str | None = None,
    environment: Mapping[str, str] = os.environ,
) -> TrustedFolder:
    """Return the record of a folder that must be trusted; ``client``, or the ``ledger``'s id, must match its root.

    Raises Refused: ``NOT_TRUSTED``.
    """
    path = resolved(home)
    record = find_record(path, environment)
    if record is None:
        raise refusal(path, "is not trusted, so nothing in it runs, sends or signs")
    root = (ledger or "") if client is None else root_in(client.entry(0))
    if not is_same_root(root, record.root) or (client is not None and not root):
        raise refusal(path, "holds another ledger than the one that was trusted there")
    if len(root) > len(record.root):
        record = msgspec.structs.replace(record, root=root)
        with suppress(DeedbookError):  # if this root cannot be stored, the next call again checks the folder alone
            remember(record, environment)
    return record


def is_same_root(fingerprint_start: str, other_start: str) -> bool:
    """Whether two fingerprints may be of one root. Each may be cut to the ledger's id, or empty, which matches all."""
    return fingerprint_start.startswith(other_start) or other_start.startswith(fingerprint_start)


def ignored_settings(settings: Settings) -> list[str]:
    """Return the names of the settings in ``Actions`` that are ignored because the folder is not trusted.

    The list is empty if the folder is trusted or has no such settings.
    """
    _, actions = parse_config(settings.text, settings.home / CONFIG_FILE)
    names = list(msgspec.to_builtins(actions))
    if not names or settings.actions is not None:
        return []
    try:
        actions_of(settings)
    except Refused:
        return names
    return []


def find_record(path: Path, environment: Mapping[str, str] = os.environ) -> TrustedFolder | None:
    """Return the record of a folder (a path without links); None if it is not trusted.

    Raises Refused: as ``read_records``.
    """
    return next((record for record in read_records(environment) if record.path == str(path)), None)


def read_records(environment: Mapping[str, str] = os.environ) -> list[TrustedFolder]:
    """Return the records of all trusted folders.

    Raises Refused: ``NOT_TRUSTED`` if the file is another user's, open to others, too large, unreadable or malformed.
    """
    try:
        file = config_folder(environment) / TRUST_FILE
        return _decode_records(read_regular(file, size_max_bytes=limits.trust_size_max_bytes, is_own=True) or b"", file)
    except DeedbookError as error:
        message = f"no folder is trusted, because the trust file cannot be used: {error.message}"
        raise Refused("NOT_TRUSTED", message, **error.details) from error


def remember(record: TrustedFolder, environment: Mapping[str, str] = os.environ) -> None:
    """Trust a folder from now on; ``record`` replaces its earlier record.

    Raises Refused: as ``read_records``; ``INVALID_FIELD`` for a path that is not UTF-8; ``TOO_LARGE``. Unavailable:
    ``STORE_IN_USE``; ``STORE_UNAVAILABLE`` if the file cannot be written.
    """
    with _locked(environment) as file:
        others = [stored for stored in read_records(environment) if stored.path != record.path]
        _write(file, [*others, record])


def adopt(home: Path, root: str, at: str, client: Membership | None = None) -> None:
    """Trust a folder that this user has just made. Of the settings files in it, only ``client.toml`` is trusted.

    If the record cannot be written, the folder still stays, and later commands that sign report that it is not trusted.
    """
    with suppress(DeedbookError):
        remember(TrustedFolder(str(resolved(home)), root, client=_membership_digest(client), at=at))


def move_client(home: Path, client: Membership) -> None:
    """Trust other servers of the same ledger and agent in a folder. The trust in its other files does not change."""
    if (record := find_record(home)) is not None:
        remember(msgspec.structs.replace(record, client=_membership_digest(client)))


def forget(path: Path, environment: Mapping[str, str] = os.environ) -> bool:
    """Stop trusting a folder, which may be deleted already; return whether it was trusted."""
    with _locked(environment) as file:
        records = read_records(environment)
        left = [record for record in records if record.path != str(path)]
        if len(left) < len(records):
            _write(file, left)
    return len(left) < len(records)


class _Root(msgspec.Struct):
    root: Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z")]


class _FirstEntry(msgspec.Struct):
    """The fields of entry 0 that are read here, so that the types of all events need not be loaded."""

    kind: str
    data: _Root


_CREATED: Final = "ledger.created"
_first_entry = json_decoder(_FirstEntry)


def record_of(folder: FolderContent, root: str, at: str) -> TrustedFolder:
    """Return the record that trusts a folder with this content."""
    settings = {name: digest(msgspec.json.encode(value, order="sorted")) for name, value in folder.settings.items()}
    stored = " ".join(f"{name}={value[:_digest_digits]}" for name, value in settings.items())
    digests = digest(folder.config), digest(folder.chains), _membership_digest(folder.client)
    return TrustedFolder(str(folder.path), root, *digests, stored, at)


def root_in(entry: bytes) -> str:
    """Return the fingerprint of the root key that entry 0 names; empty if the entry is no ``ledger.created``.

    Does not check the signature. Raises Refused: the entry has another form.
    """
    try:
        first = _first_entry.decode(decode_entry(entry).body)
    except UNREADABLE as error:
        raise schema_error(error) from error
    return fingerprint(bytes.fromhex(first.data.root)) if first.kind == _CREATED else ""


def fingerprint(root: bytes) -> str:
    """Return the fingerprint of a root key: BLAKE3, 64 hex digits; the first 32 are the ledger's id."""
    return blake3(root).hexdigest()


def is_trusted(home: Path) -> bool:
    """Whether a folder is trusted, even if its settings have changed."""
    try:
        demand(home)
    except DeedbookError:
        return False
    return True


def is_unchanged(record: TrustedFolder, folder: FolderContent) -> bool:
    """Whether each file of the folder is the trusted one, or contains nothing that acts."""
    return (
        (folder.actions == Actions() or digest(folder.config) == record.config)
        and (not folder.chains.strip() or digest(folder.chains) == record.chains)
        and (folder.client is None or _membership_digest(folder.client) == record.client)
    )


def setting_digests(record: TrustedFolder | None) -> dict[str, str]:
    """Return the digests of the acting settings in a record, by name, shortened as they are stored."""
    return {} if record is None else dict(part.partition("=")[::2] for part in record.settings.split())


def digest(content: bytes) -> str:
    """Return the digest of a file's content; empty for an empty file, as for no file."""
    return blake3(content).hexdigest() if content else ""


def _membership_digest(client: Membership | None) -> str:
    return "" if client is None else digest(msgspec.json.encode(client))


def refusal(home: Path, reason: str) -> Refused:
    """Return the refusal of a folder, with the command to run."""
    path = quoted_path(home)
    message = f"{path} {reason}. `deed trust --home {path}` shows what it would do, and asks"
    return Refused("NOT_TRUSTED", message, home=str(home).encode("utf-8", "backslashreplace").decode())


def quoted_path(path: Path) -> str:
    """Return a path quoted for a shell. A path with unprintable characters is escaped as in Python instead."""
    text = str(path)
    return quote(text) if text.isprintable() else repr(text)


def _changed_file(home: Path, file: str, names: list[str]) -> Refused:
    changes = ", ".join(names) or "but no setting that acts"
    return refusal(home, f"is trusted, but its {file} has changed ({changes})").with_details(file=file, settings=names)


def _changed_settings(record: TrustedFolder, settings: dict[str, Any]) -> list[str]:
    """Return the settings of ``config.toml`` that were added, changed or removed since they were trusted."""
    stored = setting_digests(record)
    present = {name: digest(msgspec.json.encode(value, order="sorted")) for name, value in settings.items()}
    names = [name for name, value in present.items() if stored.get(name) != value[:_digest_digits]]
    return names + [name for name in stored if name not in present and name not in {"chains", "client"}]


def _decode_records(content: bytes, file: Path) -> list[TrustedFolder]:
    tables: list[dict[str, str]] = []
    problem = ""
    try:
        for line in content.decode().split("\n"):
            match = re.fullmatch(_LINE, line)
            if line == _HEADING:
                tables.append({})
            elif match is not None and tables and match[1] not in tables[-1]:
                tables[-1][match[1]] = read_json(match[2], str)
            elif line and not line.startswith("#"):
                problem = problem or line
        records = convert(tables, list[TrustedFolder])
    except UNREADABLE as error:
        problem, records = str(error), []
    if problem:
        reason = f"{quoted_path(file)} is not as Deedbook writes it ({problem[:80]!r})"
        message = f"{reason}: check it, delete it, and trust the folders again"
        raise Refused("INVALID_FORMAT", message, path=str(file))
    return records


def _write(file: Path, records: list[TrustedFolder]) -> None:
    lines = [_NOTE]
    for record in records:
        # A JSON string is also a TOML basic string, except that TOML wants DEL escaped.
        fields = msgspec.to_builtins(record).items()
        lines += ["", _HEADING, *(f"{name} = {_quoted(value)}" for name, value in fields)]
    content = "\n".join(lines).encode() + b"\n"
    if len(content) > limits.trust_size_max_bytes:
        raise Refused(
            "TOO_LARGE", f"{quoted_path(file)} is full: remove a folder with `deed trust --remove --home PATH`"
        )
    write_whole(file, content)


def _quoted(text: str) -> str:
    try:
        return msgspec.json.encode(text).decode().replace("\x7f", "\\u007f")
    except UnicodeEncodeError as error:
        raise Refused("INVALID_FIELD", f"{text!r} is not UTF-8 and cannot be stored", path="$.path") from error


@contextmanager
def _locked(environment: Mapping[str, str]) -> Iterator[Path]:
    """Hold the lock and yield the path of the trust file. If a process is killed, its lock is free at once."""
    folder = config_folder(environment)
    lock = folder / f"{TRUST_FILE}.lock"
    in_use = Unavailable("STORE_IN_USE", f"another process holds {quoted_path(lock)}: try again")
    with as_unavailable(folder, "cannot be written (XDG_CONFIG_HOME or HOME leads there)"):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with lock_file(lock, in_use, wait_max_s=limits.trust_lock_wait_max_s):
        yield folder / TRUST_FILE
