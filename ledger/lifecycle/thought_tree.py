"""What the gate remembers of a tree of thoughts: its nodes, with digests that stand for what they say.

The same digests compare a closing tree with the one that was searched.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
from blake3 import blake3

from ledger.codec import encode_canonical
from ledger.events import tot as kinds

digest_bytes: Final = 12


class NodeState(msgspec.Struct, frozen=True, array_like=True):
    """A node as the gate remembers it; what it says is a digest."""

    parent: str | None
    depth: int
    content: bytes
    status: str = "pending"
    evaluation: bytes = b""


def content_digest(node: kinds.ThoughtNode) -> bytes:
    """Return the digest of what a node is, without its evaluation, status and children."""
    kept = (node.id, node.parent_id, node.depth, node.content, node.action_type, node.metadata)
    return digest_of(kept)


def evaluation_digest(evaluation: kinds.Evaluation | None) -> bytes:
    """Return the digest of a node's evaluation; empty without one."""
    return b"" if evaluation is None else digest_of(evaluation)


def tree_digest(nodes: Mapping[str, NodeState]) -> str:
    """Return the digest of a whole tree, in whatever order its nodes came: hex."""
    lines = [
        (id_, node.parent, node.depth, node.content.hex(), node.status, node.evaluation.hex())
        for id_, node in sorted(nodes.items())
    ]
    return blake3(encode_canonical(lines)).hexdigest()


def node_states(nodes: Iterable[kinds.ThoughtNode]) -> dict[str, NodeState]:
    """Return nodes as the gate remembers them, to compare a tree with it."""
    return {
        node.id: NodeState(
            node.parent_id, node.depth, content_digest(node), node.status, evaluation_digest(node.evaluation)
        )
        for node in nodes
    }


def problem_digest(problem: str, task_type: str) -> bytes:
    """Return the digest of what is to be solved."""
    return digest_of((problem, task_type))


def leads_down(nodes: Sequence[kinds.ThoughtNode]) -> bool:
    """Return whether nodes lead from the root down, each to the next."""
    above = (None, *(node.id for node in nodes))
    return all(node.parent_id == parent for node, parent in zip(nodes, above, strict=False))


def is_searched(data: kinds.SearchComplete, nodes: Mapping[str, NodeState], problem: bytes, config: bytes) -> bool:
    """Return whether a search ends with the nodes that it grew, and with the problem and configuration it began with.

    What follows from them (stats, frontier) is the views' to say: they show their own beside the explorer's.
    """
    digest, tree = tree_digest(nodes), data.payload.tree
    is_same = data.payload.tree_digest == digest and node_states(data.payload.best_path).items() <= nodes.items()
    if tree is None or not is_same:
        return is_same
    return (
        (tree.task_id, problem_digest(tree.problem, tree.task_type)) == (data.task_id, problem)
        and digest_of(tree.search_config) == config
        and _is_whole(tree)
        and tree_digest(node_states(tree.nodes.values())) == digest
    )


def _is_whole(tree: kinds.ThoughtTree) -> bool:
    """Return whether nodes stand under their own ids, children beside their parents, and the root at the top."""
    children: dict[str | None, list[str]] = {}
    for node in tree.nodes.values():
        children.setdefault(node.parent_id, []).append(node.id)
    return children.get(None) == [tree.root_id] and all(
        id_ == node.id and sorted(node.children_ids) == sorted(children.get(id_, []))
        for id_, node in tree.nodes.items()
    )


def digest_of(content: Any) -> bytes:
    """Return the short digest of plain content."""
    return blake3(encode_canonical(content)).digest(length=digest_bytes)
