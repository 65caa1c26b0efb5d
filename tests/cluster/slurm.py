"""A real Slurm on the hosts of a Cluster: munge and slurmd on each, slurmctld on the first.

    with Cluster(hosts=2) as cluster:
        controller = slurm.start(cluster, tmp_path)
        cluster[0].run(["srun", "-N", "2", "hostname"], env=controller)

What it keeps lies in each host's /run, in memory, and in the folder of its logs. Nothing listens but inside the hosts.
"""

import os
import pathlib
import secrets
import shutil
import subprocess
import time

from .hosts import Cluster

_CONFIGURATION = """ClusterName=test
SlurmctldHost=node0
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=/run/munge/socket
CredType=cred/munge
StateSaveLocation=/run/slurm
SlurmdSpoolDir=/run/slurm
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/affinity
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
NodeName=node[0-{last}] CPUs={cpus} State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP
"""

_PREPARE = """set -e
umask 077
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -m 755 /run/slurm /run/munge
printf %s "$1" >/run/munge/key
"""

_MUNGED = "munged --foreground --key-file=/run/munge/key --socket=/run/munge/socket --pid-file=/run/munge/pid --log-file=/run/munge/log --seed-file=/run/munge/seed"


def why_not() -> str | None:
    """Why no Slurm can be started here, or None."""
    missing = [program for program in ("slurmctld", "slurmd", "srun", "munged") if shutil.which(program) is None]
    return f"{', '.join(missing)} missing (Debian: slurm-wlm, munge)" if missing else None


def start(cluster: Cluster, log_folder: pathlib.Path) -> dict[str, str]:
    """Blocks until all hosts take jobs; returns the environment of its commands. It ends with the hosts."""
    configuration = log_folder / "slurm.conf"
    configuration.write_text(_CONFIGURATION.format(last=len(cluster) - 1, cpus=os.cpu_count()))
    env = {**os.environ, "SLURM_CONF": str(configuration)}
    key = secrets.token_hex(64)
    for host in cluster:
        host.run(["sh", "-c", _PREPARE, "sh", key])
        daemons = [_MUNGED.split(), *([["slurmctld", "-D"]] if host.index == 0 else []), ["slurmd", "-D", "-N", host.name]]
        for daemon in daemons:
            if daemon[0].startswith("slurm"):
                host.run(["sh", "-c", "until test -S /run/munge/socket; do sleep 0.02; done"])
            with open(log_folder / f"{daemon[0]}-{host.name}.log", "w") as log:
                host.popen(daemon, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    _wait_until_idle(cluster, env, log_folder)
    return env


def _wait_until_idle(cluster: Cluster, env: dict[str, str], log_folder: pathlib.Path, timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while True:
        states = cluster[0].run(["sinfo", "-h", "-N", "-o", "%T"], env=env, check=False).stdout.split()
        if states == ["idle"] * len(cluster):
            return
        if time.monotonic() > deadline:
            logs = "".join(f"--- {log.name}\n{log.read_text()[-2000:]}" for log in sorted(log_folder.glob("*.log")))
            raise RuntimeError(f"after {timeout_s} s the hosts are {states}\n{logs}")
        time.sleep(0.2)
