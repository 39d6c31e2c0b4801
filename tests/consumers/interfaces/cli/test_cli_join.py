"""Two shells, two folders: an admin invites a user, who joins from another folder, works, and is shut out again.

Each shell has its own user folders (trust records, trust store), as for two people on two machines.
"""

from __future__ import annotations

import base64
import itertools
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import inside
import msgspec
import pytest
from calling import Deed, Place, Serving, call, wait_until
from ports import free_port

from deedbook.consumers.sdk import join as joining
from deedbook.ledger.bus.loop_thread import Connection
from deedbook.ledger.bus.subjects import read_subject, submit_subject
from deedbook.ledger.client.addresses import KnownAddresses
from deedbook.ledger.client.invitation import Invitation
from deedbook.ledger.errors import CODES, DeedbookError, Refused

_names = (f"dora{number}" for number in itertools.count())


class Shell:
    """A user's shell in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        self.home = folder / ".deedbook"
        self._own = {
            name: str(folder / part)
            for name, part in (("XDG_STATE_HOME", "state"), ("XDG_CONFIG_HOME", "config"), ("HOME", "home"))
        }

    def __call__(self, *words: object, **changed: str) -> Any:
        """Call a verb that succeeds; return its data."""
        said = self.run(*words, **changed)
        assert said.code == 0, said.out
        return json.loads(said.out)["data"]

    def run(self, *words: object, **changed: str) -> inside.Said:
        """Call a verb in this process, as if in a new process."""
        return inside.deed(*words, "--json", cwd=self.folder, **self._own | changed)

    def start(self, *words: object) -> Any:
        """Call a verb that succeeds, in a new process."""
        said = call(*words, "--json", cwd=self.folder, **self._own)
        assert said.code == 0, said.out
        return json.loads(said.out)["data"]

    def refuses(self, code: str, *words: object) -> dict[str, Any]:
        """Call a verb that is refused; return the error."""
        said = self.run(*words)
        error: dict[str, Any] = json.loads(said.out).get("error", {})
        assert (error.get("code"), said.code) == (code, CODES[code].exit), said.out
        return error

    @property
    def contents(self) -> bytes:
        """Return the bytes of all files in the folder."""
        return b"\n".join(path.read_bytes() for path in sorted(self.folder.rglob("*")) if path.is_file())


@pytest.fixture
def admin(served: Place) -> Callable[..., Any]:
    """The ledger's own folder, in which somebody calls verbs as root."""

    def act(*words: object) -> Any:
        said = inside.deed("--home", served.home, *words, "--json")
        assert said.code == 0, said.out
        return json.loads(said.out)["data"]

    return act


@pytest.fixture
def elsewhere(tmp_path: Path) -> Shell:
    """Another shell, of another user."""
    return Shell(tmp_path / "elsewhere")


def private_parts(home: Path) -> list[bytes]:
    """Return the secret half of every key in a folder, in each form in which it could be copied."""
    parts: list[bytes] = []
    for path in (home / "keys").iterdir():
        if path.suffix == ".nkey":
            parts.append(path.read_bytes().strip())
        elif path.suffix == ".key":
            seed = bytes.fromhex(json.loads(path.read_bytes())["seed"])
            parts += [seed, seed.hex().encode(), base64.b64encode(seed), base64.urlsafe_b64encode(seed)]
    return parts


def registrations(admin: Callable[..., Any], name: str) -> int:
    """Return how often a name was registered."""
    total: int = admin("log", "--stream", f"agent/{name}", "--kind", "agent.registered")["total"]
    return total


