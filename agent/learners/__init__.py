"""Several learners of one run: which one this is, and the group that adds up over all of them."""
