"""What is sealed with the server's keys.

Read in this order: `keys` and `nonces`, `tokens` (the `requestState`: sealed, opened, and checked), `seal` (a
value in a store), `sealed_tasks` and `store` (a store whose contents are sealed).
"""
