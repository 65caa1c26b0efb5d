"""Checkpoints of `trireme qa`: going on from them, kills, other numbers of processes, Hugging Face's Trainer, and what goes wrong."""

import collections
import contextlib
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import time

import pytest

from tests.huggingface.questions import write_questions

from .runs import Started, command, json_of, ledger, needs_program, python, run, same_weights, weights

torch = pytest.importorskip("torch")

pytestmark = needs_program


# ---- Going on ----



@pytest.mark.parametrize("more", [[], ["--save_strategy", "steps", "--save_steps", 2, "--save_total_limit", 1]], ids=["overwritten", "rotated"])
def test_the_model_may_be_a_checkpoint_that_the_run_removes(flags, tmp_path, more):
    """Its tokenizer is saved all the same."""
    out = tmp_path / "out"
    run(0, *flags, "--save_strategy", "steps", "--save_steps", 2, "--max_steps", 2)
    model = out / "checkpoint-2"
    tokenizer = {each.name for each in model.glob("*token*")} | {"vocab.txt"}
    for name in tokenizer:
        (out / name).unlink(missing_ok=True)
    run(0, *flags, "--model_name_or_path", model, "--overwrite_output_dir", "--max_steps", 6, *more)
    assert tokenizer <= {each.name for each in out.iterdir()}
    assert not model.exists()


@pytest.mark.parametrize("how", [[], ["--gradient_accumulation_steps", 2, "--per_device_train_batch_size", 2], ["--bf16"]], ids=["plain", "accumulation", "bf16"])
def test_resuming_is_bit_for_bit(flags, tmp_path, how):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    flags = [*flags, *how, "--save_strategy", "steps", "--save_steps", 5]
    # Elsewhere AMX is offered, and ends the process.
    environment = {"TRIREME_BF16": "native", "ONEDNN_MAX_CPU_ISA": "AVX512_CORE"} if how == ["--bf16"] else {}
    done = run(2, *flags, "--output_dir", whole, **environment)
    assert ("bf16: matrix products in bf16" in done.stderr) == bool(environment)
    cut.mkdir()
    shutil.copytree(whole / "checkpoint-5", cut / "checkpoint-5")  # in the first of two epochs
    done = run(2, *flags, "--output_dir", cut, **environment)
    assert "goes on from" in done.stderr and "step 5" in done.stderr
    assert same_weights(whole, cut)
    for step in (10, 15):
        for name in ("model.safetensors", "optimizer.pt", "scheduler.pt", "trainer_state.json", "trireme_state.json"):
            assert (whole / f"checkpoint-{step}" / name).read_bytes() == (cut / f"checkpoint-{step}" / name).read_bytes(), (step, name)


@pytest.mark.parametrize("sizes", [(2, 3), (3, 1), (1, 2)])
def test_no_sample_is_lost_or_repeated_when_the_number_of_processes_changes(flags, tmp_path, sizes):
    """Stopped after three steps, gone on with another number of ranks, through the end of the epoch and the next."""
    before, after = sizes
    out = tmp_path / "out"
    run(before, *flags, "--save_strategy", "steps", "--save_steps", 3, TRIREME_LEDGER=str(tmp_path / "first"))
    for checkpoint in out.glob("checkpoint-*"):
        if checkpoint.name != "checkpoint-3":
            shutil.rmtree(checkpoint)
    run(after, *flags, TRIREME_LEDGER=str(tmp_path / "second"))
    counted = [line for line in ledger(tmp_path / "first") if line[0] < 3] + ledger(tmp_path / "second")
    seen = collections.Counter((epoch, sample) for _, epoch, sample in counted)
    assert seen == {(epoch, sample): 1 for epoch in (0, 1) for sample in range(64)}
    state = json_of(out / "trainer_state.json")
    assert state["epoch"] == 2.0 and state["global_step"] == state["max_steps"]
    rates = [entry["learning_rate"] for entry in state["log_history"] if "loss" in entry]
    assert rates == sorted(rates, reverse=True) and json_of(out / "all_results.json")["epoch"] == 2.0


def test_a_step_that_was_saved_before_is_saved_again(flags, tmp_path):
    """Going on from an earlier checkpoint, the later ones are moved away and made anew."""
    steps = ["--save_strategy", "steps", "--save_steps", 4, "--max_steps", 12]
    run(2, *flags, *steps)
    out = tmp_path / "out"
    before = (out / "checkpoint-12" / "model.safetensors").read_bytes()
    (out / "checkpoint-8" / "model.safetensors").write_bytes(b"spoilt")
    done = run(2, *flags, *steps, "--resume_from_checkpoint", f"{out}/checkpoint-4/")
    assert f"2 checkpoints after step 4 of an earlier run moved to {out}/earlier-1" in done.stderr
    assert (out / "earlier-1" / "checkpoint-8" / "model.safetensors").read_bytes() == b"spoilt"
    assert (out / "checkpoint-12" / "model.safetensors").read_bytes() == before
    assert weights(out / "checkpoint-8") and not list(out.glob(".partial-*"))


