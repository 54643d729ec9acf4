"""A store in one SQLite file: for several processes of one machine, and for after a crash.

Read in this order: `schema` (the tables), `opening` (how the file is made and opened), `file` (how it is
read and written), `store` (the ledger of rounds), `statements` and `due` (the statements for tasks),
`tasks` (the store of tasks), `wake` (how other processes hear of changes).
"""

from ekiden.stores.sqlite.store import SQLiteStore

__all__ = ["SQLiteStore"]
