"""Setup writes our parts and removes them: every file is restored byte for byte, and no edit is lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from typing import TYPE_CHECKING, Any

import pytest
from harness_place import tree

from deedbook.consumers.interfaces.hooks.harnesses import HARNESSES
from deedbook.consumers.interfaces.hooks.installation import Installation, Launcher
from deedbook.consumers.interfaces.hooks.json_text import scan
from deedbook.consumers.interfaces.hooks.parts import State, Whole
from deedbook.consumers.interfaces.hooks.record import record_path
from deedbook.ledger.errors import Refused, Unavailable

if TYPE_CHECKING:
    from pathlib import Path

    from deedbook.consumers.interfaces.hooks.harnesses import Files, Scope

pytestmark = pytest.mark.parametrize("harness", list(HARNESSES))

JSON_BEFORE = {
    "none": None,
    "empty object": b"{}",
    "with comments": b'// mine\n{\n  "theme": "dark", // dark\n  "hooks": {}, /* empty */\n}\n',
    "windows": b'{\r\n    "theme": "dark"\r\n}\r\n',
    "byte order mark": b'\xef\xbb\xbf{"theme": "dark"}',
    "byte order mark alone": b"\xef\xbb\xbf{}",
    "theirs beside ours": b'{"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "mine"}]}], '
    b'"SessionStart": []}, "mcpServers": {"theirs": {"command": "x"}}, "unknown": [1, 2.50, 1e3]}',
}
TEXT_BEFORE = {
    "none": None,
    "empty object": b"",
    "with comments": b"# Mine\n\n<!-- a comment -->\n\n\n",
    "windows": b"# Mine\r\n\r\ntext\r\n",
    "byte order mark": b"\xef\xbb\xbf# Mine",
    "byte order mark alone": b"\xef\xbb\xbf",
    "theirs beside ours": "# 我的\n\n没有换行".encode(),
}
TOML_BEFORE = {
    "none": None,
    "empty object": b"",
    "with comments": b'# mine\nmodel = "m" # a model\n\n[mcp_servers.theirs]\ncommand = "x"\n',
    "windows": b'model = "m"\r\n[features]\r\nhooks = true\r\n',
    "byte order mark": b'\xef\xbb\xbfmodel = "m"',
    "byte order mark alone": b"\xef\xbb\xbf",
    "theirs beside ours": b'[mcp_servers]\n[mcp_servers.theirs]\ncommand = "x"',
}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The state folder and home of this test."""
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    for name in ("XDG_STATE_HOME", "CODEX_HOME", "CLAUDE_CONFIG_DIR"):
        monkeypatch.delenv(name, raising=False)
    return folder


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """An empty project."""
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


def installation(harness: str, project: Path, agent: str = "me", **options: Any) -> Installation:
    return Installation(HARNESSES[harness], project, Launcher("/my tools/bin/deed", agent), **options)


def states(found: Installation) -> set[State]:
    return {one.state for one in found.check()}


def before_of(path: Path, name: str) -> bytes | None:
    return {".json": JSON_BEFORE, ".toml": TOML_BEFORE, ".md": TEXT_BEFORE}[path.suffix][name]


def put(files: Files, name: str) -> None:
    for path in set(files) - {files.command}:  # only Deedbook writes it: setup refuses to replace a foreign one
        content = before_of(path, name)
        if content is not None:
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content)


@pytest.mark.parametrize("name", list(JSON_BEFORE))
@pytest.mark.parametrize("scope", ["local", "team", "user"])
def test_removal_leaves_every_file_and_folder_as_before(
    harness: str, name: str, project: Path, tmp_path: Path, *, scope: Scope
) -> None:
    folder = tmp_path / "home" if scope == "user" else project
    put(HARNESSES[harness].files(folder, scope), name)
    before = tree(tmp_path)
    assert states(installation(harness, folder, scope=scope)) == {State.MISSING}
    installation(harness, folder, scope=scope).install()
    assert states(installation(harness, folder, scope=scope)) == {State.INSTALLED}
    installed = tree(tmp_path)
    assert {one.done for one in installation(harness, folder, scope=scope).install()} == {"unchanged"}
    assert tree(tmp_path) == installed
    assert before.keys() < installed.keys() or before != installed
    installation(harness, folder, scope=scope).remove()
    assert tree(tmp_path) == before


