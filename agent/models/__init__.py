"""Networks that turn observations into action distributions and values."""
