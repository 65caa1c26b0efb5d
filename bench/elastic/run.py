#!/usr/bin/env python3
"""What dies, who notices and how soon, and how long until training goes on: torchrun's elastic agents with `trireme qa`, on hosts in network namespaces.

    .venv/bin/python bench/elastic/run.py [--faults kill,silent,...] [--repeat 3] [--peer_timeout_ms 5000] [--json] [--targets]

Needs root. MiniLM, pretrained, on generated questions; one process a host; the rendezvous has last_call_timeout=1 (torch's default is 30 s) and heartbeats
each second. Each fault befalls a job of its own that has made some steps since its last checkpoint:

  kill        SIGKILL to a worker on the second of two hosts
  host        SIGKILL to every process of the second of two hosts, as a pod that is deleted by force
  silent      the second of two hosts loses power: nobody hears a FIN or RST of it
  rank0       the same for the host of rank 0; the rendezvous is on the other one
  evict       SIGTERM to torchrun on the second of two hosts
  join        a host joins a job of one
  stop        SIGSTOP to a worker, with --ddp_timeout 5: it is alive, so only that ends the wait
  rendezvous  the host of the rendezvous loses power: the agents that are left must end. net.ipv4.tcp_retries2 is 6, which ends a connection after 25 s;
              with the kernel's 15 it is a quarter of an hour, and torch 2.13 has no bound of its own

noticed: until the last surviving rank has said why it ends (evict: until the evicted agent has ended). training: until the first step of the next run is
done. again: steps that were done twice. load: the machine's load average before the job began; recovery is mostly the start of processes, and takes as long
as others let it. Medians over --repeat jobs, the largest of steps and load.
"""

import argparse
import json
import os
import pathlib
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable

HERE = pathlib.Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
sys.path[:0] = [str(REPOSITORY), str(HERE.parent)]
import machine  # noqa: E402
import qa_runs  # noqa: E402

from tests.cluster.elastic import ERROR, ElasticJob, bound_retransmissions, steps_again  # noqa: E402
from tests.cluster.hosts import Cluster, why_not  # noqa: E402
from tests.huggingface.questions import write_questions  # noqa: E402
from tests.trainer.runs import TRIREME  # noqa: E402

SAVE_STEPS = 20
DDP_TIMEOUT_S = 5  # for "stop"
RETRIES = 6  # net.ipv4.tcp_retries2, for "rendezvous"
# The project's: seconds until it is noticed, until training goes on. A silent loss may take the peer timeout.
NOTICED_S, TRAINING_S, EVICTED_S = 2.0, 15.0, 20.0


class Job(ElasticJob):
    """With MiniLM, and a clock."""

    def __init__(self, cluster: Cluster, folder: pathlib.Path, arguments: argparse.Namespace, *more: object, endpoint: int = 0):
        train = write_questions(folder / "train.json", 4000, seed=1)
        flags = [
            "--model_name_or_path", qa_runs.minilm(), "--train_file", train, "--do_train", "--per_device_train_batch_size", 4, "--num_train_epochs", 100,
            "--logging_steps", 1000, "--save_strategy", "steps", "--save_steps", SAVE_STEPS, "--save_total_limit", 2,
            "--report_to", "none", "--output_dir", folder / "out", *more,
        ]  # fmt: skip
        super().__init__(cluster, folder, flags, endpoint=endpoint, env={"TRIREME_PEER_TIMEOUT_MS": str(arguments.peer_timeout_ms)})

    def seconds_until(self, condition, since: float, timeout_s: float = 120) -> float:
        self.until(condition, "what is measured", timeout_s)
        return time.monotonic() - since

    def errors(self, host: int) -> int:
        return len(ERROR.findall(self.output(host)))


def begun(job: Job, *hosts: int) -> int:
    """The number of the run, when it is some steps past a checkpoint."""
    job.start(*hosts)
    run = job.wait_for_run(ranks=len(hosts))
    job.until(lambda: 5 <= job.last_step()[1] % SAVE_STEPS < 15 and job.last_step()[1] > SAVE_STEPS, "the middle between two checkpoints")
    return run


def until_training(job: Job, before: int, since: float) -> float:
    return job.seconds_until(lambda: job.last_step()[0] > before, since)


def lost(befall: Callable[[Cluster, Job], None], survivor: int = 0) -> Callable[[Cluster, Job], dict[str, float]]:
    """A worker or a host that is gone from one moment to the next: when the host that survives says so, and when it trains again."""

    def fault(cluster: Cluster, job: Job) -> dict[str, float]:
        before = begun(job, 0, 1)
        since = time.monotonic()
        befall(cluster, job)
        return {"noticed_s": job.seconds_until(lambda: job.errors(survivor) > 0, since), "training_s": until_training(job, before, since)}

    return fault


def evict(cluster: Cluster, job: Job) -> dict[str, float]:
    before = begun(job, 0, 1)
    since = time.monotonic()
    job.agents[1].send_signal(signal.SIGTERM)
    noticed = job.seconds_until(lambda: job.agents[1].poll() is not None, since)
    if job.agents[1].returncode == 0:
        sys.exit("evict: torchrun ended with 0")
    return {"noticed_s": noticed, "training_s": until_training(job, before, since)}


