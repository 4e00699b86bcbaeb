"""The public functions of the ops, their gradients, and what these share."""
