"""The slow twins: formulas in plain loops, written to be read beside the papers."""
