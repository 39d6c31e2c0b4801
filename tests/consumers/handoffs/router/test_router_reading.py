"""A file of chains is read strictly: whatever is wrong with it is named, with the file and the place in it."""

from __future__ import annotations

from pathlib import Path

import pytest
from chain_files import STORY

from deedbook.consumers.handoffs.router.chains_file import (
    ChainsFile,
    chains_max,
    hops_limit,
    lines_max,
    read_chains,
    steps_max,
)
from deedbook.ledger.errors import Refused
from deedbook.ledger.limits import config_size_max_bytes

HEAD = '[[chain]]\nname = "c"\nwhen = "handoff.verified"\n'
THEN = 'then = {to = "b", title = "t"}\n'
ONE = HEAD + THEN
STEP = '{to = "b", title = "t"},'


def test_file_is_read_whole() -> None:
    validate, optimize = read_chains(STORY)
    assert (validate.name, validate.kinds, validate.hops_max) == ("validate", {"handoff.verified"}, 8)
    assert [(one.name, one.patterns) for one in validate.where] == [("to", ("minimax",)), ("title", ("Tests*",))]
    assert validate.steps[0].unlock_at == "verified"
    assert optimize.kinds == {"handoff.completed", "handoff.verified"}


def test_empty_file_has_no_chains() -> None:
    assert read_chains(b"") == read_chains(b"# nothing yet\n") == ()


def test_step_may_be_one_table_or_several() -> None:
    several = HEAD + '[[chain.then]]\nto = "b"\ntitle = "1"\n[[chain.then]]\nto = "c"\ntitle = "2"\n'
    assert [len(read_chains(text.encode())[0].steps) for text in (ONE, several)] == [1, 2]


BAD = {
    "not TOML": ("[[chain]\n", "INVALID_FORMAT", "line 1"),
    "a key twice": (ONE + 'name = "d"\n', "INVALID_FORMAT", "line"),
    "nested too deep": ("a = " + "[" * 9000, "INVALID_FORMAT", "TOML"),
    "an unknown table": (ONE + '[chains]\na = "b"\n', "UNKNOWN_FIELD", "'chains'"),
    "an unknown key": (HEAD + "enabled = true\n" + THEN, "UNKNOWN_FIELD", "$.chain[0]"),
    "an unknown key of a step": (HEAD + 'then = {to = "b", title = "t", due = "x"}\n', "UNKNOWN_FIELD", ".then"),
    "an unknown condition": (HEAD + 'where = {status = "x"}\n' + THEN, "UNKNOWN_FIELD", "'status'"),
    "no step": (HEAD, "INVALID_FIELD", "then"),
    "an empty list of steps": (HEAD + "then = []\n", "INVALID_FIELD", "no step"),
    "an empty list of kinds": ('[[chain]]\nname = "c"\nwhen = []\n' + THEN, "INVALID_FIELD", ".when"),
    "an unknown kind": (ONE.replace("verified", "done"), "INVALID_FIELD", "handoff.done"),
    "a kind of something else": (ONE.replace("handoff.verified", "session.ended"), "INVALID_FIELD", ".when"),
    "an empty condition": (HEAD + "where = {to = []}\n" + THEN, "INVALID_FIELD", "$.chain[0].where.to"),
    "a condition of a wrong type": (HEAD + "where = {to = 3}\n" + THEN, "INVALID_FIELD", ".where"),
    "a wrong type": (HEAD + 'then = {to = "b", title = 7}\n', "INVALID_FIELD", ".title"),
    "a date for a text": (HEAD + 'then = {to = "b", title = 2026-02-12}\n', "INVALID_FIELD", ".title"),
    "no title": (HEAD + 'then = {to = "b"}\n', "INVALID_FIELD", "title"),
    "an empty title": (HEAD + 'then = {to = "b", title = " "}\n', "INVALID_FIELD", ".title"),
    "nobody's name": (HEAD + 'then = {to = "Bob Smith", title = "t"}\n', "INVALID_FIELD", "not a valid agent name"),
    "a bad chain's name": (ONE.replace('"c"', '"a:b"'), "INVALID_FIELD", "name"),
    "two chains of one name": (ONE + ONE, "INVALID_FIELD", "$.chain[1].name"),
    "no hops": (HEAD + "hops_max = 0\n" + THEN, "INVALID_FIELD", "hops_max"),
    "too many hops": (HEAD + f"hops_max = {hops_limit + 1}\n" + THEN, "INVALID_FIELD", "hops_max"),
    "an unknown unlock": (HEAD + 'then = {to = "b", title = "t", unlock_at = "soon"}\n', "INVALID_FIELD", "unlock_at"),
    "a long template": (HEAD + f'then = {{to = "b", title = "{"x" * 201}"}}\n', "INVALID_FIELD", "200 characters"),
    "a long line": (
        HEAD + f'then = {{to = "b", title = "t", tasks = ["{"x" * 2001}"]}}\n',
        "INVALID_FIELD",
        "tasks[0]",
    ),
    "a long text": (HEAD + f'then = {{to = "b", title = "t", task = "{"x" * 40_001}"}}\n', "INVALID_FIELD", ".task"),
    "too many lines": (
        HEAD + 'then = {to = "b", title = "t", tasks = [' + '"x",' * (lines_max + 1) + "]}\n",
        "INVALID_FIELD",
        ".tasks",
    ),
    "too many steps": (HEAD + f"then = [{STEP * (steps_max + 1)}]\n", "INVALID_FIELD", ".then"),
    "too many chains": (
        "".join(ONE.replace('"c"', f'"c{number}"') for number in range(chains_max + 1)),
        "INVALID_FIELD",
        "$.chain",
    ),
    "too many bytes": ("#" * (config_size_max_bytes + 1), "TOO_LARGE", "bytes"),
}


