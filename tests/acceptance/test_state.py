"""`requestState` in the hands of a client: sealed, bound, short-lived, and one answer to every abuse."""

import asyncio
import base64
import contextlib
import itertools
import json
import logging
import string
import time
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ekiden import Context, InputRequired, Request, RoundLimits, Server, UsageError
from ekiden.testing import CallFailed, Round
from tests.acceptance.driving import (
    BAD_STATE,
    KEY,
    OTHER_KEY,
    THIRD_KEY,
    Client,
    accept,
    call,
    messages,
    new_server,
    only,
    soon,
    text,
)


class Clock:
    def __init__(self) -> None:
        self.now = time.time()

    def __call__(self) -> float:
        return self.now


def make(ran: list[str] | None = None, name: str = "acceptance", **options: Any) -> Server:
    """A server whose tools, prompt and resource note that they ran."""
    server = new_server(name, **options)
    seen: list[str] = [] if ran is None else ran

    @server.tool
    async def tool(ctx: Context, n: float = 0, more: dict[str, Any] | None = None) -> str:
        seen.append("tool")
        return str((await ctx.elicit("ok?", bool, key="k")).data)

    @server.tool
    async def other(ctx: Context) -> str:
        seen.append("other")
        return str((await ctx.elicit("ok?", bool, key="k")).data)

    @server.prompt
    async def prompt(ctx: Context) -> str:
        seen.append("prompt")
        return str((await ctx.elicit("ok?", bool, key="k")).data)

    @server.resource("test://{which}/resource")
    async def resource(which: str, ctx: Context) -> str:
        seen.append("resource")
        return str((await ctx.elicit("ok?", bool, key="k")).data)

    return server


ANSWER = {"k": accept(True)}


async def bad(
    client: Client, state: Any, *, name: str = "tool", arguments: Mapping[str, Any] | None = None
) -> None:
    """The state is refused, with the one answer that every refusal has."""
    error = await client.refused(name, arguments, inputResponses=ANSWER, requestState=state)
    assert (error.code, error.message, error.data) == (-32602, BAD_STATE, {"ekiden/next": "restart_call"})


# Tampering


@pytest.fixture(scope="module")
def running() -> Generator[tuple[asyncio.Runner, Server, list[str], str], None, None]:
    ran: list[str] = []
    server = make(ran)
    with asyncio.Runner() as runner:
        first = runner.run(Client(server).ask("tool"))
        assert first.state is not None
        yield runner, server, ran, first.state


