"""The libraries under test: where their programs are, with which settings they run, and how their jobs are started here.

Every rank of a job maps one scoreboard file (scoreboard.h); rank 0 prints one line of JSON per case.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

BENCH = Path(__file__).resolve().parent.parent

Environment = dict[str, str]
Processes = list[subprocess.Popen]


@dataclass(frozen=True)
class Request:
    """One job: the cases of one operation, dtype and placement."""

    op: str
    sizes: tuple[int, ...]
    ranks: int = 2
    dtype: str = "fp32"
    placement: str = "out"
    calls: int = 1  # per iteration, without a barrier between them
    budget_ms: int = 200

    def arguments(self) -> list[str]:
        options = {
            "--ops": self.op,
            "--bytes": ",".join(str(size) for size in self.sizes),
            "--dtypes": self.dtype,
            "--placement": self.placement,
            "--calls": str(self.calls),
            "--budget-ms": str(self.budget_ms),
        }
        return [word for option in options.items() for word in option]


@dataclass(frozen=True)
class Library:
    name: str
    program: Path
    launcher: tuple[str, ...] = ()  # empty: the ranks are plain processes
    environment: Environment = field(default_factory=dict)
    arguments: tuple[str, ...] = ()
    settings: str = ""  # for the reader of the results
    on_request: bool = False  # left out of a comparison that does not name it

    def missing(self) -> str:
        """Why it cannot run, or an empty string."""
        if not self.program.exists():
            return f"{self.program} is not built"
        if self.launcher and not shutil.which(self.launcher[0]):
            return f"{self.launcher[0]} is not installed"
        return ""

    def command(self, request: Request) -> list[str]:
        return [str(self.program), *self.arguments, *request.arguments()]

    def run(self, request: Request, place: "ThisHost", timeout_s: float = 300) -> tuple[str, list[dict]]:
        """The library's version and one result per case; a job that fails leaves the rest of its cases in error."""
        with tempfile.NamedTemporaryFile(dir=place.scoreboard_folder) as board, tempfile.TemporaryFile("w+") as errors:
            environment = {**os.environ, **self.environment, "BENCH_SCOREBOARD": board.name}
            lines, failure = _collect(place.start(self, request, environment, errors), timeout_s)
            errors.seek(0)
            last_words = [line for line in errors.read().splitlines() if "CCL_WARN" not in line][-3:]
        version = next((line["version"] for line in lines if "version" in line), "")
        results = {line["bytes"]: line for line in lines if "bytes" in line}
        blank = {"op": request.op, "dtype": request.dtype, "placement": request.placement, "calls": request.calls}
        for size in request.sizes:
            results.setdefault(size, {**blank, "bytes": size, "error": " | ".join([failure, *last_words])})
        return version, [{"library": self.name, "ranks": request.ranks, **result} for result in results.values()]


def rank_environment(environment: Environment, rank: int, ranks: int) -> Environment:
    return {**environment, "RANK": str(rank), "WORLD_SIZE": str(ranks)}


class ThisHost:
    """Where jobs run unless said otherwise. A place starts a job's processes, each in a session of its own; the first one's
    standard output carries the results."""

    # Not on a disk, whose writing back would hold up the ranks.
    scoreboard_folder = "/dev/shm"

    def adapt(self, libraries: dict[str, Library]) -> dict[str, Library]:
        """The libraries, as they can run and are to be compared here."""
        return libraries

    def describe(self) -> str:
        return "one host"

    def start(self, library: Library, request: Request, environment: Environment, errors: IO) -> Processes:
        command = library.command(request)
        if library.launcher:
            return [self._popen([*library.launcher, "-n", str(request.ranks), *command], environment, True, errors)]
        environments = [rank_environment(environment, rank, request.ranks) for rank in range(request.ranks)]
        return [self._popen(command, environment, rank == 0, errors) for rank, environment in enumerate(environments)]

    def _popen(self, command: list[str], environment: Environment, is_first: bool, errors: IO) -> subprocess.Popen:
        return subprocess.Popen(command, env=environment, **popen_options(is_first, errors))


def popen_options(is_first: bool, errors: IO) -> dict:
    output = subprocess.PIPE if is_first else subprocess.DEVNULL
    return dict(stdin=subprocess.DEVNULL, stdout=output, stderr=errors, text=True, start_new_session=True)


def _collect(processes: Processes, timeout_s: float) -> tuple[list[dict], str]:
    """The JSON lines of the first process, and what to say of a case that is not among them. Ends every process."""
    try:
        failure = _wait(processes, timeout_s)
    finally:
        for process in processes:
            _end(process)
    output = processes[0].communicate()[0]
    return [json.loads(line) for line in output.splitlines() if line.startswith("{")], failure


def _wait(processes: Processes, timeout_s: float) -> str:
    """Returns when all have ended, or one has failed, or it takes too long, and says which."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        codes = [process.poll() for process in processes]
        for code in codes:
            if code:
                return f"exit code {code}"
        if None not in codes:
            return "the case is missing"
        time.sleep(0.02)
    return f"no end after {timeout_s:g} s"


def _end(process: subprocess.Popen) -> None:
    """SIGTERM first: an mpirun passes it on to its ranks."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is not None:
            return
        os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=5)


def all_libraries(build: Path, peers: Path) -> dict[str, Library]:
    ours = build / "bench" / "bench_collectives"
    intel = {
        "PATH": f"{peers}/bin:{os.environ['PATH']}",  # its mpirun takes the first mpiexec.hydra, which may be MPICH's
        "LD_LIBRARY_PATH": f"{peers}/lib:{peers}/lib/libfabric",
        "I_MPI_ROOT": str(peers),
        "FI_PROVIDER_PATH": str(next(peers.glob("lib/**/libtcp-fi.so"), peers).parent),  # releases put it in different folders
        "CCL_ROOT": str(peers),
        # The algorithm it would choose hangs on unequal shares from 1 MiB up.
        "CCL_ALLTOALLV": "direct:0-262144;naive:262145-max",
    }
    # By default a worker thread spins beside each rank, and a call takes milliseconds where ranks fill the cores: oneCCL is
    # measured at its best, without.
    without_workers = {**intel, "CCL_WORKER_OFFLOAD": "0"}
    oneccl = peers / "programs" / "oneccl"
    mpirun = (str(peers / "bin" / "mpirun"),)
    oneccl_settings = "CPU build on Intel MPI, CCL_ALLTOALLV=" + intel["CCL_ALLTOALLV"]
    libraries = [
        Library("trireme", ours),
        Library("trireme-shared", ours, arguments=("--shared-buffers",), settings="buffers from the library's allocator"),
        Library("trireme-copy", ours, environment={"TRIREME_DIRECT_READ": "0"}, settings="TRIREME_DIRECT_READ=0"),
        Library("oneccl", oneccl, mpirun, without_workers, settings=oneccl_settings + ", CCL_WORKER_OFFLOAD=0"),
        Library("oneccl-default", oneccl, mpirun, intel, settings=oneccl_settings, on_request=True),
        Library("mpich", peers / "programs" / "mpich", ("mpiexec.mpich",), settings="Debian's package, defaults"),
    ]
    return {library.name: library for library in libraries}
