"""Plays many seeds: `--seeds 1000`; or one, with all that its calls came to: `--seed 17`.

What the client sends must be valid by the official types, as in the tests.
"""

import argparse
import asyncio
import collections
import logging
import time

from tests.official import sent

from .play import Broken, play


def _played(seed: int) -> list[str]:
    sent.wrong.clear()
    ends = asyncio.run(play(seed))
    if sent.wrong:
        raise Broken(f"seed {seed}: {sent.wrong[0]}")
    return ends


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--seconds", type=float, default=600.0, help="Stop after this time.")
    parser.add_argument("--verbose", action="store_true", help="Say which seed is being played.")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    sent.watch()
    if options.seed is not None:
        print("\n".join(_played(options.seed)))
        return
    ends: collections.Counter[str] = collections.Counter()
    broken: list[str] = []
    began, played = time.monotonic(), 0
    for seed in range(options.first, options.first + options.seeds):
        if time.monotonic() - began > options.seconds:
            break
        played += 1
        if options.verbose:
            print(f"seed {seed}", flush=True)
        try:
            ends.update(_played(seed))
        except Broken as error:
            broken.append(str(error))
            print(error, flush=True)
    print(f"{played} seeds, {sum(ends.values())} calls, {len(broken)} broken")
    for end, count in sorted(ends.items()):
        print(f"  {count:5} {end}")
    raise SystemExit(1 if broken else 0)


if __name__ == "__main__":
    main()
