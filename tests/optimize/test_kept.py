"""Optimized encoders that move, are verified, kept, or asked for again."""

import copy
import pickle

import pytest

from .models import HIDDEN, LENGTHS, TOLERANCE, assert_close, assert_same_training, batch, make, torch, train_once, transformers
from .pairs import pair

import trireme
from trireme._optimize import encoders


def test_again_says_nothing(capfd):
    model = make("bert")
    trireme.optimize(model)
    assert "runs packed and fused" in capfd.readouterr().err
    trireme.optimize(trireme.optimize(model))
    assert capfd.readouterr().err == ""


def test_nothing_that_it_knows(capfd):
    model, x = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh()), torch.randn(3, 4)
    before = model(x)
    assert trireme.optimize(model) is model
    assert "found nothing in the model that it knows" in capfd.readouterr().err
    assert torch.equal(model(x), before)


def test_another_device(capfd):
    with torch.device("meta"):
        model = transformers.BertModel(make("bert").config)
    trireme.optimize(model)
    assert "left BertModel (the model): a parameter is torch.float32 on meta" in capfd.readouterr().err


def test_another_type_later(packed):
    ours, theirs = pair()
    assert_close(ours.double()(**batch())[0], theirs.double()(**batch())[0])
    assert not packed


def test_disabled(monkeypatch, packed, capfd):
    monkeypatch.setenv("TRIREME_DISABLE", "1")
    ours, theirs = pair()
    assert torch.equal(ours(**batch())[0], theirs(**batch())[0])
    assert not packed
    assert capfd.readouterr().err == ""


def test_verified(monkeypatch, capfd):
    monkeypatch.setenv("TRIREME_VERIFY", "1")
    ours, theirs = pair(dropout=0.3)
    ours(**batch())
    ours(**batch())
    said = [line for line in capfd.readouterr().err.splitlines() if "verify" in line]
    assert len(said) == 1
    difference = float(said[0].partition("by at most ")[2].split()[0])
    assert difference <= TOLERANCE * HIDDEN**0.5
    assert ours.training


def test_verifying_leaves_each_module_in_its_mode(monkeypatch):
    """Also those that a user put into another one than the model's."""
    monkeypatch.setenv("TRIREME_VERIFY", "1")
    ours, _ = pair(dropout=0.3)
    ours.encoder.layer[0].eval()
    modes = [module.training for module in ours.modules()]
    ours(**batch())
    assert [module.training for module in ours.modules()] == modes


def test_verified_with_a_mask_by_place(monkeypatch, capfd):
    monkeypatch.setenv("TRIREME_VERIFY", "1")
    ours, _ = pair()
    ours(*batch().values())
    difference = float(capfd.readouterr().err.partition("by at most ")[2].split()[0])
    assert difference <= TOLERANCE * HIDDEN**0.5


def test_verify_says_where_it_compares_nothing(monkeypatch, capfd):
    monkeypatch.setenv("TRIREME_VERIFY", "1")
    trireme.optimize(torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.LayerNorm(8)))
    assert "nothing will be compared" in capfd.readouterr().err


def test_verify_sees_a_difference(monkeypatch, capfd):
    monkeypatch.setenv("TRIREME_VERIFY", "1")
    ours = trireme.optimize(make("bert"))
    real = encoders._packed

    def wrong(*args):
        result = real(*args)
        result.last_hidden_state[0, 0, 0] += 1
        return result

    monkeypatch.setattr(encoders, "_packed", wrong)
    ours(**batch())
    assert "by at most 1.0e+00" in capfd.readouterr().err


def test_saved_and_loaded(tmp_path, packed):
    ours, theirs = pair("bert", "ForSequenceClassification")
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    ours.save_pretrained(tmp_path)
    loaded = transformers.BertForSequenceClassification.from_pretrained(tmp_path).train()
    inputs = {**batch(), "labels": torch.arange(len(LENGTHS)) % 2}
    assert_same_training(train_once(loaded, inputs), train_once(theirs, inputs), 0.0)
    assert not packed
    assert_same_training(train_once(trireme.optimize(loaded), inputs), train_once(theirs, inputs))
    assert packed


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))], ids=["deepcopy", "pickle"])
def test_copies(copied, packed):
    ours = trireme.optimize(make("bert"))
    assert torch.equal(copied(ours)(**batch())[0], ours(**batch())[0])
    assert len(packed) == 2


def test_a_model_that_was_not_asked_for_is_not_changed(packed):
    trireme.optimize(make("bert"))
    other = make("bert")
    other(**batch())
    assert not packed


def test_not_a_model():
    with pytest.raises(TypeError, match="torch.nn.Module"):
        trireme.optimize([])
