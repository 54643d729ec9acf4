"""The section on calls of many rounds: what a replay costs, and whether long calls stay cheap."""

from dataclasses import dataclass
from statistics import median
from typing import Final

from bench.cells import FEW, Setup
from bench.measure import Plan
from bench.script import run_client, run_script
from bench.servers import cores, running
from bench.verdict import Tell, Verdict, at_most, spread, table

_EFFECT_US: Final = 10.0
"""A replayed effect takes at most this."""
_GROWTH: Final = 2.0
"""A round of a call of 100 rounds takes at most this many times one of a call of 10."""
_SHORT: Final = 10
_LONG: Final = 100


@dataclass(frozen=True)
class Replay:
    """What was found."""

    ask_us: list[float]
    step_us: list[float]
    round_us: list[float]
    """As `ask_us`, with all that a round does besides: its token opened, its JSON read."""
    token_bytes: list[int]
    """The size of the token, by round."""
    short: list[float]
    """Seconds per round of a short call, turn by turn."""
    long: list[float]

    def verdicts(self) -> list[Verdict]:
        growth = [long / short for long, short in zip(self.long, self.short, strict=True)]
        return [
            _judge_effect("replayed ask", self.ask_us),
            _judge_effect("replayed step", self.step_us),
            Verdict("replayed ask, its part of the token included", f"{spread(self.round_us)} us"),
            at_most(f"a round of {_LONG}, client and server", growth, f"a round of {_SHORT}", _GROWTH),
            Verdict("token growth", f"{self.bytes_per_answer:.0f} bytes per answer"),
        ]

    @property
    def bytes_per_answer(self) -> float:
        return (self.token_bytes[-1] - self.token_bytes[0]) / (len(self.token_bytes) - 1)

    def render(self) -> str:
        rows = [
            (str(rounds), f"{median(seconds) * 1e3:.2f}", f"{self.token_bytes[rounds - 1]:,}")
            for rounds, seconds in ((_SHORT, self.short), (_LONG, self.long))
        ]
        return (
            "Replay: the price of an effect is the slope from 10 to 110 of them, in CPU time inside one "
            "process. Calls of many rounds go over HTTP, ekiden's client to ekiden's server, each on a core "
            "of its own; wall time.\n\n" + table(("rounds", "ms per round", "bytes of the last token"), rows)
        )


def _judge_effect(what: str, found: list[float]) -> Verdict:
    return Verdict(what, f"{spread(found)} us", f"at most {_EFFECT_US:.0f} us", median(found) <= _EFFECT_US)


def measure_replay(plan: Plan, tell: Tell) -> Replay:
    """Measure the section."""
    found = run_script("ekiden", "bench.replay", str(plan.repeats))
    short: list[float] = []
    long: list[float] = []
    with running(Setup("ekiden", ("--tools", str(FEW))), cores()[0]) as server:
        for turn in range(plan.repeats):
            work = ("--rounds", str(_SHORT), str(_LONG), "--calls", "20", "2")
            taken = run_client("ekiden", server, *work)["taken"]
            short.append(median(taken[str(_SHORT)]) / _SHORT)
            long.append(median(taken[str(_LONG)]) / _LONG)
            figures = f"{short[-1] * 1e3:8.2f} ms {long[-1] * 1e3:8.2f} ms"
            tell(f"replay {turn + 1}/{plan.repeats} a round of {_SHORT}, of {_LONG} {figures}")
    return Replay(
        found["ask_us"], found["step_us"], found["round_us"], found["token_bytes"], short=short, long=long
    )
