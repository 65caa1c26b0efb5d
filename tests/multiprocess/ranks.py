"""Starts the ranks of a job, on this machine or on the hosts of a cluster, and ends them whatever happens.

    with EnvRanks(["./program"], size=4, logs=tmp_path) as ranks:
        ranks.wait_for_output(2, "ready")
        ranks.kill(2)
        assert ranks.wait(timeout_s=10) == [1, 1, -signal.SIGKILL, 1]
        assert "rank 2" in ranks.output(0)

EnvRanks starts the copies itself, with torchrun's variables. MpirunRanks leaves it to an mpirun, whose exit code is the
only one then. Each rank's stdout and stderr go to logs/rank<N>.log: no pipe can fill up, and a failing test keeps them.
"""

import contextlib
import os
import pathlib
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Protocol

POLL_S = 0.01


class Host(Protocol):
    """What is needed of cluster.hosts.Host. None stands for this machine."""

    address: str

    def popen(self, argv: Sequence[str], **options) -> subprocess.Popen: ...

    def network(self): ...


class Ranks:
    """Owns the processes it started and theirs; `with` ends them all. For one thread.

    If the thread that started the ranks, or its process, ends in any way, the kernel kills them: start ranks from the
    main thread of a test.
    """

    def __init__(self, size: int, logs: pathlib.Path):
        self.size = size
        self._logs = logs
        self._mark = f"RANKS_JOB_ID={uuid.uuid4().hex}"  # in the environment of every process of the job
        self._processes: list[subprocess.Popen] = []

    def __enter__(self):
        return self

    def __exit__(self, *exception) -> None:
        self.close()

    def close(self) -> None:
        """Kills what is left: ranks, launchers, and children that outlived their rank, in whichever group they are."""
        while left := self._find(self._mark):
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        for process in self._processes:
            process.wait()

    def _popen(self, host: Host | None, argv: Sequence[str], env: Mapping[str, str], log: str) -> None:
        popen = host.popen if host else subprocess.Popen
        name, _, value = self._mark.partition("=")
        with open(self._logs / log, "wb") as output:
            guarded = ["setpriv", "--pdeathsig", "KILL", "--", *argv]
            options = dict(stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
            self._processes.append(popen(guarded, env={**os.environ, name: value, **env}, **options))

    @staticmethod
    def _find(*variables: str) -> dict[int, int]:
        """Living processes that were started with these environment variables, and the parent of each."""
        found = {}
        for folder in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                environment = (folder / "environ").read_bytes().split(b"\0")
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue  # the process has ended meanwhile
            if {variable.encode() for variable in variables} <= set(environment):
                found[int(folder.name)] = parent
        return found

    def living(self) -> list[int]:
        """Every process of the job that has not ended: ranks, launchers and their children."""
        return list(self._find(self._mark))

    def pid(self, rank: int) -> int:
        raise NotImplementedError

    def kill(self, rank: int, signal_number: int = signal.SIGKILL) -> None:
        os.kill(self.pid(rank), signal_number)

    def wait(self, timeout_s: float) -> list[int]:
        """The exit codes when all have ended, negative after a signal. Who still runs at the timeout is killed: an error."""
        deadline = time.monotonic() + timeout_s
        while any(process.poll() is None for process in self._processes):
            if time.monotonic() > deadline:
                running = [index for index, process in enumerate(self._processes) if process.returncode is None]
                self.close()
                raise AssertionError(f"processes {running} still ran after {timeout_s} s\n{self.outputs()}")
            time.sleep(POLL_S)
        return [process.returncode for process in self._processes]

    def succeed(self, timeout_s: float) -> list[str]:
        """The output of each rank when all have ended well; anything else is an error that shows all of it."""
        codes = self.wait(timeout_s)
        assert not any(codes), f"exit codes {codes}\n{self.outputs()}"
        return [self.output(rank) for rank in range(self.size)]

    def wait_for_output(self, rank: int, text: str, timeout_s: float = 30) -> None:
        deadline = time.monotonic() + timeout_s
        while True:
            # Asked before the output is read: then their last words are in it.
            all_ended = all(process.poll() is not None for process in self._processes) and not self.living()
            if text in self.output(rank):
                return
            assert not all_ended, f"no '{text}' from rank {rank}, and all have ended\n{self.outputs()}"
            assert time.monotonic() < deadline, f"no '{text}' from rank {rank} for {timeout_s} s\n{self.outputs()}"
            time.sleep(POLL_S)

    def output(self, rank: int) -> str:
        """What the rank has written up to now."""
        path = self._logs / f"rank{rank}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def outputs(self) -> str:
        """Every log, for the message of a failure."""
        logs = sorted(self._logs.glob("*.log"))
        return "\n".join(f"--- {path.name}\n{path.read_text(errors='replace')}" for path in logs)


class EnvRanks(Ranks):
    """RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT. Ranks fill the hosts in order."""

    def __init__(
        self,
        argv: Sequence[str],
        size: int,
        *,
        logs: pathlib.Path,
        hosts: Sequence[Host] = (),
        env: Mapping[str, str] = {},
    ):
        super().__init__(size, logs)
        places = [rank * len(hosts) // size if hosts else 0 for rank in range(size)]
        master = self._master(hosts)
        try:
            for rank, place in enumerate(places):
                variables = {
                    "RANK": str(rank),
                    "WORLD_SIZE": str(size),
                    "LOCAL_RANK": str(rank - places.index(place)),
                    "LOCAL_WORLD_SIZE": str(places.count(place)),
                    **master,
                }
                host = hosts[place] if hosts else None
                self._popen(host, argv, {**variables, **env}, f"rank{rank}.log")
        except BaseException:
            self.close()
            raise

    @staticmethod
    def _master(hosts: Sequence[Host]) -> dict[str, str]:
        """A port that is free now. In a host nobody else can take it; on this machine that is only unlikely."""
        if not hosts:
            with socket.create_server(("127.0.0.1", 0)) as server:
                return {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(server.getsockname()[1])}
        with hosts[0].network(), socket.create_server((hosts[0].address, 0)) as server:
            return {"MASTER_ADDR": hosts[0].address, "MASTER_PORT": str(server.getsockname()[1])}

    def pid(self, rank: int) -> int:
        return self._processes[rank].pid


class MpirunRanks(Ranks):
    """MPICH's, Intel's or Open MPI's: `mpirun` is the command up to -n, so that it can name a host file."""

    # The shell is replaced by the program, so that the rank's process is the program itself.
    _REDIRECT = 'exec "$@" > "$RANKS_LOGS/rank${PMI_RANK:-$OMPI_COMM_WORLD_RANK}.log" 2>&1'

    def __init__(
        self,
        argv: Sequence[str],
        size: int,
        *,
        logs: pathlib.Path,
        mpirun: Sequence[str] = ("mpirun",),
        host: Host | None = None,
        env: Mapping[str, str] = {},
    ):
        super().__init__(size, logs)
        as_root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        command = [*mpirun, "-n", str(size), "sh", "-c", self._REDIRECT, "sh", *argv]
        self._popen(host, command, {"RANKS_LOGS": str(logs), **as_root, **env}, "mpirun.log")

    def pid(self, rank: int) -> int:
        """The process whose environment says so and whose parent's does not: forked children inherit it."""
        found = self._find(self._mark, f"PMI_RANK={rank}") or self._find(self._mark, f"OMPI_COMM_WORLD_RANK={rank}")
        roots = [pid for pid, parent in found.items() if parent not in found]
        assert len(roots) == 1, f"rank {rank} is not running\n{self.outputs()}"
        return roots[0]
