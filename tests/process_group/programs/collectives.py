"""Every collective through torch.distributed, against its definition. Run by test_collectives.py on several numbers of ranks."""

import itertools
import time
import weakref

import torch
import torch._C._distributed_c10d as c10d
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol

import failing
import works
from checks import run
from ranks import COUNTS, backend, everybody, raises, rank, same, size, total, values

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGERS = (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64)
UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)
COMPLEX = (torch.complex64, torch.complex128)


def check_backend_is_ours():
    assert dist.get_backend() == "ccl"
    assert isinstance(backend(), dist.ProcessGroupCCL), type(backend())
    assert backend().name() == "ccl" and backend().rank() == rank() and backend().size() == size()
    assert f"{size()} ranks" in backend().describe()


def check_allreduce_sums_of_every_dtype():
    for dtype, count in itertools.product(FLOATS + INTEGERS + COMPLEX, COUNTS):
        tensor = values(rank(), count, dtype)
        dist.all_reduce(tensor)
        same(tensor, total(everybody(count, dtype)))
    for dtype in COMPLEX:  # which torch hands over as pairs
        tensor = values(rank(), 1000, dtype) * 1j
        backend().allreduce([tensor]).wait()
        same(tensor, total(everybody(1000, dtype)) * 1j)


def check_allreduce_of_unsigned_integers():
    for dtype in UNSIGNED:
        tensor = values(rank(), 100, torch.int64).to(dtype)
        dist.all_reduce(tensor)
        same(tensor.to(torch.int64), total(everybody(100, torch.int64)))


def check_allreduce_of_bool():
    tensors = everybody(100, torch.bool)
    for op, combine in (("SUM", torch.any), ("MAX", torch.any), ("BOR", torch.any), ("PRODUCT", torch.all), ("MIN", torch.all), ("BAND", torch.all)):
        tensor = tensors[rank()].clone()
        dist.all_reduce(tensor, getattr(dist.ReduceOp, op))
        same(tensor, combine(torch.stack(tensors), dim=0))
    tensor = tensors[rank()].clone()
    dist.all_reduce(tensor, dist.ReduceOp.BXOR)
    same(tensor, torch.stack(tensors).sum(0) % 2 == 1)


def check_allreduce_with_every_reduction():
    stacked = torch.stack(everybody(1000, torch.float64))
    expected = {
        "SUM": stacked.sum(0),
        "AVG": stacked.sum(0) / size(),
        "PRODUCT": stacked.prod(0),
        "MIN": stacked.amin(0),
        "MAX": stacked.amax(0),
    }
    for op, result in expected.items():
        tensor = stacked[rank()].clone()
        dist.all_reduce(tensor, getattr(dist.ReduceOp, op))
        torch.testing.assert_close(tensor, result, rtol=1e-12, atol=0)
    whole = everybody(1000, torch.int32)
    for op, combine in (("BAND", torch.bitwise_and), ("BOR", torch.bitwise_or), ("BXOR", torch.bitwise_xor)):
        tensor = whole[rank()].clone()
        dist.all_reduce(tensor, getattr(dist.ReduceOp, op))
        result = whole[0]
        for other in whole[1:]:
            result = combine(result, other)
        same(tensor, result)


def check_premultiplied_sums():
    for factor in (0.5, torch.tensor([0.25])):
        number = float(factor)
        tensor = values(rank(), 1000)
        dist.all_reduce(tensor, dist._make_nccl_premul_sum(factor))
        same(tensor, total(everybody(1000)) * number)
        output = torch.empty(10)
        dist.reduce_scatter_tensor(output, values(rank(), 10 * size()), dist._make_nccl_premul_sum(factor))
        expected = (total(everybody(10 * size())) * number)[10 * rank() : 10 * rank() + 10]
        same(output, expected)
        pieces = list(values(rank(), 10 * size()).chunk(size()))
        for inputs in (pieces, [piece.clone() for piece in pieces]):  # adjacent, apart
            output = torch.empty(10)
            dist.reduce_scatter(output, inputs, dist._make_nccl_premul_sum(factor))
            same(output, expected)
        for root in range(size()):
            tensor = values(rank(), 1000)
            dist.reduce(tensor, root, dist._make_nccl_premul_sum(factor))
            if rank() == root:
                same(tensor, total(everybody(1000)) * number)


