"""Opening sealed texts: references with wrong digests, texts of references, and blobs that are too large."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
from view_ledger import ViewLedger

from deedbook.consumers.sdk import sealer as sealing
from deedbook.consumers.sdk.sealer import Opener, Sealer, named
from deedbook.ledger.client.author import Author
from deedbook.ledger.errors import Corrupted, Refused
from deedbook.ledger.events.handoff import HandoffCreated, ReceiverNotes
from deedbook.ledger.events.session import DeadEndLogged, SessionStarted
from deedbook.ledger.events.subject import SubjectErased
from deedbook.ledger.seal.key_files import KeyFiles
from deedbook.ledger.seal.reference import SealedReference, read_reference
from deedbook.projections.answers.reader import Reader

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Setting:
    """A ledger, the keys of carol and dave, and a sealer."""

    def __init__(self, ledger: ViewLedger, folder: Path) -> None:
        self.ledger, self.folder = ledger, folder
        self.keys = KeyFiles(folder / "config", ledger.reads.ledger)
        for subject in ("carol", "dave"):
            self.keys.create(subject)
        self.author = Author(ledger.reads, "alice", lambda _: ledger.keys["alice"])
        self.reader = Reader(ledger.reads, ledger.settings())

    def ask(self, query: str, arguments: dict[str, Any]) -> dict[str, Any]:
        return self.reader.answer(query, arguments)

    def sealer(self, subject: str = "carol") -> Sealer:
        return Sealer(self.author, self.keys, self.ask, subject, self.folder)

    def opener(self) -> Opener:
        return Opener(self.ledger.reads, lambda: self.keys, self.ask)


@pytest.fixture
def setting(tmp_path: Path) -> Iterator[Setting]:
    with ViewLedger(tmp_path / "ledger") as ledger:
        ledger.emit("alice", "session/s", SessionStarted(task="x"))
        setting = Setting(ledger, tmp_path)
        yield setting
        setting.reader.close()


def opened(setting: Setting, text: str) -> str:
    reference = read_reference(text)
    assert reference is not None, text
    return setting.opener().text(reference)


def test_an_event_needs_one_blob_for_all_of_its_texts(setting: Setting) -> None:
    notes = ReceiverNotes(traps=["she is deaf", "she is deaf"], tried=["", "a letter"], artifacts=["a.txt"])
    data = HandoffCreated(title="Call", to="bob", task="ring her", criteria=["agreed"], notes=notes, depends_on=["h"])
    sealed = setting.sealer().event(data)
    assert (sealed.title, sealed.to, sealed.depends_on, sealed.context) == ("Call", "bob", ["h"], "")
    assert (sealed.notes.artifacts, sealed.notes.tried[0]) == (["a.txt"], "")
    texts = [sealed.task, *sealed.criteria, *sealed.notes.traps, sealed.notes.tried[1]]
    assert [opened(setting, text) for text in texts] == ["ring her", "agreed", *["she is deaf"] * 2, "a letter"]
    assert len({reference.ref for text in texts if (reference := read_reference(text))}) == 1


def test_sealing_again_changes_nothing(setting: Setting) -> None:
    once = setting.sealer().event(DeadEndLogged(approach="ask", why_failed="gone"))
    assert setting.sealer().event(once) == once
    (both,) = setting.sealer().texts([f"{once.approach} ({once.why_failed})"])
    assert both == f"{once.approach} ({once.why_failed})"


def test_a_reference_to_the_content_of_another_subject_opens_nothing(setting: Setting) -> None:
    """Otherwise the text shown as dave's would survive the erasure of dave, and the other way round."""
    (text,) = setting.sealer("carol").texts(["carol's"])
    reference = read_reference(text)
    assert reference is not None
    with pytest.raises(Corrupted, match="is of the subject carol"):
        setting.opener().text(SealedReference("dave", reference.ref, 0))
    with pytest.raises(Corrupted, match="no text 1"):
        setting.opener().text(SealedReference("carol", reference.ref, 1))


def test_a_reference_to_a_huge_blob_is_not_read_into_memory(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealing, "texts_max_bytes", 100_000)
    with (setting.folder / "large").open("w+b") as file:
        file.write(os.urandom(1_000_000))
        file.seek(0)
        ref = setting.sealer().blob(file)
    with pytest.raises(Refused, match="TOO_LARGE"):
        setting.opener().text(SealedReference("carol", ref, 0))
    with pytest.raises(Refused, match="TOO_LARGE"):
        setting.sealer().texts(["x" * 100_000])


def test_a_blob_that_is_not_sealed_or_not_of_texts_opens_nothing(setting: Setting) -> None:
    plain = setting.author.put_blob(b"plain")
    with pytest.raises(Refused, match="INVALID_FORMAT"):
        setting.opener().text(SealedReference("carol", plain, 0))
    with (setting.folder / "file").open("w+b") as file:
        file.write(b"no list")
        file.seek(0)
        ref = setting.sealer().blob(file)
    with pytest.raises(Corrupted, match="VERIFICATION_FAILED"):
        setting.opener().text(SealedReference("carol", ref, 0))


def test_answers_name_the_subject_and_then_its_erasure(setting: Setting) -> None:
    (text,) = setting.sealer().texts(["carol's"])
    answer = {"text": text, "rows": [{"line": f"- {text}!"}], "number": 1, "none": None}
    assert named(answer, setting.ask) == {
        "text": "[sealed for carol]",
        "rows": [{"line": "- [sealed for carol]!"}],
        "number": 1,
        "none": None,
    }
    setting.ledger.emit("root", "subject/carol", SubjectErased(reason="She asked for it"))
    shown = named(answer, setting.ask)["text"]
    assert shown.startswith("[erased on ")
    assert shown.endswith(" by root: She asked for it]")
    with pytest.raises(Refused, match="SUBJECT_ERASED"):
        opened(setting, text)
    with pytest.raises(Refused, match="SUBJECT_ERASED"):
        setting.sealer()
    assert named({"text": "sealed: nothing"}, setting.ask) == {"text": "sealed: nothing"}