def test_invited_agent_joins_claims_and_is_shut_out_and_no_private_key_travels(
    served: Place, admin: Callable[..., Any], elsewhere: Shell
) -> None:
    name = next(_names)
    invited = admin("agent", "invite", name, "--role", "agent")
    assert invited["servers"] == [(served.home / "bus/url").read_text().strip()]
    assert name in {one["name"] for one in admin("agent", "list")["invitations"]}
    joined = elsewhere.start("join", invited["code"])
    assert (joined["name"], registrations(admin, name)) == (name, 1)
    admin("handoff", "create", name, "--title", "Greet", "--to", name, "--reviewer", "rita", "--as", "a")
    version = admin("handoff", "show", name)["version"]
    admin("handoff", "approve", name, "--version", version, "--as", "rita")
    assert elsewhere.start("handoff", "claim", name)["status"] == "in_progress"
    assert f"`deed agent show {name}`" in elsewhere.refuses("USAGE", "whoami")["message"]
    missing = elsewhere.refuses("KEY_FILE_MISSING", "handoff", "approve", name, "--as", "rita", "--version", version)
    assert "only its holder can act as rita" in missing["message"]
    assert admin("agent", "show", name)["invitation"]["state"] == "used"
    theirs = served.home.parent
    crossed = b"\n".join(path.read_bytes() for path in theirs.rglob("*") if path.is_file()) + invited["code"].encode()
    assert len(private_parts(elsewhere.home)) == 5
    assert not [part for part in private_parts(elsewhere.home) if part in crossed]
    assert not [part for part in private_parts(served.home) if part in elsewhere.contents]
    token = Invitation.parse(invited["code"]).token
    assert token not in crossed.removesuffix(invited["code"].encode())
    admin("agent", "remove", name)
    wait_until(lambda: elsewhere.run("handoff", "list").code == CODES["BUS_DENIED"].exit, "shut out")
    assert "removed" in elsewhere.refuses("BUS_DENIED", "handoff", "release", name, "--reason", "x")["message"]
    elsewhere.refuses("NOT_INVITED", "join", invited["code"])


def test_two_shells_on_the_pages_do_what_they_say(admin: Callable[..., Any], tmp_path: Path) -> None:
    root = Path(__file__).parents[4]
    for page in ("docs/how-to/second-machine.md", "deploy/README.md"):
        blocks = re.findall(r"```shell\n(.*?)```", (root / page).read_text("utf-8"), re.DOTALL)
        here, there = ([line.split("#")[0].split() for line in block.strip().splitlines()] for block in blocks[:2])
        name, invite = next(_names), here[-1][here[-1].index("agent") :]
        code = admin(*(name if word == "minimax" else word for word in _without(invite, "--address", "--home")))["code"]
        elsewhere = Shell(tmp_path / name)
        assert [line[:2] for line in there] == [["deed", "join"], ["deed", there[1][1]]]
        for line in there:
            elsewhere.start(*(code if word.startswith("deedbook-invite:") else word for word in line[1:]))


def _without(words: list[str], *options: str) -> list[str]:
    """Leave out options with their values, because the test gives its own server and folder."""
    left = iter(words)
    return [word for word in left if word not in options or not next(left)]


STEPS = ("_begin", "write_key", "new_bus_key", "_identity_key", "_is_let_in", "_register", "_check", "write_membership")