def test_checkpoints_of_an_earlier_run_do_not_outlive_it(flags, tmp_path):
    """They have higher numbers: neither the limit nor the next start may take them for the newest."""
    steps = ["--save_strategy", "steps", "--save_total_limit", 1]
    run(2, *flags, *steps, "--save_steps", 8, "--max_steps", 16, "--save_total_limit", 2)
    done = run(2, *flags, *steps, "--save_steps", 2, "--max_steps", 4, "--learning_rate", 1e-4, "--overwrite_output_dir")
    assert "2 checkpoints after step 0 of an earlier run removed" in done.stderr
    assert [path.name for path in (tmp_path / "out").glob("*checkpoint-*")] == ["checkpoint-4"]
    assert same_weights(tmp_path / "out", tmp_path / "out" / "checkpoint-4")
    assert "checkpoint-4, step 4" in run(2, *flags, *steps, "--max_steps", 6).stderr


@pytest.mark.parametrize("name", ["checkpoint-8/", "renamed", "./checkpoint-8//"])
def test_a_checkpoint_is_known_however_it_is_spelt(flags, tmp_path, name):
    """Where torchrun may start a job again, a checkpoint that is named counts unless there is a newer one."""
    steps = ["--save_strategy", "steps", "--save_steps", 4]
    run(2, *flags, *steps, "--max_steps", 8, "--output_dir", tmp_path / "first")
    shutil.copytree(tmp_path / "first" / "checkpoint-8", tmp_path / "first" / "renamed")
    (tmp_path / "out").mkdir()
    shutil.copytree(tmp_path / "first" / "checkpoint-4", tmp_path / "out" / "checkpoint-4")
    more = ["--max_steps", 10, "--resume_from_checkpoint", f"{tmp_path}/first/{name}"]
    done = run(2, *flags, *steps, *more, TORCHELASTIC_MAX_RESTARTS="3")
    assert "step 8\n" in done.stderr and "is newer than" not in done.stderr


def test_only_so_many_checkpoints_are_kept(flags, tmp_path):
    run(2, *flags, "--save_strategy", "steps", "--save_steps", 3, "--save_total_limit", 2)
    assert sorted(path.name for path in (tmp_path / "out").glob("*checkpoint*")) == ["checkpoint-15", "checkpoint-16"]


class Victim(Started):
    """A run on two ranks that trains into `out`, to be killed."""

    def __init__(self, flags, out: pathlib.Path, log: pathlib.Path):
        super().__init__(2, *flags, "--logging_steps", 1, log=log)
        self._out = out

    def partial(self) -> list[pathlib.Path]:
        return list(self._out.glob(".partial-checkpoint-*"))

    def wait_until(self, condition) -> bool:
        """Whether it came true before the run ended."""
        deadline = time.monotonic() + 120
        while not condition():
            assert time.monotonic() < deadline, self.output()
            if self.process.poll() is not None:
                return False
            time.sleep(0.0005)
        return True

    def trains(self) -> bool:
        return "\nstep " in self.output()

    def kill(self, rank: int) -> bool:
        """Whether that interrupted its training."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(rank, signal.SIGKILL)
        return self.process.wait(timeout=120) != 0 and "train metrics" not in self.output()


def kill_many_times(flags, tmp_path, times: int) -> None:
    """Every kill that counts interrupts training, some of them while a checkpoint is written. A run that gets to its end begins anew."""
    flags = [*flags, "--save_strategy", "steps", "--save_steps", 4, "--num_train_epochs", 20]
    out, undisturbed, chance = tmp_path / "out", tmp_path / "undisturbed", random.Random(0)
    start = time.monotonic()
    run(2, *flags, "--output_dir", undisturbed)
    seconds = time.monotonic() - start
    killed = while_saving = 0
    for attempt in range(3 * times):
        with Victim(flags, out, tmp_path / "log") as victim:
            interrupted = victim.wait_until(victim.trains)
            if interrupted:
                ranks = victim.ranks()
                waits_for_save = attempt % 3 == 0 or while_saving == 0
                if waits_for_save:
                    victim.wait_until(victim.partial)
                else:
                    time.sleep(chance.uniform(0, 0.2 * seconds))
                interrupted = len(ranks) == 2 and victim.kill(ranks[0] if waits_for_save else chance.choice(ranks))
        killed += interrupted
        while_saving += interrupted and bool(victim.partial())
        for checkpoint in out.glob("checkpoint-*"):  # whatever is there is whole
            assert weights(checkpoint) and json_of(checkpoint / "trireme_state.json")["format"] == 1
        if not interrupted and not (out / ".unfinished").exists():
            assert same_weights(out, undisturbed)
            shutil.rmtree(out)
        if killed >= times and while_saving > 0:
            break
    assert killed >= times and while_saving > 0, f"{killed} of {attempt + 1} interrupted it, {while_saving} of them while it saved"
    run(2, *flags)
    assert same_weights(out, undisturbed)
    assert not list(out.glob(".partial-*"))


def test_killed_at_random_and_resumed_it_ends_with_the_same_weights(flags, tmp_path):
    kill_many_times(flags, tmp_path, 10)


@pytest.mark.long
def test_killed_fifty_times(flags, tmp_path):
    kill_many_times(flags, tmp_path, 50)


# ---- Hugging Face's Trainer ----


HF_TRAINER = """
import sys, torch, transformers
model, out, resume, steps = sys.argv[1:]
torch.set_num_threads(1)
torch.manual_seed(0)
data = [dict(input_ids=torch.randint(5, 1000, (20,)), attention_mask=torch.ones(20, dtype=torch.long), start_positions=torch.tensor(3),
             end_positions=torch.tensor(5)) for _ in range(64)]
