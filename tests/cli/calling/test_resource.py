"""`ekiden read`, in scripts and at a terminal."""

import json
import time
from pathlib import Path

import pytest

from ekiden.cli.calling.resource import _fits
from tests.cli.calling.errands import ERRANDS, errands, over_stdio
from tests.cli.driving import ENTER, SHOP, ekiden, person


def test_a_resource_is_printed_as_it_is() -> None:
    done = ekiden("read", SHOP, "shop://opening-hours")
    assert (done.returncode, done.stdout, done.stderr) == (0, "always\n", "")


def test_a_resource_that_asks_is_answered_over_every_transport_in_both_eras(tmp_path: Path) -> None:
    with errands(tmp_path) as (url, _):
        for target in (ERRANDS, over_stdio(), url):
            for era in ("modern", "legacy"):
                done = ekiden("read", target, "errands://list", "--era", era, "--answer", "how many=3")
                assert (done.returncode, done.stdout) == (0, "bread for 3\n"), (target, era, done.stderr)


def test_a_resource_that_asks_asks_at_the_terminal() -> None:
    with person("read", ERRANDS, "errands://list") as user:
        user.reads("For how many?")
        user.reads("value")
        user.presses("4", ENTER)
        user.reads("Send this")
        user.presses(ENTER)
        assert user.ends() == 0
        assert "\nbread for 4\n" in user.screen


def test_bytes_are_saved_under_the_name_of_the_resource(tmp_path: Path) -> None:
    done = ekiden("read", ERRANDS, "errands://maps/town.bin", "--save-to", str(tmp_path))
    assert done.stdout == f"saved {tmp_path}/town-1.bin (application/octet-stream, 3 bytes)\n", done.stderr
    assert (tmp_path / "town-1.bin").read_bytes() == b"\x00\x01\x02"


def test_a_resource_is_answered_by_key_and_its_rounds_are_shown() -> None:
    done = ekiden("read", ERRANDS, "errands://list", "--answer", "people=2", "-v")
    assert done.stdout == "bread for 2\n", done.stderr
    assert "  people: elicitation/create: For how many?" in done.stderr.splitlines()


def test_a_resource_is_json_for_programs() -> None:
    done = ekiden("read", SHOP, "shop://opening-hours", "--json")
    (part,) = json.loads(done.stdout)["contents"]
    assert part == {"uri": "shop://opening-hours", "mimeType": "text/plain", "text": "always"}


MANY = """
from mcp_types import TextResourceContents
from ekiden import Server

server = Server("many")

@server.resource("many://all")
async def all_of_it() -> list[TextResourceContents]:
    return [TextResourceContents(uri=f"many://{name}", text=name) for name in ("one", "two")]
"""


def test_several_parts_come_after_their_uris(tmp_path: Path) -> None:
    (tmp_path / "many.py").write_text(MANY)
    done = ekiden("read", "many.py", "many://all", cwd=tmp_path)
    assert done.stdout == "many://one:\none\nmany://two:\ntwo\n", done.stderr


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (
            [ERRANDS, "errands://lst"],
            2,
            "the server has no resource 'errands://lst'; did you mean 'errands://list'?",
        ),
        ([ERRANDS, "nothing://like-it"], 1, "the server answered with error -32602: Resource not found"),
        (
            [ERRANDS, "errands://list", "--answer", "many=some"],
            2,
            "the answer 'many' does not fit 'For how many?'",
        ),
        (["http://127.0.0.1:9/mcp", "errands://list"], 1, "Cannot connect to 127.0.0.1:9"),
    ],
)
def test_a_resource_that_cannot_be_read_is_told_in_one_line(words: list[str], code: int, said: str) -> None:
    done = ekiden("read", *words)
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.startswith(f"ekiden: {said}")
    assert done.stderr.count("\n") == 1


STOCK = """
from ekiden import ResourceNotFound, Server

server = Server("stock")

@server.resource("stock://shelf/{name}")
async def shelf(name: str) -> str:
    raise ResourceNotFound(f"stock://shelf/{name}")

@server.resource("stock://shelf")
async def shelves() -> str:
    return ""
"""


def test_nothing_is_suggested_for_a_uri_that_fits_a_template(tmp_path: Path) -> None:
    file = tmp_path / "stock.py"
    file.write_text(STOCK)
    done = ekiden("read", str(file), "stock://shelf/nam")
    assert (done.returncode, done.stdout) == (1, "")
    assert "Resource not found: stock://shelf/nam" in done.stderr
    assert "did you mean" not in done.stderr
    mistyped = ekiden("read", str(file), "stok://shelf/name")
    assert "did you mean 'stock://shelf/{name}'?" in mistyped.stderr


def test_a_template_that_fits_in_a_million_ways_is_held_to_a_uri_at_once() -> None:
    began = time.process_time()
    assert not _fits("a://" + "a" * 60, "{x}a" * 20 + "b")
    assert time.process_time() - began < 1


@pytest.mark.parametrize(
    ("template", "fits"),
    [
        ("a://{x}/b", True),
        ("a://{x}/b/{y}", False),
        ("{x}", True),
        ("{x}/b{y}", True),
        ("a://town/b", True),
        ("a://town", False),
        ("a://{x}wn/{y}/b", False),
        ("a://tow{x}own/b", False),
    ],
)
def test_whether_a_uri_may_be_one_of_a_template(template: str, fits: bool) -> None:
    assert _fits("a://town/b", template) == fits
