#!/usr/bin/env python3
"""How fast is a training step, and how much memory does it take? trireme.optimize beside torch eager, torch.compile and IPEX.

    .venv/bin/python bench/train_step/run.py [--models minilm,base,large] [--lengths full,squad] [--dtypes fp32,bf16] [--variants ...]
                                             [--rounds 3] [--batches 8] [--threads 2] [--ipex PYTHON] [--json] [--plot] [--targets]

Every variant is a process that holds its own model. First all compute the logits of one batch: a difference ends the run. Then they take turns,
one step each, so that a noisy machine is noisy for all. A round is all batches of a variant once; the figure is the median over rounds of the
time per sequence. Rounds of four steps at least warm up and are not counted: the first three still ask the kernel for pages.
The FMA peak takes its turn too: 0.1 s of nothing but fused multiply-adds on all threads after each of trireme's steps, the median of a case.
torch pads to 384; `grouped` pads to the longest of a batch of similar lengths; trireme computes no padding. `trireme-fp32` stands beside
bf16, `deterministic` is trireme with TRIREME_DETERMINISTIC=1, `blas` with torch's matrix products (TRIREME_MATMUL=torch). --ipex names the Python of an
environment with intel-extension-for-pytorch and transformers. Needs transformers.

For a CPU without bf16 instructions, on one that has them: ONEDNN_MAX_CPU_ISA=AVX512_CORE bench/train_step/run.py --dtypes bf16
--variants torch,trireme-fp32,trireme
"""

import argparse
import json
import math
import os
import pathlib
import signal
import statistics
import subprocess
import sys
from typing import NoReturn

from targets import check
from workload import MODELS, Model

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import machine  # noqa: E402

RESULTS = HERE.parent / "results" / "train_step.json"
WARMING_STEPS = 4  # from the fourth on a step meets no page faults
VARIANTS = ["torch", "grouped", "compile", "ipex", "trireme-fp32", "deterministic", "blas", "trireme"]
# trireme, with a variable set.
SETTINGS = {"deterministic": {"TRIREME_DETERMINISTIC": "1"}, "blas": {"TRIREME_MATMUL": "torch"}}


