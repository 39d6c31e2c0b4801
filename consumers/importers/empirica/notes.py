"""Reads the notes of a repository: every blob in the newest tree of every notes ref is one note.

A notes ref is a commit whose tree maps the id of a noted object to a blob; with many notes the ids are split into
folders ("fan-out"). One git process lists the refs, and one other (``Objects``) reads everything else: three thousand
refs in a second. Notes that cannot be read are reported as ``Unmapped``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from deedbook.consumers.importers.records import Unmapped
from deedbook.consumers.sdk.git import Git, Objects, failure
from deedbook.ledger.errors import Refused
from deedbook.ledger.limits import content_size_max_bytes

DEFAULT_REFS: Final = "refs/notes/empirica"
refs_output_max_bytes: Final = 256 * 1024**2
refs_time_max_s: Final = 300.0
tree_size_max_bytes: Final = 64 * 1024**2
tree_depth_max: Final = 24
source_max_chars: Final = 1_000

_OBJECT: Final = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_BROKEN: Final = re.compile(r"ignoring (?:broken ref|ref with broken name) (\S+)")
_FILES: Final = frozenset({"100644", "100755", "100664"})
_OTHERS: Final = {"120000": "a symbolic link", "160000": "a submodule"}


class Note(NamedTuple):
    """A note: its source, its ref below the notes' root, the noted object, and its bytes with their blob ref.

    ``content`` is None if it is larger than a blob may be; ``problem`` says why it cannot be read as a note.
    """

    source: str
    tail: str
    noted: str
    original: str
    content: bytes | None
    problem: str = ""


class Ref(NamedTuple):
    """A ref: the id it points to, its name as displayed, and its name below the requested root."""

    object_id: str
    source: str
    tail: str


class Repository:
    """The notes of one repository."""

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            raise Refused("NOT_FOUND", f"the folder {folder} does not exist", folder=str(folder))
        self._git = Git(folder)
        self._git.ask("rev-parse", "--git-dir")

    def refs(self, roots: Sequence[str]) -> tuple[list[Ref], list[Unmapped]]:
        """Return the refs at or below each of ``roots``, by name, and those that git skips as broken."""
        refs: dict[str, Ref] = {}
        unread: list[Unmapped] = []
        for prefix in roots:
            root = checked_root(prefix)
            answer = self._git.call(
                "for-each-ref",
                "--format=%(objectname) %(refname)",
                "--",
                root,
                time_max_s=refs_time_max_s,
                size_max=refs_output_max_bytes,
            )
            if answer.code:
                raise failure(answer, "git for-each-ref", self._git.folder)
            for line in answer.out.decode("utf-8", "replace").splitlines():
                object_id, _, name = line.partition(" ")
                refs.setdefault(name, Ref(object_id, *_source(root, name)))
            # Git's error text is shortened, so some of very many broken refs are not listed.
            broken = _BROKEN.findall(answer.error) or ([f"(git: {answer.error})"] if answer.error else [])
            unread += [Unmapped(name, "the ref is damaged, and git skips it") for name in broken]
        return [refs[name] for name in sorted(refs)], list(dict.fromkeys(unread))

    def notes(
        self, refs: Sequence[Ref], step: Callable[[int, int], None] = lambda _done, _total: None
    ) -> Iterator[Note | Unmapped]:
        """Yield the notes of refs, in their order; ``step(done, total)`` reports progress."""
        with Objects(self._git) as objects:
            for done, ref in enumerate(refs, 1):
                yield from _notes_of(objects, ref)
                step(done, len(refs))


def checked_root(prefix: str) -> str:
    """Return a prefix of ref names without a slash at its end. Raises Refused: ``INVALID_FIELD``."""
    root = prefix.rstrip("/")
    if not root.startswith("refs/") or re.search(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|//|@\{", root):
        raise Refused("INVALID_FIELD", f"--refs takes a prefix of ref names such as {DEFAULT_REFS}, not {prefix!r}")
    return root


def _source(root: str, name: str) -> tuple[str, str]:
    """Return the source of a note, as the ledger records it, and the part of it that tells the kind.

    The source is the tool's own ref, with any value of ``--refs``: a fetched copy, or a note found by another prefix,
    is no second note.
    """
    _, is_tools, tail = f"{name}/".partition("/empirica/")
    shown = DEFAULT_REFS if is_tools else root
    tail = (tail if is_tools else name.removeprefix(root)).strip("/")
    return (f"{shown}/{tail}" if tail else shown)[:source_max_chars], tail


def _notes_of(objects: Objects, ref: Ref) -> Iterator[Note | Unmapped]:
    tree = objects.get(f"{ref.object_id}^{{tree}}", tree_size_max_bytes)
    if tree is None:
        yield _no_tree(objects, ref)
    elif tree.content is None:
        yield Unmapped(ref.source, f"its tree has {tree.size} bytes; the limit is {tree_size_max_bytes}")
    else:
        yield from _walk(objects, ref, tree.content, "", 0)


def _no_tree(objects: Objects, ref: Ref) -> Note | Unmapped:
    object_ = objects.get(ref.object_id, content_size_max_bytes)
    if object_ is None:
        return Unmapped(ref.source, f"its object {ref.object_id} is missing or damaged: run `git fsck`")
    if object_.type != "blob":
        return Unmapped(ref.source, f"the tree of the {object_.type} {ref.object_id} is missing or damaged")
    return Note(
        ref.source, ref.tail, "", object_.ref, object_.content, "the ref points to a blob, not to a tree of notes"
    )


def _walk(objects: Objects, ref: Ref, tree: bytes, folder: str, depth: int) -> Iterator[Note | Unmapped]:
    for mode, name, object_id in _entries(tree, len(ref.object_id) // 2):
        path = f"{folder}{name}"
        if mode == "40000":
            below = None if depth >= tree_depth_max else objects.get(object_id, tree_size_max_bytes)
            if below is None or below.type != "tree" or below.content is None:
                yield Unmapped(ref.source, f"its folder {path!r} cannot be read")
            else:
                yield from _walk(objects, ref, below.content, f"{path}/", depth + 1)
        elif mode not in _FILES:
            yield Unmapped(ref.source, f"its entry {path!r} is {_OTHERS.get(mode, 'no file')}, not a note")
        else:
            yield _note(objects, ref, path, object_id)


def _note(objects: Objects, ref: Ref, path: str, object_id: str) -> Note | Unmapped:
    blob = objects.get(object_id, content_size_max_bytes)
    noted = path.replace("/", "")
    if blob is None or blob.type != "blob":
        return Unmapped(ref.source, f"the blob {object_id} of its note on {noted[:80]} is missing or damaged")
    problem = "" if _OBJECT.fullmatch(noted) else f"its path {path[:200]!r} is not the id of a noted object"
    return Note(ref.source, ref.tail, noted, blob.ref, blob.content, problem)


def _entries(tree: bytes, id_size: int) -> Iterator[tuple[str, str, str]]:
    """Yield mode, name and id of a tree's entries (git's own format: ``MODE SP NAME NUL ID``)."""
    at = 0
    while at < len(tree):
        space, end = tree.find(b" ", at), tree.find(b"\0", at)
        if space < 0 or end < space or end + id_size >= len(tree) + 1:
            return
        name = tree[space + 1 : end].decode("utf-8", "replace")
        yield tree[at:space].decode("ascii", "replace"), name, tree[end + 1 : end + 1 + id_size].hex()
        at = end + 1 + id_size
