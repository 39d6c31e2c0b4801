"""Every blob in the newest tree of every notes ref is one note; an unreadable blob is reported, and nothing else is."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest
from note_repository import ROOT, blob, empty, git, many, repository, tree_ref

from deedbook.consumers.importers.empirica.notes import DEFAULT_REFS, Note, Repository, checked_root
from deedbook.consumers.importers.records import Unmapped
from deedbook.consumers.sdk.git import Git, Objects
from deedbook.ledger.errors import Refused, Unavailable

if TYPE_CHECKING:
    from pathlib import Path

OBJECT = "1" * 40
OTHER = "2" * 40


def read(folder: Path, *roots: str) -> tuple[list[Note], list[Unmapped]]:
    """Return the notes of a repository, and the unreadable blobs."""
    found = Repository(folder)
    refs, unread = found.refs(roots or (DEFAULT_REFS,))
    notes: list[Note] = []
    for one in found.notes(refs):
        (notes if isinstance(one, Note) else unread).append(one)  # type: ignore[arg-type]  # the list of its type
    return notes, unread


def test_notes_are_read_byte_for_byte_in_the_order_of_their_refs(tmp_path: Path) -> None:
    contents = {"findings/b": b"\x00\xff\r\n", "findings/a": b"", "session/s/ACT/1": b"x" * 300_000}
    notes, unread = read(repository(tmp_path / "r", contents.items()))
    assert [(note.tail, note.content) for note in notes] == sorted(contents.items())
    assert unread == []
    assert notes[0].source == "refs/notes/empirica/findings/a"


def test_many_notes_are_read_by_one_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = repository(tmp_path / "r", many(300))
    started: list[tuple[str, ...]] = []
    start = Git.start
    monkeypatch.setattr(Git, "start", lambda self, *words, **more: started.append(words) or start(self, *words, **more))
    notes, unread = read(folder)
    assert (len(notes), unread) == (300, [])
    assert [words[0] for words in started] == ["rev-parse", "for-each-ref", "cat-file"]


def test_several_notes_of_one_ref_and_those_in_folders_are_all_read(tmp_path: Path) -> None:
    folder = empty(tmp_path / "r")
    one, two, three = (blob(folder, text) for text in (b"one", b"two", b"three"))
    below = git(folder, "mktree", data=f"100644 blob {three}\t{'3' * 38}\n".encode())
    tree_ref(
        folder,
        f"{ROOT}findings/f",
        f"100644 blob {one}\t{OBJECT}",
        f"100644 blob {two}\t{OTHER}",
        f"040000 tree {below}\t33",
    )
    notes, unread = read(folder)
    assert [(note.noted, note.content) for note in notes] == [(OBJECT, b"one"), (OTHER, b"two"), ("3" * 40, b"three")]
    assert unread == []


@pytest.mark.parametrize(
    "root", ["refs/notes", "refs/notes/empirica", "refs/notes/empirica/findings", f"{ROOT}findings/f"]
)
def test_a_note_has_the_same_place_and_kind_whatever_root_was_asked_for(tmp_path: Path, root: str) -> None:
    folder = repository(tmp_path / "r", [("findings/f", b"x")])
    git(folder, "update-ref", "refs/remotes/o/notes/empirica/findings/f", f"{ROOT}findings/f")
    for asked in (root, root.replace("refs/notes", "refs/remotes/o/notes")):
        (note,), _ = read(folder, asked)
        assert (note.source, note.tail) == ("refs/notes/empirica/findings/f", "findings/f")


def test_only_the_newest_state_of_a_ref_counts(tmp_path: Path) -> None:
    folder = repository(tmp_path / "r", [("findings/f", b"old"), ("findings/f", b"new")])
    assert [note.content for note in read(folder)[0]] == [b"new"]


def test_what_is_no_note_is_told_and_the_rest_is_read(tmp_path: Path) -> None:
    folder = repository(tmp_path / "r", [("findings/good", b"good")])
    some = blob(folder, b"target")
    tree_ref(
        folder,
        f"{ROOT}findings/odd",
        f"120000 blob {some}\t{OBJECT}",
        f"160000 commit {OTHER}\t{OTHER}",
        f"100644 blob {'4' * 40}\t{'5' * 40}",
        f"100644 blob {some}\tREADME",
    )
    git(folder, "update-ref", f"{ROOT}blob", some)
    (folder / ".git" / ROOT / "garbage").write_text("garbage\n")
    (folder / ".git" / ROOT / "missing").write_text("6" * 40 + "\n")
    notes, unread = read(folder)
    assert [(note.tail, bool(note.problem)) for note in notes] == [
        ("blob", True),
        ("findings/good", False),
        ("findings/odd", True),
    ]
    said = " ".join(one.reason for one in unread)
    for words in ("a symbolic link", "a submodule", f"blob {'4' * 40}", "the ref is damaged", f"object {'6' * 40}"):
        assert words in said
    assert len(unread) == 5


def test_a_damaged_object_is_told_and_the_next_note_is_read(tmp_path: Path) -> None:
    folder = empty(tmp_path / "r")
    for name, text in (("a", b"bad one"), ("b", b"good one")):
        tree_ref(folder, f"{ROOT}findings/{name}", f"100644 blob {blob(folder, text)}\t{OBJECT}")
    bad = blob(folder, b"bad one")
    file = folder / ".git" / "objects" / bad[:2] / bad[2:]
    file.chmod(0o600)
    file.write_bytes(b"this is no zlib")
    notes, unread = read(folder)
    assert [note.content for note in notes] == [b"good one"]
    assert [(one.source, "missing or damaged" in one.reason) for one in unread] == [(f"{ROOT}findings/a", True)]


def test_a_name_that_no_text_can_hold_is_read_with_a_mark(tmp_path: Path) -> None:
    folder = empty(tmp_path / "r")
    some = blob(folder, b"x")
    tree_ref(folder, f"{ROOT}findings/z", f"100644 blob {some}\t{OBJECT}")
    where = folder / ".git" / ROOT / "findings"
    (where / "z").rename(where / b"\xff'; rm -rf $(x)".decode("utf-8", "surrogateescape"))
    notes, unread = read(folder)
    assert [note.tail for note in notes] + [one.source for one in unread]  # git may refuse such a name, and reports it


def test_a_fetched_copy_has_the_name_of_the_original(tmp_path: Path) -> None:
    root = "refs/remotes/origin/notes/empirica/"
    folder = repository(tmp_path / "r", [("findings/f", b"x")], root)
    assert read(folder)[0] == []
    [note] = read(folder, root)[0]
    assert (note.source, note.tail) == ("refs/notes/empirica/findings/f", "findings/f")


def test_refs_of_another_name_keep_it(tmp_path: Path) -> None:
    folder = repository(tmp_path / "r", [("findings/f", b"x")], "refs/notes/mine/")
    [note] = read(folder, "refs/notes/mine")[0]
    assert (note.source, note.tail) == ("refs/notes/mine/findings/f", "findings/f")


def test_a_repository_without_commits_or_notes_has_none(tmp_path: Path) -> None:
    assert read(empty(tmp_path / "r")) == ([], [])


def test_what_is_no_repository_is_refused(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(Refused) as refused:
            Repository(folder)
        assert refused.value.code == "NOT_FOUND"


@pytest.mark.parametrize(
    "root", ["", "notes/empirica", "--all", "refs/notes/*", "refs/notes/a b", "refs/../x", "refs//x"]
)
def test_what_is_no_beginning_of_refs_is_refused(root: str) -> None:
    with pytest.raises(Refused) as refused:
        checked_root(root)
    assert refused.value.code == "INVALID_FIELD"


def test_a_note_above_the_limit_has_a_digest_and_no_content(tmp_path: Path) -> None:
    folder = empty(tmp_path / "r")
    some = blob(folder, b"x" * 1000)
    with Objects(Git(folder)) as objects:
        found = objects.get(some, 999)
        assert found is not None
        assert (found.size, found.content) == (1000, None)
        assert objects.get(some, 1000) == found._replace(content=b"x" * 1000)


def test_a_git_that_ends_again_and_again_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deedbook.consumers.sdk.git.starts_max", 3)
    monkeypatch.setattr(Git, "start", lambda *_words, **_more: _ended())
    with Objects(Git(tmp_path)) as objects:
        assert [objects.get(OBJECT, 1) for _ in range(3)] == [None] * 3
        with pytest.raises(Unavailable) as unavailable:
            objects.get(OBJECT, 1)
    assert "git fsck" in unavailable.value.message


def _ended() -> subprocess.Popen[bytes]:
    process = subprocess.Popen(["true"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
    process.wait()
    return process
