"""Clients of 2025: the sessions that their handshakes make, and what only they may call.

Read in this order: `keeper` (what a session needs), `session` (one of them), `sessions` (all of them).
"""