@pytest.mark.parametrize("step", STEPS)
def test_join_that_was_killed_goes_on_with_the_keys_that_it_made(
    admin: Callable[..., Any], elsewhere: Shell, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = next(_names)
    code = admin("agent", "invite", name)["code"]
    done = getattr(joining, step)

    def killed(*arguments: Any, **options: Any) -> Any:
        done(*arguments, **options)
        raise SystemExit(9)  # for the files and the ledger, this equals a kill

    with monkeypatch.context() as patched:
        patched.setattr(joining, step, killed)
        assert elsewhere.run("join", code).out == ""
    before = {path.name: path.read_bytes() for path in (elsewhere.home / "keys").iterdir()}
    if step != "write_membership":
        assert elsewhere.run("next").code != 0
    assert elsewhere("join", code)["name"] == name
    after = {path.name: path.read_bytes() for path in (elsewhere.home / "keys").iterdir()}
    assert before.items() <= after.items()
    assert registrations(admin, name) == 1
    assert not (elsewhere.home / "join.begun").exists()
    assert elsewhere("join", code)["name"] == name  # once more, with nothing left to do
    assert registrations(admin, name) == 1


def kill_in_join(monkeypatch: pytest.MonkeyPatch, shell: Shell, *words: object) -> None:
    """Call `join` in a process that is killed right after it has made the keys."""

    def killed(*_arguments: Any) -> Any:
        raise SystemExit(9)

    with monkeypatch.context() as patched:
        patched.setattr(joining, "_is_let_in", killed)
        assert shell.run("join", *words).out == ""


def test_unfinished_join_is_named_by_every_verb_and_by_init(
    admin: Callable[..., Any], elsewhere: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = admin("agent", "invite", next(_names))["code"]
    far = tmp_path / "far"
    for home, here in ((elsewhere.home, ()), (far, ("--home", far))):
        command = " ".join(map(str, ("deed join CODE", *here)))
        kill_in_join(monkeypatch, elsewhere, code, *here)
        before = elsewhere.contents
        for verb, refusal in (("next", "NO_LEDGER"), ("handoff list", "NO_LEDGER"), ("init --trial", "LEDGER_EXISTS")):
            message = elsewhere.refuses(refusal, *verb.split(), *here)["message"]
            assert message.startswith(f"a join is unfinished in {home}: repeat `{command}`")
            assert message.endswith(f"or remove what it left (`rm -r {home}`)")
        assert elsewhere.contents == before


def test_unfinished_join_whose_invitation_is_used_says_what_to_remove(
    admin: Callable[..., Any], elsewhere: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, other = (admin("agent", "invite", next(_names))["code"] for _ in range(2))
    kill_in_join(monkeypatch, elsewhere, code)
    Shell(tmp_path / "third")("join", code)
    for refusal, again in (("NOT_INVITED", code), ("LEDGER_EXISTS", other)):
        assert f"`rm -r {elsewhere.home}`" in elsewhere.refuses(refusal, "join", again)["message"]


def test_folder_of_somebody_is_never_joined_in(served: Place, admin: Callable[..., Any], elsewhere: Shell) -> None:
    first, second = next(_names), next(_names)
    codes = [admin("agent", "invite", name)["code"] for name in (first, second)]
    elsewhere("join", codes[0])
    before = elsewhere.contents
    assert "--home DIR" in elsewhere.refuses("LEDGER_EXISTS", "join", codes[1])["message"]
    assert elsewhere.contents == before
    assert "joined the ledger at nats://" in elsewhere.refuses("USAGE", "serve")["message"]
    assert inside.deed("--home", served.home, "join", codes[1]).code == CODES["LEDGER_EXISTS"].exit
    elsewhere("join", codes[1], "--home", elsewhere.folder / "second")
    assert elsewhere("agent", "list", "--home", elsewhere.folder / "second")["total"] > 0


def test_keys_are_not_made_through_a_link_that_a_clone_brought(admin: Callable[..., Any], elsewhere: Shell) -> None:
    shared = elsewhere.folder / "docs"
    shared.mkdir()
    elsewhere.home.mkdir()
    (elsewhere.home / "keys").symlink_to(shared)
    code = admin("agent", "invite", next(_names))["code"]
    assert "keys is a link" in elsewhere.refuses("INVALID_FORMAT", "join", code)["message"]
    assert [*shared.iterdir()] == []


def test_invitation_that_is_over_says_what_to_do(admin: Callable[..., Any], elsewhere: Shell) -> None:
    name = next(_names)
    spent, taken_back = (admin("agent", "invite", name)["code"] for _ in range(2))
    admin("agent", "invite", name, "--revoke", "--reason", "sent to the wrong one")
    for code in (spent, taken_back):  # the second code has replaced the first
        wait_until(lambda: elsewhere.run("join", code).code == CODES["NOT_INVITED"].exit, "told")  # noqa: B023 - now
        message = elsewhere.refuses("NOT_INVITED", "join", code)["message"]
        assert (f"deed agent invite {name}" in message, "rm -r" in message) == (True, False)
        assert not elsewhere.home.exists()
    late = msgspec.structs.replace(Invitation.parse(spent), expires_ms=1)
    assert elsewhere.refuses("NOT_INVITED", "join", late.code)["details"]["how"] == "expired"


def test_ledger_that_is_not_the_pinned_one_is_not_joined(admin: Callable[..., Any], elsewhere: Shell) -> None:
    name = next(_names)
    invitation = Invitation.parse(admin("agent", "invite", name)["code"])
    swapped = msgspec.structs.replace(invitation, root=invitation.root[:32] + "0" * 32)
    # The server admits an invited agent a moment after the invitation.
    wait_until(lambda: elsewhere.run("join", swapped.code).code != CODES["BUS_UNAVAILABLE"].exit, "let in")
    message = elsewhere.refuses("VERIFICATION_FAILED", "join", swapped.code)["message"]
    assert invitation.root in message
    assert not (elsewhere.home / "client.toml").exists()
    assert elsewhere.run("next").code != 0


def test_address_is_no_invitation(elsewhere: Shell) -> None:
    message = elsewhere.refuses("INVALID_FORMAT", "join", "http://192.0.2.2:7431")["message"]
    assert "deed agent invite NAME" in message


@pytest.mark.parametrize("damage", [lambda code: code[:-3], lambda code: code[:40] + "A" + code[41:], lambda _: "x"])
def test_code_that_is_not_whole_is_refused_and_leaves_nothing(
    admin: Callable[..., Any], elsewhere: Shell, damage: Callable[[str], str]
) -> None:
    code = admin("agent", "invite", next(_names))["code"]
    elsewhere.refuses("INVALID_FORMAT", "join", damage(code))
    assert not elsewhere.home.exists()


def test_join_goes_on_when_the_server_is_back(served: Place, admin: Callable[..., Any], elsewhere: Shell) -> None:
    assert served.home
    code = admin("agent", "invite", next(_names))["code"]
    error = elsewhere.refuses("BUS_UNAVAILABLE", "join", code, "--server", "nats://127.0.0.1:1")
    assert error["recoverable"]
    assert not elsewhere.home.exists()
    elsewhere("join", code)


def test_who_is_invited_may_submit_and_nothing_else(served: Place, admin: Callable[..., Any]) -> None:
    name = next(_names)
    invitation = Invitation.parse(admin("agent", "invite", name)["code"])
    connection = Connection((served.home / "bus/url").read_text().strip(), name, invitation.bus_seed)
    try:
        for subject in (read_subject(invitation.ledger, name, "head"), submit_subject(invitation.ledger, "a")):
            with pytest.raises(Refused, match="BUS_DENIED"):
                connection.request(subject, b"{}")
        with pytest.raises(DeedbookError, match="INVALID_FORMAT"):
            connection.request(submit_subject(invitation.ledger, name), b"{")
    finally:
        connection.close()


def test_node_is_invited_by_root_and_makes_its_home(admin: Callable[..., Any], elsewhere: Shell) -> None:
    name = next(_names)
    code = admin("agent", "invite", name, "--role", "node", "--as", "root")["code"]
    elsewhere.refuses("USAGE", "join", code)
    elsewhere("join", code, "--node")
    assert {path.name for path in (elsewhere.home / "keys").iterdir()} == {
        "checkpoint.key",
        f"{name}.key",
        f"{name}.nkey",
    }
    assert not (elsewhere.home / "client.toml").exists()
    checkpoint = json.loads((elsewhere.home / "keys/checkpoint.key").read_bytes())["public"]
    assert checkpoint in {key["key"] for key in admin("agent", "show", name)["keys"]}
    admin("agent", "remove", name)


@pytest.mark.parametrize("expires_ms", [2**63, 2**64 - 1, 2**53, -1, -(2**63), 253_402_300_800_000])
def test_code_with_an_absurd_time_is_refused_in_words(tmp_path: Path, expires_ms: int) -> None:
    code = Invitation("0" * 64, "bob", ["agent"], b"t" * 32, ["nats://127.0.0.1:4222"], expires_ms).code
    refused = inside.deed("join", code, "--home", tmp_path / "x", "--json")
    error = json.loads(refused.out)["error"]
    assert (error["code"], "ask for another one" in error["message"]) == ("INVALID_FORMAT", True)
    assert not (tmp_path / "x").exists()


@pytest.fixture
def moved(alone: Deed, elsewhere: Shell) -> tuple[Place, Shell]:
    """A ledger whose server has stopped after an agent joined it; its next server has another address."""
    with Serving(alone.home, "--port", str(free_port())) as serving:
        elsewhere("join", alone.data("agent", "invite", "bob")["code"])
        elsewhere("emit", "session.started", "--stream", "session/s", "--data", "{}")
        return serving.place, elsewhere


def files_of(home: Path) -> dict[str, bytes]:
    """Return the files of a folder but ``client.toml``."""
    paths = (path for path in home.rglob("*") if path.is_file() and path.name != "client.toml")
    return {str(path): path.read_bytes() for path in paths}


def test_joined_folder_follows_its_ledger_to_another_address_and_loses_nothing(moved: tuple[Place, Shell]) -> None:
    place, shell = moved
    stored = shell.run("--spool", "session", "finding", "written meanwhile", DEEDBOOK_SESSION="s")
    assert stored.code == CODES["SPOOLED"].exit
    kept = files_of(shell.home)
    with Serving(place.home, "--port", str(free_port())) as serving:
        url = serving.place.server
        assert url != place.server
        assert "if it moved, `deed join --address URL`" in shell.refuses("BUS_UNAVAILABLE", "next")["message"]
        assert shell("join", "--address", url)["servers"] == [url]
        assert files_of(shell.home) == kept
        assert shell("next") is not None
        shell("session", "finding", "written later", DEEDBOOK_SESSION="s")
        findings = inside.deed("--home", place.home, "log", "--kind", "finding.logged", "--json").out
        assert [text in findings for text in ("written meanwhile", "written later")] == [True, True]


def test_address_of_another_ledger_or_of_no_server_is_not_stored(
    moved: tuple[Place, Shell], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, shell = moved
    before = (shell.home / "client.toml").read_bytes()
    other = Deed(capsys, Place(tmp_path / "other"))
    other("init", "--unprotected")
    other("agent", "add", "bob")
    shell.refuses("BUS_UNAVAILABLE", "join", "--address", f"nats://127.0.0.1:{free_port()}")
    with Serving(other.home, "--port", str(free_port())) as stranger:
        shell.refuses("BUS_DENIED", "join", "--address", stranger.place.server)
        # Also if that server admits the agent's key.
        bob = next((shell.home / "keys").glob("*.nkey"))
        bob.replace(shell.home / "keys" / "kept")
        bob.write_bytes((other.home / "keys" / bob.name).read_bytes())
        bob.chmod(0o600)
        error = shell.run("join", "--address", stranger.place.server)
        assert error.code != 0
        (shell.home / "keys" / "kept").replace(bob)
    shell.refuses("INVALID_FIELD", "join", "--address", "ledger.example")
    shell.refuses("USAGE", "join")
    shell.refuses("USAGE", "join", "deedbook-invite:x", "--address", "nats://h")
    Shell(tmp_path / "empty").refuses("USAGE", "join", "--address", "nats://h")
    assert (shell.home / "client.toml").read_bytes() == before


def test_move_that_was_killed_between_its_two_writes_goes_on(
    moved: tuple[Place, Shell], monkeypatch: pytest.MonkeyPatch
) -> None:
    place, shell = moved

    def killed(*_arguments: object) -> None:
        raise SystemExit(9)

    with Serving(place.home, "--port", str(free_port())) as serving:
        with monkeypatch.context() as patched:
            patched.setattr(joining, "write_membership", killed)
            shell.run("join", "--address", serving.place.server)
        shell("join", "--address", serving.place.server)
        assert shell.run("next").code == 0


def test_changed_client_file_is_not_trusted_by_a_move(moved: tuple[Place, Shell]) -> None:
    place, shell = moved
    file = shell.home / "client.toml"
    file.write_bytes(file.read_bytes().replace(b"127.0.0.1", b"127.0.0.9"))
    with Serving(place.home, "--port", str(free_port())) as serving:
        shell.refuses("NOT_TRUSTED", "join", "--address", serving.place.server)


def test_doctor_lists_learned_addresses_and_no_other_is_stored_because_one_of_them_answers(
    alone: Deed, elsewhere: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Serving(alone.home, "--port", str(free_port())) as serving:
        learned = serving.place.server or ""
        code = alone.data("agent", "invite", "bob", "--address", learned.replace("127.0.0.1", "localhost"))["code"]
        ledger = elsewhere("join", code)["ledger"]
        monkeypatch.setenv("XDG_STATE_HOME", str(elsewhere.folder / "state"))
        KnownAddresses(ledger, "").file.write_text(json.dumps({"addresses": [learned]}))
        checks = {row["name"]: row["found"] for row in elsewhere("doctor")["checks"]}
        assert learned in checks["addresses"]
        nowhere = f"nats://127.0.0.1:{free_port()}"
        error = elsewhere.refuses("BUS_UNAVAILABLE", "join", "--address", nowhere)
        assert f"but one does at {learned}" in error["message"]
        elsewhere("join", "--address", learned)
        assert "addresses" not in {row["name"] for row in elsewhere("doctor")["checks"]}
