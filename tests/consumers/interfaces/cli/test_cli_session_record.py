"""A file of learned facts, recorded at once: all of it or nothing, each fault with its line, and once only."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from deedbook.consumers.interfaces.cli.commands.session_record import read_entries
from deedbook.ledger.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Callable

    from calling import Deed

    Fresh = Callable[[str], str]


@pytest.fixture
def session(deed: Deed, fresh: Fresh) -> str:
    deed("session", "start", name := fresh("s"), "--task", "tokens", "--as", "a")
    return name


def record(deed: Deed, tmp_path: Path, session: str, text: str) -> Any:
    (file := tmp_path / "entries.txt").write_text(text, "utf-8")
    return deed.data("session", "record", session, file, "--as", "a")


def faults(text: str) -> dict[int, str]:
    with pytest.raises(Refused) as refused:
        read_entries(text, [])
    assert refused.value.code == "INVALID_FORMAT"
    return {one["line"]: one["message"] for one in refused.value.details["faults"]}


def test_an_artifact_is_kept_with_its_content(deed: Deed, session: str, tmp_path: Path) -> None:
    (probe := tmp_path / "probe.py").write_text("print(1)\n", "utf-8")
    record(deed, tmp_path, session, f"artifact: {probe}\n")
    (tool,) = deed.data("session", "show", session)["tools"]
    ref = tool["purpose"].removeprefix("kept: ")
    deed("blob", "get", ref, "-o", tmp_path / "back.py")
    assert (tmp_path / "back.py").read_bytes() == probe.read_bytes()


def test_an_artifact_that_is_no_file_is_refused_and_not_waited_for(
    deed: Deed, session: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to("/etc/passwd")
    (tmp_path / "way").symlink_to("/etc")
    os.mkfifo(tmp_path / "pipe")
    for name, why in (
        ("link", "is a link: name the file"),
        ("way/passwd", "is a link"),
        ("pipe", "is a pipe"),
        ("none", "there is no file"),
    ):
        (file := tmp_path / "e.txt").write_text(f"artifact: {tmp_path / name}\n")
        error = deed.refuses(
            "NOT_FOUND" if name == "none" else "INVALID_FORMAT",
            "session",
            "record",
            session,
            file,
            "--as",
            "a",
        )
        assert why in error["message"]


def test_what_is_no_utf_8_is_refused_and_not_mended(deed: Deed, session: str, tmp_path: Path) -> None:
    (file := tmp_path / "e.txt").write_bytes(b"finding: \xff\n")
    told = deed.refuses("INVALID_FORMAT", "session", "record", session, file, "--as", "a")["message"]
    assert told == "the file of entries is not UTF-8 (in line 1)"


def test_dead_end_without_a_basis_is_said_to_count_as_tried(deed: Deed, session: str, tmp_path: Path) -> None:
    dead_end = ("session", "dead-end", session, "A cache", "--why", "it hides it", "--as", "a")
    assert deed(*dead_end).endswith(", as tried; --basis argued if nobody tried it\n")
    assert "as tried" not in deed(*dead_end, "--basis", "tried")
    for basis, is_said in (("", True), ("  basis: argued\n", False)):
        (file := tmp_path / "e.txt").write_text(f"dead-end: A cache\n  why: it hides it\n{basis}")
        said = deed("session", "record", session, file, "--as", "a")
        assert ("dead ends as tried: `basis: argued` if nobody tried it" in said) is is_said


def test_each_fault_is_named_by_its_line() -> None:
    text = "finding: x\n  why: y\nfindin: y\ndead-end: z\ntool:\nstep: q\n"
    text += "reasoning: r\n  task: t\nstep: a\n  rests-on: b\n"
    found = faults(text)
    assert list(found) == [2, 3, 4, 5, 6, 9]
    assert found[2] == "a finding takes no why"
    assert faults("finding: x\n  evidense: a.py:1\n")[2] == "a finding takes no evidense: did you mean evidence?"
    assert "'findin: y' begins no entry" in found[3]
    assert found[4] == "dead-end: add a line below it, indented: why: TEXT"
    assert found[5] == "tool: its text is empty"
    assert faults("finding: x\n  impact: 3\n")[1] == "finding: its impact: Expected `float` <= 1.0"
    assert faults("reasoning: r\nconclude: x\n  confidence: 3\n")[2].startswith("conclude: its confidence: ")
    assert "write `reasoning: ID` above it" in found[6]
    assert faults("")[1].startswith("there is no entry")
    assert faults("reasoning: r\nsettle: so\n")[2] == "settle: add a line below it, indented: step: TEXT"
    assert faults("reasoning: r\n")[1].startswith("there is no entry")


def test_a_word_that_is_none_of_a_few_is_answered_with_them() -> None:
    step = "reasoning: r\n  task: t\nstep: a\n"
    assert faults(f"{step}  type: fact\n")[3].startswith("step: its type is one of observation, inference, ")
    assert faults(f"{step}  reasoning-type: fun\n")[3].startswith("step: its reasoning-type is one of deductive, ")


def test_steps_are_named_with_commas_or_blanks() -> None:
    text = "reasoning: r\n  task: t\nstep: a\nstep: b\nstep: c\n  rests-on: 1 2\n  rests-on: 1, 2\n"
    assert getattr(read_entries(text, [])[-1].data, "rests_on", None) == [1, 2, 1, 2]


def test_what_looks_like_an_option_in_a_text_is_text() -> None:
    (entry,) = read_entries("finding: a\n  http://x: y\n  Note: that goes on\n", [])
    assert entry.data is not None
    assert getattr(entry.data, "finding", "") == "a\nhttp://x: y\nNote: that goes on"


def test_artifacts_of_a_result_are_kept_on_wish(deed: Deed, fresh: Fresh, tmp_path: Path) -> None:
    (probe := tmp_path / "probe.py").write_text("print(2)\n", "utf-8")
    options = ["--to", "b", "--reviewer", "rita", "--title", "t", "--as", "a", "--session", "none"]
    deed("handoff", "create", name := fresh("h"), *options)
    deed("handoff", "approve", name, "--as", "rita", *deed.as_read(name))
    deed("handoff", "claim", name, "--as", "b")
    deed("handoff", "complete", name, "--artifact", probe, "--artifact", "commit 1a2b", "--keep", "--as", "b")
    artifact, commit = deed.data("handoff", "show", name)["artifacts"]
    path, _, ref = artifact.rstrip(")").partition(" (kept: ")
    assert (path, commit) == (str(probe), "commit 1a2b")
    assert deed("blob", "get", ref) == "print(2)\n"
    shown = deed("handoff", "show", name)
    assert f"\n  artifact {probe}: `deed blob get {ref}`\n  artifact commit 1a2b\n" in shown


def test_more_than_one_batch_is_refused_with_the_line_to_split_at(deed: Deed, session: str, tmp_path: Path) -> None:
    (file := tmp_path / "e.txt").write_text("".join(f"finding: {number}\n" for number in range(300)))
    error = deed.refuses("TOO_LARGE", "session", "record", session, file, "--as", "a")
    assert error["message"].endswith("300 entries: one batch holds 256, so split before line 257")


def test_a_session_of_a_long_id_is_recorded_in_and_only_once(deed: Deed, fresh: Fresh, tmp_path: Path) -> None:
    deed("session", "start", name := fresh("s" * 190), "--as", "a")
    first = record(deed, tmp_path, name, "finding: one\nfinding: two\n")
    assert record(deed, tmp_path, name, "finding: one\nfinding: two\n")["is_repeat"]
    assert first["counts"] == {"finding": 2}


def test_conclusion_names_the_steps_that_it_rests_on_and_unlinked_steps_are_told(
    deed: Deed, session: str, fresh: Fresh, tmp_path: Path
) -> None:
    name = fresh("why")
    text = f"reasoning: {name}\n  task: Why?\nstep: Seen\n  type: observation\nstep: So it is\nconclude: Mend it\n"
    answer = record(deed, tmp_path, session, f"{text}  rests-on: 1,2\nfinding: f\n")
    assert [one.partition(":")[0] for one in answer["warnings"]] == [
        f"step 2 of {name} is unlinked (its words suggest 1)"
    ]
    shown = deed.data("reasoning", "show", name)["memory"]
    assert [step["content"] for step in shown["steps"]] == ["Seen", "So it is", "Mend it"]
    assert (shown["dependencies"], shown["conclusion"]) == ({"3": [1, 2]}, "Mend it")
    again = record(deed, tmp_path, session, f"{text}  rests-on: 1,2\nfinding: f\n")
    assert again["is_repeat"]
    # A conclusion with the same text as a step is still another step.
    record(deed, tmp_path, session, f"reasoning: {name}\nconclude: So it is\n  rests-on: 2\n")
    assert deed.data("reasoning", "show", name)["memory"]["dependencies"]["4"] == [2]


def test_doubtful_line_is_named_and_a_dry_run_signs_nothing(deed: Deed, fresh: Fresh, tmp_path: Path) -> None:
    file, name = tmp_path / "entries", fresh("s")
    file.write_text("topic: auth\ndead-end: A cache\n  why: hides\n  sure: yes\n  tried: no\nartifact: absent.txt\n")
    deed("session", "start", name, "--as", "a")
    plan = deed.data("session", "record", name, file, "--dry-run", "--as", "a")
    assert plan["warnings"] == ["line 4: a dead-end has no option 'sure', so this is text (why, impact, topic, basis)"]
    assert [(row["line"], row["kind"]) for row in plan["entries"]] == [(2, "dead-end"), (6, "artifact")]
    assert plan["entries"][0]["fields"]["basis"] == "argued"
    assert deed.data("session", "show", name)["counts"]["dead_ends"] == 0
    deed.refuses("NOT_FOUND", "session", "record", name, file, "--as", "a")
