"""Layer 7: questions to finished runs. `python -m ritornello.analysis --help` lists them."""
