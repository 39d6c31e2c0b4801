"""One attempt to deliver a notification to a webhook: the status decides, and the body of an answer is never read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from consumers.handoffs.notifier.attempts import Outcome, outcome_of_status
from consumers.handoffs.notifier.signature import signed_headers
from consumers.sdk.http import NoAnswer, post

if TYPE_CHECKING:
    from consumers.handoffs.notifier.message import Notification
    from consumers.handoffs.notifier.settings import Channel


def post_notification(channel: Channel, notification: Notification, now_ms: int) -> Outcome:
    """Post a notification to the channel's webhook, signed as an attempt of ``now_ms``; return what came of it."""
    url, secret, limit_s = channel.settings.webhook, channel.secret, channel.settings.timeout_s
    assert url is not None  # noqa: S101 - the caller chose by it
    assert secret is not None  # noqa: S101 - configured_channels demands it
    headers = signed_headers(notification.id, now_ms // 1000, notification.document, secret)
    headers |= {"content-type": "application/json", "user-agent": "baton-notifier"}
    try:
        answer = post(url, notification.document, headers, limit_s=limit_s)
    except TimeoutError:
        return Outcome("passing", f"the receiver did not answer within {limit_s:g} s")
    except NoAnswer as error:
        return Outcome("passing" if error.may_pass else "refused", error.problem)
    return outcome_of_status(answer.status, answer.wait_s)
