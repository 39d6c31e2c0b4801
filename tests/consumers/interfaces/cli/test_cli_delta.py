"""`deed reasoning fetch --have` and `diff`: only the changes are sent, and people can read them."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

import pytest

from deedbook.projections.briefs.tokens import count_tokens

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from calling import Deed

    Fresh = Callable[[str], str]


@pytest.fixture
def recorded(deed: Deed, fresh: Fresh) -> list[str]:
    """The refs of a reasoning of five steps: as recorded, with its assumption settled, concluded; its id last."""
    name = fresh("delta")
    acting = ["--as", "a"]
    deed("reasoning", "start", name, "--task", f"Why is the disk of {name} full?", *acting)
    for number in range(1, 4):
        content = f"Observation {number}: the backup of region {number} started at 0{number}:00 and took 40 GB"
        deed("reasoning", "step", name, content, "--type", "observation", *acting)
    assumed = deed.data("reasoning", "assume", name, "No one else writes there", "--check", "lsof", *acting)
    settled = deed.data("reasoning", "settle", name, "--step", 4, "--holds", "--how", "lsof shows one", *acting)
    deed("reasoning", "step", name, "Backups fill the disk", "--rests-on", 1, "--rests-on", 4, *acting)
    limits = ["--confidence", 0.8, "--limitation", "One night was looked at"]
    concluded = deed.data("reasoning", "conclude", name, "Move the backups", *limits, *acting)
    return [assumed["ref"], settled["ref"], concluded["ref"], name]


@pytest.mark.served
def test_fetch_with_a_base_transfers_less_and_comes_to_the_ref(deed: Deed, recorded: list[str]) -> None:
    base, _, ref, name = recorded
    whole = deed.data("reasoning", "fetch", name)
    assert (whole["sent_as"], whole["base"], whole["transferred"]) == ("full", None, whole["full"])
    assert whole["sizes"]["chain"] is whole["sizes"]["squashed"] is None
    fetched = deed.data("reasoning", "fetch", ref, "--have", base)
    assert (fetched["ref"], fetched["base"], fetched["sent_as"]) == (ref, base, "squashed")
    assert fetched["transferred"]["tokens"] < fetched["full"]["tokens"] == whole["full"]["tokens"]
    assert min(size["tokens"] for size in fetched["sizes"].values()) == fetched["transferred"]["tokens"]
    assert fetched["canonical"] == whole["canonical"]
    assert "sha256:" + sha256(fetched["canonical"].encode()).hexdigest() == ref


def test_base_that_was_fetched_before_is_taken_from_this_folder(deed: Deed, recorded: list[str]) -> None:
    base, _, ref, _ = recorded
    first = deed.data("reasoning", "fetch", ref, "--have", base)
    assert (first["base_from"], first["cached"]) == ("ledger", True)
    assert first["base_transferred"]["tokens"] > 0
    second = deed.data("reasoning", "fetch", ref, "--have", base[7:19])
    assert (second["base_from"], second["base_transferred"]) == ("cache", None)
    assert second["transferred"] == first["transferred"]
    assert (deed.home / "cache" / "graphs" / f"{ref[7:]}.json").is_file()


def test_people_are_told_how_much_was_sent(deed: Deed, recorded: list[str]) -> None:
    base, _, ref, _ = recorded
    said = deed.run("reasoning", "fetch", ref, "--have", base)
    assert "was not here: fetched whole" in said.err
    canonical = said.out.removesuffix("\n")
    assert f"-- {count_tokens(canonical)} tokens, sent as squashed:" in said.err
    assert f"hash recomputed: {ref}" in said.err
    assert "sha256:" + sha256(said.out.removesuffix("\n").encode()).hexdigest() == ref


def test_base_can_be_a_file_that_an_earlier_fetch_printed(deed: Deed, recorded: list[str], tmp_path: Path) -> None:
    base, settled, ref, _ = recorded
    file = tmp_path / "base.json"
    file.write_text(deed("reasoning", "fetch", base))
    for have in ([], ["--have", base], ["--have", base[:24]]):
        fetched = deed.data("reasoning", "fetch", ref, *have, "--base", file)
        assert (fetched["ref"], fetched["base"], fetched["base_from"]) == (ref, base, "file")
    deed.refuses("VERSION_MISMATCH", "reasoning", "fetch", ref, "--have", settled, "--base", file)
    deed.refuses("NOT_FOUND", "reasoning", "fetch", ref, "--base", tmp_path / "none.json")
    file.write_text("{}")
    deed.refuses("INVALID_FIELD", "reasoning", "fetch", ref, "--base", file)


def test_base_that_nobody_knows_is_refused(deed: Deed, recorded: list[str]) -> None:
    deed.refuses("NOT_FOUND", "reasoning", "fetch", recorded[2], "--have", "0" * 12)
    deed.refuses("NOT_FOUND", "reasoning", "fetch", recorded[2], "--have", "no-such-reasoning")
