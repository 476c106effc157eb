"""Many runs one after the other, told as data (`*.yaml` here)."""
