"""Layer 1: everything that knows Gymnasium and the Arcade Learning Environment.

Reading order: config.py (what can be chosen), vector.py (what everybody else sees), gym_vector.py
and atari.py (the rules, readable), ale_vector.py (the same rules in C++, fast), registry.py.
"""
