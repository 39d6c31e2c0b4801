"""Restore: makes a ledger's folder from a backup, or from any bundle of a whole log, after all of it was verified.

The entries are replayed by the rules into a new log, so the derived state is made here and not taken from the bundle.
The tree of the new log must be the one that the ledger's checkpoint key signed.

The log is built in a hidden folder of the home, and the last step moves its one file in place. An earlier log is kept
under ``replaced/``. Settings and keys that exist in the home are never overwritten.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from blake3 import blake3

from deedbook.ledger.admission.erasure import check_confirmed
from deedbook.ledger.admission.follower import LogFollower
from deedbook.ledger.admission.rewriter import finish_erasures
from deedbook.ledger.bundle.archive import Bundle
from deedbook.ledger.bundle.backup import KEY_NAME, KEYS, SETTINGS, key_files
from deedbook.ledger.bundle.blobs import BundleBlobs
from deedbook.ledger.bundle.layout import HomeFile, Manifest, blob_name, home_name, tiles_of
from deedbook.ledger.client.author import now
from deedbook.ledger.errors import Corrupted, Refused, Unavailable
from deedbook.ledger.events.authority import LedgerCreated
from deedbook.ledger.events.entries import read_event
from deedbook.ledger.format.envelope import decode_entry
from deedbook.ledger.format.identity import open_sealed_files, read_key_file, write_private
from deedbook.ledger.home import trust
from deedbook.ledger.home.config import read_config
from deedbook.ledger.home.home import Home, make_own_folder
from deedbook.ledger.home.location import REPLACED, VIEWS_FILE
from deedbook.ledger.lifecycle.redaction import erased_blobs
from deedbook.ledger.log.blobs import Blobs, check_blob
from deedbook.ledger.log.environment import FILE
from deedbook.ledger.log.expiry import sweep_files
from deedbook.ledger.log.log import Log
from deedbook.ledger.log.tiles import TILE_WIDTH
from deedbook.ledger.log.uploads import put_restored
from deedbook.ledger.proof.checkpoint import verifiers_of, verify_checkpoint
from deedbook.ledger.system.files import TEMPORARY, as_unavailable, sync_folder

Progress = Callable[[int, int], None]


class RestoreResult(NamedTuple):
    """The result of a restore: the end of the log (``tree_head`` in hex, ``accepted_ms`` in Unix ms), and the files.

    ``files`` were written; ``kept`` are files that the home had with other content. ``replaced`` is the folder of the
    earlier log, ``present_size`` its number of entries. ``has_sealed_keys``: the backup has keys that were not opened.
    ``missing_blobs`` are those that entries need and that the backup lacks.
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
    missing_blobs: list[str]


