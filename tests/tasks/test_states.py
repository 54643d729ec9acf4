"""The table of moves, tried out: whatever is done to a task in whatever order, the laws hold."""

import copy
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ekiden.errors import IllegalMove, LostClaim
from ekiden.tasks import moves
from ekiden.tasks.moves import Ending, Suspension
from ekiden.tasks.record import Question, TaskRecord
from ekiden.tasks.states import FINAL, MOVES, Move, State, move
from ekiden.testing.task_contract import new_record

STATES: tuple[State, ...] = get_args(State)
ALL_MOVES: tuple[Move, ...] = get_args(Move)


def test_the_table_names_only_states_and_moves_that_there_are() -> None:
    assert {state for state, _ in MOVES} | set(MOVES.values()) == set(STATES)
    assert {what for _, what in MOVES} == set(ALL_MOVES)


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("what", ALL_MOVES)
def test_what_is_not_in_the_table_is_refused(state: State, what: Move) -> None:
    if (state, what) in MOVES:
        assert move(state, what) == MOVES[state, what]
    else:
        with pytest.raises(IllegalMove) as caught:
            move(state, what)
        assert (caught.value.state, caught.value.move) == (state, what)


@pytest.mark.parametrize("state", sorted(FINAL))
def test_a_final_state_is_never_left(state: State) -> None:
    assert not any(before == state for before, _ in MOVES)


def test_every_state_leads_to_an_end() -> None:
    reached: set[str] = set(FINAL)
    for _ in STATES:
        reached |= {before for (before, _), after in MOVES.items() if after in reached}
    assert reached == set(STATES)


class World:
    """One task, and all that anybody may try to do to it."""

    def __init__(self) -> None:
        self.record = new_record()
        self.now = 1000.0
        self.keys: list[str] = []
        """Every key that was ever put, in order."""

    def attempt(self, action: str, fence: int, choice: int) -> None:
        before = copy.deepcopy(self.record)
        try:
            self._do(action, fence, choice)
        except (LostClaim, IllegalMove):
            assert self.record == before, f"{action} was refused and changed something"
        self._check(before, action, fence)

    def _do(self, action: str, fence: int, choice: int) -> None:  # noqa: C901  one case for each move
        record, now = self.record, self.now
        name = f"q{choice % 2}"
        put = Question(name, record.asked.get(name, 0) + 1, "digest", {"method": "roots/list"})
        leaves = Suspension(asked=(put,), wake=now + 5 if choice % 3 == 0 else None)
        ending = Ending(result=b"{}") if choice % 2 else Ending(error=b"{}")
        match action:
            case "claim":
                moves.claim(record, now=now, lease=10.0)
            case "publish":
                moves.publish(record, fence, leaves, now=now)
                self.keys.append(put.key)
            case "suspend":
                was = record.state
                moves.suspend(record, fence, leaves, now=now)
                self.keys += [put.key] if was != "waiting" else []
            case "release":
                moves.release(record, fence, now=now)
            case "finish":
                moves.finish(record, fence, ending, now=now)
            case "stop":
                moves.stop(record, fence, now=now, lease=10.0, tidy=bool(choice % 2))
            case "tidied":
                moves.tidied(record, fence)
            case "answer":
                moves.answer(record, dict.fromkeys([*record.questions][: choice % 3], 1), now=now)
            case "cancel":
                moves.cancel(record, now=now, tidy=bool(choice % 2))
            case "expire":
                moves.expire(record, b"{}", now=now, message="over")
            case "give_up":
                tidy = bool(choice % 2)
                moves.give_up(record, fence, b"{}", now=now, lease=10.0, tidy=tidy, message="died")
            case _:
                self.now += choice

    def _check(self, before: TaskRecord, action: str, fence: int) -> None:
        after = self.record
        assert after.state in STATES
        if before.state != after.state:
            assert before.state not in FINAL
            assert not before.final or after.status == before.status
        assert after.fence >= before.fence
        if action in OWNERS and fence != before.fence:
            assert after == before, "a lost claim was good enough"
        if after.final:
            assert after.questions == {}
        assert len(self.keys) == len(set(self.keys)), "a key was used twice"
        assert (after.state == "completed") == (after.result is not None)
        assert (after.status == "failed") == (after.error is not None)
        if after.state in ("queued", "running", "stopping", "tidying", "failing"):
            assert after.due is not None, "nobody would ever look at it again"
        if after.state in FINAL:
            assert after.due is None


OWNERS = ["publish", "suspend", "release", "finish", "stop", "give_up", "tidied"]
ACTIONS = ["claim", *OWNERS, "answer", "cancel", "expire"]


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from([*ACTIONS, "wait"]), st.integers(-1, 0), st.integers(0, 30)), max_size=60
    )
)
def test_the_laws_hold_whatever_is_done(script: list[Any]) -> None:
    world = World()
    for action, behind, choice in script:
        world.attempt(action, world.record.fence + behind, choice)
