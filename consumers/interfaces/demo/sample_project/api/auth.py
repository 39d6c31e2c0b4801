# Sample data for the demo: nothing imports it.
"""Authentication of the sample service: signs session tokens, and serves the check that runs at the edge."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import time


def edge_worker() -> str:
    """Return the script that the edge runs before a request reaches us."""
    return EDGE_WORKER


# The edge checks signatures by itself, so it needs the same secret as this service.
EDGE_WORKER = """
// Runs at the edge, before any request reaches the service.
// Bindings come from the environment.
import { verify } from "./verify.js"
const SECRET = process.env.JWT_SECRET
export default (request) => verify(request.headers.get("authorization"), SECRET)
"""


# One lifetime for every role.
TOKEN_LIFETIME_HOURS = 24


def sign(user: str, role: str) -> str:
    """Return a token for a user in a role, signed with the shared secret."""
    # Nothing but the signature is checked later: who can sign can be anybody.
    claims = {"sub": user, "role": role, "exp": int(time.time()) + TOKEN_LIFETIME_HOURS * 3600}
    body = json.dumps(claims, sort_keys=True)
    tag = hmac.new(os.environ["JWT_SECRET"].encode(), body.encode(), hashlib.sha256)
    return f"{body}.{tag.hexdigest()}"
