"""`deed why`: the causes and the consequences of an event, and both for tools of W3C PROV."""

from __future__ import annotations

import itertools
import shlex
import sys
from typing import TYPE_CHECKING, Any

import pytest
from calling import Deed, emit_finding, start_session
from prov.model import ProvDocument

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def chain(deed: Deed, fresh: Callable[[str], str]) -> list[dict[str, Any]]:
    """Four findings, each caused by the one before."""
    stream = start_session(deed, fresh("why"))
    found = [emit_finding(deed, stream, "the first")]
    while len(found) < 4:
        found.append(emit_finding(deed, stream, f"number {len(found)}", "--cause", found[-1]["id"]))
    return found


def indexes(steps: list[dict[str, Any]]) -> list[int]:
    return [step["event_index"] for step in steps]


@pytest.mark.served
def test_why_goes_back_and_forward_or_one_way(deed: Deed, chain: list[dict[str, Any]]) -> None:
    first, second, third, fourth = (one["index"] for one in chain)
    both = deed.data("why", second)
    assert (indexes(both["causes"]), indexes(both["effects"])) == ([first], [third, fourth])
    back = deed.data("why", chain[1]["id"], "--back")
    assert (indexes(back["causes"]), back["effects"]) == ([first], [])
    forward = deed.data("why", second, "--forward", "--depth", 1)
    assert (forward["causes"], indexes(forward["effects"]), forward["is_complete"]) == ([], [third], False)


def test_a_page_ends_with_the_command_that_goes_on(deed: Deed, chain: list[dict[str, Any]]) -> None:
    document = deed.document("why", chain[0]["index"], "--forward", "--limit", 2)
    following = shlex.split(document["next"])
    assert following[:3] == ["deed", "why", str(chain[0]["index"])]
    rest = deed.data(*following[1:])
    assert indexes(document["data"]["effects"]) + indexes(rest["effects"]) == [one["index"] for one in chain[1:]]
    assert document["next"] in deed("why", chain[0]["index"], "--forward", "--limit", 2)
    assert deed.refuses("USAGE", "why", chain[0]["index"], "--after", 2)
    assert "led to (3, of which these are 1; --forward goes on):\n" in deed("why", chain[0]["index"], "--limit", 1)


def test_a_blob_that_is_named_is_told_from_what_is_not_here(
    deed: Deed, fresh: Callable[[str], str], tmp_path: Path
) -> None:
    (tmp_path / "log.txt").write_bytes(b"what the test printed")
    blob = deed.data("blob", "put", tmp_path / "log.txt", "--as", "a")["ref"]
    unknown = "sha256:" + "0" * 64
    stream = start_session(deed, fresh("blobs"))
    named = emit_finding(deed, stream, "see there", "--cause", blob, "--cause", unknown)
    text = deed("why", named["index"])
    assert f"{blob}: a blob of 21 bytes  [causes of {named['index']}]" in text
    assert f"{unknown}: not in this ledger" in text
    assert indexes(deed.data("why", blob)["effects"]) == [named["index"]]


@pytest.mark.served
@pytest.mark.parametrize("options", [[], ["--back", "--depth", 1]])
def test_prov_of_a_walk_is_read_back_by_the_library(
    deed: Deed, chain: list[dict[str, Any]], options: list[Any], tmp_path: Path
) -> None:
    told = deed.data("why", chain[1]["index"], *options, "--prov", tmp_path / "why.json")
    document = ProvDocument.deserialize(str(tmp_path / "why.json"))
    wanted = chain[:2] if options else chain
    assert told["events"] == len(wanted)
    entities = {str(record.identifier) for record in document.get_records() if record.get_type().localpart == "Entity"}
    assert entities == {one["id"] for one in wanted}
    again = tmp_path / "again.json"
    document.serialize(str(again))
    assert ProvDocument.deserialize(str(again)) == document


