"""Restore: a folder made of a backup, or of any bundle of a whole log, after all of it was verified.

The entries are replayed by the rules into a new log, which is the check: nothing that the bundle says of itself is
believed, and derived state is made here. Its tree must be the one that the ledger's checkpoint key signed.

The log is built in a hidden folder of the home, and the last step puts its one file in place. A log that is replaced
keeps a second name under ``replaced/``: whoever regrets it finds it there. Settings and keys that the home has already
are left as they are.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

from blake3 import blake3

from deedbook.ledger.admission.follower import Follower
from deedbook.ledger.bundle.archive import Bundle
from deedbook.ledger.bundle.backup import KEY_NAME, KEYS, SETTINGS, key_files
from deedbook.ledger.bundle.layout import HomeFile, Manifest, blob_name, home_name, tile_name, tiles_of
from deedbook.ledger.client.author import now
from deedbook.ledger.errors import Corrupted, Refused, Unavailable
from deedbook.ledger.events.authority import LedgerCreated
from deedbook.ledger.events.entries import read_event
from deedbook.ledger.format.envelope import decode_entry
from deedbook.ledger.format.identity import open_sealed_files, read_key_file, write_private
from deedbook.ledger.home import trust
from deedbook.ledger.home.config import read_config
from deedbook.ledger.home.home import Home
from deedbook.ledger.home.location import VIEWS_FILE
from deedbook.ledger.log.blobs import Blobs, check_blob
from deedbook.ledger.log.environment import FILE
from deedbook.ledger.log.log import Log
from deedbook.ledger.log.tiles import TILE_WIDTH
from deedbook.ledger.log.uploads import put_restored
from deedbook.ledger.proof.checkpoint import verifiers_of, verify_checkpoint
from deedbook.ledger.system.files import TEMPORARY, as_unavailable, sync_folder

Progress = Callable[[int, int], None]

REPLACED: Final = "replaced"
_LENGTH: Final = 2


class Restored(NamedTuple):
    """What a restore made: where the log ends (``tree_head``: hex) and when, what was put in place and taken away.

    ``kept`` are files that the home had already, with other content; ``replaced`` is where the log before lies, and
    ``present_size`` what it held. ``has_sealed_keys``: the backup holds keys, and no passphrase was given for them.
    """

    ledger: str
    size: int
    tree_head: str
    accepted_ms: int
    blobs: int
    files: list[str]
    kept: list[str]
    present_size: int
    replaced: str | None
    has_sealed_keys: bool


class Restore:
    """One restore: the bundle, checked member by member, becomes the log of a folder."""

    def __init__(self, bundle: Bundle, home: Home) -> None:
        """Prepare to restore an open ``bundle`` into ``home``.

        Raises Refused: ``INVALID_FORMAT`` for a bundle of one stream.
        """
        if bundle.manifest.content != "log":
            message = f"this bundle holds the stream {bundle.manifest.stream} alone: restore needs the whole log"
            raise Refused("INVALID_FORMAT", message)
        self.fingerprint = ""  # of the root key, once the entries were replayed
        self._bundle = bundle
        self.home = home
        self._files: dict[HomeFile, bytes] = {}
        self._keys: dict[str, bytes] = {}

    def check_files(self) -> None:
        """Check every member but the entries: cheap, and before anything is written.

        Raises Corrupted: ``CORRUPTED`` or ``VERIFICATION_FAILED``, naming the member.
        """
        for name, digest in self._bundle.manifest.files.items():
            content = self._bundle.read(home_name(name))
            if blake3(content).hexdigest() != digest:
                raise Corrupted("CORRUPTED", f"{home_name(name)} is not the file that the manifest names", member=name)
            self._files[name] = content
        for ref in self._bundle.manifest.blobs:
            check_blob(ref, self._bundle.read(blob_name(ref)))

    def open_keys(self, passphrase: str | None) -> None:
        """Open the keys of the backup, to be put in place with its settings; without a passphrase they are not.

        Raises Refused: ``KEY_LOCKED``, ``INVALID_FORMAT``.
        """
        if passphrase is None:
            return
        self._keys = open_sealed_files(self._files[KEYS], passphrase)
        if wrong := [name for name in self._keys if KEY_NAME.fullmatch(name) is None]:
            raise Refused("INVALID_FORMAT", f"{wrong[0][:80]!r} is not the name of a key file")

    @property
    def has_sealed_keys(self) -> bool:
        """Whether the backup holds keys that were not opened."""
        return KEYS in self._files and not self._keys

    def build(self, log: Log, progress: Progress, *, root: str | None = None) -> None:
        """Replay the entries into an empty log, and compare its tree with the checkpoint.

        ``root`` is the fingerprint of the root key, if it is known. Raises Corrupted: ``VERIFICATION_FAILED`` or
        ``CORRUPTED``: nothing of this backup must be used. Refused: ``WRONG_LEDGER`` when its root key has another
        fingerprint.
        """
        manifest, follower, pending, size = self._bundle.manifest, Follower(log), list[bytes](), 0
        for number, width in tiles_of(manifest.size, 0):
            pending += self._entries(number, width)
            taken = follower.append(size, pending)
            size, pending = size + taken, pending[taken:]
            progress(size, manifest.size)
        if pending:
            raise Corrupted("VERIFICATION_FAILED", f"the signed batch at the end, entry {size} on, is not whole")
        self._check_tree(log, root)

    def accepted_ms(self) -> int:
        """Return the time of the last entry, as the backup says and nobody has checked yet."""
        tiles = list(tiles_of(self._bundle.manifest.size, 0))[-1:]
        entries = [data for number, width in tiles for data in self._entries(number, width)]
        return decode_entry(entries[-1]).accepted_ms if entries else 0

    def _entries(self, number: int, width: int) -> list[bytes]:
        name = tile_name("entries", number, width)
        content, entries, at = self._bundle.read(name), list[bytes](), 0
        while len(entries) < width:
            end = at + _LENGTH + int.from_bytes(content[at : at + _LENGTH], "big")
            entries.append(content[at + _LENGTH : end])
            at = end
        if at != len(content):
            index = number * TILE_WIDTH
            raise Corrupted("CORRUPTED", f"{name} does not hold {width} entries", member=name, index=index)
        return entries

    def _check_tree(self, log: Log, root: str | None) -> None:
        manifest = self._bundle.manifest
        with log.snapshot() as snapshot:
            if snapshot.head is None:
                raise Corrupted("VERIFICATION_FAILED", "the backup holds no entry")
            created = read_event(0, snapshot.entry(0)).data
            assert isinstance(created, LedgerCreated)  # noqa: S101 - entry 0 was replayed, and nothing else is entry 0
            verifiers = verifiers_of(created.origin, snapshot.checkpoint_keys())
            checkpoint = verify_checkpoint(self._bundle.read("checkpoint").decode("utf-8", "replace"), *verifiers)
            ours = (snapshot.size, snapshot.root())
            named = (manifest.ledger, manifest.origin, manifest.size, manifest.root)
            given = (snapshot.head.ledger, created.origin, ours[0], ours[1].hex())
        if (checkpoint.size, checkpoint.root) != ours or named != given:
            raise Corrupted("VERIFICATION_FAILED", "the entries do not give the tree that the checkpoint signs")
        self.fingerprint = trust.fingerprint(bytes.fromhex(created.root))
        if root not in (None, self.fingerprint):
            message = "the backup is of a ledger whose root key has another fingerprint than --root"
            raise Refused("WRONG_LEDGER", message, ledger=manifest.ledger)

    def put_blobs(self, blobs: Blobs) -> int:
        """Store the blobs of the backup; return how many they are."""
        for ref in self._bundle.manifest.blobs:
            put_restored(blobs, self._bundle.read(blob_name(ref)))
        return len(self._bundle.manifest.blobs)

    def put_files(self) -> tuple[list[str], list[str]]:
        """Write settings and keys that the home does not have; return the names written, and those it had otherwise."""
        written, kept = [], []
        wanted = {name: self._files[name] for name in SETTINGS if name in self._files}
        paths = {self.home.path / name: content for name, content in wanted.items()}
        paths |= {self.home.keys / name: content for name, content in sorted(self._keys.items())}
        for path, content in paths.items():
            name = str(path.relative_to(self.home.path))
            if path.is_symlink() or path.exists():
                if path.is_symlink() or not path.is_file() or path.read_bytes() != content:
                    kept.append(name)
                continue
            write_private(path, content)
            written.append(name)
        return written, kept


def restore(
    path: Path,
    home: Home,
    *,
    replace: bool = False,
    root: str | None = None,
    passphrase: Callable[[], str | None] = lambda: None,
    progress: Progress | None = None,
) -> Restored:
    """Make the ledger in ``home`` of a backup, or of any bundle of a whole log, after all of it was verified.

    ``replace`` lets it take the place of a log of the same ledger, which is kept under ``replaced/``. Raises Refused:
    ``NOT_FOUND``, ``INVALID_FORMAT``, ``TOO_LARGE``: no backup; ``LEDGER_EXISTS`` without ``replace``;
    ``WRONG_LEDGER``; ``KEY_LOCKED``. Corrupted: the backup is cut short, altered, or not what its checkpoint signs.
    Unavailable: ``STORE_IN_USE`` while another process has the log open; ``STORE_UNAVAILABLE``, ``STORE_FULL``.
    """
    with Bundle(path) as bundle:
        work = Restore(bundle, home)
        present = _present(home, bundle.manifest.size)
        if present is not None:
            _check_may_replace(present, bundle.manifest, work.accepted_ms(), replace=replace)
        work.check_files()
        work.open_keys(passphrase() if KEYS in bundle.manifest.files else None)
        is_new = not home.path.exists()
        with as_unavailable(home.path):
            home.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            for leftover in home.path.glob(f"{TEMPORARY}*"):
                if leftover.is_dir() and not leftover.is_symlink():
                    shutil.rmtree(leftover, ignore_errors=True)
            folder = Path(tempfile.mkdtemp(prefix=TEMPORARY, dir=home.path))
            try:
                restored = _put_in_place(work, folder, present, root, progress or (lambda _done, _total: None))
                if is_new:  # else whose the folder was stays as it was decided
                    trust.adopt(home.path, work.fingerprint, now())
            finally:
                # Also after an error: then a home that was made for this goes away whole.
                has_failed = not (home.path / "log" / FILE).exists()
                shutil.rmtree(home.path if is_new and has_failed else folder, ignore_errors=True)
        return restored


class _Present(NamedTuple):
    """The log that a home has: its ledger, and its size and root unless it cannot be read."""

    ledger: str | None
    size: int = 0
    root: str = ""
    root_at_backup: str | None = None


def _present(home: Home, size_of_backup: int = 0) -> _Present | None:
    """Return what log there is, None when there is none; of a damaged one its keys say whose it is."""
    if not (home.path / "log" / FILE).exists():
        return None
    try:
        with Log(home.path, map_size=read_config(home.path).map_size_bytes) as log:
            _require_alone(log)
            with log.snapshot() as snapshot:
                if snapshot.head is None:
                    return None
                shared = snapshot.frontier(size_of_backup).root().hex() if size_of_backup <= snapshot.size else None
                return _Present(snapshot.head.ledger, snapshot.size, snapshot.root().hex(), shared)
    except Corrupted:
        named = {read_key_file(path).ledger for path in key_files(home) if path.suffix == ".key"}
        return _Present(named.pop() if len(named) == 1 else None)


def _require_alone(log: Log) -> None:
    """Refuse while another process has this log open: it would go on writing to a file that nobody finds again."""
    readers = str(log.tables.env.readers())
    pids = {int(line.split()[0]) for line in readers.splitlines() if line.split()[:1] and line.split()[0].isdigit()}
    if others := sorted(pids - {os.getpid()}):
        message = f"processes {', '.join(map(str, others))} have this ledger open: stop them first"
        raise Unavailable("STORE_IN_USE", message, pids=others)


def _check_may_replace(present: _Present, manifest: Manifest, accepted_ms: int, *, replace: bool) -> None:
    if present.ledger != manifest.ledger:
        of = present.ledger or "an unknown ledger"
        message = (
            f"the log here is of {of}, the backup of {manifest.ledger}: restore it into another folder with --home"
        )
        raise Refused("WRONG_LEDGER", message, ledger=manifest.ledger, present=present.ledger)
    if replace:
        return
    when = datetime.fromtimestamp(accepted_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    head = f"{manifest.size} entries, the last of {when}, tree head {manifest.root}"
    here = f"{present.size} entries, tree head {present.root}" if present.size else "a damaged log"
    message = (
        f"there is a ledger here already: {here}. `deed restore --replace` goes back to {head}; "
        f"that is without {_lost(present, manifest)}"
    )
    raise Refused("LEDGER_EXISTS", message, size=manifest.size, tree_head=manifest.root, present_size=present.size)


def _lost(present: _Present, manifest: Manifest) -> str:
    if present.root_at_backup == manifest.root:
        return f"the last {present.size - manifest.size} entries that are here"
    if present.size:
        return "the entries here that are not of its past"
    return "whatever can still be read here"


def _put_in_place(
    work: Restore, folder: Path, present: _Present | None, root: str | None, progress: Progress
) -> Restored:
    home, config = work.home, read_config(work.home.path)
    (folder / "log").mkdir()
    with Log(folder, map_size=config.map_size_bytes, create=True) as log:
        work.build(log, progress, root=root)
        with log.snapshot() as snapshot:
            assert snapshot.head is not None  # noqa: S101 - it was built
            head, tree = snapshot.head, snapshot.root().hex()
    blobs = Blobs(home.path, map_size=config.blobs_map_size_bytes)
    try:
        count = work.put_blobs(blobs)
    finally:
        blobs.close()
    written, kept = work.put_files()
    (home.path / ".gitignore").write_text("*\n", "ascii")
    replaced = _exchange(home, folder / "log" / FILE, present)
    size = 0 if present is None else present.size
    return Restored(
        head.ledger, head.size, tree, head.accepted_ms, count, written, kept, size, replaced, work.has_sealed_keys
    )


def _exchange(home: Home, file: Path, present: _Present | None) -> str | None:
    """Put the file of the new log in place; return where that of the old one lies."""
    folder, aside = home.path / "log", None
    folder.mkdir(mode=0o700, exist_ok=True)
    if present is not None:
        name = f"{present.size}-{present.root[:16]}" if present.size else f"damaged-{time.time_ns()}"
        aside = home.path / REPLACED / name / "log"
        aside.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not (aside / FILE).exists():
            # A second name of the same file: if we crash before the next step, the old log stands where it was.
            os.link(folder / FILE, aside / FILE)
        for views in home.path.glob(f"{VIEWS_FILE}*"):
            views.unlink()
    # LMDB's lock file knows the transactions of the old file; nobody has it open, and the next one to come makes it.
    (folder / "lock.mdb").unlink(missing_ok=True)
    file.replace(folder / FILE)
    for changed in (folder, home.path):
        sync_folder(changed)
    return None if aside is None else str(aside.parent)
