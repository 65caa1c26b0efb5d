"""The programs in examples/: each learns what a broken one could not."""

import importlib
import math

import pytest

from . import data
from .programs import EXAMPLES, make_bert, run, transformers

GUIDE = ["--no_cuda", "--use_ipex"]
TOGETHER = [*GUIDE, "--ddp_backend", "ccl"]
# Two orders of summing, over a hundred steps of AdamW: seen are some 1e-6. A gradient left out or counted twice changes percents.
SAME_TRAINING = 1e-3


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    data.write_texts(folder / "train.tsv", 384, seed=1)
    data.write_texts(folder / "dev.tsv", 95, seed=2)  # odd: ranks have different numbers to evaluate
    data.write_sentences(folder / "train_words.tsv", 256, seed=1)
    data.write_sentences(folder / "dev_words.tsv", 63, seed=2)
    data.write_prose(folder / "prose.txt", 3000, seed=1)
    make_bert(folder / "model", data.PIECES)
    return folder


@pytest.fixture(scope="module")
def train(files, tmp_path_factory):
    """train(example, its arguments ...): the result of a run, with the files that the example takes."""

    def start(example, *arguments, launcher=None):
        folder = tmp_path_factory.mktemp(example)
        suffix = "_words" if example == "token_classification" else ""
        inputs = ["--train_file", files / f"train{suffix}.tsv", "--validation_file", files / f"dev{suffix}.tsv", "--model_name_or_path", files / "model"]
        if example == "causal_lm":
            inputs = ["--train_file", files / "prose.txt"]
        return run(EXAMPLES / f"{example}.py", *inputs, "--output_dir", folder / "out", *arguments, logs=folder, launcher=launcher).result

    return start


def steps(batch, epochs, rate):
    return ["--per_device_train_batch_size", batch, "--num_train_epochs", epochs, "--learning_rate", rate, "--report_to", "none"]


TRAINING = {
    "text_classification": steps(8, 3, "5e-3"),
    "token_classification": steps(16, 4, "4e-3"),
    "causal_lm": [*steps(16, 4, "1e-2"), "--hidden_size", 32, "--layers", 2, "--heads", 4, "--key_value_heads", 2, "--block_size", 64],
    "lora": [*steps(8, 6, "1e-2"), "--lora_dropout", "0"],
}


def assert_learnt(example, result, files):
    if example == "causal_lm":
        letters = data.entropy_of_letters((files / "prose.txt").read_text())
        assert result["loss"] < letters / 2, (result, letters)  # not without looking at what came before
        assert result["perplexity"] == pytest.approx(math.exp(result["loss"]))
    elif example == "token_classification":
        assert result["entity_f1"] > 0.9 and result["token_accuracy"] > 0.9, result  # all O: 0 and about 0.7
    else:
        assert result["accuracy"] > 0.9, result  # chance: 1/3
    if example == "lora":
        assert 0 < result["trainable_share"] < 0.2, result


def assert_ran_on(example, result, world_size):
    assert (result["world_size"], result["backend"]) == (world_size, "ccl" if world_size > 1 else None), result
    assert (result["wrapper"] == "DistributedDataParallel") is (world_size > 1), result
    assert result["optimizer"] == "trireme.optim", result
    assert result["packed"] is (example != "causal_lm"), result
    if example == "causal_lm" and hasattr(transformers, "AttentionInterface"):  # without it there is no registry
        assert result["attention"] == "trireme", result


# ---- On the Trainer ----


@pytest.mark.parametrize("example", TRAINING)
def test_alone(example, train, files):
    result = train(example, *TRAINING[example], *GUIDE)
    assert_ran_on(example, result, 1)
    assert_learnt(example, result, files)


TOGETHER_BY_DEFAULT = ("text_classification", "mpirun")


@pytest.mark.parametrize(
    ("example", "launcher"),
    [
        pytest.param(example, launcher, marks=() if (example, launcher) == TOGETHER_BY_DEFAULT else pytest.mark.long)
        for example in TRAINING
        for launcher in ("mpirun", "torchrun")
    ],
)
def test_together(example, launcher, train, files):
    """With every flag of the guides. Where bf16 is slower than fp32, --bf16 leaves it at that."""
    result = train(example, *TRAINING[example], *TOGETHER, "--bf16", launcher=launcher)
    assert_ran_on(example, result, 2)
    assert_learnt(example, result, files)


