"""Benchmarks: `python -m bench --help`.

Shapes are data (shapes.py), a peer is a small adapter (peers/), a result is JSON, and every table,
plot and README section is generated from that JSON.
"""
