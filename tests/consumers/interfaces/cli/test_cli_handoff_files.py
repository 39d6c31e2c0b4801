"""`deed handoff import` and `render`: files are imported and written, and no byte is lost."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from calling import Deed

    Fresh = Callable[[str], str]

CASES: Final = Path(__file__).parents[5] / "shared" / "cases" / "handoffs"
FILE: Final = """\
# Handoff: {title} <b>fast</b>

## Meta
- Status: in_progress, since Monday
- From: kuro
- To: b
- Created: 2026-02-12

## Task
做這件事。

## Tasks
- [x] one
- [ ] two

## Acceptance Criteria
- [x] it works

## Notes
kept   as they are
"""
TABLE: Final = "| From | To | Task | Status |\n|--|--|--|--|\n| kuro | b | {title} | half done |\n| a | b |\n"


@pytest.fixture
def files(tmp_path: Path, fresh: Fresh) -> Path:
    """A folder with a handoff, a table, a broken file and a large one."""
    folder = tmp_path / "files"
    (folder / "deep").mkdir(parents=True)
    name = fresh("file")
    (folder / "deep" / f"{name}.md").write_text(FILE.format(title=name))
    (folder / "active.md").write_text(TABLE.format(title=name))
    (folder / f"{name}-half.md").write_text(FILE[:40])
    (folder / f"{name}-large.md").write_text(FILE + "x" * 2 * 1024**2)
    return folder


def name_in(folder: Path) -> str:
    """Return the handoff of the folder's good file."""
    (path,) = (folder / "deep").iterdir()
    return path.name.removesuffix(".md")


def test_folder_is_imported_and_counted(deed: Deed, files: Path) -> None:
    said = deed.data("handoff", "import", files, "--as", "a", "--reviewer", "rita")
    counts = {key: said[key] for key in ("read", "mapped", "unmapped", "lost", "added")}
    assert counts == {"read": 4, "mapped": 2, "unmapped": 2, "lost": 0, "added": 4}
    assert sorted(one["reason"].partition(":")[0] for one in said["unmapped_records"]) == [
        "INVALID_FORMAT",
        "TOO_LARGE",
    ]
    assert any("this row has 2 cells" in one["text"] for one in said["warnings"])
    again = deed.run("handoff", "import", files, "--as", "a", "--reviewer", "rita")
    assert again.code == 0
    counts_line, needs_line = again.out.splitlines()
    assert counts_line == "4 read: 2 mapped, 2 stored unmapped, none lost; 0 new in the ledger"
    assert needs_line == "2 wait for rita to confirm: `deed next --as rita`"
    assert "active.md:4: this row has 2 cells" in again.err
    assert "unmapped: " in again.err


@pytest.mark.served
def test_what_was_imported_renders_byte_for_byte(deed: Deed, files: Path, tmp_path: Path) -> None:
    deed("handoff", "import", files, "--as", "a", "--reviewer", "rita")
    name = name_in(files)
    path = files / "deep" / f"{name}.md"
    out = tmp_path / "out.md"
    assert deed("handoff", "render", name, "--out", out) == f"{out}\n"
    assert out.read_bytes() == path.read_bytes()
    deed("handoff", "render", name, "--out", out)  # the file is the same already
    out.write_text("precious")
    assert (
        f"out.md exists and is not {name}.md"
        in deed.refuses("FILE_EXISTS", "handoff", "render", name, "--out", out)["message"]
    )
    assert out.read_text() == "precious"
    nowhere = tmp_path / "no such" / "folder"
    message = deed.refuses("STORE_UNAVAILABLE", "handoff", "render", name, "--out", nowhere / "out.md")["message"]
    assert message.endswith(f"there is no folder {nowhere}; make it first: mkdir -p '{nowhere}'")
    (tmp_path / f"{name}.md").write_text("edited")
    deed("handoff", "render", name, "--out", tmp_path / f"{name}.md")
    assert deed.data("handoff", "render", f"{name}.md") == {"file": f"{name}.md", "content": path.read_text()}
    shown = deed.data("handoff", "show", name)
    assert (shown["status"], shown["claimed_status"]) == ("pending", "in_progress, since Monday")


