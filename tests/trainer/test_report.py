"""trainer_state.json and the tables of metrics beside transformers' own."""

import contextlib
import io
import json
import pathlib
import subprocess
import types

import pytest

from .test_options import BUILD

METRICS = {
    "epoch": 2.0, "total_flos": 123456789012345.0, "train_loss": 1.23456789, "train_runtime": 3723.4567, "train_samples": 11877,
    "train_samples_per_second": 6.38, "train_steps_per_second": 0.266, "train_tiny": 1.5e-7, "train_large": 1e17,
}  # fmt: skip


def write_report(*arguments) -> str:
    program = BUILD / "tests" / "trainer" / "write_report"
    return subprocess.run([program, *arguments], capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def trainer_callback():
    return pytest.importorskip("transformers.trainer_callback", reason="transformers is not installed")


def hugging_face_state(trainer_callback):
    state = trainer_callback.TrainerState(epoch=1.5, global_step=30, max_steps=40, num_train_epochs=2, total_flos=1.25e14, train_batch_size=8)
    state.log_history = [
        {"loss": 2.5, "grad_norm": 3.25, "learning_rate": 3e-05, "epoch": 0.5, "step": 10},
        {"eval_f1": 12.5, "eval_runtime": 1.25, "epoch": 1.0, "step": 20},
    ]
    state.stateful_callbacks = {"TrainerControl": {"args": {"should_save": True}, "attributes": {}}}
    return state


def test_transformers_reads_our_state_and_we_read_theirs(trainer_callback, tmp_path):
    theirs, ours = tmp_path / "theirs.json", tmp_path / "ours.json"
    state = hugging_face_state(trainer_callback)
    state.save_to_json(theirs)
    write_report("state", theirs, ours)
    assert trainer_callback.TrainerState.load_from_json(ours) == state
    assert ours.read_text() == theirs.read_text()


def test_a_state_of_an_older_version_is_read(tmp_path):
    """4.30 had fewer fields."""
    old = {"best_metric": None, "best_model_checkpoint": None, "epoch": 1.0, "global_step": 3, "is_hyper_param_search": False,
           "is_local_process_zero": True, "is_world_process_zero": True, "log_history": [], "max_steps": 9, "num_train_epochs": 3,
           "total_flos": 0, "trial_name": None, "trial_params": None}  # fmt: skip
    (tmp_path / "old.json").write_text(json.dumps(old))
    write_report("state", tmp_path / "old.json", tmp_path / "new.json")
    new = json.loads((tmp_path / "new.json").read_text())
    assert {name: new[name] for name in old} == old


def test_metrics_are_shown_and_saved_as_transformers_does(tmp_path: pathlib.Path):
    trainer_pt_utils = pytest.importorskip("transformers.trainer_pt_utils", reason="transformers is not installed")
    (tmp_path / "metrics.json").write_text(json.dumps(METRICS))
    for folder in ("ours", "theirs"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "all_results.json").write_text('{"eval_f1": 88.5, "epoch": 1.0}')
    shown = write_report("metrics", tmp_path / "metrics.json", tmp_path / "ours")

    trainer = types.SimpleNamespace(is_world_process_zero=lambda: True, args=types.SimpleNamespace(output_dir=str(tmp_path / "theirs")))
    trainer.metrics_format = trainer_pt_utils.metrics_format
    with contextlib.redirect_stdout(io.StringIO()) as expected:
        trainer_pt_utils.log_metrics(trainer, "train", METRICS)
    trainer_pt_utils.save_metrics(trainer, "train", METRICS)
    assert shown == expected.getvalue()
    for name in ("train_results.json", "all_results.json"):
        ours, theirs = ((tmp_path / folder / name).read_text() for folder in ("ours", "theirs"))
        assert json.loads(ours) == json.loads(theirs)
        assert list(json.loads(ours)) == list(json.loads(theirs)), "in the same order"
