"""What every store of tasks must do, as tests: inherit, say how a store is opened, and let pytest collect it.

    class TestMyStore(TaskStoreContract):
        @asynccontextmanager
        async def opened(self):
            yield MyStore(...).tasks, MyStore(...).tasks

Needs a runner that awaits async tests, such as pytest-asyncio in its auto mode.
"""

from ekiden.testing.task_contract.claiming import ClaimingContract
from ekiden.testing.task_contract.keeping import KeepingContract
from ekiden.testing.task_contract.legs import LegsContract
from ekiden.testing.task_contract.records import new_record

__all__ = ["TaskStoreContract", "new_record"]


class TaskStoreContract(KeepingContract, ClaimingContract, LegsContract):
    """All tests of the contract. Say in `opened` how two processes would open one empty store."""
