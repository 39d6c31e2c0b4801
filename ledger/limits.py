"""Every limit of the ledger in one place, each named with its unit.

The first group decides which events are valid, and auditors check it again. Changing one of them needs a new format.
"""

from __future__ import annotations

from typing import Final

# Part of the format: auditors and followers check these again.
entry_size_max_bytes: Final = 48 * 1024
# The rest of an entry holds the key, the signature and the numbers around the body, or around its remnant.
remnant_size_max_bytes: Final = entry_size_max_bytes - 160
# A remnant holds an id and perhaps a version beside the body without its texts, which is never larger than the body.
body_size_max_bytes: Final = remnant_size_max_bytes - 192
json_depth_max: Final = 32
json_integer_max: Final = 2**53 - 1
stream_name_max_bytes: Final = 400
causes_max: Final = 64
# The last millisecond of the year 9999: RFC 3339 has no later dates.
clock_max_ms: Final = 253_402_300_799_999
clock_forward_max_ms: Final = 30 * 86_400_000  # from one entry to the next; a larger step needs ``ledger.clock_set``
batch_events_max: Final = 256
batch_size_max_bytes: Final = 900 * 1024

# Declared kinds: their number in a ledger, their names and schemas.
kinds_declared_max: Final = 256
kind_name_max_chars: Final = 100
kind_schema_max_bytes: Final = 16 * 1024  # In canonical form.
kind_depth_max: Final = 4  # Objects and lists, the whole schema included.
kind_properties_max: Final = 128  # In the whole schema.
kind_choices_max: Final = 64
kind_choice_max_chars: Final = 200
kind_items_max: Final = 1_000
kind_text_max_chars: Final = 40_000
kind_title_max_chars: Final = 200
kind_description_max_chars: Final = 2_000
# The maximum number of characters in a sealed reference.
sealable_text_min_chars: Final = 200

# Reserved by authors, who do not know yet how large the fields around ``data`` will be: stream, causes, names, times,
# salt.
envelope_reserve_bytes: Final = 3 * 1024
data_size_max_bytes: Final = body_size_max_bytes - envelope_reserve_bytes

# Limits of one node's own work.
request_size_max_bytes: Final = batch_size_max_bytes + 64 * 1024
group_commit_events_max: Final = 1024
submit_queue_max: Final = 4096
# The system clock may be this far behind the last entry. The ledger's clock does not move meanwhile.
clock_backward_max_ms: Final = 86_400_000
map_size_bytes: Final = 64 * 1024**3
map_alarm_ratio: Final = 0.8
readers_max: Final = 512

# Blobs.
blobs_size_max_bytes: Final = 64 * 1024**3  # All blobs of a ledger together.
blob_size_max_bytes: Final = 1024**3 + 1024**2  # 1 GiB of content, and what sealing adds.
# The largest content that a program holds in memory as a whole: arguments, and files that importers read.
content_size_max_bytes: Final = 64 * 1024**2
blob_chunk_bytes: Final = 64 * 1024 - 16
blob_scan_max_bytes: Final = 8 * 1024**2
# Quotas count this much for each blob in addition to its content. Otherwise blobs of one byte would cost their agent
# nothing.
blob_overhead_bytes: Final = 1024
# A blob that no event references is deleted after this time, and so is an unfinished upload.
blob_unreferenced_max_s: Final = 24 * 3600

# Quotas of one agent, unless ``[quota]`` in config.toml sets others (``ledger.home.quota``).
events_per_minute_max: Final = 60_000
event_per_day_max_bytes: Final = 2 * 1024**3
blobs_unreferenced_max_bytes: Final = 2 * 1024**3
blobs_of_agent_max_bytes: Final = 8 * 1024**3

# Reading.
range_events_max: Final = 512
range_size_max_bytes: Final = 600 * 1024
poll_wait_max_s: Final = 30.0

# The bus.
request_timeout_s: Final = 10.0
# A request waits this long for a server or node that was reachable before but is not reachable now.
reconnect_wait_max_s: Final = 2.0
discovery_answers_per_s_max: Final = 100

# A client stores this many learned addresses of nodes, and asks for new ones after this time.
addresses_max: Final = 8
address_size_max: Final = 200
addresses_interval_s: Final = 600.0
addresses_wait_s: Final = 1.0
addresses_close_wait_s: Final = 0.05
"""A short command waits this long for the answers before it closes its connection."""
spool_events_max: Final = 10_000
spool_size_max_bytes: Final = 64 * 1024**2  # The spool of one agent while its ledger is unreachable, refused ones too.
retry_attempts_max: Final = 5
retry_wait_max_s: Final = 2.0

