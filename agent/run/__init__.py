"""The life of a run: where experience comes from, the loop, saving, reporting, resuming."""
