"""Prints a tree of thoughts, its answers and proofs, and a running search.

Thoughts are untrusted text: on the terminal they cannot move the cursor, and a thought with line ends cannot look like
another agent's line.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any, Final

from rich.console import Console
from rich.live import Live
from rich.text import Text

from deedbook.consumers.interfaces.cli.app import App
from deedbook.consumers.interfaces.cli.output import print_fields, print_table, stems, when
from deedbook.consumers.interfaces.cli.terminal import echo
from deedbook.consumers.sdk.text import cut, quote_text, sanitize_line
from deedbook.consumers.thoughts import events as kinds
from deedbook.consumers.thoughts.logs import ends, entries_of
from deedbook.consumers.thoughts.phrases import phrase
from deedbook.consumers.thoughts.run import resumptions
from deedbook.consumers.thoughts.thinkers.registry import is_program
from deedbook.ledger.events.body import Event
from deedbook.ledger.events.entries import read_event

wait_s: Final = 1.0
content_chars_max: Final = 100
line_chars_max: Final = 300

_ADVICE: Final = {
    "LLM_UNAVAILABLE": "; `deed doctor --llm` tries the model",
    "LLM_INVALID": "; before, answer_tokens_max and model in [llm] can be changed",
}


def tree_text(tree: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of a tree, each node under its parent with score and status; ``*`` marks the best path."""
    config, state = tree["search_config"], tree["search_state"]
    searched = (
        ""
        if config is None
        else (
            f", {config['strategy']}, depth {config['max_depth']}, branching {config['branching_factor']}, "
            f"threshold {config['pruning_threshold']:g}"
        )
    )
    yield f"{sanitize_line(tree['problem'])}  [{sanitize_line(tree['task_type'])}{searched}]"
    if tree["root_id"] is None:
        yield "(no thoughts yet)"
        return
    nodes, best = tree["nodes"], set(state["best_path"])
    lines, waiting = [], [(tree["root_id"], 0)]
    while waiting:
        id_, depth = waiting.pop()
        lines.append((id_, depth))
        waiting += [(child, depth + 1) for child in reversed(nodes[id_]["children_ids"])]
    for (id_, _), stem in zip(lines, stems([depth for _, depth in lines]), strict=True):
        yield f"{stem}{_node_text(nodes[id_], is_best=id_ in best)}"
    yield f"at depth {state['current_depth']}, {len(nodes)} nodes, {len(state['frontier'])} in the frontier"


def criteria_text(tree: dict[str, Any]) -> Iterator[str]:
    """Yield how the end of the best path was scored by each criterion."""
    for id_ in tree["search_state"]["best_path"][-1:]:
        judged = (tree["nodes"].get(id_) or {}).get("evaluation") or {}
        if scores := judged.get("dimension_scores"):
            texts = (f"{sanitize_line(name)} {score:g}" for name, score in scores.items())
            yield f"scores of {id_}: {', '.join(texts)}"


def _node_text(node: dict[str, Any], *, is_best: bool) -> str:
    judged = node["evaluation"]
    score = "   -" if judged is None else f"{judged['score']:4.1f}"
    content = cut(sanitize_line(node["content"]), content_chars_max)
    return f"{'*' if is_best else ' '} {node['id']}  {score}  [{node['status']}]  {content}"


def print_outcome(outcome: dict[str, Any], language: kinds.Language) -> None:
    """Print the result of a search in its language: the answer, the steps, the confidence, and who verified it."""
    echo(quote_text(outcome["answer"], "").removeprefix("\n"), bold=True)
    for number, step in enumerate(outcome["reasoning_trace"], 1):
        echo(f"  {number}. {sanitize_line(step)}")
    checked = outcome["verification"]
    by = phrase(language, f"by_{checked['by']}")
    holds = checked["is_valid"] or checked["by"] == "nobody"
    verdict = by if holds else phrase(language, "outcome_invalid", checked=by)
    echo(phrase(language, "outcome_confidence", value=outcome["confidence"], checked=verdict))
    for error in checked["validation_errors"]:
        echo(f"  ! {sanitize_line(error)}")
    for other in outcome["alternative_solutions"]:
        echo(phrase(language, "outcome_other", answer=sanitize_line(other)))


def print_end(task: dict[str, Any]) -> None:
    """Print the answer of a task, or the reason why it has none; print nothing while the search runs."""
    if task["solution"] is not None:
        print_outcome(task["solution"], task["language"])
    elif (failure := task["failure"]) is not None:
        has_path = len(task["search_state"]["best_path"]) > 1 and not is_program(task["thinker"])
        paused = failure | resumptions(task["id"], has_path=has_path) if task["status"] == "paused" else None
        echo(f"{failure['code']}: {sanitize_line(failure['message'])}{resumption(paused)}")


