import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ekiden import CacheHint, Server, UsageError
from ekiden.errors import InvalidParams
from ekiden.server.registration.catalog import Catalog
from tests.serving import error_of, result_of


class Entry:
    def __init__(self, key: str, *scopes: str) -> None:
        self.key = key
        self.definition = {"name": key}
        self.scopes = frozenset(scopes)


def catalog(count: int, page_size: int | None = None, field: str = "things") -> Catalog[Entry]:
    made: Catalog[Entry] = Catalog(
        "Thing", field, cache=CacheHint(), page_size=page_size, on_change=lambda: None
    )
    for n in range(count):
        made.add(Entry(f"e{n}"))
    return made


def spell(result: dict[str, Any]) -> bytes:
    return json.dumps(result).encode()


def page(of: Catalog[Entry], cursor: str | None = None) -> tuple[list[str], str | None]:
    result = json.loads(of.page(cursor, spell))
    return [entry["name"] for entry in result["things"]], result.get("nextCursor")


def walk(of: Catalog[Entry]) -> list[list[str]]:
    names, cursor = page(of)
    pages = [names]
    while cursor is not None:
        names, cursor = page(of, cursor)
        pages.append(names)
    return pages


def test_a_list_without_pages_is_whole_and_in_the_order_of_registration() -> None:
    assert page(catalog(5)) == (["e0", "e1", "e2", "e3", "e4"], None)


@pytest.mark.parametrize(
    ("count", "size", "lengths"),
    [(0, 2, [0]), (1, 2, [1]), (2, 2, [2]), (3, 2, [2, 1]), (4, 2, [2, 2]), (5, 1, [1] * 5), (3, 10, [3])],
)
def test_pages_have_their_size_and_the_last_has_no_cursor(count: int, size: int, lengths: list[int]) -> None:
    pages = walk(catalog(count, size))
    assert [len(names) for names in pages] == lengths
    assert [name for names in pages for name in names] == [f"e{n}" for n in range(count)]


def test_removing_an_entry_that_was_listed_makes_no_other_skipped_or_doubled() -> None:
    of = catalog(6, 2)
    first, cursor = page(of)
    of.remove("e0")
    assert first == ["e0", "e1"]
    assert page(of, cursor)[0] == ["e2", "e3"]


def test_removing_the_entry_that_the_cursor_stands_on_does_no_harm() -> None:
    of = catalog(6, 2)
    _, cursor = page(of)
    of.remove("e1")
    assert page(of, cursor)[0] == ["e2", "e3"]


def test_removing_an_entry_that_is_still_to_come_leaves_it_out() -> None:
    of = catalog(6, 2)
    _, cursor = page(of)
    of.remove("e2")
    assert page(of, cursor)[0] == ["e3", "e4"]


def test_an_entry_added_meanwhile_is_listed_last() -> None:
    of = catalog(3, 2)
    _, cursor = page(of)
    of.add(Entry("late"))
    assert page(of, cursor) == (["e2", "late"], None)


def test_an_entry_that_comes_again_comes_last() -> None:
    of = catalog(3)
    of.remove("e0")
    of.add(Entry("e0"))
    assert page(of)[0] == ["e1", "e2", "e0"]


@given(st.integers(1, 4), st.data())
def test_whatever_changes_between_pages_the_entries_that_stay_are_listed_once(
    size: int, data: st.DataObject
) -> None:
    of = catalog(10, size)
    staying = {f"e{n}" for n in range(10)}
    listed, cursor = page(of)
    while cursor is not None:
        for name in data.draw(st.sets(st.sampled_from(sorted(staying)), max_size=2)) if staying else ():
            of.remove(name)
            staying.discard(name)
        names, cursor = page(of, cursor)
        listed += names
    assert len(listed) == len(set(listed))
    assert staying <= set(listed)


def cursor(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    "invented",
    [
        "",
        "nonsense",
        "ü",
        "!!!!",
        "AAAA",
        cursor("things"),
        cursor("things:"),
        cursor("things:x"),
        cursor("things:-1"),
        cursor("things:1.0"),
        cursor("things:" + "9" * 16),
        cursor("others:1"),
        cursor("things:1").rstrip("=") + "!",
        "\ud83d",
    ],
)
def test_a_cursor_that_was_never_given_out_is_invalid_params(invented: str) -> None:
    with pytest.raises(InvalidParams, match="cursor") as caught:
        catalog(5, 2).page(invented, spell)
    assert caught.value.code == -32602


def test_a_cursor_of_another_list_is_invalid_params() -> None:
    others = catalog(5, 2, "others")
    foreign = json.loads(others.page(None, spell))["nextCursor"]
    with pytest.raises(InvalidParams):
        catalog(5, 2).page(foreign, spell)


