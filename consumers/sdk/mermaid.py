"""Mermaid flowcharts of untrusted text.

Every character that could end a label, begin markup or run a script is written as its number (Mermaid, "Entity codes
to escape characters"). Node names depend only on ids, so that two drawings can be compared.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal, NamedTuple

from blake3 import blake3

from deedbook.consumers.sdk.text import sanitize_line

# The space, letters and digits of every script, and punctuation without a meaning inside quotes.
_ESCAPED: Final = re.compile(r"[^\w .,:/+=→·…—–×÷-]|_")
_name_digits: Final = 12


class Style(NamedTuple):
    """How the nodes of one class are drawn."""

    style: str
    ids: Sequence[str]


class Flowchart(NamedTuple):
    """A drawing: the lines of each node's label by its id, arrows as ``(from, arrow, to)``, classes by their name."""

    prefix: str
    direction: Literal["LR", "TD"]
    nodes: Mapping[str, Sequence[str]]
    arrows: Iterable[tuple[str, str, str]]
    classes: Mapping[str, Style]

    def lines(self) -> Iterator[str]:
        """Yield the lines of the drawing; a class that no node has is left out."""
        yield f"flowchart {self.direction}"
        for id_, label in self.nodes.items():
            yield f'  {node_name(self.prefix, id_)}["{"<br/>".join(map(_escaped, label))}"]'
        for source, arrow, target in self.arrows:
            yield f"  {node_name(self.prefix, source)} {arrow} {node_name(self.prefix, target)}"
        for name, (style, ids) in self.classes.items():
            if ids:
                yield f"  classDef {name} {style}"
                yield f"  class {','.join(node_name(self.prefix, id_) for id_ in ids)} {name}"


def node_name(prefix: str, id_: str) -> str:
    """Return the name of a node in a drawing: the same for the same id, and a word in any language."""
    return prefix + blake3(id_.encode()).hexdigest()[:_name_digits]


def _escaped(text: str) -> str:
    return _ESCAPED.sub(lambda mark: f"#{ord(mark[0])};", sanitize_line(text))
