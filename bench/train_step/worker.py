"""One way to train, in a process of its own: answers "check" on stdin with the logits of a batch, without dropout and before any step, "step" with
the seconds that a step took, "memory" with its peak in bytes, "fma" with what the machine can do at this moment.

    worker.py --variant torch|grouped|compile|ipex|trireme --model base --lengths squad --dtype fp32 --threads 2 --batches 8
"""

import argparse
import contextlib
import json
import os
import resource
import sys
import time

import torch
from workload import CHECKED_LENGTHS, FULL_LENGTH, MODELS, batches


def make_model(name: str) -> torch.nn.Module:
    from transformers import BertConfig, BertForQuestionAnswering

    shape = MODELS[name]
    config = BertConfig(
        hidden_size=shape.hidden,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        intermediate_size=4 * shape.hidden,
        attn_implementation="sdpa",
    )
    torch.manual_seed(1)
    return BertForQuestionAnswering(config).train()


def make_batch(lengths: list[int], width: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(sum(lengths))
    mask = (torch.arange(width) < torch.tensor(lengths)[:, None]).long()
    ids = torch.randint(1000, 30000, mask.shape, generator=generator) * mask
    middle = torch.tensor(lengths) // 2
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": torch.zeros_like(ids), "start_positions": middle, "end_positions": middle + 1}


def measure_fma_peak(seconds: float) -> float:
    from trireme import ops

    return ops.measure_fma_peak(seconds)


class Training:
    def __init__(self, arguments: argparse.Namespace) -> None:
        self.model = make_model(arguments.model)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-5, weight_decay=0.0, fused=True)
        self.autocast = contextlib.nullcontext
        bf16 = arguments.dtype == "bf16"
        if arguments.variant == "trireme":
            import trireme

            dtype = torch.bfloat16 if bf16 else None
            self.model, self.optimizer = trireme.optimize(self.model, self.optimizer, dtype=dtype)
        elif arguments.variant == "ipex":
            import intel_extension_for_pytorch as ipex

            dtype = torch.bfloat16 if bf16 else torch.float32
            self.model, self.optimizer = ipex.optimize(self.model, optimizer=self.optimizer, dtype=dtype)
        elif arguments.variant == "compile":
            self.model = torch.compile(self.model, dynamic=False)
        if bf16 and arguments.variant != "trireme":
            self.autocast = lambda: torch.autocast("cpu", torch.bfloat16)
        grouped = arguments.variant == "grouped"
        self.lengths = batches(arguments.lengths, MODELS[arguments.model].batch, grouped)
        if not grouped:  # a round of grouped batches must be whole
            self.lengths = self.lengths[: arguments.batches]
        self.batches = [make_batch(each, max(each) if grouped else FULL_LENGTH) for each in self.lengths]
        self.next = 0

    def check(self) -> dict:
        """Of a batch that is the same for every variant, at the places of tokens alone."""
        inputs = make_batch(CHECKED_LENGTHS, FULL_LENGTH)
        present = inputs["attention_mask"].bool()
        self.model.eval()
        with torch.no_grad(), self.autocast():
            result = self.model(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"], token_type_ids=inputs["token_type_ids"])
        self.model.train()
        return {"logits": [logits[present].float().tolist() for logits in (result.start_logits, result.end_logits)]}

    def step(self) -> dict:
        i, self.next = self.next % len(self.batches), self.next + 1
        begin = time.perf_counter()
        self.optimizer.zero_grad(set_to_none=True)
        with self.autocast():
            loss = self.model(**self.batches[i]).loss
        loss.backward()
        self.optimizer.step()
        return {"seconds": time.perf_counter() - begin, "loss": loss.item(), "lengths": self.lengths[i]}


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("variant", "model", "lengths", "dtype"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--batches", type=int, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what libraries print is not an answer
    training = Training(arguments)
    print(json.dumps({"batches": len(training.batches)}), file=answers)
    for line in sys.stdin:
        if line.strip() == "check":
            print(json.dumps(training.check()), file=answers)
        elif line.strip() == "step":
            print(json.dumps(training.step()), file=answers)
        elif line.strip() == "memory":
            print(json.dumps({"bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}), file=answers)
        elif line.strip() == "fma":
            print(json.dumps({"gflops": measure_fma_peak(seconds=0.1)}), file=answers)


if __name__ == "__main__":
    main()
