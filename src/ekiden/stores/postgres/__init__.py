"""A store in Postgres: for servers and workers on many machines.

Needs the extra `ekiden[postgres]`, and `ekiden store migrate postgresql://...` once.

Read in this order: `schema` (the tables), `session` (a connection, and what its errors mean), `lane` and
`database` (which connection is used for what), `rows` (the statements for tasks), `together` (many callers,
one statement), `listening`, `signals` and `bus` (how other processes hear of changes), `tasks`, `sessions`,
`people` and `stories` (the stores of those), `store` (the ledger of rounds).
"""

from ekiden.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
