"""What each message of a search says, in one line for people, and which round of the search it belongs to. Pure.

A round is one generation, with the evaluation of what it gave. Nodes tie the evaluator's calls to the generator's; an
evaluation over several generations counts to the last of them.
"""

from __future__ import annotations

from typing import Final

import msgspec

from ledger.events import EventData
from ledger.events import tot as kinds
from ledger.events.body import Event

line_length_max: Final = 300
# What follows the last round, whatever it names as its cause.
_AFTER: Final = (kinds.SynthesizeSolution, kinds.FinalSolution, kinds.SearchComplete)


def sender_of(data: EventData) -> str:
    """Return the role that says it: the orchestrator starts a task, the explorer grows the tree."""
    if isinstance(data, kinds.Said):
        return data.sender
    return "orchestrator" if isinstance(data, kinds.TotStarted) else "explorer"


def error_of(data: EventData) -> kinds.Failure | None:
    """Return what went wrong, if a message says that something did."""
    return data.error if isinstance(data, kinds.Message | kinds.TotError | kinds.TotPaused) else None


def text_of(data: EventData) -> str:
    """Return the line of a message, at most 300 characters."""
    failure = error_of(data)
    text = _text(data) if failure is None else f"{failure.code}: {failure.message}"
    return text if len(text) <= line_length_max else text[: line_length_max - 1] + "…"


def _text(data: EventData) -> str:
    match data:
        case kinds.TotStarted():
            return f"The task begins ({data.task_type}): {data.problem}"
        case kinds.DecomposeTask():
            return f"Asks how to decompose: {data.payload.problem}"
        case kinds.DecompositionResult(payload=kinds.Decomposition() as shape):
            return f"One thought is one {shape.thought_granularity}; about {shape.depth_estimate} deep"
        case kinds.InitializeSearch():
            config = data.payload.search_config
            return (
                f"Asks for a search: {config.strategy}, depth {config.max_depth}, branching {config.branching_factor}, "
                f"threshold {config.pruning_threshold:g}"
            )
        case kinds.SearchComplete():
            stats = data.payload.stats
            return f"The search is complete: {stats.total_nodes} nodes, {stats.total_backtracks} backtracks"
        case kinds.SynthesizeSolution():
            return f"Asks for the answer of a path of {len(data.payload.best_path)} nodes"
        case kinds.FinalSolution(payload=kinds.Solution() as solution):
            checked = solution.verification
            return f"{solution.answer} ({'valid' if checked.is_valid else 'not valid'}, checked by {checked.by})"
        case kinds.TotModelAnswered():
            said = "an answer" if data.fault is None else f"no answer: {data.fault}"
            return f"{data.model} gave {said} ({data.usage.tokens_in} + {data.usage.tokens_out} tokens)"
        case kinds.TotResumed():
            return f"Goes on with {data.thinker}"
        case _:  # the kinds by which the tree grows
            return _text_of_growth(data)


def _text_of_growth(data: EventData) -> str:
    match data:
        case kinds.GenerateThoughts():
            return f"Asks for {data.payload.num_candidates} thoughts from {data.payload.parent_node.id}"
        case kinds.GeneratedThoughts(payload=kinds.GeneratedPayload() as payload):
            return f"{len(payload.candidates)} thoughts: " + "; ".join(one.content for one in payload.candidates)
        case kinds.EvaluateThoughts():
            return "Asks to evaluate " + ", ".join(node.id for node in data.payload.candidates)
        case kinds.EvaluationResults(payload=kinds.ResultsPayload() as payload):
            return "Scores: " + ", ".join(f"{one.node_id} {one.score:g}" for one in payload.evaluations)
        case kinds.TotNodesAdded():
            return "Adds " + ", ".join(node.id for node in data.nodes)
        case kinds.TotNodesMarked():
            return f"{', '.join(data.node_ids)}: {data.status}. {data.reason}"
        case kinds.TotBacktracked():
            return f"Turns back from {data.node_id} to {data.to_node_id or 'nothing'}: {data.reason}"
        case kinds.TotLogWritten():
            return data.entries[0].msg
        case _:  # an answer without a payload: it says its error
            return "Nothing"


class Rounds(msgspec.Struct, frozen=True, array_like=True):
    """How many rounds there were, and to which the events, the nodes and the last event of each author belong."""

    count: int = 0
    of_event: dict[str, int] = {}
    of_node: dict[str, int] = {}
    last: dict[str, int] = {}


def rounds_after(rounds: Rounds, event: Event) -> Rounds:
    """Return the rounds after one more event of the task."""
    data, count, of_node = event.data, rounds.count, rounds.of_node
    if isinstance(data, kinds.GenerateThoughts):
        count += 1
        round_ = count
    elif isinstance(data, kinds.EvaluateThoughts):
        round_ = max((of_node.get(node.id, 0) for node in data.payload.candidates), default=0) or count
    elif isinstance(data, _AFTER):
        round_ = 0
    else:
        round_ = next((rounds.of_event[cause] for cause in event.causes if cause in rounds.of_event), 0)
        if isinstance(data, kinds.TotLogWritten):
            round_ = round_ or data.round
    if not round_:
        return rounds
    if isinstance(data, kinds.TotNodesAdded):
        of_node = of_node | dict.fromkeys((node.id for node in data.nodes), round_)
    return Rounds(count, rounds.of_event | {event.id: round_}, of_node, rounds.last | {event.author: round_})


def round_of(rounds: Rounds, event: Event) -> int:
    """Return the round of an event that was counted; 0 when it belongs to none."""
    return rounds.of_event.get(event.id, 0)


def round_of_file(rounds: Rounds, event: Event) -> int:
    """Return the round in whose log file the event just counted stands: without one of its own, its author's last."""
    return round_of(rounds, event) or rounds.last.get(event.author) or 1
