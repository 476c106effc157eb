"""Layer 0: the words every other package speaks (specs, unrolls, errors, random streams)."""