def test_settings_keep_what_they_had_and_get_what_the_harness_takes(harness: str, project: Path) -> None:
    files = HARNESSES[harness].files(project, "local")
    put(files, "theirs beside ours")
    was = scan(files.settings.read_text()).value
    installation(harness, project).install()
    found = scan(files.settings.read_text()).value
    assert found["unknown"] == was["unknown"]
    assert was["hooks"]["Stop"][0] in found["hooks"]["Stop"]
    for event in HARNESSES[harness].events:
        (group,) = (one for one in found["hooks"][event] if one not in was["hooks"].get(event, []))
        (handler,) = group["hooks"]
        assert handler["type"] == "command"
        assert handler["command"] == f"'/my tools/bin/deed' hook {harness} --as me"
        assert 0 < handler["timeout"] / HARNESSES[harness].timeout_units_per_s <= 5


def test_a_folder_that_was_there_before_stays(harness: str, project: Path, tmp_path: Path) -> None:
    HARNESSES[harness].files(project, "local").settings.parent.mkdir()
    before = tree(tmp_path)
    installation(harness, project).install()
    installation(harness, project).remove()
    assert tree(tmp_path) == before


def test_another_agent_or_interpreter_is_outdated_and_brought_up_to_date(
    harness: str, project: Path, tmp_path: Path
) -> None:
    before = tree(tmp_path)
    installation(harness, project, "old").install()
    assert State.OUTDATED in states(installation(harness, project, "new"))
    assert State.EDITED not in states(installation(harness, project, "new"))
    installation(harness, project, "new").install()
    assert states(installation(harness, project, "new")) == {State.INSTALLED}
    installation(harness, project, "new").remove()
    assert tree(tmp_path) == before


@pytest.mark.parametrize("has_record", [True, False], ids=["recorded", "no record"])
def test_edits_around_our_part_stay_when_it_goes(harness: str, project: Path, *, has_record: bool) -> None:
    files = HARNESSES[harness].files(project, "local")
    put(files, "with comments")
    installation(harness, project).install()
    files.page.write_bytes(b"above\n" + files.page.read_bytes() + b"below\n")
    text = files.settings.read_text().replace('"theme": "dark"', '"theme": "light", "new": 1')
    files.settings.write_text(text)
    if not has_record:
        record_path(harness, project).unlink()
    assert states(installation(harness, project)) == {State.INSTALLED}
    installation(harness, project).remove()
    assert files.page.read_bytes() == b"above\n" + TEXT_BEFORE["with comments"] + b"below\n"
    kept = files.settings.read_text()
    assert scan(kept).value["theme"] == "light"
    assert scan(kept).value["new"] == 1
    assert "deed" not in kept
    assert "// mine" in kept
    assert "// dark" in kept


@pytest.mark.parametrize("verb", ["install", "remove"])
def test_an_edit_inside_the_block_is_refused_and_kept_when_forced(
    harness: str, verb: str, project: Path, tmp_path: Path
) -> None:
    page = HARNESSES[harness].files(project, "local").page
    installation(harness, project).install()
    edited = page.read_bytes().replace(b"Set DEEDBOOK_AGENT", b"Never tick tasks")
    page.write_bytes(edited)
    before = tree(tmp_path)
    assert State.EDITED in states(installation(harness, project))
    with pytest.raises(Refused) as refusal:
        getattr(installation(harness, project), verb)()
    assert refusal.value.code == "EDITED_BY_HAND"
    assert tree(tmp_path) == before
    told = getattr(installation(harness, project, kept=tmp_path / "kept"), verb)(force=True)
    (copy,) = (one.kept for one in told if one.kept is not None)
    assert copy.read_bytes() == edited
    assert not page.exists() or b"Never tick" not in page.read_bytes()


