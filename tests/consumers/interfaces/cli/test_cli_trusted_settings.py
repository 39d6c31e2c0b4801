"""Every setting of a ledger's folder is either harmless, or has no effect before `deed trust` and works after it.

The types of ``config.toml``, of its tables and of ``chains.toml`` are walked to their last field. So the author of a
new setting says here which of the two it is. For a setting that acts, this module tests both.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
from typing import TYPE_CHECKING, Any, Final, get_args, get_origin
from unittest import mock

import msgspec
import pytest
from calling import Running, Serving, wait_until
from hostile_clone import SECRET, Clone, clone, origin, sink
from soft_token import LABEL, make_soft_token

from deedbook.consumers.handoffs.notifier.settings import ChannelSettings
from deedbook.consumers.handoffs.router import chains_file
from deedbook.consumers.interfaces.cli.commands.trust import _does
from deedbook.consumers.interfaces.node.witnessed import WitnessSettings
from deedbook.consumers.sdk.llm.settings import LlmSettings
from deedbook.consumers.sessions.settings import ReportsSettings
from deedbook.ledger.home.config import Actions, Config
from deedbook.ledger.home.trust import read_folder
from deedbook.ledger.proof.checkpoint import COSIGNATURE_KEY, vkey_of
from deedbook.projections.answers.view_reader import ViewsSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["clone", "origin", "sink"]

TABLES: Final[dict[str, type[msgspec.Struct]]] = {
    "llm": LlmSettings,
    "notify": ChannelSettings,
    "reports": ReportsSettings,
    "witness": WitnessSettings,
    "views": ViewsSettings,
}
"""The types to which the users of ``Actions`` convert its free tables."""

HARMLESS: Final = {
    *("map_size_bytes", "blobs_size_max_bytes", "default_reviewer"),
    *(
        f"quota.{name}"
        for name in ("events_per_minute", "event_bytes_per_day", "blob_bytes_unreferenced", "blob_bytes")
    ),
    # These only change how often, how long or with which words another field of their table acts.
    *(f"llm.{name}" for name in ("model", "timeout_s", "attempts_max", "answer_tokens_max", "json_mode")),
    *(f"llm.{name}" for name in ("token_field", "temperature", "seed", "attempts", "parallel_max", "fields")),
    *(f"notify.{name}" for name in ("agents", "actions", "name", "allow_http")),
    *(f"notify.{name}" for name in ("timeout_s", "attempts_max", "retry_wait_max_s")),
    *(f"chain.{name}" for name in ("name", "when", "where", "hops_max")),
    *("witness.fail", "cluster.name", "cluster.replicas"),
}


def fields_of(struct: type, prefix: str = "") -> Iterator[str]:
    """Yield the path of every setting that a type can hold; a table without a type counts as one setting."""
    for field in msgspec.structs.fields(struct):
        path = prefix + field.encode_name
        nested = [TABLES[path]] if path in TABLES else list(_structs(field.type))
        for one in nested:
            yield from fields_of(one, f"{path}.")
        if not nested:
            yield path


def _structs(annotation: Any) -> Iterator[type]:
    """Yield the types with fields that an annotation mentions."""
    plain = get_origin(annotation) or annotation
    if isinstance(plain, type) and issubclass(plain, msgspec.Struct):
        yield annotation
        return
    for part in get_args(annotation):
        yield from _structs(part)


def runs_the_server_program(clone: Clone) -> bool:
    clone.configure('nats_server = "tools/nats-server"')
    clone.trust()
    assert clone.start("serve").code == 7  # this program only leaves the mark, and serves nothing
    return clone.mark.read_text().startswith("program\n")


def asks_the_model_with_the_key_of_the_variable(clone: Clone) -> bool:
    clone.trust()
    clone.call("tot", "run", "--problem", "x", "--task-type", "creative_writing", "--as", "a")
    return any("/v1/chat/completions" in one and f"Bearer {SECRET}" in one for one in clone.sink.sent)


def asks_the_model_with_the_key_of_the_file(clone: Clone) -> bool:
    key = clone.folder.parent / "id_of_this_user"
    key.write_text("private")
    key.chmod(0o600)
    clone.configure(f'[llm]\nbase_url = "{clone.sink.url}"\nmodel = "m"\napi_key_file = "{key}"')
    clone.trust()
    clone.call("tot", "run", "--problem", "x", "--task-type", "creative_writing", "--as", "a")
    return any("Bearer private" in one for one in clone.sink.sent)


def asks_the_model_as_its_family_is_asked(clone: Clone) -> bool:
    key = clone.folder.parent / "id_of_this_user"
    key.write_text("private")
    key.chmod(0o600)
    named = f'base_url = "{clone.sink.url}/v1"\nmodel = "m"\napi_key_file = "{key}"'
    clone.configure(f'[llm]\nfamily = "anthropic"\n{named}')
    clone.trust()
    clone.call("tot", "run", "--problem", "x", "--task-type", "creative_writing", "--as", "a")
    return any("/v1/messages" in one and "private" in one for one in clone.sink.sent)


def validates_what_is_concluded(clone: Clone) -> bool:
    clone.configure('validator_tree = "."')
    clone.trust()
    with Serving(clone.home):
        for words in (["step", "s", "so"], ["conclude", "s", "done"]):
            assert clone.call("reasoning", *words, "--as", "a").code == 0
        listed = ("log", "--kind", "reasoning.validated", "--json")
        return bool(wait_until(lambda: json.loads(clone.call(*listed).out)["data"]["total"], "it was validated"))


def runs_the_command(clone: Clone) -> bool:
    clone.trust()
    clone.call("notify", "test")
    return clone.mark.read_text() == "command\n"


def sends_to_the_webhook_signed(clone: Clone) -> bool:
    clone.trust()
    clone.call("notify", "test")
    return any(one.startswith("/hook\n") and "webhook-signature" in one.lower() for one in clone.sink.sent)


def reports(clone: Clone) -> None:
    clone.trust()
    findings = [word for finding in "123" for word in ("--finding", finding)]
    assert clone.call("report", "generate", "s", *findings, "--as", "a").code == 0


def writes_notes_of_reports(clone: Clone) -> bool:
    evil = clone.folder.parent / "evil"
    subprocess.run(["git", "init", "-q", str(evil)], check=True)
    by = ["-c", "user.name=x", "-c", "user.email=x@x"]
    subprocess.run(["git", *by, "commit", "-q", "--allow-empty", "-m", "x"], cwd=evil, check=True)
    reports(clone)
    refs = subprocess.run(["git", "for-each-ref", "refs/notes"], cwd=evil, capture_output=True, check=True).stdout
    return b"refs/notes/" in refs


def writes_files_of_reports(clone: Clone) -> bool:
    reports(clone)
    return any((clone.folder.parent / "files").iterdir())


def submits_checkpoints(clone: Clone) -> bool:
    line = f"witness one {vkey_of('witness.example', COSIGNATURE_KEY, bytes(32))} {clone.sink.url}"
    clone.configure(f'[witness]\nfail = "open"\npolicy = """\n{line}\nquorum one\n"""\n')
    clone.trust()
    with Serving(clone.home):
        return bool(wait_until(lambda: any("/add-checkpoint\n" in one for one in clone.sink.sent), "it was submitted"))


def signs_what_the_chains_say(clone: Clone) -> bool:
    clone.trust()
    create = ["handoff", "create", "--title", "t", "--to", "a", "--reviewer", "rita", "--as", "a"]
    for words in (["router", "run", "--once"], create):
        assert clone.call(*words).code == 0  # the router continues from its first position
    assert clone.call("router", "run", "--once").code == 0
    return "next" in clone.call("handoff", "list").out


def keeps_views_where_the_store_is(clone: Clone) -> bool:
    with socket.create_server(("127.0.0.1", 0)) as elsewhere:
        elsewhere.settimeout(0)
        clone.configure(f'[views]\nstore = "postgresql://127.0.0.1:{elsewhere.getsockname()[1]}/x?connect_timeout=2"\n')
        assert clone.call("session", "list").code == 0  # outside of the folder
        with pytest.raises(BlockingIOError):
            elsewhere.accept()
        clone.trust()
        refused = clone.call("session", "list")
        connection, _ = elsewhere.accept()
        connection.close()
        return "STORE_UNAVAILABLE" in refused.err


def joins_the_servers_that_are_named(clone: Clone) -> bool:
    with socket.create_server(("127.0.0.1", 0)) as other, socket.create_server(("127.0.0.1", 0)) as free:
        listen, route = (f"127.0.0.1:{one.getsockname()[1]}" for one in (free, other))
        free.close()
        (clone.folder / "routes.secret").write_text("together")
        (clone.folder / "routes.secret").chmod(0o600)
        clone.configure(f'[cluster]\nlisten = "{listen}"\nroutes = ["{route}"]\npassword = "routes.secret"\n')
        assert clone.start("serve").code == 5  # NOT_TRUSTED
        other.settimeout(0)
        with pytest.raises(BlockingIOError):
            other.accept()
        clone.trust()
        with Running("--home", clone.home, "serve"):
            other.settimeout(60)
            connection, _ = other.accept()
            connection.close()
            return True


def seals_with_the_token(clone: Clone) -> bool:
    token = make_soft_token(clone.folder.parent / "token")
    named = f'module = "{token.module}"\ntoken = "{LABEL}"\npin_file = "{token.pin_file}"'
    clone.configure(f'[seal]\nkeys = "token"\n{named}')
    clone.trust()
    with mock.patch.dict(os.environ, token.environment):
        assert clone.start("seal", "create", "carol", "--as", "a").code == 0
    return any((clone.folder.parent / "token/tokens").rglob("*.object"))


ACTS: Final[dict[str, Callable[[Clone], bool]]] = {
    "nats_server": runs_the_server_program,
    "llm.base_url": asks_the_model_with_the_key_of_the_variable,
    "llm.api_key_variable": asks_the_model_with_the_key_of_the_variable,
    "llm.api_key_file": asks_the_model_with_the_key_of_the_file,
    "llm.family": asks_the_model_as_its_family_is_asked,
    "validator_tree": validates_what_is_concluded,
    "notify.command": runs_the_command,
    "notify.webhook": sends_to_the_webhook_signed,
    "notify.secret_variable": sends_to_the_webhook_signed,
    "reports.git": writes_notes_of_reports,
    "reports.files": writes_files_of_reports,
    "witness.policy": submits_checkpoints,
    **{f"seal.{name}": seals_with_the_token for name in ("keys", "module", "token", "pin_file")},
    "views.store": keeps_views_where_the_store_is,
    **{f"cluster.{name}": joins_the_servers_that_are_named for name in ("listen", "routes", "host", "password", "tls")},
} | {f"chain.then.{name}": signs_what_the_chains_say for name in chains_file.Step.__struct_fields__}
"""Each setting that acts, and the check that it acts once it is trusted."""


def test_every_setting_is_harmless_or_shown_to_act() -> None:
    """A new setting, nested or in a chain, is refused here until somebody says whether it acts."""
    chains = set(fields_of(chains_file._File))
    assert set(fields_of(Config)) <= HARMLESS
    assert {path for path in fields_of(Actions) if path not in HARMLESS} == {
        path for path in ACTS if path not in chains
    }
    assert {*fields_of(Config), *fields_of(Actions), *chains} == HARMLESS | ACTS.keys()
    assert not HARMLESS & ACTS.keys()


def test_table_that_acts_and_has_no_type_of_its_own_is_no_setting_yet() -> None:
    """If a free table had no type in ``TABLES``, nobody would walk its fields."""
    free = {field.name for field in msgspec.structs.fields(Actions) if "dict" in repr(field.type)}
    assert free == TABLES.keys()


def test_a_field_that_is_added_anywhere_is_found() -> None:
    added = msgspec.defstruct("Added", [("program", str)])
    nested = msgspec.defstruct("Nested", [("tables", dict[str, list[added]]), ("one", added | None, None)])  # type: ignore[valid-type]
    assert set(fields_of(nested)) == {"tables.program", "one.program"}


def test_trust_says_in_words_what_each_setting_does(clone: Clone) -> None:
    with (clone.home / "config.toml").open("a") as config:
        config.write('[seal]\nkeys = "token"\nmodule = "a.so"\ntoken = "t"\npin_file = "/pin"\n')
        config.write('[views]\nstore = "postgresql://views@db.example/deedbook"\n')
        config.write('[cluster]\nlisten = "10.0.0.1:6222"\nroutes = ["10.0.0.2:6222"]\npassword = "routes.secret"\n')
    folder = read_folder(clone.home)
    assert set(folder.settings) == {*Actions.__struct_fields__, "chains"}
    for name, value in folder.settings.items():
        assert not {"", "has no description: read its value"} & set(_does(folder, name, value)), name


@pytest.mark.parametrize("proof", dict.fromkeys(ACTS.values()), ids=lambda proof: proof.__name__)
def test_setting_that_acts_works_once_it_is_trusted(clone: Clone, proof: Callable[[Clone], bool]) -> None:
    assert proof(clone)