def test_prov_says_what_was_derived_from_what_and_who_did_it(
    deed: Deed, chain: list[dict[str, Any]], tmp_path: Path
) -> None:
    deed("why", chain[-1]["index"], "--prov", tmp_path / "why.json")
    document = ProvDocument.deserialize(str(tmp_path / "why.json"))
    derived = [record for record in document.get_records() if record.get_type().localpart == "Derivation"]
    pairs = {tuple(str(value) for _, value in record.formal_attributes[:2]) for record in derived}
    assert pairs == {(later["id"], earlier["id"]) for earlier, later in itertools.pairwise(chain)}
    agents = {str(one.identifier): one.get_asserted_types() for one in document.get_records() if one.is_element()}
    assert {str(kind) for kind in agents["deedbook:agent/a"]} == {"prov:SoftwareAgent"}


def test_prov_n_is_written_where_the_name_asks_for_it(deed: Deed, chain: list[dict[str, Any]], tmp_path: Path) -> None:
    deed("why", chain[0]["index"], "--prov", tmp_path / "why.provn")
    text = (tmp_path / "why.provn").read_text("utf-8")
    assert text.startswith("document\n")
    assert f"wasAttributedTo({chain[0]['id']}, deedbook:agent/a)" in text


def test_without_its_library_prov_is_refused_with_how_to_install_it(
    deed: Deed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "prov.model", None)
    error = deed.refuses("EXTRA_MISSING", "why", 0, "--prov", tmp_path / "why.json")
    assert "pip install 'deedbook[prov]'" in error["message"]
    assert list(tmp_path.iterdir()) == []


def test_prov_that_cannot_be_written_is_refused(deed: Deed, tmp_path: Path) -> None:
    deed.refuses("STORE_UNAVAILABLE", "why", 0, "--prov", tmp_path / "no" / "why.json")


def test_missing_dependency_comes_first_and_leads_to_the_amendment(deed: Deed, fresh: Callable[[str], str]) -> None:
    name = fresh("waiting")
    words = (
        "handoff",
        "create",
        name,
        "--as",
        "a",
        "--to",
        "b",
        "--reviewer",
        "rita",
        "--title",
        "t",
        "--criterion",
        "c",
    )
    warned = deed.run(*words, "--depends-on", "nowhere", "--session", "none").err.splitlines()
    assert warned[0] == f"warning: {name} can never be claimed before there is a handoff nowhere"
    assert warned[1].startswith("warning: a receiver also needs: reproduce, ")
    assert f"next: deed handoff amend --depends-on ID --as a {name}" in deed("handoff", "show", "--as", "a", name)
    items = [item for item in deed.data("next", "--as", "rita")["items"] if item["id"] == name]
    assert items[0]["why"].startswith("it waits for nowhere, which does not exist; a hands it to b")
    assert f"{name} is not ready: it depends on nowhere, which does not exist; it waits" in deed("handoff", "why", name)


def test_no_handoff_that_was_shown_leads_to_showing_it(deed: Deed, fresh: Callable[[str], str]) -> None:
    name = fresh("waiting")
    deed("handoff", "create", name, "--as", "a", "--to", "b", "--reviewer", "rita", "--title", "t")
    deed("handoff", "approve", name, "--as", "rita", *deed.as_read(name))
    deed("handoff", "claim", name, "--as", "b")
    deed("handoff", "block", name, "--as", "b", "--reason", "no key")  # its sender only gets a notice
    assert "deed handoff show" not in deed("handoff", "show", "--as", "a", name)


def test_handoff_to_its_sender_is_noticed(deed: Deed, fresh: Callable[[str], str]) -> None:
    name = fresh("waiting")
    words = ("handoff", "create", name, "--as", "a", "--to", "a", "--reviewer", "rita", "--title", "t")
    assert "warning: a hands it to themselves: somebody else still reviews it" in deed.run(*words).err


def test_prov_replaces_only_prov_of_this_ledger(deed: Deed, chain: list[dict[str, Any]], tmp_path: Path) -> None:
    for name in ("why.json", "why.provn"):
        for _ in range(2):
            deed("why", chain[0]["index"], "--prov", tmp_path / name)
    (tmp_path / "x.txt").write_text("precious")
    error = deed.refuses("FILE_EXISTS", "why", chain[0]["index"], "--prov", tmp_path / "x.txt")
    assert "x.txt exists and is no PROV of this ledger" in error["message"]
    assert (tmp_path / "x.txt").read_text() == "precious"