@settings(max_examples=300, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_a_state_that_was_changed_in_any_way_is_refused_and_nothing_is_run(
    running: tuple[asyncio.Runner, Server, list[str], str], data: st.DataObject
) -> None:
    runner, server, ran, state = running
    how = data.draw(st.sampled_from(["change", "cut the end", "cut the head", "extend", "insert", "swap"]))
    at = data.draw(st.integers(0, len(state) - 1))
    letters = st.characters(codec="utf-8") | st.sampled_from("AZaz09+/=-_.")
    if how == "change":
        changed = state[:at] + data.draw(letters) + state[at + 1 :]
    elif how == "cut the end":
        changed = state[:at]
    elif how == "cut the head":
        changed = state[at + 1 :]
    elif how == "extend":
        changed = state + data.draw(st.text(letters, min_size=1, max_size=5))
    elif how == "insert":
        changed = state[:at] + data.draw(letters) + state[at:]
    else:
        other = data.draw(st.integers(0, len(state) - 1))
        swapped = list(state)
        swapped[at], swapped[other] = swapped[other], swapped[at]
        changed = "".join(swapped)
    if changed == state or _decoded(changed) == _decoded(state):
        return  # The latter is for the test of spellings, below.
    ran.clear()
    runner.run(bad(Client(server), changed))
    assert ran == []


def _decoded(state: str) -> tuple[str, bytes] | None:
    """What a lenient reader of base64 makes of a state."""
    head, _, body = state.rpartition(".")
    with contextlib.suppress(ValueError):
        return head, base64.b64decode(body)
    return None


async def test_every_bit_of_the_sealed_bytes_counts() -> None:
    ran: list[str] = []
    client = Client(make(ran))
    state = (await client.ask("tool")).state
    assert state is not None
    head, _, body = state.rpartition(".")
    raw = base64.b64decode(body)
    ran.clear()
    for at in range(0, len(raw), 7):
        for bit in (0x01, 0x80):
            changed = bytearray(raw)
            changed[at] ^= bit
            await bad(client, f"{head}.{base64.b64encode(changed).decode()}")
    assert ran == []


@pytest.mark.parametrize("size", [0, 1, 2])
async def test_a_state_has_one_spelling(size: int) -> None:
    """Base64 can spell the same bytes in several ways; only the one that was sent is good."""
    server = new_server()
    ran: list[int] = []

    @server.tool
    async def tool(ctx: Context, padding: str) -> str:
        ran.append(1)
        ctx.uuid()
        await ctx.elicit("x" * len(padding), bool, key="k")
        return "done"

    client = Client(server)
    arguments = {"padding": "x" * size}
    state = (await client.ask("tool", arguments)).state
    assert state is not None
    ran.clear()
    changed = {
        state + "=",
        state + "\n",
        " " + state,
        state.rstrip("="),
        state.rstrip("=") + "====",
        state + "A",
    }
    changed |= {
        state[:-at] + letter + state[len(state) - at + 1 :]
        for at in range(1, 5)
        for letter in string.ascii_letters + string.digits + "+/=-_. \n"
    }
    for spelled in sorted(changed - {state}):
        error = await client.refused("tool", arguments, inputResponses=ANSWER, requestState=spelled)
        assert (error.code, error.message) == (-32602, BAD_STATE), (state[-6:], spelled[-6:])
    assert ran == []


@pytest.mark.parametrize(
    "state", ["", " ", ".", "..", "ek1..", "x" * 200_000, "\x00", "null", "{}", "é", "ek1.0.AAAA"]
)
async def test_a_state_that_never_was_one_is_refused(state: str) -> None:
    ran: list[str] = []
    await bad(Client(make(ran)), state)
    assert ran == []


@pytest.mark.parametrize("state", [None, 7, True, 1.5, [], {}, ["x"], {"state": "x"}])
async def test_a_state_that_is_no_text_is_refused(state: Any) -> None:
    ran: list[str] = []
    await bad(Client(make(ran)), state)
    assert ran == []


async def test_a_state_of_an_older_or_newer_format_is_refused() -> None:
    ran: list[str] = []
    client = Client(make(ran))
    state = (await client.ask("tool")).state
    assert state is not None
    version, rest = state.split(".", 1)
    ran.clear()
    for other in ("ek0", "ek2", "ek", "", "EK1", version + "0"):
        await bad(client, f"{other}.{rest}")
    assert ran == []


async def test_the_reason_goes_to_the_log_and_not_to_the_client(caplog: pytest.LogCaptureFixture) -> None:
    client = Client(make())
    state = (await client.ask("tool")).state
    with caplog.at_level(logging.DEBUG):
        await bad(client, state, name="other")
    assert [record for record in caplog.records if "state" in record.getMessage().lower()]
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


async def test_the_state_tells_nothing_of_what_is_in_it() -> None:
    server = new_server()

    @server.tool
    async def tool(ctx: Context) -> str:
        def load() -> str:
            return "a-secret-that-the-client-must-not-see"

        await ctx.step(load)
        await ctx.elicit("ok?", bool)
        return "done"

    client = Client(server)
    one, two = await client.ask("tool"), await client.ask("tool")
    assert one.state is not None
    assert one.state != two.state
    raw = base64.b64decode(one.state.rpartition(".")[2])
    for shown in (one.state.encode(), raw):
        assert b"secret" not in shown
        assert b"load" not in shown


async def test_the_length_of_the_state_does_not_tell_whether_an_answer_repeats_a_secret() -> None:
    """Compressed beside a secret, an answer that guesses it would make the state shorter."""
    server = new_server()

    @server.tool
    async def tool(ctx: Context) -> str:
        def load() -> str:
            return "correct-horse-battery-staple-" * 4

        await ctx.step(load)
        await ctx.elicit("guess", str, key="guess")
        await ctx.elicit("ok?", bool)
        return "done"

    client = Client(server)
    first = await client.ask("tool")
    right = await client.retry(first, {"guess": accept("correct-horse-battery-staple-" * 4)})
    first = await client.ask("tool")
    wrong = await client.retry(first, {"guess": accept("qwrtzpsdfgjklyxcvbnmqwrtzpsdf" * 4)})
    assert len(right.state or "") == len(wrong.state or "")


# Time


async def test_a_state_expires() -> None:
    clock, ran = Clock(), list[str]()
    client = Client(make(ran, clock=clock, rounds=RoundLimits(answer_seconds=60)))
    first = await client.ask("tool")
    clock.now += 59
    assert text(await client.retry(first, ANSWER)) == "True"
    clock.now += 2
    ran.clear()
    await bad(client, first.state)
    assert ran == []


async def test_a_state_expires_after_ten_minutes_by_default() -> None:
    clock = Clock()
    client = Client(make(clock=clock))
    first = await client.ask("tool")
    clock.now += 599
    assert text(await client.retry(first, ANSWER)) == "True"
    clock.now += 2
    await bad(client, first.state)


async def test_every_round_has_its_own_time_but_the_call_has_an_age() -> None:
    clock = Clock()
    server = new_server(clock=clock, rounds=RoundLimits(answer_seconds=60, flow_seconds=200))

    @server.tool
    async def tool(ctx: Context) -> str:
        for n in range(9):
            await ctx.elicit(f"q{n}", bool)
        return "done"

    client = Client(server)
    played = await client.ask("tool")
    for _ in range(3):
        clock.now += 55
        played = await client.retry(played, {only(played): accept(True)})
    assert messages(played) == ["q3"]
    clock.now += 55  # 220 seconds old: this state is fresh, but the call is not.
    error = await client.refused(inputResponses={only(played): accept(True)}, requestState=played.state)
    assert (error.code, error.message) == (-32602, BAD_STATE)


async def test_a_state_from_the_far_future_is_refused() -> None:
    clock = Clock()
    ahead = Clock()
    ahead.now += 86_400 * 365
    first = await Client(make(clock=ahead)).ask("tool")
    await bad(Client(make(clock=clock)), first.state)


# What a state is bound to


async def test_a_state_of_another_tool_is_refused() -> None:
    ran: list[str] = []
    client = Client(make(ran))
    state = (await client.ask("tool")).state
    ran.clear()
    await bad(client, state, name="other")
    assert ran == []


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("prompts/get", {"name": "prompt"}),
        ("resources/read", {"uri": "test://a/resource"}),
    ],
)
async def test_a_state_of_another_method_is_refused(method: str, params: dict[str, Any]) -> None:
    ran: list[str] = []
    client = Client(make(ran))
    tools = (await client.ask("tool")).state
    others = (await client.round(method, params)).state
    ran.clear()
    with pytest.raises(Exception, match=BAD_STATE):
        await client.round(method, {**params, "inputResponses": ANSWER, "requestState": tools})
    await bad(client, others)
    assert ran == []


