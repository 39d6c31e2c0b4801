"""`baton reasoning brief` and `explain`: the prompt; its facts beside their steps, and what was dropped and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import msgspec

from consumers.doors.cli.app import App
from consumers.doors.cli.program import Command
from consumers.doors.cli.reasoning_text import said_of_import
from consumers.reasoning.compressor.transfer import describe, fetch, receive_brief
from consumers.sdk.text import clean
from projections.briefs.certificate import check_certificate
from projections.briefs.critical import critical_numbers
from projections.briefs.fidelity import measure
from projections.briefs.prompt import TransferLevel

if TYPE_CHECKING:
    from consumers.reasoning.compressor.transfer import Received
    from projections.reasoning.memory import ReasoningMemory, ReasoningStep

LEVELS = [level.value for level in TransferLevel]


@click.command(cls=Command)
@click.argument("ref", metavar="ID|REF")
@click.option("--level", type=click.Choice(LEVELS), default="standard", show_default=True)
@click.option(
    "--budget", type=click.IntRange(1, 100_000), help="Tokens the prompt may have (default: the level's own)."
)
@click.pass_obj
def brief(app: App, ref: str, level: str, budget: int | None) -> None:
    """Print the brief of a reasoning as a prompt; made on the spot if none of this level is published.

    The certificate says whether every fact is byte for byte the graph's; it is checked here, against the graph.
    """
    received = receive_brief(app.query_with, ref, TransferLevel(level), budget=budget)
    memory = fetch(app.query_with, received.brief.reasoning_ref).memory
    data = describe(received) | {"certificate": certificate(received, memory)}

    def text() -> None:
        click.echo(clean(data["prompt"]))
        count = f"{data['tokens']} tokens" if data["exact"] else f"about {data['tokens']} tokens"
        click.echo(f"-- {count} of {data['budget']}, fidelity {data['fidelity']:.2f}", err=True)
        if data["prose"]:
            click.echo(f"-- {data['prose']['model']} wrote beside it, lexical lower bound of its fidelity:", err=True)
            click.echo(clean(" ".join(one["text"] for one in data["prose"]["sentences"])), err=True)
        if not data["certificate"]["holds"]:
            click.echo("-- BROKEN: the brief says something else than its graph", err=True)
        if data["imported"]:
            click.echo(f"-- {clean(said_of_import(data['imported']))}", err=True)
        if data["rule_fired"]:
            click.echo(f"-- fetch the whole graph before acting: {data['rule_fired']['reason']}", err=True)

    app.show("brief", data, text)


@click.command(cls=Command)
@click.argument("ref", metavar="ID|REF")
@click.option("--level", type=click.Choice(LEVELS), default="standard", show_default=True, help="Which brief.")
@click.option("--budget", type=click.IntRange(1, 100_000), help="Tokens the prompt may have.")
@click.pass_obj
def explain(app: App, ref: str, level: str, budget: int | None) -> None:
    """Show what a brief keeps of a reasoning, step by step, and what it drops and why.

    The fidelity is measured again here, and every fact is compared with the graph.
    """
    received = receive_brief(app.query_with, ref, TransferLevel(level), budget=budget)
    memory = fetch(app.query_with, received.brief.reasoning_ref).memory
    data = explained(received, memory)
    app.show("explanation", data, lambda: print_explanation(data))


def explained(received: Received, memory: ReasoningMemory) -> dict[str, Any]:
    """Return the brief beside its graph as plain values."""
    brief = received.brief
    facts = {fact.step: fact for fact in brief.facts}
    critical = critical_numbers(memory)
    steps = []
    for step in memory.steps:
        number = step.step_number
        steps.append(
            {
                "step": number,
                "type": step.type,
                "content": step.content,
                "evidence": step.evidence,
                "rests_on": memory.dependencies.get(number, []),
                "critical": number in critical,
                "kept": number in facts,
                "why": _why(step, memory, kept=number in facts, critical=number in critical),
            }
        )
    return {
        "reasoning_ref": brief.reasoning_ref,
        "level": received.prompt.level,
        "tokens": received.prompt.tokens,
        "budget": received.prompt.budget,
        "fidelity": msgspec.to_builtins(brief.fidelity),
        "measured_again": measure(memory, received.prompt.prompt).value,
        "certificate": certificate(received, memory),
        "steps": steps,
        "dropped_sections": received.prompt.dropped,
        "budget_needed_for_0.90": brief.budget_needed_for_090,
    }


def certificate(received: Received, memory: ReasoningMemory) -> dict[str, Any]:
    """Return whether every fact of a brief is its graph's, and each place where one is not."""
    problems = check_certificate(received.brief, memory)
    return {"holds": not problems, "problems": msgspec.to_builtins(problems)}


def print_explanation(data: dict[str, Any]) -> None:
    """Print the brief beside its graph."""
    click.echo(
        f"{data['level']}: {data['tokens']} of {data['budget']} tokens, fidelity {data['fidelity']['value']:.2f}"
    )
    click.echo("certificate: " + ("every fact is the step's own words" if data["certificate"]["holds"] else "BROKEN"))
    for one in data["steps"]:
        mark = "+" if one["kept"] else "-"
        after = f"  ← {', '.join(map(str, one['rests_on']))}" if one["rests_on"] else ""
        click.echo(f"{mark} {one['step']}. {one['type']}{after}: {clean(one['content'])}")
        for evidence in one["evidence"]:
            click.echo(f"      {clean(evidence)}")
        if not one["kept"]:
            click.echo(f"      dropped: {one['why']}")
    if data["dropped_sections"]:
        click.echo("sections without room: " + ", ".join(data["dropped_sections"]))
    if data["budget_needed_for_0.90"]:
        click.echo(f"a fidelity of 0.90 needs {data['budget_needed_for_0.90']} tokens")


def _why(step: ReasoningStep, memory: ReasoningMemory, *, kept: bool, critical: bool) -> str:
    if kept:
        return "the conclusion rests on it" if critical else "there was room"
    if step.content.strip() == memory.conclusion.strip():
        return "it stands as the conclusion"
    if not critical:
        return f"the conclusion does not rest on this {step.type}"
    return "the budget had no room for it"
