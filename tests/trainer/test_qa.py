"""`trireme qa` from the outside: real processes under a real mpirun, and what they leave behind."""

import collections
import contextlib
import fcntl
import json
import os
import pathlib
import pty
import re
import shutil
import struct
import subprocess
import sys
import termios

import pytest

from tests.huggingface.questions import write_questions

from .hub_server import Hub, Server
from .read_events import read_with_tensorboard
from .runs import REPOSITORY, command, json_of, ledger, needs_program, python, run, run_unlike, same_weights, tiny_model, weights

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

pytestmark = needs_program


# ---- What a run leaves behind ----


def test_a_run_trains_evaluates_and_leaves_what_run_qa_leaves(flags, tmp_path):
    out = tmp_path / "out"
    done = run(2, *flags, "--do_eval", "--save_strategy", "epoch", "--report_to", "tensorboard")
    assert "2 processes by hydra: 2 ranks on 1 host" in done.stderr
    assert "***** train metrics *****" in done.stdout and "***** eval metrics *****" in done.stdout
    names = {path.name for path in out.iterdir()}
    assert {
        "all_results.json", "checkpoint-16", "checkpoint-8", "config.json", "eval_nbest_predictions.json", "eval_predictions.json", "eval_results.json",
        "model.safetensors", "runs", "special_tokens_map.json", "tokenizer.json", "tokenizer_config.json", "train_results.json",
        "trainer_state.json", "vocab.txt",
    } == names  # fmt: skip
    results = json_of(out / "all_results.json")
    assert results["epoch"] == 2.0 and results["train_samples"] == 64 and results["eval_samples"] == 16
    assert 0 <= results["eval_f1"] <= 100
    state = json_of(out / "trainer_state.json")
    assert state["global_step"] == state["max_steps"] == 16
    logged = [entry for entry in state["log_history"] if "loss" in entry]
    assert [entry["step"] for entry in logged] == [4, 8, 12, 16]
    # It learns something; the rate that is logged is the one that the step had.
    assert logged[-1]["loss"] < logged[0]["loss"] and logged[-1]["learning_rate"] == pytest.approx(1e-3 / 16)
    assert results["eval_steps_per_second"] == pytest.approx(results["eval_samples_per_second"] / 16, rel=0.01)  # one of 2 * 8 samples
    assert re.search(r"^(the 2 ranks kept step: each waited|rank \d was the slowest: it computed) .*\(.*\d+ % of .*time\)$", done.stderr, re.MULTILINE)
    scalars = read_with_tensorboard(next((out / "runs").iterdir()))["scalars"]
    assert scalars["eval/f1"] == [[16, pytest.approx(results["eval_f1"])]]
    assert len(json_of(out / "eval_predictions.json")) == 16


@pytest.mark.parametrize("family", ["Bert", "Roberta", "XLMRoberta", "DistilBert", "Electra"])
def test_transformers_loads_the_model_and_gives_the_same_answers(flags, data, tmp_path, family):
    out, base = tmp_path / "out", tiny_model(tmp_path / "model", family=family)
    labels = {"num_labels": 3, "id2label": {0: "no", 1: "yes", 2: "maybe"}, "label2id": {"no": 0, "yes": 1, "maybe": 2}}
    (base / "config.json").write_text(json.dumps({**json_of(base / "config.json"), **labels}))  # as a classifier's
    run(2, *flags, "--model_name_or_path", base, "--do_eval")
    logged = [entry["loss"] for entry in json_of(out / "trainer_state.json")["log_history"] if "loss" in entry]
    assert logged[-1] < logged[0]
    tokenizer = transformers.AutoTokenizer.from_pretrained(out)
    model = transformers.AutoModelForQuestionAnswering.from_pretrained(out).eval()
    assert type(model).__name__ == f"{family}ForQuestionAnswering"
    answers = json_of(out / "eval_predictions.json")
    best = json_of(out / "eval_nbest_predictions.json")
    for paragraph in json_of(pathlib.Path(data[3]))["data"][0]["paragraphs"]:
        question = paragraph["qas"][0]
        inputs = tokenizer(question["question"], paragraph["context"], return_tensors="pt", return_offsets_mapping=True)
        offsets, parts = inputs.pop("offset_mapping")[0].tolist(), inputs.sequence_ids()
        if family == "DistilBert":
            del inputs["token_type_ids"]
        with torch.no_grad():
            logits = model(**inputs)
        scores = {}
        for i, first in enumerate(parts):
            for j in range(i, min(i + 30, len(parts))):
                if first == 1 and parts[j] == 1:
                    scores[i, j] = (logits.start_logits[0, i] + logits.end_logits[0, j]).item()
        i, j = max(scores, key=scores.__getitem__)
        mine = best[question["id"]][0]
        assert mine["start_logit"] + mine["end_logit"] == pytest.approx(scores[i, j], abs=1e-4)
        if sorted(scores.values())[-1] - sorted(scores.values())[-2] > 1e-4:
            assert answers[question["id"]] == paragraph["context"][offsets[i][0] : offsets[j][1]]


