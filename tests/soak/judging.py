"""What must be zero, and what must not grow."""

import itertools
import statistics
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from tests.soak.clients import Findings
from tests.soak.trouble import Trouble

__all__ = ["Verdict", "judge_steps", "quantile", "steady_growth"]

ALLOWED_GROWTH = 0.10
ALLOWED_MEGABYTES = 8.0
"""How much more memory a worker may use at the end than when it had warmed up: caches fill, arenas split."""


@dataclass
class Verdict:
    """The figures; those that must be zero by name, with what was found."""

    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    leaked: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    grown: list[str] = field(default_factory=list)
    begun_again: int = 0
    """Steps that began again under the same key, because a worker died or the store was away."""

    @property
    def is_good(self) -> bool:
        """Whether nothing was found."""
        return not (self.lost or self.doubled or self.leaked or self.foreign or self.grown)


def judge_steps(notes: Path, findings: Findings, trouble: Trouble, verdict: Verdict) -> int:
    """Look at every step that began; how many there were."""
    begun: dict[tuple[str, str], list[tuple[float, str]]] = defaultdict(list)
    for file in notes.iterdir():
        for line in file.read_text().splitlines():
            at, call, step, key = line.split()
            begun[call, step].append((float(at), key))
    for (call, step), times in begun.items():
        times.sort()
        if len({key for _, key in times}) > 1:
            verdict.doubled.append(f"{call} {step} began under {len(times)} keys")
            continue
        for (first, _), (again, _) in itertools.pairwise(times):
            verdict.begun_again += 1
            if not trouble.is_excused(first, again):
                verdict.doubled.append(f"{call} {step} began again without a reason")
    done = {call for call, _ in begun}
    asked = [call for call in findings.finished if call in findings.with_steps]
    verdict.lost += [f"{call} ended without its steps" for call in asked if call not in done]
    return sum(map(len, begun.values()))


def quantile(values: list[float], part: float) -> float:
    """The value below which that part of them is."""
    if not values:
        return 0.0
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))]


def steady_growth(samples: list[float], verdict: Verdict) -> tuple[float, float]:
    """Megabytes of a worker when it had warmed up, and at the end."""
    quarter = len(samples) // 4
    if not quarter:
        return 0.0, 0.0
    warm, last = statistics.median(samples[quarter : 2 * quarter]), statistics.median(samples[-quarter:])
    if last > warm * (1 + ALLOWED_GROWTH) + ALLOWED_MEGABYTES:
        verdict.grown.append(f"a worker grew from {warm:.0f} to {last:.0f} MB")
    return warm, last
