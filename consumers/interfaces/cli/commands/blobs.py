"""`deed blob put`, `get`, `list`, `stat`, `prune`: content that is too large for an event, stored by its hash."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import click
import msgspec

from deedbook.consumers.interfaces.cli.app import App, Command, Group, unavailable
from deedbook.consumers.interfaces.cli.arguments import seal_option
from deedbook.consumers.interfaces.cli.named_file import check_free, file_exists, force_option
from deedbook.consumers.interfaces.cli.output import print_fields, print_table, show_page, when
from deedbook.consumers.interfaces.cli.progress import progress
from deedbook.ledger.errors import Corrupted, Refused
from deedbook.ledger.limits import blob_chunk_bytes, blob_size_max_bytes
from deedbook.ledger.log.blobs import BlobView, check_blob, page_blobs_max
from deedbook.ledger.log.expiry import drop_unreferenced
from deedbook.ledger.system.files import as_unavailable, create_exclusively, open_regular, read_chunks, replacing

if TYPE_CHECKING:
    from deedbook.ledger.client.client import Client, Progress

_hash_chars: Final = 12  # in the name of a partial file


@click.group(cls=Group)
def blob() -> None:
    """Store content that is too large for an event. Events reference it by its hash."""


@blob.command(cls=Command, params=[seal_option("the blob")])
@click.argument("file", metavar="FILE|-")
def put(app: App, file: str, seal: str | None) -> None:
    """Store FILE, or standard input, and print its reference.

    A blob has at most 1 GiB. To continue an interrupted upload, call this again. A blob that no event references
    within 24 hours is deleted. Text that holds a secret is refused, but may be sealed. A sealed upload that was
    interrupted begins again.
    """
    store = app.author().put_blob if seal is None else app.sealer(seal).blob
    with _open_content(file) as content, progress("storing", is_shown=not app.as_json) as step:
        content.seek(0)
        ref = store(content, step)
        size = content.seek(0, os.SEEK_END)
    app.show("blob", {"ref": ref, "size": size} | ({} if seal is None else {"subject": seal}), ref)


@blob.command(cls=Command, unseals=True)
@click.argument("ref")
@click.option("-o", "--out", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Write to FILE.")
@force_option
def get(app: App, ref: str, out: Path | None, *, force: bool) -> None:
    """Check a blob's hash, then print it or write it to FILE.

    With -o it is fetched into FILE.HASH.part first. An interrupted download continues there. With --unseal it begins
    again, and the part is a hidden file.
    """
    client = app.client()
    if app.unseals:
        _unseal(app, ref, out, force=force)
        return
    if out is None:
        if app.as_json:
            raise Refused("USAGE", "a blob cannot be printed as JSON: add -o FILE")
        with TemporaryFile() as content:
            content.writelines(client.blob_chunks(ref))
            content.seek(0)
            shutil.copyfileobj(content, sys.stdout.buffer)
        return
    check_free(out, force=force)
    with progress("fetching", is_shown=not app.as_json) as step:
        size = fetch(client, ref, out, step, force=force)
    app.show("blob", {"ref": ref, "size": size, "file": str(out)}, f"{size} bytes in {out}")


@blob.command("list", cls=Command)
@click.option("--author", metavar="NAME", help="Only blobs that this agent stored.")
@click.option("--unreferenced", is_flag=True, help="Only blobs that no event references, and unfinished uploads.")
@click.option("--after", metavar="REF", help="Continue after an earlier page.")
@click.option("--limit", type=click.IntRange(1, page_blobs_max), default=50, show_default=True, help="Rows of a page.")
def list_(app: App, /, after: str | None, limit: int, **chosen: Any) -> None:
    """List blobs in the order of their refs."""
    page = app.client().blobs(after, limit=limit, **chosen)
    header = ("ref", "bytes", "stored by", "kept")
    rows = [
        (view.ref, view.size, ", ".join(who.author for who in view.stored), retention_text(view)) for view in page.blobs
    ]
    show_page(app, "blobs", msgspec.to_builtins(page), lambda: print_table(header, rows))


@blob.command(cls=Command)
@click.argument("ref")
def stat(app: App, ref: str) -> None:
    """Show by whom and when a blob was stored, how large it is, and which entry refers to it first."""
    view = app.client().stat_blob(ref)
    fields = {
        "ref": view.ref,
        "sha256": view.sha256,
        "bytes": view.size,
        "received": view.received if view.received < view.size else None,
        "chunks": view.chunks,
        "stored by": [f"{upload.author} at {when(upload.at_ms)}" for upload in view.stored]
        or "a backup that was restored",
        "kept": retention_text(view),
    }
    app.show("blob", msgspec.to_builtins(view), lambda: print_fields(fields))


@blob.command(cls=Command)
def prune(app: App) -> None:
    """Delete blobs that no event references, and unfinished uploads, if their upload began over 24 hours ago.

    `deed serve` does the same.
    """
    client = app.local_client()
    with progress("dropping", is_shown=not app.as_json) as step:
        dropped = drop_unreferenced(client.log, progress=step)
    app.show("dropped", msgspec.to_builtins(dropped), f"{dropped.blobs} blobs of {dropped.size} bytes dropped")


@contextmanager
def _open_content(file: str) -> Iterator[BinaryIO]:
    """Yield a file that can be read twice: standard input and pipes are copied first.

    Raises Refused: ``NOT_FOUND``, ``TOO_LARGE``.
    """
    try:
        with nullcontext(sys.stdin.buffer) if file == "-" else Path(file).open("rb") as source:
            if file != "-" and source.seekable():
                yield source
                return
            with TemporaryFile() as copy:
                for chunk in iter(partial(source.read, blob_chunk_bytes), b""):
                    copy.write(chunk)
                    if copy.tell() > blob_size_max_bytes:
                        raise Refused("TOO_LARGE", f"a blob has at most {blob_size_max_bytes} bytes")
                yield copy
    except OSError as error:
        raise Refused("NOT_FOUND", f"{file} cannot be read: {error.strerror}", path=file) from error


def _unseal(app: App, ref: str, out: Path | None, *, force: bool) -> None:
    """Print the content of a sealed blob, or write it to ``out``, which has it completely or not at all.

    Each piece that is printed is authentic. If the blob was cut, the command fails after the last one.
    """
    pieces = app.opener().content(ref)
    if out is None:
        if app.as_json:
            raise Refused("USAGE", "a blob cannot be printed as JSON: add -o FILE")
        sys.stdout.buffer.writelines(pieces)
        return
    check_free(out, force=force)
    with as_unavailable(out):
        try:
            with (replacing if force else create_exclusively)(out) as file:
                file.writelines(pieces)
                size = file.tell()
        except FileExistsError as error:  # another process created the file meanwhile
            raise file_exists(out) from error
    app.show("blob", {"ref": ref, "size": size, "file": str(out)}, f"{size} bytes in {out}")


def retention_text(view: BlobView) -> str:
    """Return why a blob stays, or until when."""
    if view.dropped_ms is not None:
        what = "unreferenced" if view.received == view.size else f"uploaded up to byte {view.received}"
        return f"{what}, dropped after {when(view.dropped_ms)}"
    return "restored" if view.referenced_by is None else f"entry {view.referenced_by} refers to it"


def fetch(client: Client, ref: str, out: Path, step: Progress, *, force: bool) -> int:
    """Write a blob to ``out`` through a partial file, and return its size.

    An interrupted call leaves the partial file. The name of the partial file has the beginning of the blob's hash, so
    no file of the user has that name.
    """
    part = out.with_name(f"{out.name}.{ref.rpartition(':')[2][:_hash_chars]}.part")
    try:
        # Never write through a link or into a pipe: somebody else may have put one at the path of the partial file.
        with (
            open_regular(part, flags=os.O_RDWR | os.O_CREAT) as descriptor,
            os.fdopen(descriptor, "r+b", closefd=False) as file,
        ):
            chunks_stored = os.fstat(file.fileno()).st_size // blob_chunk_bytes
            file.truncate(chunks_stored * blob_chunk_bytes)
            file.seek(chunks_stored * blob_chunk_bytes)
            size, number = chunks_stored * blob_chunk_bytes + 1, chunks_stored
            while file.tell() < size:
                try:
                    size, chunk = client.blob_chunk(ref, number)
                except Refused:
                    if not chunks_stored or number != chunks_stored:
                        raise
                    break  # nothing is left to fetch, or the partial file belongs to another blob; the hash decides
                file.write(chunk)
                number += 1
                step(min(file.tell(), size), size)
                if not chunk:
                    break
            file.flush()
            os.fsync(file.fileno())
            size = file.tell()
            check_blob(ref, read_chunks(file, blob_chunk_bytes))
        if force:
            part.replace(out)
        else:
            os.link(part, out)  # a rename would replace a file that another process created meanwhile
            part.unlink()
    except Corrupted as error:
        part.unlink(missing_ok=True)
        message = f"the fetched content is not {ref}: {part} was removed, fetch it again"
        raise Corrupted(error.code, message, ref=ref) from error
    except FileExistsError as error:
        raise file_exists(out) from error
    except OSError as error:
        raise unavailable(error, str(out)) from error
    return size
