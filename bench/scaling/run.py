#!/usr/bin/env python3
"""How does `trireme qa` scale: on the ranks of one host, between hosts over slow links, and, by a model checked against both, on larger clusters?

    .venv/bin/python bench/scaling/run.py --train_file train.json [--models minilm,base] [--ranks 1,2,4,8] [--mbit 100,1000,0] [--steps 8] [--repeat 3] [--json]
    .venv/bin/python bench/scaling/run.py --page      # writes the tables of docs/scaling.md from bench/results/scaling.json

A rank has one thread and 12 samples of SQuAD a step, whatever their number (weak scaling). The time of a step is that between the lines that report two
steps, over all steps but the first three; the median of --repeat runs. Hosts are network namespaces of this machine (tests/cluster; needs root) whose links
tc limits; --mbit 0 is a link without a limit. Each host has a core of its own, as far as there are cores. The cases take turns.

What the model needs is measured in the same run: two ranks that have nothing to say to each other, with batches of 4 and 12 (speed of the products, and what
a step costs whatever the batch), and allreduces by `trireme bench`, in a host and between hosts without a limit. Steps of several ranks are not
fitted: the model's error on each of them is printed.
"""

import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parents[1]), str(HERE)]
import machine  # noqa: E402
import qa_runs  # noqa: E402
import page  # noqa: E402
from model import ENCODERS, LARGE_BYTES, SMALL_BYTES, Machine, line, network_from, step  # noqa: E402

from tests.cluster.hosts import Cluster, why_not  # noqa: E402

TRIREME = pathlib.Path(os.environ.get("TRIREME_BUILD_DIR", qa_runs.REPOSITORY / "build" / "release")) / "bin" / "trireme"
RESULTS = HERE.parent / "results" / "scaling.json"
STEP = re.compile(r"^step (\d+)/")
WARM_UP = 3
MOST_OF_OTHERS = 0.05
BATCH, SMALL_BATCH = 12, 4
MIB = 1 << 20
# Of what a link carries, the part that is payload: frames of 1500 bytes with 52 of IP and TCP, and 14 of Ethernet, which tbf counts.
PAYLOAD = 1448 / 1514


def cores() -> list[int]:
    return sorted(os.sched_getaffinity(0))


class Failed(SystemExit):
    pass


def wait_for(processes: list[subprocess.Popen], times: list[float] | None, deadline_s: float) -> str:
    """Reads what the first process says until all have ended; notes when each step was reported."""
    said: list[str] = []
    ender = threading.Timer(deadline_s, lambda: [process.kill() for process in processes])
    ender.start()
    for line in processes[0].stdout:
        said.append(line)
        if times is not None and STEP.match(line):
            times.append(time.monotonic())
    codes = [process.wait() for process in processes]
    ender.cancel()
    if any(codes):
        raise Failed(f"{processes[0].args} ended with {codes}:\n{''.join(said)[-3000:]}")
    return "".join(said)


def popen(command: list[str], is_first: bool, start=subprocess.Popen, **environment) -> subprocess.Popen:
    output = subprocess.PIPE if is_first else subprocess.DEVNULL
    return start(command, stdout=output, stderr=subprocess.STDOUT, text=True, env={**qa_runs.environment(), "OMP_NUM_THREADS": "1", **environment})


def on_core(index: int) -> list[str]:
    """Without it, the only rank of every host would take this machine's first core."""
    return ["taskset", "-c", str(cores()[index % len(cores())])]


def start_on_host(ranks: int, command: list[str]) -> list[subprocess.Popen]:
    return [popen([*qa_runs.mpirun(ranks), *command], True)]


def start_between(cluster: Cluster, command: list[str]) -> list[subprocess.Popen]:
    """One rank on each host, found by the variables that torchrun sets."""
    processes = []
    for host in cluster:
        rank = dict(RANK=host.index, WORLD_SIZE=len(cluster), LOCAL_RANK=0, LOCAL_WORLD_SIZE=1, MASTER_ADDR=cluster[0].name, MASTER_PORT=29500)
        environment = {name: str(value) for name, value in rank.items()}
        processes.append(popen([*on_core(host.index), *command], host.index == 0, start=host.popen, **environment))
    return processes


