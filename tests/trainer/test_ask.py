"""`trireme ask`: a fine-tuned model answers questions."""

import json
import os
import pathlib
import shutil
import subprocess

import pytest

from .hub_server import Hub
from .runs import TRIREME, json_of, needs_program, run

transformers = pytest.importorskip("transformers")

pytestmark = needs_program


def ask(*arguments, **options) -> subprocess.CompletedProcess:
    return subprocess.run([TRIREME, "ask", *map(str, arguments)], capture_output=True, text=True, timeout=60, **options)


def test_ask_gives_the_answers_of_an_evaluation(flags, data, tmp_path):
    out = tmp_path / "out"
    run(0, *flags, "--do_eval")
    best = json_of(out / "eval_nbest_predictions.json")
    for paragraph in json_of(pathlib.Path(data[3]))["data"][0]["paragraphs"][:3]:
        question = paragraph["qas"][0]
        done = ask("--model", out, "--context", paragraph["context"], "--question", question["question"], "--top", 2, "--json")
        assert done.returncode == 0, done.stderr
        (answered,) = json.loads(done.stdout)
        assert answered["question"] == question["question"]
        assert [each["answer"] for each in answered["answers"]] == [each["text"] for each in best[question["id"]][:2]]
        assert answered["answers"][0]["probability"] == pytest.approx(best[question["id"]][0]["probability"], rel=1e-3)
    (tmp_path / "text.txt").write_text("Ada keeps a harp in the attic.")
    done = ask("--model", out, "--context_file", tmp_path / "text.txt", input="Where is the harp?\n\nWho keeps it?\n")
    assert done.returncode == 0 and done.stdout.startswith("Where is the harp?\n  ") and "\nWho keeps it?\n  " in done.stdout
    piped = ask("--model", out, "--context_file", "/dev/stdin", "--question", "Where is the harp?", input="Ada keeps a harp in the attic.")
    assert piped.returncode == 0 and done.stdout.startswith(piped.stdout), piped.stderr


def test_ask_shows_each_answer_with_its_own_number(model):
    """Whether there is an answer at all is a matter of the threshold; the candidates and their numbers are not."""
    about = ["--model", model, "--context", "Ada keeps a harp in the attic.", "--question", "Where is the harp?"]
    shown = {}
    for threshold in (-1000, 1000):
        more = ["--version_2_with_negative", "--null_score_diff_threshold", threshold, "--top", 100]
        done = ask(*about, *more, "--json")
        assert done.returncode == 0, done.stderr
        shown[threshold] = json.loads(done.stdout)[0]["answers"]
        first = ask(*about, *more).stdout.splitlines()[1]
        assert first == f"  {shown[threshold][0]['answer'] or '(no answer)'}  {shown[threshold][0]['probability']:.3f}"
    assert shown[-1000][0]["answer"] == "" != shown[1000][0]["answer"]
    by_score = {threshold: sorted(answers, key=lambda each: (-each["score"], each["answer"])) for threshold, answers in shown.items()}
    assert by_score[-1000] == by_score[1000]
    assert sum(each["probability"] for each in shown[1000]) == pytest.approx(1, abs=1e-5)


def test_ask_says_what_is_missing(model, tmp_path):
    encoder = transformers.BertModel.from_pretrained(model)
    encoder.save_pretrained(tmp_path)
    for name in ("tokenizer.json", "tokenizer_config.json", "vocab.txt"):
        shutil.copy(model / name, tmp_path / name)
    assert "has no head for question answering" in ask("--model", tmp_path, "--context", "x", "--question", "y").stderr
    assert "the context is empty" in ask("--model", model, "--context", " ", "--question", "y").stderr
    (tmp_path / "latin1").write_bytes("caf\u00e9".encode("latin-1"))
    said = ask("--model", model, "--context_file", tmp_path / "latin1", "--question", "y").stderr
    assert f"--context_file {tmp_path / 'latin1'} is not UTF-8" in said
    assert "no question was asked" in ask("--model", model, "--context", "x", input="").stderr
    assert "--model is missing" in ask("--context", "x").stderr


def test_a_download_and_a_shorter_length_are_not_silent(model, tmp_path):
    hub = Hub({path.name: path.read_bytes() for path in model.iterdir()})
    environment = {**os.environ, "HF_HOME": str(tmp_path), "HF_ENDPOINT": hub.hub.url(), "NO_PROXY": "*", "HF_HUB_OFFLINE": "0"}
    try:
        done = ask("--model", "org/name", "--context", "Ada keeps a harp.", "--question", "Who?", env=environment)
    finally:
        hub.close()
    assert done.returncode == 0, done.stderr
    megabytes = f"{(model / 'model.safetensors').stat().st_size / 1e6:.1f} MB"
    assert f"download model.safetensors: 0.0 of {megabytes}\n" in done.stderr and f" {megabytes[:-3]} of {megabytes}\n" in done.stderr
    assert "download config.json" not in done.stderr
    assert "--max_seq_length 384: the model takes 128 tokens at most" in done.stderr
