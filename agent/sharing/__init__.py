"""Agents on one machine that send each other what they play."""
