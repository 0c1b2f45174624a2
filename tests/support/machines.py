"""Machines of organisations that do not trust each other: Unix users, homes, and network namespaces of their own.

Only root can make them. Where it may not make network namespaces, all machines are on loopback. A machine runs the
croupier of the checkout, or of an environment in which a wheel is installed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.support.command_line import Said

_CHECKOUT = Path(__file__).parents[2]
_FIRST_USER = 61_000
"""Users need no entry in /etc/passwd; distributions give such numbers to nobody."""
_SERVE = (
    "import croupier.deploy.node.versions as versions; versions.EVERY_S = 0.5; from croupier.cli import main; main()"
)
"""The command line, whose services ask each other for new versions twice a second instead of once a minute."""


def steps(page: Path) -> Iterator[tuple[str, str]]:
    """Yields the machine and the command of every step of a page, whose blocks begin with the name of a machine."""
    for block in re.findall(r"```sh\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
        first, *commands = block.splitlines()
        for line in commands:
            yield first.removeprefix("# "), line


@dataclass(frozen=True)
class Machine:
    """One machine, with the one user who works on it.

    Attributes:
        user: the number of the user and of its group.
        home: the folder that only this user may enter.
        enter: the command that runs another one in the machine's namespaces.
        isolated: whether the machine has a network namespace, and is reached by the name of its home alone.
        environment: the folder of the Python environment whose croupier the machine runs.
    """

    user: int
    home: Path
    enter: tuple[str, ...]
    isolated: bool
    environment: Path

    def command(self, *words: str) -> list[str]:
        """Returns a command as its user runs it on this machine: without any of root's capabilities."""
        as_user = ["setpriv", f"--reuid={self.user}", f"--regid={self.user}", "--clear-groups"]
        as_user += ["--inh-caps=-all", "--bounding-set=-all", "--no-new-privs"]
        return [
            *self.enter,
            "sh",
            "-ec",
            _mounts(self.home.parent, self.environment) + 'exec "$@"',
            "sh",
            *as_user,
            *words,
        ]

    def run(self, *words: str, expect: int | None = 0, typed: str = "") -> Said:
        """Runs a command in the user's home; the first word may be croupier."""
        how = {"cwd": self.home, "env": self.variables, "input": typed}
        done = subprocess.run(self.command(*words), **how, capture_output=True, text=True, timeout=300, check=False)  # type: ignore[call-overload]
        assert expect in (None, done.returncode), f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return Said(done.stdout, done.stderr)

    @contextmanager
    def serving(self, name: str, log: Path) -> Iterator[None]:
        """Runs `croupier serve` from when it is ready until the end of the block."""
        words = (str(self.environment / "bin" / "python"), "-c", _SERVE, "serve", name, "--dir", "study")
        with log.open("w") as errors:
            pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": errors}
            process = subprocess.Popen(self.command(*words), cwd=self.home, env=self.variables, **pipes)  # type: ignore[call-overload]
        with process:
            try:
                assert b"ready" in process.stdout.readline(), log.read_text(encoding="utf-8")
                yield
                process.terminate()
                assert process.wait(60) == 0, log.read_text(encoding="utf-8")
            finally:
                process.kill()  # does nothing to a program that has ended

    @property
    def variables(self) -> Mapping[str, str]:
        """The user's environment variables: nothing of the test's but where programs are."""
        return {"HOME": str(self.home), "PATH": f"{self.environment / 'bin'}:{os.environ['PATH']}"}

    def receive(self, source: Path, target: str) -> None:
        """Has a file arrive as with scp: it belongs to this machine's user."""
        goal = self.home / target
        goal = goal / source.name if target.endswith("/") else goal
        shutil.copyfile(source, goal)
        os.chown(goal, self.user, self.user)

    def replace(self, former: Machine) -> None:
        """Takes over all files of another machine, which has none from then on."""
        for entry in former.home.iterdir():
            shutil.move(entry, self.home)
        for file in (self.home, *self.home.rglob("*")):
            os.chown(file, self.user, self.user)

    def files(self) -> list[Path]:
        """Returns every file on this machine that is not part of the system."""
        return [file for file in self.home.rglob("*") if file.is_file()]


