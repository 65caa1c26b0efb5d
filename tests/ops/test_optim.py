"""trireme.optim, as installed, against torch.optim: 20 steps on random parameters, clipping, state there and back, bfloat16."""

import copy
import io
import pickle
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch", reason="trireme.optim stands on torch")
optim = pytest.importorskip("trireme.optim", reason="the wheel is not installed: pip install --no-build-isolation .")

SHAPES = [(3,), (1, 1), (17, 5), (0,), (), (64, 33), (129, 257), (2, 3, 4, 5), (40001,)]
STEPS = 20

KINDS = {
    "adamw": ("AdamW", {"lr": 1e-2, "weight_decay": 0.1}),
    "adamw_amsgrad": ("AdamW", {"lr": 1e-2, "amsgrad": True, "betas": (0.8, 0.95), "eps": 1e-6}),
    "adamw_maximize": ("AdamW", {"lr": 1e-2, "maximize": True}),
    "adam": ("Adam", {"lr": 1e-2}),
    "adam_l2": ("Adam", {"lr": 1e-2, "weight_decay": 0.1, "amsgrad": True}),
    "adam_decoupled": ("Adam", {"lr": 1e-2, "weight_decay": 0.1, "decoupled_weight_decay": True}),
    "sgd": ("SGD", {"lr": 0.05}),
    "sgd_momentum": ("SGD", {"lr": 0.05, "momentum": 0.9, "dampening": 0.2, "weight_decay": 0.01}),
    "sgd_nesterov": ("SGD", {"lr": 0.05, "momentum": 0.9, "nesterov": True, "maximize": True}),
    "adagrad": ("Adagrad", {"lr": 0.05, "lr_decay": 0.1, "weight_decay": 0.01, "initial_accumulator_value": 0.1}),
}
EACH_KIND = pytest.mark.parametrize("kind", KINDS)
OURS_ALONE = {"lamb": ("Lamb", {"lr": 1e-3})}


@pytest.fixture(autouse=True)
def one_thread():
    """Threads that wait for each other on a busy machine take long. Where they matter, a test asks for more."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def parameters(seed=0, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    return [torch.nn.Parameter(torch.randn(shape, generator=generator).bfloat16().to(dtype)) for shape in SHAPES]


def set_gradients(params, step, transposed=False):
    """The same for the same step, and exact in bfloat16; sometimes a parameter gets none."""
    generator = torch.Generator().manual_seed(1000 + step)
    for index, param in enumerate(params):
        grad = torch.randn(param.shape, generator=generator).bfloat16().to(param.dtype)
        if transposed and grad.dim() == 2:
            grad = grad.t().contiguous().t()
        param.grad = None if step % 5 == 3 and index == 2 else grad


def groups_of(params):
    return [{"params": params[:4], "lr": 3e-2, "weight_decay": 0.0}, {"params": params[4:]}]


def make(module, kind, params, **more):
    name, options = {**KINDS, **OURS_ALONE}[kind]
    return getattr(module, name)(groups_of(params), **options, **more)


def assert_close(ours, theirs):
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine.detach(), other.detach(), rtol=2e-5, atol=2e-6)


def assert_state_close(ours, theirs):
    ours, theirs = ours["state"], theirs["state"]
    assert ours.keys() == theirs.keys()
    for index, state in theirs.items():
        assert ours[index].keys() == state.keys(), "the keys of state must be torch's"
        for key, value in state.items():
            mine = ours[index][key]
            assert mine.shape == value.shape and mine.dtype == value.dtype, key
            torch.testing.assert_close(mine, value, rtol=2e-5, atol=2e-6)


@EACH_KIND
def test_twenty_steps_are_torchs(kind):
    ours, theirs = parameters(), parameters()
    mine, other = make(optim, kind, ours), make(torch.optim, kind, theirs)
    for step in range(STEPS):
        set_gradients(ours, step)
        set_gradients(theirs, step)
        mine.step()
        other.step()
        assert_close(ours, theirs)
    assert_state_close(mine.state_dict(), other.state_dict())


@EACH_KIND
def test_state_goes_there_and_back(kind):
    """Ours, then torch's from our state, then ours again from torch's: as torch's alone."""
    params, reference = parameters(), parameters()
    other = make(torch.optim, kind, reference)
    state = None
    for third, module in enumerate((optim, torch.optim, optim)):
        optimizer = make(module, kind, params)
        if state is not None:
            saved = io.BytesIO()
            torch.save(state, saved)
            saved.seek(0)
            optimizer.load_state_dict(torch.load(saved))
        for step in range(7 * third, 7 * third + 7):
            set_gradients(params, step)
            set_gradients(reference, step)
            optimizer.step()
            other.step()
        state = optimizer.state_dict()
    assert_close(params, reference)
    assert_state_close(state, other.state_dict())
    assert state["param_groups"][0].keys() == other.state_dict()["param_groups"][0].keys()


