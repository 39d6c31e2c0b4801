"""The explorer: what ``next_action`` tells, said once (seed 003, messages 2 to 5).

The key of what it says is the number of its step, so two explorers of one task (one of them thought dead) can never
walk two ways: the ledger takes a step once, and whoever was later reads on. A tree beyond ``tree_inline_max_bytes`` is
stored as a blob first and named by its ref. What happens if we crash between the two: a blob that nobody names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from consumers.thoughts.messages import outgoing
from consumers.thoughts.search import Finish, next_action
from consumers.thoughts.task import Say, Task
from ledger.codec import encode_canonical
from ledger.events import tot as kinds

if TYPE_CHECKING:
    from collections.abc import Callable

    from consumers.thoughts.thinking import Thinker

tree_inline_max_bytes: Final = 32 * 1024
message_max_chars: Final = 1_000


def explore(task: Task, thinker: Thinker, store: Callable[[bytes], str]) -> list[Say]:
    """Return what the explorer says next, one submission; ``store`` keeps a blob and returns its ref."""
    if task.is_over or task.tree is None:
        return []
    said = outgoing(task.tree, next_action(task.tree, thinker.is_solution, task.elapsed_s()))
    if said is None:
        return []
    data = said.data
    if isinstance(data, kinds.SearchComplete):
        return [Say(f"answer:{task.tree.request}", _fitted(data, store), said.causes)]
    return [Say(f"step:{task.steps + 1}", data, said.causes or [task.tree.request])]


def given_up(task: Task, message: str, store: Callable[[bytes], str]) -> list[Say]:
    """Return the end of a search that the ledger did not take the next step of: it was too much for one event."""
    if task.is_over or task.tree is None:
        return []
    failure = kinds.Failure(code="INVALID_FORMAT", message=message[:message_max_chars], recoverable=False)
    said = outgoing(task.tree, Finish("failed", failure))
    assert said is not None  # noqa: S101 - an end is always told
    assert isinstance(said.data, kinds.SearchComplete)  # noqa: S101 - as this message
    payload = msgspec.structs.replace(said.data.payload, best_path=[])
    data = msgspec.structs.replace(said.data, payload=payload)
    return [Say(f"answer:{task.tree.request}", _fitted(data, store), said.causes)]


def _fitted(data: kinds.SearchComplete, store: Callable[[bytes], str]) -> kinds.SearchComplete:
    """Return the message with its tree as a blob if it is too large to stand in it."""
    tree = encode_canonical(data.payload.tree)
    if len(tree) <= tree_inline_max_bytes:
        return data
    payload = msgspec.structs.replace(data.payload, tree=None, tree_ref=store(tree))
    return msgspec.structs.replace(data, payload=payload)