def _mounts(place: Path, environment: Path) -> str:
    """Returns shell commands after which a user can run an environment, also where it lies in a folder of root alone.

    They change the machine's own mount namespace: in place of the folder is an empty one, with nothing but Python and
    the environment in it, and the checkout if the environment is the checkout's.
    """
    script, stage = "", place / "mounts"
    needed = {Path(sys.base_prefix), environment} | ({_CHECKOUT} if environment == Path(sys.prefix) else set())
    closed = {
        next((parent for parent in reversed(path.parents) if not parent.stat().st_mode & 0o001), None)
        for path in needed
    }
    for folder in sorted(closed - {None}):  # type: ignore[type-var]
        inside = sorted(path for path in needed if folder in path.parents)
        script += f"mount -t tmpfs -o mode=755 none '{stage}'\n"
        for number, path in enumerate(inside):
            script += f"mkdir '{stage}/{number}'; mount --bind '{path}' '{stage}/{number}'\n"
        script += f"mount -t tmpfs -o mode=755 none '{folder}'\n"
        for number, path in enumerate(inside):
            script += f"mkdir -p '{path}'; mount --bind '{stage}/{number}' '{path}'\n"
        script += f"umount -R '{stage}'\n"
    return script


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@contextmanager
def machines(users: Mapping[str, str], environments: Mapping[str, Path] | None = None) -> Iterator[dict[str, Machine]]:
    """Makes machines, and removes everything of them at the end: namespaces, their settings, and homes.

    Args:
        users: the host name of each machine, and its user; one user can have several machines.
        environments: the environment of each user; this Python's if not given.

    Raises:
        PermissionError: this is not root.
    """
    if os.geteuid() != 0:
        raise PermissionError("only root can run a program as another user; run this test as root")
    numbers = {user: _FIRST_USER + number for number, user in enumerate(sorted(set(users.values())))}
    with ExitStack() as made:
        place = Path(tempfile.mkdtemp(prefix="croupier-machines-"))
        made.callback(shutil.rmtree, place)
        place.chmod(0o711)
        (place / "mounts").mkdir()
        isolated = _connected(tuple(users), made)
        yield {
            host: Machine(
                numbers[user],
                _home(place / host, numbers[user]),
                ("ip", "netns", "exec", _namespace(host)) if isolated else ("unshare", "--mount"),
                isolated,
                environments[user] if environments else Path(sys.prefix),
            )
            for host, user in users.items()
        }


def _home(folder: Path, user: int) -> Path:
    folder.mkdir(mode=0o700)
    os.chown(folder, user, user)
    return folder


def _namespace(host: str) -> str:
    return f"croupier-{os.getpid()}-{host}"


def _remove_if_empty(folder: Path) -> None:
    with suppress(OSError):
        folder.rmdir()


def _connected(hosts: Sequence[str], made: ExitStack) -> bool:
    """Makes a network namespace for each host, all on one bridge; returns False where that is not allowed."""
    bridge = _namespace("bridge")
    known = [f"10.99.0.{number} {host}" for number, host in enumerate(hosts, 1)]
    with ExitStack() as network, suppress(OSError, subprocess.CalledProcessError):
        _ip("netns", "add", bridge)
        network.callback(_remove_if_empty, Path("/etc/netns"))
        network.callback(_ip, "netns", "del", bridge)
        _ip("-n", bridge, "link", "add", "bridge", "type", "bridge")
        _ip("-n", bridge, "link", "set", "bridge", "up")
        for number, host in enumerate(hosts, 1):
            name, port = _namespace(host), f"port{number}"
            _ip("netns", "add", name)
            network.callback(_ip, "netns", "del", name)
            settings = Path("/etc/netns") / name  # mounted over /etc in that namespace
            settings.mkdir(parents=True)
            network.callback(shutil.rmtree, settings)
            (settings / "hosts").write_text("\n".join(["127.0.0.1 localhost", *known, ""]), encoding="utf-8")
            _ip("-n", bridge, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", name)
            _ip("-n", bridge, "link", "set", port, "master", "bridge", "up")
            _ip("-n", name, "address", "add", f"10.99.0.{number}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                _ip("-n", name, "link", "set", device, "up")
        made.enter_context(network.pop_all())
        return True
    return False