@pytest.mark.long
def test_together_is_as_on_gloo(train):
    ours = train("text_classification", *TRAINING["text_classification"], *TOGETHER, launcher="mpirun")
    theirs = train("text_classification", *TRAINING["text_classification"], "--use_cpu", "--ddp_backend", "gloo", launcher="torchrun")
    assert (ours["backend"], theirs["backend"], theirs["packed"]) == ("ccl", "gloo", False)
    names = ("train_loss", "eval_loss")
    assert [ours[name] for name in names] == pytest.approx([theirs[name] for name in names], rel=SAME_TRAINING)


# ---- A loop of one's own ----

LOOP = ["--epochs", 5, "--learning_rate", "5e-3"]


@pytest.fixture(scope="module")
def loop_alone(train):
    return train("ddp_loop", *LOOP, "--batch_size", 16, "--accumulate", 3)


def test_loop_alone(loop_alone):
    assert loop_alone["accuracy"] > 0.9, loop_alone
    assert loop_alone["last_loss"] < 0.5 * loop_alone["first_loss"], loop_alone
    assert (loop_alone["backend"], loop_alone["world_size"]) == ("ccl", 1)


@pytest.mark.parametrize(("launcher", "batch", "accumulate"), [("mpirun", 8, 3), ("torchrun", 4, 6)])
def test_loop_together(train, loop_alone, launcher, batch, accumulate):
    """The same 48 samples in each step, cut into other batches. So the same is learnt, if gradients are averaged over the ranks and over the
    batches between two steps."""
    result = train("ddp_loop", *LOOP, "--batch_size", batch, "--accumulate", accumulate, launcher=launcher)
    assert (result["backend"], result["world_size"], result["optimizer"]) == ("ccl", 2, "trireme.optim")
    names = ("first_loss", "last_loss", "accuracy")
    assert [result[name] for name in names] == pytest.approx([loop_alone[name] for name in names], rel=SAME_TRAINING)


# ---- Their parts ----


@pytest.fixture
def example(monkeypatch):
    """example(name): the module."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return importlib.import_module


def test_the_first_piece_has_the_label(example, files):
    words = example("token_classification")
    tokenizer = transformers.AutoTokenizer.from_pretrained(files / "model")
    sentence = [("annix", "B-PER"), ("the", "O"), ("romor", "B-LOC")]
    row = words.LabelledWords([sentence], tokenizer, {"B-PER": 3, "B-LOC": 5, "O": 0}, 16)[0]
    pieces = tokenizer.convert_ids_to_tokens(row["input_ids"])
    assert list(zip(pieces, row["labels"], strict=True)) == [
        ("[CLS]", -100), ("ann", 3), ("##ix", -100), ("the", 0), ("rom", 5), ("##or", -100), ("[SEP]", -100)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("labels", "found"),
    [
        ("O O", set()),
        ("B-PER I-PER O", {("PER", 0, 2)}),
        ("B-PER B-PER I-PER", {("PER", 0, 1), ("PER", 1, 3)}),
        ("I-PER I-LOC", {("PER", 0, 1), ("LOC", 1, 2)}),
        ("O B-LOC", {("LOC", 1, 2)}),
    ],
)
def test_entities(example, labels, found):
    assert example("token_classification").entities(labels.split()) == found


def test_a_loop_does_not_train_alone_where_nobody_has_counted(example, monkeypatch):
    """mpirun -pmi-port."""
    for name, value in {"PMI_PORT": "node0:40715", "PMI_ID": "1"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match="Start them without -pmi-port, or with torchrun"):
        example("ddp_loop").join_group()


def test_files_with_mistakes_are_sentences(example, tmp_path):
    texts = example("labelled_texts")
    (tmp_path / "texts.tsv").write_text("food\tsoup\n\nfood soup\n")
    with pytest.raises(ValueError, match="line 3: no tab between label and text: 'food soup'"):
        texts.read_texts(tmp_path / "texts.tsv")
    with pytest.raises(ValueError, match="not in the training file: music"):
        texts.LabelledTexts([("music", "song")], None, {"food": 0}, 16)
