import re
from collections.abc import Iterator

import pytest

from tests.inside.processes import HOSTS, HostProcesses, running

FAULT = re.compile(r"Traceback|never awaited|was never retrieved|Exception in callback")


@pytest.fixture(
    scope="module", params=[pytest.param(host, marks=pytest.mark.xdist_group(host)) for host in HOSTS]
)
def host(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostProcesses]:
    """A host in a process of its own. A fault in its log is a fault, also if no client saw it."""
    with running(request.param, tmp_path_factory.mktemp(request.param)) as processes:
        yield processes
    assert not FAULT.search(processes.logs()), processes.logs()
