"""What a call returns and what a group is: works, futures, windows, numbers, subgroups, threads. Run by collectives.py, after its own checks."""

import datetime
import os
import threading
import time
import traceback

import torch
import torch._C._distributed_c10d as c10d
import torch.distributed as dist

from ranks import COUNTS, backend, everybody, raises, rank, run_threads, same, size, total, values


def check_works_and_futures():
    tensor = values(rank(), 70001)
    work = dist.all_reduce(tensor, async_op=True)
    future = work.get_future()
    doubled = future.then(lambda done: done.value()[0] * 2)
    same(doubled.wait(), total(everybody(70001)) * 2)
    assert work.is_completed() and work.is_success()
    same(work.result()[0], total(everybody(70001)))
    works = [dist.all_reduce(torch.ones(count), async_op=True) for count in COUNTS]
    while not all(work.is_completed() for work in works):
        pass
    # A callback may submit operations of its own, and wait for them.
    tensor, inner = torch.ones(10), torch.ones(20)

    def again(done):
        dist.all_reduce(inner)
        return inner

    future = dist.all_reduce(tensor, async_op=True).get_future().then(again)
    same(future.wait(), torch.full((20,), float(size())))
    # Nobody holds the work: the tensor must live, and the result arrive.
    tensor = torch.ones(200000)
    dist.all_reduce(tensor, async_op=True)
    dist.barrier()
    same(tensor, torch.full((200000,), float(size())))


def check_a_forked_child_is_told_that_works_are_the_parents():
    if size() == 1:
        return
    store = dist.group.WORLD.get_group_store()
    if rank() == 0:
        works = [dist.all_reduce(torch.ones(count), async_op=True) for count in (3, 1 << 20)] + [dist.irecv(torch.empty(3), 1, tag=8)]
        assert not any(work.is_completed() for work in works)
        child = os.fork()
        if child == 0:
            try:
                for work in works:
                    for ask in (work.wait, work.is_completed, work.get_future):
                        raises(ValueError, "belongs to the parent process", ask)
                os._exit(0)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        store.set("the child has ended", "")
    else:
        store.wait(["the child has ended"])
        works = [dist.all_reduce(torch.ones(count), async_op=True) for count in (3, 1 << 20)]
        if rank() == 1:
            dist.send(torch.ones(3), 0, tag=8)
    for work in works:
        work.wait()


def check_synchronize_does_not_wait():
    """torch calls it with the GIL held, which whoever completes the operation may need to let go of a tensor of Python's."""
    dist.barrier()
    if rank() == 1:
        time.sleep(0.5)  # the others' operation ends while they are in synchronize()
    outputs = [torch.empty(1 << 18) for _ in range(size())]
    work = dist.all_gather(outputs, values(rank(), 1 << 18), async_op=True)  # nobody else has the input
    time.sleep(0.1)
    start = time.monotonic()
    work.synchronize()
    assert time.monotonic() - start < 0.3
    with dist._coalescing_manager(async_ops=True) as manager:
        dist.all_reduce(torch.ones(1 << 18))
    for coalesced in manager.works:
        coalesced.synchronize()
    manager.wait()
    work.wait()
    for other, output in enumerate(outputs):
        same(output, values(other, 1 << 18))


def check_asking_is_not_working():
    """Of much that is under way: the caller keeps the GIL meanwhile, and a worker is there for it. Also of something small that comes after it."""
    for _ in range(8):  # after callers that do their work themselves no worker comes by itself
        dist.all_reduce(torch.ones(1 << 18))
    # Three times: a virtual machine's host may take the core away within a call, and that counts as this thread's time.
    longest_s = min(longest_question_s() for _ in range(3))
    assert longest_s < 0.004, longest_s


def longest_question_s() -> float:
    tensors, longest_s = [torch.ones(1 << 24), torch.ones(3)], 0.0
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    for work in reversed(works):
        done = False
        while not done:
            start = time.thread_time()  # not the clock: others use the machine
            done = work.is_completed()
            longest_s = max(longest_s, time.thread_time() - start)
    for work, tensor in zip(works, tensors):
        work.wait()
        same(tensor[-2:], torch.full((2,), float(size())))
    return longest_s


