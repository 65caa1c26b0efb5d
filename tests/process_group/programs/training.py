"""What torch builds on a backend: DDP in its variants against gloo, ZeRO, FSDP2, DTensor, checkpoints, DataLoader workers."""

import copy
import gc
import os
import pathlib
import tempfile
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

import trireme
from checks import run

GLOO = None


def rank():
    return dist.get_rank()


def size():
    return dist.get_world_size()


class Model(nn.Module):
    """Layers of which some are used only on request, and an embedding."""

    def __init__(self, sparse=False):
        super().__init__()
        self.embedding = nn.Embedding(50, 64, sparse=sparse)
        self.first = nn.Linear(64, 300)
        self.second = nn.Linear(300, 200)
        self.extra = nn.Linear(200, 200)
        self.last = nn.Linear(200, 7)

    def forward(self, tokens, with_extra=True):
        hidden = torch.relu(self.second(torch.tanh(self.first(self.embedding(tokens).mean(1)))))
        return self.last(self.extra(hidden) if with_extra else hidden)


def make_model(**options):
    torch.manual_seed(7)
    return Model(**options)


def batch(step=0, rows=6):
    generator = torch.Generator().manual_seed(100 * step + rank())
    return torch.randint(0, 50, (rows, 5), generator=generator)


def gradients(group, hook=None, with_extra=True, sparse=False, steps=2, **options):
    """Of the last of some steps of DDP."""
    model = DistributedDataParallel(make_model(sparse=sparse), process_group=group, bucket_cap_mb=0.2, **options)
    if hook:
        model.register_comm_hook(group, hook)
    for step in range(steps):
        model.zero_grad()
        model(batch(step), with_extra).square().mean().backward()
    return [p.grad.to_dense().clone() if p.grad is not None else None for p in model.parameters()]


def same_as_gloo(rtol=1e-5, atol=1e-7, **options):
    for ours, theirs in zip(gradients(dist.group.WORLD, **options), gradients(GLOO, **options), strict=True):
        assert (ours is None) == (theirs is None)
        if ours is not None:
            torch.testing.assert_close(ours, theirs, rtol=rtol, atol=atol)


def check_ddp():
    same_as_gloo()


def check_ddp_buckets_lie_in_shared_memory():
    model = DistributedDataParallel(make_model(), bucket_cap_mb=0.2, gradient_as_bucket_view=True)
    model(batch()).square().mean().backward()
    lines = [line.split()[0].split("-") for line in open("/proc/self/maps") if "memfd:trireme-buffer" in line]
    shared = [range(int(first, 16), int(last, 16)) for first, last in lines]
    for name, parameter in model.named_parameters():
        assert any(parameter.grad.data_ptr() in mapping for mapping in shared), name


def check_ddp_with_gradients_as_views():
    same_as_gloo(gradient_as_bucket_view=True)


def check_ddp_with_a_static_graph():
    same_as_gloo(static_graph=True)


def check_ddp_with_unused_parameters():
    same_as_gloo(find_unused_parameters=True, with_extra=False)


def check_ddp_with_sparse_gradients():
    same_as_gloo(sparse=True)


def check_ddp_with_compression():
    same_as_gloo(hook=default_hooks.fp16_compress_hook, rtol=2e-3, atol=1e-5)
    same_as_gloo(hook=bf16_hook, rtol=2e-2, atol=1e-4)


def bf16_hook(state, bucket):
    """torch's own, which DDP knows by its name and allows on CUDA only."""
    return default_hooks.bf16_compress_hook(state, bucket)


def check_ddp_with_power_sgd():
    model = DistributedDataParallel(make_model())
    state = powerSGD_hook.PowerSGDState(dist.group.WORLD, matrix_approximation_rank=1, start_powerSGD_iter=2)
    model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    for step in range(4):
        model.zero_grad()
        model(batch(step)).square().mean().backward()
    agree([p.grad for p in model.parameters()])


def agree(tensors):
    for tensor in tensors:
        others = [torch.empty_like(tensor) for _ in range(size())]
        dist.all_gather(others, tensor.contiguous())
        for other in others:
            assert torch.equal(other, tensor)


def accumulated(group):
    """Gradients of two steps, of which the first is not synchronised."""
    model = DistributedDataParallel(make_model(), process_group=group)
    with model.no_sync():
        model(batch(0)).square().mean().backward()
    model(batch(1)).square().mean().backward()
    return [p.grad for p in model.parameters()]


