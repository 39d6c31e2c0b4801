"""The web: what a node shows over HTTP, read-only, to whoever reaches its address (`baton serve --web`).

That is the log as C2SP tlog-tiles (``server``), for auditors and witnesses. There is
no token, as a transparency log has none: the address is the loopback's unless another one is named. A page of another
site cannot read it through a name that it points here (``server.hosts``). Compressing, TLS and rates for the open
network are a reverse proxy's.
"""
