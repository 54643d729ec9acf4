"""Makes the pictures of `docs/how-to/dev.md` again: `python -m tests.browser.pictures_of_dev`."""

import tempfile
from contextlib import ExitStack
from pathlib import Path

from scripts.chromium import running_chromium
from tests.browser.developing import ROOT, Page
from tests.cli.developing.running import developing

PICTURES = ROOT / "docs" / "pictures"


def main() -> None:
    PICTURES.mkdir(exist_ok=True)
    server = (ROOT / "examples" / "relay.py").read_text()
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        browser = stack.enter_context(running_chromium())
        with developing(Path(folder), server=server) as dev:
            page = Page(browser, dev)
            page.type("/city", "Hakone")
            page.press("Call")
            page.see("Seats in the")
            page.look(PICTURES / "dev-asked.png", 1040, dark=False)
            page.look(PICTURES / "dev-phone.png", 380, dark=True)

            page.press("Answer")
            page.see("Pay 240")
            page.pick("/pay", "true")
            page.press("Answer")
            page.see("Result")
            dev.file.write_text(server.replace("async def", "async def oops def", 1))
            page.see("SyntaxError")
            page.look(PICTURES / "dev-mistake.png", 1040, dark=False)


if __name__ == "__main__":
    main()
