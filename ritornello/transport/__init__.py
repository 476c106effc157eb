"""Layer 1: bytes between processes of one machine (experience up, weights down, messages)."""
