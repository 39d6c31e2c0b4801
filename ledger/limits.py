"""Every limit of the ledger, in one place, each named with its unit.

Changing one of the first group, which decide what events are valid, needs a new format: auditors re-run them.
"""

from __future__ import annotations

from typing import Final

# Part of the format: replayed by auditors and followers.
entry_size_max_bytes: Final = 48 * 1024
# The rest is the entry's own: key, signature and numbers around the body.
body_size_max_bytes: Final = entry_size_max_bytes - 160
json_depth_max: Final = 32
json_integer_max: Final = 2**53 - 1
stream_name_max_bytes: Final = 400
causes_max: Final = 64
# The last millisecond of the year 9999: what follows has no date in RFC 3339.
clock_max_ms: Final = 253_402_300_799_999
clock_forward_max_ms: Final = 30 * 86_400_000  # From one entry to the next; further only by ``ledger.clock_set``.
batch_events_max: Final = 256
batch_size_max_bytes: Final = 900 * 1024

# What authors keep to, who do not know yet what will stand around ``data``: stream, causes, keys, names, times.
envelope_reserve_bytes: Final = 3 * 1024
data_size_max_bytes: Final = body_size_max_bytes - envelope_reserve_bytes

# One node's work.
request_size_max_bytes: Final = batch_size_max_bytes + 64 * 1024
group_commit_events_max: Final = 1024
submit_queue_max: Final = 4096
# The system's time before the last entry's: the ledger's clock stands still meanwhile.
clock_backward_max_ms: Final = 86_400_000
map_size_bytes: Final = 64 * 1024**3
map_alarm_ratio: Final = 0.8
readers_max: Final = 512

# Blobs.
blobs_map_size_bytes: Final = 64 * 1024**3
blob_size_max_bytes: Final = 64 * 1024**2
blob_chunk_bytes: Final = 64 * 1024 - 16
blob_scan_max_bytes: Final = 8 * 1024**2
# What a blob takes besides its content, as quotas count it: else blobs of one byte would cost their agent nothing.
blob_overhead_bytes: Final = 1024
# A blob that no event refers to is dropped after so long, and so is an upload that was not finished.
blob_unreferenced_max_s: Final = 24 * 3600

# What one agent may, unless ``[quota]`` in config.toml says otherwise (``ledger.home.quota``).
events_per_minute_max: Final = 60_000
event_per_day_max_bytes: Final = 2 * 1024**3
blobs_unreferenced_max_bytes: Final = 256 * 1024**2
blobs_of_agent_max_bytes: Final = 8 * 1024**3

# Reading.
range_events_max: Final = 512
range_size_max_bytes: Final = 600 * 1024
poll_wait_max_s: Final = 30.0

# The bus.
request_timeout_s: Final = 10.0
# So long does a request wait for a server or node that was there and is away.
reconnect_wait_max_s: Final = 2.0
discovery_answers_per_s_max: Final = 100
spool_events_max: Final = 10_000
spool_size_max_bytes: Final = 64 * 1024**2  # So much does one agent keep whose ledger is away, with what was refused.
retry_attempts_max: Final = 5
retry_wait_max_s: Final = 2.0

# What one agent may take of the bus. The server holds the first four, an account each; nodes hold the others.
agent_connections_max: Final = 32
agent_subscriptions_max: Final = 64  # Of each connection: NATS counts them there.
message_headers_max_bytes: Final = 4096
agent_payload_max_bytes: Final = request_size_max_bytes + message_headers_max_bytes

agent_requests_waiting_max: Final = 512
agent_requests_waiting_max_bytes: Final = 2 * 1024**2
agent_bytes_per_s_max: Final = 64 * 1024**2
# Beyond that rate by so much, an agent floods, however quickly it is served: a node reads a few times that.
agent_burst_max_bytes: Final = 8 * 1024**2
requests_waiting_max_bytes: Final = 64 * 1024**2
agent_submissions_running_max: Final = 128
agent_submissions_running_max_bytes: Final = 2 * 1024**2
submissions_running_max: Final = 1024
read_threads_max: Final = 4
agent_reads_running_max: Final = 2
# Reads that wait for news; an agent may have so many beside the requests above.
agent_reads_waiting_max: Final = 64
reads_waiting_max: Final = 4096
door_pause_min_s: Final = 0.05
# So long, doubling from the shortest, is an agent's subject closed that floods.
door_pause_max_s: Final = 0.5
door_flood_forget_s: Final = 30.0
door_batch_max: Final = 64
# So much is let in at once of an agent that flooded, until it has not for as long as the limit above says.
door_batch_max_bytes: Final = 1024**2
# So many messages of an agent the server passes on to a node that has read none of them, whatever keeps it from that.
# As many of the largest, in submissions and in reads, fit into ``connection_pending_max_bytes``.
door_window_max: Final = 256
door_answers_max: Final = 32  # Of the requests shed before a door is closed, so many are answered.
subscription_pending_max: Final = 256 * 1024
# What nats-py holds between reading and our queues: a socket buffer's worth, so never so much.
subscription_pending_max_bytes: Final = 64 * 1024**2

# Several nodes.
lease_renew_s: Final = 1.0
heartbeat_s: Final = 0.5
heartbeats_missed_s: Final = 2.5
# So long does a lease last that is not renewed. The streams of three servers elect leaders for 5 to 8 s (measured).
lease_s: Final = 15.0
# A node that is further behind its leader than it was so long ago answers no reads.
follower_lag_max_s: Final = 2.0

# The embedded server.
payload_max_bytes: Final = 1024 * 1024
# What the server holds for a connection that does not read; beyond it, the connection is cut as a slow consumer.
# Loopback carries a gigabyte a second: a node that gets no processor for so long as that takes must not be cut off.
connection_pending_max_bytes: Final = 512 * 1024**2
write_deadline_s: Final = 30  # So long may one write to a connection take; beyond it, the same.
server_start_max_s: Final = 15.0
server_stop_max_s: Final = 10.0

# What a user decided, and what a folder may ask to be decided.
config_size_max_bytes: Final = 256 * 1024
trust_size_max_bytes: Final = 1024**2
trust_lock_wait_max_s: Final = 10.0

# Proofs and witnesses.
policy_size_max_bytes: Final = 64 * 1024
policy_lines_max: Final = 1024
# A cosignature from further in the future is refused: that clock, or ours, is wrong.
witness_clock_ahead_max_s: Final = 300
witness_answer_max_s: Final = 5.0
witness_retry_max_s: Final = 60.0
receipt_wait_max_s: Final = 30.0  # So long does a receipt wait for witnesses, where it must have them.

# Deciding in a browser.
key_unlocked_max_s: Final = 300
# So long may a person look at a page before what it displayed must be read again.
decision_form_max_s: Final = 12 * 3600
# After each wrong passphrase the next is waited for twice as long, up to this.
passphrase_wait_max_s: Final = 60
