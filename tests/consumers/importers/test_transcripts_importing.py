"""Transcripts are imported in full, once, and as claims: new parts extend them, unsuitable ones are unmapped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from blake3 import blake3
from building import Ledger, key_named
from checking import check_log
from credentials import GITHUB
from transcript_lines import ANSWER, PROMPT, THINKING, encoded, line, says, session, thinking, write

from deedbook.consumers.importers.records import import_records
from deedbook.consumers.importers.transcripts.conversation import Progress
from deedbook.consumers.importers.transcripts.files import find_transcripts, read_transcript
from deedbook.consumers.importers.transcripts.importer import ImportTotals, TranscriptImport
from deedbook.ledger.client.author import Author
from deedbook.ledger.errors import Refused, Unavailable
from deedbook.ledger.events.imported import RecordImported
from deedbook.ledger.events.reasoning import ReasoningExtended, ReasoningStarted, Step
from deedbook.projections.answers.reader import Reader

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Importers:
    """Agents who import into one ledger, and the answers of its views afterwards."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.client = ledger.client()
        self.reader = Reader(self.client, ledger.settings())

    def __call__(self, path: Path, who: str = "alice", batches_max: int = 10**9) -> ImportTotals:
        """Import a file or folder; be cut off after some batches."""
        author = Author(self.client, who, lambda _: key_named(who))
        left = [batches_max]

        def append(records: Any) -> Any:
            if left[0] == 0:
                raise Unavailable("STORE_UNAVAILABLE", "cut off")
            left[0] -= 1
            return import_records(author, records)

        progress = Progress()
        importing = TranscriptImport(who, self.reader.answer, author.put_blob, append, progress)
        for file in find_transcripts(path):
            for found in read_transcript(file, path, progress):
                importing.take(found)
        importing.flush()
        totals = importing.totals
        assert totals.read == totals.mapped + totals.unmapped
        assert totals.answer()["lost"] == 0
        return totals

    def shown(self) -> list[dict[str, Any]]:
        """Return the reasonings, oldest first."""
        listed = self.reader.answer("reasoning.list")["items"]
        return [self.reader.answer("reasoning.show", {"id": one["id"]}) for one in reversed(listed)]

    def imported(self) -> list[Any]:
        """Return the imported events, in the order of the log."""
        events = [self.ledger.event(index) for index in range(self.ledger.head()[0])]
        return [event for event in events if isinstance(event.data, RecordImported)]


@pytest.fixture
def importers(ledger: Ledger) -> Iterator[Importers]:
    made = Importers(ledger)
    yield made
    made.reader.close()
    check_log(ledger.log)


def test_response_becomes_reasoning_of_its_importer_with_its_lines_as_original(
    importers: Importers, tmp_path: Path
) -> None:
    lines = session()
    totals = importers(write(tmp_path / "s.jsonl", lines))
    assert (totals.read, totals.mapped, totals.unmapped, totals.added) == (1, 1, 0, 3)
    (shown,) = importers.shown()
    assert (shown["author"], shown["status"], shown["session"]) == ("alice", "concluded", "s-1")
    assert (shown["memory"]["task"], shown["conclusion"]) == (PROMPT, ANSWER)
    mark = shown["imported"]
    assert (mark["importer"], mark["source"], mark["format"]) == ("alice", "s.jsonl:2", "claude-code-session")
    assert (mark["claimed_author"], mark["claimed_at"]) == ("model-x-1", "2026-01-02T03:04:05.678Z")
    assert importers.client.get_blob(mark["original"]) == encoded([lines[1], lines[2], lines[4]])
    assert mark["claims"]["said"]["inferred_type"] == f"1-{shown['steps']}"


def test_second_run_adds_nothing_from_wherever_and_by_whomever(importers: Importers, tmp_path: Path) -> None:
    lines = [*session(1), b"{broken\n", *session(2), {"thinking": THINKING, "answer": ANSWER}]
    file = write(tmp_path / "s.jsonl", [*lines, line("assistant", "h", thinking("", "c2ln"), message="msg_h")])
    first = importers(file)
    assert (first.read, first.mapped, first.unmapped, first.added) == (5, 3, 2, 11)
    (tmp_path / "copies").mkdir()
    copy = write(tmp_path / "copies" / "other.jsonl", [{"type": "summary"}, *lines])
    for path, who in ((file, "alice"), (file, "bob"), (copy, "alice"), (tmp_path, "bob")):
        size = importers.ledger.head()
        again = importers(path, who)
        assert (again.added, again.mapped) == (0, again.read - again.unmapped)
        assert importers.ledger.head() == size


