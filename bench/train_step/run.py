#!/usr/bin/env python3
"""How fast is a training step, and how much memory does it take? trireme.optimize beside torch eager, torch.compile and IPEX.

    .venv/bin/python bench/train_step/run.py [--models minilm,base,large] [--lengths full,squad] [--dtypes fp32,bf16] [--variants ...]
                                             [--rounds 3] [--batches 8] [--threads 2] [--ipex PYTHON] [--json] [--targets]

Every variant is a process that holds its own model; they take turns, one step each, so that a noisy machine is noisy for all. A round is
all batches of a variant once; the figure is the median over rounds of the time per sequence, the first round warms up and is not counted.
torch pads to 384; `grouped` pads to the longest of a batch of similar lengths; trireme computes no padding. --ipex names the Python of
an environment with intel-extension-for-pytorch and transformers. Needs transformers.
"""

import argparse
import json
import pathlib
import platform
import statistics
import subprocess
import sys

from targets import check
from workload import MODELS

HERE = pathlib.Path(__file__).resolve().parent
VARIANTS = ["torch", "grouped", "compile", "ipex", "trireme"]


class Worker:
    def __init__(self, python: str, variant: str, model: str, lengths: str, dtype: str, threads: int, batches: int) -> None:
        self.variant, self.model = variant, MODELS[model]
        command = [python, "-W", "ignore", str(HERE / "worker.py"), "--variant", variant, "--model", model]
        command += ["--lengths", lengths, "--dtype", dtype, "--threads", str(threads), "--batches", str(batches)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.batches = self.answer()["batches"]
        self.rounds: list[list[dict]] = []

    def answer(self) -> dict:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"{self.variant}: the worker ended with {self.process.wait()}")
        return json.loads(line)

    def ask(self, question: str) -> dict:
        assert self.process.stdin is not None
        self.process.stdin.write(question + "\n")
        self.process.stdin.flush()
        return self.answer()

    def finish(self, first_counted: int) -> dict:
        memory = self.ask("memory")["bytes"]
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()
        rounds = self.rounds[first_counted:]
        seconds = [sum(step["seconds"] for step in each) for each in rounds]
        sequences = sum(len(step["lengths"]) for step in rounds[0])
        flops = sum(self.model.flops(step["lengths"]) for step in rounds[0])
        middle = statistics.median(seconds)
        return {
            "seconds_per_sequence": middle / sequences,
            "spread": (max(seconds) - min(seconds)) / middle,
            "gflops": flops / middle * 1e-9,
            "peak_bytes": memory,
            "losses": [step["loss"] for step in rounds[0]],
        }


def measure(model: str, lengths: str, dtype: str, arguments: argparse.Namespace) -> dict[str, dict]:
    variants = [v for v in arguments.variants if not (v == "grouped" and lengths == "full") and not (v == "ipex" and not arguments.ipex)]
    python = {variant: arguments.ipex if variant == "ipex" else sys.executable for variant in variants}
    workers = [Worker(python[variant], variant, model, lengths, dtype, arguments.threads, arguments.batches) for variant in variants]
    for _ in range(arguments.rounds + 1):
        for worker in workers:
            worker.rounds.append([])
        for i in range(max(worker.batches for worker in workers)):
            for worker in workers:
                if i < worker.batches:
                    worker.rounds[-1].append(worker.ask("step"))
    return {worker.variant: worker.finish(first_counted=1) for worker in workers}


def fma_peak(threads: int) -> float:
    """GFLOP/s of nothing but fused multiply-adds on all threads, from trireme's own kernel."""
    code = f"import torch, trireme.ops as ops; torch.set_num_threads({threads}); print(max(ops.measure_fma_peak(0.2) for _ in range(5)))"
    return float(subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, capture_output=True, text=True).stdout)


def show(case: str, results: dict[str, dict], peak: float) -> None:
    ours = results.get("trireme")
    for variant, result in results.items():
        ratio = f"{result['seconds_per_sequence'] / ours['seconds_per_sequence']:6.2f}x" if ours else ""
        print(
            f"{case:22} {variant:8} {result['seconds_per_sequence'] * 1e3:9.1f} ms/sequence {ratio} {result['gflops']:7.0f} GFLOP/s "
            f"{100 * result['gflops'] / peak:4.0f} % of peak {result['peak_bytes'] / 1e9:6.2f} GB  +-{100 * result['spread'] / 2:.0f} %",
            flush=True,
        )


def cpu_name() -> str:
    for line in open("/proc/cpuinfo"):
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


def save(records: dict[str, dict], threads: int, peak: float) -> None:
    """Into bench/results/train_step.json; cases of earlier runs that this one did not measure stay."""
    path = HERE.parent / "results" / "train_step.json"
    cases = json.loads(path.read_text()) if path.exists() else {}
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=HERE, capture_output=True, text=True).stdout.strip()
    head = {"cpu": cpu_name(), "threads": threads, "commit": commit, "fma_peak_gflops": peak}
    for case, results in records.items():
        cases[case] = {**head, "variants": results}
    path.write_text(json.dumps(cases, indent=1) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("models", "minilm,base"), ("lengths", "full,squad"), ("dtypes", "fp32"), ("variants", "torch,grouped,trireme")):
        parser.add_argument(f"--{name}", type=lambda text: text.split(","), default=default.split(","))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batches", type=int, default=8, help="mixed batches in a round; each has the whole distribution of lengths")
    parser.add_argument("--ipex", help="the Python of an environment that has IPEX")
    parser.add_argument("--json", action="store_true", help="write bench/results/train_step.json")
    parser.add_argument("--targets", action="store_true", help="compare with the project's targets")
    arguments = parser.parse_args()

    peak, records = fma_peak(arguments.threads), {}
    print(f"FMA peak, {arguments.threads} threads: {peak:.0f} GFLOP/s")
    for dtype in arguments.dtypes:
        for model in arguments.models:
            for lengths in arguments.lengths:
                case = f"{model}/{lengths}/{dtype}"
                records[case] = measure(model, lengths, dtype, arguments)
                show(case, records[case], peak)
    if arguments.json:
        save(records, arguments.threads, peak)
    return 0 if not arguments.targets or check(records, peak) else 1


if __name__ == "__main__":
    sys.exit(main())
