"""What the command line leaves unimported at its start is there for whoever asks for it, and as Python has it."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest
from calling import environment

from consumers.doors.cli.start import _Inspect, _Later, _Platform

LEFT = ("inspect", "msgspec.inspect", "platform", "textwrap", "typing_extensions")
PROGRAM = f"""
import sys
import consumers.doors.cli
assert not set({LEFT!r}) & set(sys.modules), sorted(set({LEFT!r}) & set(sys.modules))
import click, inspect, msgspec, msgspec.inspect, platform, textwrap, typing_extensions
for module in (inspect, msgspec.inspect, platform, textwrap, typing_extensions):
    assert type(module) is type(sys), module
    assert module.__file__, module
assert msgspec.inspect.type_info(int) == msgspec.inspect.IntType()
assert msgspec.json.schema(int) == {{"type": "integer"}}
assert click.core.inspect.isfunction(print) is False
"""


def test_modules_that_the_start_leaves_out_are_whole_for_whoever_imports_them() -> None:
    calm = {name: value for name, value in environment().items() if not name.startswith("COVERAGE")}
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False, env=calm)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("text", ["", "one", "one ", " one", "\tone", "a\tb", "one\n  two\n    three\n", "\n\n  one\n"])
def test_texts_lose_their_margin_as_python_takes_it_off(text: str) -> None:
    assert _Inspect("inspect").cleandoc(text) == inspect.cleandoc(text)


def test_a_module_that_was_left_out_answers_as_it_does_itself() -> None:
    import platform
    import textwrap

    assert _Platform("platform").system() == platform.system()
    assert _Platform("platform").machine() == platform.machine()
    assert _Later("textwrap").dedent is textwrap.dedent
    with pytest.raises(AttributeError):
        _ = _Later("textwrap").nothing
