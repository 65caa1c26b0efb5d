"""Tiny models of transformers, batches for them, and what may differ between two ways of computing the same."""

import copy
import importlib
import inspect

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", reason="transformers is not installed: pip install -r tests/requirements.txt")

import torch.distributed.tensor  # noqa: E402  peft looks for it without importing it

VERSION = tuple(int(part) for part in transformers.__version__.split(".")[:2])

LAYERS = 2
HIDDEN = 32
VOCABULARY = 100
LENGTHS = (12, 1, 7, 9)  # of the sequences in a batch; padded to the first

# Two orders of summing n terms of like size differ by about eps sqrt(n), relative to the sum; n is at most 4 HIDDEN here. A layer does about a
# dozen such sums one after another, and as many again in its backward pass. Twice that, for what random walks may do.
EPS = torch.finfo(torch.float32).eps
TOLERANCE = 2 * EPS * (4 * HIDDEN) ** 0.5 * 24 * LAYERS

FAMILIES = ("bert", "roberta", "xlm_roberta", "electra", "distilbert")
PREFIXES = {"bert": "Bert", "roberta": "Roberta", "xlm_roberta": "XLMRoberta", "electra": "Electra", "distilbert": "DistilBert"}


def config_of(family, dropout=0.0, **others):
    cls = getattr(transformers, f"{PREFIXES[family]}Config")
    others = {"max_position_embeddings": 64, "pad_token_id": 1, "vocab_size": VOCABULARY, **others}
    if family == "distilbert":
        sizes = {"dim": HIDDEN, "n_heads": 4, "n_layers": LAYERS, "hidden_dim": 4 * HIDDEN}
        rates = dict.fromkeys(("dropout", "attention_dropout", "qa_dropout", "seq_classif_dropout"), dropout)
        return cls(**{**sizes, **rates, **others})
    if family == "electra":
        others = {"embedding_size": 16, "summary_last_dropout": dropout, **others}
    sizes = {"hidden_size": HIDDEN, "num_attention_heads": 4, "num_hidden_layers": LAYERS, "intermediate_size": 4 * HIDDEN}
    return cls(**{**sizes, "hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout, **others})


def module_of(family):
    return importlib.import_module(f"transformers.models.{family}.modeling_{family}")


def heads_of(family):
    """Every model with a head that transformers has for a family."""
    return sorted(
        name
        for name, cls in vars(module_of(family)).items()
        if inspect.isclass(cls) and cls.__module__ == module_of(family).__name__ and ("For" in name or name.endswith("LMHeadModel"))
        if name.startswith(PREFIXES[family]) and not name.endswith("Output")
    )


def make(family, name="Model", dropout=0.0, seed=0, **others):
    torch.manual_seed(seed)
    model = getattr(module_of(family), name if name.startswith(PREFIXES[family]) else PREFIXES[family] + name)(config_of(family, dropout, **others))
    with torch.no_grad():  # transformers begins with biases of zero, and would hide one that is forgotten
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.05)
    return model.train()


def batch(lengths=LENGTHS, seed=1, left=False):
    generator = torch.Generator().manual_seed(seed)
    longest = max(lengths)
    ids = torch.randint(5, VOCABULARY, (len(lengths), longest), generator=generator)
    places = torch.arange(longest)
    mask = torch.stack([(places >= longest - n if left else places < n).long() for n in lengths])
    return {"input_ids": ids * mask + (1 - mask), "attention_mask": mask}


def gradients(model):
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters() if parameter.grad is not None}


def train_once(model, inputs, seed=3):
    """Loss and gradients of one pass."""
    model.zero_grad(set_to_none=True)
    torch.manual_seed(seed)
    loss = model(**inputs)[0]
    loss = loss if loss.dim() == 0 else loss.square().mean()
    loss.backward()
    return loss.detach(), gradients(model)


def assert_close(ours, theirs, tolerance=TOLERANCE, what=""):
    assert ours.shape == theirs.shape, what
    difference = (ours.float() - theirs.float()).norm() / max(theirs.float().norm(), 1e-30)
    assert difference <= tolerance, f"{what}: relative difference {difference:.1e}, allowed {tolerance:.1e}"


def assert_same_training(ours, theirs, tolerance=TOLERANCE, share=0.01):
    """ours, theirs: what train_once returns. A gradient that is small because its terms cancel (that of a key's bias is zero but for rounding) is
    compared with a share of the largest."""
    assert_close(ours[0], theirs[0], tolerance, "loss")
    assert ours[1].keys() == theirs[1].keys()
    largest = max(gradient.norm().item() for gradient in theirs[1].values())
    for name, gradient in theirs[1].items():
        difference = (ours[1][name] - gradient).norm().item()
        allowed = tolerance * (gradient.norm().item() + share * largest)
        assert difference <= allowed, f"gradient of {name}: {difference:.1e}, allowed {allowed:.1e}"


def clone(model):
    return copy.deepcopy(model)
