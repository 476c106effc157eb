"""Layer 1. Replay: bounded buffers of unrolls, how batches are mixed from them, read-ahead.

Pure NumPy (and lz4): no torch, no agent. Next to read: replay/buffer.py.
"""