def test_gradients_that_are_not_contiguous_and_parameters_that_are_not():
    ours, theirs = parameters(), parameters()
    for params in (ours, theirs):
        params[7].data = params[7].data.contiguous(memory_format=torch.channels_last)
    mine, other = make(optim, "adamw", ours), make(torch.optim, "adamw", theirs)
    for step in range(3):
        set_gradients(ours, step, transposed=True)
        set_gradients(theirs, step)
        mine.step()
        other.step()
    assert_close(ours, theirs)


@pytest.mark.parametrize("max_norm", [0.5, 1e6, float("inf")])
@pytest.mark.parametrize("kind", ["adamw", "sgd_momentum"])
def test_clipping_is_clip_grad_norm(kind, max_norm):
    ours, theirs = parameters(), parameters()
    mine, other = make(optim, kind, ours, max_grad_norm=max_norm), make(torch.optim, kind, theirs)
    for step in range(STEPS):
        set_gradients(ours, step)
        set_gradients(theirs, step)
        untouched = [None if param.grad is None else param.grad.clone() for param in ours]
        norm = torch.nn.utils.clip_grad_norm_(theirs, max_norm)
        mine.step()
        other.step()
        assert mine.grad_norm == pytest.approx(norm.item(), rel=1e-5)
        assert_close(ours, theirs)
        assert all(param.grad is None or torch.equal(param.grad, before) for param, before in zip(ours, untouched, strict=True))


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_clipping_by_a_norm_that_is_no_number_is_torchs(bad):
    ours, theirs = parameters(), parameters()
    mine, other = make(optim, "adamw", ours, max_grad_norm=1.0), make(torch.optim, "adamw", theirs)
    for params in (ours, theirs):
        set_gradients(params, 0)
        params[5].grad[3, 3] = bad
    torch.nn.utils.clip_grad_norm_(theirs, 1.0)
    mine.step()
    other.step()
    assert torch.tensor(mine.grad_norm).isnan() if bad != bad else mine.grad_norm == bad
    for mine_, other_ in zip(ours, theirs, strict=True):
        assert torch.equal(mine_.isnan(), other_.isnan())


def test_a_gradient_that_is_no_number_spoils_its_element_alone():
    params = parameters()
    set_gradients(params, 0)
    params[5].grad[3, 3] = float("nan")
    make(optim, "adamw", params).step()
    assert sum(param.isnan().sum().item() for param in params) == 1 and params[5].isnan()[3, 3]


def test_bits_do_not_depend_on_threads():
    norms, weights = set(), []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        params = parameters()
        set_gradients(params, 0)
        optimizer = make(optim, "lamb", params, max_grad_norm=1.0)
        optimizer.step()
        norms.add(optimizer.grad_norm)
        weights.append(params)
    assert len(norms) == 1
    assert all(torch.equal(a, b) for others in weights[1:] for a, b in zip(weights[0], others, strict=True))


def lamb_by_hand(params, state, step, lr, eps, weight_decay):
    for param, (m, v) in zip(params, state, strict=True):
        if param.grad is None:
            continue
        grad, weights = param.grad.double(), param.detach().double()
        m.mul_(0.9).add_(grad, alpha=0.1)
        v.mul_(0.999).addcmul_(grad, grad, value=0.001)
        direction = m / (1 - 0.9**step) / ((v / (1 - 0.999**step)).sqrt() + eps) + weight_decay * weights
        ratio = weights.norm() / direction.norm() if weights.norm() > 0 and direction.norm() > 0 else 1.0
        param.data.copy_(weights - lr * ratio * direction)


