"""Addresses of pages, read as browsers read them (WHATWG URL)."""

import pytest

from ekiden.cli.terminal.pages import Page, read_page


@pytest.mark.parametrize(
    ("text", "host", "address"),
    [
        ("https://bank.example/login", "bank.example", "https://bank.example/login"),
        (
            r"https://evil.example\@bank.example/login",
            "evil.example",
            "https://evil.example/@bank.example/login",
        ),
        ("https:evil.example", "evil.example", "https://evil.example/"),
        (r"https:/\evil.example", "evil.example", "https://evil.example/"),
        (" ht\ntps://evil.exa\tmple", "evil.example", "https://evil.example/"),
        ("https://evil.example?@bank.example", "evil.example", "https://evil.example/?@bank.example"),
        ("https://evil.example#@bank.example", "evil.example", "https://evil.example/#@bank.example"),
        (
            "https://bank.example%2eevil.example/",
            "bank.example.evil.example",
            "https://bank.example.evil.example/",
        ),
        ("https://ⓔvil。example/", "evil.example", "https://evil.example/"),
        ("http://2130706433:80/", "127.0.0.1", "http://127.0.0.1/"),
        ("http://0x7f.1:8080/", "127.0.0.1:8080", "http://127.0.0.1:8080/"),
        ("HTTPS://[::1]:443/\u202e", "[::1]", "https://[::1]/%E2%80%AE"),
    ],
)
def test_the_host_is_the_one_that_a_browser_opens(text: str, host: str, address: str) -> None:
    assert read_page(text) == Page(address, host, [])


@pytest.mark.parametrize(
    "text",
    [
        "https://bank.example@evil.example/",
        "https://bank.example:80@evil.example/",
        "https://:bank.example@evil.example/",
        r"https://bank.example%2f@evil.example/",
    ],
)
def test_a_name_before_the_host_is_warned_about(text: str) -> None:
    page = read_page(text)
    assert isinstance(page, Page)
    assert page.host == "evil.example"
    assert page.warnings == ["What stands before the @ is not where it leads: it leads to evil.example."]


def test_letters_that_look_like_others_are_spelled_out() -> None:
    page = read_page("https://b\u0430nk.example/")
    assert isinstance(page, Page)
    assert page.host == "xn--bnk-6cd.example"
    assert page.address.isascii()
    assert page.warnings == [
        "Its host is written b\u0430nk.example, perhaps with letters that look like others."
    ]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("file:///etc/passwd", "it is not a web page but file:"),
        ("javascript:alert(1)", "it is not a web page but javascript:"),
        ("java\nscript:alert(1)", "it is not a web page but javascript:"),
        ("data:text/html,x", "it is not a web page but data:"),
        ("vscode://install/x", "it is not a web page but vscode:"),
        ("", "its address cannot be read: Input should be a valid URL, input is empty"),
        (
            "//bank.example",
            "its address cannot be read: Input should be a valid URL, relative URL without a base",
        ),
        (
            "https://a b/",
            "its address cannot be read: Input should be a valid URL, invalid international domain name",
        ),
        ("https://bank.example/" + "x" * 2000, "its address has 2021 letters"),
    ],
)
def test_what_is_not_a_page_is_refused(text: str, why: str) -> None:
    assert read_page(text) == why
