"""The fleet: a folder with one file for each device, and what can be done to a device.

A real fleet is behind a network; what counts here is the same. A device is in the middle of being written,
or it is not, and it remembers which step wrote it. A file is replaced as a whole, never in part.

`python devices.py 5` makes a fleet of five lamps in the folder that `FLEET` names.
"""

import asyncio
import os
import sys
import tempfile
from pathlib import Path

from pydantic import BaseModel

from ekiden import Context


class Device(BaseModel):
    """What a device knows of itself."""

    name: str
    firmware: str
    history: list[str] = []
    """Every firmware that was written to the end."""
    writing: str | None = None
    """The firmware that is being written. Until it is complete, the device starts the old one."""
    run: str = ""
    """The update that is writing it."""
    written_by: str = ""
    """The step that wrote its firmware."""
    faults: int = 0
    """How many times it will fail to answer. Set it in the file, to see what happens."""


class DeviceBusy(Exception):
    """Another update is writing this device."""


class DeviceSilent(Exception):
    """The device does not answer."""


def fleet() -> list[Device]:
    """All devices, by name."""
    return [load(file.stem) for file in sorted(_folder().glob("*.json"))]


def load(name: str) -> Device:
    """A device as it is now."""
    return Device.model_validate_json((_folder() / f"{name}.json").read_bytes())


def save(device: Device) -> None:
    """Replace the file of a device: whoever reads it sees the old one or the new one, also after a crash."""
    with tempfile.NamedTemporaryFile("w", dir=_folder(), prefix=".", delete=False) as new:
        new.write(device.model_dump_json(indent=2))
        new.flush()
        os.fsync(new.fileno())
    Path(new.name).replace(_folder() / f"{device.name}.json")


async def flash(name: str, firmware: str, run: str, ctx: Context) -> None:
    """Write a firmware to a device, once.

    If the process dies after the last write and before ekiden has noted the step, the step runs again with
    the same key: it finds the key on the device, and writes nothing. If the process dies in the middle, the
    device is written from the start.
    """
    device = load(name)
    if device.written_by == ctx.step_key:
        return
    if device.writing is not None and device.run != run:
        raise DeviceBusy(f"{name} is being written by another update")
    if device.faults:
        save(device.model_copy(update={"faults": device.faults - 1}))
        raise DeviceSilent(f"{name} does not answer")
    save(device.model_copy(update={"writing": firmware, "run": run}))
    await asyncio.sleep(float(os.environ.get("FLASH_SECONDS", "3")))  # The firmware goes over the wire.
    done = {"firmware": firmware, "history": [*device.history, firmware], "written_by": ctx.step_key}
    save(device.model_copy(update={**done, "writing": None, "run": ""}))


def roll_back(name: str, run: str) -> None:
    """Let go of a device that this update was writing: it goes on with its old firmware."""
    device = load(name)
    if device.run == run:
        save(device.model_copy(update={"writing": None, "run": ""}))


def runs(name: str, firmware: str) -> bool:
    """Whether a device runs this firmware."""
    device = load(name)
    return device.firmware == firmware and device.writing is None


def make_fleet(count: int) -> None:
    """Lamps with the firmware 1.0."""
    _folder().mkdir(parents=True, exist_ok=True)
    for number in range(1, count + 1):
        save(Device(name=f"lamp-{number}", firmware="1.0", history=["1.0"]))


def _folder() -> Path:
    return Path(os.environ.get("FLEET", "fleet"))


if __name__ == "__main__":
    make_fleet(int(sys.argv[1]))