def resumption(paused: dict[str, Any] | None) -> str:
    """Return when and with which command to continue a paused task; empty for None."""
    if paused is None:
        return ""
    wait = f" after {paused['retry_after_s']} s" if paused["retry_after_s"] else ""
    advice = _ADVICE.get(paused["code"], "")
    path = f"; `{paused['best_path']}` takes the best path as the answer" if paused["best_path"] else ""
    return f" (paused: continue{wait} with `{paused['resume']}`; answered requests are not sent again{advice}{path})"


def print_run(outcome: dict[str, Any]) -> None:
    """Print the cost of a search, its log folder, and the processes and keys of its agents."""
    names = ("task_id", "stats", "reasoning", "logs")
    print_fields({name: outcome[name] for name in names if outcome[name] is not None})
    if outcome["pids"]:
        rows = [(role, outcome["pids"][role], f"{outcome['keys'][role][:16]}…") for role in outcome["pids"]]
        print_table(("agent", "pid", "key"), rows)


def print_proof(proof: dict[str, Any]) -> None:
    """Print who answered which request with which key, and whether six agents really ran."""
    rows = [
        (row["answer_index"], row["type"], row["signer"], f"{row['key'][:16]}…", row["request_index"], row["asked_by"])
        for row in proof["answers"]
    ]
    print_table(("index", "answer", "signed by", "with key", "request", "asked by"), rows)
    for row in proof["unanswered"]:
        echo(f"unanswered: {row['type']} (entry {row['request_index']}) waits for the {row['receiver']}")
    echo(proof_verdict(proof))


def proof_verdict(proof: dict[str, Any]) -> str:
    """Return the result of a proof in one sentence."""
    if proof["passed"]:
        return f"ok: {len(proof['answers'])} answers, each by another agent and key than asked for it"
    itself, missing = proof["answered_itself"], proof["missing"]
    faults = [f"{len(itself)} answers by the agent that asked"] if itself else []
    faults += [f"never ran: {', '.join(missing)}"] if missing else []
    return f"FAILED: {'; '.join(faults)}"


def progress(app: App) -> Callable[[Event], None] | None:
    """Return a function that prints each event of a search on stderr; None if stderr is no terminal, or with --json."""
    if app.as_json or not sys.stderr.isatty():
        return None
    lines = EventLines()

    def tell(event: Event) -> None:
        for line in lines.of(event):
            echo(f"{event.index}  {line}", err=True)

    return tell


class EventLines:
    """Prints the events of a task as lines in its language, with the costs so far."""

    def __init__(self) -> None:
        self._language: kinds.Language = "en"
        self._cost = kinds.Usage()

    def of(self, event: Event) -> Iterator[str]:
        """Yield the lines of the next event."""
        if isinstance(event.data, kinds.TotStarted):
            self._language = event.data.language
        cost = ""
        if isinstance(event.data, kinds.Reply) and not isinstance(event.data, kinds.SearchComplete):
            self._cost += event.data.usage
            tokens = self._cost.tokens_in + self._cost.tokens_out
            cost = f"  (requests: {self._cost.requests}, tokens: {tokens:,})" if self._cost.requests else ""
        for entry in entries_of(event, self._language):
            yield cut(sanitize_line(entry.msg), line_chars_max) + cost


def follow_task(app: App, task_id: str) -> None:
    """Show a task until it ends or pauses: on a terminal its tree, growing in place; piped, lines and then the tree."""
    lines, last = EventLines(), ""

    def draw() -> str:
        return "\n".join(tree_text(app.query("tot.tree", id=task_id)))

    if not app.as_json and sys.stdout.isatty():
        # A tree taller than the terminal is cut while it grows, and printed whole at the end.
        with Live(console=Console(), auto_refresh=False) as live:
            for events in _new_events(app, task_id):
                last = ([last] + [line for event in events for line in lines.of(event)])[-1]
                live.update(Text(f"{last}\n{draw()}", no_wrap=True, overflow="ellipsis"), refresh=True)
        print_end(app.query("tot.show", id=task_id))
        return
    for events in _new_events(app, task_id):
        if app.as_json:
            app.show("tot.tree", app.query("tot.tree", id=task_id), ())
            continue
        for event in events:
            for line in lines.of(event):
                echo(f"{event.index}  {when(event.accepted_ms)}  {line}")
    if not app.as_json:
        echo(draw())
        print_end(app.query("tot.show", id=task_id))


def _new_events(app: App, task_id: str) -> Iterator[list[Event]]:
    position, is_still = 0, False
    while True:
        page = app.client().entries(position, stream=f"tot/{task_id}", wait_s=wait_s)
        events = [read_event(index, data) for index, data in page.entries]
        for event in events:
            begins_anew = isinstance(event.data, kinds.TotResumed)
            is_still = ends(event) or isinstance(event.data, kinds.TotPaused) or (is_still and not begins_anew)
        if events:
            yield events
        position = page.next_index
        if is_still and position >= page.size:
            return
