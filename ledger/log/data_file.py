"""Checks LMDB's data file before anything maps it.

LMDB maps its file and trusts the pages. If the file is shorter than its meta pages say, the kernel ends the process
with SIGBUS, without a message. So this module first reads the two meta pages as plain bytes. An undamaged file may end
before the last page that they count, because LMDB need not write pages that one transaction used and freed. Therefore a
missing page is damage only if it is not on the list of free pages.

Rejected: opening the file in a child process that may die instead of reading the list of free pages here. To prove that
the file is complete, a child would have to touch every page in use, that is, read the whole log at every start.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Final

import msgspec

from deedbook.ledger.errors import Corrupted
from deedbook.ledger.system.files import open_regular

RESTORE: Final = "restore a backup with `deed restore` (`deed fsck` shows what is left of this one)"

_MAGIC: Final = 0xBEEFC0DE
_VERSION: Final = 1
# From lmdb.h of LMDB 0.9 with 64-bit words: a page's header. In a meta page, MDB_meta follows it.
_PAGE: Final = struct.Struct("<QHHHH")  # number, pad, flags, lower, upper (or the number of overflow pages)
_META: Final = struct.Struct("<II16xI36xQ48xQQ")
_NODE: Final = struct.Struct("<HHHH")  # two halves of a size or page number, flags, size of the key
_IS_BRANCH, _IS_LEAF, _IS_META, _IS_BIG = 0x01, 0x02, 0x08, 0x01
_page_sizes: Final = frozenset(1 << power for power in range(8, 17))
_reads_max: Final = 20
_no_page: Final = 2**64 - 1


class Meta(msgspec.Struct, frozen=True):
    """The fields of a meta page. LMDB writes the two pages in turn; the one with the later transaction is valid."""

    magic: int
    version: int
    page_bytes: int
    free_root: int
    last_page: int
    transaction: int


def check_data_file(path: Path, *, may_be_new: bool = False) -> None:
    """Check that a data file has every page in use that its meta pages count. Call this before anything maps it.

    With ``may_be_new`` the file may be missing or empty: a crash during the creation of a store leaves it so. Raises
    Corrupted: it is cut short, damaged, from another kind of machine, or not a store. Refused: it is not a regular
    file. OSError: it cannot be read.
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
                if before.transaction == meta.transaction:  # otherwise a writer committed, and the list may be outdated
                    if is_whole:
                        return
                    break
    except FileNotFoundError:
        if may_be_new:
            return
        raise
    wanted = (meta.last_page + 1) * meta.page_bytes
    message = f"{path} is cut short: it has {size} bytes and should have {wanted}: {RESTORE}"
    raise Corrupted("CORRUPTED", message, path=str(path), size=size, wanted=wanted)


def _read_meta(descriptor: int, path: Path) -> tuple[Meta, int]:
    """Return the valid meta page, and the file's size.

    It reads the size last: a writer extends the file before it writes its meta page, and never shortens it.
    """
    first = _meta_at(descriptor, 0, path)
    if first.page_bytes not in _page_sizes:
        raise _not_a_store(path, f"a page of {first.page_bytes} bytes")
    second = _meta_at(descriptor, first.page_bytes, path)
    return max(first, second, key=lambda meta: meta.transaction), os.fstat(descriptor).st_size


def _meta_at(descriptor: int, offset: int, path: Path) -> Meta:
    page = os.pread(descriptor, _PAGE.size + _META.size, offset)
    if len(page) < _PAGE.size + _META.size:
        raise _not_a_store(path, "no two whole meta pages")
    meta = Meta(*_META.unpack_from(page, _PAGE.size))
    if meta.magic != _MAGIC:
        # With words of 32 bits the magic number is at another offset; with the other byte order it is reversed.
        is_foreign = any(_MAGIC.to_bytes(4, order) in page[:24] for order in ("big", "little"))
        raise _not_a_store(path, "the pages of another kind of machine" if is_foreign else "no meta page of a store")
    if meta.version != _VERSION:
        raise _not_a_store(path, f"pages of version {meta.version}, which this software cannot read")
    return meta


def _not_a_store(path: Path, content: str) -> Corrupted:
    size = path.stat().st_size
    message = f"{path} is not a store: it has {size} bytes and {content}: {RESTORE}"
    return Corrupted("CORRUPTED", message, path=str(path), size=size)


def _free_pages(descriptor: int, meta: Meta, file_bytes: int) -> set[int]:
    """Return the numbers of the free pages, as far as their list can be read."""
    free: set[int] = set()
    pending = [] if meta.free_root == _no_page else [meta.free_root]
    visited: set[int] = set()  # a damaged list may contain a cycle
    while pending:
        number = pending.pop()
        if number in visited or number >= file_bytes // meta.page_bytes:
            continue
        visited.add(number)
        page = os.pread(descriptor, meta.page_bytes, number * meta.page_bytes)
        _, _, flags, lower, _ = _PAGE.unpack_from(page)
        node_offsets = struct.unpack_from(f"<{max(0, min(lower, len(page)) - _PAGE.size) // 2}H", page, _PAGE.size)
        for node_offset in node_offsets:
            low, high, node_flags, key_size = _NODE.unpack_from(page, min(node_offset, len(page) - _NODE.size))
            if flags & _IS_BRANCH:
                pending.append(low | high << 16 | node_flags << 32)
            elif flags & _IS_LEAF:
                size, start = low | high << 16, node_offset + _NODE.size + key_size
                listed = page[start : start + size]
                if node_flags & _IS_BIG:
                    (big,) = struct.unpack_from("<Q", listed.ljust(8, b"\0"))
                    offset = min(big * meta.page_bytes, file_bytes) + _PAGE.size
                    listed = os.pread(descriptor, min(size, file_bytes), offset)
                free.update(struct.unpack(f"<{len(listed) // 8}Q", listed[: len(listed) // 8 * 8])[1:])
    return free
