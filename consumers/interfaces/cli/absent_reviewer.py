"""The advice to a call that names no reviewer, or one who may not review. Only such a call imports this module."""

from __future__ import annotations

import shlex
from itertools import chain, count

from deedbook.consumers.interfaces.cli.app import App
from deedbook.consumers.interfaces.cli.hints import passphrase_line
from deedbook.consumers.interfaces.cli.login_name import login_name
from deedbook.ledger.errors import Refused
from deedbook.ledger.events.handoff import HandoffContent
from deedbook.ledger.lifecycle.machine import REVIEWING

_WORDS_OF_ROLES = ("--role", "human", "--role", "reviewer")


def name_reviewers(app: App, refusal: Refused, data: HandoffContent) -> None:
    """Add to a refusal who can review a handoff; if nobody can, the whole command that registers a person."""
    agents = app.query("agents.list", all=True)["agents"]
    parties = {app.acting(), getattr(data, "to", None)}
    able = [agent["name"] for agent in agents if REVIEWING.intersection(agent["roles"])]
    if reviewers := [name for name in able if name not in parties]:
        refusal.message += f"; here that is {' or '.join(reviewers)}"
        return
    taken, name = {agent["name"] for agent in agents}, login_name()
    name = next(free for free in chain([name], (f"{name}-{number}" for number in count(2))) if free not in taken)
    words = [*shlex.split(app.here(f"deed agent add {name}"))[1:], *_WORDS_OF_ROLES]
    line = shlex.join(["deed", *words]) if app.has_terminal else passphrase_line(words)
    refusal.message += f"; here nobody else can. Register a person:\n  next: {line}"
    refusal.details["next"] = [line]
