"""For the tests: the server, in a process that is killed at the moment that `DIE` names.

`before lamp-3` is before anything of it is written, `begun lamp-2` in the middle, `written lamp-2` after
the last write, when ekiden has not noted yet that the step is done.
"""

import os
import signal

import devices
from devices import Device, save

from server import server

__all__ = ["server"]

MOMENT, NAME = os.environ["DIE"].split()


def save_and_die(device: Device) -> None:
    """Save a device, or die before, or die after."""
    here = device.name == NAME
    if not here or MOMENT != "before":
        save(device)
    if here and MOMENT in ("before", "begun" if device.writing else "written"):
        os.kill(os.getpid(), signal.SIGKILL)


devices.save = save_and_die
