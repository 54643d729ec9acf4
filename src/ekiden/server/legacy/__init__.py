"""Clients of 2025: the sessions that they open, and the methods that only they may call.

Read in this order: `keeper` (what a session needs), `session` (one of them), `sessions` (all of them).
"""
