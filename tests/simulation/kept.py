"""Cases that failed once, as small as they got: as data, so that no change of the generator loses them."""

from tests.simulation.faults import Fault, Setting
from tests.simulation.programs import Node, Program, n

__all__ = ["KEPT"]


_PLAIN = Setting("rounds", "memory")


def _in(body: Node, setting: Setting = _PLAIN) -> tuple[Program, Setting]:
    return Program(n("seq", 99, *(body.parts if body.kind == "seq" else (body,)))), setting


def _faults(
    *faults: Fault, mode: str = "rounds", store: str = "memory", pace: float = 1.0, **more: object
) -> Setting:
    return Setting(mode, store, options=tuple(more.items()), faults=faults, pace=pace)


_ASK = n("ask", 90, form="str")
_SLOW = {"value": "text", "seconds": 2.53}

KEPT: dict[str, tuple[Program, Setting]] = {
    "a step that nested timeouts cut does not begin again": _in(
        n("seq", 1, n("scope", 2, n("step", 3, on_cut="slow", **_SLOW), style="nested", seconds=1.7), _ASK)
    ),
    "a step that move_on_after cuts does not begin again": _in(
        n("seq", 1, n("scope", 2, n("step", 3, **_SLOW), style="move_on", seconds=1.7), _ASK)
    ),
    "a step that fail_after cuts does not begin again": _in(
        n("seq", 1, n("scope", 2, n("step", 3, **_SLOW), style="fail_after", seconds=1.7), _ASK)
    ),
    "a step that swallows its cancellation stays cut": _in(
        n(
            "seq",
            1,
            n("scope", 2, n("step", 3, on_cut="swallow", **_SLOW), style="timeout", seconds=1.7),
            _ASK,
        )
    ),
    "what a step returned is not changed by the handler": _in(
        n("seq", 1, n("step", 2, value="dict", seconds=0.0), n("mutate", 3), _ASK)
    ),
    "what a step is given is not changed by the step": _in(n("seq", 1, n("consume", 2), _ASK)),
    "a client that cannot be asked does not begin a step again": _in(
        n(
            "seq",
            1,
            _ASK,
            n("gather", 2, n("step", 3, value="text", seconds=7.3), n("ask", 4, form="sample")),
        ),
        _faults(Fault("blind", 2), store="none"),
    ),
    "a branch that fails leaves no claim behind": _in(
        n(
            "gather",
            1,
            n("seq", 2, n("ask", 3, form="str"), n("raise", 4, loud=True)),
            n("seq", 5, n("ask", 6, form="sample"), n("step", 7, value="text", seconds=0.0)),
        ),
        Setting("rounds"),
    ),
    "an error of the store in a renewal does not end the renewals": _in(
        n("seq", 1, _ASK, n("step", 2, value="text", seconds=1.07)),
        _faults(Fault("renewal", 2), Fault("double", 2, 5.0), pace=12.0),
    ),
    "a claim that was heard of too late is not used": _in(
        n("seq", 1, _ASK, n("step", 2, value="text", seconds=0.31)),
        Setting("rounds", "sqlite", 3, faults=(Fault("claim_late", 1, 9.0), Fault("double", 2, 0.4))),
    ),
    "a handler is not run for a task whose claim was heard of too late": _in(
        n(
            "seq",
            1,
            n("background", 2),
            _ASK,
            n("draw", 3, what="uuid"),
            n("step", 4, value="text", seconds=0.0),
        ),
        Setting("tasks", "memory", 2, (("task", "deferred"),), (Fault("claim_late", 1, 9.0),)),
    ),
    "a commit that fails is nothing that a handler sees": _in(
        n("seq", 1, _ASK, n("attempt", 2, n("step", 3, value="text", seconds=0.0))),
        _faults(Fault("store_away", 2, 0.7)),
    ),
    "no after a charged yes is refused": _in(
        n("choice", 6, n("step", 2, value="text", seconds=0.0), n("pass", 5)), _faults(Fault("fork", 3))
    ),
    "a reply belongs to its history": _in(
        n(
            "seq",
            1,
            _ASK,
            n("ask", 2, form="str"),
            n("ask", 3, form="sample", keyed=True),
            n("step", 8, value="text"),
        ),
        _faults(Fault("fork", 1)),
    ),
    "as_completed keeps its order": _in(n("each", 1, n("pass", 2), n("ask", 3, form="str"))),
    "the first to complete is the first in every round": _in(
        n("seq", 1, n("first", 2, n("step", 3, **_SLOW), n("step", 4, value="text", seconds=0.31)), _ASK)
    ),
    "a queue keeps its order": _in(
        n("queue", 1, n("ask", 2, form="str"), n("step", 3, value="text", seconds=0.0))
    ),
    "a group with a failing sibling replays": _in(
        n(
            "seq",
            1,
            n("failing", 2, n("seq", 3, n("sleep", 4, seconds=0.23), n("raise", 5)), n("step", 6, **_SLOW)),
            _ASK,
        )
    ),
    "ids that are drawn in branches stay where they are": _in(
        n(
            "gather",
            1,
            n("seq", 2, n("ask", 3, form="str"), n("draw", 4, what="uuid")),
            n("draw", 5, what="uuid"),
        )
    ),
    "a value that cannot be kept is not made again": _in(
        n("seq", 1, n("step", 2, value="big", seconds=0.0), _ASK)
    ),
    "a value that breaks its annotation is not made again": _in(
        n("seq", 1, n("step", 2, value="wrong", seconds=0.0), _ASK)
    ),
    "a handler that ends while it is parked is heard": _in(
        n("scope", 1, n("ask", 2, form="str"), style="timeout", seconds=0.5),
        _faults(Fault("late", 2, 1.5), mode="parked", store="none", resume="parked"),
    ),
    "what on_complete raises does not undo the result": _in(n("afterwards", 1, fails=True)),
    "what on_complete did before a crash is known": _in(
        n("seq", 1, n("afterwards", 2, fails=True), n("background", 3)),
        _faults(Fault("crash_store_before", 8, 1.5), mode="tasks", task="deferred"),
    ),
    "progress after a checkpoint is told": _in(
        n("seq", 1, n("checkpoint", 2), n("progress", 3)), Setting("rounds")
    ),
    "an argument that a deploy changed is refused": _in(
        n("seq", 1, n("step", 2, value="text", seconds=0.0), _ASK), _faults(Fault("changed", 2))
    ),
    "a step that a deploy renamed is refused": _in(
        n("seq", 1, n("step", 2, value="text", seconds=0.0), _ASK), _faults(Fault("renamed", 2))
    ),
    "a step of another module is another step": _in(
        n("seq", 1, n("step", 2, value="text", seconds=0.0), _ASK), _faults(Fault("twin", 2))
    ),
    "nothing is run in place of a step that is gone": _in(
        n(
            "seq",
            1,
            n("step", 2, value="text", seconds=0.0),
            n("ask", 3, form="roots"),
            n("step", 6, value="text", seconds=0.0),
            _ASK,
        ),
        _faults(Fault("removed", 2)),
    ),
    "a contested round leaves no event behind": _in(
        n("seq", 1, _ASK, n("step", 2, **_SLOW)),
        Setting("rounds", "memory", 2, faults=(Fault("double", 2, 5.0),), pace=12.0),
    ),
    "a checkpoint in a branch is not one of the handler's own task": _in(
        n(
            "seq",
            1,
            _ASK,
            n(
                "queue",
                2,
                n("seq", 3, n("checkpoint", 4), n("step", 5, **_SLOW)),
                n("ask", 6, form="roots", keyed=True),
                n("pass", 7),
            ),
        ),
        _faults(Fault("crash_store_after", 5)),
    ),
    "a branch that was left behind is not what on_complete does": _in(
        n(
            "gather",
            1,
            n(
                "seq",
                2,
                n("ask", 3, form="sample"),
                n("afterwards", 4),
                n("afterwards", 5),
                n("raise", 6, loud=True),
            ),
            n("seq", 7, n("ask", 8, form="str"), n("step", 9, **_SLOW)),
        ),
        _faults(Fault("crash_begin", 3, 1.0), pace=12.0),
    ),
    "what a handler was told before it is stopped is kept": _in(
        n(
            "seq",
            1,
            _ASK,
            n(
                "gather",
                2,
                n("seq", 3, n("ask", 4, form="bool"), n("ask", 5, form="bool")),
                n("sleep", 6, seconds=0.71),
            ),
        ),
        Setting("tasks", "memory", options=(("task", "required"),), faults=(Fault("twin", 7),), latency=0.1),
    ),
    "what comes after a new question is told in the order of old": _in(
        n(
            "gather",
            1,
            n("group", 2, n("step", 3, value="text", seconds=0.0)),
            n("seq", 4, n("ask", 5, form="bool"), n("ask", 6, form="roots", keyed=True)),
        ),
        _faults(Fault("front", 4), mode="tasks", task="required"),
    ),
    "what comes after a new question is not taken for gone": _in(
        n(
            "group",
            1,
            n("queue", 2, n("pass", 3), n("pass", 4), n("pass", 5)),
            n("seq", 6, n("step", 7, value="text", seconds=1.07), n("step", 8, value="text", seconds=0.0)),
        ),
        _faults(Fault("front", 4), mode="tasks", task="required"),
    ),
    "two new questions are asked before a step that was done": _in(
        n("step", 1, value="text", seconds=7.3),
        _faults(Fault("front", 7), Fault("front", 10), mode="tasks", task="required"),
    ),
    "an answer that is there waits until all branches are at rest": _in(
        n(
            "seq",
            1,
            n("background", 2),
            n(
                "group",
                3,
                n("attempt", 4, n("seq", 5, n("pass", 6), n("raise", 7))),
                n("ask", 8, form="bool"),
            ),
        ),
        _faults(mode="tasks", task="deferred"),
    ),
    "a worker that has stopped asks its store nothing more": _in(
        n("step", 1, value="text", seconds=7.3),
        Setting("tasks", "memory", options=(("task", "required"),), faults=(Fault("more", 7),), latency=0.04),
    ),
    "what a branch that was left behind did may come late": _in(
        n(
            "seq",
            1,
            _ASK,
            n(
                "gather",
                2,
                n("seq", 3, n("step", 4, value="text", seconds=0.0), n("raise", 5, loud=True)),
                n(
                    "seq",
                    6,
                    n("first", 7, n("afterwards", 8), n("step", 9, thread=True, **_SLOW), n("pass", 10)),
                    n("step", 11, value="text", seconds=0.0),
                ),
            ),
        ),
        _faults(Fault("crash_store_before", 8)),
    ),
    "what is told in the pass in which a scope fires is heard before the cut": (
        Program(
            n(
                "seq",
                35,
                n("background", 34),
                n("ask", 1, form="bool", keyed=True),
                n("ask", 6, form="bool"),
                n("ask", 7, form="str"),
                n(
                    "group",
                    33,
                    n(
                        "seq",
                        28,
                        n(
                            "scope",
                            9,
                            n("step", 8, value="text", seconds=2.53),
                            style="fail_after",
                            seconds=0.5,
                        ),
                        n("ask", 10, form="sample", keyed=True),
                    ),
                    n("ask", 31, form="sample", keyed=True),
                ),
            )
        ),
        Setting(
            mode="tasks",
            store="sqlite",
            workers=2,
            options=(("task", "deferred"),),
            faults=(Fault("store_away", 5, 0.7), Fault("double", 2, 5.0)),
            latency=0.04,
            pace=12.0,
        ),
    ),
    "a replay is not refused because its event loop was blocked": _in(
        n(
            "seq",
            1,
            n("scope", 2, n("step", 3, value="text", seconds=9.7), style="timeout", seconds=0.5),
            n("ask", 4, form="roots", keyed=True),
            n("step", 5, value="text", seconds=0.0),
        ),
        _faults(Fault("blocked_step", 2, 9.0), Fault("double", 2, 0.4), pace=4.0),
    ),
    "a worker that dies while it starts is replaced": _in(
        n("seq", 1, _ASK), _faults(Fault("crash_store_after", 1, 0.1), store="sqlite")
    ),
    "a worker that dies while it starts loses no task": _in(
        n("seq", 1, n("background", 2), _ASK),
        _faults(Fault("crash_store_before", 1, 0.7), mode="tasks", store="sqlite", task="deferred"),
    ),
    "what a frozen leg drew and never recorded may differ, and so does the order of its branches": (
        Program(
            n(
                "seq",
                29,
                n("background", 28),
                n("step", 1, value="text", seconds=0.0),
                n("each", 7, n("pass", 5), n("draw", 6, what="uuid")),
            )
        ),
        Setting(
            mode="tasks",
            store="memory",
            workers=2,
            options=(("task", "deferred"),),
            faults=(Fault("frozen", 12, 9.0),),
            latency=0.003,
            pace=12.0,
        ),
    ),
}