async def test_a_state_of_another_uri_of_the_same_template_is_refused() -> None:
    ran: list[str] = []
    client = Client(make(ran))
    state = (await client.round("resources/read", {"uri": "test://a/resource"})).state
    ran.clear()
    with pytest.raises(Exception, match=BAD_STATE):
        await client.round(
            "resources/read", {"uri": "test://b/resource", "inputResponses": ANSWER, "requestState": state}
        )
    assert ran == []


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"n": 1}, {"n": 2}),
        ({"n": 1}, {}),
        ({}, {"n": 0}),
        ({"n": 1}, {"n": 1.0000001}),
        ({"n": 2**53}, {"n": 2**53 + 1}),
        ({"more": {"a": 1}}, {"more": {"a": True}}),
        ({"more": {"a": None}}, {"more": {}}),
        ({"more": {"a": "1"}}, {"more": {"a": 1}}),
        ({"more": {"a": [1, 2]}}, {"more": {"a": [2, 1]}}),
        ({"more": {"a": "é"}}, {"more": {"a": "e\u0301"}}),
        ({"more": {"a": 0.1}}, {"more": {"a": 0.10000000000000002}}),
        ({"more": {"a": "b" * 100}}, {"more": {"a": "b" * 99 + "c"}}),
        ({"more": {"a": "b" * 100}}, {"more": {"a": "b" * 101}}),
        ({"more": {"a": "b" * 100}}, {"more": {"a": "b"}}),
        ({"more": {"a": "b"}}, {"more": {"a": "b" * 100}}),
    ],
)
async def test_a_state_of_other_arguments_is_refused(before: dict[str, Any], after: dict[str, Any]) -> None:
    ran: list[str] = []
    client = Client(make(ran))
    first = await client.ask("tool", before)
    ran.clear()
    await bad(client, first.state, arguments=after)
    assert ran == []
    assert text(await client.retry(first, ANSWER, arguments=before)) == "True"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('{"n":1}', '{"n":1.0}'),
        ('{"n":1}', '{"n":1e0}'),
        ('{"n":100}', '{"n":1E2}'),
        ('{"n":0}', '{"n":-0.0}'),
        ('{"more":{"a":1,"b":[2.0]}}', '{"more":{"b":[2],"a":1.0}}'),
        ('{"more":{"a":"A"}}', '{"more": {"a": "\\u0041"}}'),
        ('{"more":{"a":"%s"}}' % ("A" * 100), '{"more": {"a": "%s"}}' % ("\\u0041" * 100)),
        ("{}", None),
        (None, "{}"),
    ],
)
async def test_arguments_that_mean_the_same_are_the_same(before: str | None, after: str | None) -> None:
    async with make().connect() as channel:

        async def send(request_id: int, arguments: str | None, **more: Any) -> dict[str, Any]:
            message = call("tool", {}, request_id, **more)
            if arguments is None:
                del message["params"]["arguments"]
                body = json.dumps(message)
            else:
                body = json.dumps(message).replace('"arguments": {}', f'"arguments": {arguments}')
            await channel.send(body.encode())
            return await soon(channel.receive())

        first = (await send(1, before))["result"]
        done = await send(2, after, inputResponses=ANSWER, requestState=first["requestState"])
        assert text(done["result"]) == "True"


