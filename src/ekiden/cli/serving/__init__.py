"""Serving over HTTP in one process or several.

Read in this order: `job` (what to serve, in this process), `supervisor` (starts worker processes and replaces
those that end), `worker_process` (one of them), `reloading` (which files have changed), `refusing` (what
callers get while no worker can start).
"""
