"""The API of a node over HTTP (`deed serve --web`), and the parts that all our HTTP servers share.

``server`` binds, serves and checks host names; ``stream`` sends events as they arrive; ``rebuild`` reports the progress
of views that are being built. The node's application is ``app``: ``api`` and ``questions`` answer requests, also for
the tiles of C2SP tlog-tiles, ``writes`` takes submissions and blobs, and ``tokens`` authenticates. A reverse
proxy may limit rates.
"""
