"""The embeddings against nn.functional.embedding in double."""

import pytest
import torch
from torch.nn import functional

from trireme import ops

from .reference import EPS, assert_close, bound, layer_norm, mask

SEED = 11
FP32, BF16 = torch.float32, torch.bfloat16
WORDS, POSITIONS, TYPES, H = 100, 12, 2, 33
PADDING = {"word": 1, "position": 2, "type": -1}


def tables(dtype=FP32, parameter_dtype=FP32, without=()) -> dict[str, torch.Tensor | None]:
    torch.manual_seed(3)
    sizes = {"word": (WORDS, H), "position": (POSITIONS, H), "type": (TYPES, H), "gamma": (H,), "beta": (H,)}
    made = {name: torch.randn(size).to(dtype if len(size) == 2 else parameter_dtype) for name, size in sizes.items()}
    return {name: None if name in without else x.requires_grad_() for name, x in made.items()}


def some_ids(*shape: int) -> dict[str, torch.Tensor]:
    torch.manual_seed(4)
    return {"word": torch.randint(4, shape), "position": torch.randint(POSITIONS, shape), "type": torch.randint(TYPES, shape)}


def call(p, ids, word, position, type, gamma, beta):
    return ops.embedding(
        ids["word"],
        word,
        None if position is None else ids["position"],
        position,
        None if type is None else ids["type"],
        type,
        gamma,
        beta,
        p,
        EPS,
        padding_idx=PADDING["word"],
        position_padding_idx=PADDING["position"],
    )


def reference(keep, ids, word, position, type, gamma, beta):
    given = {"word": word, "position": position, "type": type}
    looked_up = [
        functional.embedding(ids[name], table, padding_idx=None if PADDING[name] < 0 else PADDING[name])
        for name, table in given.items()
        if table is not None
    ]
    return layer_norm(sum(looked_up), gamma, beta) * keep


def compare(inputs, ids, p, limit):
    exact = {name: None if x is None else x.detach().double().requires_grad_(x.requires_grad) for name, x in inputs.items()}
    keep = mask((*ids["word"].shape, H), p, SEED)
    torch.manual_seed(SEED)
    y, expected = call(p, ids, **inputs), reference(keep, ids, **exact)
    assert y.dtype == inputs["word"].dtype
    assert_close(y, expected, limit, "y")
    dy = torch.randn(y.shape).to(y.dtype)
    wanted = [name for name, x in inputs.items() if x is not None and x.requires_grad]
    gradients = torch.autograd.grad(y, [inputs[name] for name in wanted], dy)
    expected_gradients = torch.autograd.grad(expected, [exact[name] for name in wanted], dy.double())
    for name, gradient, expected_gradient in zip(wanted, gradients, expected_gradients):
        assert gradient.dtype == inputs[name].dtype and gradient.layout == torch.strided
        assert_close(gradient, expected_gradient, limit, f"the gradient of {name}")
        if PADDING.get(name, -1) >= 0:
            assert (ids[name] == PADDING[name]).any() and not gradient[PADDING[name]].any(), f"the padding of {name} has a gradient"


@pytest.mark.parametrize("p", [0.0, 0.3])
@pytest.mark.parametrize("parameter_dtype", [FP32, BF16])
@pytest.mark.parametrize("dtype", [FP32, BF16])
@pytest.mark.parametrize("shape", [(3, 7), (50,)], ids=str)
def test_is_torchs(shape, dtype, parameter_dtype, p):
    rows = torch.Size(shape).numel()
    compare(tables(dtype, parameter_dtype), some_ids(*shape), p, max(bound(dtype, rows + H), bound(parameter_dtype, 0)))


@pytest.mark.parametrize("dtype", [FP32, BF16])
@pytest.mark.parametrize("without", [("type",), ("position",), ("position", "type"), ("gamma",), ("beta",), ("gamma", "beta")], ids="-".join)
def test_without_parts(without, dtype):
    compare(tables(dtype, without=without), some_ids(40), 0.0, bound(dtype, 40 + H))


@pytest.mark.parametrize("dtype", [FP32, BF16])
@pytest.mark.parametrize("wanted", ["word", "position", "type", "gamma", "beta"])
def test_only_what_is_wanted(wanted, dtype):
    inputs = {name: x.requires_grad_(name == wanted) for name, x in tables(dtype).items()}
    compare(inputs, some_ids(40), 0.3, bound(dtype, 40 + H))


@pytest.mark.parametrize("dtype", [FP32, BF16])
def test_no_rows(dtype):
    inputs = tables(dtype)
    y = call(0.5, some_ids(2, 0), **inputs)
    assert y.shape == (2, 0, H)
    y.sum().backward()
    for name, x in inputs.items():
        assert x.grad.shape == x.shape and not x.grad.any(), name


@pytest.mark.parametrize("dtype", [FP32, BF16])
def test_ids_and_tables_that_lie_otherwise(dtype):
    ids, plain = some_ids(5, 8), tables(dtype)
    changed_ids = {"word": ids["word"].t().contiguous().t(), "position": ids["position"].int(), "type": ids["type"].repeat_interleave(2, 1)[:, ::2]}
    changed = {name: x.detach().t().contiguous().t().requires_grad_() if x.dim() == 2 else x.detach().requires_grad_() for name, x in plain.items()}
    assert not changed["word"].is_contiguous()
    results = []
    for given, inputs in ((ids, plain), (changed_ids, changed)):
        results.append(call(0.0, given, **inputs))
        results[-1].square().sum().backward()
    assert torch.equal(*results)
    for name in plain:
        assert torch.equal(plain[name].grad, changed[name].grad), name


def test_positions_are_given_once_for_a_batch():
    inputs, ids = tables(), some_ids(5, 8)
    once = {**ids, "position": torch.arange(8)}
    every = {**ids, "position": torch.arange(8).repeat(5, 1)}
    assert torch.equal(call(0.0, once, **inputs), call(0.0, every, **inputs))


@pytest.mark.parametrize("dtype", [FP32, BF16])
@pytest.mark.parametrize("wrong", [-1, WORDS])
def test_an_id_outside_of_its_table_is_named(wrong, dtype):
    ids = {**some_ids(6), "word": torch.tensor([0, 5, wrong, 2, 3, 4])}
    with pytest.raises(IndexError, match=f"a word id {wrong}; the table has rows 0 to 99"):
        call(0.0, ids, **tables(dtype))


def test_wrong_arguments_are_named():
    inputs, ids = tables(), some_ids(6)
    with pytest.raises(RuntimeError, match="given together"):
        ops.embedding(ids["word"], inputs["word"], ids["position"], None, None, None, None, None, 0.0, EPS)
    with pytest.raises(RuntimeError, match="the position table"):
        ops.embedding(ids["word"], inputs["word"], ids["position"], torch.randn(12, 7), None, None, None, None, 0.0, EPS)
    with pytest.raises(NotImplementedError, match="Half"):
        ops.embedding(ids["word"], inputs["word"].half(), None, None, None, None, None, None, 0.0, EPS)
