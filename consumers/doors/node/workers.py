"""The service agents and helpers that a node runs, each in a thread of its own and with a position of its own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from consumers.handoffs.notifier import STORE_FILE, NotifierWorker, configured_channels
from consumers.handoffs.router import CHAINS_FILE, ChainsFile, RouterWorker
from consumers.handoffs.router.worker import NAME as ROUTER
from consumers.reasoning.workers import CompressorWorker, ModelJudge, ValidatorWorker
from consumers.sdk.llm.model import configured_client
from consumers.sdk.service import service_author

if TYPE_CHECKING:
    import threading

    from ledger.local import LocalClient
    from projections.reader import Reader


class Worker(Protocol):
    """What runs in a thread of its own until it is told to stop."""

    def run(self, stop: threading.Event) -> None:
        """Work until ``stop`` is set; raise what should be logged before it is started again."""
        ...


def workers_of(client: LocalClient, reader: Reader) -> dict[str, Worker]:
    """Return what the node runs, by name: the compressor and the router, and what is configured.

    Raises:
        Refused: ``INVALID_FIELD`` for a table of ``config.toml`` that is wrong.
    """
    settings, path = client.settings, client.settings.home
    config = settings.config
    llm = configured_client(config)
    author = service_author(client, "compressor")
    chains = ChainsFile(path / CHAINS_FILE, default_reviewer=config.default_reviewer)
    workers: dict[str, Worker] = {
        "compressor": CompressorWorker(author, reader, path / "compressor.db", llm),
        "router": RouterWorker(service_author(client, ROUTER), reader.answer, path / "router.db", chains),
    }
    if config.validator_tree is not None:
        judge = None if llm is None else ModelJudge(llm)
        author = service_author(client, "validator")
        tree = Path(config.validator_tree)
        workers["validator"] = ValidatorWorker(author, reader, path / "validator.db", tree, judge)
    if config.notify:
        workers["notifier"] = NotifierWorker(client, reader.answer, path / STORE_FILE, configured_channels(settings))
    return workers
