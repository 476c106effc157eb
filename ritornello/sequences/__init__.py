"""Layer 6: many runs one after the other, told as data (`*.yaml` here)."""
