"""Leases: how long a claim is certain, who renews it, and who does so while the event loop is blocked.

`renewing` knows when a lease is certain, and renews those of tasks; `standby` is a thread for the time in
which the event loop is blocked. A round's lease is in `ekiden.server.rounds.owning.lease`, and uses both.
"""
