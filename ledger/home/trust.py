"""Which ledgers' folders this user trusts: in any other one nothing runs, nothing is sent and nothing is signed.

Kept is, in ``trust.toml`` of the user's own configuration folder, for each folder (without links):

- ``root``, the fingerprint of the key that signed entry 0: another ledger in the same place is another ledger. Where
  there was no log (a remote agent's folder) it is the first that is met, of which an agent's key tells the id alone;
- ``config``, ``chains`` and ``client``, the digests of the files: a change of one asks again. What is hashed is what is
  used, so nobody can exchange a file in between;
- ``settings``, a digest for each setting that acts, so that a refusal can name what changed.

The file is TOML of one form, read back strictly and without the standard library's parser, whose import costs a fifth
of a bare start. It is believed if it is this user's own and nobody else can read it; else nobody is trusted.
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
from deedbook.ledger.format.codec import UNREADABLE, schema_error
from deedbook.ledger.format.envelope import decode_entry
from deedbook.ledger.home.config import Actions, Settings, parse_config
from deedbook.ledger.home.location import CHAINS_FILE, CONFIG_FILE, config_folder, project_path, read_file, resolved
from deedbook.ledger.home.membership import CLIENT_FILE, Membership, read_membership
from deedbook.ledger.system.files import as_unavailable, lock_file, read_regular, write_whole

TRUST_FILE: Final = "trust.toml"
# What an agent is told of such a folder: no path and no text of it, for both may be a stranger's.
UNTRUSTED: Final = (
    "This user does not trust the folder of this project's ledger, so nothing of it is read, run or signed. "
    "Only a person should decide that: in a terminal, `deed trust` shows what the folder would do, and asks."
)
_HEADING: Final = "[[home]]"
_LINE: Final = r'([a-z]+) = ("[^\n]*")'
_NOTE: Final = "# Ledgers' folders that this user trusts: `deed trust` adds one, `deed trust --remove` takes one out."
_digest_digits: Final = 16


class Entries(Protocol):
    """What a ledger is recognized by: its entries (``Client``)."""

    def entry(self, index: int) -> bytes:
        """Return the bytes of one entry."""


class TrustedFolder(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One trusted folder: digests are BLAKE3 in hex, empty where there was no file, ``root`` until a log is met."""

    path: str
    root: str = ""
    config: str = ""
    chains: str = ""
    client: str = ""
    settings: str = ""
    at: str = ""


class FolderContent(msgspec.Struct, frozen=True):
    """What lies in a ledger's folder now, read once: what would act, and the files that it stands in."""

    path: Path
    config: bytes
    chains: bytes
    actions: Actions
    client: Membership | None

    @property
    def settings(self) -> dict[str, Any]:
        """What would act, by name."""
        chains = {"chains": self.chains.decode("utf-8", "replace")} if self.chains.strip() else {}
        client = {"client": msgspec.to_builtins(self.client)} if self.client else {}
        return {**msgspec.to_builtins(self.actions), **chains, **client}


def read_folder(home: Path) -> FolderContent:
    """Return what lies in a ledger's folder, for showing it: nothing of it has taken effect.

    Raises Refused, Unavailable: as ``config.parse_config`` and ``config.read_file``.
    """
    path = resolved(home)
    config = read_file(path, CONFIG_FILE)
    actions = parse_config(config, path / CONFIG_FILE)[1]
    return FolderContent(path, config, read_file(path, CHAINS_FILE), actions, read_membership(path))


def actions_of(settings: Settings, client: Entries | None = None) -> Actions:
    """Return the settings that act: the one way to them.

    Raises Refused: ``NOT_TRUSTED`` when the folder is not trusted, or such a setting changed since.
    """
    if settings.actions is not None:
        return settings.actions
    record = demand(settings.home, client)
    _, actions = parse_config(settings.text, settings.home / CONFIG_FILE)
    if actions != Actions() and digest(settings.text) != record.config:
        raise _changed(settings.home, CONFIG_FILE, _differing(record, msgspec.to_builtins(actions)))
    return actions


def server_program(settings: Settings, client: Entries | None = None) -> Path | None:
    """Return the nats-server that the folder names, wherever this runs; None for the installation's own.

    Raises Refused: as ``actions_of``.
    """
    named = actions_of(settings, client).nats_server
    return None if named is None else project_path(resolved(settings.home), named)


def check_chains(home: Path, content: bytes) -> None:
    """Refuse chains that are not those which were trusted; none at all are harmless.

    Raises Refused: ``NOT_TRUSTED``.
    """
    record = demand(home)
    if content.strip() and digest(content) != record.chains:
        raise _changed(home, CHAINS_FILE, ["chains"])


