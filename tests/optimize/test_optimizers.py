"""optimize(model, optimizer): the same object, its groups, state, schedulers and hooks, with a fused step; and what is left as it is."""

import copy
import pickle
import types

import pytest

from .models import EPS, torch

import trireme

optim = pytest.importorskip("trireme.optim")

# A step computes a dozen operations, each rounded, in another order than torch's; ten steps. Relative to the weights, of size 1.
STEPS = 10
TOLERANCE = EPS * 12 * STEPS

KINDS = {
    "AdamW": lambda groups: torch.optim.AdamW(groups, lr=1e-2, weight_decay=0.1),
    "AdamW, amsgrad": lambda groups: torch.optim.AdamW(groups, lr=1e-2, amsgrad=True, maximize=True),
    "AdamW, fused": lambda groups: torch.optim.AdamW(groups, lr=1e-2, fused=True),
    "Adam": lambda groups: torch.optim.Adam(groups, lr=1e-2, weight_decay=0.1),
    "SGD": lambda groups: torch.optim.SGD(groups, lr=1e-2),
    "SGD, momentum": lambda groups: torch.optim.SGD(groups, lr=1e-2, momentum=0.9, nesterov=True, weight_decay=0.1),
    "Adagrad": lambda groups: torch.optim.Adagrad(groups, lr=1e-2, lr_decay=0.1),
}


def model_and_groups():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    return model, [{"params": model[0].parameters()}, {"params": model[2].parameters(), "lr": 1e-3}]


def steps(model, optimizer, scheduler=None, count=STEPS, seed=0):
    generator = torch.Generator().manual_seed(seed)
    for _ in range(count):
        optimizer.zero_grad()
        model(torch.randn(32, 8, generator=generator)).square().mean().backward()
        optimizer.step()
        if scheduler is not None:
            scheduler.step()


def assert_same_weights(ours, theirs):
    for our, their in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert (our - their).norm() <= TOLERANCE * their.norm()


@pytest.mark.parametrize("before", [0, 3], ids=["new", "in use"])
@pytest.mark.parametrize("kind", KINDS)
def test_becomes_ours(kind, before):
    (ours, our_groups), (theirs, their_groups) = model_and_groups(), model_and_groups()
    our, their = KINDS[kind](our_groups), KINDS[kind](their_groups)
    scheduled = [torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step)) for optimizer in (our, their)]
    steps(ours, our, scheduled[0], before)
    steps(theirs, their, scheduled[1], before)
    groups, state = our.param_groups, our.state
    _, result = trireme.optimize(ours, our)
    assert result is our and type(our) is getattr(optim, kind.split(",")[0])
    assert isinstance(our, torch.optim.Optimizer) and our.param_groups is groups and our.state is state
    steps(ours, our, scheduled[0], seed=1)
    steps(theirs, their, scheduled[1], seed=1)
    assert_same_weights(ours, theirs)
    assert [group["lr"] for group in our.param_groups] == [group["lr"] for group in their.param_groups]


def test_the_step_is_ours(monkeypatch):
    """Also under a scheduler that was made before, which keeps the step that it found."""
    model, groups = model_and_groups()
    optimizer = torch.optim.AdamW(groups)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    trireme.optimize(model, optimizer)
    calls = []
    real = optim.AdamW._update
    monkeypatch.setattr(optim.AdamW, "_update", lambda *args: calls.append(1) or real(*args))
    steps(model, optimizer, scheduler, 2)
    assert len(calls) == 4  # two groups, two steps


def test_a_scheduler_still_notices_its_order(recwarn):
    model, groups = model_and_groups()
    optimizer = torch.optim.AdamW(groups)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    trireme.optimize(model, optimizer)
    steps(model, optimizer, scheduler, 2)
    assert not [w for w in recwarn if "lr_scheduler" in str(w.message)]


def test_hooks_are_called():
    model, groups = model_and_groups()
    optimizer = torch.optim.AdamW(groups)
    called = []
    optimizer.register_step_pre_hook(lambda *_: called.append("before"))
    trireme.optimize(model, optimizer)
    optimizer.register_step_post_hook(lambda *_: called.append("after"))
    steps(model, optimizer, count=1)
    assert called == ["before", "after"]