arguments = transformers.TrainingArguments(output_dir=out, per_device_train_batch_size=8, max_steps=int(steps), save_steps=4, use_cpu=True, report_to=[],
                                           learning_rate=1e-3, weight_decay=0.01, disable_tqdm=True)
trainer = transformers.Trainer(transformers.AutoModelForQuestionAnswering.from_pretrained(model), arguments, train_dataset=data)
trainer.train(resume_from_checkpoint=resume or None)
moments = [state["exp_avg"].norm().item() for state in trainer.optimizer.state.values()]
print("OK", trainer.state.global_step, trainer.lr_scheduler.last_epoch, all(m > 0 for m in moments[:5]))
"""


def test_checkpoints_of_the_hugging_face_trainer_can_be_resumed_from(model, data, tmp_path):
    assert "OK 4 4 True" in python(HF_TRAINER, model, tmp_path / "hf", "", 4)
    checkpoint = tmp_path / "hf" / "checkpoint-4"
    # As it looks after a step whose gradients were no numbers.
    state = json_of(checkpoint / "trainer_state.json")
    state["log_history"].append({"grad_norm": float("nan"), "loss": float("inf"), "step": 4})
    (checkpoint / "trainer_state.json").write_text(json.dumps({**state, "num_input_tokens_seen": 1280}))
    done = run(
        2, "--model_name_or_path", model, *data, "--do_train", "--max_steps", 8, "--per_device_train_batch_size", 4, "--learning_rate", 1e-3,
        "--weight_decay", 0.01, "--output_dir", tmp_path / "ours", "--resume_from_checkpoint", checkpoint, "--save_steps", 4, "--report_to", "none",
    )  # fmt: skip
    assert "step 4" in done.stderr
    # Counts go on where HF's stood.
    ours = json_of(tmp_path / "ours" / "trainer_state.json")
    assert state["total_flos"] > 0 and ours["total_flos"] > state["total_flos"] and ours["num_input_tokens_seen"] > 1280
    # And back again: from ours, Hugging Face's goes on.
    assert "OK 12 12 True" in python(HF_TRAINER, model, tmp_path / "hf2", tmp_path / "ours" / "checkpoint-8", 12)


def test_moments_of_the_hugging_face_trainer_go_to_the_right_parameters(model, data, tmp_path):
    """With a learning rate of nothing, a step leaves the weights and moves the moments from where they were by a tenth."""
    python(HF_TRAINER, model, tmp_path / "hf", "", 4)
    theirs = torch.load(tmp_path / "hf" / "checkpoint-4" / "optimizer.pt", weights_only=True)
    run(
        0, "--model_name_or_path", model, *data, "--do_train", "--max_steps", 5, "--per_device_train_batch_size", 8, "--learning_rate", 0, "--max_grad_norm", 1e-30,
        "--output_dir", tmp_path / "ours", "--resume_from_checkpoint", tmp_path / "hf" / "checkpoint-4", "--save_steps", 1, "--report_to", "none",
    )  # fmt: skip
    ours = torch.load(tmp_path / "ours" / "checkpoint-5" / "optimizer.pt", weights_only=True)
    assert ours["state"].keys() == theirs["state"].keys()
    for number, state in theirs["state"].items():
        # The gradient is clipped to nothing: what is left is nine tenths of theirs.
        assert torch.allclose(ours["state"][number]["exp_avg"], 0.9 * state["exp_avg"], rtol=1e-5, atol=1e-12)
        assert ours["state"][number]["step"] == state["step"] + 1


# ---- What goes wrong ----


def test_only_remains_of_our_own_are_removed(flags, tmp_path):
    """What somebody else calls partial is left alone, whether the run is refused or not."""
    out = tmp_path / "out"
    theirs = [out / "movie.partial", out / "movie.4711.partial", out / "photos.partial" / "1.jpg", out / ".partial-thesis" / "thesis.txt"]
    ours = [out / ".partial-checkpoint-8" / "model.safetensors", out / ".partial-old-checkpoint-4" / "config.json", out / ".trireme-4711-config.json.partial"]
    for path in [*theirs, *ours]:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    done = run(2, *flags, check=False)
    assert done.returncode != 0 and "there is something in it already" in done.stderr
    assert all(path.exists() for path in [*theirs, *ours])
    run(2, *flags, "--overwrite_output_dir", "--max_steps", 1)
    assert all(path.exists() for path in theirs) and not any(path.exists() for path in ours)


def test_other_data_or_another_seed_cannot_be_resumed_with(flags, tmp_path):
    run(2, *flags, "--save_strategy", "steps", "--save_steps", 4, "--max_steps", 4)
    for more, said in [(["--max_train_samples", 30], "features to train on"), (["--seed", 43], "the run had seed 42, not 43")]:
        done = run(2, *flags, *more, check=False)
        assert done.returncode != 0 and said in done.stderr
    write_questions(tmp_path / "train.json", 64, seed=3)  # as many as the run had
    done = run(2, *flags, "--train_file", tmp_path / "train.json", check=False)
    assert done.returncode != 0 and "trireme_state.json.data_hash: the run trained on other data of the same size" in done.stderr
    # A checkpoint of a version that kept another hash.
    state = tmp_path / "out" / "checkpoint-4" / "trireme_state.json"
    kept = json_of(state)
    del kept["data_hash"]
    state.write_text(json.dumps({**kept, "data_fingerprint": 1}))
    run(2, *flags)


def test_a_run_that_had_diverged_is_not_gone_on_with(flags, tmp_path):
    """Its weights are no numbers. The sentence names the last checkpoint that is of use."""
    out, steps = tmp_path / "out", ["--save_strategy", "steps", "--save_steps", 2]
    run(2, *flags, *steps, "--max_steps", 4)
    run(2, *flags, *steps, "--max_steps", 8, "--learning_rate", 1e38)
    assert [json_of(out / f"checkpoint-{step}" / "trireme_state.json")["loss_sum"] is None for step in (2, 4, 6, 8)] == [False, False, True, True]
    done = run(2, *flags, *steps, check=False)
    assert done.returncode != 0
    said = f"checkpoint-8/trireme_state.json.loss_sum: the run had diverged, its loss was no number: go on from before that, with --resume_from_checkpoint {out}/checkpoint-4 or an earlier one, "
    assert said in done.stderr
    run(2, *flags, *steps, "--max_steps", 8, "--resume_from_checkpoint", out / "checkpoint-4")
    assert json_of(out / "checkpoint-8" / "trireme_state.json")["loss_sum"] > 0
    for good in out.glob("checkpoint-*"):
        shutil.rmtree(good)
    shutil.copytree(out / "earlier-1" / "checkpoint-8", out / "checkpoint-8")
    done = run(2, *flags, *steps, check=False)
    assert done.returncode != 0 and "its loss was no number; no checkpoint before it is there: begin anew, with --overwrite_output_dir, and" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system takes root")
def test_a_full_disk_leaves_the_previous_checkpoint_whole(flags, tmp_path):
    """Its size lets one checkpoint in, and not two."""
    one = tmp_path / "measure"
    run(0, *flags, "--output_dir", one, "--max_steps", 2, "--save_strategy", "steps", "--save_steps", 2)
    size = sum(path.stat().st_size for path in (one / "checkpoint-2").iterdir())
    small = tmp_path / "small"
    small.mkdir()
    inside = [
        "unshare", "-m", "sh", "-c",
        'mount -t tmpfs -o size="$0" none "$1" && shift && "$@"; code=$?; ls "$OUT"/checkpoint-2 && cp -r "$OUT"/checkpoint-2 "$KEEP"; exit $code',
        str(int(size * 1.6)), str(small),
    ]  # fmt: skip
    out, keep = small / "out", tmp_path / "kept"
    words = command(0, *flags, "--output_dir", out, "--save_strategy", "steps", "--save_steps", 2)
    done = subprocess.run([*inside, *words], capture_output=True, text=True, timeout=60, env={**os.environ, "OUT": str(out), "KEEP": str(keep)})
    assert done.returncode == 1 and "No space left on device" in done.stderr, done.stderr
    assert weights(keep).keys() == weights(one).keys()
    assert torch.load(keep / "optimizer.pt", weights_only=True)["state"]