@pytest.mark.parametrize("what", sorted(BAD))
def test_file_is_refused_with_its_place(what: str) -> None:
    text, code, said = BAD[what]
    with pytest.raises(Refused) as refused:
        read_chains(text.encode(), "ours.toml")
    assert refused.value.code == code
    assert said in refused.value.message
    assert refused.value.message.startswith("ours.toml")
    assert refused.value.details["file"] == "ours.toml"


def test_bytes_that_are_not_utf8_are_refused() -> None:
    with pytest.raises(Refused, match="not TOML"):
        read_chains(b'name = "\xff"')


def test_unknown_placeholder_is_named_with_its_field_and_line() -> None:
    text = ONE + HEAD.replace('"c"', '"d"') + '[chain.then]\nto = "b"\ntitle = "t"\ntasks = ["{id}", "by {whom}"]\n'
    with pytest.raises(Refused) as refused:
        read_chains(text.encode())
    assert refused.value.details["path"] == "$.chain[1].then[0].tasks[1]"
    assert refused.value.details["line"] == text[: text.index("{whom}")].count("\n") + 1
    assert "{whom}" in refused.value.message


def test_changed_file_is_read_again_and_a_broken_one_leaves_the_old_chains(tmp_path: Path) -> None:
    path = tmp_path / "chains.toml"
    file = ChainsFile(path)

    def names() -> list[str]:
        found = file.current()
        assert found is not None
        return [chain.name for chain in found]

    assert names() == []
    path.write_text(ONE, "utf-8")
    assert names() == ["c"]
    path.write_text(ONE.replace('"c"', '"d"'), "utf-8")
    assert names() == ["d"]
    path.write_text(ONE[:40], "utf-8")
    assert names() == names() == ["d"]
    assert file.problem is not None
    assert file.problem.details["file"] == str(path)
    path.write_text(ONE, "utf-8")
    assert names() == ["c"]
    assert file.problem is None
    path.unlink()
    assert names() == []


def test_file_that_was_never_right_gives_no_chains_to_route_by(tmp_path: Path) -> None:
    path = tmp_path / "chains.toml"
    path.write_text("[[chain]]", "utf-8")
    assert ChainsFile(path).current() is None


def test_file_that_is_being_written_is_not_believed_before_it_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "chains.toml"
    path.write_text(ONE, "utf-8")
    file = ChainsFile(path)
    assert file.current() is not None
    two = (ONE + ONE.replace('"c"', '"d"')).encode()
    contents = iter([b"", ONE.encode() + b"# and", two, two])
    monkeypatch.setattr(file, "_read", lambda: next(contents))
    found = file.current()
    assert found is not None
    assert [chain.name for chain in found] == ["c", "d"]


def test_file_that_cannot_be_read_for_a_while_leaves_the_old_chains(tmp_path: Path) -> None:
    path = tmp_path / "chains.toml"
    path.write_text(ONE, "utf-8")
    file = ChainsFile(path)
    before = file.current()
    path.unlink()
    path.mkdir()
    assert file.current() == before
    assert file.problem is not None
    assert (file.problem.code, "is a folder" in file.problem.message) == ("INVALID_FORMAT", True)
    path.rmdir()
    path.write_text(ONE, "utf-8")
    assert file.current() == before
    assert file.problem is None


def test_wrong_file_that_was_a_folder_for_a_while_is_named_again_for_what_is_wrong_in_it(tmp_path: Path) -> None:
    path = tmp_path / "chains.toml"
    file = ChainsFile(path)
    messages = []
    for is_folder in (False, True, False):
        if is_folder:
            path.mkdir()
        else:
            path.write_text(ONE[:40], "utf-8")
        assert file.current() is None
        assert file.problem is not None
        messages.append(file.problem.message)
        if is_folder:
            path.rmdir()
        else:
            path.unlink()
    assert messages[0] == messages[2] != messages[1]