def check_ddp_without_synchronisation():
    agree(accumulated(dist.group.WORLD))


def check_ddp_without_synchronisation_is_as_gloos():
    torch.testing.assert_close(accumulated(dist.group.WORLD), accumulated(GLOO), rtol=1e-5, atol=1e-7)


def joined(group):
    """Parameters after steps of which some ranks have more than others."""
    model = DistributedDataParallel(make_model(), process_group=group)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with model.join():
        for step in range(2 + 2 * rank()):
            optimizer.zero_grad()
            model(batch(step)).square().mean().backward()
            optimizer.step()
    return [p.data for p in model.parameters()]


def check_ddp_join_with_uneven_inputs():
    ours = joined(dist.group.WORLD)
    agree(ours)
    torch.testing.assert_close(ours, joined(GLOO), rtol=1e-5, atol=1e-7)


def check_zero_redundancy_optimizer():
    plain, sharded = make_model(), DistributedDataParallel(make_model())
    reference = DistributedDataParallel(plain)
    ours = ZeroRedundancyOptimizer(sharded.parameters(), torch.optim.AdamW, lr=0.01)
    theirs = torch.optim.AdamW(reference.parameters(), lr=0.01)
    for step in range(3):
        for model, optimizer in ((sharded, ours), (reference, theirs)):
            optimizer.zero_grad()
            model(batch(step)).square().mean().backward()
            optimizer.step()
    for a, b in zip(sharded.parameters(), reference.parameters()):
        torch.testing.assert_close(a, b)


def check_fsdp2_trains():
    mesh = init_device_mesh("cpu", (size(),))
    model, reference = make_model(), DistributedDataParallel(make_model())
    for layer in (model.first, model.second, model.extra, model.last):
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    theirs = torch.optim.AdamW(reference.parameters(), lr=0.01)
    for step in range(3):
        for one, stepper in ((model, optimizer), (reference, theirs)):
            stepper.zero_grad()
            loss = one(batch(step)).square().mean()
            loss.backward()
            stepper.step()
    for ours, other in zip(model.parameters(), reference.parameters()):
        torch.testing.assert_close(ours.full_tensor(), other, rtol=1e-4, atol=1e-6)