class Worker:
    def __init__(self, python: str, variant: str, model: str, lengths: str, dtype: str, threads: int, batches: int) -> None:
        self.variant, self.model = variant, MODELS[model]
        environment = dict(os.environ) | SETTINGS.get(variant, {})
        if variant == "trireme-fp32":
            dtype = "fp32"
        what = "trireme" if variant in (*SETTINGS, "trireme-fp32") else variant
        command = [python, "-W", "ignore", str(HERE / "worker.py"), "--variant", what, "--model", model]
        command += ["--lengths", lengths, "--dtype", dtype, "--threads", str(threads), "--batches", str(batches)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
        self.batches = self.answer()["batches"]
        self.rounds: list[list[dict]] = []
        self.fma_peaks: list[float] = []

    def answer(self) -> dict:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            self.refuse()
        return json.loads(line)

    def refuse(self) -> NoReturn:
        why = " (killed: the variants may need more memory than there is; take fewer at a time)" if self.process.wait() == -signal.SIGKILL else ""
        sys.exit(f"{self.variant}: the worker ended with {self.process.returncode}{why}")

    def ask(self, question: str) -> dict:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(question + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            self.refuse()
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


def compare_answers(workers: list[Worker], model: Model, dtype: str) -> None:
    """Ends the program if a variant's logits are not those of the first, which is torch where it is measured."""
    allowed = allowed_difference(model, dtype)
    wanted, *others = [(worker.variant, sum(worker.ask("check")["logits"], [])) for worker in workers]
    for variant, logits in others:
        difference = math.dist(logits, wanted[1]) / math.hypot(*wanted[1])
        if not difference <= allowed:  # also NaN
            sys.exit(f"{variant}: its logits differ from those of {wanted[0]} by {difference:.1e} of their size, {allowed:.1e} is allowed")


def allowed_difference(model: Model, dtype: str) -> float:
    """Relative. In fp32 two orders of a sum of n terms differ by about eps sqrt(n), here of at most 4 hidden ones; a layer has a dozen such sums, whose
    errors add at worst. In bf16 what a layer stores is rounded by half an eps, a dozen times; these errors are independent. Twice that."""
    if dtype == "fp32":
        return 2 * 2**-23 * math.sqrt(4 * model.hidden) * 12 * model.layers
    return 2 * 2**-8 * math.sqrt(12 * model.layers)


def measure(model: str, lengths: str, dtype: str, arguments: argparse.Namespace) -> dict[str, dict]:
    left_out = {"grouped"} if lengths == "full" else set()
    left_out |= {"trireme-fp32"} if dtype == "fp32" else set()
    variants = [variant for variant in arguments.variants if variant not in left_out]
    python = {variant: arguments.ipex if variant == "ipex" else sys.executable for variant in variants}
    workers = [Worker(python[variant], variant, model, lengths, dtype, arguments.threads, arguments.batches) for variant in variants]
    compare_answers(workers, MODELS[model], dtype)
    warming = math.ceil(WARMING_STEPS / min(worker.batches for worker in workers))
    for _ in range(warming + arguments.rounds):
        for worker in workers:
            worker.rounds.append([])
        for i in range(max(worker.batches for worker in workers)):
            for worker in workers:
                if i < worker.batches:
                    worker.rounds[-1].append(worker.ask("step"))
                    if worker.variant == "trireme":  # behind its step: before it, it would wake its threads
                        worker.fma_peaks.append(worker.ask("fma")["gflops"])
    results = {worker.variant: worker.finish(first_counted=warming) for worker in workers}
    peaks = [peak for worker in workers for peak in worker.fma_peaks]
    for result in results.values() if peaks else []:
        result["fma_peak_gflops"] = statistics.median(peaks)
    return results


def show(case: str, results: dict[str, dict]) -> None:
    ours = results.get("trireme")
    for variant, result in results.items():
        ratio = f"{result['seconds_per_sequence'] / ours['seconds_per_sequence']:6.2f}x" if ours else ""
        share = f"{100 * result['gflops'] / result['fma_peak_gflops']:4.0f} % of {result['fma_peak_gflops']:.0f}" if ours else ""
        print(
            f"{case:22} {variant:8} {result['seconds_per_sequence'] * 1e3:9.1f} ms/sequence {ratio} {result['gflops']:7.0f} GFLOP/s "
            f"{share} {result['peak_bytes'] / 1e9:6.2f} GB  +-{100 * result['spread'] / 2:.0f} %",
            flush=True,
        )


def save(records: dict[str, dict], threads: int) -> None:
    """Into bench/results/train_step.json; cases of earlier runs that this one did not measure stay."""
    cases = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    head = {**machine.describe(), "threads": threads}
    for case, results in records.items():
        cases[machine.of_this_cpu(case)] = {**head, "variants": results}
    RESULTS.write_text(json.dumps(cases, indent=1) + "\n")


def has_bf16() -> bool:
    """As far as torch may use it: ONEDNN_MAX_CPU_ISA=AVX512_CORE hides it."""
    return os.environ.get("ONEDNN_MAX_CPU_ISA") != "AVX512_CORE" and any("bf16" in name for name in machine.describe()["isa"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("models", "minilm,base"), ("lengths", "full,squad"), ("dtypes", "fp32"), ("variants", "torch,grouped,trireme")):
        parser.add_argument(f"--{name}", type=lambda text: text.split(","), default=default.split(","))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batches", type=int, default=8, help="mixed batches in a round; each has the whole distribution of lengths")
    parser.add_argument("--ipex", help="the Python of an environment that has IPEX")
    parser.add_argument("--json", action="store_true", help="write bench/results/train_step.json")
    parser.add_argument("--plot", action="store_true", help="draw bench/plots/train_step.svg from the JSON file; needs matplotlib")
    parser.add_argument("--targets", action="store_true", help="compare with the project's targets")
    arguments = parser.parse_args()
    unknown = set(arguments.variants) - set(VARIANTS)
    if unknown:
        parser.error(f"--variants {','.join(unknown)}: choose from {','.join(VARIANTS)}")
    if "ipex" in arguments.variants and not arguments.ipex:
        parser.error("--variants ipex needs --ipex, the Python of an environment that has it")

    records = {}
    for dtype in arguments.dtypes:
        for model in arguments.models:
            for lengths in arguments.lengths:
                case = f"{model}/{lengths}/{dtype}"
                records[case] = measure(model, lengths, dtype, arguments)
                show(case, records[case])
                if arguments.json:
                    save({case: records[case]}, arguments.threads)
    if arguments.plot:
        from plot import draw

        draw(RESULTS, HERE.parent / "plots" / "train_step.svg")
    return 0 if not arguments.targets or check(records, has_bf16()) else 1


if __name__ == "__main__":
    sys.exit(main())
