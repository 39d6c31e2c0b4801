"""Our part of a file that is somebody else's: whether it is there, how it comes in, and how it goes.

A part is pure: text in, text out. ``state`` says what became of it: *edited* is a part that a person changed, which
setup and removal refuse to touch unless they are forced; *outdated* is one that setup wrote, now or in an earlier
version. A fenced block carries the digest of what was written in its first line, so that it tells by itself. Settings
have no room for one: there the record of what was written tells (``record``), and without it whatever differs in more
than its command counts as edited.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from consumers.doors.hooks import json_text

if TYPE_CHECKING:
    from collections.abc import Mapping

Place = tuple[str | int, ...]


class State(StrEnum):
    """What became of our part of a file."""

    INSTALLED = "installed"
    MISSING = "missing"
    OUTDATED = "outdated"
    EDITED = "edited"


class Part(Protocol):
    """Our part of one file."""

    @property
    def new_file(self) -> str:
        """What a file that is made for the part holds before it."""
        ...

    @property
    def written(self) -> dict[str, Any]:
        """What the record keeps, to tell later whether somebody changed it."""
        ...

    def state(self, text: str, written: Mapping[str, Any] | None) -> State:
        """Return what became of the part; ``written`` is what the record kept, if there is one."""
        ...

    def insert(self, text: str) -> str:
        """Return a text that holds the part, from one that does not."""
        ...

    def update(self, text: str) -> str:
        """Return the text with the present part in the place of an earlier one."""
        ...

    def remove(self, text: str, before: str) -> str:
        """Return the text without the part; what stood in ``before`` stays even where it is empty now."""
        ...


class Setting(NamedTuple):
    """One value in a settings file: an item of the array at ``path``, or the member there."""

    path: tuple[str, ...]
    value: dict[str, Any]
    is_item: bool
    mark: str
    """What the command of ours holds, and nobody else's."""


class Settings(NamedTuple):
    """Settings of ours in a JSON file."""

    settings: tuple[Setting, ...]

    @property
    def new_file(self) -> str:
        """An empty object."""
        return "{}\n"

    @property
    def written(self) -> dict[str, Any]:
        """The values by their path."""
        return {".".join(one.path): one.value for one in self.settings}

    def state(self, text: str, written: Mapping[str, Any] | None) -> State:
        """Return what became of the settings."""
        found = self._found(text)
        values = {".".join(one.path): [value for _, value in places] for one, places in found if places}
        if not values:
            return State.MISSING
        if values == {name: [value] for name, value in self.written.items()}:
            return State.INSTALLED
        if written is not None:
            is_ours = values == {name: [value] for name, value in written.items()}
        else:
            is_ours = _bare(values) == _bare({name: [value] for name, value in self.written.items()})
        return State.OUTDATED if is_ours else State.EDITED

    def insert(self, text: str) -> str:
        """Return the text with the settings, each before what is there."""
        for one in reversed(self.settings):
            text = json_text.insert(text, one.path, one.value, is_item=one.is_item)
        return text

    def update(self, text: str) -> str:
        """Return the text with the present settings."""
        return self.insert(self.remove(text, text))

    def remove(self, text: str, before: str) -> str:
        """Return the text without the settings, and without what only they had made necessary."""
        keep = _containers(json_text.scan(before, {one.path[0] for one in self.settings}), self.settings)
        while places := [place for _, found in self._found(text) for place, _ in found]:
            text = json_text.cut(text, places[0], keep)
        return text

    def _found(self, text: str) -> list[tuple[Setting, list[tuple[Place, Any]]]]:
        root = json_text.scan(text, {one.path[0] for one in self.settings})
        return [(one, _places(root, one)) for one in self.settings]


def _places(root: json_text.Node, setting: Setting) -> list[tuple[Place, Any]]:
    """Return where values of ours stand for one setting."""
    node: json_text.Node | None = root
    for key in setting.path:
        node = None if node is None or not isinstance(node.value, dict) else node.member(key)
    if node is None:
        return []
    if not setting.is_item:
        return [(setting.path, node.value)]  # its name is ours, so whatever stands there is in our place
    if not isinstance(node.value, list):
        return []
    items = ((one.key, one.node.value) for one in node.members)
    return [((*setting.path, key), value) for key, value in items if _is_marked(value, setting.mark)]


def _is_marked(value: Any, mark: str) -> bool:
    handlers = value.get("hooks") if isinstance(value, dict) else None
    if not isinstance(handlers, list):
        return False
    commands = (one.get("command") for one in handlers if isinstance(one, dict))
    return any(isinstance(command, str) and mark in f"{command} " for command in commands)


def _containers(root: json_text.Node, settings: tuple[Setting, ...]) -> frozenset[Place]:
    """Return the paths of the objects and arrays that stand on the way to the settings."""
    kept: set[Place] = set()
    for one in settings:
        node: json_text.Node | None = root
        for depth, key in enumerate(one.path if one.is_item else one.path[:-1]):
            node = None if node is None or not isinstance(node.value, dict) else node.member(key)
            if node is None:
                break
            kept.add(one.path[: depth + 1])
    return frozenset(kept)


def _bare(value: Any) -> Any:
    """Return a value without its commands, which change when Baton moves or another agent is named."""
    if isinstance(value, dict):
        return {key: _bare(one) for key, one in value.items() if key not in {"command", "args"}}
    return [_bare(one) for one in value] if isinstance(value, list) else value