class Runs:
    """Runs of one model. Owns a folder for what they write."""

    def __init__(self, name: str, model: pathlib.Path, arguments: argparse.Namespace, folder: pathlib.Path):
        self.name, self._model, self._arguments, self._folder = name, model, arguments, folder

    def _command(self, output: str, batch: int = BATCH) -> list[str]:
        steps = self._arguments.steps + WARM_UP
        flags = qa_runs.qa_flags(self._model, self._arguments.train_file, steps, self._folder / output)
        flags += ["--per_device_train_batch_size", str(batch), "--overwrite_output_dir", "--logging_steps", "1", "--save_strategy", "no", "--report_to", "none"]
        return [str(TRIREME), "qa", *flags, "--max_train_samples", str(self._arguments.samples)]

    def _finish(self, processes: list[subprocess.Popen], output: str, ranks: int, batch: int = BATCH) -> dict:
        times: list[float] = []
        wait_for(processes, times, self._arguments.deadline)
        if len(times) != self._arguments.steps + WARM_UP:
            raise Failed(f"{len(times)} steps were reported, {self._arguments.steps + WARM_UP} expected")
        state = json.loads((self._folder / output / "trainer_state.json").read_text())
        samples = ranks * batch * state["global_step"]
        return {
            "step_seconds": (times[-1] - times[WARM_UP - 1]) / self._arguments.steps,
            "tokens_per_sample": state["num_input_tokens_seen"] / samples,
        }

    def one_host(self, ranks: int) -> dict:
        return self._finish(start_on_host(ranks, self._command("out")), "out", ranks)

    def alone_together(self, batch: int) -> dict:
        """As many ranks as there are cores, each a job of its own."""
        folders = [f"alone{i}" for i in range(len(cores()))]
        processes = [popen([*on_core(i), *self._command(folder, batch)], i == 0) for i, folder in enumerate(folders)]
        return self._finish(processes, folders[0], 1, batch)

    def between_hosts(self, mbit: float) -> dict:
        with Cluster(hosts=2, mbit=mbit or None) as cluster:
            return self._finish(start_between(cluster, self._command("out")), "out", 2)


def allreduce(start) -> dict[int, float]:
    """Seconds by size. `start` starts the processes of a command."""
    seconds = {}
    for size in (SMALL_BYTES, MIB, LARGE_BYTES):
        command = [str(TRIREME), "bench", "--min_bytes", str(size), "--max_bytes", str(size), "--seconds", "2", "--shared_buffers", "--json"]
        said = wait_for(start(command), None, 600)
        seconds[size] = json.loads(said[said.index("[\n") :])[0]["seconds"]
    return seconds


def measure_collectives() -> dict:
    measured = {"2 ranks on one host": allreduce(lambda command: start_on_host(2, command))}
    for hosts in (2, 4):
        with Cluster(hosts=hosts) as cluster:
            measured[f"{hosts} hosts"] = allreduce(lambda command: start_between(cluster, command))
    return measured


def machine_from(name: str, small: dict, large: dict, collectives: dict) -> Machine:
    """Two batches give two equations: seconds = FLOPs / speed + fixed."""
    encoder = ENCODERS[name]
    flops = {batch: batch * of["tokens_per_sample"] * encoder.flops_per_token(of["tokens_per_sample"]) for batch, of in ((SMALL_BATCH, small), (BATCH, large))}
    speed = (flops[BATCH] - flops[SMALL_BATCH]) / (large["step_seconds"] - small["step_seconds"])
    fixed = large["step_seconds"] - flops[BATCH] / speed
    if speed <= 0 or fixed < 0:
        raise Failed(f"{name}: steps of {SMALL_BATCH} and {BATCH} samples took {small} and {large}: this machine was not quiet; run it again")
    call, byte = line(collectives["2 ranks on one host"])
    return Machine(speed, fixed / encoder.count(), call, byte, worker_shares_cores=True)


