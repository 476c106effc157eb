"""Networks that act without this program, in ONNX and torch.export (agent/export.py)."""