def check_what_has_no_meaning_is_refused():
    raises(ValueError, "complex", lambda: dist.all_reduce(torch.ones(3, dtype=torch.complex64), dist.ReduceOp.MAX))
    raises(ValueError, "band", lambda: dist.all_reduce(torch.ones(3), dist.ReduceOp.BAND))
    raises(ValueError, "avg", lambda: dist.all_reduce(torch.ones(3, dtype=torch.bool), dist.ReduceOp.AVG))
    raises(TypeError, "cannot be reduced", lambda: dist.all_reduce(torch.ones(3).to(torch.float8_e4m3fn)))
    options = c10d.BroadcastOptions()
    options.rootRank = -1
    raises(ValueError, "unexpected rank", lambda: backend().broadcast([torch.ones(1)], options))
    raises(ValueError, "non-empty tensor list", lambda: backend().allreduce([], c10d.AllreduceOptions()))
    mixed = [torch.ones(1, dtype=torch.float64) for _ in range(size())]
    raises(ValueError, "not equal in data type", lambda: backend().allgather([mixed], [torch.ones(5)], c10d.AllgatherOptions()))
    dist.barrier()  # and the group is as it was


def check_tensors_that_do_not_lie_end_to_end():
    def grid(of_rank):
        return values(of_rank, 60).reshape(6, 10)

    tensor = grid(rank()).t()
    dist.all_reduce(tensor)
    same(tensor, total([grid(other) for other in range(size())]).t())
    wide = grid(rank())
    dist.broadcast(wide[:, ::2], src=0)
    same(wide[:, ::2], grid(0)[:, ::2])
    same(wide[:, 1::2], grid(rank())[:, 1::2])
    outputs = [torch.empty(10, 6).t() for _ in range(size())]
    dist.all_gather(outputs, grid(rank()))
    for other, output in enumerate(outputs):
        same(output, grid(other))
    conjugate = torch.full((4,), 1 + 2j).conj()
    backend().allreduce([conjugate]).wait()  # torch's own function would refuse it
    same(conjugate.resolve_conj(), torch.full((4,), (1 - 2j) * size()))
    pieces = torch.full((4 * size(),), 1 + 2j).conj().chunk(size())
    received = torch.empty(4, dtype=torch.complex64)
    backend().reduce_scatter([received], [list(pieces)], c10d.ReduceScatterOptions()).wait()
    same(received, torch.full((4,), (1 - 2j) * size()))


def check_what_is_copied_is_copied_when_its_operation_starts():
    """The operations before it may be under way, and write to it: tensors that do not lie end to end, products, inputs that lie apart."""
    halves, count = dist._make_nccl_premul_sum(0.5), 300
    for inference in (False, True):
        with torch.inference_mode(inference):
            dist.barrier()
            if rank() == 0:
                time.sleep(0.2)
            grid, plain = values(rank(), count * count).reshape(count, count), values(rank(), count)
            pieces, output = [values(rank(), count) for _ in range(size())], torch.empty(count)
            works = [dist.all_reduce(grid.t(), async_op=True) for _ in range(2)]
            works += [dist.all_reduce(plain, halves, async_op=True) for _ in range(2)]
            works += [dist.all_reduce(piece, async_op=True) for piece in pieces]
            works += [dist.reduce_scatter(output, pieces, async_op=True)]
            for work in works:
                work.wait()
            same(grid, total(everybody(count * count)).reshape(count, count) * size())
            same(plain, total(everybody(count)) * size() / 4)
            same(output, total(everybody(count)) * size())


def check_broadcast_and_reduce_with_every_root():
    for root, count in itertools.product(range(size()), COUNTS):
        tensor = values(rank(), count)
        dist.broadcast(tensor, src=root)
        same(tensor, values(root, count))
        tensor = values(rank(), count)
        dist.reduce(tensor, dst=root)
        if rank() == root:
            same(tensor, total(everybody(count)))


def check_dtypes_that_are_only_moved():
    for dtype in (torch.float8_e4m3fn, torch.bool, torch.complex128):
        tensor = values(rank(), 500).to(dtype)
        dist.broadcast(tensor, src=size() - 1)
        same(tensor.to(torch.complex64), values(size() - 1, 500).to(dtype).to(torch.complex64))


def check_allgather_in_all_its_forms():
    for count in COUNTS:
        expected = everybody(count)
        outputs = [torch.empty(count) for _ in range(size())]
        dist.all_gather(outputs, values(rank(), count))
        for output, one in zip(outputs, expected):
            same(output, one)
        flat = torch.empty(size() * count)
        dist.all_gather_into_tensor(flat, values(rank(), count))
        same(flat, torch.cat(expected))
    uneven = [torch.empty(5 * other) for other in range(size())]
    dist.all_gather(uneven, values(rank(), 5 * rank()))
    for other, output in enumerate(uneven):
        same(output, values(other, 5 * other))
    lists = [[torch.empty(3), torch.empty(2049)] for _ in range(size())]
    backend().allgather_coalesced(lists, [values(rank(), 3), values(rank(), 2049)], c10d.AllgatherOptions()).wait()
    for other, (small, large) in enumerate(lists):
        same(small, values(other, 3))
        same(large, values(other, 2049))
    outputs = [torch.empty(3 * size()), torch.empty(2049 * size())]
    dist.group.WORLD.allgather_into_tensor_coalesced(outputs, [values(rank(), 3), values(rank(), 2049)]).wait()
    same(outputs[1], torch.cat(everybody(2049)))


