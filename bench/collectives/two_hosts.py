"""Two hosts in network namespaces of this machine (tests/cluster) as a place to run jobs: half of the ranks on each."""

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import replace
from subprocess import Popen
from typing import IO

from libraries import BENCH, Environment, Library, Processes, Request, popen_options, rank_environment

HOSTS = 2


class TwoHosts:
    # A host has a /dev/shm of its own; /tmp is common to them.
    scoreboard_folder = "/tmp"

    def __init__(self, cluster):
        self._cluster = cluster

    def adapt(self, libraries: dict[str, Library]) -> dict[str, Library]:
        """Without what concerns one host only, and without oneCCL, whose mpirun needs an sshd; with our flat ring."""
        adapted = {name: library for name, library in libraries.items() if name in ("trireme", "mpich")}
        if "trireme" in adapted:
            ring = {"CCL_ALLREDUCE": "ring"}
            adapted["trireme-ring"] = replace(
                adapted["trireme"],
                name="trireme-ring",
                environment=ring,
                settings="CCL_ALLREDUCE=ring: one ring through all ranks",
            )
        return adapted

    def describe(self) -> str:
        return self._cluster.describe()

    def start(self, library: Library, request: Request, environment: Environment, errors: IO) -> Processes:
        if library.launcher:
            return self._start_mpi(library, request, environment, errors)
        command = library.command(request)
        environments = [rank_environment(environment, rank, request.ranks) for rank in range(request.ranks)]
        return [
            self._popen(rank * HOSTS // request.ranks, command, environment, rank == 0, errors)
            for rank, environment in enumerate(environments)
        ]

    def _start_mpi(self, library: Library, request: Request, environment: Environment, errors: IO) -> Processes:
        """Hydra's manual launcher prints the command of each host's proxy instead of reaching the host by ssh."""
        hosts = ",".join(f"{host.name}:{request.ranks // HOSTS}" for host in self._cluster)
        launcher = [*library.launcher, "-launcher", "manual", "-iface", "eth0", "-hosts", hosts, "-n", str(request.ranks)]
        mpiexec = self._popen(0, [*launcher, *library.command(request)], environment, True, errors)
        proxies = []
        for line in iter(mpiexec.stdout.readline, ""):
            if line.startswith("HYDRA_LAUNCH_END"):
                break
            if line.startswith("HYDRA_LAUNCH:"):
                proxies.append(self._popen(len(proxies), line.split()[1:], environment, False, errors))
        return [mpiexec, *proxies]

    def _popen(self, host: int, command: list[str], environment: Environment, is_first: bool, errors: IO) -> Popen:
        return self._cluster[host].popen(command, env=environment, **popen_options(is_first, errors))


@contextlib.contextmanager
def two_hosts() -> Iterator[TwoHosts]:
    sys.path.insert(0, str(BENCH.parent))
    from tests.cluster.hosts import Cluster, why_not  # only here: it needs Linux's namespaces, the rest does not

    if reason := why_not():
        sys.exit(f"--hosts: {reason}")
    with Cluster(hosts=HOSTS) as cluster:
        yield TwoHosts(cluster)