class Restore:
    """One restore of a bundle into the folder of a ledger."""

    def __init__(self, bundle: Bundle, home: Home) -> None:
        """Prepare to restore an open ``bundle`` into ``home``.

        Raises Refused: ``INVALID_FORMAT`` for a bundle of one stream.
        """
        if bundle.manifest.content != "log":
            message = (
                f"the bundle contains the stream {bundle.manifest.stream} alone: restore needs one of the whole log"
            )
            raise Refused("INVALID_FORMAT", message)
        self.fingerprint = ""  # the root key's; set by ``build``
        self._bundle = bundle
        self.home = home
        self._blobs = BundleBlobs(bundle)
        self._erased: set[str] = set()
        self._files: dict[HomeFile, bytes] = {}
        self._keys: dict[str, bytes] = {}

    def check_files(self) -> None:
        """Check the files under home/ and the blobs, which is fast, before anything is written.

        Raises Corrupted: ``CORRUPTED`` or ``VERIFICATION_FAILED``, with the member.
        """
        for name, digest in self._bundle.manifest.files.items():
            content = self._bundle.read(home_name(name))
            if blake3(content).hexdigest() != digest:
                raise Corrupted("CORRUPTED", f"{home_name(name)} does not match its hash in manifest.json", member=name)
            self._files[name] = content
        for ref in self._bundle.blobs:
            check_blob(ref, self._bundle.chunks(blob_name(ref)))

    def open_keys(self, passphrase: str | None) -> None:
        """Open the keys of the backup, so that ``put_files`` writes them. Without a passphrase they stay sealed.

        Raises Refused: ``KEY_LOCKED``, ``INVALID_FORMAT``.
        """
        if passphrase is None:
            return
        self._keys = open_sealed_files(self._files[KEYS], passphrase)
        if invalid := [name for name in self._keys if KEY_NAME.fullmatch(name) is None]:
            raise Refused("INVALID_FORMAT", f"the sealed keys contain {invalid[0][:80]!r}, which cannot be a key file")

    @property
    def has_sealed_keys(self) -> bool:
        """Whether the backup contains keys that were not opened."""
        return KEYS in self._files and not self._keys

    def build(self, log: Log, progress: Progress, *, root: str | None = None) -> None:
        """Replay the entries into an empty log, and compare its tree with the checkpoint.

        ``root`` is the expected fingerprint of the root key, if known. Raises Corrupted: ``VERIFICATION_FAILED`` or
        ``CORRUPTED``; then use nothing of this backup. Refused: ``WRONG_LEDGER`` when the root key has another
        fingerprint.
        """
        manifest, follower, pending, size = self._bundle.manifest, LogFollower(log), list[bytes](), 0
        for number, width in tiles_of(manifest.size, 0):
            entries = self._bundle.read_tile(number, width)
            for index, data in enumerate(entries, number * TILE_WIDTH):
                self._blobs.observe_bytes(index, data)
            pending += entries
            appended = follower.append(size, pending)
            size, pending = size + appended, pending[appended:]
            progress(size, manifest.size)
        if pending:
            raise Corrupted("VERIFICATION_FAILED", f"the signed batch at the end, from entry {size} on, is incomplete")
        self._check_tree(log, root)
        finish_erasures(log)

    def check_blobs(self, blobs: Blobs, *, accept_partial: bool) -> list[str]:
        """Return the blobs that entries need and that neither the backup nor the home has; call this after ``build``.

        Raises Corrupted: ``VERIFICATION_FAILED``: a needed blob is missing and not ``accept_partial``; no entry
        references a blob of the backup, or a redaction erased it.
        """
        for ref, why in self._blobs.wrong(self._erased).items():
            message = f"{why} {blob_name(ref)}, and the backup has it, so somebody added it: use another backup"
            raise Corrupted("VERIFICATION_FAILED", message, member=blob_name(ref))
        absent = self._blobs.missing(self._erased)
        missing = [ref for ref in absent if blobs.find(ref) is None]
        if missing and not accept_partial:
            first = f"{missing[0]} of entry {absent[missing[0]]}"
            message = (
                f"PARTIAL: {len(missing)} blobs that entries need are not in the backup, first {first}: use another "
                "backup, or restore without them with `deed restore --accept PARTIAL`"
            )
            raise Corrupted("VERIFICATION_FAILED", message, missing_blobs=missing)
        return missing

    def accepted_ms(self) -> int:
        """Return the unverified time of the last entry (Unix milliseconds); 0 without entries."""
        tiles = list(tiles_of(self._bundle.manifest.size, 0))[-1:]
        entries = [data for number, width in tiles for data in self._bundle.read_tile(number, width)]
        return decode_entry(entries[-1]).accepted_ms if entries else 0

    def _check_tree(self, log: Log, root: str | None) -> None:
        manifest = self._bundle.manifest
        with log.snapshot() as snapshot:
            if snapshot.head is None:
                raise Corrupted("VERIFICATION_FAILED", "the backup contains no entry")
            created = read_event(0, snapshot.entry(0)).data
            assert isinstance(created, LedgerCreated)  # noqa: S101 - the replay accepts nothing else as entry 0
            verifiers = verifiers_of(created.origin, snapshot.checkpoint_keys())
            checkpoint = verify_checkpoint(self._bundle.read("checkpoint").decode("utf-8", "replace"), *verifiers)
            size, tree = snapshot.size, snapshot.root()
            named = (manifest.ledger, manifest.origin, manifest.size, manifest.root)
            actual = (snapshot.head.ledger, created.origin, size, tree.hex())
            check_confirmed(snapshot)
            self._erased = erased_blobs(snapshot.redactions().values())
        if (checkpoint.size, checkpoint.root) != (size, tree) or named != actual:
            message = "the backup's entries do not match its checkpoint or its manifest: use another backup"
            raise Corrupted("VERIFICATION_FAILED", message)
        self.fingerprint = trust.fingerprint(bytes.fromhex(created.root))
        if root not in (None, self.fingerprint):
            message = (
                "the root key in the backup has another fingerprint than --root: this is a backup of another ledger"
            )
            raise Refused("WRONG_LEDGER", message, ledger=manifest.ledger)

    def put_blobs(self, blobs: Blobs) -> int:
        """Store the blobs of the backup; return their number."""
        for ref in self._bundle.blobs:
            put_restored(blobs, ref, self._bundle.chunks(blob_name(ref)))
        return len(self._bundle.blobs)

    def put_files(self) -> tuple[list[str], list[str]]:
        """Write missing settings and keys; return the written names, and the names that exist with other content."""
        written, kept = [], []
        settings = {name: self._files[name] for name in SETTINGS if name in self._files}
        paths = {self.home.path / name: content for name, content in settings.items()}
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
    accept_partial: bool = False,
    root: str | None = None,
    passphrase: Callable[[], str | None] = lambda: None,
    options: str = "",
    progress: Progress | None = None,
) -> RestoreResult:
    """Make the ledger in ``home`` from a backup, or from any bundle of a whole log, after all of it was verified.

    With ``replace``, an existing log of the same ledger is replaced, and kept under ``replaced/``. With
    ``accept_partial``, a backup that lacks blobs is restored without them. ``options`` are those of the caller that the
    command in a refusal repeats. Raises Refused:
    ``NOT_FOUND``, ``INVALID_FORMAT`` or ``TOO_LARGE`` when ``path`` is not a backup; ``LEDGER_EXISTS`` without
    ``replace``; ``WRONG_LEDGER``; ``KEY_LOCKED``. Corrupted: the backup is truncated, altered, or differs from its
    checkpoint. Unavailable: ``STORE_IN_USE`` while another process has the log open; ``STORE_UNAVAILABLE``,
    ``STORE_FULL``.
    """
    with Bundle(path) as bundle:
        work = Restore(bundle, home)
        present = _read_present(home, bundle.manifest.size)
        if present is not None:
            command = replacing_command(path, home.path, options)
            _check_may_replace(present, bundle.manifest, work.accepted_ms(), None if replace else command)
        work.check_files()
        work.open_keys(passphrase() if KEYS in bundle.manifest.files else None)
        is_new = not home.path.exists()
        if present is None:
            make_own_folder(home.path)
        with as_unavailable(home.path):
            for leftover in home.path.glob(f"{TEMPORARY}*"):
                if leftover.is_dir() and not leftover.is_symlink():
                    shutil.rmtree(leftover, ignore_errors=True)
            folder = Path(tempfile.mkdtemp(prefix=TEMPORARY, dir=home.path))
            try:
                report = progress or (lambda _done, _total: None)
                restored = _put_in_place(work, folder, present, root, report, accept_partial=accept_partial)
                if is_new:  # for an existing folder, the user has decided before whether to trust it
                    trust.adopt(home.path, work.fingerprint, now())
            finally:
                # After an error, a home that was made for this restore is removed completely.
                has_failed = not home.is_local()
                shutil.rmtree(home.path if is_new and has_failed else folder, ignore_errors=True)
        return restored


