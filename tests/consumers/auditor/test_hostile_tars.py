"""Tars of a bundle's members by another tool or by an attacker: both verifiers refuse them unread."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
from typing import TYPE_CHECKING, Final

import pytest
from bundle_tars import members_of, packed
from forge import SESSION, Forge
from judges import alone, ours

from deedbook.ledger.bundle.archive import ending, header, padding
from deedbook.ledger.events.session import FindingLogged

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Members = list[tuple[str, bytes]]


def with_header(
    members: Members, change: Callable[[tarfile.TarInfo], None], *, form: int = tarfile.USTAR_FORMAT
) -> bytes:
    """Return a tar whose first member has another header."""
    (name, data), *rest = members
    first = tarfile.TarInfo(name)
    first.size = len(data)
    change(first)
    content = data + padding(len(data)) if first.size else b""
    return first.tobuf(form) + content + packed(rest)


def set_to(**fields: object) -> Callable[[Members], bytes]:
    """Return a function that sets these attributes of the first member."""
    return lambda members: with_header(members, lambda member: vars_of(member, fields))


def vars_of(member: tarfile.TarInfo, fields: dict[str, object]) -> None:
    """Set attributes."""
    for name, value in fields.items():
        setattr(member, name, value)


def sparse(members: Members) -> bytes:
    """Return a tar whose first member claims gigabytes, but has only 512 bytes (GNU sparse)."""
    block = bytearray(header(members[0][0], 512))
    block[156:157] = b"S"
    block[257:265] = b"ustar  \0"
    block[386:410] = b"00000000000\0" + b"00000001000\0"
    block[483:495] = b"77777777777\0"
    block[148:156] = b"        "
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block) + bytes(512) + packed(members[1:])


def pax(members: Members) -> bytes:
    """Return a tar in which an extra header gives the name of the next member."""
    named = tarfile.TarInfo(members[0][0])
    named.size = len(members[0][1])
    named.pax_headers = {"path": "evil"}
    return named.tobuf(tarfile.PAX_FORMAT) + members[0][1] + padding(named.size) + packed(members[1:])


def long_named(members: Members) -> bytes:
    """Return a tar with a name in a member of its own (GNU)."""
    return with_header(members, lambda member: vars_of(member, {"name": "x" * 300}), form=tarfile.GNU_FORMAT)


def written_by_tar(members: Members) -> bytes:
    """Return the tar that Python writes of the members by default."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, data in members:
            member = tarfile.TarInfo("./" + name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return out.getvalue()


FORMS: Final[dict[str, Callable[[Members], bytes]]] = {
    "a member twice": lambda members: packed([members[0], *members]),
    "a member twice, the second other": lambda members: packed([*members, (members[0][0], b"x")]),
    "a sparse member": sparse,
    "a header about the next": pax,
    "a name of its own": long_named,
    "a symbolic link": set_to(type=tarfile.SYMTYPE, linkname="/etc/passwd", size=0),
    "a hard link": set_to(type=tarfile.LNKTYPE, linkname="manifest.json", size=0),
    "a pipe": set_to(type=tarfile.FIFOTYPE, size=0),
    "a device": set_to(type=tarfile.CHRTYPE, size=0),
    "a folder": set_to(type=tarfile.DIRTYPE, size=0),
    "an owner": set_to(uname="root"),
    "a time": set_to(mtime=1),
    "a mode": set_to(mode=0o777),
    "a huge size": set_to(size=8 * 1024**3 - 1),
    "another order": lambda members: packed(members[::-1]),
    "bytes after its end": lambda members: packed(members) + bytes(512),
    "no end": lambda members: packed(members)[: -len(ending(len(packed(members))))],
    "another tar behind it": lambda members: packed(members) * 2,
    "a compression": lambda members: gzip.compress(packed(members)),
    "names as tar writes them": written_by_tar,
    "nothing": lambda _: ending(0),
    "a deep manifest": lambda members: packed(
        [(name, b"[" * 1_000_000 if name == "manifest.json" else data) for name, data in members]
    ),
    "a manifest of a huge log": lambda members: packed(
        [(name, data.replace(b'"size":9', b'"size":9000000000000000')) for name, data in members]
    ),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("stream", [None, SESSION])
def test_tar_of_another_form_is_refused_by_both(form: str, stream: str | None, tmp_path: Path) -> None:
    path = Forge().export(tmp_path / "odd.tar", stream)
    assert packed(members_of(path)) == path.read_bytes()
    path.write_bytes(FORMS[form](members_of(path)))
    assert (ours(path).word, alone(path).word) == ("INVALID", "INVALID"), (ours(path).text, alone(path).text)


@pytest.mark.parametrize("what", ["a link", "a pipe", "a folder's link", "a hidden file"])
def test_folder_that_holds_what_no_bundle_unpacks_to_is_refused(what: str, tmp_path: Path) -> None:
    path = Forge().export(tmp_path / "honest.tar")
    folder = tmp_path / "unpacked"
    for name, data in members_of(path):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    assert alone(folder).word == "VALID"
    match what:
        case "a link":
            (folder / "checkpoint").rename(tmp_path / "elsewhere")
            (folder / "checkpoint").symlink_to(tmp_path / "elsewhere")
        case "a pipe":
            (folder / "checkpoint").unlink()
            os.mkfifo(folder / "checkpoint")
        case "a folder's link":
            (folder / "keys").rename(tmp_path / "elsewhere")
            (folder / "keys").symlink_to(tmp_path / "elsewhere")
        case _:  # fields that tools leave behind
            (folder / "keys/.DS_Store").write_bytes(b"")
    assert alone(folder).word == "INVALID"


def test_pipe_in_place_of_a_bundle_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert (alone(tmp_path / "pipe").word, ours(tmp_path / "pipe").word) == ("INVALID", "INVALID")


def test_what_a_stranger_wrote_moves_no_character_of_the_verdict(tmp_path: Path) -> None:
    forge = Forge()
    finding = FindingLogged(finding="x")
    forge.edited("alice", SESSION, finding, '"finding":"x"', '"finding":"x","\u202e\u200bx\x9b2J":1')
    text = alone(forge.export(tmp_path / "odd.tar")).text
    assert "unknown field \\u202e\\u200bx\\x9b2J" in text
    assert text.replace("\n", "").isprintable()
