"""LMDB's data file, looked at before anything maps it.

LMDB maps its file and believes what the pages say: a file that is shorter than its pages say ends the process with
SIGBUS, without a word. So the two meta pages are read first, as plain bytes. A file may honestly end before the last
page that they count: pages that were used and freed within one transaction need not be written. Therefore only a
missing page that is not on the list of free ones is damage.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Final

import msgspec

from deedbook.ledger.errors import Corrupted
from deedbook.ledger.system.files import open_regular

RESTORE: Final = "put a backup back with `deed restore` (`deed fsck` says what is left of this one)"

_MAGIC: Final = 0xBEEFC0DE
_VERSION: Final = 1
# lmdb.h of LMDB 0.9 with 64-bit words: a page's header, in a meta page followed by MDB_meta.
_PAGE: Final = struct.Struct("<QHHHH")  # number, pad, flags, lower, upper (or the number of overflow pages)
_META: Final = struct.Struct("<II16xI36xQ48xQQ")
_NODE: Final = struct.Struct("<HHHH")  # two halves of a size or page number, flags, size of the key
_IS_BRANCH, _IS_LEAF, _IS_META, _IS_BIG = 0x01, 0x02, 0x08, 0x01
_page_sizes: Final = frozenset(1 << power for power in range(8, 17))
_reads_max: Final = 20
_no_page: Final = 2**64 - 1


class Meta(msgspec.Struct, frozen=True):
    """What a meta page says: LMDB writes the two in turn, and the one with the later transaction counts."""

    magic: int
    version: int
    page_bytes: int
    free_root: int
    last_page: int
    transaction: int


def check_data_file(path: Path, *, may_be_new: bool = False) -> None:
    """Check that a data file holds every page that its meta pages say it does, before anything maps it.

    ``may_be_new``: there may be none yet, or an empty one, as a crash leaves it while a store is made. Raises
    Corrupted: it is cut short, damaged, of another kind of machine, or no store at all. Refused: it is no regular file.
    OSError: it cannot be read.
    """
    try:
        with open_regular(path, follow=True) as descriptor:
            if may_be_new and os.fstat(descriptor).st_size == 0:
                return
            meta, size = _read_meta(descriptor, path)
            for _ in range(_reads_max):
                missing = range(size // meta.page_bytes, meta.last_page + 1)
                if not missing:
                    return
                free = _free_pages(descriptor, meta, size)
                is_whole = all(page in free for page in missing)
                before, (meta, size) = meta, _read_meta(descriptor, path)
                if before.transaction == meta.transaction:  # else somebody wrote, and the list was another's
                    if is_whole:
                        return
                    break
    except FileNotFoundError:
        if may_be_new:
            return
        raise
    wanted = (meta.last_page + 1) * meta.page_bytes
    message = f"{path} is cut short: it has {size} bytes, and its pages say {wanted}: {RESTORE}"
    raise Corrupted("CORRUPTED", message, path=str(path), size=size, wanted=wanted)


def _read_meta(descriptor: int, path: Path) -> tuple[Meta, int]:
    """Return the meta page that counts, and the file's size.

    The size is asked after: a writer makes the file longer before its meta page says so, and never shorter.
    """
    first = _meta_at(descriptor, 0, path)
    if first.page_bytes not in _page_sizes:
        raise _no_store(path, f"a page of {first.page_bytes} bytes")
    second = _meta_at(descriptor, first.page_bytes, path)
    return max(first, second, key=lambda meta: meta.transaction), os.fstat(descriptor).st_size


def _meta_at(descriptor: int, offset: int, path: Path) -> Meta:
    page = os.pread(descriptor, _PAGE.size + _META.size, offset)
    if len(page) < _PAGE.size + _META.size:
        raise _no_store(path, "not two whole meta pages")
    meta = Meta(*_META.unpack_from(page, _PAGE.size))
    if meta.magic != _MAGIC:
        # With words of 32 bits it stands elsewhere, with the other order of bytes it reads backwards.
        is_foreign = any(_MAGIC.to_bytes(4, order) in page[:24] for order in ("big", "little"))
        raise _no_store(path, "the pages of another kind of machine" if is_foreign else "no meta page of a store")
    if meta.version != _VERSION:
        raise _no_store(path, f"pages of version {meta.version}, which this software does not read")
    return meta


def _no_store(path: Path, what: str) -> Corrupted:
    size = path.stat().st_size
    message = f"{path} cannot be a store: it has {size} bytes and {what}: {RESTORE}"
    return Corrupted("CORRUPTED", message, path=str(path), size=size)


def _free_pages(descriptor: int, meta: Meta, file_bytes: int) -> set[int]:
    """Return the numbers of the pages that nothing uses, as far as their list can be read."""
    free: set[int] = set()
    waiting = [] if meta.free_root == _no_page else [meta.free_root]
    seen: set[int] = set()
    while waiting:
        number = waiting.pop()
        if number in seen or number >= file_bytes // meta.page_bytes:
            continue
        seen.add(number)
        page = os.pread(descriptor, meta.page_bytes, number * meta.page_bytes)
        _, _, flags, lower, _ = _PAGE.unpack_from(page)
        places = struct.unpack_from(f"<{max(0, min(lower, len(page)) - _PAGE.size) // 2}H", page, _PAGE.size)
        for place in places:
            low, high, node_flags, key_size = _NODE.unpack_from(page, min(place, len(page) - _NODE.size))
            if flags & _IS_BRANCH:
                waiting.append(low | high << 16 | node_flags << 32)
            elif flags & _IS_LEAF:
                size, start = low | high << 16, place + _NODE.size + key_size
                listed = page[start : start + size]
                if node_flags & _IS_BIG:
                    (big,) = struct.unpack_from("<Q", listed.ljust(8, b"\0"))
                    offset = min(big * meta.page_bytes, file_bytes) + _PAGE.size
                    listed = os.pread(descriptor, min(size, file_bytes), offset)
                free.update(struct.unpack(f"<{len(listed) // 8}Q", listed[: len(listed) // 8 * 8])[1:])
    return free