def check_client(home: Path, client: Membership, environment: Mapping[str, str] = os.environ) -> None:
    """Refuse (``NOT_TRUSTED``) servers and an agent that are not those of a trusted folder: a pull may bring them."""
    record = find_record(home, environment)
    if record is not None and record.client != _digest_of(client):
        raise _changed(home, CLIENT_FILE, ["client"])


def demand(
    home: Path, client: Entries | None = None, *, ledger: str | None = None, environment: Mapping[str, str] = os.environ
) -> TrustedFolder:
    """Return what is kept of a trusted folder; with a ``client``, or the id of its ``ledger``, that is compared.

    Raises Refused: ``NOT_TRUSTED``.
    """
    path = resolved(home)
    record = find_record(path, environment)
    if record is None:
        raise refusal(path, "is not trusted: what it would run, send or sign does not happen")
    root = (ledger or "") if client is None else root_in(client.entry(0))
    if not is_same_root(root, record.root) or (client is not None and not root):
        raise refusal(path, "holds another ledger than the one that was trusted there")
    if len(root) > len(record.root):
        record = msgspec.structs.replace(record, root=root)
        with suppress(DeedbookError):  # who cannot keep it is asked about the folder alone, as before
            remember(record, environment)
    return record


def is_same_root(one: str, other: str) -> bool:
    """Whether two fingerprints may be of one root: of a ledger's id the rest is not known, of none nothing is."""
    return one.startswith(other) or other.startswith(one)


def ignored_settings(settings: Settings) -> list[str]:
    """Return the names of settings that act and do not count here, for whoever goes on without them."""
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
    """Return what is kept of a folder (without links); None when it is not trusted.

    Raises Refused: ``NOT_TRUSTED`` when the file of trust cannot be believed.
    """
    return next((record for record in read_records(environment) if record.path == str(path)), None)


def read_records(environment: Mapping[str, str] = os.environ) -> list[TrustedFolder]:
    """Return all trusted folders.

    Raises Refused: ``NOT_TRUSTED`` when the file is another user's, readable by others, too large or garbage.
    """
    try:
        file = config_folder(environment) / TRUST_FILE
        return _decoded(read_regular(file, size_max_bytes=limits.trust_size_max_bytes, is_own=True) or b"", file)
    except DeedbookError as error:
        message = f"nobody is trusted, because the file of trust cannot be believed: {error.message}"
        raise Refused("NOT_TRUSTED", message, **error.details) from error


def remember(record: TrustedFolder, environment: Mapping[str, str] = os.environ) -> None:
    """Trust a folder from now on, in place of what was kept of it.

    Raises Refused: as ``read_records``; ``INVALID_FIELD`` for a path that is no text. Unavailable: the file cannot be
    written.
    """
    with _locked(environment) as file:
        others = [one for one in read_records(environment) if one.path != record.path]
        _write(file, [*others, record])


def adopt(home: Path, root: str, at: str, client: Membership | None = None) -> None:
    """Trust a folder that this user has just made, but no file of settings in it but ``client.toml``.

    Where that cannot be kept the folder is none the less, and whoever signs in it is told that it is not trusted.
    """
    with suppress(DeedbookError):
        remember(TrustedFolder(str(resolved(home)), root, client=_digest_of(client), at=at))


def forget(path: Path, environment: Mapping[str, str] = os.environ) -> bool:
    """Trust a folder no longer, whether it is still there or not; return whether it was trusted.

    Raises Refused, Unavailable: as ``remember``.
    """
    with _locked(environment) as file:
        records = read_records(environment)
        left = [record for record in records if record.path != str(path)]
        if len(left) < len(records):
            _write(file, left)
    return len(left) < len(records)


class _Root(msgspec.Struct):
    root: Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z")]


class _FirstEntry(msgspec.Struct):
    """What is read of entry 0, without loading the types of all events."""

    kind: str
    data: _Root


_CREATED: Final = "ledger.created"
_first_entry = msgspec.json.Decoder(_FirstEntry)


def record_of(folder: FolderContent, root: str, at: str) -> TrustedFolder:
    """Return what is kept of a folder that is trusted as it was read."""
    settings = {name: digest(msgspec.json.encode(value, order="sorted")) for name, value in folder.settings.items()}
    kept = " ".join(f"{name}={value[:_digest_digits]}" for name, value in settings.items())
    digests = digest(folder.config), digest(folder.chains), _digest_of(folder.client)
    return TrustedFolder(str(folder.path), root, *digests, kept, at)


def root_in(entry: bytes) -> str:
    """Return the fingerprint of the root key that entry 0 names, and was signed with."""
    try:
        first = _first_entry.decode(decode_entry(entry).body)
    except UNREADABLE as error:
        raise schema_error(error) from error
    return fingerprint(bytes.fromhex(first.data.root)) if first.kind == _CREATED else ""


