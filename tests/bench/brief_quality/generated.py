"""Rows in the shape of public proof trees and arithmetic solutions, used when there is no folder of cases.

Each row is seeded by its number. A proof tree has 25 observations. A few of them support the conclusion; the others are
about the same things and mislead a summary by similarity alone. An arithmetic solution has one step per calculation.
"""

from __future__ import annotations

import random
from typing import Any, Final

OBSERVATIONS: Final = 25
THINGS: Final = (
    *(
        "river",
        "glacier",
        "magnet",
        "battery",
        "leaf",
        "root",
        "lens",
        "mirror",
        "engine",
        "bridge",
        "harbor",
        "tunnel",
    ),
    *("seed", "forest", "desert", "planet", "comet", "copper wire", "water vapor", "solar panel", "wind turbine"),
    *("coral reef", "sand dune", "fault line", "storm cloud", "street lamp", "ice sheet", "heart valve", "nerve cell"),
    *("blood vessel", "cargo ship", "weather balloon", "telescope", "thermometer", "compass", "pendulum", "spring"),
)
QUALITIES: Final = (
    *("heat", "light", "mass", "pressure", "speed", "depth", "height"),
    *("salt", "charge", "color", "volume", "strength", "moisture", "noise"),
)
CHANGES: Final = (
    *("increases", "decreases", "is stored", "is released"),
    *("is absorbed", "becomes visible", "moves outward", "is measured"),
)
LINKS: Final = (
    "a {0} is a kind of {1}",
    "as the {2} of a {0} changes , the {3} of the {1} {4}",
    "if a {0} loses {2} then the {1} near it gains {3}",
    "the {2} of a {0} {4} when a {1} is close",
    "a {0} requires {2} for keeping its {3}",
    "{2} is a property of a {0} and includes ordered values of {3}",
)
GOODS: Final = (
    *("apples", "tickets", "notebooks", "bricks", "liters of paint", "eggs"),
    *("stamps", "cups", "hours", "miles", "candles", "boxes"),
)
PEOPLE: Final = ("Ana", "Boris", "Chen", "Dora", "Emil", "Farah", "Goran", "Hana", "Ivo", "Jun", "Kira", "Luca")


def proof_rows(count: int) -> list[dict[str, Any]]:
    """Return proof trees with distractors."""
    return [_proof(number) for number in range(count)]


def sum_rows(count: int) -> list[dict[str, Any]]:
    """Return arithmetic solutions, in which every step depends on the ones before it."""
    return [_sum(number) for number in range(count)]


def _sentence(chance: random.Random, things: list[str]) -> str:
    first, second = chance.sample(things, 2)
    one, other = chance.sample(QUALITIES, 2)
    return chance.choice(LINKS).format(first, second, one, other, chance.choice(CHANGES))


def _proof(number: int) -> dict[str, Any]:
    chance = random.Random(f"tree {number}")
    things = chance.sample(THINGS, 7)
    said: dict[str, None] = {}
    while len(said) < OBSERVATIONS + 4:
        said.setdefault(_sentence(chance, things))
    texts = list(said)
    steps = [
        {"step": place, "type": "observation", "content": texts[place - 1]} for place in range(1, OBSERVATIONS + 1)
    ]
    leaves = chance.sample(range(1, OBSERVATIONS + 1), chance.randint(3, 7))
    critical = set(leaves)
    dependencies: dict[str, list[int]] = {}
    while len(leaves) > 1:
        rests_on = [leaves.pop(0) for _ in range(min(len(leaves), chance.choice((2, 2, 3))))]
        place = len(steps) + 1
        kind = "inference" if leaves else "conclusion"
        steps.append({"step": place, "type": kind, "content": _sentence(chance, things)})
        dependencies[str(place)] = rests_on
        leaves.append(place)
        critical.add(place)
    return {
        "id": f"tree-{number}",
        "task": f"What follows for the {things[0]} from what is known of the {things[1]}?",
        "steps": steps,
        "dependencies": dependencies,
        "conclusion": steps[-1]["content"],
        "critical_steps": sorted(critical),
        "distractor_steps": [place for place in range(1, len(steps) + 1) if place not in critical],
    }


def _sum(number: int) -> dict[str, Any]:
    chance = random.Random(f"sum {number}")
    name, goods = chance.choice(PEOPLE), chance.choice(GOODS)
    have = chance.randint(3, 40)
    contents: list[str] = []
    for _ in range(chance.randint(2, 6)):
        more = chance.randint(2, 12)
        before = have
        match chance.choice(("buys", "multiplies", "gives")):
            case "multiplies":
                have = before * more
                contents.append(f"In {more} weeks that makes {before} * {more} = {have} {goods}.")
            case "gives" if before > more:
                have = before - more
                contents.append(f"{name} then gives {more} away, so {before} - {more} = {have} {goods} are left.")
            case _:
                have = before + more
                contents.append(f"{name} buys {more} more, which is {before} + {more} = {have} {goods}.")
    kinds = ["inference"] * (len(contents) - 1) + ["conclusion"]
    return {
        "id": f"sum-{number}",
        "task": f"How many {goods} does {name} have in the end?",
        "steps": [
            {"step": place, "type": kind, "content": content}
            for place, (kind, content) in enumerate(zip(kinds, contents, strict=True), start=1)
        ],
        "dependencies": {str(place): [place - 1] for place in range(2, len(contents) + 1)},
        "conclusion": contents[-1],
        "critical_steps": None,
    }
