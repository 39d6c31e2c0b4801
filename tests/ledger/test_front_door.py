"""Front doors: every name is offered to programs, people and type checkers, and costs nothing before it is used.

And the page that shows people in, `ledger/README.md`.
"""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

ROOT = Path(__file__).parents[2]
PACKAGES = ["ledger", "projections", "consumers"]
DOORS = sorted(
    ".".join(path.parent.relative_to(ROOT).parts).removeprefix("consumers.doors.python.")
    for package in PACKAGES
    for path in (ROOT / package).rglob("__init__.py")
    if "front_door(__name__)" in path.read_text("utf-8")
)


def fresh_python(program: str, **environment: str) -> str:
    # Measuring coverage would itself load sqlite3 into the fresh process.
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")}
    process = subprocess.run(
        [sys.executable, "-P", "-c", program], capture_output=True, check=True, text=True, env=inherited | environment
    )
    return process.stdout.strip()


def test_there_are_doors_to_try() -> None:
    assert {"deedbook", "ledger", "projections", "consumers.auditor"} <= set(DOORS)


@pytest.mark.parametrize("package", DOORS)
def test_every_name_of_a_front_door_is_listed_loads_and_comes_with_a_star(package: str) -> None:
    door = importlib.import_module(package)
    offered = door.__all__
    assert offered
    assert set(offered) <= set(dir(door))
    assert not {"TYPE_CHECKING", "front_door"} & set(dir(door))
    starred: dict[str, object] = {}
    exec(f"from {package} import *", starred)
    for name in offered:
        assert starred[name] is getattr(door, name)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = door.nothing


def test_importing_every_front_door_opens_nothing() -> None:
    heavy = {"dateparser", "httpx", "lmdb", "msgspec", "nacl", "nats", "pydantic", "re2", "sqlite3", "structlog"}
    program = f"import sys, {', '.join(DOORS)}; print(sorted({heavy} & set(sys.modules)))"
    assert fresh_python(program) == "[]"


def test_a_front_door_opens_out_of_a_zip_file(tmp_path: Path) -> None:
    packed = tmp_path / "packed.zip"
    with zipfile.ZipFile(packed, "w") as archive:
        for path in (ROOT / "ledger").rglob("*.py"):
            archive.write(path, path.relative_to(ROOT))
    program = "import ledger; from ledger import *; print(Refused.__module__, Author.__name__, ledger.__file__)"
    assert fresh_python(program, PYTHONPATH=str(packed)) == f"ledger.errors Author {packed}/ledger/__init__.py"


def test_a_foreign_type_checker_sees_the_types_and_what_is_not_there(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "from ledger import Author, Refused\n"
        "from projections import Reader\n"
        "from deedbook import Ledger\n"
        "reveal_type(Author.emit)\n"
        "reveal_type(Refused('USAGE', '').code)\n"
        "reveal_type(Reader.answer)\n"
        "reveal_type(Ledger.publish)\n"
        "from ledger import Autor\n"
    )
    command = [sys.executable, "-m", "mypy", "--strict", program.name]
    checked = subprocess.run(command, check=False, cwd=tmp_path, capture_output=True, text=True)
    revealed = [line for line in checked.stdout.splitlines() if "Revealed type" in line]
    assert len(revealed) == 4, checked.stdout
    assert not any('"Any"' in line for line in revealed)
    assert [line for line in checked.stdout.splitlines() if "error:" in line] == [
        'program.py:8: error: Module "ledger" has no attribute "Autor"; maybe "Author"?  [attr-defined]'
    ]


def test_the_wheel_says_that_it_is_typed(tmp_path: Path) -> None:
    (wheel,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    with zipfile.ZipFile(wheel) as archive:
        assert {f"{package}/py.typed" for package in ["deedbook", *PACKAGES]} <= set(archive.namelist())


def test_the_example_of_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (example,) = re.findall(r"```python\n(.*?)```", (ROOT / "ledger/README.md").read_text("utf-8"), re.DOTALL)
    exec(compile(example, "ledger/README.md", "exec"), {})
    assert (tmp_path / ".deedbook/log/data.mdb").is_file()


def test_the_readme_names_every_room_of_the_ledger() -> None:
    named = set(re.findall(r"`([a-z_]+)/?`", (ROOT / "ledger/README.md").read_text("utf-8")))
    rooms = {
        path.stem for path in (ROOT / "ledger").iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()
    }
    assert rooms - named == {"__init__"}