def test_questions_without_answers_predictions_and_evaluation_on_the_way(flags, tmp_path):
    subprocess.run([sys.executable, REPOSITORY / "tools" / "make_questions.py", "--v2", "--train", "40", "--dev", "20", "--out", tmp_path], check=True)
    dev = tmp_path / "dev.json"
    run(
        2, *flags, "--train_file", tmp_path / "train.json", "--validation_file", dev, "--test_file", dev, "--version_2_with_negative", "--do_predict",
        "--eval_strategy", "epoch", "--max_seq_length", 100, "--doc_stride", 40,
    )  # fmt: skip
    out, ids = tmp_path / "out", {q["id"] for a in json_of(dev)["data"] for p in a["paragraphs"] for q in p["qas"]}
    results = json_of(out / "eval_results.json")
    assert results["eval_total"] == len(ids) == results["eval_HasAns_total"] + results["eval_NoAns_total"] and results["eval_NoAns_total"] > 0
    assert {"eval_exact", "eval_f1", "eval_best_f1", "eval_best_f1_thresh"} <= results.keys()
    for prefix in ("eval", "predict"):
        for name in ("predictions", "nbest_predictions", "null_odds"):
            assert json_of(out / f"{prefix}_{name}.json").keys() == ids
    assert json_of(out / "predict_predictions.json") == json_of(out / "eval_predictions.json")
    predicted = json_of(out / "predict_results.json")
    assert predicted["predict_samples"] == results["eval_samples"] and {"test_runtime", "test_steps_per_second"} <= predicted.keys()
    assert {name: predicted[f"test_{name}"] for name in ("exact", "f1", "total")} == {name: results[f"eval_{name}"] for name in ("exact", "f1", "total")}
    evaluated = [entry for entry in json_of(out / "trainer_state.json")["log_history"] if "eval_f1" in entry]
    assert [entry["epoch"] for entry in evaluated] == [1.0, 2.0]


@pytest.mark.parametrize(("length", "epochs"), [(["--max_steps", 5], [0.3125]), (["--num_train_epochs", 1.25], [1.0, 1.25])])
def test_an_epoch_that_is_not_whole_ends_like_the_others(flags, tmp_path, length, epochs):
    flags = [*flags, "--per_device_train_batch_size", 4 if len(epochs) == 1 else 8]
    run(0, *flags, *length, "--logging_strategy", "epoch", "--save_strategy", "epoch", "--eval_strategy", "epoch")
    out = tmp_path / "out"
    history = json_of(out / "trainer_state.json")["log_history"]
    for what in ("loss", "eval_f1"):
        assert [entry["epoch"] for entry in history if what in entry] == epochs
    assert sorted(path.name for path in out.glob("checkpoint-*")) == (["checkpoint-5"] if len(epochs) == 1 else ["checkpoint-10", "checkpoint-8"])


