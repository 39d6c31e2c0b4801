"""Random validly signed logs: both verifiers report the same codes at the same entries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from faults import chances, metrics, times
from judges import Judgement, alone, ours
from random_logs import STREAMS, RandomLog

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from rule_stage import Stage

EVENTS: Final = 60


def judged_alike(path: Path, stage: Stage, stream: str | None = None, *, leave_out: Collection[int] = ()) -> Judgement:
    """Return the judgement on which both verifiers agree."""
    bundle = stage.export(path / "log.tar", stream, leave_out=leave_out)
    mine, other = ours(bundle), alone(bundle)
    assert (mine.word, mine.codes, mine.gate) == (other.word, other.codes, other.gate), f"{mine.text}\n{other.text}"
    return mine


def streams_of(stage: Stage) -> list[str]:
    """Return the streams of a log that have rules."""
    return sorted(name for name in stage.streams if name.partition("/")[0] in STREAMS)


def test_random_logs_are_judged_alike(tmp_path: Path) -> None:
    codes: set[str] = set()
    for chance in chances("random logs", times(8, 200)):
        stage = RandomLog(chance, EVENTS).stage
        judgement = judged_alike(tmp_path, stage)
        codes |= set().union(*judgement.codes.values())
        metrics(f"random logs: both say {judgement.word}")
        judgement = judged_alike(tmp_path, stage, chance.choice(streams_of(stage)))
        metrics(f"streams of random logs: both say {judgement.word}")
    assert len(codes) > 15, codes


def test_logs_of_a_patched_node_are_judged_alike(tmp_path: Path) -> None:
    for chance in chances("hostile logs", times(12, 40)):
        stage = RandomLog(chance, EVENTS, is_hostile=True).stage
        # "session/0" has the entries that no gate would store
        for stream in (None, chance.choice(streams_of(stage)), "session/0"):
            judgement = judged_alike(tmp_path, stage, stream)
            metrics(f"logs of a patched node: both say {judgement.word}")


def test_random_logs_with_erased_entries_are_judged_alike(tmp_path: Path) -> None:
    words: set[str] = set()
    for chance in chances("erased random logs", times(4, 200)):
        stage = RandomLog(chance, EVENTS, erases=True).stage
        for stream in (None, chance.choice(streams_of(stage))):
            judgement = judged_alike(tmp_path, stage, stream)
            words.add(judgement.word)
            metrics(f"erased random logs: both say {judgement.word}")
    assert {"INVALID"} < words, words


def test_part_of_a_random_log_is_judged_alike(tmp_path: Path) -> None:
    for chance in chances("parts of random logs", times(5, 40)):
        stage = RandomLog(chance, EVENTS).stage
        left_out = {index for index in range(1, len(stage.entries)) if chance.random() < 0.1}
        judgement = judged_alike(tmp_path, stage, chance.choice(streams_of(stage)), leave_out=left_out)
        metrics(f"parts of random logs: both say {judgement.word}")
