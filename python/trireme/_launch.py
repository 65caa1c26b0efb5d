"""Rank discovery: ``init_process_group("ccl")`` alone, whoever started the processes.

torch's ``env://`` wants RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT. torchrun sets them. Other launchers say the same in variables of their
own; what is missing is filled in from those when a group is made, and never overwritten. The launchers and their variables are those of
trireme/ccl/bootstrap/launcher.cpp.
"""

import importlib
import os
import re
import zlib
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any, NamedTuple


class Launcher(NamedTuple):
    name: str
    rank: str
    size: str
    local_rank: str
    local_size: str
    # What tells this job from others on the same machine, the same in all its processes.
    job: tuple[str, ...]
    needs_local_rank: bool = False  # only with local_rank set is it this one


HYDRA = Launcher("hydra", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", ())


LAUNCHERS = (
    HYDRA._replace(needs_local_rank=True),
    Launcher(
        "Open MPI",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
        ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"),
    ),
    # By the variables of a step, which srun sets: those of a job are in a batch script too, where one process runs.
    Launcher("Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE", ("SLURM_JOB_ID", "SLURM_STEP_ID")),
    HYDRA,  # after Slurm, whose PMI2 plugin sets PMI_RANK and PMI_SIZE, but not the place on the host
)

DEFAULT_PORT = 29500  # torch's own
# Chosen ports lie below those that the kernel hands out to clients.
PORTS = range(20000, 32000)


class Place(NamedTuple):
    launcher: Launcher
    rank: int
    size: int
    local_rank: int
    local_size: int


def place(env: Mapping[str, str]) -> Place | None:
    """Where a launcher put this process, or None where none left its variables."""
    for launcher in LAUNCHERS:
        if launcher.rank in env and launcher.size in env and (launcher.local_rank in env or not launcher.needs_local_rank):
            # Slurm's number of local tasks may read "2(x3),1".
            local_size = re.match(r"\d+", env.get(launcher.local_size, "1"))
            return Place(
                launcher,
                int(env[launcher.rank]),
                int(env[launcher.size]),
                int(env.get(launcher.local_rank, "0")),
                int(local_size[0]) if local_size else 1,
            )
    return None


def first_slurm_host(nodes: str) -> str:
    """cn07 of "cn[07-09,12],login1"."""
    found = re.match(r"([^,\[]+)(?:\[([^\]]*)\])?", nodes)
    if not found:
        return nodes
    name, numbers = found[1], found[2]
    return name + re.split(r"[-,]", numbers)[0] if numbers else name


def master_address(at: Place, env: Mapping[str, str]) -> str:
    if at.local_size == at.size:
        return "127.0.0.1"
    nodes = env.get("SLURM_STEP_NODELIST", env.get("SLURM_JOB_NODELIST", ""))
    if at.launcher.name == "Slurm" and nodes:
        return first_slurm_host(nodes)
    raise ValueError(
        f"rank {at.rank}: this job of {at.launcher.name} has {at.size} processes, {at.local_size} of them on this host; set MASTER_ADDR to the address "
        "of the host of rank 0, so that the others find it"
    )


def _hydra_pid() -> str:
    """The process of hydra on this host from which all ranks here descend; a job on one host has one."""
    pid = os.getpid()
    while pid > 1:
        with open(f"/proc/{pid}/stat") as stat:
            text = stat.read()
        name, fields = text[text.index("(") + 1 : text.rindex(")")], text[text.rindex(")") + 2 :].split()
        if name.startswith(("hydra_pmi_proxy", "hydra_bstrap_pr", "mpiexec", "mpirun")):
            return str(pid)
        pid = int(fields[1])
    return ""


def master_port(at: Place, env: Mapping[str, str]) -> int:
    """The same number in all processes of the job, and most likely another one in another job on the same machine."""
    job = "".join(env.get(name, "") for name in at.launcher.job)
    if at.launcher.name == "hydra" and at.local_size == at.size:
        try:
            job = _hydra_pid()
        except (OSError, ValueError):
            job = ""
    return PORTS[zlib.crc32(job.encode()) % len(PORTS)] if job else DEFAULT_PORT


def uncounted(env: Mapping[str, str]) -> str | None:
    """Why nobody here can know how many processes there are, though a launcher started this one; else None."""
    if "PMI_PORT" not in env or "PMI_ID" not in env or place(env) is not None or "WORLD_SIZE" in env or "MV2_COMM_WORLD_SIZE" in env:
        return None
    return (
        "this process was started by mpirun -pmi-port, which sets PMI_PORT and PMI_ID and leaves out PMI_SIZE: how many there are is not known. "
        "Start them without -pmi-port, or with torchrun"
    )


def fill(env: MutableMapping[str, str]) -> None:
    """Adds what env:// lacks, as far as a launcher tells. Raises ValueError with a sentence where only the user can know it."""
    at = place(env)
    if at is None or "LOCAL_RANK" in env and "RANK" in env:  # torchrun, perhaps below an mpirun: its variables are complete
        return
    # RANK without WORLD_SIZE, or the reverse, is the user's: a mixture would be wrong.
    if "RANK" not in env and "WORLD_SIZE" not in env:
        env["RANK"], env["WORLD_SIZE"] = str(at.rank), str(at.size)
        env.setdefault("LOCAL_RANK", str(at.local_rank))
        env.setdefault("LOCAL_WORLD_SIZE", str(at.local_size))
    if "MASTER_ADDR" not in env:
        env["MASTER_ADDR"] = master_address(at, env)
    env.setdefault("MASTER_PORT", str(master_port(at, env)))


def fill_env_rendezvous() -> None:
    """Lets env:// fill in what it lacks before it looks. Touches nothing until a group is made."""
    rendezvous = importlib.import_module("torch.distributed.rendezvous")  # torch.distributed.rendezvous is a function
    handlers: dict[str, Callable[..., Any]] = rendezvous._rendezvous_handlers
    original = handlers.get("env")
    if original is None or getattr(original, "_trireme", False):
        return

    def env_handler(url: str, *args: Any, **kwargs: Any) -> Any:
        fill(os.environ)
        if "world_size=" not in url and (problem := uncounted(os.environ)):
            raise ValueError(problem)
        return original(url, *args, **kwargs)

    env_handler._trireme = True  # type: ignore[attr-defined]
    handlers["env"] = env_handler
