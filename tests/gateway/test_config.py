"""The file of servers: what is read out of it, and what is said of one that is wrong."""

import json
from pathlib import Path
from typing import Any

import pytest

from ekiden import UsageError
from ekiden.gateway import Upstream, gateway, read_config


def _file(folder: Path, servers: object) -> Path:
    file = folder / "mcp.json"
    file.write_text(json.dumps({"mcpServers": servers}))
    return file


def test_servers_of_both_kinds_are_read_with_their_variables(tmp_path: Path) -> None:
    file = _file(
        tmp_path,
        {
            "files": {
                "command": "npx",
                "args": ["-y", "${PKG:-files}"],
                "env": {"A": "${TOKEN}"},
                "cwd": "/x",
            },
            "billing": {
                "type": "http",
                "url": "https://${HOST}/mcp",
                "headers": {"Authorization": "Bearer ${TOKEN}"},
                "forwardHeaders": ["X-Tenant"],
                "timeout": 5,
                "sessions": 40,
            },
            "off": {"command": "nothing", "disabled": True},
        },
    )
    assert read_config(file, {"TOKEN": "t0p", "HOST": "billing.example"}) == [
        Upstream(name="files", target=["npx", "-y", "files"], env={"A": "t0p"}, cwd="/x", start_timeout=300),
        Upstream(
            name="billing",
            target="https://billing.example/mcp",
            headers={"Authorization": "Bearer t0p"},
            forward_headers=("X-Tenant",),
            timeout=5.0,
            sessions=40,
        ),
    ]


def test_how_many_principals_may_have_a_session_depends_on_what_it_costs() -> None:
    command, url = Upstream(name="a", target=["x"]), Upstream(name="a", target="http://x/mcp")
    assert (command.most_sessions, url.most_sessions) == (32, 128)
    assert Upstream(name="a", target=["x"], sessions=7).most_sessions == 7


WRONG: dict[str, tuple[Any, str]] = {
    "not an object": ({"a": "npx"}, "'a': must be an object, as in"),
    "no server": ({}, 'names no server: add one to "mcpServers"'),
    "all disabled": ({"a": {"command": "x", "disabled": True}}, "names no server"),
    "a name with a space": ({"my server": {"command": "x"}}, "'my server': cannot be a prefix: use a letter"),
    "an empty name": ({"": {"command": "x"}}, "cannot be a prefix"),
    "names that differ by case": (
        {"a_b": {"command": "x"}, "A-B": {"command": "x"}},
        "the same URIs as 'a_b'",
    ),
    "both kinds": ({"a": {"command": "x", "url": "http://x"}}, "either a `command` or a `url`"),
    "neither kind": ({"a": {"args": []}}, "either a `command` or a `url`"),
    "an unknown key": (
        {"a": {"command": "x", "autoApprove": []}},
        "'autoApprove' is not known for a `command`",
    ),
    "headers of a command": (
        {"a": {"command": "x", "headers": {}}},
        "'headers' is not known for a `command`",
    ),
    "env of a url": ({"a": {"url": "http://x", "env": {}}}, "'env' is not known for a `url`: known are url"),
    "a wrong type": ({"a": {"command": "x", "type": "http"}}, "`type` of a `command` must be one of stdio"),
    "another scheme": ({"a": {"url": "ftp://x"}}, "`url` must begin with http:// or https://"),
    "args as text": ({"a": {"command": "x", "args": "y"}}, "`args` must be a list of texts"),
    "a number in env": ({"a": {"command": "x", "env": {"A": 1}}}, "`env` must be an object of texts"),
    "an empty command": ({"a": {"command": ""}}, "`command` must be a text that is not empty"),
    "no variable": (
        {"a": {"url": "http://x", "headers": {"K": "${NOPE}"}}},
        "a: headers: there is no variable NOPE",
    ),
    "a bad header": ({"a": {"url": "http://x", "headers": {"a b": "x"}}}, "'a b' is not the name of an HTTP"),
    "a header of two lines": (
        {"a": {"url": "http://x", "headers": {"A": "x\ny"}}},
        "must be one line of ASCII",
    ),
    "a bad forwarded header": (
        {"a": {"url": "http://x", "forwardHeaders": ["a b"]}},
        "is not the name of an HTTP",
    ),
    "a timeout in words": ({"a": {"command": "x", "timeout": "5s"}}, "`timeout` must be a number of seconds"),
    "a timeout of nothing": (
        {"a": {"command": "x", "timeout": 0}},
        "timeout must be a number of seconds above 0",
    ),
    "sessions in words": ({"a": {"command": "x", "sessions": "5"}}, "`sessions` must be a whole number"),
    "no session": ({"a": {"command": "x", "sessions": 0}}, "sessions must be a number above 0"),
    "disabled in words": ({"a": {"command": "x", "disabled": "no"}}, "`disabled` must be true or false"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_file_is_refused_with_what_to_do(tmp_path: Path, case: str) -> None:
    servers, message = WRONG[case]
    file = _file(tmp_path, servers)
    with pytest.raises(UsageError) as caught:
        read_config(file, {})
    assert message in str(caught.value)
    assert str(caught.value).startswith(str(file))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"mcpServers": {\n "a": }}', "is not JSON: Expecting value: line 2"),
        ("[]", 'must be an object with "mcpServers"'),
        ('{"servers": {}}', 'must be an object with "mcpServers"'),
        ('{"mcpServers": {"a": {"command": "x"}}, "inputs": []}', "'inputs' is not known here"),
        (
            '{"mcpServers": {"a": {"command": "x"}, "a": {"command": "y"}}}',
            "'a' stands twice in one object: rename or remove",
        ),
    ],
)
def test_a_file_that_is_something_else_is_refused(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "mcp.json"
    file.write_text(text)
    with pytest.raises(UsageError) as caught:
        gateway(file)
    assert message in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"nowhere.json cannot be read: No such file"):
        read_config(tmp_path / "nowhere.json")


def test_headers_need_a_url() -> None:
    with pytest.raises(UsageError, match="headers are for a `url`; a command gets secrets by `env`"):
        Upstream(name="a", target=["x"], headers={"A": "b"})
