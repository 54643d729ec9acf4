import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ekiden.wire import sse
from ekiden.wire.json import decode, encode
from ekiden.wire.sse import Decoder, Event
from tests.wire.test_json import values


def test_an_event_is_a_named_message_with_one_line_of_data() -> None:
    assert sse.event(b'{"a":1}') == b'event: message\ndata: {"a":1}\n\n'


def test_a_keep_alive_is_a_comment_and_ends_its_frame() -> None:
    assert sse.KEEP_ALIVE.startswith(b":")
    assert sse.KEEP_ALIVE.endswith(b"\n\n")
    assert sse.KEEP_ALIVE.count(b"\n") == 2


@given(values)
def test_a_reader_that_splits_at_blank_lines_gets_back_what_was_sent(value: Any) -> None:
    stream = sse.event(encode(value)) + sse.KEEP_ALIVE + sse.event(encode([value]))
    first, comment, second, end = stream.split(b"\n\n")
    assert comment.startswith(b":")
    assert end == b""
    assert decode(first.split(b"\n")[1].removeprefix(b"data: ")) == value
    assert decode(second.split(b"\n")[1].removeprefix(b"data: ")) == [value]


PIECES = [
    b"data: a",
    b"data",
    b":",
    b": c",
    b"\n",
    b"\r",
    b"\r\n",
    b"\n\n",
    b"id: 3",
    b"retry: 5",
    b"event: x",
    b"z",
]


def read_plainly(text: bytes) -> list[Event]:
    """The events of a whole stream, in the simplest way there is."""
    found: list[Event] = []
    data: list[bytes] = []
    last_id, retry, name = None, None, "message"
    for line in re.split(rb"\r\n|\r|\n", text)[:-1]:
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if not line:
            if data or retry is not None:
                found.append(Event(b"\n".join(data), last_id, retry, name))
            data, retry, name = [], None, "message"
        elif field == b"data":
            data.append(value)
        elif field == b"event":
            name = value.decode()
        elif field == b"id":
            last_id = value.decode()
        elif field == b"retry" and value.isdigit():
            retry = int(value)
    return found


@given(st.lists(st.sampled_from(PIECES), max_size=40).map(b"".join), st.integers(1, 7))
def test_comments_and_empty_lines_change_nothing_however_the_stream_is_cut(text: bytes, size: int) -> None:
    decoder = Decoder(10_000)
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    assert [event for piece in pieces for event in decoder.feed(piece)] == read_plainly(text)