def replacing_command(path: Path, home: Path, options: str = "") -> str:
    """Return the command that restores a backup over the log of a folder.

    >>> replacing_command(Path("b.tar"), Path("a b"), "--passphrase-fd 3 3<FILE")
    "deed restore --replace b.tar --home 'a b' --passphrase-fd 3 3<FILE"
    """
    command = f"deed restore --replace {trust.quoted_path(path)} --home {trust.quoted_path(home)}"
    return f"{command} {options}".rstrip()


class _PresentLog(NamedTuple):
    """The log in a home: its ledger (None: unknown), its size and its root (0 and empty if it cannot be read).

    ``root_at_backup`` is its root at the size of the backup, None when it is shorter.
    """

    ledger: str | None
    size: int = 0
    root: str = ""
    root_at_backup: str | None = None


def _read_present(home: Home, size_of_backup: int = 0) -> _PresentLog | None:
    """Return the log in a home, None when there is none. The key files name the ledger of a damaged log."""
    if not home.is_local():
        return None
    try:
        with Log(home.path, map_size=read_config(home.path).map_size_bytes) as log:
            _require_alone(log)
            with log.snapshot() as snapshot:
                if snapshot.head is None:
                    return None
                shared = snapshot.frontier(size_of_backup).root().hex() if size_of_backup <= snapshot.size else None
                return _PresentLog(snapshot.head.ledger, snapshot.size, snapshot.root().hex(), shared)
    except Corrupted:
        named = {read_key_file(path).ledger for path in key_files(home) if path.suffix == ".key"}
        return _PresentLog(named.pop() if len(named) == 1 else None)