def check_callbacks_that_wait_for_each_other_all_run():
    if size() == 1:
        return  # complete at once: then() calls them itself
    store, count = dist.group.WORLD.get_group_store(), 6
    if rank() == 0:
        together = threading.Barrier(count, timeout=60)

        def meet(done):
            together.wait()
            return done.value()[0]

        futures = [dist.all_reduce(torch.ones(3), async_op=True).get_future().then(meet) for _ in range(count)]
        store.set("callbacks are attached", "")
        for future in futures:
            same(future.wait(), torch.full((3,), float(size())))
    else:
        store.wait(["callbacks are attached"])
        for _ in range(count):
            dist.all_reduce(torch.ones(3))


def check_a_group_that_nobody_holds_ends():
    """With an operation under way whose tensor is Python's: whoever completes it needs the GIL to let that go."""
    store = dist.PrefixStore("dropped", dist.group.WORLD.get_group_store())
    group = dist.ProcessGroupCCL(store, rank(), size(), datetime.timedelta(seconds=60))
    dist.barrier()
    if rank() == 1:
        time.sleep(0.5)
    tensor = torch.ones(1 << 20)
    tensor.of_python = "and so it has an object of its own"
    work = group.allreduce([tensor])
    if rank() == 1:
        work.wait()
        same(tensor[:2], torch.full((2,), float(size())))
    del tensor, work
    time.sleep(0.2)
    del group
    dist.barrier()


def check_sequence_numbers():
    before = backend()._get_sequence_number_for_group()
    dist.all_reduce(torch.ones(1))
    dist.barrier()
    raises(ValueError, "band", lambda: dist.all_reduce(torch.ones(1), dist.ReduceOp.BAND))  # which only the library refuses
    assert backend()._get_sequence_number_for_group() == before + 2
    numbers = [None] * size()
    dist.all_gather_object(numbers, before)
    assert set(numbers) == {before}


