"""Fifty steps beside torch's: the loss curves stay together."""

import pytest

from .models import FAMILIES, LENGTHS, TOLERANCE, batch, clone, make, torch

import trireme

STEPS = 50


def curve(model, optimizer):
    losses = []
    for step in range(STEPS):
        inputs = batch(lengths=tuple(reversed(LENGTHS)) if step % 2 else LENGTHS, seed=step % 4)
        optimizer.zero_grad()
        loss = model(**inputs, labels=torch.arange(len(LENGTHS)) % 2).loss
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("family", FAMILIES)
def test_loss_curve(family):
    """A step differs by TOLERANCE at most, relative to its gradient. AdamW makes of it a difference of the same relative size in a step of lr,
    and what differs is carried on: over all steps, STEPS times TOLERANCE, relative to the loss at the start."""
    theirs = make(family, "ForSequenceClassification")
    ours = clone(theirs)
    our = torch.optim.AdamW(ours.parameters(), lr=1e-3)
    ours, our = trireme.optimize(ours, our)
    expected = curve(theirs, torch.optim.AdamW(theirs.parameters(), lr=1e-3))
    losses = curve(ours, our)
    assert expected[-1] < 0.7 * expected[0], "nothing was learned, so nothing was compared"
    worst = max(abs(a - b) for a, b in zip(losses, expected, strict=True))
    assert worst <= STEPS * TOLERANCE * expected[0]
