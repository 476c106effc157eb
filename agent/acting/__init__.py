"""Environments are played here: choosing actions, rollouts, worker processes, the server."""
