"""An elastic job: torchrun's agents on the hosts of a cluster, each with its `trireme qa`, the faults that befall them, and what is added up after.

    with ElasticJob(cluster, tmp_path, flags) as job:
        job.start(0, 1)
        job.wait_for_run(ranks=2)
        job.signal_worker(1, signal.SIGKILL)
        job.wait(timeout_s=60)
    assert_every_sample_once(job.ledger, epochs=2, samples=64)

All hosts see this machine's files, as pods see their volume. The rendezvous is on the host `endpoint`; ranks go by the hosts' names, so that rank 0 is on
the first one that takes part.
"""

import collections
import contextlib
import dataclasses
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence

from tests.trainer.runs import TRIREME

from .hosts import Cluster

POLL_S = 0.02
# As long as a machine with other things to do may take to import torch on three hosts at once.
START_S = 120
# What a rank says when it ends; "info:" and "warning:" lines begin in the same way.
ERROR = re.compile(r"^trireme: rank \d+: (?!info:|warn).*$", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Line:
    """Of the ledger."""

    step: int
    epoch: int
    sample: int
    run: int


def read_ledger(path: pathlib.Path) -> list[Line]:
    """Of all ranks. A process that is killed may leave half a line at a file's end, of a step that nothing stands on."""
    lines = []
    for part in path.parent.glob(path.name + ".*"):
        for text in part.read_text().splitlines():
            with contextlib.suppress(ValueError, TypeError):
                lines.append(Line(*map(int, text.split())))
    return lines


def runs_of(lines: Iterable[Line]) -> dict[int, int]:
    """The first step of every run that made one, in the order of time."""
    first: dict[int, int] = {}
    for line in lines:
        first[line.run] = min(line.step, first.get(line.run, line.step))
    return dict(sorted(first.items()))


def counted(lines: Sequence[Line]) -> list[Line]:
    """What the final model has seen: a run that begins at step s stands on what was done before s, so each step counts as the last run did it that began
    at or before it."""
    first = runs_of(lines)
    owner = {step: max(run for run, begin in first.items() if begin <= step) for step in {line.step for line in lines}}
    return [line for line in lines if line.run == owner[line.step]]


def assert_every_sample_once(path: pathlib.Path, epochs: int, samples: int) -> None:
    seen = collections.Counter((line.epoch, line.sample) for line in counted(read_ledger(path)))
    expected = {(epoch, sample) for epoch in range(epochs) for sample in range(samples)}
    lost, repeated = expected - seen.keys(), {each: count for each, count in seen.items() if count != 1 or each not in expected}
    assert not lost and not repeated, f"{len(lost)} lost: {sorted(lost)[:5]}; {len(repeated)} repeated: {sorted(repeated.items())[:5]}"


def steps_again(path: pathlib.Path) -> list[int]:
    """For each run but the first: how many steps, done before by the one before it, it begins behind."""
    lines = read_ledger(path)
    last: dict[int, int] = {}
    for line in lines:
        last[line.run] = max(line.step, last.get(line.run, 0))
    runs = list(runs_of(lines).items())
    return [last[before] + 1 - begin for (before, _), (_, begin) in zip(runs, runs[1:])]


class ElasticJob:
    """Owns the agents and their workers; `with` ends them all. For the main thread of a test: if that ends, so do they."""

    def __init__(
        self,
        cluster: Cluster,
        folder: pathlib.Path,
        flags: Sequence[object],
        *,
        nnodes: str = "1:4",
        processes: int = 1,
        endpoint: int = 0,
        max_restarts: int = 10,
        rdzv_conf: str = "last_call_timeout=1,keep_alive_interval=1,keep_alive_max_attempt=3,read_timeout=10",
        env: Mapping[str, str] = {},
    ):
        self.cluster, self.folder = cluster, folder
        self.ledger = folder / "ledger"
        self._mark = f"ELASTIC_JOB_ID={uuid.uuid4().hex}"
        name, _, value = self._mark.partition("=")
        self._env = {
            "OMP_NUM_THREADS": "1",
            "TRIREME_LEDGER": str(self.ledger),
            "TRIREME_PEER_TIMEOUT_MS": "2000",
            # Else agents that were not rank 0 before keep the address of a rank 0 that is gone (torch 2.13).
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
            name: value,
            **env,
        }
        launcher = [sys.executable, "-m", "torch.distributed.run", f"--nnodes={nnodes}", f"--nproc-per-node={processes}"]
        rendezvous = ["--rdzv-backend=c10d", f"--rdzv-endpoint={cluster[endpoint].name}:29400", "--rdzv-id=job", f"--rdzv-conf={rdzv_conf}"]
        self._command = [*launcher, *rendezvous, f"--max-restarts={max_restarts}", "--no-python", str(TRIREME), "qa", *map(str, flags)]
        self.agents: dict[int, subprocess.Popen] = {}  # by host: the one that was started last
        self._logs: list[pathlib.Path] = []

    def __enter__(self) -> "ElasticJob":
        return self

    def __exit__(self, *exception) -> None:
        for pid in self.living():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for agent in self.agents.values():
            agent.wait()

    def start(self, *hosts: int) -> None:
        for host in hosts:
            log = self.folder / f"host{host}.{sum(each.name.startswith(f'host{host}.') for each in self._logs)}.log"
            self._logs.append(log)
            with open(log, "wb") as output:
                command = ["setpriv", "--pdeathsig", "KILL", "--", *self._command]
                options = dict(stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env={**os.environ, **self._env})
                self.agents[host] = self.cluster[host].popen(command, **options)

    # ---- what goes on

    def output(self, host: int | None = None) -> str:
        logs = self._logs if host is None else [log for log in self._logs if log.name.startswith(f"host{host}.")]
        return "".join(log.read_text(errors="replace") for log in logs)

    def outputs(self) -> str:
        return "\n".join(f"--- {log.name}\n{log.read_text(errors='replace')[-6000:]}" for log in self._logs)

    def until(self, condition, what: str, timeout_s: float = START_S) -> None:
        deadline = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < deadline, f"{what}: not in {timeout_s} s\n{self.outputs()}"
            time.sleep(POLL_S)

    def _last_lines(self) -> list[tuple[int, int]]:
        """(run, step) that each rank has written down last. Reads the ends of the files only: it is called often."""
        last = []
        for part in self.ledger.parent.glob(self.ledger.name + ".*"):
            with open(part, "rb") as file:
                file.seek(max(0, part.stat().st_size - 200))
                whole = file.read().rpartition(b"\n")[0].rpartition(b"\n")[2].split()
            if len(whole) == 4:
                last.append((int(whole[3]), int(whole[0])))
        return last

    def last_step(self) -> tuple[int, int]:
        return max(self._last_lines(), default=(0, -1))

    def wait_for_run(self, ranks: int, *, after: int = 0, steps: int = 5, timeout_s: float = START_S) -> int:
        """Until a run later than `after`, of so many ranks, has made so many steps; its number. Hosts that start together need not be in one run at
        first: torchrun begins with those that are there."""
        begin: dict[int, int] = {}

        def has_come() -> bool:
            lines = self._last_lines()
            run, step = max(lines, default=(0, -1))
            return run > after and step >= begin.setdefault(run, step) + steps and sum(each == run for each, _ in lines) == ranks

        self.until(has_come, f"training on {ranks} ranks", timeout_s)
        return max(begin)

    def wait(self, timeout_s: float) -> dict[int, int]:
        """The agents' exit codes, by host, when all have ended."""
        self.until(lambda: all(agent.poll() is not None for agent in self.agents.values()), "the end of all agents", timeout_s)
        return {host: agent.returncode for host, agent in self.agents.items()}

    # ---- its processes, as this machine numbers them

    def living(self) -> list[int]:
        found = []
        for folder in pathlib.Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if self._mark.encode() in (folder / "environ").read_bytes().split(b"\0"):
                    found.append(int(folder.name))
        return found

    def workers(self, host: int) -> list[int]:
        """Of the agent that is on this host now, in the order of their ranks."""
        found = []
        for pid in self.living():
            with contextlib.suppress(OSError):
                environment = pathlib.Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
                parent = int(pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
                ranks = [int(each[5:]) for each in environment if each.startswith("RANK=")]
                if ranks and parent == self.agents[host].pid:
                    found.append((ranks[0], pid))
        return [pid for _, pid in sorted(found)]

    def signal_worker(self, host: int, number: int, which: int = 0) -> int:
        pid = self.workers(host)[which]
        os.kill(pid, number)
        return pid

    def kill_host_processes(self, host: int) -> None:
        """As a pod that is deleted by force: the host's network stays, and says that its processes are gone."""
        self.agents[host].kill()
        for pid in self.living():
            with contextlib.suppress(OSError):
                if os.readlink(f"/proc/{pid}/ns/pid") == os.readlink(f"/proc/{self.cluster[host].pid}/ns/pid"):
                    os.kill(pid, signal.SIGKILL)
        self.agents[host].wait()


def bound_retransmissions(cluster: Cluster, retries: int) -> None:
    """The kernel gives up on a connection whose peer says nothing after 0.2 s x (2 ^ (retries + 1) - 1); by default, 15, after a quarter of an hour.
    torchrun's agents have no other bound on the store of their rendezvous (torch 2.13)."""
    for host in cluster:
        with host.network():
            pathlib.Path("/proc/sys/net/ipv4/tcp_retries2").write_text(str(retries))


def first_error(text: str) -> str:
    """What a rank said of why it ended."""
    found = ERROR.search(text)
    return found[0] if found else ""