def check_gather_and_scatter():
    for root, count in itertools.product(range(size()), COUNTS):
        outputs = [torch.empty(count) for _ in range(size())] if rank() == root else None
        dist.gather(values(rank(), count), outputs, dst=root)
        if outputs:
            for output, one in zip(outputs, everybody(count)):
                same(output, one)
        output = torch.empty(count)
        dist.scatter(output, everybody(count) if rank() == root else None, src=root)
        same(output, values(rank(), count))


def check_reduce_scatter_in_all_its_forms():
    for count in COUNTS:
        expected = total(everybody(count * size()))[count * rank() : count * (rank() + 1)]
        output = torch.empty(count)
        dist.reduce_scatter_tensor(output, values(rank(), count * size()))
        same(output, expected)
        pieces = list(values(rank(), count * size()).chunk(size())) if count else [torch.empty(0)] * size()
        output = torch.empty(count)
        dist.reduce_scatter(output, pieces)  # adjacent
        same(output, expected)
        output = torch.empty(count)
        dist.reduce_scatter(output, [piece.clone() for piece in pieces])  # apart
        same(output, expected)
    uneven = [torch.ones(other + 1) for other in range(size())]
    output = torch.empty(rank() + 1)
    dist.reduce_scatter(output, uneven)
    same(output, torch.full((rank() + 1,), float(size())))
    outputs = [torch.empty(3), torch.empty(100)]
    inputs = [values(rank(), 3 * size()), values(rank(), 100 * size())]
    dist.group.WORLD.reduce_scatter_tensor_coalesced(outputs, inputs).wait()
    same(outputs[1], total(everybody(100 * size()))[100 * rank() : 100 * rank() + 100])


def check_alltoall_even_and_uneven():
    for count in COUNTS:
        output = torch.empty(count * size())
        dist.all_to_all_single(output, values(rank(), count * size()))
        same(output, torch.cat([one[count * rank() : count * (rank() + 1)] for one in everybody(count * size())]))

    def rows(source, target):  # how much a rank sends to another: some nothing
        return (source + 2 * target) % 3

    matrix = [torch.full((rows(source, target), 4), 10.0 * source + target) for source in range(size()) for target in range(size())]
    outgoing = [matrix[rank() * size() + target] for target in range(size())]
    incoming = [matrix[source * size() + rank()] for source in range(size())]
    output = torch.empty(sum(len(block) for block in incoming), 4)
    dist.all_to_all_single(output, torch.cat(outgoing), [len(block) for block in incoming], [len(block) for block in outgoing])
    same(output, torch.cat(incoming))
    outputs = [torch.empty_like(block) for block in incoming]
    dist.all_to_all(outputs, outgoing)
    for output, block in zip(outputs, incoming):
        same(output, block)
    raises(ValueError, "Split sizes", lambda: backend().alltoall_base(torch.empty(4), torch.empty(4), [1] * size(), [9] * size()))


def check_messages_with_tags_and_from_anybody():
    if size() == 1:
        return
    following, previous = (rank() + 1) % size(), (rank() - 1) % size()
    for count in COUNTS[1:]:
        first, second = torch.empty(count), torch.empty(count)
        sent = [dist.isend(values(rank(), count), following, tag=1), dist.isend(values(rank() + 9, count), following, tag=2)]
        received = [dist.irecv(second, previous, tag=2), dist.irecv(first, previous, tag=1)]
        for work in sent + received:
            work.wait()
        same(first, values(previous, count))
        same(second, values(previous + 9, count))
    if rank() == 0:
        seen = set()
        for _ in range(size() - 1):
            tensor = torch.empty(3)
            source = dist.recv(tensor, tag=7)
            same(tensor, values(source, 3))
            seen.add(source)
        assert seen == set(range(1, size()))
    else:
        dist.send(values(rank(), 3), 0, tag=7)


