"""Layer 7: what finished runs can be asked. `python -m analysis --help` lists the questions."""
