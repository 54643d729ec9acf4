"""The page about clients and versions shows the matrix that the tests go through."""

import pytest

from tests.peers import foreign, matrix
from tests.peers.rounds import cases
from tests.peers.test_foreign_servers import CASES as FOREIGN_CASES


@pytest.mark.parametrize("table", [matrix.OUR_SERVER, matrix.OUR_CLIENT])
def test_the_page_shows_every_cell(table: str) -> None:
    assert matrix.render(table, matrix.all_cells()) in matrix.PAGE.read_text()


def test_every_column_is_a_case_that_is_tested() -> None:
    for version in ("2026-07-28", "2025-11-25"):
        assert set(matrix.COLUMNS[matrix.OUR_SERVER]) <= set(cases.able(version))
    assert set(matrix.COLUMNS[matrix.OUR_CLIENT]) <= set(FOREIGN_CASES)
    assert {way.transport for way in foreign.WAYS} == set(matrix.SPELLED)


def test_a_cell_that_does_not_work_would_be_seen() -> None:
    cells = matrix.all_cells()
    lost = cells[0]

    rendered = matrix.render(lost.table, cells[1:])

    assert rendered != matrix.render(lost.table, cells)
    assert f"| {lost.peer} | {lost.version} | stdio |" in rendered
