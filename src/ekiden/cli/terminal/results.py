"""Results of tools, for people: text as text, rows as a table, pictures and sounds as files."""

import base64
import binascii
import contextlib
import mimetypes
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ekiden.cli.terminal.screen import Screen, harmless, one_line
from ekiden.errors import EkidenError, ParseError
from ekiden.wire.json import JsonObject, decode, is_array, is_object

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["rows_table", "show_block", "show_result"]

_ENDINGS: Final = {"audio/wav": ".wav", "audio/x-wav": ".wav", "audio/mpeg": ".mp3", "image/webp": ".webp"}
"""For types that the system's table lacks, or has with an ending that is not in use."""
_MOST_CELLS: Final = 10_000
_LONGEST_CELL: Final = 10_000
"""Of what is larger no table is made: nobody reads that, and to draw it takes minutes."""
_MOST_COMPARED: Final = 10_000
"""How many pairs of blocks and entries are compared to find out whether one repeats the other."""
_MOST_NAMES: Final = 10_000
_LONGEST_NAME: Final = 100
"""Letters of a file's name that come from the server; file systems have room for 255 bytes."""


def show_result(screen: Screen, result: JsonObject, tool: str, folder: Path) -> None:
    """Show a `CallToolResult`, given as JSON."""
    structured = result.get("structuredContent")
    shown = structured is not None and not result.get("isError")
    if result.get("isError"):
        screen.err.print("The tool failed:", style="bold red")
    elif shown:
        _show_data(screen, _unwrapped(structured, result.get("content", ())))
    content: Sequence[JsonObject] = result.get("content", ())
    data = _only_value(structured)
    entries: Sequence[Any] = data if is_array(data) and len(data) * len(content) <= _MOST_COMPARED else ()
    for block in content:
        if not shown or not _repeats(block, (structured, data), entries):
            show_block(screen, block, tool, folder)


def _unwrapped(structured: Any, content: Sequence[JsonObject]) -> Any:
    """The data itself: before 2026 it had to be an object, so servers wrap other values.

    ekiden and FastMCP wrap them as `result`. Others do it with texts, under names of their own.
    """
    if not is_object(structured) or len(structured) != 1:
        return structured
    ((name, value),) = structured.items()
    is_told = any(block.get("text") == value for block in content)
    return value if name == "result" or is_told else structured


def _only_value(structured: Any) -> Any:
    """The value of the only field of an object; anything else is its own."""
    if is_object(structured) and len(structured) == 1:
        return next(iter(structured.values()))
    return structured


def _repeats(block: JsonObject, wholes: Sequence[Any], entries: Sequence[Any]) -> bool:
    """Whether a block only repeats the data, or one entry of a list, for clients that know no such data."""
    text = block.get("text")
    if not isinstance(text, str):
        return False
    values: list[Any] = [text]
    with contextlib.suppress(ParseError):
        values.append(decode(text.encode()))
    return any(value in wholes or value in entries for value in values)


def show_block(screen: Screen, block: JsonObject, tool: str, folder: Path) -> None:
    """Show one block of content. `tool` is for the names of files."""
    kind = block.get("type")
    if kind == "text":
        screen.text(block["text"])
    elif kind in ("image", "audio"):
        _save(screen, block["data"], block.get("mimeType", ""), tool, folder)
    elif kind == "resource_link":
        screen.text(f"{one_line(block.get('title') or block.get('name'))}: {one_line(block.get('uri'))}")
    elif kind == "resource" and "text" in block["resource"]:
        screen.text(block["resource"]["text"])
    elif kind == "resource":
        _save(screen, block["resource"]["blob"], block["resource"].get("mimeType", ""), tool, folder)
    else:
        screen.json(block)


# Data


def _show_data(screen: Screen, value: Any) -> None:
    rows = _rows(value)
    is_flat = is_object(value) and value and not any(is_object(v) or is_array(v) for v in value.values())
    pairs = [[key, item] for key, item in value.items()] if is_flat else []
    if rows and _fits_table(cells := [list(row.values()) for row in rows]):
        screen.out.print(rows_table(list(rows[0]), cells))
    elif pairs and _fits_table(pairs):
        screen.out.print(rows_table([], pairs))
    elif isinstance(value, str):
        screen.text(value)
    else:
        screen.json(value)


def _rows(value: Any) -> list[JsonObject]:
    """The rows of a list of objects, all with the same columns; empty if it is something else."""
    if not is_array(value) or not value or not all(is_object(row) for row in value):
        return []
    columns: dict[str, None] = {}
    for row in value:
        columns.update(dict.fromkeys(row))
        if len(columns) * len(value) > _MOST_CELLS:
            return []
    return [{column: row.get(column, "") for column in columns} for row in value] if columns else []


def _fits_table(rows: Sequence[Sequence[object]]) -> bool:
    """Whether people can read that as a table."""
    cells = [cell for row in rows for cell in row]
    return len(cells) <= _MOST_CELLS and all(len(_cell(cell)) <= _LONGEST_CELL for cell in cells)


def rows_table(
    columns: list[str], rows: Sequence[Sequence[object]], *, whole: Collection[str] = ()
) -> "Table":
    """A table for the screen; without a header if there are no column names.

    Cells of the columns `whole` stay on one line, so that they can be copied, however narrow the screen is.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE, show_header=bool(columns), pad_edge=False)
    for column in columns:
        table.add_column(Text(one_line(column)), overflow="fold", no_wrap=column in whole)
    for row in rows:
        table.add_row(*(Text(_cell(value)) for value in row))
    return table


def _cell(value: object) -> str:
    if value is None or isinstance(value, bool) or is_object(value) or is_array(value):
        return harmless(msgspec.json.encode(value).decode())
    return harmless(value)


# Files


def _save(screen: Screen, data: str, mime_type: str, tool: str, folder: Path) -> None:
    """Save a picture or a sound under a free name, and print the path."""
    try:
        content = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise EkidenError(f"the server's {one_line(mime_type) or 'file'} is not base64") from None
    kind = mime_type.partition(";")[0].strip().lower()
    ending = _ENDINGS.get(kind) or mimetypes.guess_extension(kind) or ".bin"
    stem = "".join(letter if letter.isalnum() or letter in "-_" else "-" for letter in tool[:_LONGEST_NAME])
    path = _write_new(folder, stem, ending, content)
    screen.text(f"saved {path} ({one_line(kind) or 'unknown type'}, {len(content)} bytes)")


def _write_new(folder: Path, stem: str, ending: str, content: bytes) -> Path:
    for number in range(1, _MOST_NAMES):
        path = folder / f"{stem}-{number}{ending}"
        try:
            with path.open("xb") as file:
                file.write(content)
        except FileExistsError:
            continue
        except OSError as error:
            raise EkidenError(f"cannot save to {folder}: {error.strerror}") from error
        return path
    raise EkidenError(f"{folder} is full of files named {stem}")
