"""For all tests."""

pytest_plugins = ["pytester"]
