"""What the programs of ranks share: who this is, numbers whose sums are exact, and what must be true of a result."""

import threading
import time

import torch
import torch.distributed as dist

# Around the library's thresholds: inline, tile, eager.
COUNTS = (0, 1, 3, 1000, 2049, 70001)


def rank():
    return dist.get_rank()


def size():
    return dist.get_world_size()


def backend(group=None):
    return (group or dist.group.WORLD)._get_backend(torch.device("cpu"))


def values(of_rank, count, dtype=torch.float32):
    """Small numbers that differ by rank and place: their sums are exact in every dtype."""
    numbers = (torch.arange(count) * 7 + of_rank * 3) % 5 + 1
    return numbers % 2 == 0 if dtype == torch.bool else numbers.to(dtype)


def everybody(count, dtype=torch.float32):
    return [values(of_rank, count, dtype) for of_rank in range(size())]


def total(tensors):
    result = tensors[0].clone()
    for tensor in tensors[1:]:
        result += tensor
    return result


def same(found, expected):
    assert found.dtype == expected.dtype and found.shape == expected.shape, (found.dtype, found.shape, expected.dtype, expected.shape)
    assert torch.equal(found, expected), (found.flatten()[:8], expected.flatten()[:8])


def raises(kind, words, call):
    try:
        call()
    except kind as error:
        assert words in str(error), error
    else:
        raise AssertionError(f"no {kind.__name__}")


def run_threads(functions, timeout_s=120):
    """All of them at once. None may take longer than that."""
    threads = [threading.Thread(target=function, daemon=True) for function in functions]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + timeout_s
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    assert not any(thread.is_alive() for thread in threads), f"threads still run after {timeout_s} s"
