"""Files and tables become claims in the ledger: each kept byte for byte, none lost, and none twice."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from credentials import GITHUB
from syncing import NEW

from deedbook.consumers.handoffs.agent_names import AgentNames
from deedbook.consumers.handoffs.files.imports import changed_records, read_records, read_source
from deedbook.consumers.handoffs.files.mapping import file_now
from deedbook.consumers.importers.records import Counts, find_files, import_records
from deedbook.ledger.errors import Refused, Unavailable
from deedbook.ledger.events import handoff as kinds
from deedbook.ledger.events.imported import RecordImported

if TYPE_CHECKING:
    from syncing import SyncedFolder

CASES: Final = Path(__file__).parents[5] / "shared" / "cases" / "handoffs"
OLD: Final = """\
# Handoff：快取 <b>warm</b>

## Status: completed (2026-02-12)

## Meta
* **From:** kuro
* **To:** bob
* Created: 02-12 afternoon

## 任務
做這件事。

## Tasks
- [x] one
- [ ] two
```
- [x] not a task
```

## Acceptance Criteria
1. [X] it works

---
the end, without a newline"""
PROPOSAL: Final = "# Proposal: 疊加式\n\n## Meta\n- Status: draft\n- From: kuro\n- To: alice\n\n## TL;DR\nText.\n"
TABLE: Final = """\
| From | To | Task | Status | Created | Done |
|------|----|------|--------|---------|------|
| kuro | bob | 修好它 | done ✅ | 02-14 | 02-15 |
| kuro | bob+alice | other | half | — | — |
| kuro | bob | 修好它 | done | 02-14 | 02-15 |

