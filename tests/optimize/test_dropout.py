"""Dropout in a whole model: every place where it happens draws a mask of its own, in every layer, step and micro-batch."""

import itertools
import math

from torch.utils._python_dispatch import TorchDispatchMode

import trireme

from .models import LAYERS, batch, make, torch

STEPS, MICRO_BATCHES = 3, 2
SITES = 3 * LAYERS + 2  # a layer's attention probabilities, attention output and feed-forward output; the embeddings and the pooled output


class Seeds(TorchDispatchMode):
    """The seeds that the operators of a forward pass are given."""

    def __init__(self):
        super().__init__()
        self.drawn = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        names = [argument.name for argument in func._schema.arguments]
        if func.namespace == "trireme" and func._schema.name.endswith("_forward") and "seeds" in names:
            self.drawn += args[names.index("seeds")].tolist()
        return func(*args, **(kwargs or {}))


def test_every_mask_is_its_own():
    model = trireme.optimize(make("bert", "ForSequenceClassification", dropout=0.25))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    torch.manual_seed(5)
    seeds = Seeds()
    for _ in range(STEPS):
        for _ in range(MICRO_BATCHES):
            with seeds:
                loss = model(**batch(), labels=torch.tensor([0, 1, 0, 1])).loss
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    assert len(seeds.drawn) == SITES * STEPS * MICRO_BATCHES
    assert len(set(seeds.drawn)) == len(seeds.drawn), "two places drop the same"

    # And seeds make independent masks: of two, the places that both keep are p^2 of all, as near as chance allows.
    n, keep = 64 * 512, 0.75
    masks = [torch.ops.trireme.dropout_forward(torch.ones(64, 512), 1 - keep, torch.tensor([seed])) != 0 for seed in seeds.drawn[:24]]
    deviation = math.sqrt(n * keep**2 * (1 - keep**2))
    for one, two in itertools.combinations(masks, 2):
        assert abs((one & two).sum().item() - n * keep**2) < 5 * deviation


def test_no_mask_repeats_itself():
    """Rows and columns of one mask are independent of each other too."""
    mask = torch.ops.trireme.dropout_forward(torch.ones(256, 256), 0.5, torch.tensor([1])).ne(0).double() * 2 - 1
    for correlations in (mask @ mask.t(), mask.t() @ mask):
        correlations.fill_diagonal_(0)
        assert correlations.abs().max().item() < 6 * math.sqrt(256)  # of 32,640 pairs, each a sum of 256 signs