def test_predictions_of_questions_with_and_without_known_answers(flags, data, tmp_path):
    flags = ["--model_name_or_path", flags[1], "--do_predict", "--output_dir", tmp_path / "out"]
    run(0, *flags, "--test_file", data[3], "--max_predict_samples", 10)
    results = json_of(tmp_path / "out" / "predict_results.json")
    assert results["predict_samples"] == 10 and 0 <= results["test_exact_match"] <= results["test_f1"] <= 100
    document = json_of(pathlib.Path(data[3]))
    for paragraph in document["data"][0]["paragraphs"]:
        del paragraph["qas"][0]["answers"]
    (tmp_path / "test.json").write_text(json.dumps(document))
    run(0, *flags, "--test_file", tmp_path / "test.json")
    assert not {"test_f1", "test_exact_match"} & json_of(tmp_path / "out" / "predict_results.json").keys()


def test_tensorboard_reads_the_events(flags, tmp_path):
    run(0, *flags, "--max_steps", 8, "--report_to", "tensorboard", "--logging_dir", tmp_path / "events")
    losses = read_with_tensorboard(tmp_path / "events")["scalars"]["train/loss"]
    history = [entry for entry in json_of(tmp_path / "out" / "trainer_state.json")["log_history"] if "loss" in entry]
    assert losses == [[entry["step"], pytest.approx(entry["loss"])] for entry in history] and len(losses) == 2


def test_the_line_on_a_terminal_has_all_its_parts_at_every_step(flags, tmp_path):
    """Not only right after a log line, of which there is one in the middle."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 200, 0, 0))
    # Steps of some length, so that the line is drawn often.
    words = command(0, *flags, "--max_steps", 200, "--logging_steps", 100, "--per_device_train_batch_size", 16)
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=theirs, start_new_session=True)
    os.close(theirs)
    shown = b""
    with contextlib.suppress(OSError):  # the end of a terminal
        while some := os.read(ours, 65536):
            shown += some
    os.close(ours)
    assert process.wait(timeout=60) == 0, shown
    lines = [line for line in shown.decode().replace("\r", "\n").splitlines() if "step " in line and "epoch" in line]
    assert len(lines) >= 2 and "step 200/200" in lines[-1], shown
    for line in lines:
        assert all(part in line for part in ("loss ", " samples/s", " tokens/s", " left", "% comm", "lr ")), line


# ---- The same numbers ----


def test_gradients_do_not_depend_on_how_samples_are_shared(flags, tmp_path):
    """Without dropout, one process, two, three, and accumulation over micro-batches make the same steps of the same 12 samples."""
    config = tiny_model(tmp_path / "model", hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    results = {}
    for ranks, batch, accumulation in [(1, 12, 1), (2, 6, 1), (3, 4, 1), (2, 2, 3)]:
        out = tmp_path / f"{ranks}-{batch}-{accumulation}"
        run(
            ranks, *flags, "--model_name_or_path", config, "--max_steps", 6, "--per_device_train_batch_size", batch,
            "--gradient_accumulation_steps", accumulation, "--output_dir", out, "--logging_steps", 1,
        )  # fmt: skip
        losses = [entry["loss"] for entry in json_of(out / "trainer_state.json")["log_history"] if "loss" in entry]
        results[out] = losses, weights(out)
    losses, expected = next(iter(results.values()))
    for other, tensors in results.values():
        # Logged with four digits; a last batch of 64 = 5 * 12 + 4 samples is part of it.
        assert other == pytest.approx(losses, abs=2e-4)
        for name, tensor in tensors.items():
            # A softmax does not see what is added to all its inputs: these have gradients of nothing but rounding, of which Adam makes steps of lr.
            if name == "qa_outputs.bias" or name.endswith("key.bias"):
                continue
            assert (tensor - expected[name]).norm() <= 0.02 * 6 * 1e-3 * tensor.numel() ** 0.5, name


# Every one of them as it is by default nowhere else in the tests. With this epsilon, gradients of nothing but rounding make no steps.
HYPER_PARAMETERS = {
    "weight_decay": 1.0, "max_grad_norm": 0.5, "adam_beta1": 0.8, "adam_beta2": 0.95, "adam_epsilon": 1e-3, "warmup_steps": 3,
    "lr_scheduler_type": "cosine", "learning_rate": 1e-3, "gradient_accumulation_steps": 2, "per_device_train_batch_size": 8, "max_steps": 10,
    "logging_steps": 1,
}  # fmt: skip

HF_TRAINER = """
import json, sys, torch, transformers
model, data, out, hyper_parameters = sys.argv[1:]
torch.set_num_threads(1)
tokenizer = transformers.AutoTokenizer.from_pretrained(model)
samples = []
for paragraph in json.load(open(data))["data"][0]["paragraphs"]:
    answer = paragraph["qas"][0]["answers"][0]
    made = tokenizer(paragraph["qas"][0]["question"], paragraph["context"])
    start, end = answer["answer_start"], answer["answer_start"] + len(answer["text"]) - 1
    samples.append(dict(made, start_positions=made.char_to_token(start, sequence_index=1), end_positions=made.char_to_token(end, sequence_index=1)))
