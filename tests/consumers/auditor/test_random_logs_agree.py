"""Random validly signed logs: both verifiers report the same codes at the same entries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from faults import chances, metrics, times
from judges import alone, ours
from random_logs import STREAMS, RandomLog

if TYPE_CHECKING:
    from pathlib import Path

EVENTS: Final = 60


def test_random_logs_are_judged_alike(tmp_path: Path) -> None:
    codes: set[str] = set()
    for chance in chances("random logs", times(8, 200)):
        stage = RandomLog(chance, EVENTS).stage
        path = stage.export(tmp_path / "log.tar")
        mine, other = ours(path), alone(path)
        assert (mine.word, mine.codes, mine.gate) == (other.word, other.codes, other.gate), f"{mine.text}\n{other.text}"
        codes |= set().union(*mine.codes.values())
        metrics(f"random logs: both say {mine.word}")
        streams = sorted(name for name in stage.streams if name.partition("/")[0] in STREAMS)
        path = stage.export(tmp_path / "stream.tar", chance.choice(streams))
        mine, other = ours(path), alone(path)
        assert (mine.word, mine.codes, mine.gate) == (other.word, other.codes, other.gate), f"{mine.text}\n{other.text}"
        metrics(f"streams of random logs: both say {mine.word}")
    assert len(codes) > 15, codes


def test_logs_of_a_patched_node_are_judged_alike(tmp_path: Path) -> None:
    for chance in chances("hostile logs", times(5, 40)):
        stage = RandomLog(chance, EVENTS, is_hostile=True).stage
        path = stage.export(tmp_path / "log.tar")
        mine, other = ours(path), alone(path)
        assert (mine.word, mine.codes, mine.gate) == (other.word, other.codes, other.gate), f"{mine.text}\n{other.text}"


def test_random_logs_with_erased_entries_are_judged_alike(tmp_path: Path) -> None:
    words: set[str] = set()
    for chance in chances("erased random logs", times(4, 200)):
        stage = RandomLog(chance, EVENTS, erases=True).stage
        streams = sorted(name for name in stage.streams if name.partition("/")[0] in STREAMS)
        for stream in (None, chance.choice(streams)):
            path = stage.export(tmp_path / "log.tar", stream)
            mine, other = ours(path), alone(path)
            assert (mine.word, mine.codes, mine.gate) == (other.word, other.codes, other.gate), (
                f"{mine.text}\n{other.text}"
            )
            words.add(mine.word)
            metrics(f"erased random logs: both say {mine.word}")
    assert {"INVALID"} < words, words


def test_part_of_a_random_log_is_judged_alike(tmp_path: Path) -> None:
    for chance in chances("parts of random logs", times(5, 40)):
        stage = RandomLog(chance, EVENTS).stage
        streams = sorted(name for name in stage.streams if name.partition("/")[0] in STREAMS)
        left_out = {index for index in range(1, len(stage.entries)) if chance.random() < 0.1}
        path = stage.export(tmp_path / "part.tar", chance.choice(streams), leave_out=left_out)
        mine, other = ours(path), alone(path)
        assert (mine.word, mine.codes, mine.gate) == (other.word, other.codes, other.gate), f"{mine.text}\n{other.text}"
        metrics(f"parts of random logs: both say {mine.word}")
