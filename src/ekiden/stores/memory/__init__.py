"""A store in the memory of this process: for tests, and for servers whose calls may die with them.

Read in this order: `tasks`, `people` and `stories` (the stores of those), `store` (the ledger of rounds, with
its bounds).
"""

from ekiden.stores.memory.store import MemoryStore

__all__ = ["MemoryStore"]