@pytest.mark.parametrize(
    "literal",
    [
        "9" * 30,
        "-" + "9" * 300,
        "1e308",
        '"' + "\\u0000" * 5 + '"',
        "[" * 40 + "]" * 40,
        '"\\ud800"',
        "9" * 5_000,
    ],
)
async def test_arguments_at_the_edge_of_json_are_never_a_crash(literal: str) -> None:
    async with make().connect() as channel:

        async def send(request_id: int, **more: Any) -> dict[str, Any]:
            message = call("tool", {"more": {"a": "LITERAL"}}, request_id, **more)
            await channel.send(json.dumps(message).replace('"LITERAL"', literal).encode())
            return await soon(channel.receive())

        first = await send(1)
        if "error" in first:
            assert first["error"]["code"] in (-32602, -32600, -32700), first
            return
        state = first["result"]["requestState"]
        assert text((await send(2, inputResponses=ANSWER, requestState=state))["result"]) == "True"


async def test_a_state_of_another_principal_is_refused() -> None:
    ran: list[str] = []

    def principal(request: Request) -> str | None:
        return (request.meta.client_info or {}).get("name")

    server = make(ran, principal=principal)

    def client_of(name: str) -> Client:
        return Client(server, meta={"io.modelcontextprotocol/clientInfo": {"name": name, "version": "1"}})

    ada, eve = client_of("ada"), client_of("eve")
    first = await ada.ask("tool")
    ran.clear()
    await bad(eve, first.state)
    assert ran == []
    assert text(await ada.retry(first, ANSWER)) == "True"


