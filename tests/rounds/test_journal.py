"""The order of a journal is the order in which a replay is told of it."""

from ekiden.rounds.journal import Entry, Journal


def of(*keys: str) -> Journal:
    return Journal.of({key: Entry("step", "", key, number) for number, key in enumerate(keys)})


def test_what_is_recorded_again_is_told_last_and_waits_for_nobody() -> None:
    journal = of("s:a", "s:b", "s:c")
    journal.add("s:a", Entry("step", "", "again", 0))
    assert list(journal.entries) == ["s:b", "s:c", "s:a"]
    assert journal.entries["s:a"].value == "again"
    assert list(journal.backlog) == list(journal.unseen) == list(journal.missing_steps()) == ["s:b", "s:c"]
    for key in ("s:d", "s:a"):
        journal.add(key, Entry("step", "", "new", 0))
    assert list(journal.save()) == list(journal.entries)[-2:] == ["s:d", "s:a"]


def test_what_something_else_came_before_is_saved_and_told_behind_it() -> None:
    journal = of("s:a", "s:b", "s:c")
    journal.add("s:d", Entry("step", "", "d", 0))
    journal.move_to_the_end(["s:b", "unknown", "s:a"])
    assert list(journal.entries) == ["s:c", "s:d", "s:b", "s:a"]
    assert list(journal.save()) == ["s:d", "s:b", "s:a"]
    assert list(journal.save()) == []


def test_a_step_is_overtaken_by_what_its_own_branch_did_later() -> None:
    entries = {
        "s:a": Entry("step", "", 1, 0),
        "a:b": Entry("answer", "", 2, 1),
        "s:c": Entry("step", "", 3, 1),
        "s:d": Entry("step", "", 4, 0),
        "s:e": Entry("step", "", 5, 1),
    }
    journal = Journal.of(entries)
    assert (journal.overtaken_step(), journal.missing_step_of(1), journal.missing_step_of(2)) == (
        None,
        "s:c",
        None,
    )
    journal.find("s:e")
    assert journal.overtaken_step() == "s:c"
    journal.find("s:c")
    assert journal.overtaken_step() is None, "a question may be left out"
    journal.find("s:d")
    assert journal.overtaken_step() == "s:a"


def test_journals_agree_if_one_has_all_of_the_other_and_drew_the_same() -> None:
    drawn = Journal.of({"d:now": Entry("draw", "", 1.0), "s:a": Entry("step", "", "x")})
    assert drawn.agrees_with({})
    assert drawn.agrees_with({"d:now": Entry("draw", "", 1.0)})
    assert drawn.agrees_with({"s:a": Entry("step", "", "another value")}), "a step is known by its name"
    assert not drawn.agrees_with({"d:now": Entry("draw", "", 2.0)})
    assert not drawn.agrees_with({"s:b": Entry("step", "", "x")})