def _require_alone(log: Log) -> None:
    """Refuse while another process has this log open: it would continue to write to the replaced file."""
    readers = str(log.tables.env.readers())
    pids = {int(line.split()[0]) for line in readers.splitlines() if line.split()[:1] and line.split()[0].isdigit()}
    if others := sorted(pids - {os.getpid()}):
        message = f"processes {', '.join(map(str, others))} have this ledger open: stop them first"
        raise Unavailable("STORE_IN_USE", message, pids=others)


def _check_may_replace(present: _PresentLog, manifest: Manifest, accepted_ms: int, command: str | None) -> None:
    """Refuse a backup of another ledger; with ``command``, refuse any, and name this command, which replaces it."""
    if present.ledger != manifest.ledger:
        owner = present.ledger or "an unknown ledger"
        message = (
            f"this folder has a log of {owner}, the backup is of {manifest.ledger}: use another folder with --home"
        )
        raise Refused("WRONG_LEDGER", message, ledger=manifest.ledger, present=present.ledger)
    if command is None:
        return
    when = datetime.fromtimestamp(accepted_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    head = f"{manifest.size} entries, the last of {when}, tree head {manifest.root}"
    here = f"{present.size} entries, tree head {present.root}" if present.size else "a damaged log"
    message = (
        f"this folder has a ledger: {here}. Name a new folder with --home; "
        f"or `{command}` goes back to {head}{_describe_lost(present, manifest)}"
    )
    raise Refused("LEDGER_EXISTS", message, size=manifest.size, tree_head=manifest.root, present_size=present.size)


def _describe_lost(present: _PresentLog, manifest: Manifest) -> str:
    if present.root_at_backup == manifest.root:
        lost = present.size - manifest.size
        if not lost:
            return ", which this log already has: nothing is lost"
        return f", without the last {lost} entries of this log" if lost > 1 else ", without the last entry of this log"
    if present.size:
        return ", without the entries of this log that the backup lacks"
    return ", without what is still readable of this log"


def _put_in_place(
    work: Restore,
    folder: Path,
    present: _PresentLog | None,
    root: str | None,
    progress: Progress,
    *,
    accept_partial: bool,
) -> RestoreResult:
    home, config = work.home, read_config(work.home.path)
    (folder / "log").mkdir()
    log = Log(
        folder,
        map_size=config.map_size_bytes,
        blobs_size_max=config.blobs_size_max_bytes,
        blobs_home=home.path,
        create=True,
    )
    with log:
        work.build(log, progress, root=root)
        sweep_files(log)  # first, because entries may need blobs whose files are here and not in the backup
        missing = work.check_blobs(log.blobs, accept_partial=accept_partial)
        count = work.put_blobs(log.blobs)
        with log.snapshot() as snapshot:
            assert snapshot.head is not None  # noqa: S101 - ``build`` has checked it
            head, tree = snapshot.head, snapshot.root().hex()
    written, kept = work.put_files()
    replaced = _exchange(home, folder / "log" / FILE, present)
    size = 0 if present is None else present.size
    return RestoreResult(
        head.ledger,
        head.size,
        tree,
        head.accepted_ms,
        count,
        written,
        kept,
        size,
        replaced,
        work.has_sealed_keys,
        missing,
    )


def _exchange(home: Home, file: Path, present: _PresentLog | None) -> str | None:
    """Move the file of the new log in place; return the folder of the old log."""
    folder, old = home.path / "log", None
    folder.mkdir(mode=0o700, exist_ok=True)
    if present is not None:
        name = f"{present.size}-{present.root[:16]}" if present.size else f"damaged-{time.time_ns()}"
        old = home.path / REPLACED / name / "log"
        old.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not (old / FILE).exists():
            # A hard link: if the process dies before the replacement below, the old log is still in its place.
            os.link(folder / FILE, old / FILE)
        for views in home.path.glob(f"{VIEWS_FILE}*"):
            views.unlink()
    # LMDB's lock file lists transactions of the old file. No process has it open, and the next one makes it again.
    (folder / "lock.mdb").unlink(missing_ok=True)
    file.replace(folder / FILE)
    for changed in (folder, home.path):
        sync_folder(changed)
    return None if old is None else str(old.parent)