def fingerprint(root: bytes) -> str:
    """Return the fingerprint of a root key: BLAKE3, 64 hex digits; the first 32 are the ledger's id."""
    return blake3(root).hexdigest()


def is_trusted(home: Path) -> bool:
    """Whether a folder is trusted, whatever of its settings is."""
    try:
        demand(home)
    except DeedbookError:
        return False
    return True


def is_unchanged(record: TrustedFolder, folder: FolderContent) -> bool:
    """Whether the files are as they were when they were trusted, or hold nothing that acts."""
    return (
        (folder.actions == Actions() or digest(folder.config) == record.config)
        and (not folder.chains.strip() or digest(folder.chains) == record.chains)
        and (folder.client is None or _digest_of(folder.client) == record.client)
    )


def setting_digests(record: TrustedFolder | None) -> dict[str, str]:
    """Return the digest of each setting that acts, by name, as a record keeps them."""
    return {} if record is None else dict(part.partition("=")[::2] for part in record.settings.split())


def digest(content: bytes) -> str:
    """Return the digest of a file; empty for an empty one, as for none."""
    return blake3(content).hexdigest() if content else ""


def _digest_of(client: Membership | None) -> str:
    return "" if client is None else digest(msgspec.json.encode(client))


def refusal(home: Path, reason: str) -> Refused:
    """Return the refusal of a folder, with what to type."""
    given = quoted_path(home)
    message = f"{given} {reason}. `deed trust --home {given}` shows what it would do, and asks"
    return Refused("NOT_TRUSTED", message, home=str(home).encode("utf-8", "backslashreplace").decode())


def quoted_path(path: Path) -> str:
    """Return a path as a shell takes it, with control characters made visible."""
    text = str(path)
    return quote(text) if text.isprintable() else repr(text)


def _changed(home: Path, file: str, names: list[str]) -> Refused:
    what = f"({', '.join(names)})" if names else "(no setting that acts, but the file)"
    return refusal(home, f"is trusted, but not its {file} as it is now {what}").with_details(file=file, settings=names)


def _differing(record: TrustedFolder, settings: dict[str, Any]) -> list[str]:
    """Return the settings that are new or other than when they were trusted."""
    kept = setting_digests(record)
    present = {name: digest(msgspec.json.encode(value, order="sorted")) for name, value in settings.items()}
    names = [name for name, value in present.items() if kept.get(name) != value[:_digest_digits]]
    return names + [name for name in kept if name not in present and name != "chains"]


def _decoded(content: bytes, file: Path) -> list[TrustedFolder]:
    tables: list[dict[str, str]] = []
    wrong = ""
    try:
        for line in content.decode().split("\n"):
            match = re.fullmatch(_LINE, line)
            if line == _HEADING:
                tables.append({})
            elif match is not None and tables and match[1] not in tables[-1]:
                tables[-1][match[1]] = msgspec.json.decode(match[2], type=str)
            elif line and not line.startswith("#"):
                wrong = wrong or line
        records = msgspec.convert(tables, list[TrustedFolder])
    except UNREADABLE as error:
        wrong, records = str(error), []
    if wrong:
        message = (
            f"{quoted_path(file)} is not as Deedbook writes it ({wrong[:80]!r}): look at it, delete it, and trust anew"
        )
        raise Refused("INVALID_FORMAT", message, path=str(file))
    return records


def _write(file: Path, records: list[TrustedFolder]) -> None:
    lines = [_NOTE]
    for record in records:
        # A JSON string is a TOML basic string but for DEL, which TOML wants escaped.
        fields = msgspec.to_builtins(record).items()
        lines += ["", _HEADING, *(f"{name} = {_quoted(value)}" for name, value in fields)]
    content = "\n".join(lines).encode() + b"\n"
    if len(content) > limits.trust_size_max_bytes:
        raise Refused("TOO_LARGE", f"{quoted_path(file)} is full: `deed trust --remove --home PATH` makes room")
    write_whole(file, content)


def _quoted(text: str) -> str:
    try:
        return msgspec.json.encode(text).decode().replace("\x7f", "\\u007f")
    except UnicodeEncodeError as error:
        raise Refused("INVALID_FIELD", f"{text!r} is not UTF-8, and so cannot be kept", path="$.path") from error


@contextmanager
def _locked(environment: Mapping[str, str]) -> Iterator[Path]:
    """Yield the file of trust while no other process changes it; a killed one's lock is free at once."""
    folder = config_folder(environment)
    lock = folder / f"{TRUST_FILE}.lock"
    taken = Unavailable("STORE_IN_USE", f"another process holds {quoted_path(lock)}: try again")
    with as_unavailable(folder, "cannot be written (XDG_CONFIG_HOME or HOME leads there)"):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with lock_file(lock, taken, wait_max_s=limits.trust_lock_wait_max_s):
        yield folder / TRUST_FILE