def link(mbit: float) -> float:
    return mbit * 1e6 / 8 * PAYLOAD if mbit else float("inf")


def median(runs: list[dict]) -> dict:
    middle = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
    times = [run["step_seconds"] for run in runs]
    return {**middle, "spread": (max(times) - min(times)) / middle["step_seconds"]}


def fits(name: str, ranks: int) -> bool:
    available = int(re.search(r"MemAvailable:\s+(\d+) kB", pathlib.Path("/proc/meminfo").read_text())[1]) * 1024
    needed = ranks * ENCODERS[name].memory_bytes()
    if needed > 0.9 * available:
        print(f"{name:8}{ranks} ranks: left out, they need {needed / 1e9:.0f} GB of the {available / 1e9:.0f} that are free", flush=True)
    return needed <= 0.9 * available


def measure(runs: Runs, arguments: argparse.Namespace) -> dict[str, dict]:
    cases = {f"{ranks} ranks": (lambda ranks=ranks: runs.one_host(ranks)) for ranks in arguments.ranks if fits(runs.name, ranks)}
    cases |= {f"alone, batch {batch}": (lambda batch=batch: runs.alone_together(batch)) for batch in (SMALL_BATCH, BATCH)}
    cases |= {f"2 hosts, {mbit:g} Mb/s": (lambda mbit=mbit: runs.between_hosts(mbit)) for mbit in arguments.mbit}
    measured: dict[str, list] = {case: [] for case in cases}
    for _ in range(arguments.repeat):
        for case, run in cases.items():
            measured[case].append(run())
            print(f"{runs.name:8}{case:24}{measured[case][-1]['step_seconds']:8.3f} s a step", flush=True)
    return {case: median(of) for case, of in measured.items()}


def points_of(name: str, measured: dict, arguments: argparse.Namespace, collectives: dict) -> tuple[Machine, list[dict]]:
    """Every measured case of several ranks, beside what the model says of it."""
    fitted = machine_from(name, measured[f"alone, batch {SMALL_BATCH}"], measured[f"alone, batch {BATCH}"], collectives)
    places = [(f"{ranks} ranks", 1, ranks, None) for ranks in arguments.ranks]
    places += [(f"2 hosts, {mbit:g} Mb/s", 2, 1, mbit) for mbit in arguments.mbit]
    one = measured.get("1 ranks")
    points = []
    for case, hosts, ranks, mbit in places:
        if case not in measured:
            continue
        of, total = measured[case], hosts * ranks
        crowd = max(1.0, total / len(cores()))
        crowded = Machine(**{**vars(fitted), "ranks_per_core": crowd})
        network = None if hosts == 1 else network_from(collectives, link(mbit))
        predicted = step(ENCODERS[name], BATCH, of["tokens_per_sample"], hosts, ranks, crowded, network).seconds
        point = dict(model=name, hosts=hosts, ranks_per_host=ranks, mbit=mbit, **of, samples_per_second=total * BATCH / of["step_seconds"])
        point |= dict(predicted_seconds=predicted, error=predicted / of["step_seconds"] - 1)
        if one:
            point["efficiency"] = point["samples_per_second"] / (min(total, len(cores())) * BATCH / one["step_seconds"])
        points.append(point)
    return fitted, points


# The guides' hosts: two sockets, a process for each. A core computes as fast as one here, all cores of a rank as fast as their number says: what is
# slower in truth leaves more time to hide communication in. One core of each rank is its worker's.
LARGE_HOST = dict(ranks=2, cores_per_rank=28)
GIGABITS = (10, 25, 100)
HOSTS = (2, 4, 8, 16, 32, 64)


