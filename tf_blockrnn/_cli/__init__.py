"""The verbs of `python -m tf_blockrnn`."""