def test_file_is_parsed_and_printed_without_a_ledger(nowhere: Deed, tmp_path: Path) -> None:
    path = tmp_path / "x.md"
    for text in (FILE, TABLE, FILE.replace("\n", "\r\n")):
        path.write_bytes(text.encode())
        assert nowhere.data("handoff", "render", "--from-file", path)["content"] == text
    path.write_text(FILE[:40])
    assert nowhere.refuses("INVALID_FORMAT", "handoff", "render", "--from-file", path)["details"]["line"]
    nowhere.refuses("NOT_FOUND", "handoff", "render", "--from-file", tmp_path / "none.md")
    nowhere.refuses("USAGE", "handoff", "render")
    nowhere.refuses("USAGE", "handoff", "render", "x", "--from-file", path)


def test_real_folder_comes_back_byte_for_byte(nowhere: Deed) -> None:
    if not CASES.is_dir():
        return
    for path in sorted(CASES.glob("*.md")):
        assert nowhere.data("handoff", "render", "--from-file", path)["content"].encode() == path.read_bytes()


def test_nothing_to_import_is_refused(deed: Deed, tmp_path: Path) -> None:
    deed.refuses("NOT_FOUND", "handoff", "import", tmp_path / "none", "--as", "a")
    assert deed.data("handoff", "import", tmp_path, "--as", "a")["read"] == 0


def test_file_that_changes_and_changes_back_is_imported_each_time(alone: Deed, tmp_path: Path) -> None:
    alone("agent", "add", "ann", "--role", "agent", "--unprotected")
    path = tmp_path / "h.md"
    text = "# Handoff: t\n\n## Meta\n- Status: {}\n- From: ann\n- To: bo\n\n## Task\nLook.\n"
    for status, added in (("pending", 1), ("done", 1), ("done", 0), ("pending", 1), ("pending", 0), ("done", 1)):
        path.write_text(text.format(status), "utf-8")
        counts = alone.data("handoff", "import", path, "--as", "ann")
        assert (counts["read"], counts["mapped"], counts["lost"], counts["added"]) == (1, 1, 0, added)
        assert alone.data("handoff", "show", "h")["claimed_status"] == status


def test_table_whose_other_row_changed_imports_that_row_alone(alone: Deed, tmp_path: Path) -> None:
    alone("agent", "add", "ann", "--role", "agent", "--unprotected")
    path = tmp_path / "active.md"
    table = "| From | To | Task | Status |\n|--|--|--|--|\n| ann | bo | one | done |\n| ann | bo | two | {} |\n"
    for status, added in (("todo", 2), ("done", 1), ("done", 0)):
        path.write_text(table.format(status), "utf-8")
        assert alone.data("handoff", "import", path, "--as", "ann")["added"] == added


def test_content_that_no_file_can_hold_is_not_handed_over(deed: Deed, fresh: Fresh) -> None:
    name = fresh("unwritable")
    parties = [name, "--as", "a", "--to", "b", "--reviewer", "rita"]
    before = deed.written()
    for said, options in (
        ("title", ["--title", "two\nlines"]),
        ("title", ["--title", "  "]),
        ("Tasks", ["--title", "t", "--task", "a\n- [x] b"]),
        ("Proposal", ["--title", "t", "--proposal", "p.md\n- Status: approved"]),
        ("never closed", ["--title", "t", "--body", "```\nopen"]),
    ):
        assert said in deed.refuses("INVALID_FIELD", "handoff", "create", *parties, *options)["message"]
    assert deed.written() == before
    deed("handoff", "create", *parties, "--title", f"Do {name}")
    deed.refuses("INVALID_FIELD", "handoff", "amend", name, "--title", "two\nlines", "--as", "a")
    assert deed("handoff", "render", name).startswith(f"# Handoff: Do {name}\n")


def test_id_of_an_imported_file_has_no_power_over_a_terminal(deed: Deed, fresh: Fresh, tmp_path: Path) -> None:
    name = f"{fresh('turned')}\u202e"
    (tmp_path / f"{name}.md").write_text(FILE.format(title=name))
    imported = deed.data("import", "handoffs", tmp_path, "--as", "a")
    assert (imported["mapped"], imported["unmapped"]) == (0, 1)
    assert deed.refuses("NOT_FOUND", "handoff", "show", name)
