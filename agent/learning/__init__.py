"""Making batches, learning from them, optimisers, and batches that cannot be learned from."""
