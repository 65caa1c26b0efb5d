#!/usr/bin/env python3
"""Each fused operator beside torch's own, forward and backward, at the shapes of a training batch of 12 sequences of 161 or 384 tokens.

    .venv/bin/python bench/kernels/run.py [--dtypes fp32,bf16] [--only NAME,...] [--threads 2] [--json] [--targets]

Both compute the same from the same tensors (dropout of 0.1 where there is one, each with its own generator), first once with dropout off to compare
ours with torch's in fp32, then in turn; the figure is the ratio of medians. For both, the memory of tensors is kept from turn to turn, as it is in
training with trireme.optimize (TRIREME_KEEP_BLOCKS=0: torch's allocator). Attention is also shown as a share of the machine's FMA peak, which is
measured in the same turns: 12 S^2 D flops a head, nothing for the scores that the backward pass computes again.
"""

import argparse
import json
import pathlib
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch.nn import functional

from trireme import ops
from trireme._optimize import precision

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import machine  # noqa: E402

SEQUENCES, HEADS, VOCABULARY, EPS = 12, 12, 30522, 1e-12
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
TOLERANCE = {"fp32": 1e-4, "bf16": 4e-2}
# Head size: share of the FMA peak.
ATTENTION_SHARES = {32: 0.40, 64: 0.55}

Forward = Callable[[float], torch.Tensor]  # takes the probability of dropout


@dataclass
class Case:
    name: str
    ours: Forward
    torchs: Forward
    inputs: list[torch.Tensor]  # whose gradients are computed
    dropout: float = 0.0
    flops: float = 0.0
    head_size: int = 0


