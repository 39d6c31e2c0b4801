"""The text of chains, dry runs and a router's standing on a terminal."""

from __future__ import annotations

from typing import Any

import click

from consumers.doors.cli.output import print_fields, print_table
from consumers.sdk.text import clean


def print_chains(data: dict[str, Any]) -> None:
    """Print what a file of chains says, and what to mind."""
    if not data["chains"]:
        click.echo(f"{data['file']}: no chains")
    for chain in data["chains"]:
        click.secho(clean(chain["name"]), bold=True, nl=False)
        click.echo(f"  at most {chain['hops_max']} hops")
        where = [f"{name} is {' or '.join(map(repr, values))}" for name, values in chain["where"].items()]
        click.echo(clean(f"  when   {' or '.join(chain['when'])}"))
        if where:
            click.echo(clean(f"  where  {' and '.join(where)}"))
        for step in chain["then"]:
            click.echo("  then")
            print_fields(step, indent="    ")
    for warning in data["warnings"]:
        click.echo(clean(f"warning: {warning}"), err=True)
    if not data["agents_checked"]:
        click.echo("there is no ledger here: names were not checked", err=True)


def print_dry_run(data: dict[str, Any], more: str | None) -> None:
    """Print what each chain would make of each event."""
    rows = [
        (event["index"], event["kind"], event["handoff"], chain["chain"], said)
        for event in data["events"]
        for chain in event["chains"]
        for said in ([chain["why_not"]] if chain["why_not"] else [step_text(step) for step in chain["steps"]])
    ]
    print_table(("index", "kind", "handoff", "chain", "outcome"), rows)
    if more is not None:
        click.echo(f"go on with: {more}")


def step_text(step: dict[str, Any]) -> str:
    """Return what a step would make, in one line."""
    if "refused" in step:
        return f"refused: {step['refused']['message']}"
    verb = "is there" if step["is_there"] else "would create"
    return f"{verb}: {step['id']} [→ {step['to']}] {step['title']} (hop {step['hop']})"


def print_status(data: dict[str, Any]) -> None:
    """Print how far a router is and what it could not route."""
    at = "has not begun" if data["position"] is None else f"at entry {data['position']} of {data['head']}"
    click.echo(f"{data['agent']} {at}")
    click.echo(clean(f"chains of {data['file']}: {', '.join(data['chains']) or '(none)'}"))
    if data["problem"]:
        click.echo(clean(f"the file is not used: {data['problem']['code']}: {data['problem']['message']}"))
    if data["dead_letters"]:
        click.echo("not routed (try one again with --retry INDEX)")
        print_table(("index", "id", "error"), [tuple(one.values()) for one in data["dead_letters"]])
