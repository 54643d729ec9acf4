"""Nonces are drawn in bulk, and given out once."""

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from ekiden.server.sealing.nonces import SIZE, next_nonce


def test_no_nonce_is_given_out_twice() -> None:
    drawn = [next_nonce() for _ in range(1000)]
    assert len(set(drawn)) == 1000
    assert {len(nonce) for nonce in drawn} == {SIZE}


def test_threads_never_get_the_same() -> None:
    with ThreadPoolExecutor(8) as threads:
        drawn = list(threads.map(lambda _: next_nonce(), range(20_000)))
    assert len(set(drawn)) == 20_000


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_process_draws_its_own() -> None:
    next_nonce()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, b"".join(next_nonce() for _ in range(60)))
        os._exit(0)
    os.waitpid(child, 0)
    theirs = os.read(reading, 60 * SIZE)
    os.close(reading)
    os.close(writing)
    ours = {next_nonce() for _ in range(60)}
    assert ours.isdisjoint(theirs[start : start + SIZE] for start in range(0, len(theirs), SIZE))
