"""A store in one SQLite file: for several processes of one machine, and for after a crash.

Read in this order: `schema` (the tables), `opening` (how the file is made and opened), `one_thread`, `file`
(how it is read and written), `portions` (how what has expired is removed), `statements` and `due` (the
statements for tasks, and which are next), `wake` (how other processes hear of changes), `tasks` and `stories`
(the stores of those), `store` (the ledger of rounds).
"""

from ekiden.stores.sqlite.store import SQLiteStore

__all__ = ["SQLiteStore"]
