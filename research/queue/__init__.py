"""A standing queue of experiments: written down beforehand, run by priority, never lost."""