arguments = transformers.TrainingArguments(output_dir=out, use_cpu=True, report_to=[], disable_tqdm=True, save_strategy="no", **json.loads(hyper_parameters))
trainer = transformers.Trainer(transformers.AutoModelForQuestionAnswering.from_pretrained(model), arguments, train_dataset=samples)
trainer.train()
trainer.save_model()
trainer.state.save_to_json(out + "/trainer_state.json")
"""


def questions_of_one_length(model: pathlib.Path, folder: pathlib.Path, count: int) -> pathlib.Path:
    """transformers lets padding take part in the softmax: so there is none."""
    document = json_of(write_questions(folder / "train.json", 16 * count, seed=1))
    tokenizer = transformers.AutoTokenizer.from_pretrained(model)
    by_length = collections.defaultdict(list)
    for paragraph in document["data"][0]["paragraphs"]:
        by_length[len(tokenizer(paragraph["qas"][0]["question"], paragraph["context"])["input_ids"])].append(paragraph)
    document["data"][0]["paragraphs"] = max(by_length.values(), key=len)[:count]
    assert len(document["data"][0]["paragraphs"]) == count
    (folder / "train.json").write_text(json.dumps(document))
    return folder / "train.json"


def test_ten_steps_are_those_of_the_hugging_face_trainer(tmp_path):
    """A step takes all samples, so that their order does not matter. Any of the numbers left at its default makes others."""
    model = tiny_model(tmp_path / "model", hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    data = questions_of_one_length(model, tmp_path, 16)
    python(HF_TRAINER, model, data, tmp_path / "hf", json.dumps(HYPER_PARAMETERS))
    expected, begin = weights(tmp_path / "hf"), weights(model)

    def history(folder):
        return [entry for entry in json_of(tmp_path / folder / "trainer_state.json")["log_history"] if "loss" in entry]

    def train(out, without=()):
        flags = [word for name, value in HYPER_PARAMETERS.items() if name not in without for word in (f"--{name}", value)]
        run(0, "--model_name_or_path", model, "--train_file", data, "--do_train", *flags, "--report_to", "none", "--save_strategy", "no", "--output_dir", tmp_path / out)
        ours = weights(tmp_path / out)
        return max(((ours[name] - expected[name]).norm() / way).item() for name, way in ways.items())

    # Some have gradients of nothing but rounding: a softmax does not see what is added to all its inputs.
    ways = {name: way for name in expected if (way := (expected[name] - begin[name]).norm()) > 1e-6}
    assert len(ways) > 0.8 * len(expected)
    assert train("ours") < 1e-4
    ours, theirs = history("ours"), history("hf")
    assert len(ours) == 10
    for name, tolerance in (("loss", {"abs": 2e-4}), ("grad_norm", {"rel": 1e-4}), ("learning_rate", {"rel": 1e-9}), ("epoch", {"rel": 1e-9})):
        assert [entry[name] for entry in ours] == pytest.approx([entry[name] for entry in theirs], **tolerance), name
    for name in ("weight_decay", "max_grad_norm", "adam_beta1", "adam_beta2", "adam_epsilon", "warmup_steps", "lr_scheduler_type"):
        assert train(name, without=[name]) > 1e-2, name


def test_two_runs_are_the_same_bit_for_bit(flags, tmp_path):
    for name in ("a", "b"):
        run(2, *flags, "--output_dir", tmp_path / name)
    run(2, *flags, "--output_dir", tmp_path / "c", "--seed", 7)
    assert same_weights(tmp_path / "a", tmp_path / "b")
    assert not same_weights(tmp_path / "a", tmp_path / "c")


def test_bits_do_not_depend_on_the_number_of_threads_where_that_is_asked_for(flags, tmp_path):
    for threads in ("1", "2"):
        run(0, *flags, "--output_dir", tmp_path / threads, TRIREME_DETERMINISTIC="1", OMP_NUM_THREADS=threads)
    assert same_weights(tmp_path / "1", tmp_path / "2")


def test_torchrun_starts_it_as_mpirun_does(flags, tmp_path):
    run(2, *flags, "--max_steps", 5, "--output_dir", tmp_path / "mpirun")
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--no-python"]
    words = command(0, *flags, "--max_steps", 5, "--output_dir", tmp_path / "torchrun")
    done = subprocess.run([*launcher, *words], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "2 processes by torchrun" in done.stderr, done.stderr
    assert same_weights(tmp_path / "mpirun", tmp_path / "torchrun")


def test_gradient_checkpointing_is_the_same_bit_for_bit(flags, tmp_path):
    """Dropout is drawn again as it was."""
    run(2, *flags, "--output_dir", tmp_path / "plain")
    run(2, *flags, "--output_dir", tmp_path / "again", "--gradient_checkpointing")
    assert same_weights(tmp_path / "plain", tmp_path / "again")


@pytest.mark.parametrize(("native", "accumulation"), [(False, 1), (True, 1), (True, 4)], ids=["policy", "native", "accumulation"])
def test_bf16(flags, tmp_path, native, accumulation):
    """Without instructions for it, --bf16 computes in fp32 and says so; forced, it keeps all of a weight between optimizer steps."""
    flags = [*flags, "--per_device_train_batch_size", 4 // accumulation, "--gradient_accumulation_steps", accumulation]
    run(2, *flags, "--output_dir", tmp_path / "fp32")
    # Elsewhere AMX is offered, and ends the process.
    environment = {"TRIREME_BF16": "native", "ONEDNN_MAX_CPU_ISA": "AVX512_CORE"} if native else {"TRIREME_BF16": "emulate"}
    done = run(2, *flags, "--bf16", **environment)
    assert ("bf16: matrix products in bf16" if native else "bf16: computes in fp32") in done.stderr
    assert same_weights(tmp_path / "out", tmp_path / "fp32") == (not native)
    final = lambda folder: json_of(tmp_path / folder / "train_results.json")["train_loss"]  # noqa: E731
    assert final("out") == pytest.approx(final("fp32"), abs=0.05)
    # fp32 weights, of which bf16 would hold the upper half alone.
    bits = weights(tmp_path / "out")["bert.encoder.layer.0.intermediate.dense.weight"].view(torch.int32)
    assert (bits & 0xFFFF).count_nonzero() > 0.9 * bits.numel()


def test_where_one_rank_cannot_compute_in_bf16_none_does(flags, tmp_path):
    """Each decides by a trial of its own."""
    run(2, *flags, "--output_dir", tmp_path / "fp32")
    native, emulate = (["-env", "TRIREME_BF16", how, "qa"] for how in ("native", "emulate"))
    done = run_unlike([*flags, "--bf16"], native, emulate, ONEDNN_MAX_CPU_ISA="AVX512_CORE")
    assert done.returncode == 0, done.stderr
    assert "rank 1: bf16: computes in fp32: TRIREME_BF16=emulate" in done.stderr and "all ranks compute in fp32, because 1 of 2" in done.stderr
    assert same_weights(tmp_path / "out", tmp_path / "fp32")


@pytest.mark.parametrize("warmup", [0, 0.25])
@pytest.mark.parametrize("kind", ["linear", "cosine", "cosine_with_restarts", "polynomial", "constant", "constant_with_warmup", "inverse_sqrt"])
def test_schedules_are_those_of_transformers(flags, tmp_path, kind, warmup):
    run(0, *flags, "--max_steps", 10, "--warmup_ratio", warmup, "--lr_scheduler_type", kind, "--logging_steps", 1)
    rates = [entry["learning_rate"] for entry in json_of(tmp_path / "out" / "trainer_state.json")["log_history"] if "loss" in entry]
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1e-3)
    scheduler = transformers.get_scheduler(kind, optimizer, num_warmup_steps=3 if warmup else 0, num_training_steps=10)
    expected = []
    for _ in range(10):
        expected.append(scheduler.get_last_lr()[0])
        optimizer.step()
        scheduler.step()
    assert rates == pytest.approx(expected, rel=1e-9, abs=1e-15)


def test_the_order_of_samples_has_a_seed_of_its_own(flags, tmp_path):
    order = {}
    for seed, data_seed in [(1, 7), (2, 7), (1, 8)]:
        place = tmp_path / f"{seed}-{data_seed}"
        run(0, *flags, "--max_steps", 4, "--seed", seed, "--data_seed", data_seed, "--output_dir", place / "out", TRIREME_LEDGER=str(tmp_path / place.name))
        order[seed, data_seed] = ledger(tmp_path / place.name)
    assert order[1, 7] == order[2, 7] != order[1, 8]
    assert not same_weights(tmp_path / "1-7" / "out", tmp_path / "2-7" / "out")  # dropout's seed


def test_configuration_and_tokenizer_may_lie_elsewhere(flags, model, tmp_path):
    """And the first step may be logged, and a few questions evaluated."""
    bare, tokenizer, config = tmp_path / "bare", tmp_path / "tokenizer", tmp_path / "config"
    for folder, names in [(bare, ("config.json", "model.safetensors")), (tokenizer, ("tokenizer.json", "tokenizer_config.json", "vocab.txt")), (config, ())]:
        folder.mkdir()
        for name in names:
            shutil.copy(model / name, folder / name)
    (config / "config.json").write_text(json.dumps({**json_of(model / "config.json"), "hidden_dropout_prob": 0.25}))
    places = ["--model_name_or_path", bare, "--config_name", config, "--tokenizer_name", tokenizer]
    run(0, *flags, *places, "--max_steps", 4, "--logging_first_step", "--do_eval", "--max_eval_samples", 5)
    out = tmp_path / "out"
    assert json_of(out / "config.json")["hidden_dropout_prob"] == 0.25 and (out / "tokenizer.json").read_bytes() == (model / "tokenizer.json").read_bytes()
    assert [entry["step"] for entry in json_of(out / "trainer_state.json")["log_history"] if "loss" in entry] == [1, 4]
    assert json_of(out / "eval_results.json")["eval_samples"] == len(json_of(out / "eval_predictions.json")) == 5
    assert "has no tokenizer" in run(0, *flags, "--model_name_or_path", bare, "--overwrite_output_dir", check=False).stderr


def test_a_tokenizer_of_another_directory_is_the_same_once_it_is_saved(model, data, tmp_path):
    """A cased tokenizer.json by itself: beside BERT's config.json, transformers lowers the case."""
    document = json_of(model / "tokenizer.json")
    document["normalizer"]["lowercase"] = False
    elsewhere, together = tmp_path / "tokenizer", tmp_path / "together"
    for folder in elsewhere, together:
        folder.mkdir()
        (folder / "tokenizer.json").write_text(json.dumps(document))
    for name in ("config.json", "model.safetensors"):
        shutil.copy(model / name, together / name)
    run(0, "--model_name_or_path", model, "--tokenizer_name", elsewhere, *data, "--do_eval", "--output_dir", tmp_path / "a")
    run(0, "--model_name_or_path", together, *data, "--do_eval", "--output_dir", tmp_path / "b")
    assert (tmp_path / "a" / "eval_nbest_predictions.json").read_bytes() == (tmp_path / "b" / "eval_nbest_predictions.json").read_bytes()


