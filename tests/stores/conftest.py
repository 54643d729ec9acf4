"""Stores to run the same tests on."""

from tests.tasks.conftest import _migrated, database, postgres

__all__ = ["_migrated", "database", "postgres"]
