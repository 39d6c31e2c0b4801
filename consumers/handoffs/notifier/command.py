"""One attempt to deliver a notification by a command of the operator's own.

The command line is the operator's text alone: what an author wrote reaches it on standard input, as one JSON document,
and in three environment variables, which sh does not evaluate as long as the command quotes them. It runs in a process
group of its own, so that what it started ends with it when it takes too long. Exit code 0 is delivered; anything else
is tried again. Its standard output is dropped, its errors go where ours go.
"""

from __future__ import annotations

import os
import signal
import subprocess
from typing import TYPE_CHECKING

from consumers.handoffs.notifier.attempts import Outcome

if TYPE_CHECKING:
    from consumers.handoffs.notifier.message import Notification
    from consumers.handoffs.notifier.settings import Channel


def run_command(channel: Channel, notification: Notification) -> Outcome:
    """Run the channel's command for one notification; return what came of it."""
    limit_s = channel.settings.timeout_s
    environment = os.environ | {
        "BATON_NOTIFICATION_ID": notification.id,
        "BATON_TITLE": notification.title,
        "BATON_TEXT": notification.text,
    }
    command = channel.settings.command
    assert command is not None  # noqa: S101 - the caller chose by it
    try:
        # The command is the operator's own; nothing of the event becomes part of it.
        process = subprocess.Popen(  # noqa: S603 - see above
            ["/bin/sh", "-c", command],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,
        )
    except OSError as error:
        return Outcome("passing", f"the command could not be started: {error.strerror}")
    with process:
        try:
            process.communicate(notification.document + b"\n", timeout=limit_s)
        except subprocess.TimeoutExpired:
            # Not waited for yet, so its number is still its own, and the group's.
            os.killpg(process.pid, signal.SIGKILL)
            return Outcome("passing", f"the command took longer than {limit_s:g} s")
    if process.returncode:
        return Outcome("passing", f"the command ended with exit code {process.returncode}")
    return Outcome("delivered", "the command ended with exit code 0")
