#!/usr/bin/env python3
"""Steps of the optimizers, the global norm and bf16 conversion beside torch's own, on the parameter shapes of BERT-base and MiniLM.

    .venv/bin/python bench/optim/run.py --json      # bench/results/optim.json

AdamW, Adam, SGD with momentum and Adagrad run beside torch.optim's, fused and foreach; torch has no LAMB, so that one is shown alone. Clipping is
max_grad_norm here and torch.nn.utils.clip_grad_norm_ there. The global norm is compared with torch.nn.utils.get_total_norm, the part of clip_grad_norm_ that
measures; conversions with Tensor.to. All of torch's own answers are compared before anything is timed; then all take turns. Bytes are what must move:
a step reads weights, gradients and state and writes all but the gradients, which are read once more for the norm.
"""

import argparse
import itertools
import json
import pathlib
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

import trireme
from trireme._library import ops

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import machine  # noqa: E402

MODELS = {
    "MiniLM-L6-H384": {"vocabulary": 30522, "hidden": 384, "layers": 6, "intermediate": 1536},
    "BERT-base": {"vocabulary": 30522, "hidden": 768, "layers": 12, "intermediate": 3072},
}
QUICK = {"quick": {"vocabulary": 1000, "hidden": 64, "layers": 2, "intermediate": 256}}
POSITIONS, TYPES = 512, 2
WEIGHT_DECAY, MAX_NORM = 0.01, 1.0
# Of those that add the decay to the gradient g and, in their first step, go lr g / (|g| + eps): torch's defaults and ours.
EPS = {"Adam": 1e-8, "Adagrad": 1e-10}
# Its options, and the bytes that a step moves per element: in fp32, and with split bf16 weights and bf16 gradients. LAMB has two passes.
OPTIMIZERS = {
    "AdamW": ({"lr": 5e-5}, 28, 26),
    "Adam": ({"lr": 5e-5}, 28, 26),
    "SGD": ({"lr": 0.1, "momentum": 0.9}, 20, 18),
    "Adagrad": ({"lr": 0.01}, 20, 18),
    "Lamb": ({"lr": 1e-3}, 40, 38),
}
NAMES = {torch.float32: "fp32", torch.bfloat16: "bf16"}
FUSED, FOREACH, SPLIT = "torch fused", "torch foreach", "trireme split bf16"


@dataclass
class Case:
    """Contestants by name: what is timed, and the bytes that it moves per element. The ratio is to the peer; torch may have none."""

    name: str
    contestants: dict[str, tuple[Callable[[], object], int]]
    peer: str | None


def shapes_of(vocabulary: int, hidden: int, layers: int, intermediate: int) -> list[tuple[int, ...]]:
    """Of BertForQuestionAnswering, in the order of its parameters."""
    norm = [(hidden,), (hidden,)]

    def dense(outputs: int, inputs: int) -> list[tuple[int, ...]]:
        return [(outputs, inputs), (outputs,)]

    embeddings = [(vocabulary, hidden), (POSITIONS, hidden), (TYPES, hidden), *norm]
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


def ours(name: str, params: list[torch.Tensor], clip: bool, **options: object) -> torch.optim.Optimizer:
    options = {**OPTIMIZERS[name][0], "max_grad_norm": MAX_NORM if clip else None, **options}
    return getattr(trireme.optim, name)(groups_of(params), **options)


def torchs_step(name: str, params: list[torch.Tensor], clip: bool, **options: bool) -> Callable[[], object]:
    optimizer = getattr(torch.optim, name)(groups_of(params), **OPTIMIZERS[name][0], **options)

    def step() -> None:
        if clip:
            torch.nn.utils.clip_grad_norm_(params, MAX_NORM)
        optimizer.step()

    return step


def check_step(name: str, shapes: list[tuple[int, ...]], clip: bool, dtype: torch.dtype) -> None:
    """Our first step is torch's in double, within a thousandth of what it changes. Where gradient and decay cancel each other (see EPS), their rounding
    is multiplied by the slope there, lr eps / (|g| + eps)^2."""
    params = make_params(shapes, dtype)
    expected = [torch.nn.Parameter(param.detach().double()) for param in params]
    before = [param.detach().clone() for param in expected]
    for mine, other in zip(params, expected, strict=True):
        other.grad = mine.grad.double()
    optimizer = ours(name, params, clip, master_weights="split" if dtype == torch.bfloat16 else None)
    optimizer.step()
    torchs_step(name, expected, clip, foreach=False)()
    for param, old, other in zip(params, before, expected, strict=True):
        allowed = 1e-3 * (other - old).abs().max()
        if name in EPS and param.dim() > 1:
            rounding = 2**-22 * (other.grad.abs() + WEIGHT_DECAY * old.abs())
            near = ((other.grad + WEIGHT_DECAY * old).abs() - rounding).clamp(min=0)
            allowed = allowed + rounding * OPTIMIZERS[name][0]["lr"] * EPS[name] / (near + EPS[name]) ** 2
        excess = ((optimizer.fp32_weights(param).double() - other).abs() - allowed).max().item()
        assert excess <= 0, f"{name}, {dtype}: a parameter of {tuple(param.shape)} is off by {excess} more than is allowed"