def test_an_edit_of_our_hook_is_refused_and_kept_when_forced(harness: str, project: Path, tmp_path: Path) -> None:
    settings = HARNESSES[harness].files(project, "local").settings
    installation(harness, project).install()
    edited = settings.read_text().replace('"timeout": 5', '"timeout": 9', 1)
    settings.write_text(edited)
    with pytest.raises(Refused) as refusal:
        installation(harness, project).remove()
    assert refusal.value.code == "EDITED_BY_HAND"
    told = installation(harness, project, kept=tmp_path / "kept").remove(force=True)
    assert [one.kept.read_text() for one in told if one.kept is not None] == [edited]
    assert not settings.exists()


def test_the_command_tot_is_in_the_form_that_the_harness_reads(harness: str, project: Path) -> None:
    installation(harness, project).install()
    path = HARNESSES[harness].files(project, "local").command_of("tot")
    text = path.read_text("utf-8")
    places = {"tot.md": "$ARGUMENTS", "tot.toml": "{{args}}", "SKILL.md": "$tot"}
    assert text.count(places[path.name]) == 1
    assert all(text.count(place) == 0 for name, place in places.items() if name != path.name)
    if path.name == "tot.toml":
        command = tomllib.loads(text)
        assert sorted(command) == ["description", "prompt"]
        assert '"type": "thoughts"' in command["prompt"]
    else:
        _, head, body = text.split("---\n", 2)
        assert ("name: tot\n" in head) == (path.name == "SKILL.md")
        assert "description: Search" in head
        assert '"type": "thoughts"' in body


def test_command_of_an_earlier_version_is_updated_and_somebodys_own_is_left_alone(harness: str, project: Path) -> None:
    path = HARNESSES[harness].files(project, "local").command_of("tot")
    found = installation(harness, project)
    found.parts[path] = Whole("an earlier version\n")
    found.install()
    assert {one.done for one in installation(harness, project).install()} == {"unchanged", "updated"}
    ours = path.read_text("utf-8")
    path.write_text("my own /tot\n", "utf-8")
    for act in (installation(harness, project).install, installation(harness, project).remove):
        with pytest.raises(Refused) as refusal:
            act()
        assert refusal.value.code == "EDITED_BY_HAND"
    (kept,) = [one.kept for one in installation(harness, project).install(force=True) if one.kept]
    assert (kept.read_text("utf-8"), path.read_text("utf-8")) == ("my own /tot\n", ours)
    installation(harness, project).remove()
    assert not path.parent.exists()


def test_a_hook_that_somebody_added_beside_ours_stays(harness: str, project: Path) -> None:
    settings = HARNESSES[harness].files(project, "local").settings
    installation(harness, project).install()
    document = json.loads(settings.read_text())
    theirs = {"hooks": [{"type": "command", "command": "theirs"}]}
    document["hooks"]["SessionStart"].append(theirs)
    settings.write_text(json.dumps(document))
    assert states(installation(harness, project)) == {State.INSTALLED}
    installation(harness, project).remove()
    assert json.loads(settings.read_text()) == {"hooks": {"SessionStart": [theirs]}}


BROKEN = {
    "INVALID_FORMAT": [b"not settings", b"\xff\xfe{}", b"", b"{} trailing"],
    "INVALID_FIELD": [b"[]", b'{"hooks": true}'],
    "NESTING_TOO_DEEP": [b'{"a":' * 5000 + b"1" + b"}" * 5000],
}


@pytest.mark.parametrize(
    ("code", "content"), [(code, one) for code, contents in BROKEN.items() for one in contents], ids=str
)
def test_settings_that_are_none_are_refused_and_nothing_is_written(
    harness: str, code: str, content: bytes, project: Path, tmp_path: Path
) -> None:
    settings = HARNESSES[harness].files(project, "local").settings
    settings.parent.mkdir()
    settings.write_bytes(content)
    before = tree(tmp_path)
    with pytest.raises(Refused) as refusal:
        installation(harness, project).install()
    assert refusal.value.code == code
    assert str(settings) in refusal.value.message
    assert tree(tmp_path) == before


def test_a_link_is_refused_and_nothing_is_written(harness: str, project: Path, tmp_path: Path) -> None:
    page = HARNESSES[harness].files(project, "local").page
    (project / "other.md").write_text("other")
    page.symlink_to("other.md")
    before = tree(tmp_path)
    with pytest.raises(Refused) as refusal:
        installation(harness, project).install()
    assert refusal.value.code == "INVALID_FORMAT"
    assert tree(tmp_path) == before
    assert page.is_symlink()


