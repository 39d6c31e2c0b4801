"""A tree of thoughts as text: a tree for people, Mermaid for whatever draws, answers, proofs.

Thoughts are other people's text: on the terminal nothing of them moves the cursor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from consumers.doors.cli.output import print_fields, print_table
from consumers.sdk.mermaid import Flowchart, Style
from consumers.sdk.text import cut, one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

content_chars_max: Final = 100
depth_drawn_max: Final = 16

_CLASSES: Final = {
    "best": "stroke-width:3px",
    "terminal": "fill:#d7f5dd,stroke:#1a7f37",
    "pruned": "fill:#eeeeee,stroke:#8c8c8c,color:#666666",
    "pending": "stroke-dasharray:4 3",
}


def tree_text(tree: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of a tree, each node under its parent with score and status; ``*`` marks the best path."""
    config, state = tree["search_config"], tree["search_state"]
    searched = ""
    if config is not None:
        searched = (
            f", {config['strategy']}, depth {config['max_depth']}, branching {config['branching_factor']}, "
            f"threshold {config['pruning_threshold']:g}"
        )
    yield f"{one_line(tree['problem'])}  [{one_line(tree['task_type'])}{searched}]"
    if tree["root_id"] is None:
        yield "(no thoughts yet)"
        return
    nodes, best = tree["nodes"], set(state["best_path"])
    # A stack, not recursion: a path of 64 nodes is no deeper than it is long.
    waiting = [(tree["root_id"], "", "")]
    while waiting:
        id_, stem, below = waiting.pop()
        yield f"{stem}{node_text(nodes[id_], is_best=id_ in best)}"
        children = nodes[id_]["children_ids"]
        if nodes[id_]["depth"] >= depth_drawn_max:  # bars beyond would leave no room for what they lead to
            waiting += [(child, f"⋯ {nodes[child]['depth']} deep ", "") for child in reversed(children)]
            continue
        for number, child in reversed(list(enumerate(children, 1))):
            is_last = number == len(children)
            branch, bar = ("└─ ", "   ") if is_last else ("├─ ", "│  ")
            waiting.append((child, below + branch, below + bar))
    yield f"at depth {state['current_depth']}, {len(nodes)} nodes, {len(state['frontier'])} in the frontier"


def node_text(node: dict[str, Any], *, is_best: bool) -> str:
    """Return a node on one line: mark, id, score, status, thought."""
    judged = node["evaluation"]
    score = "   -" if judged is None else f"{judged['score']:4.1f}"
    content = cut(one_line(node["content"]), content_chars_max)
    return f"{'*' if is_best else ' '} {node['id']}  {score}  [{node['status']}]  {content}"


def mermaid_text(tree: dict[str, Any]) -> Iterator[str]:
    """Yield a Mermaid flowchart of a tree, from the root down."""
    nodes, best = tree["nodes"], set(tree["search_state"]["best_path"])
    return Flowchart(
        prefix="n",
        direction="TD",
        nodes={node["id"]: _label(node) for node in nodes.values()},
        arrows=[
            (node["id"], "==>" if node["id"] in best and child in best else "-->", child)
            for node in nodes.values()
            for child in node["children_ids"]
        ],
        classes={name: Style(style, _named(name, tree)) for name, style in _CLASSES.items()},
    ).lines()


def print_outcome(outcome: dict[str, Any]) -> None:
    """Print what a search found: the answer, the steps to it, and how far it holds."""
    click.secho(one_line(outcome["answer"]), bold=True)
    for number, step in enumerate(outcome["reasoning_trace"], 1):
        click.echo(f"  {number}. {one_line(step)}")
    verification = outcome["verification"]
    click.echo(f"confidence {outcome['confidence']:.2f}, {'verified' if verification['is_valid'] else 'NOT VALID'}")
    for error in verification["validation_errors"]:
        click.echo(f"  ! {one_line(error)}")
    for other in outcome["alternative_solutions"]:
        click.echo(f"or: {one_line(other)}")


def print_run(outcome: dict[str, Any]) -> None:
    """Print what a search cost, where it stands, and who searched."""
    known = {name: outcome[name] for name in ("task_id", "stats", "reasoning", "logs") if outcome[name] is not None}
    print_fields(known)
    if outcome["pids"]:
        rows = [(role, outcome["pids"][role], f"{outcome['keys'][role][:16]}…") for role in outcome["pids"]]
        print_table(("agent", "pid", "key"), rows)


def print_proof(proof: dict[str, Any]) -> None:
    """Print who answered which request with which key, and whether six agents really ran."""
    rows = [
        (one["answer_index"], one["type"], one["signer"], f"{one['key'][:16]}…", one["request_index"], one["asked_by"])
        for one in proof["answers"]
    ]
    print_table(("index", "answer", "signed by", "with key", "request", "asked by"), rows)
    for one in proof["unanswered"]:
        click.echo(f"unanswered: {one['type']} (entry {one['request_index']}) waits for the {one['receiver']}")
    click.echo(proof_verdict(proof))


def proof_verdict(proof: dict[str, Any]) -> str:
    """Return in one sentence what a proof comes to."""
    if proof["passed"]:
        return f"ok: {len(proof['answers'])} answers, each by another agent and key than asked for it"
    said = []
    if proof["answered_itself"]:
        said.append(f"{len(proof['answered_itself'])} answers by whoever had asked")
    if proof["missing"]:
        said.append(f"never ran: {', '.join(proof['missing'])}")
    return f"FAILED: {'; '.join(said)}"


def print_lines(lines: Iterable[str]) -> None:
    """Print lines."""
    for line in lines:
        click.echo(line)


def _label(node: dict[str, Any]) -> list[str]:
    score = "" if node["evaluation"] is None else f" · {node['evaluation']['score']:g}"
    return [f"{node['id']} · {node['status']}{score}", node["content"]]


def _named(name: str, tree: dict[str, Any]) -> list[str]:
    if name == "best":
        return [id_ for id_ in tree["nodes"] if id_ in tree["search_state"]["best_path"]]
    return [id_ for id_, node in tree["nodes"].items() if node["status"] == name]
