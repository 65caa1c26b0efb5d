"""The flags of `trireme qa` beside transformers' own: names, defaults, and the page that lists them."""

import dataclasses
import enum
import json
import os
import pathlib
import subprocess

import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("TRIREME_BUILD_DIR", REPOSITORY / "build" / "release"))

# Where a default differs, and why.
DIFFERENT = {
    "output_dir": "run_qa.py's was required until 4.50; a directory that nobody named surprises",
    "report_to": "None becomes all in TrainingArguments; all is TensorBoard here",
}

# DataTrainingArguments and ModelArguments of run_qa.py, which is not in the wheel.
RUN_QA = {
    "config_name": None, "tokenizer_name": None, "cache_dir": None, "model_revision": "main", "token": None,
    "dataset_name": None, "dataset_config_name": None, "preprocessing_num_workers": None,
    "max_seq_length": 384, "doc_stride": 128, "max_train_samples": None, "max_eval_samples": None, "max_predict_samples": None,
    "version_2_with_negative": False, "null_score_diff_threshold": 0.0, "n_best_size": 20, "max_answer_length": 30,
}  # fmt: skip


def print_options(*arguments: str, check: bool = True) -> subprocess.CompletedProcess:
    program = BUILD / "tests" / "trainer" / "print_options"
    return subprocess.run([program, *arguments], capture_output=True, text=True, check=check)


@pytest.fixture(scope="module")
def ours() -> dict:
    """Every option of a run that says only what must be said."""
    said = ["--model_name_or_path", "m", "--output_dir", "o", "--train_file", "t.json", "--do_train"]
    return json.loads(print_options("qa", *said).stdout)["options"]


@pytest.fixture(scope="module")
def effects() -> dict[str, str]:
    return json.loads(print_options("effects").stdout)


@pytest.fixture(scope="module")
def theirs() -> dict:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed: pip install -r tests/requirements.txt")
    fields = {field.name: field for field in dataclasses.fields(transformers.TrainingArguments) if not field.name.startswith("_")}
    return {name: None if field.default is dataclasses.MISSING else field.default for name, field in fields.items()}


def test_every_flag_of_transformers_is_known(theirs, effects):
    assert not set(theirs) - set(effects), "say in trireme/trainer/options/qa_flags.cpp what these do"


def test_defaults_are_those_of_transformers(ours, theirs):
    both = set(ours) & set(theirs) - {"do_train"} - set(DIFFERENT)
    assert len(both) > 40
    plain = {name: value.value if isinstance(value, enum.Enum) else value for name, value in theirs.items()}
    assert {name: ours[name] for name in both} == {name: plain[name] for name in both}


def test_listed_differences_are_differences(ours, theirs):
    for name, reason in DIFFERENT.items():
        assert ours[name] != theirs[name], f"no longer true: {reason}"


def test_flags_stand_alone_where_they_do_in_transformers():
    transformers = pytest.importorskip("transformers")
    alone = [action.dest for action in transformers.HfArgumentParser(transformers.TrainingArguments)._actions if action.nargs == "?"]
    assert "include_num_input_tokens_seen" in alone and len(alone) > 40
    said = ["--model_name_or_path", "m", "--output_dir", "o", "--train_file", "t.json", "--do_train"]
    missing = [name for name in alone if "the value is missing" in print_options("qa", *said, f"--{name}", check=False).stderr]
    assert not missing


def test_defaults_are_those_of_run_qa(ours):
    assert {name: ours[name] for name in RUN_QA} == RUN_QA


def test_the_page_has_the_flags():
    page = (REPOSITORY / "docs" / "trainer.md").read_text()
    begin, end = "<!-- printed by print_options -->\n", "<!-- end -->\n"
    assert page.partition(begin)[2].partition(end)[0] == print_options("markdown").stdout, (
        "put the output of build/release/tests/trainer/print_options markdown there"
    )


def test_help_fits_a_terminal():
    lines = print_options("help").stdout.splitlines()
    assert max(map(len, lines)) <= 100


def test_flags_that_packing_makes_moot_are_accepted_with_a_sentence():
    said = ["--model_name_or_path", "m", "--output_dir", "o", "--train_file", "t.json", "--do_train"]
    moot = ["--pad_to_max_length", "False", "--group_by_length", "--dataloader_num_workers", "4"]
    notes = json.loads(print_options("qa", *said, *moot).stdout)["notes"]
    assert notes == [
        "--pad_to_max_length has no effect: tokens are packed end to end and padding is never computed",
        "--group_by_length has no effect: tokens are packed end to end, and batches are balanced by length across ranks anyway",
        "--dataloader_num_workers has no effect: batches are made in this process, from tokens in memory",
    ]


def test_complaints_go_to_stderr():
    result = print_options("qa", "--lerning_rate", "1", check=False)
    assert result.returncode == 2
    assert result.stderr == "--lerning_rate: there is no such flag; did you mean --learning_rate?\n"
