"""The configuration text of a nats-server for one ledger: the permissions and limits of each user. Pure.

The account LEDGER of the nodes holds the streams. Nodes may create, alter and delete streams, because the files of a
stream that holds an erased body must be deleted. They may not purge a stream or delete a message. If there is an
administrator's key, only this key may create, alter or delete streams. Every agent has an account of its own
(``ledger/README.md`` says why). An agent may publish its own ``submit`` and ``read`` requests, subscribe to its own
inboxes, to ``live`` and to ``checkpoint``, and ask for the list of nodes. No JetStream API is exported. An invited
agent has an account that may only submit.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import quote

from deedbook.ledger import limits
from deedbook.ledger.bus.subjects import (
    DISCOVERY,
    INBOX_OF_NODES,
    blob_subject,
    checkpoint_subject,
    event_pattern,
    inbox_prefix,
    live_subject,
    node_pattern,
    node_submit_subject,
    read_pattern,
    reads_of,
    submit_pattern,
    submit_subject,
)
from deedbook.ledger.errors import Refused

log_file_max_bytes = 8 * 1024 * 1024
log_files_max = 3
control_line_max_bytes = 4096

_STREAM_READING = (
    "$JS.API.INFO",
    "$JS.API.STREAM.NAMES",
    "$JS.API.STREAM.INFO.*",
    "$JS.API.STREAM.MSG.GET.*",
    "$JS.API.DIRECT.GET.>",
    "$JS.API.CONSUMER.>",
)
# Without the second, a consumer with flow control stops without an error after its first window.
_CONSUMING = ("$JS.ACK.>", "$JS.FC.>")
_STREAM_ALTERING = ("$JS.API.STREAM.CREATE.*", "$JS.API.STREAM.UPDATE.*", "$JS.API.STREAM.DELETE.*")

ACCOUNTS_FILE: Final = "accounts.conf"
WRITTEN_BY: Final = "# Written by `deed deploy nats-config`."
"""The first line of each file of that command. The command replaces only files that begin in this way."""
ROUTE_USER: Final = "deedbook"
STORE_IN_CLUSTER: Final = "jetstream-cluster"
"""The folder of the streams of a server that belongs to a cluster."""

# Answers to other accounts. ``allow_responses`` would also do, but a reload forgets the allowed answers.
_ANSWERS = "_R_.>"


@dataclass(frozen=True)
class BusUsers:
    """The public nkeys (``U…``) that a server admits; those of agents are by the agent's name.

    A name in ``invited`` (an invited agent, or a node of another server) may submit, but not read or follow events.
    """

    nodes: tuple[str, ...]
    agents: Mapping[str, str] = field(default_factory=dict)
    invited: Mapping[str, str] = field(default_factory=dict)
    admin: str | None = None

    @property
    def names(self) -> frozenset[str]:
        """The names that may send requests."""
        return frozenset({*self.agents, *self.invited})


@dataclass(frozen=True)
class Tls:
    """The PEM files of one server: its certificate, its key, and the certificate authority (CA) of its peers."""

    certificate: Path
    key: Path
    authority: Path

    @property
    def server_options(self) -> str:
        """The NATS options for the server's certificate and key, without the certificate authority."""
        return f"cert_file: {_quoted(str(self.certificate))}, key_file: {_quoted(str(self.key))}"


@dataclass(frozen=True)
class Member:
    """One server of a cluster: its address for other servers, and the addresses of all of them (``HOST:PORT``).

    A server that joins a cluster may write into every account. So a member requires a password or a certificate
    (``tls``). Loopback alone does not protect it: all agents of the machine reach it. The submissions of its agents go
    to ``node``. Raises Refused: ``INVALID_FIELD`` without either.
    """

    cluster: str
    server: str
    listen: str
    routes: tuple[str, ...]
    password: str | None = field(default=None, repr=False)
    tls: Tls | None = None
    node: str = ""

    def __post_init__(self) -> None:
        if not self.password and self.tls is None:
            raise Refused(
                "INVALID_FIELD", "a cluster without a password or certificates admits any server: set one of them"
            )


def _permissions(nkey: str, publish: list[str], subscribe: list[str]) -> str:
    if len(nkey) != 56 or not nkey.startswith("U") or not nkey.isalnum():
        raise Refused("INVALID_FORMAT", f"{nkey!r} is not the public nkey of a user", value=nkey)
    return (
        f"{{ nkey: {nkey}, permissions: {{\n"
        f"      publish: {json.dumps(publish)}\n"
        f"      subscribe: {json.dumps(subscribe)} }} }}"
    )


def _node(ledger: str, nkey: str, node: str, *, may_alter: bool) -> str:
    altering = _STREAM_ALTERING if may_alter else ()
    publish = [
        event_pattern(ledger),
        checkpoint_subject(ledger),
        node_pattern(ledger),
        blob_subject(ledger, "", ">"),
        *_STREAM_READING,
        *altering,
        *_CONSUMING,
        _ANSWERS,
    ]
    subscribe = [
        submit_pattern(ledger, node),
        read_pattern(ledger),
        live_subject(ledger),
        checkpoint_subject(ledger),
        node_pattern(ledger),
        f"{INBOX_OF_NODES}.>",
        DISCOVERY,
    ]
    return _permissions(nkey, publish, subscribe)


