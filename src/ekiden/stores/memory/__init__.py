"""A store in the memory of this process: for tests, and for servers whose calls may die with them."""

from ekiden.stores.memory.store import MemoryStore

__all__ = ["MemoryStore"]
