"""Reads the settings once, from arguments, the environment, ``config.toml`` and ``client.toml``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from deedbook.ledger.home import membership, trust
from deedbook.ledger.home.absence import no_ledger
from deedbook.ledger.home.config import Settings, check_name, check_server, parse_config
from deedbook.ledger.home.location import CONFIG_FILE, find_home, named_home, present_folder, read_file, resolved
from deedbook.ledger.system.files import find_ownership_risk


def read_settings(
    *,
    home: Path | None = None,
    server: str | None = None,
    agent: str | None = None,
    spool: bool = False,
    start: Path | None = None,
    environment: Mapping[str, str] = os.environ,
) -> Settings:
    """Return the settings.

    Arguments take precedence over the environment, and the environment over the files in the folder. Raises
    Unavailable: ``NO_LEDGER`` if no folder is named or found; as ``present_folder``. Refused: ``INVALID_FIELD``,
    ``UNKNOWN_FIELD`` or ``INVALID_FORMAT`` if a file or a name is wrong; ``NOT_TRUSTED`` if the folder is, or could be,
    another user's and is not both named and trusted, if git links to it and it is not trusted, or if its
    ``client.toml`` is not the trusted one.
    """
    is_named = home is not None or named_home(environment) is not None
    start = start or (Path() if is_named else present_folder())
    folder = home or find_home(start, environment)
    server = server or environment.get("DEEDBOOK_SERVER") or None
    agent = agent or environment.get("DEEDBOOK_AGENT") or None
    if folder is None:
        raise no_ledger(start, server, agent)
    if agent is not None:
        check_name(agent)
    if server is not None:
        check_server(server)
    is_linked = not is_named and folder.parent not in (start, *start.parents)
    folder = resolved(folder)
    check_folder(folder, is_named=is_named, environment=environment)
    if is_linked:  # a file of git led here from another tree, and may be a stranger's, so the folder must be trusted
        trust.demand(folder, environment=environment)
    is_complete = server is not None and agent is not None
    if not is_complete and (member := membership.read_membership(folder)) is not None:
        trust.check_client(folder, member, environment)
        server = server or (member.server and check_server(member.server))
        agent = agent or check_name(member.agent)
    text = read_file(folder, CONFIG_FILE)
    config, _ = parse_config(text, folder / CONFIG_FILE)
    spool = spool or bool(environment.get("DEEDBOOK_SPOOL"))
    return Settings(home=folder, config=config, server=server, agent=agent, spool=spool, text=text)


def check_folder(home: Path, *, is_named: bool, environment: Mapping[str, str] = os.environ) -> None:
    """Refuse a folder that another user owns, or could replace, unless it is both named and trusted.

    Raises Refused: ``NOT_TRUSTED``.
    """
    reason = find_ownership_risk(home)
    if reason is None:
        return
    if not is_named:
        raise trust.refusal(home, f"is used only if you name it with --home and trust it: {reason}")
    trust.demand(home, environment=environment)
