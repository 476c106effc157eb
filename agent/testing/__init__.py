"""Test mode: whole games with a trained agent, their scores and tables."""