def test_a_configuration_of_the_hub_is_config_json_and_nothing_else(flags, model, tmp_path):
    config = {**json_of(model / "config.json"), "hidden_dropout_prob": 0.25}
    hub = Hub({"config.json": json.dumps(config).encode()})
    environment = {"HF_HOME": str(tmp_path), "HF_ENDPOINT": hub.hub.url(), "NO_PROXY": "*"}
    flags = [*flags, "--config_name", "org/name", "--max_steps", 1, "--overwrite_output_dir"]
    try:
        run(0, *flags, HF_HUB_OFFLINE="0", **environment)
    finally:
        hub.close()
    assert {request.path.rpartition("/")[2] for request in hub.hub.requests} == {"config.json"}
    run(0, *flags, HF_HUB_OFFLINE="1", **environment)
    assert json_of(tmp_path / "out" / "config.json")["hidden_dropout_prob"] == 0.25


def test_a_model_and_a_dataset_by_name_come_once_to_a_host(model, data, tmp_path):
    """As in the guides' command; both ranks need both."""
    hub = Hub({path.name: path.read_bytes() for path in model.iterdir()})
    files = {f"/{name}-v1.1.json": pathlib.Path(data[i]).read_bytes() for name, i in (("train", 1), ("dev", 3))}
    squad = Server(lambda request: (200, {"ETag": '"1"'}, files[request.path]) if request.path in files else (404, {}, b""))
    environment = {"HF_HOME": str(tmp_path / "hf"), "HF_ENDPOINT": hub.hub.url(), "NO_PROXY": "*", "HF_HUB_OFFLINE": "0", "TRIREME_SQUAD_URL": squad.url()}
    names = ["--model_name_or_path", "org/name", "--dataset_name", "squad", "--dataset_config_name", "plain_text", "--cache_dir", tmp_path / "models"]
    amounts = ["--max_steps", 2, "--per_device_train_batch_size", 4, "--max_train_samples", 11, "--max_eval_samples", 5]
    out = tmp_path / "out"
    try:
        run(2, *names, *amounts, "--do_train", "--do_eval", "--report_to", "none", "--output_dir", out, **environment)
    finally:
        hub.close()
        squad.close()
    gets = collections.Counter(each.path for server in (hub.hub, hub.storage, squad) for each in server.asked("GET"))
    assert sum(path.endswith("model.safetensors") or path in files for path in gets) >= 3 and set(gets.values()) == {1}, gets
    assert (tmp_path / "models" / "models--org--name").is_dir() and (tmp_path / "models" / "trireme-squad" / "dev-v1.1.json").exists()
    results = json_of(out / "all_results.json")
    assert (results["train_samples"], results["eval_samples"]) == (11, 5)


