"""The graphs that brief quality is measured on: human proof trees if there are some, otherwise generated ones.

``DEEDBOOK_CASES`` names a folder of cases (default ``../shared/cases``); its ``reasoning/*.jsonl`` hold one row a line:
``{id, task, steps, dependencies, conclusion, critical_steps?, distractor_steps?}``. Without such a folder the same rows
are generated (``generated``), so that the table can be printed anywhere. Its first line says which cases were used.

Rows are joined to graphs of 600 to 3,000 tokens. Public rows lack evidence, assumptions and limitations; these are made
of the row's own words, seeded by its id. There are three types of graphs: *with distractors*, two rows with all their
sentences; *nothing to drop*, rows with only the steps that support the conclusion; and *chains*, five solutions in
which every step depends on the one before it.
"""

from __future__ import annotations

import json
import os
import random
import re
from pathlib import Path
from typing import Any, Final, NamedTuple

from deedbook.projections.briefs.tokens import count_tokens
from deedbook.projections.reasoning.memory import ReasoningMemory, memory_from_dict
from tests.bench.brief_quality.generated import proof_rows, sum_rows

BAND_TOKENS: Final = (600, 3_000)
GRAPHS_MAX: Final = 80
CHAINED: Final = 5
EVIDENCE_SHARE: Final = 0.4
METHODS: Final = ("read {0}", "ask who wrote {0}", "compare with {0}")
WORD: Final = re.compile("[a-z]{4,}")
SUFFIXES: Final = ("md", "txt", "csv", "log")


class Case(NamedTuple):
    """A graph, the steps that its source calls critical (None if the source does not say), and its original size."""

    memory: ReasoningMemory
    gold: frozenset[int] | None
    tokens: int


class Cases(NamedTuple):
    """All graphs of one run, and where they come from."""

    source: str
    distracted: list[Case]
    dense: list[Case]
    chains: list[Case]
    sums: list[Case]


def load_cases() -> Cases:
    """Return the graphs of this run."""
    folder = Path(os.environ.get("DEEDBOOK_CASES", Path(__file__).parents[3].parent / "shared" / "cases"))
    files = sorted((folder / "reasoning").glob("*.jsonl"))
    rows = [json.loads(line) for file in files for line in file.read_text("utf-8").splitlines() if line.strip()]
    trees = [row for row in rows if row.get("distractor_steps")]
    sums = [row for row in rows if row.get("critical_steps") is None]
    source = f"{len(trees)} trees and {len(sums)} sums of {folder}"
    if not trees or not sums:
        trees, sums = proof_rows(120), sum_rows(60)
        source = "generated graphs (no folder of cases)"
    return Cases(
        source=source,
        distracted=in_band([case_of(pair) for pair in grouped(trees)])[:GRAPHS_MAX],
        dense=in_band([case_of(group) for group in in_threes([without_distractors(row) for row in trees])]),
        chains=in_band([case_of(group) for group in in_chains(sums)]),
        sums=[case_of([row]) for row in sums],
    )


def grouped(rows: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Return the rows in pairs. Each row is in two pairs: with its neighbour, and with a row farther away."""
    far = len(rows) // 2
    ends = [[rows[place], rows[(place + step) % len(rows)]] for step in (1, far) for place in range(0, len(rows), 2)]
    return [pair for pair in ends if pair[0] is not pair[1]]


def in_threes(rows: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Return the rows in threes, each row in one or two of them."""
    step = len(rows) // 3
    return [[rows[(place + step * part) % len(rows)] for part in range(3)] for place in range(step * 2)]


def in_chains(rows: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Return the rows in fives, each row in two or three of them, as chains: every step depends on an earlier one."""
    return [[rows[(place + part) % len(rows)] for part in range(CHAINED)] for place in range(0, len(rows), 2)]


def without_distractors(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with its critical steps only."""
    kept = set(row["critical_steps"])
    return row | {"steps": [step for step in row["steps"] if step["step"] in kept]}


def in_band(cases: list[Case]) -> list[Case]:
    """Return the cases whose whole graph, as JSON, has a size within ``BAND_TOKENS``: the targets are for these."""
    least, most = BAND_TOKENS
    return [case for case in cases if least <= case.tokens <= most]


def case_of(rows: list[dict[str, Any]]) -> Case:
    """Return the rows joined to one graph: the last row's conclusion also depends on the other rows' conclusions."""
    steps: list[dict[str, Any]] = []
    dependencies: dict[str, list[int]] = {}
    gold: set[int] = set()
    for row in rows:
        moved = {step["step"]: len(steps) + place for place, step in enumerate(row["steps"], start=1)}
        steps += [{**step, "step": moved[step["step"]], "premises": []} for step in row["steps"]]
        for number, rests_on in row["dependencies"].items():
            if int(number) in moved:
                dependencies[str(moved[int(number)])] = [moved[one] for one in rests_on if one in moved]
        gold |= {moved[number] for number in row["critical_steps"] or () if number in moved}
    *earlier, last = [step for step in steps if step["type"] == "conclusion"]
    for step in earlier:
        step["type"] = "inference"
    dependencies.setdefault(str(last["step"]), []).extend(step["step"] for step in earlier)
    graph = {
        "reasoning_id": "+".join(str(row["id"]) for row in rows),
        "task": " ".join(row["task"] for row in rows),
        "conclusion": rows[-1]["conclusion"],
        "steps": steps,
        "dependencies": dependencies,
    }
    enrich(graph, gold)
    tokens = count_tokens(json.dumps(graph, ensure_ascii=False))
    return Case(memory_from_dict(graph)[0], frozenset(gold) or None, tokens)


def enrich(graph: dict[str, Any], gold: set[int]) -> None:
    """Add evidence to observations, an open assumption, an alternative and a limitation, from the graph's own words."""
    chance = random.Random(graph["reasoning_id"])
    steps = graph["steps"]
    named = sorted({word for step in steps for word in WORD.findall(step["content"].lower())})
    for step in steps:
        if step["type"] == "observation" and chance.random() < EVIDENCE_SHARE:
            folder, name = chance.sample(named, 2)
            step["evidence"] = [f"{folder}/{name}.{chance.choice(SUFFIXES)}:{chance.randint(2, 400)}"]
    one, other = chance.sample(named, 2)
    assumed = {
        "step": len(steps) + 1,
        "type": "assumption",
        "content": f"What is known of {one} still holds for {other}",
        "needs_validation": True,
        "validation_method": chance.choice(METHODS).format(f"notes/{chance.choice(named)}.md"),
        "confidence": 0.7,
    }
    inferred = next((step for step in steps if step["type"] != "observation"), steps[-1])
    inferred["alternatives_considered"] = [f"Begin from {chance.choice(named)} and leave {chance.choice(named)} aside"]
    steps.append(assumed)
    if gold:
        gold.add(assumed["step"])
    graph["known_limitations"] = [f"Nobody looked at {chance.choice(named)} outside of {chance.choice(named)}"]
