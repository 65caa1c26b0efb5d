"""The loss of question answering against cross entropies in double, one sequence at a time."""

import pytest
import torch

from trireme import ops

from .reference import assert_close, bound, span_loss

FP32, BF16 = torch.float32, torch.bfloat16
CU_SEQLENS = torch.tensor([0, 5, 6, 40, 57])
START, END = torch.tensor([2, 0, 33, 4]), torch.tensor([4, 0, 33, 16])


def logits_of(dtype=FP32) -> torch.Tensor:
    torch.manual_seed(6)
    return (3 * torch.randn(57, 2)).to(dtype).requires_grad_()


def compare(logits, start, end):
    exact = logits.detach().double().requires_grad_()
    loss, expected = ops.span_loss(logits, CU_SEQLENS, start, end), span_loss(exact, CU_SEQLENS, start, end)
    assert loss.dtype == FP32 and loss.shape == ()
    # The logits are what they are, and the loss is computed and kept in float32 also where they are bfloat16.
    assert_close(loss, expected, bound(FP32, 57), "the loss")
    (3 * loss).backward()
    (3 * expected).backward()
    assert logits.grad.dtype == logits.dtype
    assert_close(logits.grad, exact.grad, bound(logits.dtype, 57), "the gradient")


@pytest.mark.parametrize("dtype", [FP32, BF16])
def test_is_torchs(dtype):
    compare(logits_of(dtype), START, END)


def test_answers_that_are_not_in_their_window():
    compare(logits_of(), torch.tensor([5, 0, 33, -1]), torch.tensor([4, 1, 100, 16]))


def test_columns_that_lie_apart():
    apart = logits_of().detach().t().contiguous().t().requires_grad_()
    assert not apart.is_contiguous()
    compare(apart, START, END)


def test_no_sequence_counts():
    logits = logits_of()
    loss = ops.span_loss(logits, CU_SEQLENS, torch.full((4,), -1), torch.full((4,), -1))
    assert loss.isnan()
    loss.backward()
    assert not logits.grad.any()


def test_no_sequences():
    logits = torch.empty(0, 2, requires_grad=True)
    loss = ops.span_loss(logits, torch.tensor([0]), torch.empty(0).long(), torch.empty(0).long())
    assert loss.isnan()
    loss.backward()
    assert logits.grad.shape == (0, 2)


def test_wrong_arguments_are_named():
    logits = logits_of()
    with pytest.raises(RuntimeError, match="there are 57 tokens"):
        ops.span_loss(logits, torch.tensor([0, 5, 6, 40, 56]), START, END)
    with pytest.raises(RuntimeError, match="sequence 1 is empty"):
        ops.span_loss(logits, torch.tensor([0, 6, 6, 40, 57]), START, END)
    with pytest.raises(RuntimeError, match="4 of int64"):
        ops.span_loss(logits, CU_SEQLENS, START[:3], END)
    with pytest.raises(NotImplementedError, match="Double"):
        ops.span_loss(logits.double(), CU_SEQLENS, START, END)
