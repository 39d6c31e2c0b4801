"""Dead letters of `baton watch` are listed and tried again."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from calling import call

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def test_dead_letter_is_listed_and_forgotten_once_its_retry_succeeds(
    populated: Callable[[str], Path], tmp_path: Path
) -> None:
    home = populated("watched")
    flag = tmp_path / "works"

    def watch(*arguments: str) -> dict[str, Any]:
        common = ("--home", home, "--as", "a", "watch", "--kind", "session.started", "--exec", f"test -e {flag}")
        said = call(*common, "--json", *arguments)
        assert said.code == 0, said.err
        return json.loads(said.out)["data"] if said.out else {}

    emitted = call("--home", home, "--as", "a", "emit", "session.started", "--stream", "session/s1", "--data", "{}")
    index = int(emitted.out.split()[0])
    watch("--from-start", "--once")
    (letter,) = watch("--dead")["dead_letters"]
    assert letter["index"] == index
    assert "exit code 1" in letter["error"]
    flag.touch()
    assert watch("--retry", str(index)) == {"index": index}
    assert watch("--dead")["dead_letters"] == []
