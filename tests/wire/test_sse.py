from typing import Any

from hypothesis import given

from ekiden.wire import sse
from ekiden.wire.json import decode, encode
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