async def test_a_state_of_nobody_is_not_good_for_somebody_nor_the_other_way_round() -> None:
    who: list[str | None] = [None]
    client = Client(make(principal=lambda _request: who[0]))
    nobodys = (await client.ask("tool")).state
    who[0] = "ada"
    adas = (await client.ask("tool")).state
    await bad(client, nobodys)
    for other in (None, "", "Ada", "ada "):
        who[0] = other
        await bad(client, adas)


async def test_a_state_of_another_server_with_the_same_keys_is_refused() -> None:
    ran: list[str] = []
    first = await Client(make(name="one")).ask("tool")
    await bad(Client(make(ran, name="two")), first.state)
    assert ran == []
    shared = await Client(make(name="one", audience="https://example.com/mcp")).ask("tool")
    await bad(Client(make(name="one")), shared.state)
    other_name = Client(make(name="two", audience="https://example.com/mcp"))
    assert text(await other_name.retry(shared, ANSWER)) == "True"


async def test_a_state_of_one_call_gives_its_answers_to_no_other() -> None:
    """Two calls of the same tool with the same arguments: each state holds its own answers only."""
    server = new_server()

    @server.tool
    async def tool(ctx: Context) -> str:
        a = await ctx.elicit("a", str)
        b = await ctx.elicit("b", str)
        return f"{a.data} {b.data}"

    client = Client(server)
    one, two = await client.ask("tool"), await client.ask("tool")
    one = await client.retry(one, {only(one): accept("one")})
    two = await client.retry(two, {only(two): accept("two")})
    assert text(await client.retry(one, {only(one): accept("x")})) == "one x"
    assert text(await client.retry(two, {only(two): accept("y")})) == "two y"


# Keys


async def test_rotation_in_three_phases_loses_no_round() -> None:
    phases = [[KEY], [KEY, OTHER_KEY], [OTHER_KEY, KEY], [OTHER_KEY]]
    for before, after in itertools.pairwise(phases):
        # While a phase is rolled out, old and new processes serve side by side.
        old, new = Client(make(keys=before)), Client(make(keys=after))
        for asks, goes_on in ((old, new), (new, old), (old, old), (new, new)):
            if after == [OTHER_KEY] and asks is old:
                continue  # Tokens of the old key have expired before it is taken out.
            assert text(await goes_on.retry(await asks.ask("tool"), ANSWER)) == "True"


async def test_a_state_under_a_retired_key_is_refused() -> None:
    ran: list[str] = []
    first = await Client(make(keys=[KEY])).ask("tool")
    await bad(Client(make(ran, keys=[OTHER_KEY, THIRD_KEY])), first.state)
    assert ran == []


async def test_the_first_key_seals_and_all_open() -> None:
    ring = Client(make(keys=[OTHER_KEY, KEY, THIRD_KEY]))
    for key in (KEY, OTHER_KEY, THIRD_KEY):
        assert text(await ring.retry(await Client(make(keys=[key])).ask("tool"), ANSWER)) == "True"
    sealed = await ring.ask("tool")
    assert text(await Client(make(keys=[OTHER_KEY])).retry(sealed, ANSWER)) == "True"
    await bad(Client(make(keys=[KEY])), sealed.state)


async def _same_keys(one: Server, other: Server) -> bool:
    first = await Client(one).ask("tool")
    try:
        return text(await Client(other).retry(first, ANSWER)) == "True"
    except Exception as error:
        return str(error) != BAD_STATE


async def test_keys_come_from_the_constructor_the_environment_or_a_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    spelled = base64.b64encode(KEY).decode()
    file = tmp_path / "keys"
    file.write_text(spelled + "\n")
    given_bytes = make(keys=[KEY])
    assert await _same_keys(given_bytes, make(keys=[spelled]))
    assert await _same_keys(given_bytes, make(keys=file))
    monkeypatch.setenv("EKIDEN_KEYS", spelled)
    assert await _same_keys(given_bytes, make(keys=None))
    monkeypatch.delenv("EKIDEN_KEYS")
    monkeypatch.setenv("EKIDEN_KEYS_FILE", str(file))
    assert await _same_keys(given_bytes, make(keys=None))