def check_batches_of_messages():
    if size() == 1:
        return
    following, previous = (rank() + 1) % size(), (rank() - 1) % size()
    small, large = torch.empty(3), torch.empty(70001)
    operations = [
        dist.P2POp(dist.isend, values(rank(), 3), following),
        dist.P2POp(dist.irecv, small, previous),
        dist.P2POp(dist.isend, values(rank(), 70001), following),
        dist.P2POp(dist.irecv, large, previous),
    ]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    same(small, values(previous, 3))
    same(large, values(previous, 70001))


def check_a_batch_that_fails_leaves_the_group_as_it_was():
    """torch does not close the window of a batch whose body raised."""
    if size() > 1:
        raises(ValueError, "tag", lambda: dist.batch_isend_irecv([dist.P2POp(dist.isend, torch.ones(3), (rank() + 1) % size(), tag=-5)]))
        dist.distributed_c10d._world.pg_coalesce_state.clear()  # its own notes, which it leaves too
    first = None
    for _ in range(150):  # more than a window keeps of what has ended
        tensor = torch.ones(2)
        backend().allreduce([tensor]).wait()
        first = first or weakref.ref(tensor)
    assert first() is None, "still held"
    check_batches_of_messages()
    check_the_coalescing_manager()


def check_the_coalescing_manager():
    tensors = [values(rank(), count) for count in COUNTS]
    with dist._coalescing_manager():
        for tensor in tensors:
            dist.all_reduce(tensor)
    for tensor, count in zip(tensors, COUNTS):
        same(tensor, total(everybody(count)))
    outputs = [torch.empty(count * size()) for count in COUNTS]
    with dist._coalescing_manager(async_ops=True) as manager:
        for output, count in zip(outputs, COUNTS):
            dist.all_gather_into_tensor(output, values(rank(), count))
    manager.wait()
    same(outputs[-1], torch.cat(everybody(COUNTS[-1])))
    tensors = [values(rank(), count) for count in COUNTS]
    with dist._coalescing_manager(device=torch.device("cpu"), async_ops=True) as manager:
        for tensor in tensors:
            backend().allreduce([tensor], c10d.AllreduceOptions())
    manager.wait()
    same(tensors[-1], total(everybody(COUNTS[-1])))


def check_allreduce_coalesced_is_complete_when_it_returns():
    tensors = [values(rank(), count) for count in COUNTS]
    work = backend().allreduce_coalesced(tensors, c10d.AllreduceCoalescedOptions())
    assert work.is_completed()
    same(tensors[-1], total(everybody(COUNTS[-1])))


def check_sparse_gradients():
    indices = torch.tensor([[0, rank() + 1, 5 + rank()]])
    tensor = torch.sparse_coo_tensor(indices, torch.ones(3, 4), (20, 4))
    expected = sum(
        torch.sparse_coo_tensor(torch.tensor([[0, other + 1, 5 + other]]), torch.ones(3, 4), (20, 4)).to_dense() for other in range(size())
    )
    dist.all_reduce(tensor)
    same(tensor.to_dense(), expected)


def check_object_collectives():
    objects = [None] * size()
    dist.all_gather_object(objects, {"rank": rank(), "text": "x" * rank()})
    assert objects == [{"rank": other, "text": "x" * other} for other in range(size())]
    shared = [rank(), "from rank"] if rank() == 0 else [None, None]
    dist.broadcast_object_list(shared, src=0)
    assert shared == [0, "from rank"]
    mine = [None]
    dist.scatter_object_list(mine, [f"for {other}" for other in range(size())] if rank() == 0 else None, src=0)
    assert mine == [f"for {rank()}"]


def check_functional_collectives():
    group = dist.group.WORLD
    same(funcol.all_reduce(values(rank(), 100), "sum", group) + 0, total(everybody(100)))
    same(funcol.all_gather_tensor(values(rank(), 100), 0, group) + 0, torch.cat(everybody(100)))
    scattered = funcol.reduce_scatter_tensor(values(rank(), 100 * size()), "avg", 0, group) + 0
    torch.testing.assert_close(scattered, (total(everybody(100 * size())) / size())[100 * rank() : 100 * rank() + 100])
    same(funcol.broadcast(values(rank(), 100), 0, group) + 0, values(0, 100))
    shuffled = funcol.all_to_all_single(values(rank(), 10 * size()), None, None, group) + 0
    same(shuffled, torch.cat([one[10 * rank() : 10 * rank() + 10] for one in everybody(10 * size())]))
    coalesced = funcol.all_reduce_coalesced([values(rank(), 5), values(rank(), 7)], "sum", group)
    same(coalesced[1] + 0, total(everybody(7)))


if __name__ == "__main__":
    dist.init_process_group("ccl")
    run(globals(), vars(works), vars(failing))
    dist.destroy_process_group()
