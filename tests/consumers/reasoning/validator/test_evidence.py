"""References: the three forms, refused references, and every way in which evidence can cease to hold."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trees_for_tests import commit, write

from deedbook.consumers.reasoning.validator import evidence as evidence_module
from deedbook.consumers.reasoning.validator import reads as reads_module
from deedbook.consumers.reasoning.validator.evidence import (
    NO_LINE,
    Evidence,
    check_evidence,
    doubts,
    parse_evidence,
    stands,
)
from deedbook.consumers.reasoning.validator.reads import Reads, digest_of
from deedbook.consumers.reasoning.validator.trees import CommitTree, FolderTree, Tree, open_tree, parts_of
from deedbook.ledger.events.reasoning import EvidenceCheck

SOURCE = "one\n  limit = 14\nthree\n"


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def check(tree: Tree, reference: str, **known: EvidenceCheck | str) -> EvidenceCheck:
    return check_evidence(reference, Reads(tree), step=1, **known)  # type: ignore[arg-type]  # a test's shorthand


def status(folder: Path, reference: str) -> str:
    with FolderTree(folder) as tree:
        return check(tree, reference).status


# The forms


@pytest.mark.parametrize(
    ("reference", "read"),
    [
        ("api/auth.py:23", Evidence("api/auth.py", 23, "line")),
        ("api/auth.py:23:", Evidence("api/auth.py", 23, "line")),
        ("env.example:12:JWT_SECRET=changeme", Evidence("env.example", 12, "text", text="JWT_SECRET=changeme")),
        ("a.yaml:49:every_minutes: 5", Evidence("a.yaml", 49, "text", text="every_minutes: 5")),
        ("api/auth.py:23:sha256:abc123def456", Evidence("api/auth.py", 23, "hash", digest="abc123def456")),
        ("api/auth.py:23:sha256:" + "AB" * 32, Evidence("api/auth.py", 23, "hash", digest="ab" * 32)),
        ("文档/运行 手册.md:3:日志没有加密", Evidence("文档/运行 手册.md", 3, "text", text="日志没有加密")),
        ("my notes/a b.txt:7", Evidence("my notes/a b.txt", 7, "line")),
        ("a.py:5-9", Evidence("a.py", 5, "line", end=9)),
        ("a b.py:5-9:x = 1", Evidence("a b.py", 5, "text", text="x = 1", end=9)),
        ("HEAD~2:a.py:5", Evidence("HEAD~2:a.py", 5, "line")),
        (" https://a.org/b:5 ", Evidence("https://a.org/b:5", 0, "url")),
        ("reasoning/r1#3", Evidence("reasoning/r1#3", 0, "ref")),
        ("lock.txt:3:sha256:abc \\", Evidence("lock.txt", 3, "text", text="sha256:abc \\")),
    ],
)
def test_reference_is_read_in_its_form(reference: str, read: Evidence) -> None:
    assert parse_evidence(reference)[0] == read


@pytest.mark.parametrize(
    "reference",
    [
        "",
        "api/auth.py",
        ":12",
        "api/auth.py:0",
        "api/auth.py:012",
        "api/auth.py:-3",
        "api/auth.py:20-10",
        "api/auth.py:10-",
        "api/auth.py:1-10000",
        "https://",
        "ftp://example.org/x",
        "api/auth.py:1234567890",
        "api/auth.py:٣",
        "api/auth.py:3:sha256:abc123",
        "api/auth.py:3:sha256:",
        "api/auth.py:3:sha256:" + "a" * 65,
        "the tests passed",
        "a.py:3" + "x" * 20_000,
    ],
)
def test_what_has_none_of_the_forms_is_malformed(tmp_path: Path, reference: str) -> None:
    assert parse_evidence(reference) == []
    assert status(tmp_path, reference) == "malformed"


@pytest.mark.parametrize("path", ["nginx/conf.d/x.conf", "Makefile", "my notes.txt", " a.py "])
def test_path_of_a_file_without_a_line_is_found_and_shows_nothing(tmp_path: Path, path: str) -> None:
    write(tmp_path, {path.strip(): SOURCE})
    found = check(FolderTree(tmp_path), path)
    assert (found.status, found.note, found.file) == ("not_checked", NO_LINE, f"sha256:{sha256(SOURCE)}")
    assert (found.line, doubts([found], "step 2", Reads(None), "")) == ("", [f"evidence {path!r} of step 2: {NO_LINE}"])
    assert parse_evidence(path) == []


@pytest.mark.parametrize(
    "path", ["nginx/y.conf", "nginx", "../outside.txt", "/etc/hostname", "link.txt", ".env", "words"]
)
def test_path_without_a_line_that_is_no_file_of_the_tree_is_malformed(tmp_path: Path, path: str) -> None:
    write(tmp_path, {"outside.txt": "x\n", "tree/nginx/x.conf": "x\n", "tree/.env": "x\n"})
    (tmp_path / "tree" / "link.txt").symlink_to("nginx/x.conf")
    assert status(tmp_path / "tree", path) == "malformed"


def test_path_without_a_line_cannot_be_looked_up_without_a_tree() -> None:
    reads = Reads(None)
    for path in ("nginx/conf.d/x.conf", "a.py", ".gitignore"):
        assert check_evidence(path, reads).status == "not_checked"
    for text in ("just words", "Makefile", "It is so.", "a: b.c", "../a.py"):
        assert check_evidence(text, reads).status == "malformed"


@given(
    st.from_regex(r"[a-z文件 :]{1,20}(/[a-z文件 :.]{1,20}){0,2}", fullmatch=True).filter(
        lambda path: path.strip() == path
    ),
    st.integers(1, 10**9 - 1000),
    st.integers(-1, evidence_module.lines_cited_max - 1),
    st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=30),
)
def test_every_reference_is_read_back_as_it_was_put_together(path: str, line: int, more: int, text: str) -> None:
    end = 0 if more < 0 else line + more
    found = parse_evidence(f"{path}:{line}{f'-{end}' if end else ''}:{text}")
    assert any((one.path, one.line, one.end) == (path, line, end) and one.text in ("", text.strip()) for one in found)
    assert not any(one.revision for one in found[:-1])


@given(st.text(max_size=300))
def test_no_text_breaks_the_parser_or_leads_out_of_the_tree(text: str) -> None:
    for one in parse_evidence(text):
        if one.form in {"url", "ref"}:
            continue
        parts, outcome = parts_of(one.path)
        assert one.line >= 1
        assert one.end == 0 or one.line <= one.end < one.line + evidence_module.lines_cited_max
        assert (outcome == "file") == bool(parts)
        assert ".." not in parts
        assert not any("/" in part or "\x00" in part for part in parts)


def test_the_reading_whose_file_is_there_counts(tmp_path: Path) -> None:
    write(tmp_path, {"logs/10:15:00.log": "a\nb\n", "a.py": "x = y[1:2:3]\n"})
    assert status(tmp_path, "logs/10:15:00.log:2") == "ok"
    assert status(tmp_path, "logs/10:15:00.log:3") == "no_such_line"
    assert status(tmp_path, "a.py:1:x = y[1:2:3]") == "ok"


@pytest.mark.parametrize(
    ("text", "line", "does"),
    [
        ("limit = 14", "    limit  =\t14\r", True),
        ("const A = b", "const A = b;", True),
        ("def login", "def login(user):", True),
        ("没有加密", "日志没有加密,保留 30 天", True),
        ("readers: 1", "readers: 14", False),
        ("readers: 4", "readers: 14", False),
        ("ratio = 5", "ratio = 5.5", False),
        ("5", "0.5 5.5", False),
        ("secret", "secrets", False),
        ("secret", "secrets secret", True),
        ("limit = 14", "limit = 15", False),
        ("", "anything", False),
    ],
)
def test_text_stands_when_no_word_or_number_of_it_goes_on(text: str, line: str, does: bool) -> None:
    assert stands(text, line) is does


# The state of the tree


def test_changes_of_a_cited_file_are_told_apart(tmp_path: Path) -> None:
    write(tmp_path, {"a.py": SOURCE})
    by_text, by_line = "a.py:2:limit = 14", "a.py:2"
    by_hash = f"a.py:2:sha256:{sha256(SOURCE)[:12]}"
    before = {one: check(FolderTree(tmp_path), one) for one in (by_text, by_line, by_hash)}
    assert {one.status for one in before.values()} == {"ok"}
    assert {one.file for one in before.values()} == {f"sha256:{sha256(SOURCE)}"}

    def now(reference: str, *, knowing: bool) -> str:
        return check(FolderTree(tmp_path), reference, **({"earlier": before[reference]} if knowing else {})).status

    # Another line of the file changes: only the hash, or an earlier validation, can show that the cited line is
    # unchanged.
    write(tmp_path, {"a.py": SOURCE + "four\n"})
    assert [now(one, knowing=False) for one in before] == ["ok", "ok", "file_changed"]
    assert [now(one, knowing=True) for one in before] == ["file_changed_line_same"] * 3

    # The cited line grows: it still contains the text, but it is not the line that was validated.
    write(tmp_path, {"a.py": SOURCE.replace("14", "14 * 2")})
    assert [now(one, knowing=False) for one in before] == ["ok", "ok", "file_changed"]
    assert [now(one, knowing=True) for one in before] == ["line_changed"] * 3

    # The cited line changes.
    write(tmp_path, {"a.py": SOURCE.replace("14", "15")})
    assert [now(one, knowing=False) for one in before] == ["line_changed", "ok", "file_changed"]
    assert [now(one, knowing=True) for one in before] == ["line_changed"] * 3

    # The file gets shorter, and goes.
    write(tmp_path, {"a.py": "one\n"})
    assert [now(one, knowing=False) for one in before] == ["no_such_line"] * 3
    (tmp_path / "a.py").unlink()
    assert [now(one, knowing=True) for one in before] == ["gone"] * 3


def test_text_that_moved_still_stands_where_anybody_knows_what_it_was(tmp_path: Path) -> None:
    cited = digest_of("  limit = 14")
    write(tmp_path, {"a.py": "import os\n\n" + SOURCE})
    by_file = f"a.py:2:sha256:{sha256(SOURCE)}"
    moved = [check(FolderTree(tmp_path), one, cited=cited) for one in ("a.py:2", "a.py:2:limit = 14", by_file)]
    assert {(one.status, one.note, one.line) for one in moved} == {("moved", "Moved to line 4, still true", cited)}
    assert check(FolderTree(tmp_path), "a.py:2").status == "ok"  # nobody knows the original line
    again = check(FolderTree(tmp_path), "a.py:2", earlier=moved[0])
    assert (again.status, again.line) == ("moved", cited)
    write(tmp_path, {"a.py": "limit = 15\n" * 9})
    assert check(FolderTree(tmp_path), "a.py:2", cited=cited).status == "line_changed"
    write(tmp_path, {"a.py": "one\n"})
    assert check(FolderTree(tmp_path), "a.py:2", cited=cited).status == "no_such_line"


def test_range_moves_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    cited = digest_of("  limit = 14\nthree")
    write(tmp_path, {"a.py": SOURCE})
    assert check(FolderTree(tmp_path), "a.py:2-3").line == cited
    write(tmp_path, {"a.py": "zero\n" + SOURCE})
    assert check(FolderTree(tmp_path), "a.py:2-3", cited=cited).note == "Moved to line 3, still true"
    write(tmp_path, {"a.py": "zero\none\n  limit = 14\nand\nthree\n"})
    assert check(FolderTree(tmp_path), "a.py:2-3", cited=cited).status == "line_changed"
    assert check(FolderTree(tmp_path), "a.py:4-9").status == "no_such_line"


def test_text_that_says_little_moves_only_where_it_is_the_only_one(tmp_path: Path) -> None:
    write(tmp_path, {"a.c": "int\n}\nx\n"})
    assert check(FolderTree(tmp_path), "a.c:1", cited=digest_of("}")).status == "moved"
    write(tmp_path, {"a.c": "int\n}\n}\n"})
    found = check(FolderTree(tmp_path), "a.c:1", cited=digest_of("}"))
    assert (found.status, "it is on 2 lines" in found.note) == ("line_changed", True)


def test_revision_before_a_path_is_looked_up_in_that_commit(tmp_path: Path) -> None:
    first = commit(tmp_path, {"sub/a.py": SOURCE})
    commit(tmp_path, {"sub/a.py": SOURCE.replace("14", "15"), "v1:b.py": SOURCE})
    for tree in (open_tree(tmp_path), open_tree(tmp_path, "HEAD")):
        reads = Reads(tree)
        found = {
            reference: check_evidence(reference, reads).status
            for reference in (f"{first[:8]}:sub/a.py:2:limit = 14", "HEAD~1:sub/a.py:2-3", "HEAD:sub/a.py:2:limit = 14")
        }
        assert list(found.values()) == ["ok", "ok", "line_changed"]
        gone = check_evidence("abcdef1:sub/a.py:2", reads)
        assert (gone.status, gone.note) == (
            "gone",
            "The file does not exist, and neither does the commit abcdef1 in this repository",
        )
        assert check_evidence("v1:b.py:2:limit = 14", reads).status == "ok"  # a path with a colon
        assert check_evidence("HEAD~1:../a.py:2", reads).status == "outside"
        assert check_evidence("HEAD~1:.env:2", reads).status == "private"
        assert reads.identity().digest != Reads(tree).identity().digest


def test_url_and_ref_are_kinds_of_their_own(tmp_path: Path) -> None:
    with_ledger = Reads(FolderTree(tmp_path), {"session/auth", "sha256:" + "a" * 12}.__contains__)
    for reference in ("session/auth", "sha256:" + "a" * 12):
        assert check_evidence(reference, with_ledger).status == "ok"
        assert check(FolderTree(tmp_path), reference).status == "not_checked"
    assert check_evidence("handoff/nothing", with_ledger).status == "gone"
    for url in ("https://example.org", "https://example.org:8080/a:5#b", "HTTP://example.org/x?y=1"):
        assert check_evidence(url, with_ledger).status == "not_checked"
    write(tmp_path, {"session/auth.py": "x\n"})
    assert check_evidence("session/auth.py:1:x", with_ledger).status == "ok"


def test_agreeing_hash_of_the_author_does_not_make_up_for_anything(tmp_path: Path) -> None:
    binary = b"\xff\xfe\n"
    write(tmp_path, {"a.py": SOURCE, "b.bin": binary})
    assert status(tmp_path, f"a.py:9:sha256:{sha256(SOURCE)}") == "no_such_line"
    assert status(tmp_path, f"b.bin:1:sha256:{hashlib.sha256(binary).hexdigest()}") == "unreadable"


def test_moved_text_is_named_by_its_line_and_never_quoted(tmp_path: Path) -> None:
    write(tmp_path, {"a.py": "password = hunter2\n" + SOURCE})
    found = check(FolderTree(tmp_path), "a.py:1:limit = 14")
    assert (found.status, found.note) == ("moved", "Moved to line 3, still true")
    assert "hunter2" not in repr(found)


# Refused references


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("../outside.txt", "outside"),
        ("sub/../../outside.txt", "outside"),
        ("sub/../inside.txt", "outside"),
        ("/etc/hostname", "outside"),
        ("link.txt", "symlink"),
        ("link_inside.txt", "symlink"),
        ("linked/inside.txt", "symlink"),
        ("loop", "symlink"),
        ("sub", "directory"),
        (".", "directory"),
        ("pipe", "not_a_file"),
        ("nothing.txt", "gone"),
        ("inside.txt/deeper", "gone"),
        ("x" * 300, "gone"),
        ("latin1.txt", "unreadable"),
        ("utf16.txt", "unreadable"),
        ("nul.txt", "unreadable"),
        ("huge.txt", "too_large"),
        ("one_line.txt", "unreadable"),
        (".git/config", "private"),
        (".deedbook/keys/alice.key", "private"),
        ("deploy/.ENV", "private"),
        ("tls/server.pem", "private"),
        ("C:\\code\\inside.txt", "malformed"),
        ("sub\\inside.txt", "malformed"),
        ("https://example.org", "not_checked"),
        ("in\u202eside.txt", "malformed"),
        ("in\x00side.txt", "malformed"),
        ("x/" * 600, "malformed"),
    ],
)
def test_path_that_is_no_file_of_the_tree_is_named_for_what_it_is(tmp_path: Path, path: str, expected: str) -> None:
    write(tmp_path, {"outside.txt": "secret\n"})
    tree = write(
        tmp_path / "tree",
        {
            "inside.txt": "in\n",
            "sub/inside.txt": "in\n",
            "latin1.txt": b"caf\xe9\n",
            "utf16.txt": "text\n".encode("utf-16"),
            "nul.txt": b"a\x00b\n",
            "one_line.txt": "x" * (evidence_module.line_max_chars + 1),
            ".git/config": "x\n",
        },
    )
    (tree / "link.txt").symlink_to("../outside.txt")
    (tree / "link_inside.txt").symlink_to("inside.txt")
    (tree / "linked").symlink_to("sub")
    (tree / "loop").symlink_to("loop")
    os.mkfifo(tree / "pipe")
    with (tree / "huge.txt").open("wb") as file:
        file.truncate(5 * 1024**3)
    assert status(tree, f"{path}:1") == expected
    assert status(tree, f"{path}:1:in") == expected


def test_file_that_becomes_a_link_while_it_is_opened_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, {"outside.txt": "in\n", "tree/a.txt": "in\n"})
    real = os.stat

    def exchanging(path: str, **options: object) -> os.stat_result:
        found = real(path, **options)  # type: ignore[arg-type]  # whatever was given
        if path == "a.txt" and not (tmp_path / "tree" / "a.txt").is_symlink():
            (tmp_path / "tree" / "a.txt").unlink()
            (tmp_path / "tree" / "a.txt").symlink_to("../outside.txt")
        return found

    with FolderTree(tmp_path / "tree") as tree:
        monkeypatch.setattr("deedbook.consumers.reasoning.validator.trees.os.stat", exchanging)
        assert check(tree, "a.txt:1:in").status == "symlink"


def test_files_together_are_bounded_and_the_rest_is_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reads_module, "read_total_max_bytes", 10)
    write(tmp_path, {"a.txt": "123456\n", "b.txt": "123456\n"})
    reads = Reads(FolderTree(tmp_path))
    assert [check_evidence(f"{name}.txt:1", reads).status for name in "aba"] == ["ok", "too_large", "ok"]


def test_lines_are_counted_as_editors_count_them(tmp_path: Path) -> None:
    write(tmp_path, {"a.txt": "\ufeffone\r\ntwo\u2028still two\x0c\nthree", "empty.txt": ""})
    with FolderTree(tmp_path) as tree:
        found = check(tree, "a.txt:1:one")
    assert (found.status, found.note) == ("ok", "")
    assert status(tmp_path, "a.txt:2:still two") == "ok"
    assert status(tmp_path, "a.txt:3:three") == "ok"
    assert status(tmp_path, "a.txt:4") == "no_such_line"
    assert status(tmp_path, "empty.txt:1") == "no_such_line"


# A commit as the tree


def test_commit_is_checked_and_not_the_folder(tmp_path: Path) -> None:
    first = commit(tmp_path, {"a.py": SOURCE, "文档/说明.md": "一\n二\n"})
    commit(tmp_path, {"a.py": SOURCE.replace("14", "15")})
    write(tmp_path, {"a.py": "uncommitted\n"})
    tree = CommitTree(tmp_path, first[:12])
    assert tree.commit == first
    assert check(tree, "a.py:2:limit = 14").status == "ok"
    assert check(CommitTree(tmp_path), "a.py:2:limit = 15").status == "ok"
    assert check(tree, "文档/说明.md:2:二").status == "ok"


def test_commit_names_what_is_no_file_as_a_folder_does(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "link").symlink_to("a.py")
    (tmp_path / "linked").symlink_to("sub")
    commit(tmp_path, {"a.py": SOURCE, "sub/b.py": SOURCE, "latin1.txt": b"caf\xe9\n", "large.txt": "x\n" * 2**23})
    for tree in (CommitTree(tmp_path), FolderTree(tmp_path)):
        found = [
            check(tree, f"{path}:1").status
            for path in ("link", "linked/b.py", "sub", "nothing", "a.py/b", "latin1.txt", "large.txt", "../a.py")
        ]
        assert found == ["symlink", "symlink", "directory", "gone", "gone", "unreadable", "too_large", "outside"]


def test_configuration_of_the_repository_runs_nothing(tmp_path: Path) -> None:
    commit(tmp_path, {".gitattributes": "*.py diff=evil filter=evil\n", "a.py": SOURCE})
    trap = tmp_path / "ran"
    script = write(tmp_path, {"evil.sh": f"#!/bin/sh\ntouch {trap}\ncat\n"}) / "evil.sh"
    script.chmod(0o755)
    settings = (
        '[core]\n\tfsmonitor = {0}\n\tpager = {0}\n[diff "evil"]\n\ttextconv = {0}\n[filter "evil"]\n\tsmudge = {0}\n'
    )
    with (tmp_path / ".git" / "config").open("a") as config:
        config.write(settings.format(script))
    assert check(open_tree(tmp_path, "HEAD"), "a.py:2:limit = 14").status == "ok"
    assert check(open_tree(tmp_path), "a.py:2:sha256:00000000").status == "file_changed"
    assert not trap.exists()