async def test_several_keys_in_the_environment_or_a_file_are_a_ring(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    new, old = (base64.b64encode(key).decode() for key in (OTHER_KEY, KEY))
    file = tmp_path / "keys"
    file.write_text(f"{new}\n{old}\n")
    monkeypatch.setenv("EKIDEN_KEYS", f"{new},{old}")
    for ring in (make(keys=None), make(keys=file)):
        assert await _same_keys(make(keys=[KEY]), ring)
        assert await _same_keys(ring, make(keys=[OTHER_KEY]))


async def test_the_constructor_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EKIDEN_KEYS", base64.b64encode(OTHER_KEY).decode())
    assert await _same_keys(make(keys=[KEY]), make(keys=[KEY]))
    assert not await _same_keys(make(keys=[KEY]), make(keys=None))


@pytest.mark.parametrize(
    "key", [b"", b"short", b"x" * 31, base64.b64encode(b"x" * 31).decode(), "not base64!", ""]
)
def test_a_key_that_is_too_short_or_no_key_is_refused(key: bytes | str) -> None:
    with pytest.raises(UsageError):
        Server("x", keys=[key])


def test_no_keys_where_keys_are_given_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        Server("x", keys=[])
    with pytest.raises(UsageError):
        Server("x", keys=tmp_path / "missing")
    empty = tmp_path / "empty"
    empty.write_text("\n")
    with pytest.raises(UsageError):
        Server("x", keys=empty)


async def test_a_bad_key_in_the_environment_is_not_passed_over(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("EKIDEN_KEYS", base64.b64encode(b"short").decode())
    server = make(keys=None)
    with pytest.raises((CallFailed, UsageError)):
        await Client(server).ask("tool")
    assert "c2hvcnQ" not in caplog.text, "the key is in the log"


async def test_without_keys_a_server_has_one_of_its_own_and_warns_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        one, other = make(keys=None), make(keys=None)
        async with one.running():
            client = Client(one)
            assert text(await client.retry(await client.ask("tool"), ANSWER)) == "True"
            assert text(await client.retry(await client.ask("tool"), ANSWER)) == "True"
    warnings = [r for r in caplog.records if "key" in r.getMessage().lower()]
    assert len(warnings) == 1
    assert not await _same_keys(one, other)


# Size


def big(**options: Any) -> Server:
    server = new_server(**options)

    @server.tool
    async def tool(ctx: Context, size: int) -> str:
        def download_everything(n: int) -> str:
            return "x" * n

        data = await ctx.step(download_everything, size)
        await ctx.elicit("ok?", bool, key="k")
        return str(len(data))

    return server


async def test_a_state_up_to_the_cap_travels() -> None:
    client = Client(big())
    first = await client.ask("tool", {"size": 40_000})
    assert first.state is not None
    assert 40_000 < len(first.state) <= 65_536
    assert text(await client.retry(first, ANSWER, arguments={"size": 40_000})) == "40000"


async def test_a_state_over_the_cap_is_a_clear_error_that_names_the_biggest_entries(
    caplog: pytest.LogCaptureFixture,
) -> None:
    error = await Client(big()).refused(arguments={"size": 100_000})
    assert error.code == -32603
    assert "download_everything" in caplog.text
    assert "x" * 100 not in caplog.text


async def test_the_cap_can_be_set() -> None:
    small = Client(big(rounds=RoundLimits(state_bytes=2_000)))
    assert (await small.ask("tool", {"size": 100})).state
    assert (await small.refused(arguments={"size": 2_000})).code == -32603
    large = Client(big(rounds=RoundLimits(state_bytes=500_000)))
    assert (await large.ask("tool", {"size": 200_000})).state


async def test_above_the_cap_the_journal_goes_to_the_store(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/rounds.db"
    one, other = Client(big(store=store)), Client(big(store=store))
    arguments = {"size": 1_000_000}
    first = await one.ask("tool", arguments)
    assert first.state is not None
    assert len(first.state) < 2_000
    assert text(await other.retry(first, ANSWER, arguments=arguments)) == "1000000"


async def test_a_state_in_the_store_is_bound_as_any_other(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/rounds.db"
    client = Client(big(store=store))
    first = await client.ask("tool", {"size": 1_000_000})
    await bad(client, first.state, arguments={"size": 1_000_001})
    await bad(Client(big(store=store, keys=[OTHER_KEY])), first.state, arguments={"size": 1_000_000})


async def test_a_reference_to_another_store_is_refused(tmp_path: Path) -> None:
    one = Client(big(store=f"sqlite:///{tmp_path}/one.db"))
    first = await one.ask("tool", {"size": 1_000_000})
    for options in ({"store": f"sqlite:///{tmp_path}/two.db"}, {}):
        await bad(Client(big(**options)), first.state, arguments={"size": 1_000_000})


async def test_answers_count_against_the_cap_too() -> None:
    server = new_server(rounds=RoundLimits(state_bytes=3_000))

    @server.tool
    async def tool(ctx: Context) -> str:
        await ctx.elicit("text", str, key="text")
        await ctx.elicit("ok?", bool, key="k")
        return "done"

    client = Client(server)
    first = await client.ask("tool")
    error = await client.refused(inputResponses={"text": accept("x" * 10_000)}, requestState=first.state)
    assert error.code in (-32602, -32603)


# The manual way


async def test_state_by_hand_comes_back_as_it_was_written_and_is_sealed_on_the_wire() -> None:
    server = new_server()
    written = 'any {"text"} \x00 é \U0001f600'

    @server.tool
    async def tool(ctx: Context) -> Any:
        if ctx.request_state is None:
            return InputRequired(request_state=written)
        return str(ctx.request_state == written)

    client = Client(server)
    first = await client.ask("tool")
    assert first.requests == {}
    assert first.state is not None
    assert "text" not in first.state
    assert text(await client.retry(first)) == "True"
    for forged in (written, first.state + "x", first.state[:-1], "x"):
        error = await client.refused(requestState=forged)
        assert (error.code, error.message) == (-32602, BAD_STATE)


async def test_an_empty_state_by_hand_comes_back_empty() -> None:
    server = new_server()

    @server.tool
    async def tool(ctx: Context) -> Any:
        if ctx.request_state is None:
            return InputRequired(request_state="")
        return repr(ctx.request_state)

    assert text(await Client(server).call_tool("tool")) == "''"


async def test_a_state_by_hand_that_is_dropped_is_gone() -> None:
    server = new_server()
    seen: list[str | None] = []

    @server.tool
    async def tool(ctx: Context) -> Any:
        seen.append(ctx.request_state)
        if len(seen) == 1:
            return InputRequired(request_state="first")
        if len(seen) == 2:
            form = {"message": "?", "requestedSchema": {"type": "object", "properties": {}}}
            return InputRequired({"k": {"method": "elicitation/create", "params": form}})
        return "done"

    client = Client(server)
    first = await client.ask("tool")
    second = await client.retry(first)
    done = await client.retry(second, ANSWER)
    assert text(done) == "done"
    assert second.state is None
    assert seen == [None, "first", None]


async def test_answers_by_hand_are_there_in_later_rounds_and_the_newest_wins() -> None:
    server = new_server()
    form = {"message": "?", "requestedSchema": {"type": "object", "properties": {}}}
    seen: list[dict[str, Any]] = []

    @server.tool
    async def tool(ctx: Context) -> Any:
        seen.append({key: answer.content for key, answer in ctx.input_responses.items()})  # type: ignore[union-attr]
        asks = {1: ["a"], 2: ["b"], 3: ["a"]}.get(len(seen))
        if asks is None:
            return "done"
        return InputRequired({key: {"method": "elicitation/create", "params": form} for key in asks}, "state")

    client = Client(server)
    played: Round = await client.ask("tool")
    for responses in ({"a": accept(1)}, {"b": accept(2)}, {"a": accept(3)}):
        played = await client.retry(played, responses)
    assert text(played) == "done"
    assert seen == [
        {},
        {"a": {"value": 1}},
        {"a": {"value": 1}, "b": {"value": 2}},
        {"a": {"value": 3}, "b": {"value": 2}},
    ]
