"""The Merkle tree over the log, and what is proved with it: checkpoints, receipts, cosignatures."""
