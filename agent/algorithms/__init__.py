"""Loss functions: pure formulas, and the algorithm that combines them."""