def test_flags_of_the_evaluation_act(model, data, tmp_path):
    counter = iter(range(100))

    def evaluate(*flags) -> tuple[dict, dict, dict]:
        out = tmp_path / str(next(counter))
        run(0, "--model_name_or_path", model, *data, "--do_eval", "--output_dir", out, *flags)
        return tuple(json_of(out / f"eval_{name}.json") for name in ("results", "predictions", "nbest_predictions"))

    results, answers, best = evaluate()
    assert results["eval_steps_per_second"] == pytest.approx(results["eval_samples_per_second"] / 8, rel=0.01)  # two batches of 8
    results_of_5, answers_of_5, _ = evaluate("--per_device_eval_batch_size", 5)
    assert results_of_5["eval_steps_per_second"] == pytest.approx(results_of_5["eval_samples_per_second"] / 4, rel=0.01)  # 4 batches of 16 samples
    assert answers_of_5 == answers and max(map(len, best.values())) == 20

    _, _, few = evaluate("--n_best_size", 3)
    assert max(map(len, few.values())) == 3  # of three starts and three ends, some make no answer
    _, short, _ = evaluate("--max_answer_length", 2)
    tokenizer = transformers.AutoTokenizer.from_pretrained(model)
    tokens = {key: len(tokenizer.tokenize(text)) for key, text in short.items()}
    assert max(tokens.values()) == 2 and max(len(tokenizer.tokenize(text)) for text in answers.values()) > 2
    for threshold, empty in ((-1e6, 16), (1e6, 0)):
        _, nothing, _ = evaluate("--version_2_with_negative", "--null_score_diff_threshold", threshold)
        assert list(nothing.values()).count("") == empty
