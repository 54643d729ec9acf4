"""Used DPoP proofs are remembered for as long as they could be used again, whatever others do."""

import random

from ekiden.server.auth.used import UsedProofs


def _name(number: int) -> bytes:
    return b"proof %d" % number


def test_a_proof_is_used_once() -> None:
    used = UsedProofs(10, 300.0)
    assert used.take("zoe", b"a", 100.0, 100.0)
    assert not used.take("zoe", b"a", 100.0, 399.0)
    assert used.take("zoe", b"b", 100.0, 100.0)


def test_who_makes_very_many_proofs_makes_nobody_elses_be_forgotten() -> None:
    used = UsedProofs(100, 300.0)
    mine = [used.take("zoe", _name(-number), 100.0 + number, 100.0) for number in range(20)]
    flood = [used.take("mallory", _name(number), 100.0 + number / 1000, 101.0) for number in range(10_000)]
    again = [used.take("zoe", _name(-number), 100.0 + number, 101.0) for number in range(20)]
    assert all(mine)
    assert not any(again)
    assert len(used) <= 200
    assert flood[-1]  # Later ones than those that are forgotten are still good.
    assert used.take("zoe", b"another", 101.0, 101.0)


def test_a_proof_that_is_forgotten_is_refused_all_the_same() -> None:
    used = UsedProofs(10, 300.0)
    for number in range(50):
        assert used.take("zoe", _name(number), 100.0 + number, 100.0)
    assert not any(used.take("zoe", _name(number), 100.0 + number, 100.0) for number in range(50))


def test_many_owners_have_room_for_one_proof_each_at_least() -> None:
    used = UsedProofs(10, 300.0)
    assert all(used.take(f"owner {number}", b"a", 100.0, 100.0) for number in range(50))
    assert not any(used.take(f"owner {number}", b"a", 100.0, 100.0) for number in range(50))


def test_old_proofs_take_no_memory() -> None:
    used = UsedProofs(1000, 300.0)
    for number in range(100):
        used.take(f"owner {number}", b"a", 100.0, 100.0)
    assert used.take("zoe", b"b", 401.0, 401.0)
    assert len(used) == 1


def test_no_proof_is_ever_taken_twice() -> None:
    for seed in range(30):
        chance, used, taken = random.Random(seed), UsedProofs(20, 60.0), set[tuple[str, int]]()
        now = 1000.0
        for _ in range(2000):
            now += chance.random()
            owner, made = chance.choice("abcdef"), int(now + chance.uniform(-60, 60))
            if used.take(owner, _name(made), float(made), now):
                assert (owner, made) not in taken
                taken.add((owner, made))
        assert len(used) <= 40
