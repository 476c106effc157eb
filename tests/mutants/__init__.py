"""Single faults that the fast tests must notice: python -m tests.mutants."""