def predictions(machine: Machine, collectives: dict, tokens: float) -> list[dict]:
    rows = []
    small = dict(ranks=len(cores()), cores_per_rank=1)
    for kind, host in (("as here", small), ("two sockets", LARGE_HOST)):
        own_worker = host["cores_per_rank"] >= 8
        threads = host["cores_per_rank"] - own_worker
        faster = Machine(machine.flops_per_second * threads, machine.seconds_per_parameter / threads, machine.host_call_seconds, machine.host_byte_seconds, not own_worker)
        for name in ("base", "large"):
            for gigabit in GIGABITS:
                network = network_from(collectives, link(gigabit * 1000))
                steps = {hosts: step(ENCODERS[name], BATCH, tokens, hosts, host["ranks"], faster, network) for hosts in HOSTS}
                alone = step(ENCODERS[name], BATCH, tokens, 1, host["ranks"], faster, None)
                # Beside one host of the same kind: what going to several costs.
                efficiencies = {hosts: alone.seconds / each.seconds for hosts, each in steps.items()}
                row = dict(host=kind, **host, model=name, gigabit=gigabit, one_host_seconds=alone.seconds, sent_bytes=steps[2].sent_bytes, efficiency=efficiencies)
                rows.append(row)
    return rows


def others_share() -> float:
    """What other programs take of this machine's processors, over two seconds in which this one sleeps."""

    def ticks() -> tuple[int, int]:
        fields = [int(each) for each in pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
        return sum(fields), fields[3] + fields[4]  # idle, and waiting for a disk

    total, idle = ticks()
    time.sleep(2)
    later_total, later_idle = ticks()
    return 1 - (later_idle - idle) / (later_total - total)


def run(arguments: argparse.Namespace) -> dict:
    collectives = measure_collectives()
    points, machines = [], {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        for name, model in qa_runs.models(arguments.models, folder).items():
            if not fits(name, 2):  # which ranks that train alone and those of two hosts are
                sys.exit(f"two ranks of {name} do not fit this machine's memory: leave it out of --models")
            machines[name], of = points_of(name, measure(Runs(name, model, arguments, folder), arguments), arguments, collectives)
            points += of
    reference = "base" if "base" in machines else arguments.models[0]
    tokens = statistics.mean(point["tokens_per_sample"] for point in points)
    return {
        **machine.describe(), "steps": arguments.steps, "repeat": arguments.repeat, "batch": BATCH,
        "collectives": collectives, "machines": {name: vars(machine) for name, machine in machines.items()},
        "points": points, "predicted_with": reference, "predictions": predictions(machines[reference], collectives, tokens), "tokens_per_sample": tokens,
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train_file", type=pathlib.Path)
    parser.add_argument("--models", type=lambda text: text.split(","), default=["minilm", "base"])
    parser.add_argument("--ranks", type=lambda text: [int(each) for each in text.split(",")], default=[1, 2, 4, 8])
    parser.add_argument("--mbit", type=lambda text: [float(each) for each in text.split(",")], default=[100, 1000, 0])
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--samples", type=int, default=4000, help="read so many questions of the file")
    parser.add_argument("--deadline", type=float, default=3600, help="seconds that one run may take")
    parser.add_argument("--busy", action="store_true", help="run on a busy machine, too; nothing is written then")
    parser.add_argument("--json", action="store_true", help="write bench/results/scaling.json")
    parser.add_argument("--page", action="store_true", help="write the tables of docs/scaling.md from bench/results/scaling.json")
    arguments = parser.parse_args()
    if arguments.train_file:
        if not TRIREME.exists():
            sys.exit(f"{TRIREME} is not built: cmake --preset release && cmake --build --preset release")
        if reason := why_not():
            sys.exit(f"the links between hosts cannot be made: {reason}")
        if (share := others_share()) > MOST_OF_OTHERS and not arguments.busy:
            sys.exit(f"other programs take {100 * share:.0f} % of this machine: figures of such a run say nothing. Stop them, or try it out with --busy")
        results = json.loads(json.dumps({**run(arguments), "others_share": share}))
        print(page.tables(results))
        if arguments.json and share <= MOST_OF_OTHERS:
            RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    elif not arguments.page:
        parser.error("--train_file, or --page")
    if arguments.page:
        page.write(json.loads(RESULTS.read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
