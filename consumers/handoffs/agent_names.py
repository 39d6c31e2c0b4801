"""Finds the agent that people mean by a name in a file: ``To: Claude Code`` means the agent ``claude-code``.

Letters, digits and their order tell names apart; case, spaces, ``-`` and ``_`` do not, nor does a remark after the name
(``kuro (Mac)``, ``kuro ← the author``). A name that could mean two agents means nobody, because the named agent may
claim or approve the work.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from deedbook.ledger.client.client import Ask
from deedbook.ledger.errors import did_you_mean, near
from deedbook.ledger.format.forms import NAME_PATTERN

_REMARK: Final = re.compile(r"\s*(?:←|<-|[(（]).*\Z", re.DOTALL)
_SEVERAL: Final = re.compile(r"[,，、;；/&+＋|]|\s(?:and|or|和|與|与|及|或)\s", re.IGNORECASE)
_BETWEEN: Final = re.compile(r"[\s_]+")


class Naming(NamedTuple):
    """The options of an import that complete or replace the names in files of handoffs.

    ``to`` is the receiver of each handoff that names none, ``reviewer`` the reviewer of each that names none.
    ``aliases`` maps a name in the files (as ``alias_key``) to an agent; an empty agent means nobody.
    """

    to: str | None = None
    reviewer: str | None = None
    aliases: Mapping[str, str] = MappingProxyType({})


class AgentNames(NamedTuple):
    """The registered names, and the reviewer of a handoff that names none.

    ``roles`` are those of each agent. Only an import has a ``naming``.

    >>> agents = AgentNames(("claude-code", "kuro", "ops-1", "ops_1"))
    >>> agents.named("Claude Code"), agents.named("**Kuro** (Mac)"), agents.named("ops1"), agents.named("Gemini")
    ('claude-code', 'kuro', None, 'gemini')
    >>> agents.problem("ops1")
    "'ops1' may be ops-1 or ops_1: write one of them"
    """

    names: tuple[str, ...] = ()
    reviewer: str | None = None
    roles: Mapping[str, frozenset[str]] = MappingProxyType({})
    naming: Naming = Naming()

    def named(self, written: str | None) -> str | None:
        """Return the agent that a text names; None if it is no name, or could be several.

        A valid name that no agent has is returned: an agent may get it later.
        """
        if (alias := self.naming.aliases.get(alias_key(written))) is not None:
            return alias or None
        name = plain_name(written)
        same = self._same(name)
        if name in same or not same:
            return name if re.match(NAME_PATTERN, name) and not _is_several(written) else None
        return same[0] if len(same) == 1 else None

    def having(self, *roles: str) -> list[str]:
        """Return the agents that have one of these roles."""
        return [name for name in self.names if not self.roles.get(name, frozenset()).isdisjoint(roles)]

    def problem(self, written: str) -> str:
        """Return why nobody can act by a name, and what to write instead; empty if an agent has it."""
        if alias_key(written) in self.naming.aliases:
            return ""
        name, shown = plain_name(written), repr(written.strip()[:80])
        same = self._same(name)
        if name in same or len(same) == 1:
            return ""
        if same:
            return f"{shown} may be {' or '.join(same)}: write one of them"
        if _is_several(written):
            return f"{shown} names several agents: write one"
        begun = [known for known in self.names if _key(name) and _key(known).startswith(_key(name))]
        advice = did_you_mean(begun[:3] or near(name, self.names))
        if not re.match(NAME_PATTERN, name):
            return f"{shown} cannot be an agent's name{advice or ': write a registered one'}"
        return f"no agent here is named {name}{advice or f': `deed agent add {name}` registers it'}"

    def _same(self, name: str) -> list[str]:
        return [known for known in self.names if _key(known) == _key(name)]


def alias_key(written: str | None) -> str:
    """Return the key that two spellings of a name, or of several names (``ann + bo``), have in common."""
    return _key(plain_name(written))


def plain_name(written: str | None) -> str:
    """Return a text as a name is spelled: without remark and markup, in lower case, with hyphens between words."""
    text = _REMARK.sub("", unicodedata.normalize("NFKC", written or "").strip().lstrip("`@*_ "))
    return _BETWEEN.sub(lambda gap: "_" if gap[0] == "_" else "-", text.strip("`@* \t").lower())


def read_agents(view: Ask, default_reviewer: str | None) -> AgentNames:
    """Return the present agents. If no default reviewer is configured, the only human becomes the default reviewer."""
    agents = view("agents.list", {})["agents"]
    humans = [agent["name"] for agent in agents if "human" in agent["roles"]]
    only = humans[0] if len(humans) == 1 else None
    roles = {agent["name"]: frozenset(agent["roles"]) for agent in agents}
    return AgentNames(tuple(roles), default_reviewer or only, roles)


def independent(reviewer: str | None, parties: Iterable[str | None]) -> str | None:
    """Return the default reviewer of a handoff, or None if they are party to it: nobody reviews their own work."""
    return None if reviewer in parties else reviewer


def _key(name: str) -> str:
    return "".join(filter(str.isalnum, name))


def _is_several(written: str | None) -> bool:
    return _SEVERAL.search(_REMARK.sub("", written or "")) is not None
