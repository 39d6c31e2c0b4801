"""The web: what a node shows over HTTP, read-only, to whoever reaches its address (`baton serve --web`).

- `tiles`: the log as C2SP tlog-tiles, for auditors, witnesses and `baton receipt verify --against`;
- `server`: the server that it runs in, inside the node's process and event loop.

There is no token, as a transparency log has none: the address is the loopback's unless another one is named. A page of
another site cannot read it through a name that it points here (``server.hosts``). Compressing, TLS and rates for the
open network are a reverse proxy's.
"""
