"""Several learners of one run: their group, their rounds, and how they are started."""
