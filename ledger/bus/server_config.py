"""The configuration text of a nats-server for one ledger: who may publish and subscribe where, and how much. Pure.

Accounts, because permissions alone are not safe: with all users in one account, an agent could get a message into the
log stream by naming a log subject as the *reply* of a permitted request (three ways, measured). Across accounts a
reply lands in the asker's own account.

- LEDGER holds the streams and the nodes. Nodes may create and alter the log stream, never delete it, purge it or delete
  a message. With an administrator's key, only that one may create or alter.
- Every agent has an account of its own: a reply that it misdirects reaches nobody but itself, and the server counts
  and limits its connections, subscriptions and payloads apart from everybody else's (users of one account share the
  limits; NATS has none for a user). It may publish its own ``submit`` and ``read`` requests, and subscribe to its own
  inboxes, to ``live`` and to ``checkpoint``. No JetStream API is exported.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ledger import limits
from ledger.bus.subjects import (
    INBOX_OF_NODES,
    checkpoint_subject,
    event_pattern,
    inbox_prefix,
    live_subject,
    read_pattern,
    reads_of,
    submit_pattern,
    submit_subject,
)
from ledger.errors import Refused

log_file_max_bytes = 8 * 1024 * 1024
log_files_max = 3
control_line_max_bytes = 4096

_STREAM_READING = ("$JS.API.INFO", "$JS.API.STREAM.INFO.*", "$JS.API.STREAM.MSG.GET.*", "$JS.API.CONSUMER.>")
# Without the second, a consumer with flow control ends, unsaid, after its first window.
_CONSUMING = ("$JS.ACK.>", "$JS.FC.>")
_STREAM_ALTERING = ("$JS.API.STREAM.CREATE.*", "$JS.API.STREAM.UPDATE.*")

_ANSWERS = "_R_.>"
"""Where answers to other accounts go. ``allow_responses`` would do, but a reload forgets whom it allowed to answer."""


@dataclass(frozen=True)
class BusUsers:
    """The public nkeys (``U…``) that a server lets in; an agent's is given by the agent's name."""

    nodes: tuple[str, ...]
    agents: Mapping[str, str] = field(default_factory=dict)
    admin: str | None = None


def _permissions(nkey: str, publish: list[str], subscribe: list[str]) -> str:
    if len(nkey) != 56 or not nkey.startswith("U") or not nkey.isalnum():
        raise Refused("INVALID_FORMAT", f"{nkey!r} is not the public nkey of a user", value=nkey)
    return (
        f"{{ nkey: {nkey}, permissions: {{\n"
        f"      publish: {json.dumps(publish)}\n"
        f"      subscribe: {json.dumps(subscribe)} }} }}"
    )


def _node(ledger: str, nkey: str, *, may_alter: bool) -> str:
    altering = _STREAM_ALTERING if may_alter else ()
    publish = [event_pattern(ledger), checkpoint_subject(ledger), *_STREAM_READING, *altering, *_CONSUMING, _ANSWERS]
    subscribe = [
        submit_pattern(ledger), read_pattern(ledger), live_subject(ledger), checkpoint_subject(ledger),
        f"{INBOX_OF_NODES}.>",
    ]  # fmt: skip
    return _permissions(nkey, publish, subscribe)


def _agent(ledger: str, name: str, nkey: str) -> str:
    services = [submit_subject(ledger, name), reads_of(ledger, name)]
    streams = [live_subject(ledger), checkpoint_subject(ledger)]
    imports = [f'{{service: {{account: LEDGER, subject: "{s}"}}}}' for s in services]
    imports += [f'{{stream: {{account: LEDGER, subject: "{s}"}}}}' for s in streams]
    # No agent's name has a capital, so its account is never LEDGER or $SYS.
    return f"""\
  "AGENT_{name}" {{
    limits: {{ max_connections: {limits.agent_connections_max}, max_subscriptions: {limits.agent_subscriptions_max},
      max_payload: {limits.agent_payload_max_bytes} }}
    users: [
    {_permissions(nkey, services, [f"{inbox_prefix(name)}.>", *streams])}
    ]
    imports: [
    {_listed(imports)}
    ]
  }}
"""


def render_accounts(ledger: str, users: BusUsers) -> str:
    """Return the ``accounts`` block; deployments include it in a configuration of their own.

    Raises Refused: ``INVALID_FORMAT`` for a name or key that could mean something else in the configuration.
    """
    exports = [f'{{service: "{s}"}}' for s in (submit_pattern(ledger), read_pattern(ledger))]
    exports += [f'{{stream: "{s}"}}' for s in (live_subject(ledger), checkpoint_subject(ledger))]
    nodes = [_node(ledger, nkey, may_alter=users.admin is None) for nkey in users.nodes]
    if users.admin is not None:
        nodes.append(_permissions(users.admin, ["$JS.API.>"], ["_INBOX.>"]))
    agents = [_agent(ledger, name, nkey) for name, nkey in sorted(users.agents.items())]
    return f"""\
accounts {{
  LEDGER {{
    jetstream: enabled
    users: [
    {_listed(nodes)}
    ]
    exports: [
    {_listed(exports)}
    ]
  }}
{"".join(agents)}}}
"""


def _quoted(text: str) -> str:
    # The server reads \" and \\ as JSON does, but knows no \u: other characters stay as they are.
    return json.dumps(text, ensure_ascii=False)


def _listed(items: list[str]) -> str:
    # Between elements of an array that are maps the server's parser needs commas.
    return ",\n    ".join(items)


def render_config(*, ledger: str, users: BusUsers, folder: Path, host: str, port: int) -> str:
    """Return the whole configuration of an embedded server that keeps everything under a folder.

    ``sync_interval: always``, because the default acknowledges up to two minutes before it syncs.
    Port -1 lets the server choose one, which it then writes into a ``.ports`` file of the folder.
    """
    path = {name: _quoted(str(folder / name)) for name in ("jetstream", "server.pid", "server.log")}
    return f"""\
# Written by Baton whenever users change: edits are lost.
listen: {_quoted(f"{host}:{port}")}
pid_file: {path["server.pid"]}
ports_file_dir: {_quoted(str(folder))}
log_file: {path["server.log"]}
logfile_size_limit: {log_file_max_bytes}
logfile_max_num: {log_files_max}
max_payload: {limits.payload_max_bytes}
max_control_line: {control_line_max_bytes}
max_pending: {limits.connection_pending_max_bytes}
write_deadline: "{limits.write_deadline_s}s"
jetstream {{ store_dir: {path["jetstream"]}, sync_interval: always }}
{render_accounts(ledger, users)}"""