| github | bob | appended by a program | pending | 02-21 | — |
"""
SHAPES: Final = {
    "2026-02-12-v2.md": NEW.encode(),
    "2026-02-13-old.md": OLD.encode(),
    "2026-02-14-windows.md": b"\xef\xbb\xbf" + NEW.replace("\n", "\r\n").encode(),
    "2026-02-15-garbled.md": NEW.replace("warm", "Ã©tÃ© warm").encode(),
    "2026-02-16-doubled.md": NEW.replace("- Reviewer: rita", "- Reviewer: rita\n- Reviewer: bob").encode(),
    "proposal.md": PROPOSAL.encode(),
    "active.md": TABLE.encode(),
}


def add(folder: SyncedFolder, name: str = "iris") -> Counts:
    """Import the whole folder as an agent."""
    if name not in folder.ledger.keys:
        folder.ledger.register(name)
    author = folder.hand(name).author
    found = read_records(folder.path, author.put_blob, agents=AgentNames(reviewer="rita"))
    assert found.unread == ()
    plan = changed_records(found.records, folder.answer)
    return import_records(author, plan.records, unchanged=plan.unchanged)


def write(folder: SyncedFolder, files: dict[str, bytes]) -> None:
    """Put files into the folder."""
    for name, content in files.items():
        path = folder.path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)


def assert_counted(counts: Counts) -> None:
    """Check that nothing was lost."""
    answer = counts.answer()
    assert answer["lost"] == 0
    assert counts.read == counts.mapped + len(counts.unmapped_records)


def test_files_of_every_shape_come_back_byte_for_byte(folder: SyncedFolder) -> None:
    write(folder, SHAPES)
    counts = add(folder)
    assert_counted(counts)
    assert (counts.mapped, [one.reason for one in counts.unmapped_records]) == (6 + 3, ["it repeats line 3"])
    for name, content in SHAPES.items():
        if name == "active.md":
            continue
        shown = folder.shown(name.removesuffix(".md"))
        assert shown["status"] == "pending"
        assert folder.ledger.client().get_blob(shown["original"]) == content
        assert file_now(shown, folder.ledger.client().get_blob(shown["template"])) == content


def test_importing_again_adds_nothing(folder: SyncedFolder) -> None:
    write(folder, SHAPES)
    first = add(folder)
    assert first.added == first.read
    before = folder.size()
    again = add(folder)
    assert (again.added, again.read, again.mapped, again.unmapped_records) == (
        0,
        first.read,
        first.mapped,
        first.unmapped_records,
    )
    assert folder.size() == before


def test_another_importer_adds_nothing_not_even_of_rows_that_other_tables_replaced(folder: SyncedFolder) -> None:
    later = TABLE.replace("done ✅", "verified").replace("half", "whole")
    write(folder, SHAPES | {"2026/active.md": later.encode(), "old/active.md": TABLE.encode()})
    first = add(folder)
    before = folder.size()
    again = add(folder, "oscar")
    assert (again.added, again.read, again.mapped) == (0, first.read, first.mapped)
    assert folder.size() == before + 1  # only the registration of Oscar


def test_row_that_the_table_before_has_too_is_imported_once_and_every_table_is_stored(folder: SyncedFolder) -> None:
    first = TABLE.replace("| kuro | bob | 修好它 | done | 02-14 | 02-15 |\n", "")
    tables = [first, first.replace("half", "whole"), first.replace("half", "whole") + "\nProse.\n"]
    write(folder, {f"{number}/active.md": table.encode() for number, table in enumerate(tables)})
    counts = add(folder)
    assert (counts.read, counts.mapped, counts.added) == (9, 8, 3 + 1 + 1)
    (unmapped,) = counts.unmapped_records  # the third table has no row of its own: this record keeps its bytes
    assert unmapped.reason.startswith("NOTHING_CHANGED")
    assert folder.ledger.client().get_blob(unmapped.original) == tables[2].encode()
    assert add(folder).added == 0


def test_one_tick_changes_one_line_of_an_imported_file(folder: SyncedFolder) -> None:
    write(folder, SHAPES)
    add(folder)
    id_ = "2026-02-13-old"
    folder.approve(id_)
    folder.emit("bob", kinds.HandoffClaimed(), id_)
    before = folder.rendered(id_).splitlines()
    folder.emit("bob", kinds.HandoffTaskChecked(position=1), id_)
    after = folder.rendered(id_).splitlines()
    assert [pair for pair in zip(before, after, strict=True) if pair[0] != pair[1]] == [("- [ ] two", "- [x] two")]
    assert after[-1].endswith("[bob] claimed")
    assert "the end, without a newline" in after


def test_what_a_file_claims_grants_nothing(folder: SyncedFolder) -> None:
    write(folder, SHAPES)
    add(folder)
    shown = folder.shown("2026-02-13-old")
    assert (shown["status"], shown["claimed_status"]) == ("pending", "completed (2026-02-12)")
    assert (shown["from"], shown["importer"], shown["to"], shown["reviewer"]) == ("kuro", "iris", "bob", "rita")
    assert [one["done"] for one in shown["tasks"]] == [True, False]
    assert [one["mark"] for one in shown["criteria"]] == ["claimed"]
    with pytest.raises(Refused) as failure:
        folder.emit("bob", kinds.HandoffClaimed(), "2026-02-13-old")
    assert failure.value.code == "NOT_APPROVED"


def test_first_of_two_reviewers_counts(folder: SyncedFolder) -> None:
    write(folder, SHAPES)
    add(folder)
    assert folder.shown("2026-02-16-doubled")["reviewer"] == "rita"


def test_changed_file_is_imported_anew_until_it_is_confirmed(folder: SyncedFolder) -> None:
    write(folder, {"x.md": OLD.encode()})
    add(folder)
    changed = OLD.replace("- [ ] two", "- [x] two").replace("做這件事", "做別的")
    write(folder, {"x.md": changed.encode()})
    counts = add(folder)
    assert (counts.added, counts.mapped, counts.unmapped_records) == (1, 1, ())
    assert folder.rendered("x") == changed
    assert [one["done"] for one in folder.shown("x")["tasks"]] == [True, True]
    folder.approve("x")
    write(folder, {"x.md": OLD.replace("one", "three").encode()})
    counts = add(folder)
    assert_counted(counts)
    assert counts.mapped == 0
    assert counts.unmapped_records[0].reason.startswith("TRANSITION_NOT_ALLOWED: ")
    assert "three" not in folder.rendered("x")
    assert add(folder).added == 0


@pytest.mark.parametrize(
    ("name", "content", "code"),
    [
        ("half.md", NEW[:60].encode(), "INVALID_FORMAT"),
        ("large.md", NEW.encode() + b"x" * 2 * 1024**2, "TOO_LARGE"),
        ("latin.md", NEW.encode() + b"\xe9\n", "INVALID_FORMAT"),
        ("zero.md", NEW.encode() + b"\0\n", "INVALID_FORMAT"),
        ("empty.md", b"", "INVALID_FORMAT"),
        ("notes.md", b"# Notes\n\nhello\n", "INVALID_FORMAT"),
        ("many.md", NEW.replace("- [ ] look\n", "- [ ] a long line of work\n" * 3000).encode(), "TOO_LARGE"),
        ("up.md", NEW.replace("(none)", "../../etc/passwd.md").encode(), "INVALID_FIELD"),
        ("a\x07b.md", NEW.encode(), "INVALID_FIELD"),
        (os.fsdecode(b"caf\xe9.md"), NEW.encode(), "INVALID_FIELD"),
    ],
)
def test_file_that_cannot_be_read_is_kept_aside_with_the_reason(
    folder: SyncedFolder, name: str, content: bytes, code: str
) -> None:
    write(folder, {name: content, "good.md": OLD.encode()})
    counts = add(folder)
    assert_counted(counts)
    assert counts.mapped == 1
    assert counts.unmapped_records[0].reason.startswith(f"{code}: ")
    original = folder.ledger.event(-2).data
    kept = [one for one in (original, folder.ledger.event(-1).data) if one.mapped_kind is None]
    assert folder.ledger.client().get_blob(kept[0].original) == content
    assert add(folder).added == 0


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("content", "is_told"),
    [
        (b"---\ntitle: x\r\nFrom: ana\r\n---\r\n# Fix it\n", True),
        (b"---\ntitle: x\n---\nFrom: ana\n", False),
        (b"# Fix it\n---\nfrom: ana\n---\n", False),
        (b"---\nfrom: ana\n", False),
        (b"---\n" + b"to:\n" * 100_000, False),  # a stranger's file may be this long
    ],
    ids=["front matter", "another", "not in front", "open", "long"],
)
def test_front_matter_is_told_that_it_is_not_read(folder: SyncedFolder, content: bytes, *, is_told: bool) -> None:
    write(folder, {"front.md": content})
    (record,) = add(folder).unmapped_records
    assert ("front matter is not read" in record.reason) is is_told


def test_text_that_no_field_holds_is_found_by_searches_once(folder: SyncedFolder) -> None:
    free = b"# Notes\n\nThe dangling string hums, said Weiser.\n"
    section = "\n## Discussion\n\n- the calm lighthouse blinks\n"
    write(
        folder,
        {"free.md": free, "good.md": (OLD + section).encode(), "long.md": NEW.encode() + b"plain words\n" * 9000},
    )
    add(folder)

    def found(text: str) -> list[str]:
        return [hit["stream"].partition("/")[0] for hit in folder.answer("search.find", {"text": text})["items"]]

    assert found("dangling string hums") == ["record"]
    assert found("calm lighthouse") == ["handoff"]
    assert "handoff" in found("plain words")
    events = [folder.ledger.event(-1 - count).data for count in range(3)]
    bodies = [data.body for data in events if isinstance(data, RecordImported)]
    shown = folder.answer("handoffs.show", {"id": "long"})
    assert len(bodies) == 3
    assert not any(row["text"] in body for row in (*shown["tasks"], *shown["criteria"]) for body in bodies)
    assert max(map(len, bodies)) <= 40_000


def test_files_of_one_name_are_not_mixed_up(folder: SyncedFolder) -> None:
    write(folder, {"a/x.md": OLD.encode(), "b/x.md": NEW.encode()})
    counts = add(folder)
    assert_counted(counts)
    assert [(one.source, one.reason.split(":")[0]) for one in counts.unmapped_records] == [
        ("b/x.md", "a/x.md has the same name and therefore the same id")
    ]
    assert folder.rendered("x") == OLD
    assert add(folder).added == 0


def test_dependencies_of_files_may_be_imported_in_any_order(folder: SyncedFolder) -> None:
    write(
        folder,
        {
            "a.md": OLD.replace("* Created: 02-12 afternoon", "* Depends-on: b.md, c").encode(),
            "b.md": OLD.encode(),
        },
    )
    assert_counted(add(folder))
    assert [(one["id"], one["status"]) for one in folder.shown("a")["depends_on"]] == [("b", "pending"), ("c", None)]


def test_cycle_of_files_is_kept_aside(folder: SyncedFolder) -> None:
    text = OLD.replace("* Created: 02-12 afternoon", "* Depends-on: {}.md")
    write(folder, {f"{a}.md": text.format(b).encode() for a, b in ("ab", "bc", "ca")})
    counts = add(folder)
    assert_counted(counts)
    assert [one.reason.split(":")[0] for one in counts.unmapped_records] == ["DEPENDENCY_CYCLE"]
    assert counts.mapped == 2


def test_rows_with_free_text_are_read(folder: SyncedFolder) -> None:
    write(folder, {"active.md": TABLE.encode()})
    add(folder)
    found = folder.answer("handoffs.list", {"history": "shown"})["items"]
    assert sorted((one["title"], one["to"], one["claimed_status"]) for one in found) == [
        ("appended by a program", "bob", "pending"),
        ("other", "", "half"),
        ("修好它", "bob", "done ✅"),
    ]


def test_pipe_is_told_of_and_never_waited_for(folder: SyncedFolder) -> None:
    write(folder, {"a.md": OLD.encode()})
    os.mkfifo(folder.path / "pipe.md")
    read = read_records(folder.path, lambda _: "blake3:" + "0" * 64, agents=AgentNames())
    assert [one.reason for one in read.unread if "is a pipe" in one.reason]
    assert len(read.unread) == 1
    assert read.records


def test_links_and_hidden_files_are_passed_over(folder: SyncedFolder, tmp_path: Path) -> None:
    write(folder, {"a.md": OLD.encode(), ".b.md": OLD.encode(), ".git/c.md": OLD.encode(), "d.txt": b""})
    (folder.path / "link.md").symlink_to(folder.path / "a.md")
    assert [one.name for one in find_files(folder.path, (".md",))] == ["a.md"]
    assert [one.name for one in find_files(folder.path / "a.md", (".md",))] == ["a.md"]
    with pytest.raises(Refused) as failure:
        find_files(tmp_path / "nowhere", (".md",))
    assert failure.value.code == "NOT_FOUND"


def test_file_too_large_to_keep_is_named_and_the_others_go_on(
    folder: SyncedFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deedbook.consumers.handoffs.files.imports.file_read_max_bytes", 10_000)
    write(folder, {"a.md": b"x" * 10_001, "b.md": OLD.encode()})
    found = read_records(folder.path, lambda content: folder.ledger.put_blob("alice", content), agents=AgentNames())
    assert [one.reason.partition(":")[0] for one in found.unread] == ["TOO_LARGE"]
    assert [one.stream for one in found.records] == ["handoff/b"]


def test_file_with_a_secret_is_named_and_the_others_go_on(folder: SyncedFolder) -> None:
    write(folder, {"a.md": OLD.encode() + f"\nClone with {GITHUB}.\n".encode(), "b.md": OLD.encode()})
    found = read_records(folder.path, lambda content: folder.ledger.put_blob("alice", content), agents=AgentNames())
    assert [one.reason.partition(":")[0] for one in found.unread] == ["SECRET_DETECTED"]
    assert GITHUB[4:] not in str(found.unread)
    assert [one.stream for one in found.records] == ["handoff/b"]


def test_file_that_vanishes_stops_the_import(folder: SyncedFolder) -> None:
    with pytest.raises(Unavailable):
        read_source(folder.path / "gone.md", folder.path)


def test_real_folder_comes_back_byte_for_byte(folder: SyncedFolder) -> None:
    if not CASES.is_dir():
        return
    files = {path.name: path.read_bytes() for path in sorted(CASES.glob("*.md"))}
    write(folder, files)
    counts = add(folder)
    assert_counted(counts)
    assert counts.mapped > 0
    for name, content in files.items():
        if not name.startswith("active"):
            assert folder.rendered(name.removesuffix(".md")).encode() == content
    assert add(folder).added == 0


def test_dependency_that_is_no_id_is_told_with_its_line(folder: SyncedFolder) -> None:
    write(folder, {"a.md": OLD.replace("* Created: 02-12 afternoon", "* Depends-on: dir/x.md").encode()})
    counts = add(folder)
    assert_counted(counts)
    (record,) = counts.unmapped_records
    assert "names 'dir/x', which is not a valid handoff id: write the name of its file" in record.reason
    assert re.match(r"INVALID_FIELD: Depends-on on line [0-9]+ ", record.reason)


def test_the_only_file_is_refused_if_it_cannot_be_stored(folder: SyncedFolder) -> None:
    write(folder, {"a.md": OLD.encode()})

    def put_blob(_: bytes) -> str:
        raise Refused("SECRET_DETECTED", "it has a key")

    assert len(read_records(folder.path, put_blob, agents=AgentNames()).unread) == 1
    with pytest.raises(Refused) as refusal:
        read_records(folder.path / "a.md", put_blob, agents=AgentNames())
    assert refusal.value.code == "SECRET_DETECTED"
