"""Faults: what goes wrong in a world, as data. A schedule is a list of them; each can be left out alone."""

from dataclasses import dataclass, replace
from random import Random

__all__ = ["Fault", "Setting", "draw_setting"]

LEASE = 3.0
"""Seconds that a claim lasts without a sign of life."""

BY_REQUEST = (
    "drop",
    "double",
    "leave",
    "late",
    "nonsense",
    "unfit",
    "stranger",
    "partial",
    "partial",
    "blind",
)
"""The reply is lost; the request comes twice; the client goes away and comes back; it answers late, with
what is no answer, with what breaks the form, with a key that nobody asked, with a part;
it says that it cannot be asked."""
HARMLESS = ("late", "unfit", "stranger", "partial")
"""Those of them after which no round is repeated."""
BY_STORE = ("store_before", "store_after", "store_slow", "store_away", "renewal")
"""`StoreUnavailable` before the call took effect, or after; a slow call; a store that is away for a while; a
renewal that fails."""
LATE_CLAIM = "claim_late"
"""A claim took effect, and its worker hears of that much later: its event loop was busy."""
STALLS = ("blocked", "frozen", "blocked_step")
"""An event loop stands still, and a thread of its process renews the leases; a whole process stands still:
both with a request to the store on its way, or its reply. And a step that blocks its event loop."""
CRASHES = ("crash_store_before", "crash_store_after", "crash_begin", "crash_end")
"""A worker dies around a call to its store, or when an effect begins or ends."""
HALFWAY = ("cut", "crash_halfway")
"""On a database: while a worker's request is on its way all its connections break, or it dies."""
DEPLOYS = ("more", "front", "between", "removed", "changed", "renamed", "twin")
"""A new version asks one more question at the end, in front or in between; a step is gone, has another
argument, another name, or comes after one of another module that has the same name and the same arguments."""
BAD_DEPLOYS = DEPLOYS[3:]
AFTERWARDS = ("again", "fork")
"""When all is over the client repeats a round, with the same answers or with others."""


@dataclass(frozen=True)
class Fault:
    """Something that goes wrong the `at`-th time that it can. `HALFWAY` counts answers instead of seconds."""

    kind: str
    at: int
    seconds: float = 0.0


@dataclass(frozen=True)
class Setting:
    """The world of a seed: how the program is run, by whom, and what goes wrong."""

    mode: str
    store: str = "none"
    workers: int = 1
    options: tuple[tuple[str, object], ...] = ()
    faults: tuple[Fault, ...] = ()
    skews: tuple[float, ...] = (0.0, 0.0, 0.0)
    latency: float = 0.0
    """Seconds that the store takes for everything."""
    pace: float = 1.0
    """How much longer than usual a step takes."""

    def has(self, *kinds: str) -> bool:
        return any(fault.kind in kinds for fault in self.faults)


def draw_setting(seed: int, mode: str, store: str = "") -> Setting:
    """The world of a seed in one mode; with `store` on this one, where rounds and tasks may have several."""
    rng = Random(f"world {mode} {store} {seed}" if store else f"world {mode} {seed}")
    if mode == "push":
        return Setting("push")
    if mode == "parked":
        kinds = [kind for kind in BY_REQUEST if kind not in ("drop", "double", "leave", "blind")]
        return Setting("parked", options=(("resume", "parked"),), faults=_some(rng, kinds, 2))
    if mode == "tasks":
        store = store or rng.choice(("memory", "memory", "memory", "sqlite"))
        task = rng.choice(("required", "deferred"))
        kinds = [*(kind for kind in BY_REQUEST if kind != "blind"), *BY_STORE, *BY_STORE, *CRASHES]
        deploys = DEPLOYS[: rng.choice((3, 7))]
        kinds += [*deploys, *deploys, *_own_faults(store)]
        faults = _over_time(_some(rng, kinds, 4))
        options = (("task", task),)
        drawn = Setting("tasks", store, rng.randint(1, 3), options, faults, _skews(rng), _latency(rng))
        return _with_stall(_with_late_claim(_with_pace(drawn), seed), seed)
    store = store or rng.choice(("none", "memory", "memory", "memory", "memory", "sqlite"))
    if store == "none":
        # A new process has none of the memory of the old one: there, nothing may be repeated.
        kinds = [*HARMLESS, *DEPLOYS] if rng.random() < 0.5 else [*BY_REQUEST, *AFTERWARDS, *AFTERWARDS]
        return Setting("rounds", faults=_some(rng, kinds, 3))
    kinds = [
        *BY_REQUEST,
        *BY_STORE,
        *BY_STORE,
        *CRASHES,
        *CRASHES,
        *AFTERWARDS,
        *AFTERWARDS,
        *DEPLOYS[: rng.choice((3, 7))],
        *_own_faults(store),
    ]
    options = (("once", True),) if rng.random() < 0.2 else ()
    faults = _some(rng, kinds, 4)
    drawn = Setting("rounds", store, rng.randint(1, 3), options, faults, _skews(rng), _latency(rng))
    return _with_stall(_with_late_claim(_with_pace(drawn), seed), seed)


