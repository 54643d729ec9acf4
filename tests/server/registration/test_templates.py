import ntpath
import os.path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ekiden.server.registration.templates import UriTemplate
from tests.processor import measured


def match(template: str, uri: str) -> dict[str, str] | None:
    return UriTemplate(template).match(uri)


@pytest.mark.parametrize(
    ("template", "uri", "values"),
    [
        ("a://{x}", "a://1", {"x": "1"}),
        ("a://{x}/b", "a://1/b", {"x": "1"}),
        ("a://{x}/{y}", "a://1/2", {"x": "1", "y": "2"}),
        ("a://{x}.{y}", "a://1.2", {"x": "1", "y": "2"}),
        ("a://{x}", "a://a%20b", {"x": "a b"}),
        ("a://{x}", "a://%E4%B8%96", {"x": "世"}),
        ("a://{x}", "a://...", {"x": "..."}),
        ("a://{x}", "a://..a", {"x": "..a"}),
        ("a://{+x}", "a://1/2/3", {"x": "1/2/3"}),
        ("a://b{/x}", "a://b/1", {"x": "1"}),
        ("a://b{/x}{/y}", "a://b/1/2", {"x": "1", "y": "2"}),
        ("a://b{?x}", "a://b", {}),
        ("a://b{?x}", "a://b?", {}),
        ("a://b{?x}", "a://b?x=1", {"x": "1"}),
        ("a://b{?x,y}", "a://b?y=2&x=1", {"x": "1", "y": "2"}),
        ("a://b{?x,y}", "a://b?y=a%26b", {"y": "a&b"}),
        ("a://b{?x}", "a://b?x=1&z=3", {"x": "1"}),
        ("a://{x}{?y}", "a://1?y=2", {"x": "1", "y": "2"}),
        ("a://(b)+{x}", "a://(b)+1", {"x": "1"}),
        ("a://{_x1}", "a://1", {"_x1": "1"}),
    ],
)
def test_a_uri_of_the_template_gives_its_variables(template: str, uri: str, values: dict[str, str]) -> None:
    assert match(template, uri) == values


@pytest.mark.parametrize(
    ("template", "uri"),
    [
        ("a://{x}", "a://"),
        ("a://{x}", "a://1/2"),
        ("a://{x}", "b://1"),
        ("a://{x}", "A://1"),
        ("a://{x}", "xa://1"),
        ("a://{x}", "a://1?y=2"),
        ("a://{x}", "a://1#f"),
        ("a://{x}/b", "a://1/c"),
        ("a://b{/x}", "a://b"),
        ("a://b{/x}", "a://b/1/2"),
        ("a://b{?x}", "a://c?x=1"),
        ("a://b{?x}", "a://b?x=1#f"),
        ("a://(b)+{x}", "a://bb1"),
        ("a://b.c/{x}", "a://bxc/1"),
    ],
)
def test_another_uri_does_not_match(template: str, uri: str) -> None:
    assert match(template, uri) is None


TRAVERSALS = [
    "..",
    "../etc/passwd",
    "a/../../b",
    "..%2Fetc%2Fpasswd",
    "%2e%2e%2fetc%2fpasswd",
    "%2E%2E/etc",
    "..%5Cetc",
    "..\\etc",
    "a%5C..%5C..%5Cb",
    "a/..",
    "/etc/passwd",
    "%2Fetc%2Fpasswd",
    "C:%5CWindows",
    "c:%2FWindows",
    "//etc/passwd",
    "a%00.txt",
    "%00",
    "a\x00b",
]


@pytest.mark.parametrize("operator", ["", "+", "/"])
@pytest.mark.parametrize("value", TRAVERSALS)
def test_no_value_leaves_the_directory_that_a_handler_joins_it_to(operator: str, value: str) -> None:
    template = "files://docs/{" + operator + "x}" if operator != "/" else "files://docs{/x}"
    found = match(template, f"files://docs/{value}")
    assert found is None or is_inside(found["x"]), found


@pytest.mark.parametrize("value", TRAVERSALS)
def test_no_value_of_a_query_has_a_parent_segment_or_a_nul(value: str) -> None:
    found = match("files://docs{?x}", f"files://docs?x={value}") or {"x": ""}
    assert "\x00" not in found["x"]
    assert ".." not in found["x"].replace("\\", "/").split("/")


def is_inside(value: str) -> bool:
    joined = os.path.normpath(os.path.join("/base", value.replace("\\", "/")))
    is_below = joined == "/base" or joined.startswith("/base/")
    return "\x00" not in value and is_below and not ntpath.isabs(value)


@given(st.text(max_size=30), st.sampled_from(["", "+"]), st.booleans())
@example("\\", "", True)
def test_whatever_is_sent_stays_inside(value: str, operator: str, encoded: bool) -> None:
    uri = "files://docs/" + (quote(value, safe="") if encoded else value)
    found = match("files://docs/{" + operator + "x}", uri)
    assert found is None or is_inside(found["x"])


@given(st.text(min_size=1, max_size=20).filter(lambda value: "/" not in value and "\x00" not in value))
def test_a_harmless_value_survives_encoding(value: str) -> None:
    if ".." not in value.replace("\\", "/").split("/") and not value.startswith("\\"):
        assert match("a://{x}", "a://" + quote(value, safe="")) == {"x": value}


def test_a_value_is_decoded_only_once() -> None:
    assert match("a://{x}", "a://%252e%252e%252f") == {"x": "%2e%2e%2f"}


@pytest.mark.parametrize(
    "template",
    [
        "a://{x",
        "a://x}",
        "a://{{x}}",
        "a://{}",
        "a://{x y}",
        "a://{1x}",
        "a://{x-y}",
        "a://{x*}",
        "a://{x:3}",
        "a://{#x}",
        "a://{.x}",
        "a://{;x}",
        "a://{&x}",
        "a://{x,y}",
        "a://{+x,y}",
        "a://{x}/{x}",
        "a://{x}{?x}",
        "a://{?x,x}",
        "a://{?x}/b",
        "a://{?x}{?y}",
    ],
)
def test_a_template_that_cannot_be_read_backwards_is_refused(template: str) -> None:
    with pytest.raises(ValueError, match="URI template"):
        UriTemplate(template)


def test_the_variables_are_known_in_order() -> None:
    template = UriTemplate("a://{x}/{+y}{?p,q}")
    assert template.variables == ("x", "y", "p", "q")
    assert template.query == ("p", "q")


@pytest.mark.parametrize(
    ("template", "uri"),
    [
        ("files://{name}.{extension}", "files://" + "." * 12_000 + "/"),
        ("files://{owner}-{name}-{version}", "files://" + "-" * 600 + "/"),
        ("files://{+path}.{extension}", "files://" + "./" * 6_000),
    ],
)
def test_a_hostile_uri_takes_no_more_than_a_moment(template: str, uri: str) -> None:
    # Four megabytes may be sent. What takes a second for a few kilobytes takes days for those.
    compiled: Any = UriTemplate(template)
    with measured() as took:
        compiled.match(uri)
    assert took.moments < 10
