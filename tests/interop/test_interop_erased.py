"""The agent in TypeScript reads bundles with erased entries, and refuses an erased entry without a redaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from bundles import unpacked
from forge import SESSION, Forge
from forged_steps import checkpoint_rotated
from wrong_redactions import (
    NO_DIGEST,
    NO_EVENT,
    TARGET,
    all_of,
    erased,
    hana,
    handed,
    proposed,
    redacted,
    revoked_role,
    secret,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

RIGHT = [
    (all_of(secret, erased(), redacted()), [TARGET]),
    (all_of(handed, erased(), redacted()), [TARGET]),
    (all_of(hana, secret, proposed(index=10), erased(10), redacted("rita", 10)), [10]),
    (all_of(revoked_role, erased(), redacted()), [TARGET]),
    (all_of(secret, redacted()), []),
]
WRONG = [
    all_of(secret, erased()),
    all_of(secret, erased(), redacted(event=NO_EVENT)),
    all_of(secret, erased(), redacted(remnant=NO_DIGEST)),
    all_of(secret, erased(), redacted("rita")),
    all_of(secret, erased(), proposed("rita"), redacted("rita")),
    all_of(checkpoint_rotated, erased(), redacted()),
]


def bundle(step: Callable[[Forge], Any], folder: Path, stream: str | None = None) -> str:
    """Return the folder of an unpacked bundle."""
    forge = Forge()
    step(forge)
    return str(unpacked(forge.export(folder.with_suffix(".tar"), stream), folder))


@pytest.mark.parametrize("stream", [None, SESSION])
def test_it_takes_bundles_with_entries_that_a_redaction_names(
    ask: Callable[..., Any], tmp_path: Path, stream: str | None
) -> None:
    folders = [bundle(step, tmp_path / str(at), stream) for at, (step, _) in enumerate(RIGHT)]
    answers = [one["answer"]["erased"] for one in ask("bundles", folders=folders)["bundles"]]
    for found, (_, wanted) in zip(answers, RIGHT, strict=True):
        assert found == wanted if stream is None else {*found} <= {*wanted}


def test_it_refuses_bundles_with_entries_that_nothing_names(ask: Callable[..., Any], tmp_path: Path) -> None:
    folders = [bundle(step, tmp_path / str(at)) for at, step in enumerate(WRONG)]
    answers = ask("bundles", folders=folders)["bundles"]
    assert [at for at, one in enumerate(answers) if "refused" not in one] == []
