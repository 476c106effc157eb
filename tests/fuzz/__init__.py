"""Damaged input for every place at which the program reads any."""