def test_lamb_is_its_paper():
    ours, theirs = parameters(), parameters()
    for param in (*ours, *theirs):
        if param.dim() == 1 and param.numel() == 3:
            param.data.zero_()
    mine = optim.Lamb(ours, lr=1e-2, weight_decay=0.1)
    state = [(torch.zeros(shape, dtype=torch.float64), torch.zeros(shape, dtype=torch.float64)) for shape in SHAPES]
    for step in range(1, STEPS + 1):
        set_gradients(ours, 0 if step == 4 else step * 5)  # steps at which every parameter has a gradient
        set_gradients(theirs, 0 if step == 4 else step * 5)
        mine.step()
        lamb_by_hand(theirs, state, step, 1e-2, 1e-6, 0.1)
    assert_close(ours, theirs)
    assert mine.state[ours[0]].keys() == {"step", "exp_avg", "exp_avg_sq"}


def upper_half(weights):
    return (weights.view(torch.int32) & -65536).view(torch.float32).bfloat16()


@pytest.mark.parametrize("master", ["split", "fp32"])
@pytest.mark.parametrize("kind", ["adamw", "adam_l2", "sgd_momentum", "adagrad", "lamb"])
def test_bf16_with_masters_is_fp32_training(kind, master):
    """Bit for bit, if gradients are equal."""
    full, half = parameters(), parameters(dtype=torch.bfloat16)
    reference, mine = make(optim, kind, full), make(optim, kind, half, master_weights=master)
    for step in range(STEPS):
        for params, optimizer in ((full, reference), (half, mine)):
            set_gradients(params, step)
            optimizer.step()
    for exact, param in zip(full, half, strict=True):
        assert torch.equal(mine.fp32_weights(param), exact.detach())
        assert torch.equal(param.detach(), upper_half(exact.detach()) if master == "split" else exact.detach().bfloat16())


def test_small_steps_are_kept_by_masters_and_lost_without():
    """200 steps of 1e-4 in one direction: 2.5 units in the last place of bfloat16 at 1, a fiftieth of one at a time."""
    errors = {}
    for master in ("split", "fp32", None):
        weight = torch.nn.Parameter(torch.linspace(1, 2, 1000).bfloat16())
        begin = weight.detach().float()
        optimizer = optim.SGD([weight], lr=1e-4, master_weights=master)
        weight.grad = torch.ones_like(weight)
        for _ in range(200):
            optimizer.step()
        errors[master] = (weight.detach().float() - (begin - 0.02)).abs().mean().item()
    assert errors[None] == pytest.approx(0.02, abs=1e-6)
    assert errors["split"] < 0.3 * errors[None] and errors["fp32"] < 0.3 * errors[None]


@pytest.mark.parametrize(("first", "second"), [("split", "split"), ("fp32", "fp32"), ("split", "fp32"), ("fp32", "split")])
def test_masters_survive_saving_and_a_change_of_kind(first, second):
    full, half = parameters(), parameters(dtype=torch.bfloat16)
    mine, reference = make(optim, "adamw", half, master_weights=first), make(optim, "adamw", full)
    for step in range(10):
        if step == 5:
            saved = copy.deepcopy(mine.state_dict())
            mine = make(optim, "adamw", half, master_weights=second)
            mine.load_state_dict(saved)
            assert mine.state[half[5]]["exp_avg"].dtype == torch.float32, "state must not be rounded to bfloat16 on its way"
        for params, optimizer in ((half, mine), (full, reference)):
            set_gradients(params, step)
            optimizer.step()
    for param, exact in zip(half, full, strict=True):
        assert torch.equal(mine.fp32_weights(param), exact.detach())


def test_other_weights_loaded_into_a_model_count():
    for master in ("split", "fp32"):
        params = parameters(dtype=torch.bfloat16)
        optimizer = make(optim, "sgd", params, master_weights=master)
        set_gradients(params, 0)
        optimizer.step()
        with torch.no_grad():
            params[5].fill_(3.0)
        params[5].grad.zero_()
        optimizer.step()
        assert torch.equal(params[5], torch.full_like(params[5], 3.0))


def test_pickle_and_deepcopy():
    params = parameters()
    mine = make(optim, "adamw", params, max_grad_norm=0.7, master_weights="split")
    set_gradients(params, 0)
    mine.step()
    copies = [copy.deepcopy((params, mine)), pickle.loads(pickle.dumps((params, mine)))]
    set_gradients(params, 1)
    mine.step()
    for other_params, other in copies:
        assert (other.max_grad_norm, other.master_weights) == (0.7, "split")
        set_gradients(other_params, 1)
        other.step()
        assert all(torch.equal(a, b) for a, b in zip(params, other_params, strict=True)) and other.grad_norm == mine.grad_norm


