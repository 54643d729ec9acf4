"""The marker that binds a test to rows of the table."""

import pytest

__all__ = ["requirement"]


def requirement(*ids: str) -> pytest.MarkDecorator:
    """This test keeps those rows of the table."""
    return pytest.mark.requirement(*ids)
