"""Several agents who import the same notes at the same time: one of them maps them, and every later run says so."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from building import Ledger, key_named
from note_repository import one_of_each, repository

from deedbook.consumers.importers.empirica.importer import NoteReading, import_notes, read_notes
from deedbook.consumers.importers.empirica.notes import Repository
from deedbook.ledger.client.author import Author
from deedbook.projections.answers.reader import Reader

if TYPE_CHECKING:
    from pathlib import Path


def test_what_one_importer_mapped_while_another_read_stands_as_mapped_for_both(ledger: Ledger, tmp_path: Path) -> None:
    folder = repository(tmp_path / "r", one_of_each())
    client = ledger.client()

    def read(reader: Reader, name: str) -> NoteReading:
        found = Repository(folder)
        put_blob = partial(ledger.put_blob, name)
        return read_notes(found, ["refs/notes/empirica"], reader.answer, put_blob=put_blob, importer=name)

    with Reader(client, ledger.settings()) as reader:

        def brought_in(name: str, found: NoteReading) -> tuple[int, int, int]:
            author = Author(client, name, lambda _: key_named(name))
            answer = import_notes(author, found).answer()
            return answer["mapped"], answer["unmapped"], answer["lost"]

        at_once = {name: read(reader, name) for name in ("alice", "bob")}
        assert [brought_in(name, found) for name, found in at_once.items()] == [(10, 2, 0), (0, 12, 0)]
        head = ledger.head()
        assert [brought_in(name, read(reader, name)) for name in ("alice", "bob")] == [(10, 2, 0)] * 2
        assert ledger.head() == head
