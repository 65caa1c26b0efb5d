"""The trainer's model against transformers': logits, loss and the gradient of every parameter, for each family."""

import json
import os
import pathlib
import subprocess

import pytest

from tests.optimize.models import FAMILIES, VOCABULARY, assert_close, assert_same_training, make, torch

safetensors_torch = pytest.importorskip("safetensors.torch")

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("TRIREME_BUILD_DIR", REPOSITORY / "build" / "release")).resolve()
TOOL = BUILD / "tests" / "trainer" / "model_tool"
LENGTHS = ((3, 8), (1, 1), (2, 20), (5, 13))  # of questions and contexts
PADDING = 1

pytestmark = pytest.mark.skipif(not TOOL.exists(), reason="the trainer is not built: torch was not found")


def batch(family):
    """A packed batch for the tool, and the same padded for transformers."""
    pair = {"before": [2], "between": [3, 3] if "roberta" in family else [3], "after": [3], "second_type": int(family in ("bert", "electra"))}
    generator = torch.Generator().manual_seed(5)
    draw = lambda count: torch.randint(5, VOCABULARY, (count,), generator=generator).tolist()  # noqa: E731
    ours = {**pair, "questions": [draw(n) for n, _ in LENGTHS], "contexts": [draw(n) for _, n in LENGTHS], "starts": [], "ends": []}
    rows, types = [], []
    for question, context in zip(ours["questions"], ours["contexts"], strict=True):
        head = [*pair["before"], *question, *pair["between"]]
        rows.append([*head, *context, *pair["after"]])
        types.append([0] * len(head) + [pair["second_type"]] * (len(context) + len(pair["after"])))
        ours["starts"].append(len(head))
        ours["ends"].append(len(head) + len(context) - 1)
    longest = max(map(len, rows))
    padded = {
        "input_ids": torch.tensor([row + [PADDING] * (longest - len(row)) for row in rows]),
        "attention_mask": torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows]),
        "start_positions": torch.tensor(ours["starts"]),
        "end_positions": torch.tensor(ours["ends"]),
    }
    if family != "distilbert":
        padded["token_type_ids"] = torch.tensor([row + [0] * (longest - len(row)) for row in types])
    return ours, padded


