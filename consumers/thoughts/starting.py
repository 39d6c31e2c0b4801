"""Who plays in a task: names, keys and thinkers by name.

On a ledger in a folder the six are service agents that the node key registers when they are new. On a server they are
registered already, and their keys lie in the folder of whoever starts them.
"""

from __future__ import annotations

import secrets
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from consumers.thoughts import thinking
from consumers.thoughts.task import AGENTS
from ledger.author import Author
from ledger.errors import Refused
from ledger.events import tot as kinds
from ledger.home import Home
from ledger.identity import open_key

if TYPE_CHECKING:
    from consumers.thoughts.thinking import Thinker
    from ledger.client import Client
    from ledger.config import Config, Settings

THINKERS: Final = ("game24", "planning", "debugging", "llm")

_ID_CHARACTERS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"


def new_task_id() -> str:
    """Return a new task's id, ``tot-YYYYMMDD-HHMMSS-xxxxxx`` in UTC."""
    short = "".join(secrets.choice(_ID_CHARACTERS) for _ in range(6))
    return f"tot-{datetime.now(UTC):%Y%m%d-%H%M%S}-{short}"


def thinker_named(name: str, config: Config) -> Thinker:
    """Return a thinker by the name that ``tot.started`` keeps (``llm:MODEL`` is the configured model).

    Raises:
        Refused: ``USAGE`` when there is none such, or no model is configured; the codes of ``[llm]``.
    """
    kind = name.partition(":")[0]
    match kind:
        case "game24":
            return thinking.Game24()
        case "planning":
            return thinking.Planning()
        case "debugging":
            return thinking.Debugging()
        case "llm":
            from consumers.sdk.llm.configured import configured_client  # noqa: PLC0415 - loads an HTTP client

            client = configured_client(config)
            if client is None:
                raise Refused("USAGE", "no model is configured: config.toml needs a table [llm]")
            return thinking.LlmThinker(client)
        case _:
            raise Refused("USAGE", f"there is no thinker {name[:60]!r}: {', '.join(THINKERS)}")


def role_keys(settings: Settings, client: Client) -> dict[str, str]:
    """Return the public keys (hex) of the six roles; on a ledger in a folder those that are new are registered.

    Raises:
        Refused: ``KEY_FILE_MISSING`` when a server's agent has no key here; ``AGENT_EXISTS`` when a name is taken.
    """
    home = Home(settings.home)
    if settings.server is None:
        from consumers.sdk.service import service_author  # noqa: PLC0415 - loads lmdb, as its client does
        from ledger.local import LocalClient  # noqa: PLC0415 - loads lmdb

        assert isinstance(client, LocalClient)  # noqa: S101 - without a server there is no other
        for name in AGENTS.values():
            service_author(client, name)
    return {role: open_key(home.key_file(name)).public.hex() for role, name in AGENTS.items()}


def held_keys(settings: Settings) -> dict[str, str]:
    """Return the public keys (hex) of the roles whose keys are here; none is made, and nobody is registered.

    Raises:
        Refused: ``KEY_FILE_MODE``, ``KEY_LOCKED``.
    """
    files = {role: Home(settings.home).key_file(name) for role, name in AGENTS.items()}
    return {role: open_key(file).public.hex() for role, file in files.items() if file.exists()}


def author_of(role: kinds.Role, settings: Settings, client: Client) -> Author:
    """Return the author who plays ``role`` with its own key.

    Raises:
        Refused: ``KEY_FILE_MISSING``, ``KEY_FILE_MODE``, ``KEY_LOCKED``.
    """
    key = open_key(Home(settings.home).key_file(AGENTS[role]))
    return Author(client, AGENTS[role], lambda _: key)


def bindings(keys: dict[str, str]) -> list[kinds.RoleBinding]:
    """Return which agent speaks as which role by which of ``keys``."""
    return [kinds.RoleBinding(role=role, agent=name, key=keys[role]) for role, name in AGENTS.items()]