def optimizer_case(name: str, shapes: list[tuple[int, ...]], clip: bool) -> Case:
    has_peer, (_, bytes_each, split_bytes) = hasattr(torch.optim, name), OPTIMIZERS[name]
    if has_peer:
        for dtype in (torch.float32, torch.bfloat16):
            check_step(name, shapes, clip, dtype)
    params, halves = make_params(shapes), make_params(shapes, torch.bfloat16)
    contestants = {"trireme": (ours(name, params, clip).step, bytes_each + 4 * clip)}
    if has_peer:
        for who, option in ((FUSED, "fused"), (FOREACH, "foreach")):
            contestants[who] = (torchs_step(name, params, clip, **{option: True}), bytes_each + 4 * clip)
    contestants[SPLIT] = (ours(name, halves, clip, master_weights="split").step, split_bytes + 2 * clip)
    return Case(f"{name}{', clipped' if clip else ''}", contestants, FUSED if has_peer else None)


def norm_case(shapes: list[tuple[int, ...]], dtype: torch.dtype) -> Case:
    grads = [param.grad for param in make_params(shapes, dtype)]
    expected = torch.nn.utils.get_total_norm([grad.double() for grad in grads])
    torch.testing.assert_close(ops().global_norm(grads), expected, rtol=1e-12, atol=0)
    contestants = {"trireme": lambda: ops().global_norm(grads), "torch": lambda: torch.nn.utils.get_total_norm(grads)}
    return Case(f"global norm, {NAMES[dtype]}", {who: (run, dtype.itemsize) for who, run in contestants.items()}, "torch")


def conversion_cases(shapes: list[tuple[int, ...]]) -> Iterator[Case]:
    """Rounding to bf16, back, and split bf16, which torch can only imitate by a conversion that forgets the lower halves."""
    wide = [param.detach() for param in make_params(shapes)]
    narrow = [each.to(torch.bfloat16) for each in wide]
    halves = [ops().split_bf16(each) for each in wide]
    for mine, other in itertools.chain(
        ((ops().round_bf16(w), n) for w, n in zip(wide, narrow, strict=True)),
        ((ops().widen_bf16(n), n.float()) for n in narrow),
        ((ops().join_bf16(*pair), w) for pair, w in zip(halves, wide, strict=True)),
    ):
        if not torch.equal(mine, other):
            sys.exit("a conversion is not what torch's is")

    def to_narrow() -> object:
        return [each.to(torch.bfloat16) for each in wide]

    def to_wide() -> object:
        return [each.float() for each in narrow]

    yield Case("fp32 to bf16", {"trireme": (lambda: [ops().round_bf16(each) for each in wide], 6), "torch": (to_narrow, 6)}, "torch")
    yield Case("bf16 to fp32", {"trireme": (lambda: [ops().widen_bf16(each) for each in narrow], 6), "torch": (to_wide, 6)}, "torch")
    yield Case("fp32 to split bf16", {"trireme": (lambda: [ops().split_bf16(each) for each in wide], 8), "torch": (to_narrow, 6)}, "torch")
    yield Case("split bf16 to fp32", {"trireme": (lambda: [ops().join_bf16(*pair) for pair in halves], 8), "torch": (to_wide, 6)}, "torch")


def cases(shapes: list[tuple[int, ...]]) -> Iterator[Case]:
    """One after the other: each has gigabytes of its own."""
    for name in OPTIMIZERS:
        for clip in (False, True):
            yield optimizer_case(name, shapes, clip)
    for dtype in NAMES:
        yield norm_case(shapes, dtype)
    yield from conversion_cases(shapes)


def measure(case: Case, elements: int, repetitions: int) -> list[dict]:
    times: dict[str, list[float]] = {who: [] for who in case.contestants}
    for round_number in range(repetitions + 2):  # two to warm up
        for who, (run, _) in case.contestants.items():
            begin = time.perf_counter()
            run()
            if round_number >= 2:
                times[who].append(time.perf_counter() - begin)
    records = []
    for who, (_, bytes_each) in case.contestants.items():
        deciles = statistics.quantiles(times[who], n=10, method="inclusive") if repetitions > 1 else times[who] * 9
        median = statistics.median(times[who])
        records.append(
            {
                "case": case.name,
                "elements": elements,
                "who": who,
                "median_ms": median * 1e3,
                "p10_ms": deciles[0] * 1e3,
                "p90_ms": deciles[-1] * 1e3,
                "gb_per_s": elements * bytes_each / median / 1e9,
                "peer": case.peer,
                "times_as_fast": statistics.median(times[case.peer]) / median if case.peer else None,
            }
        )
    return records


def describe(model: str, record: dict) -> str:
    spread = f"({record['p10_ms']:.1f} to {record['p90_ms']:.1f})"
    ratio = f"{record['times_as_fast']:5.2f} x {record['peer']}" if record["peer"] else "torch has none"
    return f"{model:16s}{record['case']:20s}{record['who']:20s}{record['median_ms']:8.1f} ms {spread:20s}{record['gb_per_s']:6.1f} GB/s  {ratio}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=lambda text: text.split(","), default=list(MODELS))
    parser.add_argument("--repetitions", type=int, default=20)
    parser.add_argument("--quick", action="store_true", help="a tiny model, twice: whether it runs, not how fast")
    parser.add_argument("--json", action="store_true", help="write bench/results/optim.json")
    options = parser.parse_args()
    models = QUICK if options.quick else {name: MODELS[name] for name in options.models}
    records = []
    for model, sizes in models.items():
        shapes = shapes_of(**sizes)
        elements = sum(torch.Size(shape).numel() for shape in shapes)
        for case in cases(shapes):
            for record in measure(case, elements, 2 if options.quick else options.repetitions):
                print(describe(model, record), flush=True)
                records.append({"model": model, **record})
    if options.json:
        results = {"machine": machine.describe(), "threads": torch.get_num_threads(), "records": records}
        (HERE.parent / "results" / "optim.json").write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
