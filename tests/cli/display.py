"""A display that does what a terminal does with the few control sequences that prompts and bars use."""

import codecs
import re

_CONTROL = re.compile(r"\x1b(?:\[([0-9;?]*)([@-~])|\][^\x07]*\x07|[()][0-9A-B]|[=>78M])")


class Display:
    """An endless sheet: nothing scrolls away."""

    def __init__(self) -> None:
        self._rows: list[list[str]] = [[]]
        self._row = self._column = 0
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._pending = ""

    @property
    def text(self) -> str:
        """What is to be seen."""
        return "\n".join("".join(row).rstrip() for row in self._rows)

    def feed(self, data: bytes) -> None:
        text = self._pending + self._decode(data)
        self._pending = ""
        at = 0
        while at < len(text):
            if text[at] != "\x1b":
                self._show(text[at])
                at += 1
            elif (control := _CONTROL.match(text, at)) is not None:
                self._obey(control[1] or "", control[2] or "")
                at = control.end()
            elif len(text) - at < 20:  # The rest of it is still to come.
                self._pending = text[at:]
                return
            else:
                raise AssertionError(f"an unknown control sequence: {text[at : at + 20]!r}")

    def _show(self, letter: str) -> None:
        if letter == "\r":
            self._column = 0
        elif letter == "\n":
            self._move(rows=1)
        elif letter == "\b":
            self._move(columns=-1)
        elif letter >= " ":
            row = self._rows[self._row]
            row.extend(" " * (self._column + 1 - len(row)))
            row[self._column] = letter
            self._column += 1

    def _move(self, rows: int = 0, columns: int = 0) -> None:
        self._row, self._column = max(0, self._row + rows), max(0, self._column + columns)
        self._rows.extend([] for _ in range(self._row + 1 - len(self._rows)))

    def _obey(self, arguments: str, command: str) -> None:
        number = int(arguments) if arguments.isdigit() else 1
        moves = {"A": (-number, 0), "B": (number, 0), "C": (0, number), "D": (0, -number)}
        if command in moves:
            self._move(*moves[command])
        elif command == "G":
            self._column = number - 1
        elif command == "K":
            del self._rows[self._row][0 if arguments == "2" else self._column :]
        elif command == "J":
            del self._rows[self._row][self._column :]
            del self._rows[self._row + 1 :]
        else:
            assert command in ("", "m", "h", "l"), f"an unknown control sequence: {command!r}"
