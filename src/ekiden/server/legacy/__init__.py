"""Clients of 2025: the sessions that they open, and the methods that only they may call.

Read in this order: `keeper` (what a session needs), `requests` and `asking` (what its client is asked),
`watching` (what it is told), `session` (one of them), `room` (how many there may be), `sessions` (all of
them).
"""