def test_schedulers_closures_and_hooks():
    ours, theirs, seen = parameters(), parameters(), []
    mine, other = make(optim, "adamw", ours), make(torch.optim, "adamw", theirs)
    mine.register_step_post_hook(lambda *_: seen.append(1))
    schedules = [torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=STEPS + 1) for optimizer in (mine, other)]
    for _ in range(STEPS):
        for params, optimizer, schedule in ((ours, mine, schedules[0]), (theirs, other, schedules[1])):

            def closure(params=params, optimizer=optimizer):
                optimizer.zero_grad()
                loss = sum((param * param).sum() for param in params)
                loss.backward()
                return loss

            assert optimizer.step(closure).requires_grad
            schedule.step()
    assert_close(ours, theirs)
    assert len(seen) == STEPS


def test_hooks_see_what_was_loaded_and_may_change_it():
    params, seen = parameters(dtype=torch.bfloat16), []
    mine = optim.AdamW(params, master_weights="split")
    for param in params:
        param.grad = torch.ones_like(param)
    mine.step()
    other = optim.AdamW(parameters(dtype=torch.bfloat16), master_weights="split")

    def look(optimizer):
        state = optimizer.state[optimizer.param_groups[0]["params"][0]]
        seen.append((state["exp_avg"].dtype, state["lower_half"].dtype))
        state["exp_avg"].zero_()

    other.register_load_state_dict_post_hook(look)
    other.load_state_dict(mine.state_dict())
    assert seen == [(torch.float32, torch.int16)]
    assert not other.state[other.param_groups[0]["params"][0]]["exp_avg"].any()
    assert mine.state[params[0]]["exp_avg"].any()


def test_a_step_that_is_an_integer():
    params = parameters()
    mine = optim.AdamW(params)
    for param in params:
        param.grad = torch.ones_like(param)
    mine.step()
    state = copy.deepcopy(mine.state_dict())
    for of_param in state["state"].values():
        of_param["step"] = of_param["step"].to(torch.int64)
    mine.load_state_dict(state)
    mine.step()
    assert mine.state[params[0]]["step"] == 2


def test_measuring_does_not_clip():
    params = parameters()
    mine = optim.SGD(params, lr=1.0, max_grad_norm=float("inf"))
    before = [param.detach().clone() for param in params]
    for param in params:
        param.grad = torch.ones_like(param)
    params[0].grad.fill_(float("inf"))
    mine.step()
    assert mine.grad_norm == float("inf")
    assert all(torch.equal(param, was - 1) for param, was in zip(params[1:], before[1:], strict=True))


def test_autograd_sees_the_change():
    weight = torch.nn.Parameter(torch.ones(4))
    loss = (weight * weight).sum()
    weight.grad = torch.ones(4)
    optim.SGD([weight], lr=0.1).step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_what_is_refused_says_why():
    params = parameters()
    for wrong, words in [
        ({"capturable": True}, "capturable=True is not supported"),
        ({"differentiable": True}, "differentiable=True is not supported"),
        ({"lr": -1.0}, "lr is -1.0"),
        ({"betas": (0.9, 1.0)}, r"betas\[1\] is 1.0; it must be at least 0 and below 1"),
        ({"max_grad_norm": 0.0}, "max_grad_norm is 0.0; it must be positive"),
        ({"master_weights": "fp64"}, "master_weights is 'fp64'"),
    ]:
        with pytest.raises(ValueError, match=words):
            optim.AdamW(params, **wrong)
    with pytest.raises(ValueError, match="nesterov needs momentum"):
        optim.SGD(params, nesterov=True)
    with pytest.raises(TypeError, match="torch.float64 on cpu"):
        optim.AdamW([torch.nn.Parameter(torch.zeros(3, dtype=torch.float64))])
    embedding = torch.nn.Embedding(10, 3, sparse=True)
    embedding(torch.tensor([1])).sum().backward()
    with pytest.raises(RuntimeError, match="is sparse; use sparse=False"):
        optim.AdamW(embedding.parameters()).step()


def give_gaps(param):
    param.data, param.grad = torch.ones(4, 6)[:, ::2], torch.ones(4, 3)