def join(cluster: Cluster, job: Job) -> dict[str, float]:
    """From the moment at which the job has saved and ends its workers: how long the new host's Python takes to start is not ours."""
    before = begun(job, 0)
    job.start(1)
    job.until(lambda: "SIGTERM: step" in job.output(0), "the end of the workers")
    return {"training_s": until_training(job, before, time.monotonic())}


def rendezvous(cluster: Cluster, job: Job) -> dict[str, float]:
    bound_retransmissions(cluster, RETRIES)
    begun(job, 0, 1)
    since = time.monotonic()
    cluster.kill_host(1)
    noticed = job.seconds_until(lambda: job.errors(0) > 0, since)
    ended = job.seconds_until(lambda: job.agents[0].poll() is not None, since, timeout_s=600)
    if job.agents[0].returncode == 0:
        sys.exit("rendezvous: torchrun ended with 0")
    return {"noticed_s": noticed, "ended_s": ended}


FAULTS: dict[str, Callable[[Cluster, Job], dict[str, float]]] = {
    "kill": lost(lambda cluster, job: job.signal_worker(1, signal.SIGKILL)),
    "host": lost(lambda cluster, job: job.kill_host_processes(1)),
    "silent": lost(lambda cluster, job: cluster.kill_host(1)),
    "rank0": lost(lambda cluster, job: cluster.kill_host(0), survivor=1),
    "evict": evict,
    "join": join,
    "stop": lost(lambda cluster, job: job.signal_worker(1, signal.SIGSTOP)),
    "rendezvous": rendezvous,
}
OPTIONS = {"stop": ["--ddp_timeout", DDP_TIMEOUT_S]}
ENDPOINTS = {"rank0": 1, "rendezvous": 1}


def measure(name: str, arguments: argparse.Namespace) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as scratch, Cluster(hosts=2) as cluster:
        folder = pathlib.Path(scratch)
        load = os.getloadavg()[0]
        with Job(cluster, folder, arguments, *OPTIONS.get(name, []), endpoint=ENDPOINTS.get(name, 0)) as job:
            figures = FAULTS[name](cluster, job)
            return {**figures, "again": max(steps_again(job.ledger), default=0), "load": load}


def bounds(name: str, arguments: argparse.Namespace) -> dict[str, float]:
    """By figure."""
    peer_s = arguments.peer_timeout_ms / 1000
    noticed = {"silent": peer_s, "rank0": peer_s, "rendezvous": peer_s, "evict": EVICTED_S, "stop": DDP_TIMEOUT_S + NOTICED_S}.get(name, NOTICED_S)
    found = {"noticed_s": noticed, "again": 0 if name in ("evict", "join") else SAVE_STEPS}
    if name == "join":  # nothing is lost, so there is nothing to notice
        del found["noticed_s"]
    if name in ("kill", "silent"):
        found["training_s"] = TRAINING_S
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=lambda text: text.split(","), default=list(FAULTS))
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--peer_timeout_ms", type=int, default=5000, help="TRIREME_PEER_TIMEOUT_MS; 15000 where nothing is said")
    parser.add_argument("--json", action="store_true", help="write bench/results/elastic.json")
    parser.add_argument("--targets", action="store_true", help="compare with the project's targets")
    arguments = parser.parse_args()
    if reason := why_not():
        sys.exit(reason)
    if not TRIREME.exists():
        sys.exit(f"{TRIREME} is not built: cmake --preset release && cmake --build --preset release")
    if unknown := set(arguments.faults) - FAULTS.keys():
        sys.exit(f"no such fault: {', '.join(unknown)}; there are {', '.join(FAULTS)}")
    print(f"peer timeout {arguments.peer_timeout_ms} ms, {arguments.repeat} jobs for each\n{'fault':12}{'noticed':>10}{'training':>10}{'ended':>10}{'again':>8}{'load':>8}")
    records, all_met = {}, True
    for name in arguments.faults:
        runs = [measure(name, arguments) for _ in range(arguments.repeat)]
        figures = {key: (max if key in ("again", "load") else statistics.median)(each[key] for each in runs) for key in runs[0]}
        records[name] = {"median": figures, "runs": runs}
        cells = [f"{figures[key]:8.1f} s" if key in figures else f"{'-':>10}" for key in ("noticed_s", "training_s", "ended_s")]
        print(f"{name:12}{''.join(cells)}{figures['again']:8}{figures['load']:8.1f}", flush=True)
        for key, bound in bounds(name, arguments).items():
            if arguments.targets:
                met = all(each[key] <= bound for each in runs)
                all_met = all_met and met
                print("PASS" if met else "FAIL", f"{name}: {key} at most {max(each[key] for each in runs):.1f}, wanted {bound:g}", flush=True)
    if arguments.json:
        results = {"machine": machine.describe(), "peer_timeout_ms": arguments.peer_timeout_ms, "faults": records}
        (HERE.parent / "results" / "elastic.json").write_text(json.dumps(results, indent=1) + "\n")
    return 0 if all_met else 1


if __name__ == "__main__":
    sys.exit(main())
