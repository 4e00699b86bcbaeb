"""What the tests share: references, comparisons, tolerances, calls of the ops, child programs."""
