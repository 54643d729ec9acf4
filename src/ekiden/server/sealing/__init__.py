"""Sealing with the server's keys: `keys` and `nonces`, `tokens` (the `requestState`), and `store` (a store
whose contents are sealed).
"""
