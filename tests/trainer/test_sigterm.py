"""SIGTERM, as a pod's eviction brings it: `trireme qa` saves the last completed step and ends with 143 within 20 s, never with 0."""

import contextlib
import os
import pathlib
import random
import signal
import time

import pytest

from .runs import Started, json_of, needs_program, questions, run

pytestmark = needs_program

BOUND_S = 20
FOREVER = ["--num_train_epochs", 100000, "--logging_steps", 1]


def saved_step(out: pathlib.Path) -> int:
    (checkpoint,) = out.glob("checkpoint-*")
    return json_of(checkpoint / "trireme_state.json")["global_step"]


def test_one_process_saves_the_last_step(flags, tmp_path):
    with Started(0, *flags, *FOREVER, log=tmp_path / "log") as started:
        started.wait_for("^step 5/")
        started.process.send_signal(signal.SIGTERM)
        code, seconds = started.end()
    assert code == 143 and seconds < BOUND_S, started.output()
    assert saved_step(tmp_path / "out") >= 5 and f"SIGTERM: step {saved_step(tmp_path / 'out')} is saved" in started.output()


def test_it_is_said_which_flags_to_leave_out(flags, tmp_path):
    """With --overwrite_output_dir the same command would begin from nothing."""
    flags = [*flags, "--save_total_limit", 1]
    with Started(0, *flags, *FOREVER, "--overwrite_output_dir", log=tmp_path / "log") as started:
        started.wait_for("^step 5/")
        started.process.send_signal(signal.SIGTERM)
        started.end()
    step = saved_step(tmp_path / "out")
    assert f"SIGTERM: step {step} is saved; give the same command without --overwrite_output_dir to go on" in started.output()
    assert f"step {step}\n" in run(0, *flags, "--max_steps", step + 1).stderr


@pytest.mark.parametrize("told", [0, 1])
def test_where_one_rank_is_told_all_save_the_same_step(flags, tmp_path, told):
    with Started(2, *flags, *FOREVER, log=tmp_path / "log") as started:
        started.wait_for("^step 5/")
        os.kill(started.ranks()[told], signal.SIGTERM)
        code, seconds = started.end()
    assert code == 143 and seconds < BOUND_S, started.output()
    assert f"SIGTERM: step {saved_step(tmp_path / 'out')} is saved" in started.output() and "rank" not in started.output().partition("SIGTERM")[2]


def test_a_rank_that_waits_for_a_stopped_one_saves_alone(flags, tmp_path):
    """No step will ever be completed: the last one is saved after some patience."""
    with Started(2, *flags, *FOREVER, log=tmp_path / "log") as started:
        started.wait_for("^step 5/")
        first, second = started.ranks()
        os.kill(second, signal.SIGSTOP)
        time.sleep(0.5)
        start = time.monotonic()
        os.kill(first, signal.SIGTERM)
        while first in started.ranks() and time.monotonic() - start < 30:
            time.sleep(0.05)
        seconds = time.monotonic() - start
        with contextlib.suppress(ProcessLookupError):  # mpirun may have been faster
            os.kill(second, signal.SIGKILL)
        code, _ = started.end()
    assert code != 0 and 1 < seconds < BOUND_S, started.output()
    assert saved_step(tmp_path / "out") >= 5
    run(2, *flags)  # and it can be gone on from


@pytest.mark.long
def test_however_long_a_save_takes_nobody_ends_before_it_is_done(flags, tmp_path):
    """mpirun would end the rank that writes, in the middle of it."""
    with Started(2, *flags, *FOREVER, "--save_strategy", "steps", "--save_steps", 1, "--save_total_limit", 1, log=tmp_path / "log") as started:
        started.wait_for("^step 5/")
        first, second = started.ranks()
        deadline = time.monotonic() + 30
        while True:
            os.kill(first, signal.SIGSTOP)
            if list((tmp_path / "out").glob(".partial-checkpoint-*")):
                break
            os.kill(first, signal.SIGCONT)
            assert time.monotonic() < deadline, "it never saves"
            time.sleep(0.003)
        for rank in (first, second):
            os.kill(rank, signal.SIGTERM)
        time.sleep(18)  # longer than the second has patience otherwise
        assert second in started.ranks()
        os.kill(first, signal.SIGCONT)
        code, seconds = started.end()
    assert code == 143 and seconds < BOUND_S, started.output()
    assert f"SIGTERM: step {saved_step(tmp_path / 'out')} is saved" in started.output()


def test_while_data_is_prepared_there_is_nothing_to_save(flags, tmp_path):
    many = questions(tmp_path, train=60000)
    with Started(0, *flags, *many, log=tmp_path / "log") as started:
        started.wait_for("^1 process")
        started.process.send_signal(signal.SIGTERM)
        code, seconds = started.end()
    assert code == 143 and seconds < 5 and "train.json:" not in started.output(), started.output()
    run(0, *flags)  # in the same folder


