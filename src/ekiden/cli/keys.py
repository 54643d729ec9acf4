"""The keys that the user gave: in `EKIDEN_KEYS`, in `EKIDEN_KEYS_FILE` or by `--keys-file`."""

import os
from pathlib import Path

__all__ = ["check_keys", "has_keys", "provide_key", "use_keys_file"]


def use_keys_file(path: Path | None) -> None:
    """Take keys from this file only."""
    if path is not None:
        os.environ.pop("EKIDEN_KEYS", None)
        os.environ["EKIDEN_KEYS_FILE"] = str(path)


def has_keys() -> bool:
    """Whether the user gave keys."""
    return bool(os.environ.get("EKIDEN_KEYS") or os.environ.get("EKIDEN_KEYS_FILE"))


def check_keys() -> None:
    """Raise now, not at the first question, if a key cannot be used."""
    if has_keys():
        from ekiden.server.sealing.keys import find_keys

        find_keys(None)


def provide_key() -> bool:
    """Put a new key in the environment unless there are keys; True if one was made.

    All processes that this one starts get the same key.
    """
    if has_keys():
        return False
    from ekiden.server.sealing.keys import new_key

    os.environ["EKIDEN_KEYS"] = new_key()
    return True