def _agent(ledger: str, name: str, nkey: str, node: str, *, is_invited: bool = False) -> str:
    submissions, reads = submit_subject(ledger, name), [] if is_invited else [reads_of(ledger, name), DISCOVERY]
    services, to_node = [submissions, *reads], node_submit_subject(ledger, name, node)
    streams = [] if is_invited else [live_subject(ledger), checkpoint_subject(ledger)]
    imports = [f'{{service: {{account: LEDGER, subject: "{to_node}"}}, to: "{submissions}"}}']
    imports += [f'{{service: {{account: LEDGER, subject: "{subject}"}}}}' for subject in reads]
    imports += [f'{{stream: {{account: LEDGER, subject: "{subject}"}}}}' for subject in streams]
    # The names of agents have no capitals, so their accounts are never LEDGER or $SYS.
    return f"""\
  "{"INVITED" if is_invited else "AGENT"}_{name}" {{
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


def render_accounts(ledger: str, users: BusUsers, node: str = "") -> str:
    """Return the ``accounts`` block, which a deployment may include in its own configuration.

    With several nodes, the agents of this server submit to ``node``.

    Raises Refused: ``INVALID_FORMAT`` for a name or key that could mean something else in the configuration.
    """
    exports = [f'{{service: "{subject}"}}' for subject in (submit_pattern(ledger, node), read_pattern(ledger))]
    # Each node answers for itself. Without ``stream`` the server would deliver only the first answer.
    exports.append(f'{{service: "{DISCOVERY}", response_type: stream}}')
    exports += [f'{{stream: "{subject}"}}' for subject in (live_subject(ledger), checkpoint_subject(ledger))]
    nodes = [_node(ledger, nkey, node, may_alter=users.admin is None) for nkey in users.nodes]
    if users.admin is not None:
        nodes.append(_permissions(users.admin, ["$JS.API.>"], ["_INBOX.>"]))
    agents = [_agent(ledger, name, nkey, node) for name, nkey in sorted(users.agents.items())]
    agents += [_agent(ledger, name, nkey, node, is_invited=True) for name, nkey in sorted(users.invited.items())]
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
    # The server reads \" and \\ as JSON does, but it does not know \u. So other characters stay as they are.
    return json.dumps(text, ensure_ascii=False)


def _listed(items: list[str]) -> str:
    # The server's parser needs commas between maps in an array.
    return ",\n    ".join(items)


def render_config(
    *,
    ledger: str,
    users: BusUsers,
    folder: Path,
    host: str,
    port: int,
    tls: Tls | None = None,
    member: Member | None = None,
) -> str:
    """Return the whole configuration of an embedded server that stores everything under a folder.

    With port -1 the server chooses a port and writes it into a ``.ports`` file in the folder.
    """
    path = {name: _quoted(str(folder / name)) for name in ("server.pid", "server.log")}
    accounts = render_accounts(ledger, users, "" if member is None else member.node)
    # A separate folder: a cluster hides the streams of a lone server, but their subjects stay taken for a while.
    store = folder / ("jetstream" if member is None else STORE_IN_CLUSTER)
    return f"""\
# Written by Deedbook whenever users change: edits are lost.
pid_file: {path["server.pid"]}
ports_file_dir: {_quoted(str(folder))}
log_file: {path["server.log"]}
logfile_size_limit: {log_file_max_bytes}
logfile_max_num: {log_files_max}
{_render_server(store, host, port, tls, member)}{accounts}"""


def render_apart(*, store: Path, host: str, port: int, tls: Tls | None = None, member: Member | None = None) -> str:
    """Return the configuration of a server that the operator runs; it includes ``ACCOUNTS_FILE`` beside it.

    It does not change when agents do. The server logs to standard error.
    """
    return f"""\
{WRITTEN_BY} The same command writes {ACCOUNTS_FILE}, which lists the users.
{_render_server(store, host, port, tls, member)}include {ACCOUNTS_FILE}
"""


def _render_server(store: Path, host: str, port: int, tls: Tls | None, member: Member | None) -> str:
    # ``sync_interval: always``: by default the server acknowledges up to two minutes before it syncs.
    secured = "" if tls is None else f"tls {{ {tls.server_options} }}\n"
    return f"""\
listen: {_quoted(f"{host}:{port}")}
max_payload: {limits.payload_max_bytes}
max_control_line: {control_line_max_bytes}
max_pending: {limits.connection_pending_max_bytes}
write_deadline: "{limits.write_deadline_s}s"
{secured}jetstream {{ store_dir: {_quoted(str(store))}, sync_interval: always }}
{"" if member is None else _render_member(member)}"""


def _render_member(member: Member) -> str:
    login = "" if member.password is None else f"{ROUTE_USER}:{quote(member.password, safe='')}@"
    routes = [_quoted(f"nats-route://{login}{address}") for address in member.routes]
    lines = [f"server_name: {_quoted(member.server)}", "cluster {", f"  name: {_quoted(member.cluster)}"]
    lines += [f"  listen: {_quoted(member.listen)}", f"  routes: [\n    {_listed(routes)}\n  ]"]
    if member.password is not None:
        lines.append(f"  authorization {{ user: {ROUTE_USER}, password: {_quoted(member.password)} }}")
    if member.tls is not None:
        # Both sides of a route must present a certificate of this authority, so no foreign server joins or is joined.
        lines.append(
            f"  tls {{ {member.tls.server_options}, ca_file: {_quoted(str(member.tls.authority))}, verify: true }}"
        )
    return "\n".join([*lines, "}", ""])
