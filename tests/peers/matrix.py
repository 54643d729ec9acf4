"""The matrix of who works with whom, as the tests find it and as the documentation shows it.

A test of a cell, or of many, records those that work. `pytest tests/peers --matrix` prints the tables from
what the tests found; the page of the documentation must show the same for all cells that there are.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from tests.peers import foreign
from tests.peers.rounds import cases
from tests.peers.rounds.clients import CLIENTS, TRANSPORTS, PeerClient

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "clients-and-versions.md"
PROPERTY = "matrix"
SPELLED = {"http": "HTTP", "stdio": "stdio"}

OUR_SERVER, OUR_CLIENT = "clients", "servers"
COLUMNS = {
    OUR_SERVER: {
        "one ask": "One ask",
        "three kinds at once": "Three kinds at once",
        "three rounds": "Three rounds",
        "manual": "Manual API",
        "manual with a state only": "State only",
        "decline": "Decline",
        "a page to open": "A page to open",
        "a prompt that asks": "A prompt",
        "a resource that asks": "A resource",
        "the model": "The model",
        "the roots": "The roots",
    },
    OUR_CLIENT: {
        "a form": "One ask",
        "three kinds": "Three kinds at once",
        "three rounds": "Three rounds",
        "a form declined": "Decline",
        "a page": "A page to open",
        "by a prompt": "A prompt",
        "by a resource": "A resource",
        "the model": "The model",
        "the roots": "The roots",
    },
}
"""What the cases of the two tables are called in the documentation."""


class Cell(NamedTuple):
    table: str
    peer: str
    version: str
    column: str
    transport: str


def cell_of_client(client: PeerClient, transport: str, case: str) -> Cell | None:
    """The cell of a client at our server, if it should work: a version may have no such question."""
    column = COLUMNS[OUR_SERVER].get(case)
    planned = cases.able(client.version).get(case)
    if column is None or planned is None or planned.outcome == cases.FAILED:
        return None
    return Cell(OUR_SERVER, client.title, client.version, column, transport)


def cell_of_server(way: foreign.Way, case: str) -> Cell | None:
    """The cell of our client at a server."""
    column = COLUMNS[OUR_CLIENT].get(case)
    version = "2026-07-28" if way.era == "modern" else "2025-11-25"
    return Cell(OUR_CLIENT, way.peer.title, version, column, way.transport) if column else None


def plain(cells: Iterable[Cell | None]) -> list[list[str]]:
    """Cells as they travel from one process of xdist to the other."""
    return [list(cell) for cell in cells if cell is not None]


def all_cells() -> list[Cell]:
    """Every cell that there is."""
    of_clients = [
        cell_of_client(client, transport, case)
        for client in CLIENTS
        for transport in TRANSPORTS
        for case in COLUMNS[OUR_SERVER]
    ]
    of_servers = [cell_of_server(way, case) for way in foreign.WAYS for case in COLUMNS[OUR_CLIENT]]
    return [cell for cell in [*of_clients, *of_servers] if cell is not None]


def render(table: str, works: Iterable[Cell]) -> str:
    """One table: a row for each peer and version, and in each cell the transports over which it works."""
    working = set(works)
    columns = list(COLUMNS[table].values())
    rows = dict.fromkeys((cell.peer, cell.version) for cell in all_cells() if cell.table == table)
    lines = [
        ["Client" if table == OUR_SERVER else "Server", "Version", *columns],
        ["---"] * (len(columns) + 2),
    ]
    for peer, version in rows:
        cells = [
            ", ".join(
                spelled
                for transport, spelled in SPELLED.items()
                if Cell(table, peer, version, column, transport) in working
            )
            for column in columns
        ]
        lines.append([peer, version, *(cell or "-" for cell in cells)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def found(reports: Iterable[Any]) -> list[Cell]:
    """The cells that tests found to work. A test of many cells records those that do, and then may fail."""
    return [
        Cell(*cell)
        for report in reports
        if report.when == "call"
        for name, cells in report.user_properties
        if name == PROPERTY
        for cell in cells
    ]