@pytest.mark.parametrize("kind", KINDS)
def test_state_goes_back_to_torch(kind):
    model, groups = model_and_groups()
    optimizer = KINDS[kind](groups)
    trireme.optimize(model, optimizer)
    steps(model, optimizer)
    other = copy.deepcopy(model)
    theirs = KINDS[kind]([{"params": other[0].parameters()}, {"params": other[2].parameters(), "lr": 1e-3}])
    theirs.load_state_dict(copy.deepcopy(optimizer.state_dict()))  # loading shares tensors, and both go on
    steps(model, optimizer, seed=2)
    steps(other, theirs, seed=2)
    assert_same_weights(model, other)


def test_copies():
    model, groups = model_and_groups()
    optimizer = torch.optim.AdamW(groups)
    trireme.optimize(model, optimizer)
    steps(model, optimizer, count=1)
    assert pickle.loads(pickle.dumps(optimizer)).state_dict()["param_groups"] == optimizer.state_dict()["param_groups"]


def test_again_says_nothing(capfd):
    model, groups = model_and_groups()
    optimizer = torch.optim.AdamW(groups)
    trireme.optimize(model, optimizer)
    assert "the optimizer AdamW is fused" in capfd.readouterr().err
    trireme.optimize(model, optimizer)
    assert "optimizer" not in capfd.readouterr().err


class Mine(torch.optim.AdamW):
    pass


def with_gaps(model):
    model[0].weight = torch.nn.Parameter(torch.randn(16, 16)[:, ::2])
    return torch.optim.AdamW(model.parameters())


LEFT = {
    "another": (lambda model: torch.optim.NAdam(model.parameters()), "torch.optim.nadam.NAdam"),
    "derived": (lambda model: Mine(model.parameters()), "Mine"),
    "differentiable": (lambda model: torch.optim.AdamW(model.parameters(), differentiable=True), "differentiable=True"),
    "double": (lambda model: torch.optim.AdamW(model.double().parameters()), "torch.float64"),
    "gaps": (with_gaps, "a parameter of shape (16, 8) has gaps or overlaps in memory"),
}


@pytest.mark.parametrize("case", LEFT)
def test_left(case, capfd):
    model, _ = model_and_groups()
    make, words = LEFT[case]
    optimizer = make(model)
    kind = type(optimizer)
    trireme.optimize(model, optimizer)
    assert type(optimizer) is kind
    said = capfd.readouterr().err
    assert "left the optimizer" in said and words in said


@pytest.mark.parametrize("scheduled", [False, True], ids=["plain", "scheduled"])
def test_a_replaced_step_is_left(capfd, scheduled):
    """A scheduler's own step wraps the one that it found, which need not be the class's."""
    model, groups = model_and_groups()
    optimizer, called = torch.optim.AdamW(groups), []
    optimizer.step = types.MethodType(lambda self: called.append(1), optimizer)
    if scheduled:
        torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
    trireme.optimize(model, optimizer)
    assert type(optimizer) is torch.optim.AdamW and "its step was replaced" in capfd.readouterr().err
    optimizer.step()
    assert called == [1]


def test_state_that_lies_otherwise_in_memory():
    """As that of a model which was converted to channels_last after it was saved."""
    convolution = torch.nn.Conv2d(4, 8, 3)
    saved = torch.optim.AdamW(convolution.parameters())
    convolution(torch.randn(1, 4, 8, 8)).sum().backward()
    saved.step()
    theirs = copy.deepcopy(convolution).to(memory_format=torch.channels_last)
    ours = copy.deepcopy(theirs)
    optimizers = [torch.optim.AdamW(model.parameters()) for model in (theirs, ours)]
    for optimizer in optimizers:
        optimizer.load_state_dict(copy.deepcopy(saved.state_dict()))
    trireme.optimize(ours, optimizers[1])
    for model, optimizer in zip((theirs, ours), optimizers, strict=True):
        for param in model.parameters():
            param.grad = torch.ones_like(param)
        optimizer.step()
    assert_same_weights(ours, theirs)


def test_sparse_gradients_are_left(capfd):
    model = torch.nn.Embedding(4, 4, sparse=True)
    optimizer = torch.optim.Adagrad(model.parameters())
    trireme.optimize(model, optimizer)
    assert type(optimizer) is torch.optim.Adagrad and "sparse gradients" in capfd.readouterr().err
