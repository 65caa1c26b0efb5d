"""One rank of bench/c10d/run.py: times c10d operations, or steps of DDP, on several backends in turn, and prints JSON lines from rank 0.

    worker.py collectives OPERATIONS SIZES BACKENDS
    worker.py ddp MODELS BACKENDS
"""

import gc
import json
import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch import nn

SECONDS_PER_CASE = 0.6
ROUNDS = 3


def rank() -> int:
    return dist.get_rank()


def size() -> int:
    return dist.get_world_size()


class Case:
    """An operation on tensors of `nbytes`, whose answer is checked before it is timed."""

    def __init__(self, operation: str, nbytes: int, group, shared: bool):
        self.group, self.count = group, max(1, nbytes // 4)
        backend = group._get_backend(torch.device("cpu"))
        device = torch.device("cpu")

        def empty(count: int) -> torch.Tensor:
            return backend.allocate_tensor(count, dtype=torch.float32, device=device) if shared else torch.empty(count)

        per_rank = max(1, self.count // size())
        self.tensor = empty(self.count).fill_(1)
        self.whole = empty(per_rank * size()).fill_(1)
        self.part = empty(per_rank).fill_(1)
        self.other = empty(per_rank * size()).fill_(1)
        self.parts = list(self.whole.chunk(size()))
        self.run = getattr(self, operation)
        self.check = getattr(self, "check_" + operation)

    def allreduce(self):
        dist.all_reduce(self.tensor, group=self.group)

    def check_allreduce(self):
        self.tensor.fill_(rank() + 1)
        self.allreduce()
        assert (self.tensor == size() * (size() + 1) / 2).all()
        self.tensor.zero_()  # sums of it must not overflow while it is timed

    def broadcast(self):
        dist.broadcast(self.tensor, src=0, group=self.group)

    def check_broadcast(self):
        self.tensor.fill_(rank() + 1)
        self.broadcast()
        assert (self.tensor == 1).all()

    def reduce(self):
        dist.reduce(self.tensor, dst=0, group=self.group)

    def check_reduce(self):
        self.tensor.fill_(1)
        self.reduce()
        assert rank() != 0 or (self.tensor == size()).all()
        self.tensor.zero_()

    def allgather(self):
        dist.all_gather_into_tensor(self.whole, self.part, group=self.group)

    def check_allgather(self):
        self.part.fill_(rank())
        self.allgather()
        assert all((part == index).all() for index, part in enumerate(self.parts))

    def reduce_scatter(self):
        dist.reduce_scatter_tensor(self.part, self.whole, group=self.group)

    def check_reduce_scatter(self):
        self.whole.fill_(rank() + 1)
        self.reduce_scatter()
        assert (self.part == size() * (size() + 1) / 2).all()

    def alltoall(self):
        dist.all_to_all_single(self.other, self.whole, group=self.group)

    def check_alltoall(self):
        self.whole.fill_(rank())
        self.alltoall()
        assert all((part == index).all() for index, part in enumerate(self.other.chunk(size())))

    def gather(self):
        dist.gather(self.part, self.parts if rank() == 0 else None, dst=0, group=self.group)

    def check_gather(self):
        self.part.fill_(rank())
        self.gather()
        assert rank() != 0 or all((part == index).all() for index, part in enumerate(self.parts))

    def scatter(self):
        dist.scatter(self.part, self.parts if rank() == 0 else None, src=0, group=self.group)

    def check_scatter(self):
        self.whole.fill_(7)
        self.scatter()
        assert (self.part == 7).all()

    def barrier(self):
        dist.barrier(group=self.group)

    check_barrier = barrier

    def sendrecv(self):
        """There and back between ranks 0 and 1."""
        if rank() == 0:
            dist.send(self.tensor, 1, group=self.group)
            dist.recv(self.tensor, 1, group=self.group)
        elif rank() == 1:
            dist.recv(self.tensor, 0, group=self.group)
            dist.send(self.tensor, 0, group=self.group)

    def check_sendrecv(self):
        self.tensor.fill_(rank())
        self.sendrecv()
        assert rank() > 1 or (self.tensor == 0).all()


def iterations_for(case: Case, control) -> int:
    """As many as fit into the time, the same on every rank."""
    case.run()
    start = time.perf_counter()
    for _ in range(3):
        case.run()
    each = torch.tensor([(time.perf_counter() - start) / 3])
    dist.all_reduce(each, dist.ReduceOp.MAX, group=control)
    return int(min(3000, max(5, SECONDS_PER_CASE / ROUNDS / max(float(each), 1e-6))))


def time_calls(case: Case, iterations: int) -> list[float]:
    times = []
    for _ in range(iterations):
        start = time.perf_counter()
        case.run()
        times.append(time.perf_counter() - start)
    return times


def slowest(times: list[float], control) -> list[float]:
    """Of each call, the time on the rank that took longest."""
    tensor = torch.tensor(times, dtype=torch.float64)
    dist.all_reduce(tensor, dist.ReduceOp.MAX, group=control)
    return tensor.tolist()


def summary(times: list[float]) -> dict[str, float]:
    ordered = sorted(times)
    return {
        "median_us": 1e6 * statistics.median(ordered),
        "p10_us": 1e6 * ordered[len(ordered) // 10],
        "p90_us": 1e6 * ordered[len(ordered) * 9 // 10],
        "calls": len(ordered),
    }


def emit(record: dict) -> None:
    if rank() == 0:
        print(json.dumps(record), flush=True)


def time_collectives(operations: list[str], sizes: list[int], names: list[str], groups: dict, control) -> None:
    for operation in operations:
        for nbytes in sizes if operation != "barrier" else [0]:
            cases = {}
            for name in names:
                cases[name] = Case(operation, nbytes, groups[name.split("-")[0]], shared=name.endswith("-shared"))
                cases[name].check()
            counts = {name: iterations_for(case, control) for name, case in cases.items()}
            times: dict[str, list[float]] = {name: [] for name in names}
            for _ in range(ROUNDS):  # in turns: what else the machine does falls on all of them
                for name, case in cases.items():
                    dist.barrier(group=control)
                    times[name] += slowest(time_calls(case, counts[name]), control)
            cases.clear()
            gc.collect()  # a case refers to itself by its methods, and may hold half a gigabyte
            for name in names:
                emit({"kind": "collective", "operation": operation, "bytes": nbytes, "ranks": size(), "backend": name, **summary(times[name])})


# A stack of layers as in a transformer: about this many parameters.
MODELS = {"20M": (512, 6), "110M": (768, 15)}


def make_model(name: str) -> nn.Module:
    width, layers = MODELS[name]
    torch.manual_seed(1)
    blocks = []
    for _ in range(layers):
        blocks += [nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Linear(width, 3 * width), nn.Linear(3 * width, width)]
    return nn.Sequential(*blocks)


def time_ddp(models: list[str], names: list[str], groups: dict, control) -> None:
    for name in models:
        width = MODELS[name][0]
        wrapped = {}
        for backend in names:
            model = nn.parallel.DistributedDataParallel(make_model(name), process_group=groups[backend], gradient_as_bucket_view=True)
            wrapped[backend] = (model, torch.optim.SGD(model.parameters(), lr=1e-4))
        parameters = sum(p.numel() for p in make_model(name).parameters())
        batch = torch.ones(4, width) * (rank() + 1)
        times: dict[str, list[float]] = {backend: [] for backend in names}
        for step in range(8):
            for backend, (model, optimizer) in wrapped.items():
                dist.barrier(group=control)
                start = time.perf_counter()
                optimizer.zero_grad(set_to_none=False)
                model(batch).square().mean().backward()
                optimizer.step()
                if step >= 2:
                    times[backend].append(time.perf_counter() - start)
        reference = [p.detach() for p in wrapped[names[0]][0].parameters()]
        for backend in names[1:]:
            for ours, theirs in zip(reference, wrapped[backend][0].parameters(), strict=True):
                torch.testing.assert_close(ours, theirs.detach(), rtol=1e-4, atol=1e-5)
        for backend in names:
            record = {"kind": "ddp", "model": name, "parameters": parameters, "ranks": size(), "backend": backend}
            emit({**record, **summary(slowest(times[backend], control))})
        del wrapped


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("ccl")
    control = dist.new_group(backend="ccl")
    names = sys.argv[-1].split(",")
    groups = {name.split("-")[0]: dist.new_group(backend=name.split("-")[0]) for name in names}
    if sys.argv[1] == "ddp":
        time_ddp(sys.argv[2].split(","), names, groups, control)
    else:
        time_collectives(sys.argv[2].split(","), [int(nbytes) for nbytes in sys.argv[3].split(",")], names, groups, control)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
