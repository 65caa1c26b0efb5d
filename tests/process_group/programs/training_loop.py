"""DDP that trains until somebody stops it; for tests that kill ranks. Arguments: how many steps, and where to leave traces."""

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
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(200, 200), torch.nn.Linear(200, 200)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
if os.environ.get("FAIL_RANK") == str(rank):
    steps = 5
if attempt == os.environ.get("LAST_ATTEMPT"):
    steps = 20
try:
    for step in range(steps):
        optimizer.zero_grad()
        model(torch.ones(4, 200)).square().mean().backward()
        optimizer.step()
        if step == 3:
            (traces / f"{attempt}-{rank}.pid").write_text(str(os.getpid()))
            print("training", flush=True)
    if os.environ.get("FAIL_RANK") == str(rank):
        raise ZeroDivisionError("this rank has had enough")
except dist.DistError as error:
    (traces / f"{attempt}-{rank}.error").write_text(f"{time.time()} {type(error).__name__} {error}")
    print(f"{type(error).__name__}: {error}", flush=True)
    raise
(traces / f"{attempt}-{rank}.done").write_text("")
dist.destroy_process_group()
