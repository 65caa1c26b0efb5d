"""A training loop of one's own, without a Trainer: DistributedDataParallel on the backend ccl, a model and an optimizer made fast by
trireme.optimize, gradients accumulated over several batches. It classifies texts, from files of label<TAB>text lines.

    python examples/ddp_loop.py --model_name_or_path MODEL --train_file train.tsv --validation_file dev.tsv
    mpirun -n 2 python examples/ddp_loop.py ...
    torchrun --nproc-per-node 2 examples/ddp_loop.py ...

Rank 0 ends with a line of JSON: the mean loss of the first and the last epoch, the accuracy, and what it ran on.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os

import torch
import torch.distributed as dist
from labelled_texts import LabelledTexts, labels_for, read_texts
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler
from transformers import AutoModelForSequenceClassification, AutoTokenizer, DataCollatorWithPadding

import trireme

# Set by torchrun, MPICH's and Intel's mpirun, Open MPI's, and srun in each process that they start; PMI_PORT by mpirun -pmi-port, which is refused.
LAUNCHERS = ("WORLD_SIZE", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "PMI_PORT")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model_name_or_path", required=True, help="an encoder: a folder, or a name on the hub")
    parser.add_argument("--train_file", required=True, help="lines of label<TAB>text")
    parser.add_argument("--validation_file", required=True)
    parser.add_argument("--max_seq_length", type=int, default=128)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch_size", type=int, default=16, help="of one process, in one forward pass")
    parser.add_argument("--accumulate", type=int, default=2, help="batches between two steps of the optimizer")
    parser.add_argument("--learning_rate", type=float, default=5e-5)
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--output_dir", help="where the model is saved; nowhere if not given")
    return parser.parse_args()


def join_group() -> None:
    """Ranks and addresses come from whatever launched this process. Alone, it is a group of one, and all that follows is the same."""
    if any(name in os.environ for name in LAUNCHERS):
        dist.init_process_group("ccl")
    else:
        dist.init_process_group("ccl", store=dist.HashStore(), rank=0, world_size=1)


def total(*values: float) -> list[float]:
    """The sum of each over all ranks."""
    sums = torch.tensor(values, dtype=torch.float64)
    dist.all_reduce(sums)
    return sums.tolist()


def train_epoch(model: DistributedDataParallel, optimizer: torch.optim.Optimizer, loader: DataLoader, accumulate: int) -> float:
    """The mean loss, over the batches of all ranks."""
    model.train()
    loss_sum = 0.0
    for number, batch in enumerate(loader):
        first = number - number % accumulate
        group = min(accumulate, len(loader) - first)  # the last group of an epoch may be smaller
        is_last = number == first + group - 1
        # DDP averages gradients over the ranks in every backward pass, unless told that more are to be added first.
        with contextlib.nullcontext() if is_last else model.no_sync():
            loss = model(**batch).loss
            (loss / group).backward()
        loss_sum += loss.item()
        if is_last:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
    loss_sum, batches = total(loss_sum, len(loader))
    return loss_sum / batches


@torch.no_grad()
def accuracy(model: DistributedDataParallel, loader: DataLoader) -> float:
    """Ranks may have different numbers of batches here: the module inside of DDP talks to nobody."""
    model.eval()
    right = seen = 0
    for batch in loader:
        labels = batch.pop("labels")
        right += int((model.module(**batch).logits.argmax(-1) == labels).sum())
        seen += len(labels)
    right, seen = total(right, seen)
    return right / seen


def main() -> None:
    arguments = parse_arguments()
    join_group()
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(arguments.seed)

    train_rows, validation_rows = read_texts(arguments.train_file), read_texts(arguments.validation_file)
    labels = labels_for(train_rows)
    tokenizer = AutoTokenizer.from_pretrained(arguments.model_name_or_path)
    model = AutoModelForSequenceClassification.from_pretrained(arguments.model_name_or_path, **labels)
    train = LabelledTexts(train_rows, tokenizer, labels["label2id"], arguments.max_seq_length)
    # DistributedSampler repeats samples to give every rank as many. Training bears that, a figure does not.
    validation = LabelledTexts(validation_rows[rank::ranks], tokenizer, labels["label2id"], arguments.max_seq_length)
    collate = DataCollatorWithPadding(tokenizer)
    sampler = DistributedSampler(train, seed=arguments.seed)
    train_loader = DataLoader(train, arguments.batch_size, sampler=sampler, collate_fn=collate)
    validation_loader = DataLoader(validation, arguments.batch_size, collate_fn=collate)

    optimizer = torch.optim.AdamW(model.parameters(), lr=arguments.learning_rate)
    model, optimizer = trireme.optimize(model, optimizer)
    model = DistributedDataParallel(model)  # every rank begins with the weights of rank 0
    torch.manual_seed(arguments.seed + rank)  # dropout is to differ between ranks

    losses = []
    for epoch in range(arguments.epochs):
        sampler.set_epoch(epoch)  # another order in each
        losses.append(train_epoch(model, optimizer, train_loader, arguments.accumulate))
    result = {"first_loss": losses[0], "last_loss": losses[-1], "accuracy": accuracy(model, validation_loader)}
    if rank == 0:
        if arguments.output_dir:
            model.module.save_pretrained(arguments.output_dir)
            tokenizer.save_pretrained(arguments.output_dir)
        print(json.dumps({**result, "backend": dist.get_backend(), "world_size": ranks, "optimizer": type(optimizer).__module__}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