def check_groups_of_some_ranks():
    groups = [dist.new_group([other for other in range(size()) if other % 2 == parity] or [0]) for parity in (0, 1)]
    if rank() % 2 == 0 or size() > 1:
        mine = groups[rank() % 2]
        tensor = torch.full((3000,), float(rank()))
        dist.all_reduce(tensor, group=mine)
        assert tensor[0] == sum(range(rank() % 2, size(), 2)), tensor[0]
    half = list(range((size() + 1) // 2))
    split = dist.group.WORLD.split_group(half, datetime.timedelta(seconds=60))
    assert (split is None) == (rank() not in half)
    if split is not None:
        tensor = torch.ones(70001)
        split.allreduce([tensor]).wait()
        assert tensor[-1] == len(half)
    for group in groups:
        if group is not dist.GroupMember.NON_GROUP_MEMBER:
            dist.destroy_process_group(group)


def check_groups_that_merge():
    """Each rank's group of its own, and then one of all; a rank's place in it is that of its coming."""
    store = dist.group.WORLD.get_group_store()
    alone = dist.group.WORLD.split_group([rank()], datetime.timedelta(seconds=60))
    merged = alone.merge_remote_group(dist.PrefixStore("merged", store), size(), datetime.timedelta(seconds=60), "merged")
    assert merged.size() == size()
    tensor = torch.full((70001,), 1.0 + merged.rank())
    merged.allreduce([tensor]).wait()
    assert tensor[-1] == size() * (size() + 1) / 2
    dist.barrier()


def check_a_split_has_the_timeout_of_now():
    group = dist.new_group(timeout=datetime.timedelta(seconds=300))
    backend(group).set_timeout(datetime.timedelta(seconds=77))
    split = group.split_group(list(range(size())))
    assert backend(split).options._timeout == datetime.timedelta(seconds=77)
    group.split_group(list(range(size())), datetime.timedelta(seconds=55))
    assert backend(group).options._timeout == datetime.timedelta(seconds=77), "its own is as it was"
    dist.barrier()


def check_pending_works_can_be_waited_for():
    if rank() == 1:
        time.sleep(0.3)
    tensor = torch.ones(1 << 18)
    dist.all_reduce(tensor, async_op=True)  # nobody holds the work
    dist.group.WORLD._wait_for_pending_works()
    same(tensor[-2:], torch.full((2,), float(size())))


def check_works_know_how_long_they_took():
    raises(RuntimeError, "enableCollectivesTiming", dist.all_reduce(torch.ones(3), async_op=True)._get_duration)
    group, last = dist.new_group(), size() - 1
    group._enable_collectives_timing()
    store = dist.PrefixStore("how long", dist.group.WORLD.get_group_store())
    if rank() == last and last > 0:
        store.wait([str(other) for other in range(last)])
        time.sleep(0.2)
    work = dist.all_reduce(torch.ones(3), group=group, async_op=True)
    if rank() != last:
        store.set(str(rank()), "has begun")
    work.wait()
    took_ms = work._get_duration()
    assert 0 < took_ms < 60000 and (rank() == last or took_ms > 150), took_ms


def check_windows_have_numbers_and_results():
    group = dist.new_group()
    with dist._coalescing_manager(group=group, device=torch.device("cpu"), async_ops=True) as manager:
        for _ in range(2):
            backend(group).allreduce([torch.ones(3)], c10d.AllreduceOptions())
    (work,) = manager.works
    assert work.get_future_result().wait() == c10d.WorkResult.SUCCESS.value
    assert len(work.get_future().wait()) == 2


def check_large_windows_keep_everything():
    count = 200
    tensors = [torch.full((3,), float(number)) for number in range(count)]
    with dist._coalescing_manager(device=torch.device("cpu"), async_ops=True) as manager:
        for tensor in tensors:
            backend().allreduce([tensor], c10d.AllreduceOptions())
    (work,) = manager.works
    results = work.get_future().wait()
    assert [result[0].item() for result in results] == [float(number * size()) for number in range(count)]
    assert [result.data_ptr() for result in work.result()] == [tensor.data_ptr() for tensor in tensors]
    if size() == 1:
        return
    following, previous = (rank() + 1) % size(), (rank() - 1) % size()
    received = [torch.empty(3) for _ in range(count)]
    operations = [dist.P2POp(dist.irecv, tensor, previous) for tensor in received]
    operations += [dist.P2POp(dist.isend, torch.full((3,), float(number)), following) for number in range(count)]
    (work,) = dist.batch_isend_irecv(operations)
    assert [result[0].item() for result in work.get_future().wait()] == [float(number) for number in range(count)]


def check_memory_from_the_backend():
    tensor = backend().allocate_tensor(70001, dtype=torch.float32, device=torch.device("cpu"))
    assert backend().supports_tensor_alloc(torch.device("cpu"))
    tensor.copy_(values(rank(), 70001))
    dist.all_reduce(tensor)
    same(tensor, total(everybody(70001)))
    raises(torch.OutOfMemoryError, "shared memory", lambda: backend().allocate_tensor(1 << 50, dtype=torch.float32, device=torch.device("cpu")))
    dist.barrier()


def check_many_operations_of_several_groups_from_several_threads():
    """One thread per group, each with operations of all kinds in flight; how a thread gets at the end of one differs from one to the next."""
    groups = [dist.new_group() for _ in range(3)]
    following, previous = (rank() + 1) % size(), (rank() - 1) % size()
    failures = []

    def submit(group, number):
        """(work, tensor, what its elements will be)"""
        count, mine = 1 + 2333 * (number % 7), float(number + rank())
        kind = number % 4
        if kind == 0:
            tensor = torch.full((count,), mine)
            return dist.all_reduce(tensor, group=group, async_op=True), tensor, size() * number + sum(range(size()))
        if kind == 1:
            tensor, root = torch.full((count,), mine), number % size()
            return dist.broadcast(tensor, src=root, group=group, async_op=True), tensor, number + root
        if kind == 2:
            output = torch.empty(count * size())
            work = dist.all_gather_into_tensor(output, torch.full((count,), mine), group=group, async_op=True)
            return work, output[-count:], number + size() - 1
        if size() == 1:
            return dist.barrier(group=group, async_op=True), torch.zeros(1), 0
        tensor = torch.empty(count)
        dist.isend(torch.full((count,), mine), following, group=group, tag=number)  # nobody holds the work
        return dist.irecv(tensor, previous, group=group, tag=number), tensor, number + previous

    def work_on(group, seed):
        try:
            for _ in range(3):
                pending = [submit(group, seed + step) for step in range(40)]
                for position, (work, tensor, expected) in enumerate(pending):
                    if position % 3 == 0:
                        work.get_future().wait()
                    while position % 3 == 1 and not work.is_completed():
                        time.sleep(0)
                    work.wait()
                    assert bool((tensor == expected).all()), (position, tensor[0], expected)
        except BaseException as error:
            failures.append(error)

    run_threads([lambda group=group, index=index: work_on(group, 100 * index) for index, group in enumerate(groups)])
    assert not failures, failures
