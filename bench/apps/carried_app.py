"""`ekiden run`, as a user starts it, with the file of a server of another SDK."""

import sys

from ekiden.cli.main import main as ekiden


def main() -> None:
    port, file = sys.argv[1:]
    sys.argv = ["ekiden", "run", file, "--port", port]
    ekiden()


if __name__ == "__main__":
    main()