def test_a_folder_that_leads_out_of_the_project_is_not_written_into(
    harness: str, project: Path, tmp_path: Path
) -> None:
    (outside := tmp_path / "outside").mkdir()
    settings = HARNESSES[harness].files(project, "team").settings
    settings.parent.symlink_to(outside)
    for scope in ("local", "team"):
        with pytest.raises(Refused, match="leads out of the project") as refusal:
            installation(harness, project, scope=scope).install()
        assert refusal.value.code == "INVALID_FORMAT"
        assert list(outside.iterdir()) == []
    settings.parent.unlink()
    (project / "within").mkdir()
    settings.parent.symlink_to("within")
    installation(harness, project, scope="team").install()
    assert (project / "within" / settings.name).is_file()


def test_removal_leaves_alone_what_a_link_of_the_project_leads_to(harness: str, project: Path, tmp_path: Path) -> None:
    (other := tmp_path / "other").mkdir()
    installation(harness, other, scope="team").install()
    before = tree(other)
    own, others = (HARNESSES[harness].files(folder, "team").settings.parent for folder in (project, other))
    own.symlink_to(others)
    with pytest.raises(Refused, match="leads out of the project"):
        installation(harness, project, scope="team").remove(force=True)
    assert tree(other) == before


def test_a_mark_without_its_other_is_left_for_hands(harness: str, project: Path, tmp_path: Path) -> None:
    page = HARNESSES[harness].files(project, "local").page
    installation(harness, project).install()
    page.write_text(page.read_text().replace("<!-- deedbook:end -->\n", ""))
    before = tree(tmp_path)
    assert State.EDITED in states(installation(harness, project))
    with pytest.raises(Refused) as refusal:
        installation(harness, project, kept=tmp_path / "kept").remove(force=True)
    assert refusal.value.code == "INVALID_FORMAT"
    assert tree(tmp_path) == before


def test_where_the_last_file_cannot_be_written_the_first_are_put_back(
    harness: str, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(HARNESSES[harness].files(project, "local"), "with comments")
    before = tree(tmp_path)
    page = HARNESSES[harness].files(project, "local").page
    _refuse_replacing(page, monkeypatch)
    with pytest.raises(Unavailable) as failure:
        installation(harness, project).install()
    assert failure.value.code == "STORE_UNAVAILABLE"
    assert "not_put_back" not in failure.value.details
    assert tree(tmp_path) == before


def _refuse_replacing(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the file system refuse this one file; a file mode would not do, because root ignores it."""
    replace = type(page).replace

    def refusing(self: Path, target: Path) -> Path:
        if target == page:
            raise PermissionError(13, "Permission denied")
        return replace(self, target)

    monkeypatch.setattr(type(page), "replace", refusing)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody who may not write")
def test_a_project_that_may_not_be_written_is_refused_as_such(harness: str, tmp_path: Path) -> None:
    program = (
        "import os, sys, pathlib; sys.path[:0] = sys.argv[3].split(os.pathsep)\n"
        "from deedbook.consumers.interfaces.hooks.harnesses import HARNESSES\n"
        "from deedbook.consumers.interfaces.hooks.installation import Installation\n"
        "from deedbook.consumers.interfaces.hooks.installation import Launcher\n"
        "from deedbook.ledger.errors import Unavailable\n"
        "folder = pathlib.Path(sys.argv[2]); found = HARNESSES[sys.argv[1]]\n"
        "installation = Installation(found, folder, Launcher('/bin/deed', 'me'))\n"
        "os.setuid(65534)\n"
        "try: installation.install()\n"
        "except Unavailable as error: print(error.code)\n"
    )
    folder = tmp_path / "not mine"
    folder.mkdir()
    environment = os.environ | {"XDG_STATE_HOME": str(tmp_path / "state")}
    done = subprocess.run(
        [sys.executable, "-c", program, harness, str(folder), os.pathsep.join(sys.path)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.stdout == "STORE_UNAVAILABLE\n", done.stderr
    assert tree(folder) == {}
