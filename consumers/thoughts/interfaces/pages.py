"""`/tot`: problems searched as trees of thoughts; `/tot/ID`: one of them, after any entry of the log."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from deedbook.consumers.interfaces.dashboard.address import path_to
from deedbook.consumers.interfaces.dashboard.layout import Box, Drawing, Edge, Node, layered
from deedbook.consumers.interfaces.dashboard.marks import MARKS
from deedbook.consumers.interfaces.dashboard.page import Page, PageContext
from deedbook.consumers.thoughts.transition import parties_of
from deedbook.ledger.errors import Refused

tasks_shown_max: Final = 50
nodes_drawn_max: Final = 200
tree_room: Final = 926
"""The width (px) of the card of the tree, in a window of 1,400 px."""

short_max: Final = 36
"""A tree whose longest thought has more characters gets boxes of three lines."""


def tasks(context: PageContext) -> Page:
    """Return the answer of `tot.list`; ``after`` is the previous page's ``next``."""
    return Page(
        "tot/tasks.html", "Thinking", context.ask("tot.list", after=context.number("after"), limit=tasks_shown_max)
    )


def thoughts(context: PageContext) -> Page:
    """Return the state of a search after the entry ``at``, with its ``drawing`` and the ``steps`` to other entries.

    ``steps`` has the indexes of the task's ``first``, ``previous``, ``next`` and ``last`` entry around ``at`` (default:
    the last), the number of ``all`` entries and of those ``until`` then. ``past_ms`` is the time of the newest of these
    if the page shows a past state (None: the present). ``waits`` are the roles that must act then, each with the number
    of their requests. ``nodes`` are in order of creation, each with a ``mark``: ``best`` (on the best path),
    ``frontier``, ``pruned``, ``not_taken``, ``terminal`` (another end of the search) or none. ``opened`` is the node
    ``sel`` with its origin. Raises Refused: ``NOT_FOUND`` if ``at`` is before the first entry.
    """
    task = context.ask("tot.show", id=context.params["id"])
    stream, first = f"tot/{task['id']}", task["started_index"]

    def entry(**args: Any) -> int | None:
        events = context.ask("catalog.find", stream=stream, limit=1, **args)["items"]
        return events[0]["event_index"] if events else None

    newest = context.ask("catalog.find", stream=stream, limit=1, newest=True)
    last = newest["items"][0]["event_index"]
    at = context.number("at", last) or 0
    if not first <= at <= (context.head if context.as_of is None else context.as_of):
        message = f"{stream} does not exist as of entry {at}: it begins at {first}"
        raise Refused("NOT_FOUND", message, asked=at, first=first)
    as_of = at if at < last else context.instant
    if at < last:
        task = context.ledger.ask("tot.show", as_of=as_of, id=task["id"])
    nodes = _nodes(context.ledger.ask("tot.tree", as_of=as_of, id=task["id"]))
    opened = next((node for node in nodes if node["id"] == context.query.get("sel")), None)
    if opened is not None:
        proof = context.ledger.ask("tot.prove", as_of=as_of, id=task["id"])
        opened |= {"origin": proof["origins"][opened["id"]]}
    steps = {"previous": entry(newest=True, after=min(at, last)), "next": entry(after=at)}
    until = context.ledger.ask("catalog.find", as_of=as_of, stream=stream, limit=1, newest=True)
    steps |= {"first": first, "last": last, "all": newest["total"], "until": until["total"]}
    drawn = nodes[:nodes_drawn_max]
    query = {"at": context.query.get("at", "")}
    data = {"task": task, "at": at, "steps": steps, "waits": _waits(task), "opened": opened, "nodes": drawn}
    data |= {"past_ms": until["items"][0]["happened_ms"] if at < last else None}
    data |= {"drawing": _drawing(drawn, path_to("tot", task["id"]), query, opened)}
    return Page("tot/thoughts.html", f"Thoughts of {task['id']}", data | {"left_out": len(nodes) - len(drawn)})


def _nodes(answer: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the nodes with their ``score`` and ``mark``, parents before children, each level in order of creation."""
    nodes, state = answer["nodes"], answer["search_state"]
    marks = dict.fromkeys(state["frontier"], "frontier") | dict.fromkeys(state["best_path"], "best")
    names = [answer["root_id"]] if answer["root_id"] else []
    for name in names:  # the list grows in the loop
        names.extend(nodes[name]["children_ids"])
        if nodes[name]["status"] == "pruned" or marks.get(nodes[name]["parent_id"]) == "pruned":
            marks[name] = "pruned"
        elif nodes[name]["status"] in ("not_taken", "terminal"):
            marks.setdefault(name, nodes[name]["status"])
    score = {name: (nodes[name]["evaluation"] or {"score": None})["score"] for name in names}
    return [nodes[name] | {"score": score[name], "mark": marks.get(name, "")} for name in names]


def _waits(task: dict[str, Any]) -> dict[str, int]:
    """Return the roles that must act next, each with the number of requests to it.

    The request for the search itself stays open until its end: the explorer acts when it has all answers.
    """
    if task["ended_index"] is not None or task["status"] == "paused":
        return {}
    requests = Counter[str](parties_of(request["type"])[1] for request in task["waiting"])
    others = {role: count for role, count in requests.items() if role != "explorer"}
    return others or requests or {"orchestrator": 1}


def _drawing(nodes: list[dict[str, Any]], path: str, query: dict[str, str], opened: dict[str, Any] | None) -> Drawing:
    boxes, lines = [], []
    is_short = all(len(node["content"]) <= short_max for node in nodes)
    for node in nodes:
        mark, score = node["mark"], "" if node["score"] is None else node["score"]
        figure = f"{MARKS[mark].glyph if mark else ''} {score}".strip()
        boxes.append(
            Node(
                node["id"],
                node["content"],
                figure=figure,
                state=mark or "over",
                href=path,
                query=query | {"sel": node["id"]},
                fragment="opened",
                is_faded=mark == "pruned",
                is_selected=node is opened,
            )
        )
        lines.append(Edge(node["parent_id"] or "", node["id"], "ok" if mark == "best" else "", mark == "pruned"))
    return layered(boxes, lines, "tree", Box(196, 24 if is_short else 56), tree_room)
