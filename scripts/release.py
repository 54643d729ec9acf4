"""`make release`: builds what would be published, and tries it, and publishes nothing.

1. The newest section of the changelog is that of the version.
2. The wheel and the sdist are built twice, here and from the sdist at another place: equal bytes.
3. `twine check --strict` and `check-wheel-contents` find nothing.
4. In a clean environment of each Python that is here the wheel is installed with its extra `cli`; the smoke
   test and the demo run there, outside the repository. Then all extras that go together are installed, and
   the smoke test imports what needs them.
"""

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
TOOLS = ROOT / ".cache" / "release" / "tools" / "bin"
OUTSIDE = ("demo.py", "relay.py")
"""The demo and its server."""
HOSTS = {"fastmcp", "mcp"}
"""Extras for servers of others, which are tested in environments of their own."""


def version() -> str:
    """The one that is written in the library."""
    found = re.search(r'__version__ = "([^"]+)"', (ROOT / "src" / "ekiden" / "version.py").read_text())
    if found is None:
        raise SystemExit("src/ekiden/version.py has no version")
    return found[1]


def check_changelog(text: str, wanted: str) -> None:
    """The newest section is the version's, and has its date or says that it is not released."""
    sections = re.findall(r"^## (.+)$", text, re.MULTILINE)
    newest = sections[0] if sections else "nothing"
    if not re.fullmatch(rf"{re.escape(wanted)} \((?:unreleased|\d{{4}}-\d\d-\d\d)\)", newest):
        raise SystemExit(f"CHANGELOG.md begins with {newest!r}, and not with '{wanted} (YYYY-MM-DD)'")


def built(source: Path, into: Path) -> dict[str, str]:
    """The hashes of what is built from a folder, by name."""
    command = [str(TOOLS / "python"), "-m", "build", "--no-isolation", "--outdir", str(into), str(source)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=surroundings())
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(into.iterdir())}


def build_twice(into: Path) -> dict[str, str]:
    """The hashes of wheel and sdist, if building them somewhere else makes the same bytes."""
    shutil.rmtree(into, ignore_errors=True)
    first = built(ROOT, into)
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(next(into.glob("*.tar.gz"))) as archive:
            archive.extractall(folder, filter="data")
        (copy,) = Path(folder).iterdir()
        for file in copy.rglob("*"):
            os.utime(file, (1_700_000_000, 1_700_000_000))
        second = built(copy, Path(folder) / "again")
    if first != second:
        raise SystemExit(f"two builds differ: {first} and {second}")
    return first


def surroundings() -> dict[str, str]:
    """Ours, without what would let a build or a test see this repository."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "EKIDEN_", "VIRTUAL_"))
    }


def check_metadata(into: Path) -> None:
    """What package indexes and users would complain of."""
    files = [str(file) for file in sorted(into.iterdir())]
    subprocess.run([TOOLS / "twine", "check", "--strict", *files], check=True)
    wheels = [file for file in files if file.endswith(".whl")]
    subprocess.run([TOOLS / "check-wheel-contents", *wheels], check=True, cwd=ROOT)


def pythons() -> list[Path]:
    """One interpreter of each version that is allowed and here."""
    found: list[Path] = []
    for minor in range(11, 15):
        by_name = shutil.which(f"python3.{minor}")
        candidates = [Path(by_name)] if by_name else []
        candidates += sorted(Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/python"))
        works = [python for python in candidates if _works(python, minor)]
        found += works[:1]
    return found


def _works(python: Path, minor: int) -> bool:
    command = [str(python), "-c", "import sys, venv; print(sys.version_info[1])"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode == 0 and done.stdout.strip() == str(minor)


def extras() -> str:
    """Those that go together, as pip reads them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return ",".join(sorted(project["optional-dependencies"].keys() - HOSTS))


def try_wheel(python: Path, wheel: Path) -> list[str]:
    """Install the wheel where nothing else is, and use it there; what the smoke tests say at last."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file in ("scripts/smoke.py", *(f"examples/{part}" for part in OUTSIDE)):
            shutil.copy(ROOT / file, folder)
        subprocess.run([python, "-m", "venv", folder / "env"], check=True)
        inside = str(folder / "env" / "bin" / "python")
        smoke = [inside, "-W", "error", "smoke.py", version()]
        _install(inside, f"{wheel}[cli]")
        _run([inside, "-W", "error", "demo.py"], folder)
        said = [_run(smoke, folder)]
        _install(inside, f"{wheel}[{extras()}]")
        said.append(_run([*smoke, "--extras"], folder))
        return [text.strip().splitlines()[-1] for text in said]


def _install(python: str, wanted: str) -> None:
    pip = [python, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    limits = ["--constraint", str(ROOT / "constraints.txt")]
    subprocess.run([*pip, "install", *limits, wanted], check=True, env=surroundings())
    subprocess.run([*pip, "check"], check=True, env=surroundings())


def _run(words: list[str], folder: Path) -> str:
    done = subprocess.run(
        words,
        cwd=folder,
        env=surroundings(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(words)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def main() -> None:
    """All of it, in order. `--build-only` leaves out the environments."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--build-only", action="store_true")
    options = parser.parse_args()
    wanted, into = version(), ROOT / "dist" / "release"
    check_changelog((ROOT / "CHANGELOG.md").read_text(), wanted)
    hashes = build_twice(into)
    check_metadata(into)
    for name, digest in hashes.items():
        print(f"{digest}  {name}")
    if options.build_only:
        return
    (wheel,) = into.glob("*.whl")
    tried = pythons()
    if not tried:
        raise SystemExit("no Python from 3.11 to 3.14 is here")
    for python in tried:
        print("\n".join(try_wheel(python, wheel)), flush=True)
    missing = {f"3.{minor}" for minor in range(11, 15)} - {_named(python) for python in tried}
    print(f"Nothing was published. Not tried, since not here: {', '.join(sorted(missing)) or 'none'}.")


def _named(python: Path) -> str:
    done = subprocess.run([python, "-V"], capture_output=True, text=True, check=True)
    return ".".join(done.stdout.split()[1].split(".")[:2])


if __name__ == "__main__":
    main()
