"""A reasoning in plain text: step by step, or as a tree from the conclusion down to the evidence."""

from __future__ import annotations

from typing import Any

import click

from consumers.sdk.text import clean


def print_reasoning(found: dict[str, Any]) -> None:
    """Print a reasoning, one step a paragraph."""
    memory = found["memory"]
    click.secho(clean(memory["task"]), bold=True)
    click.echo(f"{found['id']}  [{found['status']}]  by {found['author']}  {found['ref']}")
    print_import(found)
    dependencies = {int(number): rests_on for number, rests_on in memory["dependencies"].items()}
    for one in memory["steps"]:
        rests_on = dependencies.get(one["step_number"], [])
        after = f"  ← {', '.join(map(str, rests_on))}" if rests_on else ""
        click.echo(f"  {one['step_number']}. {one['type']} ({one['confidence']:.2f}){after}")
        click.echo(f"     {clean(one['content'])}")
        for evidence in one["evidence"]:
            click.echo(f"       {clean(evidence)}")
        if one.get("needs_validation"):
            click.echo(f"       to be validated: {clean(one.get('validation_method') or 'nobody said how')}")
        if one.get("conclusion"):
            click.echo(f"       → {clean(one['conclusion'])}")
    if memory["conclusion"]:
        click.echo(f"conclusion: {clean(memory['conclusion'])} ({memory['confidence_in_reasoning']:.2f})")
    for limitation in memory["known_limitations"]:
        click.echo(f"limitation: {clean(limitation)}")


def print_import(found: dict[str, Any]) -> None:
    """Print what marks imported reasoning, and what of it was guessed or could not be read."""
    imported = found["imported"]
    if imported is None:
        return
    click.echo(clean(said_of_import(imported)))
    for name, value in imported["claims"].get("said", {}).items():
        if name.startswith("inferred"):
            click.echo(f"  {name.replace('_', ' ')}: {clean(value)}")
    for dirty in imported["claims"].get("dirty", []):
        click.echo(f"  not read as it was meant: {clean(dirty['path'])}: {clean(dirty['why'])}")
    click.echo(f"  original: {imported['original']}")


def said_of_import(imported: dict[str, Any]) -> str:
    """Return in a sentence where imported reasoning came from, and what that is worth."""
    claimed = [f"claimed author {imported['claimed_author']}"] if imported["claimed_author"] else []
    claimed += [f"claimed time {imported['claimed_at']}"] if imported["claimed_at"] else []
    by = "".join(f", {one}" for one in claimed)
    return f"IMPORTED by {imported['importer']} from {imported['source']}{by}: it grants nothing"


def print_tree(found: dict[str, Any]) -> None:
    """Print each step under those it supports; one that supports several is printed whole once, then by its number."""
    memory = found["memory"]
    steps = {one["step_number"]: one for one in memory["steps"]}
    rests_on = {int(number): wanted for number, wanted in memory["dependencies"].items()}
    supporting = {number for wanted in rests_on.values() for number in wanted}
    click.secho(clean(memory["conclusion"] or memory["task"]), bold=True)
    print_import(found)
    # A stack, not recursion: a chain of two thousand steps is as deep as it is long.
    roots = sorted((number for number in steps if number not in supporting), key=lambda one: (one not in rests_on, one))
    waiting = [(number, 0) for number in reversed(roots)]
    printed: set[int] = set()
    while waiting:
        number, depth = waiting.pop()
        one, indent = steps[number], "  " * depth
        if number in printed:
            click.echo(f"{indent}{number}. (above)")
            continue
        printed.add(number)
        click.echo(f"{indent}{number}. {one['type']}: {clean(one['content'])}")
        for evidence in one["evidence"]:
            click.echo(f"{indent}     {clean(evidence)}")
        waiting += [(wanted, depth + 1) for wanted in sorted(rests_on.get(number, []), reverse=True)]
