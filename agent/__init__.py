"""Layer 5: what learns and what acts; the only package that combines all the others."""
