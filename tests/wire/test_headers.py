import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ekiden.errors import HeaderMismatch
from ekiden.wire.headers import (
    MirroredParam,
    check_method,
    check_mirrored_params,
    check_name,
    check_version,
    find_mirrored_params,
    reject_duplicates,
)
from tests.processor import MOMENTS_PER_SECOND, measured


def sentinel(text: str) -> bytes:
    return b"=?base64?" + base64.b64encode(text.encode()) + b"?="


# The standard headers


def test_headers_that_equal_the_body_pass() -> None:
    headers = {b"mcp-protocol-version": b"2026-07-28", b"mcp-method": b"tools/call", b"mcp-name": b"add"}
    check_version(headers, "2026-07-28")
    check_method(headers, "tools/call")
    check_name(headers, "add")


def test_a_missing_header_is_named() -> None:
    with pytest.raises(HeaderMismatch, match="MCP-Protocol-Version header is required"):
        check_version({}, None)
    with pytest.raises(HeaderMismatch, match="Mcp-Method header is required"):
        check_method({}, "tools/call")
    with pytest.raises(HeaderMismatch, match="Mcp-Name header is required"):
        check_name({}, "add")


def test_a_missing_version_header_says_what_this_server_speaks() -> None:
    with pytest.raises(HeaderMismatch, match="2026-07-28"):
        check_version({}, None)


def test_a_header_that_differs_is_shown_with_both_values() -> None:
    with pytest.raises(
        HeaderMismatch, match="Mcp-Name header value 'foo' does not match body value 'bar'"
    ) as caught:
        check_name({b"mcp-name": b"foo"}, "bar")
    assert caught.value.code == -32020


def test_values_are_case_sensitive() -> None:
    with pytest.raises(HeaderMismatch):
        check_method({b"mcp-method": b"TOOLS/CALL"}, "tools/call")
    with pytest.raises(HeaderMismatch):
        check_name({b"mcp-name": b"Add"}, "add")


def test_a_very_long_value_is_cut_in_the_message() -> None:
    with pytest.raises(HeaderMismatch) as caught:
        check_name({b"mcp-name": b"x" * 100_000}, "y" * 100_000)
    assert len(caught.value.message) < 1000


@pytest.mark.parametrize("padding", [b" ", b"\t", b" \t "])
def test_whitespace_around_a_value_does_not_count(padding: bytes) -> None:
    check_version({b"mcp-protocol-version": padding + b"2026-07-28" + padding}, "2026-07-28")
    check_method({b"mcp-method": padding + b"tools/call" + padding}, "tools/call")
    check_name({b"mcp-name": padding + b"add" + padding}, "add")


@pytest.mark.parametrize(
    "name", ["add", "Hello, 世界", " padded ", "line1\nline2", "=?base64?literal?=", "", "\x00"]
)
def test_a_name_in_the_base64_sentinel_is_decoded_before_it_is_compared(name: str) -> None:
    check_name({b"mcp-name": sentinel(name)}, name)


@given(st.text())
def test_every_name_can_be_carried_in_the_sentinel(name: str) -> None:
    check_name({b"mcp-name": sentinel(name)}, name)


def test_a_literal_name_that_looks_like_the_sentinel_is_not_equal_to_itself() -> None:
    # Whoever routes by the header decodes it to "foo"; the spec wants such a name encoded.
    with pytest.raises(HeaderMismatch):
        check_name({b"mcp-name": b"=?base64?Zm9v?="}, "=?base64?Zm9v?=")


@pytest.mark.parametrize("name", ["größe", "世界", "a\x7fb", "a\x01b"])
def test_a_name_with_characters_that_no_header_may_have_is_refused_unless_encoded(name: str) -> None:
    with pytest.raises(HeaderMismatch):
        check_name({b"mcp-name": name.encode()}, name)


@pytest.mark.parametrize(
    "value", [b"=?base64?SGVsbG8?=", b"=?base64?SGVs!!!bG8=?=", b"=?base64?//8=?=", b"=?base64?=?="]
)
def test_a_sentinel_around_what_is_no_base64_of_text_is_refused(value: bytes) -> None:
    with pytest.raises(HeaderMismatch, match="not valid base64"):
        check_name({b"mcp-name": value}, "Hello")


@pytest.mark.parametrize("value", ["SGVsbG8=", "=?base64?SGVsbG8=", "SGVsbG8=?=", "=?BASE64?SGVsbG8=?="])
def test_half_a_sentinel_is_a_literal(value: str) -> None:
    check_name({b"mcp-name": value.encode()}, value)
    with pytest.raises(HeaderMismatch):
        check_name({b"mcp-name": value.encode()}, "Hello")


def test_the_sentinel_means_nothing_in_the_method() -> None:
    with pytest.raises(HeaderMismatch):
        check_method({b"mcp-method": sentinel("tools/call")}, "tools/call")


# Duplicates