@pytest.mark.parametrize(("count", "size"), [(5, 2), (4, 2), (0, 2), (5, None), (6, 3), (1, 1)])
def test_invented_cursors_do_not_fill_the_memory(count: int, size: int | None) -> None:
    of = catalog(count, size)
    for position in [*range(200), *range(10**6, 10**6 + 200)]:
        of.page(cursor(f"things:{position}"), spell)
    assert len(of._pages) <= count + 1


@pytest.mark.parametrize(("count", "size", "pages"), [(9, 3, 4), (10, 3, 4), (5, None, 1), (4, 1, 5)])
def test_only_pages_that_our_own_cursors_lead_to_are_kept(count: int, size: int | None, pages: int) -> None:
    of = catalog(count, size)
    walk(of)
    for position in range(200):
        of.page(cursor(f"things:{position}"), spell)
    assert len(of._pages) <= pages
    sizes = sum(len(json.loads(page)["things"]) for page in of._pages.values())
    assert sizes <= count, "no entry is kept twice"


def test_invented_cursors_into_gaps_do_not_fill_the_memory() -> None:
    of = catalog(1000, 2)
    for n in range(2, 998):
        of.remove(f"e{n}")
    for position in range(1000):
        of.page(cursor(f"things:{position}"), spell)
    assert len(of._pages) <= 5


def test_a_page_is_spelled_once_until_something_changes() -> None:
    of = catalog(4, 2)
    spelled: list[Any] = []

    def counting(result: dict[str, Any]) -> bytes:
        spelled.append(result)
        return spell(result)

    _, second = page(of)
    for _ in range(3):
        of.page(second, counting)
    assert len(spelled) == 1
    of.remove("e3")
    of.page(second, counting)
    assert len(spelled) == 2


# Through a server


async def test_lists_over_the_wire_have_pages_and_hints() -> None:
    server = Server("s", page_size=2, cache={"tools/list": CacheHint(1000, "public")})
    for n in range(3):

        async def tool() -> str:
            return ""

        server.add_tool(tool, name=f"t{n}")
    first = await result_of(server, "tools/list")
    assert [tool["name"] for tool in first["tools"]] == ["t0", "t1"]
    assert (first["ttlMs"], first["cacheScope"]) == (1000, "public")
    second = await result_of(server, "tools/list", {"cursor": first["nextCursor"]})
    assert [tool["name"] for tool in second["tools"]] == ["t2"]
    assert "nextCursor" not in second


@pytest.mark.parametrize("invalid", ["x", 1, True, [], {}])
async def test_an_invalid_cursor_over_the_wire_is_invalid_params(invalid: Any) -> None:
    server = Server("s", page_size=2)

    @server.tool
    async def tool() -> str:
        return ""

    assert (await error_of(server, "tools/list", {"cursor": invalid}))["code"] == -32602


async def test_a_server_with_an_impossible_page_size_or_cache_is_refused() -> None:
    with pytest.raises(UsageError, match="page_size"):
        Server("s", page_size=0)
    with pytest.raises(UsageError, match="tools/lists"):
        Server("s", cache={"tools/lists": CacheHint()})


def test_each_set_of_scopes_has_its_own_pages() -> None:
    made = catalog(0, page_size=2)
    for name, scopes in {"a": (), "b": ("x",), "c": ("y",), "d": ("x", "y"), "e": ()}.items():
        made.add(Entry(name, *scopes))

    def seen(*granted: str) -> list[list[str]]:
        pages: list[list[str]] = []
        cursor: str | None = None
        while True:
            page = json.loads(
                made.page_for(frozenset(granted), cursor, lambda result: json.dumps(result).encode())
            )
            assert page["cacheScope"] == "private"
            pages.append([thing["name"] for thing in page["things"]])
            cursor = page.get("nextCursor")
            if cursor is None:
                return pages

    assert seen() == [["a", "e"]]
    assert seen("x", "unrelated") == [["a", "b"], ["e"]]
    assert seen("x", "y") == [["a", "b"], ["c", "d"], ["e"]]
    assert seen("y") == [["a", "c"], ["e"]]
    made.remove("b")
    assert seen("x") == [["a", "e"]]


def test_scopes_that_nothing_needs_make_no_pages_of_their_own() -> None:
    made = catalog(0)
    made.add(Entry("a", "x"))
    spelled: list[Any] = []

    def spell(result: Any) -> bytes:
        spelled.append(result)
        return b"page"

    for number in range(1000):
        made.page_for(frozenset({f"invented {number}"}), None, spell)
    assert len(spelled) == 1
