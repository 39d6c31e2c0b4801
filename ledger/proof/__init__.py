"""The Merkle tree over the log, and the proofs made with it: checkpoints, receipts, cosignatures."""
