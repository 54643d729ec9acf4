"""For all tests."""

from collections.abc import Iterator

import pytest

from ekiden.client.sessions import eras

pytest_plugins = ["pytester", "tests.store_fixtures"]


@pytest.fixture(autouse=True)
def _ports_are_used_again() -> Iterator[None]:
    """What one test found out about an address says nothing to the next: another server may be there."""
    yield
    eras._known.clear()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--matrix", action="store_true", help="print who works with whom, as the tests found it")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if config.getoption("--matrix"):
        from tests.peers import matrix

        ended = [report for how in ("passed", "failed") for report in terminalreporter.stats.get(how, [])]
        works = matrix.found(ended)
        for table in (matrix.OUR_SERVER, matrix.OUR_CLIENT):
            terminalreporter.section(table)
            terminalreporter.write_line(matrix.render(table, works))