def test_session_that_grows_adds_only_what_is_new(importers: Importers, tmp_path: Path) -> None:
    lines = [*session(1), *session(2)]
    added = [importers(write(tmp_path / "s.jsonl", lines[:end])).added for end in range(1, len(lines) + 1)]
    # The thinking first (started, extended), the answer when it is there (concluded); calls of tools change nothing.
    assert added == [0, 2, 0, 0, 1, 0, 2, 0, 0, 1]
    grown = [(one["ref"], one["status"], one["steps"]) for one in importers.shown()]
    assert [status for _, status, _ in grown] == ["concluded", "concluded"]
    assert importers(write(tmp_path / "s.jsonl", lines[:4])).added == 0  # an older copy of the file brings nothing new


def test_an_answer_that_goes_on_is_no_second_response(importers: Importers, tmp_path: Path) -> None:
    lines = [
        line("user", "u", PROMPT),
        line("assistant", "a", thinking(), parent="u", message="m"),
        line("assistant", "b", says("First this."), parent="a", message="m"),
        line("assistant", "c", says("Then that."), parent="b", message="m"),
    ]
    for end in (3, 4, 3):
        importers(write(tmp_path / "s.jsonl", lines[:end]))
    (grown,) = importers.shown()
    assert grown["conclusion"] == "First this.\n\nThen that."


def test_thinking_that_goes_on_is_an_extension_of_what_stands(importers: Importers, tmp_path: Path) -> None:
    one, two = thinking("One. It is so."), thinking("Two, therefore it is not.")
    lines = [
        line("user", "u", PROMPT),
        line("assistant", "a", one, parent="u", message="m"),
        line("assistant", "b", two, parent="a", message="m"),
    ]
    importers(write(tmp_path / "s.jsonl", lines[:2]))
    importers(write(tmp_path / "s.jsonl", lines))
    (grown,) = importers.shown()
    assert [step["content"] for step in grown["memory"]["steps"]] == ["One. It is so.", "Two, therefore it is not."]
    assert [version["kind"] for version in grown["versions"]] == [
        "reasoning.started",
        "reasoning.extended",
        "reasoning.extended",
    ]


def test_only_who_imported_the_beginning_imports_the_rest(importers: Importers, tmp_path: Path) -> None:
    lines = session()
    importers(write(tmp_path / "s.jsonl", lines[:2]), "alice")
    totals = importers(write(tmp_path / "s.jsonl", lines), "bob")
    assert (totals.mapped, [one.reason.partition(":")[0] for one in totals.unmapped_records]) == (0, ["NOT_AUTHORIZED"])
    assert importers(tmp_path, "alice").added == 1


def test_response_under_ids_that_mean_another_is_imported_by_its_content(importers: Importers, tmp_path: Path) -> None:
    importers(write(tmp_path / "a.jsonl", session(1, text="This is one thing. It is so.")))
    other = write(tmp_path / "b.jsonl", session(1, text="This is quite another."))
    assert importers(other).added == 3
    assert importers(other).added == 0
    assert len(importers.shown()) == 2


def test_agents_own_reasoning_under_the_same_id_stays_his_own(importers: Importers, tmp_path: Path) -> None:
    file = write(tmp_path / "s.jsonl", session())
    importers(file)
    (name,) = [one["id"] for one in importers.shown()]
    with Ledger(tmp_path / "other") as ledger:
        others = Importers(ledger)
        ledger.emit("bob", f"reasoning/{name}", ReasoningStarted(task="mine"))
        assert others(file).added == 3
        assert {one["imported"] is None for one in others.shown()} == {True, False}
        others.reader.close()


def test_response_with_a_secret_is_kept_aside_without_a_word_of_it(importers: Importers, tmp_path: Path) -> None:
    lines = [*session(1), *session(2, text=f"The key is {GITHUB}, therefore rotate it."), *session(3)]
    totals = importers(write(tmp_path / "s.jsonl", lines))
    assert (totals.read, totals.mapped, totals.unmapped) == (3, 2, 1)
    assert totals.unmapped_records[0].reason.startswith("SECRET_DETECTED: $.content[0].thinking")
    assert GITHUB not in str(totals.answer())
    (aside,) = [event for event in importers.imported() if event.data.mapped_kind is None]
    note = importers.client.get_blob(aside.data.original)
    assert GITHUB.encode() not in note
    assert b"msg_2" in note
    assert importers(tmp_path).added == 0
    assert all(GITHUB not in str(event.data) for event in importers.imported())


def test_prompt_with_a_secret_is_left_out_and_its_response_comes_in(importers: Importers, tmp_path: Path) -> None:
    totals = importers(write(tmp_path / "s.jsonl", session(prompt=f"Why does {GITHUB} fail?")))
    assert (totals.mapped, totals.unmapped) == (1, 0)
    (shown,) = importers.shown()
    assert GITHUB not in str(shown)
    assert shown["imported"]["claims"]["dirty"][0]["path"] == "prompt"
    assert importers(tmp_path).added == 0


