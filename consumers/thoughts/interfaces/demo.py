"""Plays the tree-of-thoughts search that is part of the history of `deed demo`."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from deedbook.consumers.interfaces.demo.life import Life
from deedbook.consumers.thoughts.agents import Agent
from deedbook.consumers.thoughts.run import prepare
from deedbook.consumers.thoughts.settings import Overrides, TaskOptions
from deedbook.consumers.thoughts.task import AGENTS
from deedbook.consumers.thoughts.thinkers.registry import thinker_named


def play(life: Life) -> None:
    """Let six agents search a tree of thoughts; they are threads, because only this process has the past clock."""
    for name in AGENTS.values():
        life.register(name, ["service"])
    options = TaskOptions("math_reasoning", Overrides(depth=3, branching=4, beam_width=3))
    task = prepare(life.settings, life.client, "4 9 10 13", options, "tot-20260212-100000-game24")
    thinker, stop = thinker_named(task.thinker, task.actions), threading.Event()
    with ThreadPoolExecutor(len(AGENTS)) as pool:
        agents = [Agent(role, life.author(name), thinker, task.opening) for role, name in AGENTS.items()]
        list(pool.map(lambda agent: agent.run(stop, task.start), agents))
