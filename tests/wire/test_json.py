import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ekiden.errors import ParseError
from ekiden.wire.json import MAX_DEPTH, Raw, decode, encode

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=5),
    max_leaves=30,
)


@given(values)
def test_every_json_value_survives_a_round_trip(value: Any) -> None:
    assert decode(encode(value)) == value


@given(values)
def test_every_value_is_spelled_on_one_line(value: Any) -> None:
    spelled = encode(value)
    assert b"\n" not in spelled
    assert b"\r" not in spelled


@given(st.binary(max_size=64))
def test_arbitrary_bytes_are_a_value_or_a_parse_error_and_nothing_else(data: bytes) -> None:
    try:
        value = decode(data)
    except ParseError:
        return
    assert decode(encode(value)) == value


@given(values, st.data())
def test_a_message_cut_short_is_never_taken_for_another_of_its_kind(value: Any, data: st.DataObject) -> None:
    spelled = encode([value])
    cut = data.draw(st.integers(0, len(spelled) - 1))
    with pytest.raises(ParseError):
        decode(spelled[:cut])


@pytest.mark.parametrize("constant", [b"NaN", b"Infinity", b"-Infinity", b"nan", b"[NaN]", b'{"a":Infinity}'])
def test_numbers_that_json_does_not_have_are_refused(constant: bytes) -> None:
    with pytest.raises(ParseError):
        decode(constant)


@pytest.mark.parametrize("number", [b"1e400", b"-1e400", b"9" * 400 + b".5", b"9" * 5000], ids=range(4))
def test_numbers_that_no_double_and_no_integer_type_holds_are_refused(number: bytes) -> None:
    with pytest.raises(ParseError):
        decode(number)


@pytest.mark.parametrize("number", [2**64, -(2**63) - 1, 10**400], ids=["2**64", "-2**63-1", "10**400"])
def test_integers_beyond_a_machine_integer_are_refused(number: int) -> None:
    with pytest.raises(ParseError):
        decode(str(number).encode())


@pytest.mark.parametrize("number", [2**64, -(2**63) - 1], ids=["2**64", "-2**63-1"])
@pytest.mark.parametrize("before", range(40))
@pytest.mark.parametrize("after", [0, 7, 300])
def test_a_long_integer_is_found_wherever_it_stands(number: int, before: int, after: int) -> None:
    with pytest.raises(ParseError):
        decode(b'{"%b":[%d],"b":"%b"}' % (b"a" * before, number, b"c" * after))


@pytest.mark.parametrize("number", [2**63 - 1, -(2**63), 0])
def test_machine_integers_keep_every_digit(number: int) -> None:
    decoded = decode(str(number).encode())
    assert decoded == number
    assert type(decoded) is int


def test_a_number_too_small_for_a_double_is_zero() -> None:
    assert math.isclose(decode(b"1e-400"), 0.0)


@pytest.mark.parametrize("number", [b"01", b"1.", b".5", b"+1", b"0x10", b"1_000", b"--1"])
def test_numbers_in_other_spellings_are_refused(number: bytes) -> None:
    with pytest.raises(ParseError):
        decode(number)


@pytest.mark.parametrize(
    "text",
    [
        rb'"\ud800"',
        rb'"\udc00"',
        rb'"\udc00\ud800"',
        rb'"\ud800\ud800"',
        rb'"\ud800x"',
        rb'{"\udfff":1}',
        b'"\xed\xa0\x80"',
    ],
)
def test_lone_surrogates_are_refused(text: bytes) -> None:
    with pytest.raises(ParseError):
        decode(text)


def test_a_surrogate_pair_is_one_character() -> None:
    assert decode(rb'"\ud83c\udfc3"') == "🏃"


@pytest.mark.parametrize("text", [b'"\xff"', b'"\xc3"', b'"\xc0\x80"', b'{"\xfe":1}', b"\xff\xfe{\x00}\x00"])
def test_invalid_utf_8_is_refused(text: bytes) -> None:
    with pytest.raises(ParseError):
        decode(text)


@pytest.mark.parametrize("data", [b"{}x", b"{}{}", b"[1]]", b"null,", b"1 2", b'{"a":1}\x00'])
def test_bytes_after_the_value_are_refused(data: bytes) -> None:
    with pytest.raises(ParseError):
        decode(data)


@pytest.mark.parametrize(
    "data", [b"", b" ", b"{", b'"', b'{"a"', b"[1,]", b'{"a":1,}', b"\xef\xbb\xbf{}", b'"\n"']
)
def test_what_is_no_json_is_refused(data: bytes) -> None:
    with pytest.raises(ParseError):
        decode(data)


def test_whitespace_around_the_value_is_fine() -> None:
    assert decode(b' \t\r\n{"a" : 1}\n') == {"a": 1}


@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"":', b"}"), (b'[{"a":', b"}]")])
def test_128_levels_are_fine_and_one_more_is_refused(opening: bytes, closing: bytes) -> None:
    repeats = MAX_DEPTH // len(closing)
    fine = opening * repeats + b"0" + closing * repeats
    decode(fine)
    for one_more in (b"[%b]", b'{"":%b}'):
        with pytest.raises(ParseError, match="nested deeper than 128 levels"):
            decode(one_more % fine)


def test_the_shortest_message_that_is_too_deep_is_refused() -> None:
    with pytest.raises(ParseError, match="nested deeper than 128 levels"):
        decode(b'{"":' * MAX_DEPTH + b"{}" + b"}" * MAX_DEPTH)
    with pytest.raises(ParseError, match="nested deeper than 128 levels"):
        decode(b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1))


def test_the_allowed_depth_is_128() -> None:
    assert MAX_DEPTH == 128


@pytest.mark.parametrize("levels", [129, 1000, 5_000, 200_000])
def test_any_deeper_nesting_is_refused_in_the_same_words(levels: int) -> None:
    with pytest.raises(ParseError, match="nested deeper than 128 levels"):
        decode(b"[" * levels + b"]" * levels)


def test_a_wide_value_with_many_brackets_is_not_deep() -> None:
    assert decode(b"[" + b"[[]]," * 10_000 + b"{}]") == [[[]]] * 10_000 + [{}]


def test_brackets_inside_strings_do_not_count() -> None:
    assert decode(b'["' + b"[{" * 500 + b'"]') == ["[{" * 500]


def test_a_parse_error_has_the_code_of_json_rpc_and_names_the_reason() -> None:
    with pytest.raises(ParseError, match="Parse error: ") as caught:
        decode(b"{]")
    assert caught.value.code == -32700


def test_raw_bytes_are_copied_into_a_message_as_they_are() -> None:
    assert encode({"a": Raw(b'{"b": 1}')}) == b'{"a":{"b": 1}}'
