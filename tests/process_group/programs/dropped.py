"""Operations on tensors of Python's that nobody waits for: `threads` counts what is started to let go of them; `exit CODE` ends while they are under way."""

import os
import sys
import time

import torch
import torch.distributed as dist

dist.init_process_group("ccl")


def drop(count):
    for _ in range(count):
        tensor = torch.ones(70_000)
        tensor.mine = True  # letting go of it takes the GIL
        dist.all_reduce(tensor, async_op=True)


def threads():
    return len(os.listdir("/proc/self/task"))


if sys.argv[1] == "exit":
    drop(60)
    sys.exit(int(sys.argv[2]))
dist.barrier()
before, most = threads(), 0
drop(300)
end = time.monotonic() + 2
while time.monotonic() < end:  # Python code all the while: whoever wants the GIL waits
    most = max(most, threads())
print(f"{most - before} threads more", flush=True)
dist.barrier()
dist.destroy_process_group()
