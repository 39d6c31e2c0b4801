"""The workers of a node beside the service: service agents, and configured tasks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Final

import structlog

from deedbook.consumers.handoffs.notifier.settings import configured_channels
from deedbook.consumers.handoffs.notifier.store import STORE_FILE
from deedbook.consumers.handoffs.notifier.worker import NotifierWorker
from deedbook.consumers.handoffs.router.chains_file import ChainsFile
from deedbook.consumers.handoffs.router.worker import NAME as ROUTER
from deedbook.consumers.handoffs.router.worker import RouterWorker
from deedbook.consumers.interfaces.node.witnessed import configured_witnesses
from deedbook.consumers.interfaces.node.witnesses import Witnessing
from deedbook.consumers.reasoning.citations import Citations
from deedbook.consumers.reasoning.validator.judge import ModelJudge
from deedbook.consumers.reasoning.workers import CompressorWorker, ProseWorker, ValidatorWorker
from deedbook.consumers.sdk.erasure import delete_caches
from deedbook.consumers.sdk.llm.model import configured_client
from deedbook.consumers.sdk.service import service_author
from deedbook.ledger.admission.erasure import erased_count
from deedbook.ledger.admission.rewriter import finish_erasures
from deedbook.ledger.client.local import LocalClient
from deedbook.ledger.errors import Unavailable
from deedbook.ledger.home.location import CHAINS_FILE, project_path
from deedbook.ledger.home.trust import actions_of, check_chains
from deedbook.ledger.log.environment import remove_old
from deedbook.ledger.log.expiry import drop_unreferenced
from deedbook.ledger.log.log import Log
from deedbook.ledger.system.metrics import Metrics
from deedbook.projections.answers.reader import Reader

Work = Callable[[threading.Event], None]
"""Runs in its own thread until the event is set; an error is logged, and the work is started again."""

log = structlog.get_logger("deedbook.node")

blobs_interval_s: Final = 600.0
erasures_interval_s: Final = 0.5


def drop_blobs(entries: Log, stop: threading.Event) -> None:
    """Delete blobs that no entry referred to for a day, every ten minutes, in short transactions for other writers."""
    while not stop.is_set():
        dropped = drop_unreferenced(entries)
        if dropped.blobs:
            log.info("dropped unreferenced blobs", blobs=dropped.blobs, size_bytes=dropped.size)
        stop.wait(blobs_interval_s)


def erase_bodies(client: LocalClient, reader: Reader, stop: threading.Event) -> None:
    """Clear this node's files soon after each redaction, even if another node admitted it.

    After a kill, the log stays marked, or its former file stays beside it: the next round or start continues.
    """
    entries, known = client.log, 0

    def check_stop(_done: int, _total: int) -> None:
        if stop.is_set():
            raise Unavailable("STORE_UNAVAILABLE", "the node stops: its next start rewrites the log's file")

    while not stop.is_set():
        announced = entries.announced or 0
        with entries.snapshot() as snapshot:
            size, is_marked, erased = snapshot.size, snapshot.needs_rewriting(), erased_count(snapshot)
        if is_marked:
            begun_s = time.monotonic()
            try:
                is_done = finish_erasures(entries, check_stop, waits=False)
            except Unavailable:
                if stop.is_set():
                    return
                raise
            if is_done:
                duration_s = round(time.monotonic() - begun_s, 3)
                log.info("rewrote the log's file without erased bodies", entries=size, duration_s=duration_s)
        else:
            remove_old(entries.tables.path)
        if erased > known:
            _forget_erased(client, reader)
            known = erased
        entries.wait(announced, erasures_interval_s)


def _forget_erased(client: LocalClient, reader: Reader) -> None:
    """Rebuild this node's views, if it has any, and delete its caches, which only save time."""
    with reader.store.reading() as reading:
        is_folded = any(version.position for version in reading.view_versions())
    if is_folded:
        reader.answer("catalog.find", {"limit": 1})
    delete_caches(client.trust_store, client.settings.home)


def workers_of(client: LocalClient, reader: Reader, metrics: Metrics | None = None) -> dict[str, Work]:
    """Return the workers of the node by name: the compressor, the router, and the configured ones.

    Raises Refused: ``NOT_TRUSTED``; ``INVALID_FIELD`` for a table of ``config.toml`` that is wrong.
    """
    settings, path = client.settings, client.settings.home
    actions = actions_of(settings, client)
    llm = configured_client(actions)
    author = service_author(client, "compressor")
    chains = ChainsFile(path / CHAINS_FILE, settings.config.default_reviewer, permit=partial(check_chains, path))
    router = service_author(client, ROUTER)
    workers: dict[str, Work] = {
        "compressor": CompressorWorker(author, reader, path / "compressor.db", wants_prose=llm is not None).run,
        "router": RouterWorker(router, reader.answer, path / "router.db", chains).run,
    }
    if llm is not None:
        workers["prose"] = ProseWorker(author, reader, path / "compressor.db", llm).run
    if (witnesses := configured_witnesses(actions.witness)) is not None:
        policy, fail_closed = witnesses
        workers["witness"] = Witnessing(client, policy, fail_closed=fail_closed, metrics=metrics).run
    if actions.validator_tree is not None:
        judge = None if llm is None else ModelJudge(llm)
        author = service_author(client, "validator")
        tree = project_path(path, actions.validator_tree)
        workers["validator"] = ValidatorWorker(author, reader, path / "validator.db", tree, judge).run
    if channels := configured_channels(settings, client=client):
        workers["notifier"] = NotifierWorker(
            client, reader.answer, path / STORE_FILE, channels, behind=lambda refs: Citations(reader.answer, 0).of(refs)
        ).run
    return workers