@pytest.mark.parametrize("name", [b"mcp-protocol-version", b"mcp-method", b"mcp-name", b"mcp-param-region"])
def test_a_mirrored_header_sent_twice_is_refused_even_with_equal_values(name: bytes) -> None:
    with pytest.raises(HeaderMismatch, match="more than once"):
        reject_duplicates([(name, b"a"), (b"accept", b"*/*"), (name, b"a")])


def test_other_headers_may_come_twice() -> None:
    reject_duplicates(
        [(b"accept", b"a"), (b"accept", b"b"), (b"mcp-session-id", b"1"), (b"mcp-session-id", b"2")]
    )


# Mirrored parameters

REGION = MirroredParam("Region", ("region",))


def agrees(value: Any, header: bytes) -> bool:
    try:
        check_mirrored_params({b"mcp-param-region": header}, [REGION], {"region": value})
    except HeaderMismatch:
        return False
    return True


@pytest.mark.parametrize(
    ("value", "header"),
    [
        ("us-west1", b"us-west1"),
        ("us-west1", b" us-west1\t"),
        ("", b""),
        ("42", b"42"),
        ("true", b"true"),
        ("Hello, 世界", b"=?base64?SGVsbG8sIOS4lueVjA==?="),
        (" padded ", b"=?base64?IHBhZGRlZCA=?="),
        ("=?base64?literal?=", b"=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
        (True, b"true"),
        (False, b"false"),
        (42, b"42"),
        (-7, b"-7"),
        (0, b"-0"),
        (42, b"42.0"),
        (42.0, b"42"),
        (42.0, b"42.000"),
        (1e2, b"100"),
        (2**53 - 1, b"9007199254740991"),
        (-(2**53) + 1, b"-9007199254740991"),
    ],
)
def test_a_header_that_means_the_same_as_the_argument_agrees(value: Any, header: bytes) -> None:
    assert agrees(value, header)


@pytest.mark.parametrize(
    ("value", "header"),
    [
        ("us-west1", b"us-west2"),
        ("us-west1", b"US-WEST1"),
        ("42", b"42.0"),
        ("ü", "ü".encode()),
        ("ü", "ü".encode("latin-1")),
        ("a", b"=?base64?!?="),
        ("=?base64?Zm9v?=", b"=?base64?Zm9v?="),
        (True, b"True"),
        (True, b"1"),
        (False, b"0"),
        (1, b"true"),
        (42, b"43"),
        (42, b"42.5"),
        (42, b"0x2a"),
        (42, b"4_2"),
        (42, b"forty-two"),
        (42, b""),
        (42, "٤٢".encode()),
        (2**53, b"9007199254740993"),
        (1.5, b"1.5"),
        ([1], b"[1]"),
        ({"a": 1}, b"{'a': 1}"),
    ],
)
def test_a_header_that_means_something_else_is_a_mismatch(value: Any, header: bytes) -> None:
    assert not agrees(value, header)


def test_a_parameter_with_a_value_needs_its_header() -> None:
    with pytest.raises(HeaderMismatch, match="Mcp-Param-Region header is required"):
        check_mirrored_params({}, [REGION], {"region": "x"})


@pytest.mark.parametrize("arguments", [{}, {"region": None}])
def test_a_parameter_without_a_value_needs_no_header_and_may_have_none(arguments: dict[str, Any]) -> None:
    check_mirrored_params({}, [REGION], arguments)
    with pytest.raises(HeaderMismatch, match="no value"):
        check_mirrored_params({b"mcp-param-region": b"x"}, [REGION], arguments)


def test_a_header_of_no_known_parameter_is_ignored() -> None:
    check_mirrored_params({b"mcp-param-other": b"\xff"}, [REGION], {})


def test_a_nested_parameter_is_read_at_its_exact_path() -> None:
    zone = MirroredParam("Zone", ("place", "zone"))
    check_mirrored_params({b"mcp-param-zone": b"a"}, [zone], {"place": {"zone": "a"}})
    check_mirrored_params({}, [zone], {"zone": "a", "place": "not an object"})
    with pytest.raises(HeaderMismatch):
        check_mirrored_params({b"mcp-param-zone": b"a"}, [zone], {"zone": "a", "place": {}})


# The annotation in a schema


def schema(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def mirrored(type_: Any = "string", header: Any = "Region") -> dict[str, Any]:
    return {"type": type_, "x-mcp-header": header}


def test_a_schema_without_annotations_mirrors_nothing() -> None:
    assert find_mirrored_params({"type": "object"}) == ()
    assert find_mirrored_params(schema(a={"type": "string"}, b=True)) == ()


def test_many_mirrored_parameters_cost_no_more_each_than_a_few() -> None:
    many = schema(**{f"p{number}": mirrored(header=f"H{number}") for number in range(40_000)})
    with measured() as took:
        assert len(find_mirrored_params(many)) == 40_000
    # It was 25 s when every name was compared with every other.
    assert took.moments < 3 * MOMENTS_PER_SECOND


@pytest.mark.parametrize("type_", ["string", "integer", "boolean", ["string"], ["integer", "null"]])
def test_a_primitive_property_can_be_mirrored(type_: Any) -> None:
    (param,) = find_mirrored_params(schema(region=mirrored(type_)))
    assert (param.name, param.path, param.key) == ("Region", ("region",), b"mcp-param-region")


def test_a_nested_property_can_be_mirrored() -> None:
    (param,) = find_mirrored_params(schema(place=schema(area=schema(zone=mirrored()))))
    assert param.path == ("place", "area", "zone")


@pytest.mark.parametrize(
    "type_",
    ["number", "object", "array", "null", None, ["string", "integer"], ["number", "null"], ["null"], [], {}],
)
def test_other_types_cannot_be_mirrored(type_: Any) -> None:
    with pytest.raises(ValueError, match="needs type string, integer or boolean"):
        find_mirrored_params(schema(region=mirrored(type_)))


def test_a_property_without_a_type_cannot_be_mirrored() -> None:
    with pytest.raises(ValueError, match="needs type"):
        find_mirrored_params(schema(region={"x-mcp-header": "Region"}))


@pytest.mark.parametrize(
    "name", ["", "My Region", "Region:Primary", "Région", "Region\t1", "a\r\nb", "a\n", 1, None, ["a"]]
)
def test_a_header_name_that_is_no_token_is_refused(name: Any) -> None:
    with pytest.raises(ValueError, match="must be a non-empty HTTP token"):
        find_mirrored_params(schema(region=mirrored(header=name)))


@pytest.mark.parametrize("second", ["Region", "REGION", "region"])
def test_two_parameters_cannot_share_a_header(second: str) -> None:
    with pytest.raises(ValueError, match="more than once"):
        find_mirrored_params(schema(a=mirrored(), b=schema(c=mirrored(header=second))))


@pytest.mark.parametrize(
    "misplaced",
    [
        {"type": "object", "x-mcp-header": "Region"},
        schema(a={"type": "array", "items": mirrored()}),
        schema(a={"type": "array", "prefixItems": [mirrored()]}),
        schema(a={"type": "object", "additionalProperties": mirrored()}),
        schema(a={"type": "object", "patternProperties": {"^a": mirrored()}}),
        {**schema(), "anyOf": [schema(a=mirrored())]},
        {**schema(), "allOf": [schema(a=mirrored())]},
        {**schema(), "oneOf": [schema(a=mirrored())]},
        {**schema(), "not": schema(a=mirrored())},
        {**schema(), "if": schema(a=mirrored())},
        {**schema(), "then": schema(a=mirrored())},
        {**schema(), "else": schema(a=mirrored())},
        {**schema(a={"$ref": "#/$defs/region"}), "$defs": {"region": mirrored()}},
        {**schema(), "$defs": {"unused": mirrored()}},
        {**schema(), "definitions": {"unused": schema(a=mirrored())}},
        {**schema(), "dependentSchemas": {"b": schema(a=mirrored())}},
        schema(a={"anyOf": [mirrored(), {"type": "null"}]}),
    ],
)
def test_an_annotation_that_is_not_reached_by_properties_alone_is_refused(misplaced: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="x-mcp-header"):
        find_mirrored_params(misplaced)


@pytest.mark.parametrize(
    "harmless",
    [
        schema(**{"x-mcp-header": {"type": "number"}}),
        schema(a=schema(**{"x-mcp-header": {"type": "object"}})),
        {**schema(**{"x-mcp-header": {"type": "string"}}), "required": ["x-mcp-header"]},
        {**schema(), "$defs": {"x-mcp-header": {"type": "string"}}},
        {**schema(), "dependentSchemas": {"x-mcp-header": {"type": "object"}}},
        {**schema(), "dependentRequired": {"x-mcp-header": ["a"]}},
        {**schema(), "dependencies": {"x-mcp-header": ["a"]}},
        {**schema(), "patternProperties": {"x-mcp-header": {"type": "string"}}},
        schema(a={"type": "object", "default": {"x-mcp-header": "Region"}}),
        schema(a={"const": {"x-mcp-header": 1}}, b={"enum": [{"x-mcp-header": 1}]}),
        {**schema(), "examples": [{"x-mcp-header": "Region"}]},
    ],
)
def test_the_word_as_a_property_name_or_in_data_is_no_annotation(harmless: dict[str, Any]) -> None:
    assert find_mirrored_params(harmless) == ()


def test_a_property_with_the_name_of_the_annotation_can_itself_be_mirrored() -> None:
    (param,) = find_mirrored_params(schema(**{"x-mcp-header": mirrored()}))
    assert param.path == ("x-mcp-header",)


@pytest.mark.parametrize("name", ["properties", "default", "enum", "$defs", "items", "anyOf"])
def test_a_property_named_like_a_keyword_can_be_mirrored(name: str) -> None:
    (param,) = find_mirrored_params(schema(**{name: mirrored()}))
    assert param.path == (name,)
