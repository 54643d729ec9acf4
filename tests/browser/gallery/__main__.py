"""Takes the pictures: all, or those of the parts that are named."""

import argparse
import asyncio
from collections.abc import Callable
from pathlib import Path

from scripts.chromium import running_chromium
from tests.browser.gallery.asking import asking
from tests.browser.gallery.camera import Camera
from tests.browser.gallery.operating import operating
from tests.browser.gallery.reading import reading
from tests.browser.gallery.trying import trying

PARTS: dict[str, Callable[[Camera], None]] = {
    "asking": lambda camera: asyncio.run(asking(camera)),
    "trying": trying,
    "operating": operating,
    "reading": reading,
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Pictures of every page, at three widths, light and dark.")
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="by default all")
    parser.add_argument("--pictures", type=Path, default=Path(".cache/pages"))
    parser.add_argument("--docs", action="store_true", help="also make the pictures of `see-calls.md` again")
    told = parser.parse_args()
    told.pictures.mkdir(parents=True, exist_ok=True)
    for part in told.parts or PARTS:
        print(part, flush=True)
        with running_chromium() as browser:
            PARTS[part](Camera(browser, told.pictures, Path("docs/pictures") if told.docs else None))
    print(f"The pictures are in {told.pictures}")


if __name__ == "__main__":
    main()