def give_overlaps(param):
    param.data, param.grad = torch.ones(3).expand(4, 3), torch.ones(4, 3)


def give_another_type(param):
    param.data, param.grad = torch.ones(3).double(), torch.ones(3).double()


def give_another_shape(param):
    param.grad, param.data = torch.ones(3), torch.ones(4)


WRONG = [
    (give_gaps, "overlap or have gaps"),
    (give_overlaps, "overlap or have gaps"),
    (give_another_type, "is torch.float64 on cpu"),
    (give_another_shape, r"the gradient of .* of shape \(3,\) on cpu"),
]


@pytest.mark.parametrize(("spoil", "words"), WRONG, ids=["gaps", "overlaps", "type", "shape"])
@pytest.mark.parametrize("kind", [*KINDS, *OURS_ALONE])
def test_a_wrong_parameter_changes_nothing(kind, spoil, words):
    """Not those of the groups before its own either."""
    params = parameters()
    optimizer = make(optim, kind, params)
    wrong = torch.nn.Parameter(torch.ones(3))
    optimizer.add_param_group({"params": [wrong]})
    set_gradients(params, 0)
    optimizer.step()
    before = copy.deepcopy(([param.detach() for param in params], optimizer.state_dict()["state"]))
    spoil(wrong)
    with pytest.raises(RuntimeError, match=words):
        optimizer.step()
    assert all(map(torch.equal, before[0], params))
    after = optimizer.state_dict()["state"]
    assert after.keys() == before[1].keys()
    assert all(torch.equal(value, after[index][key]) for index, state in before[1].items() for key, value in state.items())


def test_parameters_in_any_order_in_memory_are_dense():
    x = torch.ones(2, 3, 4, 5)
    for dense in (x, x.permute(2, 0, 3, 1), x.contiguous(memory_format=torch.channels_last), x[:1].transpose(1, 2), x[:0, ::2], torch.ones(())):
        assert optim.is_dense(dense)
    for other in (x[:, ::2], x[..., 1:], x[0, 0, 0].expand(3, 5), x.to_sparse()):
        assert not optim.is_dense(other)


def test_operators_have_fake_versions():
    from torch._subclasses.fake_tensor import FakeTensorMode

    optim.SGD(parameters()[:1])  # loads nothing yet
    from trireme._library import ops

    with FakeTensorMode():
        params = [torch.zeros(3)]
        ops().sgd_(params, [torch.ones(3)], [], [], first=[], lr=0.1)
        assert ops().global_norm(params).dtype == torch.float64
        assert ops().widen_bf16(ops().round_bf16(params[0])).dtype == torch.float32
        upper, lower = ops().split_bf16(params[0])
        assert (upper.dtype, lower.dtype, ops().join_bf16(upper, lower).dtype) == (torch.bfloat16, torch.int16, torch.float32)


@pytest.mark.parametrize("kind", [optim.AdamW, optim.Adam, optim.SGD, optim.Adagrad, optim.Lamb], ids=lambda kind: kind.__name__)
def test_steps_have_fake_versions(kind):
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        weight = torch.nn.Parameter(torch.zeros(3, 2))
        weight.grad = torch.ones(3, 2)
        optimizer = kind([weight], lr=0.1)
        for _ in range(2):
            optimizer.step()
        assert weight.shape == (3, 2) and all(value.shape in ((), (3, 2)) for value in optimizer.state[weight].values() if torch.is_tensor(value))


LOADED = """
import re, sys, torch
def mapped(): return {re.search(r"/.*", line)[0] for line in open("/proc/self/maps") if "/" in line}
assert not any("libtrireme" in path for path in mapped()), "import torch loaded a library"
assert "trireme.optim" not in sys.modules
import trireme
weight = torch.nn.Parameter(torch.ones(100000))
weight.grad = torch.ones(100000)
optimizer = trireme.optim.AdamW([weight])
assert not any("libtrireme" in path for path in mapped()), "making an optimizer loaded a library"
optimizer.step()
assert any("libtrireme_ops" in path for path in mapped())
print(len({path for path in mapped() if re.search(r"/lib(g|i|)omp[^/]*$", path)}))
"""


def test_libraries_load_at_the_first_step_and_one_openmp_serves_all():
    result = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, timeout=240)
    assert (result.returncode, result.stdout) == (0, "1\n"), result.stderr
