"""The dates that queries accept: ISO 8601 and RFC 3339, or relative to now; anything else is refused."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from deedbook.consumers.sdk.times import parse_since, parse_until
from deedbook.ledger.errors import Refused

NOW = datetime(2026, 2, 12, 10, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2025-11-01", "2025-11-01T00:00:00+00:00"),
        ("2025-11-01T08:30:00", "2025-11-01T08:30:00+00:00"),
        ("2025-11-01T08:30:00Z", "2025-11-01T08:30:00+00:00"),
        ("2025-11-01T08:30:00.250+02:00", "2025-11-01T06:30:00.250+00:00"),
        ("7 days ago", "2026-02-05T10:00:00+00:00"),
        (" 2 Weeks Ago ", "2026-01-29T10:00:00+00:00"),
        ("3h ago", "2026-02-12T07:00:00+00:00"),
        ("7天前", "2026-02-05T10:00:00+00:00"),
    ],
)
def test_a_date_or_a_time_ago_is_read_as_utc(text: str, moment: str) -> None:
    assert parse_since(text, NOW) == int(datetime.fromisoformat(moment).timestamp() * 1000)


@pytest.mark.parametrize(
    ("zone", "text", "moment"),
    [
        ("Asia/Tokyo", "today", "2026-02-12T00:00:00+09:00"),
        ("Pacific/Honolulu", "Today", "2026-02-12T00:00:00-10:00"),
        ("Pacific/Kiritimati", "yesterday", "2026-02-12T00:00:00+14:00"),
        ("UTC", "昨天", "2026-02-11T00:00:00+00:00"),
        ("Europe/Berlin", "last monday", "2026-02-09T00:00:00+01:00"),
        ("Europe/Berlin", "last thursday", "2026-02-05T00:00:00+01:00"),
        ("Europe/Berlin", "thursday", "2026-02-12T00:00:00+01:00"),
        ("Europe/Berlin", "this week", "2026-02-09T00:00:00+01:00"),
        ("UTC", "This month", "2026-02-01T00:00:00+00:00"),
        ("Europe/Berlin", "3 days ago", "2026-02-09T10:00:00+00:00"),
    ],
)
def test_a_day_begins_at_the_midnight_of_whoever_asks(
    monkeypatch: pytest.MonkeyPatch, zone: str, text: str, moment: str
) -> None:
    with monkeypatch.context() as patched:
        patched.setenv("TZ", zone)
        time.tzset()
        asked = parse_since(text, NOW)
    time.tzset()
    assert asked == int(datetime.fromisoformat(moment).timestamp() * 1000)


def test_a_day_before_the_clocks_were_changed_began_at_its_own_midnight(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setenv("TZ", "Europe/Berlin")
        time.tzset()
        asked = parse_since("last friday", datetime(2026, 3, 30, 10, 0, tzinfo=UTC))
    time.tzset()
    assert asked == int(datetime.fromisoformat("2026-03-27T00:00:00+01:00").timestamp() * 1000)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "nonsense",
        "10",
        "march",
        "2025-13-01",
        "2025-11-31",
        "7 days ago or so",
        "in 7 days",
        "tomorrow",
        "99999999999 days ago",
        "0001-01-01T00:00:00+23:00",
        "1 day ago" + " " * 80 + "x",
        "'; DROP TABLE reports; --",
        "\x909*M",
        "9M",
        "9 * minutes ago",
    ],
)
def test_nonsense_is_refused_with_what_to_write(text: str) -> None:
    with pytest.raises(Refused, match="10 minutes ago") as caught:
        parse_since(text, NOW)
    assert caught.value.code == "INVALID_FIELD"
    assert caught.value.details["field"] == "since"


@pytest.mark.parametrize("given", [7, 7.5, None, NOW, ["7 days ago"]])
def test_what_is_no_text_is_refused(given: Any) -> None:
    with pytest.raises(Refused, match="Expected `str`") as caught:
        parse_since(given, NOW)
    assert caught.value.code == "INVALID_FIELD"


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-02-10", "2026-02-11T00:00:00Z"),
        ("2026-02-10T08:00:00Z", "2026-02-10T08:00:00Z"),
        ("3 hours ago", None),
        ("this week", None),
    ],
)
def test_a_range_ends_with_its_last_day(text: str, moment: str | None) -> None:
    end = parse_until(text, NOW)
    expected = NOW - timedelta(hours=3) if text == "3 hours ago" else NOW
    assert end == int((datetime.fromisoformat(moment) if moment else expected).timestamp() * 1000)
    assert parse_until("yesterday", NOW) == parse_since("today", NOW)


@pytest.mark.parametrize(("short", "long"), [("36h", "36 hours ago"), ("7d", "7 days ago"), ("2W", "2 weeks ago")])
def test_a_number_with_a_letter_is_so_long_ago(short: str, long: str) -> None:
    assert parse_since(short, NOW) == parse_since(long, NOW)