def run_tool(folder, inputs, *flags):
    (folder / "batch.json").write_text(json.dumps(inputs))
    out = folder / "out.safetensors"
    run = subprocess.run([TOOL, folder, folder / "batch.json", out, *flags], capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    return safetensors_torch.load_file(out)


def theirs(model, padded):
    """transformers lets the padding take part in the softmax: mask it, as the trainer has none."""
    hide = model.qa_outputs.register_forward_hook(
        lambda module, inputs, logits: logits.masked_fill(~padded["attention_mask"].bool()[..., None], torch.finfo(logits.dtype).min)
    )
    result = model(**padded)
    result.loss.backward()
    hide.remove()
    present = padded["attention_mask"].bool()
    logits = torch.stack([result.start_logits[present], result.end_logits[present]], dim=-1).detach()
    return result.loss.detach(), {name: parameter.grad for name, parameter in model.named_parameters()}, logits


def compare(out, loss, gradients, logits):
    assert_close(out["logits"], logits, what="logits")
    ours = {name.removeprefix("grad."): value for name, value in out.items() if name.startswith("grad.")}
    assert ours.keys() == gradients.keys()
    assert_same_training((out["loss"][0], ours), (loss, gradients))


@pytest.mark.parametrize("activation", ["gelu", "gelu_new"])
@pytest.mark.parametrize("family", FAMILIES)
def test_logits_loss_and_gradients(tmp_path, family, activation):
    option = {"activation" if family == "distilbert" else "hidden_act": activation}
    model = make(family, "ForQuestionAnswering", **option)
    model.save_pretrained(tmp_path)
    inputs, padded = batch(family)
    compare(run_tool(tmp_path, inputs), *theirs(model, padded))


def test_gradient_checkpointing_changes_nothing(tmp_path):
    make("bert", "ForQuestionAnswering").save_pretrained(tmp_path)
    inputs, _ = batch("bert")
    plain, again = run_tool(tmp_path, inputs), run_tool(tmp_path, inputs, "--checkpointing")
    assert plain.keys() == again.keys()
    assert all(torch.equal(plain[name], again[name]) for name in plain)


def test_weights_in_shards(tmp_path):
    model = make("bert", "ForQuestionAnswering")
    model.save_pretrained(tmp_path, max_shard_size="20KB")
    assert not (tmp_path / "model.safetensors").exists() and len(list(tmp_path.glob("model-*.safetensors"))) > 1
    inputs, padded = batch("bert")
    compare(run_tool(tmp_path, inputs), *theirs(model, padded))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_weights_of_other_types(tmp_path, dtype):
    model = make("bert", "ForQuestionAnswering").to(dtype)
    model.save_pretrained(tmp_path)
    inputs, padded = batch("bert")
    compare(run_tool(tmp_path, inputs), *theirs(model.float(), padded))


def test_a_bare_encoder_gets_a_new_head(tmp_path):
    """As sentence encoders are saved: without the prefix, with a pooler that is of no use here."""
    model = make("bert", "Model")
    model.save_pretrained(tmp_path)
    inputs, padded = batch("bert")
    logits = run_tool(tmp_path, inputs)["logits"]
    padded = {name: value for name, value in padded.items() if "positions" not in name}
    hidden = model(**padded)[0][padded["attention_mask"].bool()]
    # Two columns, each some fixed combination of the hidden states.
    solution = torch.linalg.lstsq(hidden.detach(), logits)
    assert_close(hidden.detach() @ solution.solution, logits, 1e-4, "logits")
    assert logits.std() > 0


def refused(folder):
    run = subprocess.run([TOOL, folder, folder / "batch.json", folder / "out"], capture_output=True, text=True, timeout=60)
    assert run.returncode == 1
    return run.stderr


def change(folder, **values):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **values}))


def test_models_that_cannot_be_used_are_refused_by_name(tmp_path):
    inputs, _ = batch("bert")
    (tmp_path / "batch.json").write_text(json.dumps(inputs))

    def fresh():
        make("bert", "ForQuestionAnswering").save_pretrained(tmp_path)

    for changes, said in [
        ({"model_type": "gpt2"}, 'model_type: "gpt2" is not supported; bert, roberta, xlm-roberta, electra, distilbert are'),
        ({"hidden_act": "relu"}, 'hidden_act: "relu" is not supported'),
        ({"num_attention_heads": 5}, "cannot be shared out to 5 heads"),
        ({"num_hidden_layers": 3}, "the weights have no bert.encoder.layer.2.attention.self.query.weight"),
        ({"intermediate_size": 64}, "has shape [128, 32]; by config.json it should have [64, 32]"),
        ({"hidden_size": -4}, "hidden_size: is -4; it must be between 1 and"),
        ({"num_hidden_layers": 500_000_000}, "config.json.num_hidden_layers: is 500000000; it must be between 1 and 4096"),
        ({"hidden_size": 2**30, "vocab_size": 2**30}, "config.json: there is no memory for bert.embeddings.word_embeddings.weight of shape [1073741824,"),
        ({"hidden_dropout_prob": 1.5}, "hidden_dropout_prob: is 1.5"),
        ({"position_embedding_type": "relative_key"}, 'only "absolute" positions'),
        ({"vocab_size": "many"}, "vocab_size: a whole number is wanted, not string"),
    ]:
        fresh()
        change(tmp_path, **changes)
        assert said in refused(tmp_path), changes
    fresh()
    weights = safetensors_torch.load_file(tmp_path / "model.safetensors")
    weights["qa_outputs.weight"] = weights["qa_outputs.weight"].to(torch.int32)
    safetensors_torch.save_file(weights, tmp_path / "model.safetensors")
    assert "qa_outputs.weight is I32; weights must be F32, F64, F16 or BF16" in refused(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    (tmp_path / "pytorch_model.bin").write_bytes(b"x")
    assert "save_pretrained" in refused(tmp_path)
