"""Layer 1: what is measured, where it is written, how it is shown."""