def test_a_file_that_was_being_written_is_no_hindrance(flags, tmp_path):
    """Killed while it wrote the file that says that the folder is its own."""
    out = pathlib.Path(flags[list(flags).index("--output_dir") + 1])
    out.mkdir(parents=True, exist_ok=True)
    (out / ".trireme-4711-.unfinished.partial").write_text("trireme qa tr")
    run(0, *flags)
    assert not list(out.glob(".trireme-*"))


@pytest.mark.parametrize("when", ["while it trains", "at the end"])
def test_an_evaluation_is_given_up(flags, tmp_path, when):
    """What was trained is saved; the evaluation begins anew, if it was the last thing to do."""
    many = questions(tmp_path, train=64, dev=12000)
    between = ["--eval_strategy", "steps", "--eval_steps", 3] if when == "while it trains" else []
    with Started(2, *flags, *many, "--do_eval", "--logging_steps", 1, *between, log=tmp_path / "log") as started:
        started.wait_for("^step 3/" if between else "train metrics")
        time.sleep(0.05)
        for rank in started.ranks():
            os.kill(rank, signal.SIGTERM)
        code, seconds = started.end()
    assert code == 143 and seconds < BOUND_S, started.output()
    assert not (tmp_path / "out" / "eval_results.json").exists() and "eval metrics" not in started.output()
    assert saved_step(tmp_path / "out") == (3 if between else 16)
    done = run(2, *flags, *many, "--do_eval")
    assert "goes on from" in done.stderr and "eval metrics" in done.stdout


def test_whenever_it_comes_the_end_is_143_and_the_weights_are_the_same(flags, tmp_path):
    flags = [*flags, "--num_train_epochs", 20, "--do_eval"]
    start = time.monotonic()
    run(2, *flags, "--output_dir", tmp_path / "undisturbed")
    seconds = time.monotonic() - start
    chance = random.Random(3)
    for attempt in range(6):
        with Started(2, *flags, log=tmp_path / "log") as started:
            if attempt == 0:
                started.wait_for("^step 4/")  # for a checkpoint: the folder of a finished run without one is refused from then on
            else:
                time.sleep(chance.uniform(0.3, seconds))
            ranks = started.ranks()
            if len(ranks) < 2:
                continue  # it was faster
            with contextlib.suppress(ProcessLookupError):
                os.kill(chance.choice(ranks), signal.SIGTERM)
            code, seconds_to_end = started.end()
            done = "eval metrics" in started.output()
            assert code != 0 or done, started.output()
            assert seconds_to_end < BOUND_S
    run(2, *flags)
    assert (tmp_path / "out" / "model.safetensors").read_bytes() == (tmp_path / "undisturbed" / "model.safetensors").read_bytes()


# ---- Started again by torchrun, with the same arguments


RESTARTED = {"TORCHELASTIC_MAX_RESTARTS": "3"}


def test_a_run_that_died_before_its_first_checkpoint_begins_again_in_its_folder(flags, tmp_path):
    """There is TensorBoard's folder, and no checkpoint: a stranger's folder would be refused."""
    with Started(0, *flags, *FOREVER, "--report_to", "tensorboard", log=tmp_path / "log") as started:
        started.wait_for("^step 2/")
        started.process.kill()
    assert list((tmp_path / "out").glob("runs/*")) and not list((tmp_path / "out").glob("checkpoint-*"))
    run(0, *flags, "--report_to", "tensorboard")
    assert not (tmp_path / "out" / ".unfinished").exists()
    for each in (tmp_path / "out").glob("checkpoint-*"):
        raise AssertionError(each)
    done = run(0, *flags, check=False)
    assert done.returncode == 2 and "there is something in it already" in done.stderr, "a finished run is a stranger's again"


def test_arguments_that_would_begin_anew_at_each_start_are_refused(flags, tmp_path):
    done = run(0, *flags, "--overwrite_output_dir", check=False, **RESTARTED)
    assert done.returncode == 2 and "each start would begin from nothing" in done.stderr


def test_the_checkpoint_that_was_named_gives_way_to_a_newer_one_of_the_job(flags, tmp_path):
    first = [*flags, "--save_strategy", "steps", "--save_steps", 4]
    run(0, *first, "--max_steps", 8, "--output_dir", tmp_path / "first")
    named = ["--resume_from_checkpoint", tmp_path / "first" / "checkpoint-4", "--max_steps", 12]
    assert "step 4" in run(0, *first, *named, **RESTARTED).stderr
    done = run(0, *first, *named, "--max_steps", 16, **RESTARTED)
    assert "goes on from" in done.stderr and "checkpoint-12, step 12" in done.stderr
    assert "step 4" in run(0, *first, *named, "--max_steps", 16).stderr, "without restarts it is what counts"
