"""`python -m scripts.site` builds the site; `python -m scripts.site serve` builds and shows it."""

import argparse
import functools
import http.server
import json
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any, Final

from ekiden import __version__
from scripts.site import api, public
from scripts.site.assemble import DIAGRAM, assemble
from scripts.site.models import write_for_models

ROOT: Final = Path(__file__).parent.parent.parent
BUILD: Final = ROOT / ".cache" / "site"
MERMAID: Final = ROOT / ".peers" / "site" / "node_modules" / "mermaid" / "dist" / "mermaid.min.js"


def build() -> Path:
    """The folder of the built site."""
    missing = api.without_words(public.public_names(public.load()))
    if missing:
        raise SystemExit("These have no words in the reference:\n" + "\n".join(missing))
    pages, html = BUILD / "pages", BUILD / "html"
    assemble(ROOT, pages)
    if any(DIAGRAM in page.read_text() for page in pages.rglob("*.md")):
        (pages / "assets").mkdir(exist_ok=True)
        shutil.copyfile(MERMAID, pages / "assets" / "mermaid.min.js")
    settings = tomllib.loads((ROOT / "zensical.toml").read_text())["project"]
    shutil.rmtree(html, ignore_errors=True)
    shutil.copyfile(ROOT / "zensical.toml", BUILD / "zensical.toml")
    command = [str(Path(sys.executable).with_name("zensical")), "build", "--clean", "--strict"]
    built = subprocess.run(command, cwd=BUILD, check=False, capture_output=True, text=True, timeout=300)
    sys.stdout.write(built.stdout + built.stderr)
    if built.returncode != 0 or "No issues found" not in built.stdout + built.stderr:
        raise SystemExit("the site has issues")
    target = BUILD / settings["site_dir"]
    write_for_models(settings, pages, target)
    _write_versions(html, target.name)
    return html


def _write_versions(html: Path, short: str) -> None:
    """The list that the switch between versions reads, and a first page that leads to the newest."""
    versions = [{"version": short, "title": __version__, "aliases": ["latest"]}]
    (html / "versions.json").write_text(json.dumps(versions))
    (html / "index.html").write_text(
        '<!doctype html><html lang="en"><title>ekiden</title>'
        f'<link rel="icon" href="{short}/assets/images/favicon.png">'
        f'<meta http-equiv="refresh" content="0; url={short}/"><a href="{short}/">ekiden</a></html>\n'
    )


def serve(html: Path, port: int) -> None:
    """Show it until Ctrl-C."""
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=html)
    with http.server.ThreadingHTTPServer(("127.0.0.1", port), handler) as server:
        print(f"http://127.0.0.1:{server.server_port}/")
        server.serve_forever()


def main() -> None:
    """Build, and serve if that is wanted."""
    parser = argparse.ArgumentParser()
    parser.add_argument("what", nargs="?", choices=["build", "serve"], default="build")
    parser.add_argument("--port", type=int, default=8000)
    chosen: Any = parser.parse_args()
    html = build()
    if chosen.what == "serve":
        serve(html, chosen.port)


if __name__ == "__main__":
    main()
