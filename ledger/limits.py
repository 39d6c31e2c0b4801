"""Every limit of the ledger, in one place, each named with its unit.

Changing one of the first group, which decide what events are valid, needs a new format: auditors re-run them.
"""

from __future__ import annotations

from typing import Final

# Part of the format: replayed by auditors and followers.
entry_size_max_bytes: Final = 48 * 1024
body_size_max_bytes: Final = entry_size_max_bytes - 128
"""The rest is the entry's own: key, signature and numbers around the body."""

json_depth_max: Final = 32
json_integer_max: Final = 2**53 - 1
stream_name_max_bytes: Final = 400
causes_max: Final = 64
batch_events_max: Final = 256
batch_size_max_bytes: Final = 900 * 1024

# What authors keep to, who do not know yet what will stand around ``data``: stream, causes, keys, names, times.
envelope_reserve_bytes: Final = 3 * 1024
data_size_max_bytes: Final = body_size_max_bytes - envelope_reserve_bytes

# One node's work.
request_size_max_bytes: Final = batch_size_max_bytes + 64 * 1024
group_commit_events_max: Final = 1024
submit_queue_max: Final = 4096
map_size_bytes: Final = 64 * 1024**3
map_alarm_ratio: Final = 0.8
readers_max: Final = 512

# Blobs.
blobs_map_size_bytes: Final = 64 * 1024**3
blob_size_max_bytes: Final = 64 * 1024**2
blob_chunk_bytes: Final = 64 * 1024 - 16
blob_scan_max_bytes: Final = 8 * 1024**2

# Reading.
range_events_max: Final = 512
range_size_max_bytes: Final = 600 * 1024
poll_wait_max_s: Final = 30.0

# The bus.
request_timeout_s: Final = 10.0
retry_attempts_max: Final = 5
retry_wait_max_s: Final = 2.0
server_start_max_s: Final = 15.0
server_stop_max_s: Final = 10.0