def tensor(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(shape).to(dtype).requires_grad_()


def attention(length: int, size: int, dtype: torch.dtype) -> Case:
    q, k, v = (tensor(SEQUENCES * length, HEADS, size, dtype=dtype) for _ in range(3))
    cu_seqlens = torch.arange(0, SEQUENCES * length + 1, length)
    scale = size**-0.5

    def torchs(p: float) -> torch.Tensor:
        batched = (x.view(SEQUENCES, length, HEADS, size).transpose(1, 2) for x in (q, k, v))
        result = functional.scaled_dot_product_attention(*batched, dropout_p=p, scale=scale)
        return result.transpose(1, 2).reshape(q.shape)

    return Case(
        name=f"attention, {length} tokens, head size {size}",
        ours=lambda p: ops.attention(q, k, v, cu_seqlens, scale=scale, dropout_p=p),
        torchs=torchs,
        inputs=[q, k, v],
        dropout=0.1,
        flops=12.0 * SEQUENCES * HEADS * length**2 * size,
        head_size=size,
    )


def rows(length: int, hidden: int, dtype: torch.dtype) -> Iterator[Case]:
    """What lies between the matrix products of a layer."""
    tokens, where = SEQUENCES * length, f"{SEQUENCES * length} x {hidden}"
    x, residual = (tensor(tokens, hidden, dtype=dtype) for _ in range(2))
    bias, gamma, beta = (tensor(hidden, dtype=dtype) for _ in range(3))
    inner, inner_bias = tensor(tokens, 4 * hidden, dtype=dtype), tensor(4 * hidden, dtype=dtype)

    def norm(z: torch.Tensor) -> torch.Tensor:
        return functional.layer_norm(z, (hidden,), gamma, beta, EPS)

    yield Case(f"layer_norm, {where}", lambda p: ops.layer_norm(x, gamma, beta, EPS), lambda p: norm(x), [x, gamma, beta])
    yield Case(f"dropout, {where}", lambda p: ops.dropout(x, p), lambda p: functional.dropout(x, p), [x], dropout=0.1)
    yield Case(
        f"bias_dropout_residual, {where}",
        lambda p: ops.bias_dropout_residual(x, bias, residual, p),
        lambda p: functional.dropout(x + bias, p) + residual,
        [x, bias, residual],
        dropout=0.1,
    )
    yield Case(
        f"bias_dropout_residual_layer_norm, {where}",
        lambda p: ops.bias_dropout_residual_layer_norm(x, bias, residual, gamma, beta, p, EPS),
        lambda p: norm(functional.dropout(x + bias, p) + residual),
        [x, bias, residual, gamma, beta],
        dropout=0.1,
    )
    for form in ("none", "tanh"):
        yield Case(
            f"bias_gelu ({'erf' if form == 'none' else form}), {tokens} x {4 * hidden}",
            lambda p, form=form: ops.bias_gelu(inner, inner_bias, form == "tanh"),
            lambda p, form=form: functional.gelu(inner + inner_bias, approximate=form),
            [inner, inner_bias],
        )


def blocks(length: int, hidden: int, dtype: torch.dtype) -> Iterator[Case]:
    """The halves of a layer, with their matrix products."""
    tokens, size = SEQUENCES * length, hidden // HEADS
    x, gamma, beta = tensor(tokens, hidden, dtype=dtype), tensor(hidden, dtype=dtype), tensor(hidden, dtype=dtype)
    cu_seqlens = torch.arange(0, tokens + 1, length)

    def dense(outputs: int, inputs: int) -> list[torch.Tensor]:
        return [(torch.randn(outputs, inputs) * inputs**-0.5).to(dtype).requires_grad_(), tensor(outputs, dtype=dtype)]

    def norm(z: torch.Tensor) -> torch.Tensor:
        return functional.layer_norm(z, (hidden,), gamma, beta, EPS)

    q, k, v, o = (dense(hidden, hidden) for _ in range(4))
    first, second = dense(4 * hidden, hidden), dense(hidden, 4 * hidden)

    def torchs_attention(p: float) -> torch.Tensor:
        heads = (functional.linear(x, *each).view(SEQUENCES, length, HEADS, size).transpose(1, 2) for each in (q, k, v))
        context = functional.scaled_dot_product_attention(*heads, dropout_p=p).transpose(1, 2).reshape(tokens, hidden)
        return norm(x + functional.dropout(functional.linear(context, *o), p))

    def torchs_feed_forward(p: float) -> torch.Tensor:
        inner = functional.gelu(functional.linear(x, *first))
        return norm(x + functional.dropout(functional.linear(inner, *second), p))

    attention_weights, feed_forward_weights = [*q, *k, *v, *o, gamma, beta], [*first, *second, gamma, beta]
    yield Case(
        f"self_attention_block, {tokens} x {hidden}",
        lambda p: ops.self_attention_block(x, attention_weights, cu_seqlens, HEADS, p, p, EPS),
        torchs_attention,
        [x, *attention_weights],
        dropout=0.1,
    )
    yield Case(
        f"feed_forward_block, {tokens} x {hidden}",
        lambda p: ops.feed_forward_block(x, feed_forward_weights, False, p, EPS),
        torchs_feed_forward,
        [x, *feed_forward_weights],
        dropout=0.1,
    )


def embedding(length: int, hidden: int, dtype: torch.dtype) -> Case:
    ids = torch.randint(0, VOCABULARY, (SEQUENCES, length))
    positions, types = torch.arange(length).expand(SEQUENCES, length), torch.zeros_like(ids)
    word, position, type_ = (tensor(count, hidden, dtype=dtype) for count in (VOCABULARY, 512, 2))
    gamma, beta = (tensor(hidden, dtype=dtype) for _ in range(2))

    def torchs(p: float) -> torch.Tensor:
        total = functional.embedding(ids, word) + functional.embedding(positions, position) + functional.embedding(types, type_)
        return functional.dropout(functional.layer_norm(total, (hidden,), gamma, beta, EPS), p)

    return Case(
        f"embedding, {SEQUENCES * length} x {hidden}",
        lambda p: ops.embedding(ids, word, positions, position, types, type_, gamma, beta, p, EPS),
        torchs,
        [word, position, type_, gamma, beta],
        dropout=0.1,
    )


def span_loss(length: int, dtype: torch.dtype) -> Case:
    logits = tensor(SEQUENCES * length, 2, dtype=dtype)
    cu_seqlens = torch.arange(0, SEQUENCES * length + 1, length)
    start = torch.randint(0, length, (SEQUENCES,))
    end = torch.randint(0, length, (SEQUENCES,))

    def torchs(p: float) -> torch.Tensor:
        starts, ends = logits.view(SEQUENCES, length, 2).float().unbind(-1)
        return (functional.cross_entropy(starts, start) + functional.cross_entropy(ends, end)) / 2

    return Case(f"span_loss, {SEQUENCES} x {length}", lambda p: ops.span_loss(logits, cu_seqlens, start, end), torchs, [logits])


def cases(dtype: torch.dtype) -> Iterator[Case]:
    for size in ATTENTION_SHARES:
        for length in (161, 384):
            yield attention(length, size, dtype)
    for hidden in (384, 768):
        yield from blocks(161, hidden, dtype)
        yield from rows(161, hidden, dtype)
        yield embedding(161, hidden, dtype)
    yield span_loss(384, dtype)


def run(case: Case, forward: Forward, p: float) -> tuple[float, torch.Tensor]:
    """Seconds of a forward and a backward pass, and the result; gradients are left in the inputs."""
    for each in case.inputs:
        each.grad = None
    begin = time.perf_counter()
    result = forward(p)
    result.backward(torch.ones_like(result))
    return time.perf_counter() - begin, result.detach()


def check(case: Case, dtype: str) -> None:
    """Ours is torch's in fp32 of the same inputs, within the type's rounding of the largest element. (torch's own sums in bf16 are no measure: of 1932 ones
    it makes 512.)"""
    result = run(case, case.ours, 0.0)[1]
    ours = [result, *(each.grad for each in case.inputs)]
    given = [each.data for each in case.inputs]
    for each in case.inputs:
        each.grad, each.data = None, each.data.float()
    result = run(case, case.torchs, 0.0)[1]
    expected = [result, *(each.grad for each in case.inputs)]
    for each, data in zip(case.inputs, given, strict=True):
        each.grad, each.data = None, data
    largest = max(wanted.abs().max().item() for wanted in expected)
    for i, (mine, wanted) in enumerate(zip(ours, expected, strict=True)):
        difference, scale = (mine.float() - wanted).abs().max().item(), wanted.abs().max().item()
        # 0 but for rounding, as the gradient of the keys' bias is: its terms are as large as the others'.
        bound = TOLERANCE[dtype] * max(1.0, largest if scale < 1e-5 * largest else scale)
        if not difference <= bound:
            sys.exit(f"{case.name}, {dtype}: {'gradient ' + str(i) if i else 'the result'} differs by {difference}, {bound} are allowed")


def measure(case: Case, seconds: float) -> dict:
    times: dict[str, list[float]] = {"ours": [], "torchs": []}
    peaks = []
    for _ in range(2):
        once = sum(run(case, forward, case.dropout)[0] for forward in (case.ours, case.torchs))
    for _ in range(max(5, int(seconds / once))):
        for name, forward in (("ours", case.ours), ("torchs", case.torchs)):
            times[name].append(run(case, forward, case.dropout)[0])
        if case.flops:
            peaks.append(ops.measure_fma_peak(0.01))
    ours, torchs = (statistics.median(each) for each in times.values())
    record = {"ours_ms": ours * 1e3, "torch_ms": torchs * 1e3, "times_as_fast": torchs / ours}
    if case.flops:
        record |= {"gflops": case.flops / ours * 1e-9, "fma_peak_gflops": statistics.median(peaks), "head_size": case.head_size}
        record["share_of_peak"] = record["gflops"] / record["fma_peak_gflops"]
    return record


def show(name: str, dtype: str, record: dict) -> None:
    share = f"  {100 * record['share_of_peak']:.0f} % of the FMA peak" if "share_of_peak" in record else ""
    print(f"{name:52} {dtype}  torch {record['torch_ms']:8.3f} ms  trireme {record['ours_ms']:8.3f} ms {record['times_as_fast']:6.2f}x{share}", flush=True)


def meets_targets(records: dict[str, dict]) -> bool:
    all_met = True
    for name, record in records.items():
        if "share_of_peak" not in record or not name.endswith("fp32"):
            continue
        wanted = ATTENTION_SHARES[record["head_size"]]
        met = record["share_of_peak"] >= wanted
        print("PASS" if met else "FAIL", f"{name}: {100 * record['share_of_peak']:.0f} % of the FMA peak, wanted {100 * wanted:.0f} %")
        all_met = all_met and met
    return all_met


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtypes", type=lambda text: text.split(","), default=list(DTYPES))
    parser.add_argument("--only", type=lambda text: text.split(","), help="operators whose names begin like one of these")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=2.0, help="for each case")
    parser.add_argument("--json", action="store_true", help="write bench/results/kernels.json")
    parser.add_argument("--targets", action="store_true", help="compare attention with the project's targets")
    arguments = parser.parse_args()
    torch.ops.trireme.keep_blocks()
    failure = precision.probe()[0] if "bf16" in arguments.dtypes else None
    if failure:
        sys.exit(f"bf16: {failure}. Set it, or give --dtypes fp32.")
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(1)
    records = {}
    for dtype in arguments.dtypes:
        for case in cases(DTYPES[dtype]):
            if arguments.only and not case.name.startswith(tuple(arguments.only)):
                continue
            check(case, dtype)
            records[f"{case.name}, {dtype}"] = record = measure(case, arguments.seconds)
            show(case.name, dtype, record)
    if arguments.json:
        results = {"machine": machine.describe(), "threads": arguments.threads, "cases": records}
        (HERE.parent / "results" / "kernels.json").write_text(json.dumps(results, indent=1) + "\n")
    return 0 if not arguments.targets or meets_targets(records) else 1


if __name__ == "__main__":
    sys.exit(main())
