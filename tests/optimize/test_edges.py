"""Sizes and numbers at the edges, through a whole model."""

import pytest

from .models import FAMILIES, TOLERANCE, assert_close, assert_same_training, batch, clone, gradients, make, torch

import trireme


def on_tokens(model, inputs):
    """A loss that looks at tokens, and its gradients."""
    model.zero_grad()
    hidden = model(**inputs)[0][inputs["attention_mask"].bool()]
    loss = (hidden * torch.arange(hidden.numel()).cos().view_as(hidden)).sum()
    loss.backward()
    return loss.detach(), gradients(model)


@pytest.mark.parametrize("lengths", [(512, 1, 300), (512,), (7,), (1,), (1, 1)], ids=str)
@pytest.mark.parametrize("family", FAMILIES)
def test_lengths(family, lengths, packed):
    theirs = make(family, max_position_embeddings=520)
    ours = trireme.optimize(clone(theirs))
    assert_same_training(on_tokens(ours, batch(lengths)), on_tokens(theirs, batch(lengths)))
    assert packed


@pytest.mark.parametrize("size", [32, 64, 128])
@pytest.mark.parametrize("family", FAMILIES)
def test_head_sizes(family, size, packed):
    """Those that have kernels of their own; the other tests' models have heads of 8, which have not."""
    sizes = {"dim": 2 * size, "n_heads": 2} if family == "distilbert" else {"hidden_size": 2 * size, "num_attention_heads": 2}
    theirs = make(family, max_position_embeddings=200, **sizes)
    ours = trireme.optimize(clone(theirs))
    tolerance = TOLERANCE * (size / 16) ** 0.5  # sums are that much longer
    assert_same_training(on_tokens(ours, batch((161, 33, 7))), on_tokens(theirs, batch((161, 33, 7))), tolerance)
    assert packed


@pytest.mark.parametrize("shape", [(0, 5), (2, 0)], ids=str)
@pytest.mark.parametrize("family", FAMILIES)
def test_no_tokens(family, shape, packed):
    """An empty batch is transformers' own affair, which some versions refuse."""
    theirs = make(family)
    ours = trireme.optimize(clone(theirs))
    ids, outcomes = torch.zeros(shape, dtype=torch.long), []
    for model in (ours, theirs):
        try:
            outcomes.append(model(ids)[0].shape)
        except (RuntimeError, IndexError) as error:
            outcomes.append(str(error))
    assert outcomes[0] == outcomes[1]
    assert not packed


@pytest.mark.parametrize("family", FAMILIES)
def test_nan_stays_nan(family, packed):
    """In its sequence: the others are as without it."""
    ours = trireme.optimize(make(family))
    inputs = batch()
    inputs["input_ids"].clamp_(max=98)
    inputs["input_ids"][2, 3] = 99
    before = ours(**inputs)[0].detach()
    with torch.no_grad():
        ours.get_input_embeddings().weight[99] = torch.nan
    result = ours(**inputs)[0]
    present = inputs["attention_mask"].bool()
    assert len(packed) == 2
    assert result[2][present[2]].isnan().all()
    others = [0, 1, 3]
    assert_close(result[others][present[others]], before[others][present[others]])
    result[present].sum().backward()
    assert all(parameter.grad.isnan().any() for name, parameter in ours.named_parameters() if "layer.0" in name and "weight" in name)


def test_a_model_that_torch_jit_has_compiled_is_left(capfd):
    scripted = torch.jit.script(torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Dropout(0.1)))
    optimizer = torch.optim.AdamW(scripted.parameters(), lr=1e-3)
    assert trireme.optimize(scripted, optimizer) == (scripted, optimizer)
    assert "left the model: it is compiled by torch.jit" in capfd.readouterr().err
    assert type(optimizer).__module__ == "trireme.optim"
    scripted(torch.ones(2, 3)).sum().backward()
    optimizer.step()
