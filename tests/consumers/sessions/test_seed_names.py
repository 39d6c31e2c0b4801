"""``deedbook.seeds``: the programs of the proposals run as ``docs/python-names.md`` shows them, except for imports."""

from __future__ import annotations
import __future__

import hashlib
import json
import logging
import re
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import msgspec
import pytest

from deedbook import Ledger, Refused, seeds
from deedbook.projections.snapshots.vectors import AssessedVectors

PAGE = (Path(__file__).parents[3] / "docs" / "python-names.md").read_text("utf-8")
CALM = {"UNCERTAINTY": 0.1, "IMPACT": 0.2}


def block(begin: str) -> str:
    """Return the block of the page that has a text."""
    (found,) = [code for code in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if begin in code]
    return found


def run(begin: str, **names: Any) -> dict[str, Any]:
    """Run a block of the page after its imports, and return its names."""
    names |= {name: getattr(seeds, name) for name in seeds.__all__ if name not in names}
    code = compile(block(begin), "python-names.md", "exec", flags=__future__.annotations.compiler_flag)
    exec(code, names)
    return names


@pytest.fixture
def reasoned(agents_home: Path) -> Path:
    """A ledger with alice's reasoning ``jwt`` and a snapshot of it."""
    with Ledger() as ledger:
        jwt = ledger.reasoning("jwt")
        jwt.start("Is the secret leaked?")
        jwt.step("The JWT secret is in the environment", type="observation")
        jwt.step("The environment is logged, so the secret is in the logs", rests_on=[1])
        jwt.conclude("Rotate the JWT secret")
    return agents_home


def test_names_are_those_that_the_page_lists() -> None:
    assert seeds.__all__ == sorted(seeds.__all__, key=lambda name: (not name.isupper(), not name[0].isupper(), name))
    named = set(re.findall(r"`(\w+)`", PAGE.partition("The functions open")[0]))
    assert set(seeds.__all__) - {"SnapshotProvider"} <= named


@pytest.mark.usefixtures("reasoned")
@pytest.mark.parametrize(("domain", "vectors", "whole"), [("", CALM, False), ("security", CALM, True)])
def test_receiver_s_program_runs(domain: str, vectors: dict[str, float], whole: bool) -> None:
    taken = seeds.take_snapshot(reasoning="jwt", domain=domain or "logging", vectors=vectors)
    acted: list[Any] = []

    def act(on: Any) -> str:
        acted.append(on)
        return "acted"

    names = run("snapshot = receive_snapshot()", act_on_reasoning=act, logger=logging.getLogger("program"))
    assert names["snapshot"].snapshot_id == taken.snapshot_id
    assert names["action"] == "acted"
    if whole:
        assert isinstance(acted[0], seeds.ReasoningMemory)
        assert (names["validation"].passed, acted[0].conclusion) == (True, "Rotate the JWT secret")
        assert seeds.compute_reasoning_ref(acted[0]) == taken.reasoning_ref
    else:
        assert acted == [taken.reasoning_brief]
    for level in seeds.TransferLevel:
        assert "Rotate the JWT secret" in str(taken.to_context_prompt(level)).splitlines()[1]


@pytest.mark.usefixtures("agents_home")
def test_receiver_s_program_asks_a_human_about_what_was_refuted_after_the_snapshot(caplog: Any) -> None:
    with Ledger() as ledger:
        leak = ledger.reasoning("leak")
        leak.start("Is the secret leaked?")
        leak.assume("Logs are not encrypted")
        leak.step("The secret is readable in the logs", rests_on=[1])
        leak.conclude("Publish the breach notice")
        taken = seeds.take_snapshot(reasoning="leak", domain="logging", vectors=CALM)
        leak.settle(step=1, holds=False, how="They are encrypted since 2024-10")

    names = run("snapshot = receive_snapshot()", act_on_reasoning=pytest.fail, logger=logging.getLogger("program"))
    assert names["action"] == "human_review_required"
    assert names["snapshot"].reasoning_ref == taken.reasoning_ref
    assert "Refuted by" in caplog.text
    assert str(names["snapshot"].to_context_prompt(seeds.TransferLevel.MINIMAL)).startswith("REFUTED: The conclusion")


def test_validator_needs_no_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    memory = seeds.extract_reasoning_from_minimax({"thinking": "It leaks. So rotate it.", "response": "Rotate it."})
    assert seeds.ReasoningValidator().validate(memory).passed


@pytest.mark.usefixtures("agents_home")
def test_what_is_not_there_is_refused() -> None:
    for call in (seeds.receive_snapshot, lambda: seeds.snapshot_provider.get_full_reasoning("none")):
        with pytest.raises(Refused) as refusal:
            call()
        assert refusal.value.code == "NOT_FOUND"


@pytest.mark.parametrize("domain", ["", "legal", "logging"])
@pytest.mark.parametrize("vectors", [CALM, CALM | {"IMPACT": 0.7}, CALM | {"UNCERTAINTY": 0.5}])
@pytest.mark.parametrize("fidelity", [0.74, 0.75])
@pytest.mark.parametrize("evidence", ["api/auth.py:23", "env/secret.txt"])
def test_proposal_s_rules_fetch_nothing_that_ours_do_not(
    domain: str, vectors: dict[str, float], fidelity: float, evidence: str
) -> None:
    snapshot = seeds.EnhancedEpistemicSnapshot(
        "s",
        vectors=vectors,
        domain=domain,
        reasoning_ref="sha256:" + "0" * 64,
        reasoning_fidelity=fidelity,
        evidence_refs=[evidence],
    )
    theirs = run("def should_fetch_full_reasoning")["should_fetch_full_reasoning"]
    forced = run(
        "force_full = (",
        reasoning_fidelity=fidelity,
        domain=domain,
        vectors=AssessedVectors(vectors),
        evidence_refs=[evidence],
    )
    assert theirs(snapshot) == forced["force_full"] == bool(seeds.should_fetch_full_reasoning(snapshot))
    for name in ("MIN_FIDELITY_FOR_MINIMAL", "MIN_FIDELITY_FOR_STANDARD", "MAX_INFORMATION_LOSS_TOLERANCE"):
        assert forced[name] == getattr(seeds, name)


def test_ref_is_that_of_the_proposal_s_function() -> None:
    response = {"thinking": "The secret is in the environment.\n\nTherefore it is in the logs.", "text": "Rotate it."}
    memory = msgspec.structs.replace(seeds.extract_reasoning_from_minimax(response), reasoning_id="")
    assert [step.type for step in memory.steps] == ["observation", "inference"]
    theirs = run("def compute_reasoning_ref", json=json, hashlib=hashlib)["compute_reasoning_ref"]
    assert theirs(memory) == seeds.compute_reasoning_ref(memory)


def test_classes_have_the_fields_of_the_proposal() -> None:
    names = run(
        "class ReasoningStep",
        dataclass=dataclass,
        field=field,
        ReasoningStep=None,
        ReasoningMemory=None,
        EnhancedEpistemicSnapshot=None,
        List=list,
        Dict=dict,
    )
    for name in ("ReasoningStep", "ReasoningMemory"):
        assert {one.name for one in fields(names[name])} <= set(getattr(seeds, name).__struct_fields__)
    own = {one.name for one in fields(seeds.EnhancedEpistemicSnapshot)}
    assert {one.name for one in fields(names["EnhancedEpistemicSnapshot"])} <= own
