"""The keys that the user gave: in `EKIDEN_KEYS`, in `EKIDEN_KEYS_FILE` or by `--keys-file`."""

import os
from pathlib import Path

__all__ = ["check_keys", "has_keys", "provide_key", "use_keys_file"]


def use_keys_file(path: Path | None) -> None:
    """Keys from the file and from nowhere else."""
    if path is not None:
        os.environ.pop("EKIDEN_KEYS", None)
        os.environ["EKIDEN_KEYS_FILE"] = str(path)


def has_keys() -> bool:
    """Whether the user gave keys."""
    return bool(os.environ.get("EKIDEN_KEYS") or os.environ.get("EKIDEN_KEYS_FILE"))


def check_keys() -> None:
    """Find out now, not at the first question, that a key cannot be used."""
    if has_keys():
        from ekiden.server.sealing.keys import find_keys

        find_keys(None)


def provide_key() -> bool:
    """Have a key in the environment, for this process and all that it starts; whether one was made."""
    if has_keys():
        return False
    from ekiden.server.sealing.keys import new_key

    os.environ["EKIDEN_KEYS"] = new_key()
    return True
