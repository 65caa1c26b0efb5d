"""DDP that trains until somebody stops it; for tests that kill ranks. Arguments: how many steps, and where to leave traces.

FAIL_RANK's rank raises an exception after some steps, while a message is awaited if FAIL_WITH_PENDING is set. LOADER_WORKERS: so many forked
processes of a DataLoader live beside each rank. LAST_ATTEMPT is the restart that trains to the end.
"""

import os
import pathlib
import signal
import sys
import time

import torch
import torch.distributed as dist

signal.signal(signal.SIGTERM, signal.SIG_IGN)  # torchrun's, after a death: a rank must end by its own error, and soon
steps, traces = int(sys.argv[1]), pathlib.Path(sys.argv[2])
dist.init_process_group("ccl")
rank, attempt = dist.get_rank(), os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
fails = os.environ.get("FAIL_RANK") == str(rank)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(200, 200), torch.nn.Linear(200, 200)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
if fails:
    steps = 5
if attempt == os.environ.get("LAST_ATTEMPT"):
    steps = 20


def leave(name: str, text: str) -> None:
    """In one piece: somebody may be looking."""
    path = traces / f"{attempt}-{rank}.{name}"
    path.with_suffix(".new").write_text(text)
    path.with_suffix(".new").rename(path)


if workers := int(os.environ.get("LOADER_WORKERS", "0")):
    loader = torch.utils.data.DataLoader(range(10**6), num_workers=workers, multiprocessing_context="fork")
    batches = iter(loader)
    next(batches)
try:
    for step in range(steps):
        optimizer.zero_grad()
        model(torch.ones(4, 200)).square().mean().backward()
        optimizer.step()
        if step == 3:
            leave("pid", str(os.getpid()))
            print("training", flush=True)
    if fails:
        pending = dist.irecv(torch.empty(1000), 1 - rank, tag=9) if os.environ.get("FAIL_WITH_PENDING") else None
        leave("raised", str(time.monotonic()))
        raise ZeroDivisionError("this rank has had enough")
except dist.DistError as error:
    leave("error", f"{time.monotonic()} {type(error).__name__} {error}")
    print(f"{type(error).__name__}: {error}", flush=True)
    raise
leave("done", "")
dist.destroy_process_group()
