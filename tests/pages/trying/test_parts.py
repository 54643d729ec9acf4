"""Parts of the page Try that need no server: templates of URIs, results, who calls."""

import base64

from ekiden.pages.trying.catalog import expanded
from ekiden.pages.trying.kinds import ClientKind, read_kind
from ekiden.pages.trying.results import blocks_of, find_media, pretty


def test_a_template_of_a_uri_is_expanded_as_the_rfc_says() -> None:
    values = {"a": "x y", "b": "p/q", "c": "1"}
    told = {
        "s://{a}": "s://x%20y",
        "s://{b}": "s://p%2Fq",
        "s://{+b}": "s://p/q",
        "s://h{/b}": "s://h/p%2Fq",
        "s://h{?a,c}": "s://h?a=x%20y&c=1",
        "s://h?z=0{&c}": "s://h?z=0&c=1",
        "s://h{#b}": "s://h#p/q",
        "s://h{;c}": "s://h;c=1",
        "s://{a,c}": "s://x%20y,1",
        "s://{missing}h{?missing}": "s://h",
    }
    assert {template: expanded(template, values) for template in told} == told


def test_only_pictures_and_sounds_that_browsers_know_are_shown() -> None:
    data = base64.b64encode(b"<script>").decode()
    result = {
        "content": [
            {"type": "image", "data": data, "mimeType": "text/html"},
            {"type": "resource", "resource": {"uri": "s://a", "mimeType": "image/png", "blob": data}},
            {"type": "resource", "resource": {"uri": "s://b", "mimeType": "text/html", "blob": data}},
            {"type": "resource", "resource": {"uri": "s://c", "text": "letters"}},
            {"type": "resource_link", "uri": "s://d", "name": "d"},
            {"type": "unheard-of", "x": 1},
            {"type": "audio", "data": "not base64!", "mimeType": "audio/wav"},
        ]
    }
    kinds = ["file", "image", "file", "text", "link", "data", "audio"]
    assert [block.kind for block in blocks_of(result)] == kinds
    downloaded = find_media(result, 0)
    assert downloaded is not None
    assert (downloaded.mime, downloaded.shown) == ("application/octet-stream", False)
    assert [find_media(result, number) is None for number in range(8)] == [
        *(False, False, False, True, True, True, True, True)
    ]


def test_a_long_text_is_cut() -> None:
    (block,) = blocks_of({"content": [{"type": "text", "text": "x" * 300_000}]})
    assert block.text.endswith("... and 100000 letters more")
    assert pretty({"a": True}) == '{\n  "a": true\n}'


def test_who_calls_is_said_in_words() -> None:
    assert ClientKind().words == "a client of 2026-07-28 that can do everything"
    assert read_kind("legacy", ["forms", "made-up"]).words == "a client of 2025-11-25 with forms"
    assert read_kind("anything", []).words == "a client of 2026-07-28 with no capabilities"