def test_encrypted_response_that_grew_is_kept_aside_once(importers: Importers, tmp_path: Path) -> None:
    lines = [
        line("assistant", "a", thinking("", "c2ln"), message="m"),
        line("assistant", "b", [{"type": "text", "text": ANSWER}], parent="a", message="m"),
    ]
    assert importers(write(tmp_path / "s.jsonl", lines[:1])).added == 1
    (aside,) = importers.imported()
    assert importers.client.get_blob(aside.data.original) == encoded(lines[:1])
    again = importers(write(tmp_path / "s.jsonl", lines))
    assert (again.added, again.unmapped) == (0, 1)
    with pytest.raises(Refused) as refusal:  # no blob is stored that no event references
        importers.client.get_blob("blake3:" + blake3(encoded(lines)).hexdigest())
    assert refusal.value.code == "NOT_FOUND"


def test_line_with_a_secret_that_is_no_json_is_kept_aside_by_a_note(importers: Importers, tmp_path: Path) -> None:
    totals = importers(write(tmp_path / "s.jsonl", [f"{{broken {GITHUB}\n".encode()]))
    assert (totals.unmapped, totals.added) == (1, 1)
    assert [one.reason.partition(":")[0] for one in totals.unmapped_records] == ["SECRET_DETECTED"]
    assert importers(tmp_path).added == 0


def test_whole_text_of_a_long_prompt_is_in_a_blob_that_is_named(importers: Importers, tmp_path: Path) -> None:
    lines = session(prompt="Look at this: " + "word " * 2_000)
    importers(write(tmp_path / "s.jsonl", lines))
    (shown,) = importers.shown()
    assert shown["memory"]["task"].endswith("word…")
    assert importers.client.get_blob(shown["imported"]["claims"]["said"]["prompt"]) == encoded(lines[:1])


def test_thinking_of_any_length_is_one_batch_of_many_events(importers: Importers, tmp_path: Path) -> None:
    text = "\n\n".join(f"Paragraph {number} says that it leaks {'very ' * 40}much." for number in range(900))
    totals = importers(write(tmp_path / "s.jsonl", session(text=text)))
    (shown,) = importers.shown()
    assert (totals.read, totals.mapped) == (1, 1)
    assert totals.added == len(importers.imported()) > 5
    assert [step["content"] for step in shown["memory"]["steps"]] == text.split("\n\n")


def test_thinking_that_no_batch_holds_is_kept_aside(importers: Importers, tmp_path: Path) -> None:
    text = "\n\n".join(f"Paragraph {number} {'很长 ' * 100}" for number in range(1_400))
    totals = importers(write(tmp_path / "s.jsonl", [*session(1), *session(2, text=text)]))
    assert (totals.read, totals.mapped, totals.unmapped) == (2, 1, 1)
    assert importers(tmp_path).added == 0
    (aside,) = [event for event in importers.imported() if event.data.mapped_kind is None]
    assert "Paragraph 1399" in importers.client.get_blob(aside.data.original).decode()


def test_import_that_is_cut_off_is_finished_by_the_next(importers: Importers, tmp_path: Path) -> None:
    lines = [one for number in range(200) for one in session(number, text=f"This is thought {number}. So it is.")]
    file = write(tmp_path / "s.jsonl", lines)
    with pytest.raises(Unavailable):
        importers(file, batches_max=2)
    before: int = importers.reader.answer("reasoning.list")["total"]
    rest = importers(file)
    assert 0 < before < 200
    assert (rest.read, rest.mapped, rest.added) == (200, 200, 3 * (200 - before))
    assert importers.reader.answer("reasoning.list")["total"] == 200
    assert importers(file).added == 0


def test_who_may_not_import_is_told_so(importers: Importers, tmp_path: Path) -> None:
    key = key_named("stranger")
    importers.ledger.keys["stranger"] = key
    with pytest.raises(Refused) as refusal:
        importers(write(tmp_path / "s.jsonl", session()), "stranger")
    assert refusal.value.code == "KEY_UNKNOWN"


def test_importer_adds_no_step_of_his_own(importers: Importers, tmp_path: Path) -> None:
    importers(write(tmp_path / "s.jsonl", session()))
    (shown,) = importers.shown()
    step = Step(step_number=99, type="observation", content="mine")
    with pytest.raises(Refused) as refusal:
        importers.ledger.emit("alice", f"reasoning/{shown['id']}", ReasoningExtended(steps=[step]))
    assert refusal.value.code == "TRANSITION_NOT_ALLOWED"