def make_encoder():
    """A small BERT with a head, plain."""
    import transformers

    torch.manual_seed(7)
    config = transformers.BertConfig(
        vocab_size=50, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, max_position_embeddings=32,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    return transformers.BertForSequenceClassification(config)


def texts(step):
    lengths = torch.tensor([5, 1, 3, 2, 5, 4])
    return {"input_ids": batch(step), "attention_mask": (torch.arange(5) < lengths[:, None]).long(), "labels": lengths % 2}


def train_encoder(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        optimizer.zero_grad()
        model(**texts(step)).loss.backward()
        optimizer.step()


def packed_calls(model):
    return sum(vars(module).get("_trireme_packed", 0) for module in model.modules())


def check_fsdp2_of_an_optimized_encoder():
    mesh = init_device_mesh("cpu", (size(),))
    reference = DistributedDataParallel(make_encoder())
    train_encoder(reference)
    for first in ("optimized", "sharded"):
        model = make_encoder()
        if first == "optimized":
            trireme.optimize(model)
        for module in (*model.bert.encoder.layer, model):
            fully_shard(module, mesh=mesh)
        if first == "sharded":
            trireme.optimize(model)
        train_encoder(model)
        assert packed_calls(model) == 3
        for ours, other in zip(model.parameters(), reference.parameters()):
            torch.testing.assert_close(ours.full_tensor(), other, rtol=1e-4, atol=1e-6)


def check_fsdp1_of_an_optimized_encoder():
    reference = DistributedDataParallel(make_encoder())
    train_encoder(reference)
    for first in ("optimized", "sharded"):
        model = make_encoder()
        if first == "optimized":
            trireme.optimize(model)
        policy = ModuleWrapPolicy({type(model.bert.encoder.layer[0])})
        model = FullyShardedDataParallel(model, auto_wrap_policy=policy, device_id=torch.device("cpu"))
        if first == "sharded":
            trireme.optimize(model)
        train_encoder(model)
        assert packed_calls(model) == 3
        with FullyShardedDataParallel.summon_full_params(model):
            for ours, other in zip(model.parameters(), reference.parameters()):
                torch.testing.assert_close(ours.view_as(other), other, rtol=1e-4, atol=1e-6)


def check_dtensors_are_redistributed():
    mesh = init_device_mesh("cpu", (size(),))
    whole = torch.arange(size() * 12.0).reshape(size() * 3, 4)
    sharded = distribute_tensor(whole, mesh, [Shard(0)])
    assert torch.equal(sharded.to_local(), whole[3 * rank() : 3 * rank() + 3])
    assert torch.equal(sharded.redistribute(mesh, [Replicate()]).to_local(), whole)
    wide = distribute_tensor(whole.t().contiguous(), mesh, [Shard(1)]).redistribute(mesh, [Shard(0)])
    assert torch.equal(wide.full_tensor(), whole.t())
    product = sharded @ DTensor.from_local(torch.ones(4, 4), mesh, [Replicate()])
    assert torch.equal(product.full_tensor(), whole @ torch.ones(4, 4))


def check_distributed_checkpoints():
    folder = [tempfile.mkdtemp() if rank() == 0 else None]
    dist.broadcast_object_list(folder, src=0)
    model = make_model()
    for parameter in model.parameters():
        dist.all_reduce(parameter.data)
    checkpoint.save({"model": model.state_dict()}, checkpoint_id=folder[0])
    loaded = {"model": copy.deepcopy(make_model()).state_dict()}
    checkpoint.load(loaded, checkpoint_id=folder[0])
    for name, value in model.state_dict().items():
        assert torch.equal(loaded["model"][name], value)
    dist.barrier()
    if rank() == 0:
        for path in pathlib.Path(folder[0]).iterdir():
            path.unlink()
        os.rmdir(folder[0])


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 40

    def __getitem__(self, index):
        return torch.tensor([float(index)])


def check_forked_loader_workers_do_no_harm():
    loader = torch.utils.data.DataLoader(Numbers(), batch_size=4, num_workers=2, multiprocessing_context="fork")
    for _ in range(2):
        for numbers in loader:
            expected = numbers * size()
            dist.all_reduce(numbers)
            assert torch.equal(numbers, expected)


def belongings():
    """What this process holds of what a group must give back. Memory in KiB."""
    status = dict(line.split(":", 1) for line in open("/proc/self/status"))
    return {
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": len(os.listdir("/proc/self/task")),
        "shared mappings": sum("memfd:trireme" in line for line in open("/proc/self/maps")),
        "shared memory": int(status["RssShmem"].split()[0]),
        "private memory": int(status["RssAnon"].split()[0]),
    }


def check_groups_of_other_sizes_again_and_again():
    """In one process: the group ends, and another one with as many ranks, or with fewer, begins. Nothing is left behind."""
    global GLOO
    store = dist.PrefixStore("again", dist.group.WORLD.get_group_store())
    me, everybody = rank(), size()
    dist.destroy_process_group()
    GLOO = None
    rounds = int(os.environ.get("ROUNDS", "12"))
    # The process's own threads for operations and futures come when first needed and stay; malloc keeps what was freed, for each thread.
    slack = {"threads": 2, "private memory": 4096}
    most = {}
    for count in range(rounds):
        ranks = (everybody, 1, max(everybody - 1, 1))[count % 3]
        shared = dist.PrefixStore(f"of {ranks}" if ranks > 1 else f"alone/{me}", store)  # where keys of the rounds before still are
        if me < ranks or ranks == 1:
            dist.init_process_group("ccl", store=shared, rank=me if ranks > 1 else 0, world_size=ranks)
            tensor = torch.ones(70001)
            dist.all_reduce(tensor)
            assert tensor[-1] == ranks
            dist.all_reduce(tensor, async_op=True).get_future().wait()
            dist.destroy_process_group()
        if count < 6:
            most = {name: max(held, most.get(name, 0)) for name, held in belongings().items()}
            continue
        # A thread that the scheduler holds up lets go of the last group's a little later, and Python has cycles to collect.
        deadline = time.monotonic() + 20
        while grown := {name: (held, most[name]) for name, held in belongings().items() if held > most[name] + slack.get(name, 0)}:
            assert time.monotonic() < deadline, f"round {count}, now and before: {grown}"
            gc.collect()
            time.sleep(0.05)


if __name__ == "__main__":
    dist.init_process_group(os.environ.get("BACKEND", "ccl"))
    GLOO = dist.new_group(backend="gloo")
    run(globals())
