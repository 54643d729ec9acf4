"""What failed once must not fail again."""

import pytest

from tests.simulation.case import happen
from tests.simulation.kept import KEPT
from tests.simulation.oracle import judge
from tests.simulation.shrink import explain


@pytest.mark.parametrize("name", KEPT)
def test_a_case_that_failed_once_holds_every_law(name: str) -> None:
    program, setting = KEPT[name]
    for seed in range(6):
        happened = happen(seed, program, setting)
        violations = judge(happened)
        assert not violations, explain(happened, violations)
