"""Translate what nats-py raises into Baton's errors, in the one place where the bus is called.

A missing stream or message is damage (``BUS_DEGRADED``: nothing is retried); everything else may pass
(``BUS_UNAVAILABLE``). The server's own ``err_code`` is kept in the details.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import nats.errors
import nats.js.errors

from ledger.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def bus_errors(what: str) -> Iterator[None]:
    """Raise ``Unavailable`` for whatever goes wrong on the bus inside the block.

    Raises:
        Unavailable: ``BUS_DEGRADED`` or ``BUS_UNAVAILABLE``, saying what was being done.
    """
    try:
        yield
    except nats.js.errors.NotFoundError as error:
        raise Unavailable("BUS_DEGRADED", f"{what}: {error.description}", err_code=error.err_code) from error
    except nats.js.errors.APIError as error:
        reason = error.description or "the streams are not available"
        raise Unavailable("BUS_UNAVAILABLE", f"{what}: {reason}", err_code=error.err_code) from error
    except (nats.errors.Error, OSError) as error:
        raise Unavailable("BUS_UNAVAILABLE", f"{what}: {str(error) or type(error).__name__}") from error