# One agent's share of the bus. The server enforces the first four per account; nodes enforce the others.
agent_connections_max: Final = 32
agent_subscriptions_max: Final = 64  # Per connection, because NATS counts them there.
message_headers_max_bytes: Final = 4096
agent_payload_max_bytes: Final = request_size_max_bytes + message_headers_max_bytes

agent_requests_waiting_max: Final = 512
agent_requests_waiting_max_bytes: Final = 2 * 1024**2
agent_bytes_per_s_max: Final = 64 * 1024**2
# An agent that exceeds that rate by this many bytes floods, even if it is served quickly: a node reads a few times that
# rate.
agent_burst_max_bytes: Final = 8 * 1024**2
requests_waiting_max_bytes: Final = 64 * 1024**2
agent_submissions_running_max: Final = 128
agent_submissions_running_max_bytes: Final = 2 * 1024**2
submissions_running_max: Final = 1024
read_threads_max: Final = 4
agent_reads_running_max: Final = 2
# Reads that wait for new entries. They are counted separately from the requests above.
agent_reads_waiting_max: Final = 64
reads_waiting_max: Final = 4096
subscription_pause_min_s: Final = 0.05
# The longest time for which the subject of a flooding agent is closed. The time doubles from the shortest.
subscription_pause_max_s: Final = 0.5
subscription_flood_forget_s: Final = 30.0
subscription_batch_max: Final = 64
# An agent that flooded may send this much at once, until ``subscription_flood_forget_s`` has passed since.
subscription_batch_max_bytes: Final = 1024**2
# The server passes on this many messages of an agent to a node that has not read any of them yet.
# That many of the largest messages, once as submissions and once as reads, fit into ``connection_pending_max_bytes``.
subscription_window_max: Final = 256
subscription_answers_max: Final = 32  # Refused requests that still get an answer, before the subject is closed.
subscription_pending_max: Final = 256 * 1024
# Bytes that nats-py holds between reading and our queues. It is about one socket buffer, so this is never reached.
subscription_pending_max_bytes: Final = 64 * 1024**2

# Several nodes.
heartbeat_s: Final = 0.5
heartbeats_missed_s: Final = 2.5
# A node that the stream has not answered for this long takes no requests. The servers elect a stream's leader in 5 to
# 8 s (measured).
stream_silent_max_s: Final = 15.0
# A node takes no requests while it lacks entries that another node already had this many seconds ago.
follower_lag_max_s: Final = 2.0
# The number of attempts of a node to decide a submission while other nodes are faster.
publish_attempts_max: Final = 32
# Between two attempts the node waits for a random part of this time, multiplied by the number of its attempts.
publish_conflict_wait_s: Final = 0.002

# The embedded server.
payload_max_bytes: Final = 1024 * 1024
# Bytes that the server stores for a connection that does not read. Beyond this, it closes the connection as a slow
# consumer. Loopback carries a gigabyte a second, and a node that gets no processor for half a second must not lose its
# connection.
connection_pending_max_bytes: Final = 512 * 1024**2
write_deadline_s: Final = 30  # The longest write to a connection; after it, the connection is cut too.
server_start_max_s: Final = 15.0
server_stop_max_s: Final = 10.0

# Files with a user's trust decisions, and with the settings of a folder.
config_size_max_bytes: Final = 256 * 1024
trust_size_max_bytes: Final = 1024**2
trust_lock_wait_max_s: Final = 10.0

# Proofs and witnesses.
policy_size_max_bytes: Final = 64 * 1024
policy_lines_max: Final = 1024
# A cosignature from further in the future is refused: the witness's clock or ours is wrong.
witness_clock_ahead_max_s: Final = 300
witness_answer_max_s: Final = 5.0
witness_retry_max_s: Final = 60.0
receipt_wait_max_s: Final = 30.0  # The longest wait of a receipt for the witnesses that it must have.

# Decisions in a browser.
key_unlocked_max_s: Final = 300
# A person may decide on a page for this long. After it, the page must be loaded again.
decision_form_max_s: Final = 12 * 3600
# Each wrong passphrase doubles the wait before the next one, up to this.
passphrase_wait_max_s: Final = 60
