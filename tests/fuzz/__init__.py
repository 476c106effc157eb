"""Random and mutated input for every door of the program: python -m tests.fuzz --help."""
