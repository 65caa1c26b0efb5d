"""A machine made of namespaces: its own network, processes, mounts, host name and IPC on the kernel of this one.

Needs root, no user namespaces, and the programs unshare, nsenter (util-linux), env, ip and mount.
"""

import contextlib
import ctypes
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator, Sequence

INIT = pathlib.Path(__file__).with_name("init.py")
CLONE_NEWPID = 0x20000000

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{what}: {os.strerror(error)}")


@contextlib.contextmanager
def _restored(kind: str) -> Iterator[None]:
    """Puts the calling thread back into its own namespace of this kind at the end of the block."""
    own = os.open(f"/proc/thread-self/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield
    finally:
        _check(_libc.setns(own, 0), f"setns back to the thread's own {kind} namespace")
        os.close(own)


@contextlib.contextmanager
def _inside(pid: int, kind: str) -> Iterator[None]:
    """The calling thread is in that process's namespace during the block; of a pid namespace only its children are."""
    with _restored(kind):
        namespace = os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            _check(_libc.setns(namespace, 0), f"setns to the {kind} namespace of process {pid}")
        finally:
            os.close(namespace)
        yield


def execute(argv: Sequence[str], stdin: str = "") -> str:
    """Runs a configuring command in the thread's namespaces and returns its output; an error carries its words."""
    result = subprocess.run(argv, input=stdin, capture_output=True, text=True)
    if result.returncode != 0:
        raise RuntimeError(f"{' '.join(argv)}: {result.stderr.strip()}\n{stdin}".strip())
    return result.stdout


class Machine:
    """Owns the namespaces and every process in them.

    Threads may share it: entering a namespace concerns the calling thread only. Nothing blocks but what says so.
    If the owning process ends in any way, SIGKILL included, the kernel ends the machine. A constructor that fails
    leaves nothing behind.
    """

    def __init__(self, name: str, hosts_file: str = "127.0.0.1 localhost\n", private_dirs: Sequence[str] = ()):
        self.name = name
        self._processes: list[subprocess.Popen] = []
        self._init = self._start_init(hosts_file, private_dirs)

    def _start_init(self, hosts_file: str, private_dirs: Sequence[str]) -> subprocess.Popen:
        owner_fd = os.pidfd_open(os.getpid())
        config = dict(name=self.name, hosts_file=hosts_file, private_dirs=list(private_dirs), owner_fd=owner_fd)
        unshare = ["unshare", "--net", "--mount", "--uts", "--ipc", "--propagation", "private", "--"]
        try:
            with _restored("pid"):
                _check(_libc.unshare(CLONE_NEWPID), "unshare a pid namespace")
                return subprocess.Popen(
                    [*unshare, sys.executable, "-IS", str(INIT), json.dumps(config)],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                    pass_fds=[owner_fd],
                    start_new_session=True,  # Ctrl-C ends the test, and the test ends the machine
                )
        finally:
            os.close(owner_fd)

    def wait_ready(self) -> None:
        """Blocks until the machine can be used. Apart from the constructor, so that several start at the same time."""
        if self._init.stdout.readline() != "ready\n":
            errors = self._init.stderr.read()
            self.kill()
            raise RuntimeError(f"{self.name} did not start:\n{errors}")

    @property
    def pid(self) -> int:
        """The init process, as this process sees it: /proc/<pid>/ns names the machine's namespaces."""
        return self._init.pid

    def network(self) -> contextlib.AbstractContextManager[None]:
        """In this block the calling thread makes sockets, and starts processes, in the machine's network."""
        return _inside(self.pid, "net")

    def popen(self, argv: Sequence[str], *, cwd: str | None = None, **options) -> subprocess.Popen:
        """subprocess.Popen in the machine. The pid, signals and the exit code are those of the program itself.

        Because we are its parent, nothing has to stand between the two: the child is born into the pid namespace, and
        nsenter and env replace themselves. A program that does not exist ends with env's exit code, 127.
        """
        if self._init.poll() is not None:
            raise RuntimeError(f"{self.name} is dead")
        enter = ["nsenter", f"--target={self.pid}", "--net", "--mount", "--uts", "--ipc", "--"]
        change_directory = ["env", f"--chdir={cwd or os.getcwd()}"]
        with _inside(self.pid, "pid"):
            process = subprocess.Popen([*enter, *change_directory, *argv], **options)
        self._processes.append(process)
        return process

    def run(
        self, argv: Sequence[str], *, timeout_s: float = 30, check: bool = True, **options
    ) -> subprocess.CompletedProcess:
        """Blocks until the program ends; at the timeout it is killed. Output is captured as text."""
        process = self.popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)
        try:
            stdout, stderr = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            stdout, stderr = process.communicate()
            raise AssertionError(f"{self.name}: {argv} still ran after {timeout_s} s\n{stdout}{stderr}") from None
        if check and process.returncode != 0:
            raise AssertionError(f"{self.name}: {argv} ended with {process.returncode}\n{stdout}{stderr}")
        return subprocess.CompletedProcess(argv, process.returncode, stdout, stderr)

    def kill(self) -> None:
        """Ends every process of the machine at once and returns when the last one is gone. May be called again."""
        self._init.kill()
        # An init is gone only when its namespace is empty, and those that we started are ours to reap.
        for process in self._processes:
            process.wait()
        self._init.wait()
        self._init.stdout.close()
        self._init.stderr.close()
