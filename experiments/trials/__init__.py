"""Algorithms that an experiment asks about and no release has; queue.yaml names them."""