def _over_time(faults: tuple[Fault, ...]) -> tuple[Fault, ...]:
    """Who waits for a task looks every moment: deploys come at later requests."""
    return tuple(replace(f, at=3 * f.at - 2) if f.kind in DEPLOYS else f for f in faults)


def _own_faults(store: str) -> list[str]:
    return [*HALFWAY, *HALFWAY, *HALFWAY] if store == "postgres" else []


def _with_pace(setting: Setting) -> Setting:
    """Where renewals fail, steps take longer than a lease, and a request that comes meanwhile comes again."""
    if not setting.has("renewal"):
        return setting
    again = Fault("double", 2 + len(setting.faults) % 2, 5.0)
    return replace(setting, faults=(*setting.faults, again), pace=12.0)


def _with_late_claim(setting: Setting, seed: int) -> Setting:
    """In one world of six a claim is heard of late, and a request comes twice."""
    rng = Random(f"late claim {setting.mode} {seed}")
    if rng.random() > 1 / 6:
        return setting
    late = Fault(LATE_CLAIM, rng.randint(1, 2), rng.choice((LEASE / 2, 1.2 * LEASE, 2 * LEASE, 3 * LEASE)))
    double = Fault("double", rng.randint(1, 3), rng.choice((0.4, 1.5)))
    return replace(setting, faults=(*setting.faults, late, double))


def _with_stall(setting: Setting, seed: int) -> Setting:
    """In one world of six workers stand still, and a request comes twice. Sockets cannot stand still."""
    rng = Random(f"stall {setting.mode} {seed}")
    if setting.store == "postgres" or rng.random() > 1 / 6:
        return setting
    stalls = tuple(_fault(rng, rng.choice(STALLS)) for _ in range(rng.randint(1, 3)))
    double = Fault("double", rng.randint(2, 3), rng.choice((0.1, 0.4, 1.5)))
    workers, pace = max(setting.workers, rng.choice((2, 3))), rng.choice((setting.pace, 4.0))
    return replace(setting, workers=workers, faults=(*setting.faults, *stalls, double), pace=pace)


def _some(rng: Random, kinds: list[str], most: int) -> tuple[Fault, ...]:
    if rng.random() < 0.15:
        return ()
    chosen = (rng.choice(kinds) for _ in range(rng.randint(1, most)))
    return tuple(_fault(rng, kind) for kind in chosen)


def _fault(rng: Random, kind: str) -> Fault:
    if kind in BY_REQUEST:
        return Fault(kind, rng.randint(1, 5), rng.choice((0.0, 0.05, 0.4, 1.5, 5.0)))
    if kind in DEPLOYS or kind in AFTERWARDS:
        return Fault(kind, rng.randint(1, 4))
    if kind == "renewal":
        return Fault(kind, rng.randint(1, 3))
    if kind in STALLS:
        most = 4 if kind == "blocked_step" else 12
        return Fault(kind, rng.randint(1, most), LEASE * rng.choice((0.5, 0.9, 1.2, 2.0, 3.0)))
    if kind in ("crash_begin", "crash_end"):
        return Fault(kind, rng.randint(1, 4), rng.choice((0.0, 1.0, LEASE + 1)))
    if kind in HALFWAY:
        return Fault(kind, rng.randint(1, 20), float(rng.randint(1, 6)))
    return Fault(kind, rng.randint(1, 10), rng.choice((0.1, 0.7, LEASE / 2)))


def _latency(rng: Random) -> float:
    return rng.choice((0.0, 0.0, 0.003, 0.04))


def _skews(rng: Random) -> tuple[float, ...]:
    return tuple(rng.choice((0.0, 0.0, 0.2, -0.2)) for _ in range(3))
