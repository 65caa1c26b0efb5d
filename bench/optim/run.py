#!/usr/bin/env python3
"""Step time of trireme.optim.AdamW beside torch.optim.AdamW, fused and foreach, on the parameter shapes of BERT-base and MiniLM.

    .venv/bin/python bench/optim/run.py --json      # bench/results/optim.json

One set of weights and gradients serves all; each optimizer has its own state. Every one first makes a step that is compared with torch's; then they
take turns. Clipping is max_grad_norm here and torch.nn.utils.clip_grad_norm_ there. Bytes are what must move: weights, gradients and two
moments read, all but gradients written; gradients once more for the norm.
"""

import argparse
import json
import os
import pathlib
import platform
import statistics
import subprocess
import time
from collections.abc import Callable

import torch

import trireme

HERE = pathlib.Path(__file__).resolve().parent
MODELS = {
    "MiniLM-L6-H384": {"hidden": 384, "layers": 6, "intermediate": 1536},
    "BERT-base": {"hidden": 768, "layers": 12, "intermediate": 3072},
}
VOCABULARY, POSITIONS, TYPES = 30522, 512, 2
LR, WEIGHT_DECAY, MAX_NORM = 5e-5, 0.01, 1.0


def shapes_of(hidden: int, layers: int, intermediate: int) -> list[tuple[int, ...]]:
    """Of BertForQuestionAnswering, in the order of its parameters."""
    norm = [(hidden,), (hidden,)]

    def dense(outputs: int, inputs: int) -> list[tuple[int, ...]]:
        return [(outputs, inputs), (outputs,)]

    embeddings = [(VOCABULARY, hidden), (POSITIONS, hidden), (TYPES, hidden), *norm]
    layer = [*(4 * dense(hidden, hidden)), *norm, *dense(intermediate, hidden), *dense(hidden, intermediate), *norm]
    return [*embeddings, *(layers * layer), *dense(2, hidden)]


def groups_of(params: list[torch.Tensor]) -> list[dict]:
    """As the Hugging Face Trainer makes them: biases and LayerNorm do not decay."""
    decay, others = [param for param in params if param.dim() > 1], [param for param in params if param.dim() == 1]
    return [{"params": decay, "weight_decay": WEIGHT_DECAY}, {"params": others, "weight_decay": 0.0}]


def make_params(shapes: list[tuple[int, ...]], dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    torch.manual_seed(0)
    params = []
    for shape in shapes:
        param = torch.nn.Parameter((torch.randn(shape) * 0.02).to(dtype))
        param.grad = (torch.randn(shape) * 1e-3).to(dtype)
        params.append(param)
    return params


def contestants(params: list[torch.Tensor], halves: list[torch.Tensor], clip: bool) -> dict[str, tuple[Callable[[], object], int]]:
    """Name: a step, and the bytes that it moves per element."""

    def ours(of: list[torch.Tensor], **options: object) -> Callable[[], object]:
        return trireme.optim.AdamW(groups_of(of), lr=LR, max_grad_norm=MAX_NORM if clip else None, **options).step

    def torchs(**options: bool) -> Callable[[], object]:
        optimizer = torch.optim.AdamW(groups_of(params), lr=LR, **options)

        def step() -> None:
            if clip:
                torch.nn.utils.clip_grad_norm_(params, MAX_NORM)
            optimizer.step()

        return step

    return {
        "trireme": (ours(params), 28 + 4 * clip),
        "torch fused": (torchs(fused=True), 28 + 4 * clip),
        "torch foreach": (torchs(foreach=True), 28 + 4 * clip),
        "trireme split bf16": (ours(halves, master_weights="split"), 26 + 2 * clip),
    }


def check(shapes: list[tuple[int, ...]], clip: bool) -> None:
    """The first step of each, against torch's without fused or foreach."""
    names = ["trireme", "torch fused", "torch foreach"]
    expected = make_params(shapes)
    if clip:
        torch.nn.utils.clip_grad_norm_(expected, MAX_NORM)
    torch.optim.AdamW(groups_of(expected), lr=LR, foreach=False).step()
    for name in names:
        params = make_params(shapes)
        contestants(params, [], clip)[name][0]()
        for mine, other in zip(params, expected, strict=True):
            torch.testing.assert_close(mine, other, rtol=1e-5, atol=1e-7)


def measure(model: str, clip: bool, repetitions: int) -> list[dict]:
    shapes = shapes_of(**MODELS[model])
    check(shapes, clip)
    params, halves = make_params(shapes), make_params(shapes, torch.bfloat16)
    elements = sum(param.numel() for param in params)
    runners = contestants(params, halves, clip)
    times: dict[str, list[float]] = {name: [] for name in runners}
    for round_number in range(repetitions + 2):  # two to warm up
        for name, (step, _) in runners.items():
            begin = time.perf_counter()
            step()
            if round_number >= 2:
                times[name].append(time.perf_counter() - begin)
    records = []
    for name, (_, bytes_each) in runners.items():
        deciles = statistics.quantiles(times[name], n=10) if repetitions > 1 else times[name] * 9
        median = statistics.median(times[name])
        records.append(
            {
                "model": model,
                "tensors": len(shapes),
                "elements": elements,
                "clip": clip,
                "optimizer": name,
                "median_ms": median * 1e3,
                "p10_ms": deciles[0] * 1e3,
                "p90_ms": deciles[-1] * 1e3,
                "gb_per_s": elements * bytes_each / median / 1e9,
                "times_as_fast_as_fused": statistics.median(times["torch fused"]) / median,
            }
        )
    return records


def describe(record: dict) -> str:
    what = f"{record['model']}{', clipped' if record['clip'] else ''}"
    spread = f"({record['p10_ms']:.1f} to {record['p90_ms']:.1f})"
    return (
        f"{what:24s} {record['optimizer']:20s} {record['median_ms']:8.1f} ms {spread:20s} {record['gb_per_s']:6.1f} GB/s "
        f"{record['times_as_fast_as_fused']:5.2f} x torch fused"
    )


def machine() -> dict[str, str | int | None]:
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    cpu = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=HERE, capture_output=True, text=True).stdout.strip()
    threads = torch.get_num_threads()
    return {"cpu": cpu, "cores": os.cpu_count(), "threads": threads, "kernel": platform.release(), "torch": torch.__version__, "commit": commit}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--repetitions", type=int, default=20)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    records = []
    for model in options.models.split(","):
        for clip in (False, True):
            for record in measure(model, clip, options.repetitions):
                print(describe(record), flush=True)
                records.append(record)
    if options.json:
        results = {"machine": machine(), "records": records}
        (HERE.parent / "results" / "optim.json").write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
