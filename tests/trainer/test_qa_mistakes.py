"""`trireme qa` where something is wrong, or not there: what it says, and that nothing is lost."""

import json
import os
import re
import shutil
import subprocess
import time

import pytest

from .runs import TRIREME, command, json_of, needs_program, run, run_unlike, weights

safetensors_torch = pytest.importorskip("safetensors.torch")

pytestmark = needs_program


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--model_name_or_path", "/nowhere/model"], "/nowhere/model"),
        (["--train_file", "/nowhere/train.json"], "/nowhere/train.json: No such file"),
        (["--learning_rat", "1"], "--learning_rate"),
        (["--fp16"], "--fp16: float16 needs a GPU; on CPUs --bf16"),
        (["--tf32", "True"], "--tf32: TF32 is a format of GPUs; leave the flag out"),
        (["--resume_from_checkpoint", "/nowhere"], "it is no checkpoint"),
        (["--resume_from_checkpoint", "True"], "there is no checkpoint in"),
        (["--lr_scheduler_type", "steep"], "steep"),
        (["--per_device_train_batch_size", 2**62, "--gradient_accumulation_steps", 4], "from 1 to 1048576"),
        (["--output_dir", "/proc/trireme"], "/proc/trireme"),
        (["--dataset_name", "squad"], "--dataset_name squad and --train_file"),
    ],
)
def test_mistakes_are_named(flags, more, said):
    done = run(0, *flags, *more, check=False)
    assert done.returncode in (1, 2) and said in done.stderr, done.stderr
    assert len(done.stderr) < 2000 and "frame #" not in done.stderr


def test_names_of_datasets_are_checked_before_anything_is_written(model, data, tmp_path):
    flags = ["--model_name_or_path", model, "--test_file", data[3], "--output_dir", tmp_path / "out"]
    done = run(0, *flags, "--dataset_name", "squid", "--do_train", check=False)
    assert done.returncode == 2 and 'dataset "squid" is not known' in done.stderr and not (tmp_path / "out").exists()
    # A dataset that has no test set of its own.
    run(0, *flags, "--dataset_name", "squad", "--do_predict")
    assert len(json_of(tmp_path / "out" / "predict_predictions.json")) == 16


def test_bad_data_for_the_evaluation_is_refused_before_training(flags, tmp_path):
    paragraph = {"context": "Ada keeps a harp.", "qas": [{"id": "1", "question": "Who?", "answers": []}]}
    (tmp_path / "dev.json").write_text(json.dumps({"data": [{"title": "t", "paragraphs": [paragraph]}]}))
    done = run(0, *flags, "--do_eval", "--validation_file", tmp_path / "dev.json", check=False)
    assert done.returncode == 2 and "dev.json" in done.stderr and "step " not in done.stderr


def test_an_output_directory_that_holds_something_else_is_left_alone(flags, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.txt").write_text("mine")
    done = run(2, *flags, check=False)
    assert done.returncode != 0 and "there is something in it already" in done.stderr
    run(2, *flags, "--overwrite_output_dir", "--max_steps", 1)
    assert (tmp_path / "out" / "thesis.txt").read_text() == "mine"


def test_a_tokenizer_that_does_not_fit_is_refused(flags, model, tmp_path):
    other = shutil.copytree(model, tmp_path / "other")
    config = json_of(other / "config.json")
    config["vocab_size"] = 100
    (other / "config.json").write_text(json.dumps(config))
    done = run(0, *flags, "--model_name_or_path", other, check=False)
    assert done.returncode == 2 and "the tokenizer has 30522 tokens, the model of" in done.stderr


@pytest.mark.parametrize(("limit", "said"), [(40, "--max_seq_length 384: the tokenizer's model_max_length is 40 tokens"), (int(1e30), "the model takes 128 tokens")])
def test_the_tokenizer_limits_the_length_too(flags, model, tmp_path, limit, said):
    other = shutil.copytree(model, tmp_path / "other")
    config = json_of(other / "tokenizer_config.json")
    (other / "tokenizer_config.json").write_text(json.dumps({**config, "model_max_length": limit}))
    features = {}
    for name, more in [("limited", ["--model_name_or_path", other]), ("flag", ["--max_seq_length", min(limit, 128)])]:
        done = run(0, *flags, *more, "--doc_stride", 8, "--max_steps", 1, "--output_dir", tmp_path / name)
        features[name] = re.search(r"questions, (\d+) features", done.stderr).group(1)
        assert (said in done.stderr) == (name == "limited"), done.stderr
    assert features["limited"] == features["flag"]


def test_nobody_need_read_what_is_said(flags, tmp_path):
    """As behind `| head`."""
    process = subprocess.Popen(command(0, *flags, "--logging_steps", 1), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(timeout=120) == 0
    assert (tmp_path / "out" / "model.safetensors").exists()


def test_nobody_need_have_a_home(flags):
    environment = {name: value for name, value in os.environ.items() if name not in ("HOME", "HF_HOME", "XDG_CACHE_HOME")}
    done = subprocess.run(command(0, *flags), env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_a_rank_that_fails_ends_the_others(flags, tmp_path):
    start = time.monotonic()
    done = run_unlike(flags, [], ["--train_file", "/nowhere.json"], [])
    assert done.returncode != 0 and "/nowhere.json" in done.stderr
    assert time.monotonic() - start < 30


def test_ranks_that_have_to_ask_for_their_number(flags, tmp_path):
    """mpirun -pmi-port leaves PMI_RANK and PMI_SIZE out."""
    program, *words = command(2, *flags, "--max_steps", 2)
    done = subprocess.run([program, "-pmi-port", *words], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "2 processes" in done.stderr, done.stderr
    assert (tmp_path / "out" / "model.safetensors").exists()


@pytest.mark.parametrize("flag", [["--learning_rate", 1e-4], ["--seed", 43], ["--do_eval"], ["--gradient_accumulation_steps", 2]])
def test_ranks_with_other_flags_do_not_train_together(flags, flag):
    done = run_unlike(flags, [], flag)
    assert done.returncode != 0 and f"rank 1 was not given the same {flag[0]} as rank 0" in done.stderr, done.stderr


@pytest.mark.parametrize("task", ["--do_train", "--do_eval"])
def test_ranks_with_other_weights_do_not_work_together(flags, model, tmp_path, task):
    """A stale copy on one host: the same shape, another number in one place."""
    other = shutil.copytree(model, tmp_path / "other")
    tensors = weights(other)
    tensors["bert.encoder.layer.1.output.dense.weight"][3, 5] += 1e-3
    safetensors_torch.save_file(tensors, other / "model.safetensors", {"format": "pt"})
    flags = [task if flag == "--do_train" else flag for flag in flags]
    done = run_unlike(flags, [], [], ["--model_name_or_path", other])
    assert done.returncode != 0 and "rank 2 does not agree with rank 0 on the weights" in done.stderr, done.stderr


def test_program_says_what_it_is():
    for arguments in (["--help"], ["qa", "--help"], ["ask", "--help"], ["info", "--help"], ["bench", "--help"], ["--version"]):
        done = subprocess.run([TRIREME, *arguments], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0 and done.stdout.startswith("trireme") and done.stderr == ""
    done = subprocess.run([TRIREME, "qq"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "qa" in done.stderr
