"""The web: what a node lets be read over HTTP (`deed serve --web`), and what every server of ours shares.

``server`` binds, serves and names its hosts; ``stream`` carries events as they come; ``rebuild`` says how far views are
that are being made. The node's application is ``app``: ``api`` and ``questions`` answer, ``log`` shows the tiles of
C2SP tlog-tiles, ``tokens`` says who may read. TLS, compression and rates for the open network are a reverse proxy's.
"""
