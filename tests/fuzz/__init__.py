"""Generated input for what reads untrusted bytes: HTTP/1.1 connections, and JSON.

A case is made of its seed alone. `make fuzz SEEDS=100000` runs more of them. What a seed has found becomes a
test in `tests/hostile` or beside the code that was mended.
"""
