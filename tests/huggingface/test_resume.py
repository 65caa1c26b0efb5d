"""python -m trireme.resume: scripts of Hugging Face's Trainer go on from the newest checkpoint that is whole, however they were ended."""

import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
from datetime import timedelta

import pytest

from tests.cluster.hosts import why_not

torch = pytest.importorskip("torch")
safetensors_torch = pytest.importorskip("safetensors.torch")
resume = pytest.importorskip("trireme.resume")

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
NO_MOUNTS = why_not()
SCRIPT = "import json, os, sys\nprint(json.dumps([sys.argv, __name__, sys.path[0]]))\n"


def make_checkpoint(output_dir: pathlib.Path, step: int) -> pathlib.Path:
    """What HF's Trainer leaves, as far as it matters."""
    folder = output_dir / f"checkpoint-{step}"
    folder.mkdir(parents=True)
    safetensors_torch.save_file({"weight": torch.ones(1000), "bias": torch.zeros(3)}, folder / "model.safetensors")
    torch.save({"state": {0: torch.ones(1000)}}, folder / "optimizer.pt")
    torch.save({"last_epoch": step}, folder / "scheduler.pt")
    for rank in (0, 1):
        torch.save({"cpu": torch.get_rng_state()}, folder / f"rng_state_{rank}.pth")
    (folder / "trainer_state.json").write_text(json.dumps({"global_step": step, "epoch": 1.0}))
    return folder


def cut_short(path: pathlib.Path) -> None:
    os.truncate(path, path.stat().st_size * 2 // 3)


def make_unreadable(path: pathlib.Path) -> None:
    """As root, too."""
    path.unlink()
    path.mkdir()


def start(tmp_path: pathlib.Path, *arguments, **environment) -> tuple[list[str], str]:
    """The arguments that a script gets, and what was said."""
    script = tmp_path / "folder" / "script.py"
    script.parent.mkdir(exist_ok=True)
    script.write_text(SCRIPT)
    command = [sys.executable, "-m", "trireme.resume", str(script), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, env={**os.environ, **environment})
    assert done.returncode == 0, done.stderr
    words, name, path = json.loads(done.stdout)
    assert (words[0], name, path) == (str(script), "__main__", str(script.parent))
    return words[1:], done.stderr


def test_the_newest_checkpoint_is_passed_on(tmp_path):
    out = tmp_path / "out"
    for step in (5, 20, 100):
        make_checkpoint(out, step)
    (out / "checkpoint-best").mkdir()
    words, said = start(tmp_path, "--output_dir", out, "--do_train")
    assert words == ["--output_dir", str(out), "--do_train", "--resume_from_checkpoint", str(out / "checkpoint-100")]
    assert f"goes on from {out}/checkpoint-100" in said
    assert start(tmp_path, f"--output_dir={out}")[0] == [f"--output_dir={out}", "--resume_from_checkpoint", str(out / "checkpoint-100")]


def test_flags_may_have_hyphens(tmp_path):
    """HfArgumentParser takes both; a parser of the script's own that has hyphens gets hyphens."""
    out = tmp_path / "out"
    make_checkpoint(out, 5)
    named = make_checkpoint(tmp_path / "earlier", 7)
    flag = "--resume-from-checkpoint"
    assert start(tmp_path, "--output-dir", out)[0] == ["--output-dir", str(out), flag, str(out / "checkpoint-5")]
    assert start(tmp_path, f"--output-dir={out}", f"{flag}={named}")[0] == [f"--output-dir={out}", flag, str(named)]
    assert start(tmp_path, "--output_dir", out, flag, named, "--do_train")[0] == ["--output_dir", str(out), "--do_train", "--resume_from_checkpoint", str(named)]


def test_a_checkpoint_that_is_not_whole_is_passed_over_with_a_sentence(tmp_path):
    out = tmp_path / "out"
    make_checkpoint(out, 5)
    reasons = {
        10: ("model.safetensors", cut_short, "model.safetensors is cut short"),
        20: ("optimizer.pt", cut_short, "optimizer.pt is cut short"),
        30: ("trainer_state.json", pathlib.Path.unlink, "no trainer_state.json"),
        40: ("trainer_state.json", cut_short, "trainer_state.json is cut short"),
        50: ("scheduler.pt", pathlib.Path.unlink, "it has no scheduler.pt"),
        60: ("model.safetensors", pathlib.Path.unlink, "it has no weights"),
        70: ("model.safetensors", lambda path: path.write_bytes(b""), "model.safetensors is cut short"),
        80: ("rng_state_1.pth", cut_short, "rng_state_1.pth is cut short"),
        90: ("trainer_state.json", make_unreadable, "trainer_state.json cannot be read"),
    }
    for step, (name, spoil, _) in reasons.items():
        spoil(make_checkpoint(out, step) / name)
    words, said = start(tmp_path, "--output_dir", out)
    assert words[-1] == str(out / "checkpoint-5")
    for step, (_, _, reason) in reasons.items():
        assert any(f"checkpoint-{step} is passed over" in line and reason in line for line in said.splitlines()), (step, said)
    assert len(list(out.glob("checkpoint-*"))) == 10, "nothing is removed"


def test_shards_are_looked_at_each(tmp_path):
    checkpoint = make_checkpoint(tmp_path / "out", 5)
    (checkpoint / "model.safetensors").rename(checkpoint / "model-1-of-2.safetensors")
    safetensors_torch.save_file({"b": torch.ones(10)}, checkpoint / "model-2-of-2.safetensors")
    index = {"weight_map": {"weight": "model-1-of-2.safetensors", "b": "model-2-of-2.safetensors"}}
    (checkpoint / "model.safetensors.index.json").write_text(json.dumps(index))
    assert resume.why_not_whole(checkpoint) is None
    cut_short(checkpoint / "model-2-of-2.safetensors")
    assert resume.why_not_whole(checkpoint) == "model-2-of-2.safetensors is cut short"


def test_where_none_is_whole_the_script_must_not_find_one(tmp_path):
    """run_qa.py up to 4.57 takes the last folder of that name."""
    out = tmp_path / "out"
    cut_short(make_checkpoint(out, 5) / "optimizer.pt")
    words, said = start(tmp_path, "--output_dir", out, "--resume_from_checkpoint", "True")
    assert words == ["--output_dir", str(out)] and "checkpoint-5 is passed over" in said
    assert list(out.iterdir()) == [] and (tmp_path / "out.incomplete" / "checkpoint-5" / "model.safetensors").exists()
    assert f"{out}/checkpoint-5 is moved to {out}.incomplete/checkpoint-5" in said
    assert start(tmp_path, "--output_dir", tmp_path / "nothing")[0] == ["--output_dir", str(tmp_path / "nothing")]


# What run_qa.py up to 4.57 does with its folder before it trains. Killed while it writes its first checkpoint, where a file "kill" tells it.
RUN_QA = """
import os, pathlib, re, signal, sys
out, kill = pathlib.Path(sys.argv[2]), pathlib.Path(__file__).with_name("kill")
if out.is_dir():
    if not any(re.fullmatch(r"checkpoint-\\d+", each.name) and each.is_dir() for each in out.iterdir()) and len(os.listdir(out)) > 0:
        raise ValueError(f"Output directory ({out}) already exists and is not empty. Use --overwrite_output_dir to overcome.")
checkpoint = out / "checkpoint-200"
checkpoint.mkdir(parents=True)
(checkpoint / "model.safetensors").write_bytes(b"half of it")
if kill.exists():
    (checkpoint / kill.read_text()).touch()
    os.kill(os.getpid(), signal.SIGKILL)
print("trained")
"""


def run_qa(tmp_path, out, kill=None, prefix=()) -> subprocess.CompletedProcess:
    (tmp_path / "run_qa.py").write_text(RUN_QA)
    (tmp_path / "kill").write_text(kill) if kill else (tmp_path / "kill").unlink(missing_ok=True)
    command = [*prefix, sys.executable, "-m", "trireme.resume", str(tmp_path / "run_qa.py"), "--output_dir", str(out)]
    return subprocess.run(command, capture_output=True, text=True, timeout=240)


def test_a_kill_during_the_first_checkpoint_stops_no_later_start(tmp_path):
    """Nor do such checkpoints pile up."""
    out = tmp_path / "out"
    for killed in ("first", "second"):
        assert run_qa(tmp_path, out, kill=killed).returncode == -signal.SIGKILL
    done = run_qa(tmp_path, out)
    assert done.stdout == "trained\n", done.stderr
    assert sorted(each.name for each in (tmp_path / "out.incomplete").rglob("*")) == ["checkpoint-200", "model.safetensors", "second"]


# Mounts the folder that follows on itself: nothing can be renamed from it to a place beside it.
MOUNTED = ["unshare", "--mount", "sh", "-c", 'mount --bind "$0" "$0" && exec "$@"']


@pytest.mark.skipif(NO_MOUNTS is not None, reason=f"{NO_MOUNTS}")
def test_where_the_output_directory_is_a_mount_nothing_is_deleted(tmp_path):
    """What looks broken may be of a kind that is not known here, or not be seen whole yet on this host."""
    out = tmp_path / "out"
    assert run_qa(tmp_path, out, kill="first").returncode == -signal.SIGKILL
    done = run_qa(tmp_path, out, prefix=[*MOUNTED, str(out)])
    assert done.returncode == 1 and (out / "checkpoint-200" / "first").exists() and not (tmp_path / "out.incomplete").exists()
    assert f"{out}/checkpoint-200 is in the script's way and cannot be moved to {out}.incomplete/checkpoint-200: Invalid cross-device link" in done.stderr


def test_what_lies_aside_and_was_finished_stays(tmp_path):
    """A checkpoint of a kind that is not known here."""
    out = tmp_path / "out"
    for _ in range(3):
        checkpoint = make_checkpoint(out, 5)
        (checkpoint / "model.safetensors").unlink()
        start(tmp_path, "--output_dir", out)
    assert sorted(each.name for each in (tmp_path / "out.incomplete").iterdir()) == ["checkpoint-5", "checkpoint-5.1", "checkpoint-5.2"]


def test_a_checkpoint_that_the_user_names_counts_until_there_is_a_newer_one(tmp_path):
    named, out = make_checkpoint(tmp_path / "earlier", 7), tmp_path / "out"
    assert start(tmp_path, "--output_dir", out, "--resume_from_checkpoint", named)[0][-1] == str(named)
    make_checkpoint(out, 9)
    assert start(tmp_path, "--output_dir", out, f"--resume_from_checkpoint={named}")[0][-2:] == ["--resume_from_checkpoint", str(out / "checkpoint-9")]


def test_what_the_user_names_is_taken_as_it_is(tmp_path):
    """Nothing is said against it, and it keeps its name."""
    out = tmp_path / "out"
    named, newer = make_checkpoint(out, 7), make_checkpoint(out, 9)
    for checkpoint in (named, newer):
        cut_short(checkpoint / "optimizer.pt")
    words, said = start(tmp_path, "--output_dir", out, "--resume_from_checkpoint", named)
    assert words[-1] == str(named) and f"goes on from {named}, which --resume_from_checkpoint names" in said
    assert "checkpoint-9 is passed over" in said and "checkpoint-7 is passed over" not in said
    assert named.exists() and newer.exists()


def test_weights_alone_are_a_checkpoint_too(tmp_path):
    """--save_only_model writes them and trainer_state.json."""
    checkpoint = make_checkpoint(tmp_path / "out", 5)
    for name in ("optimizer.pt", "scheduler.pt", "rng_state_0.pth", "rng_state_1.pth"):
        (checkpoint / name).unlink()
    words, said = start(tmp_path, "--output_dir", tmp_path / "out", "--save_only_model")
    assert words[-1] == str(checkpoint) and checkpoint.exists() and "weights alone" in said and "passed over" not in said


def test_without_an_output_dir_it_says_so(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    done = subprocess.run([sys.executable, "-m", "trireme.resume", str(tmp_path / "script.py")], capture_output=True, text=True, timeout=240)
    assert done.returncode == 1 and "no --output_dir" in done.stderr


def test_processes_that_nobody_has_counted_do_not_all_choose(tmp_path):
    """mpirun -pmi-port."""
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, "-m", "trireme.resume", str(tmp_path / "script.py"), "--output_dir", str(tmp_path / "out")]
    done = subprocess.run(command, env={**os.environ, "PMI_PORT": "node0:40715", "PMI_ID": "1"}, capture_output=True, text=True, timeout=240)
    assert done.returncode == 1 and "trireme.resume: this process was started by mpirun -pmi-port" in done.stderr
    alone = {**os.environ, "PMI_PORT": "node0:40715", "PMI_ID": "1", "TRIREME_ALONE": "1"}
    assert subprocess.run(command, env=alone, capture_output=True, text=True, timeout=240).returncode == 0


def test_an_optimizers_state_can_be_loaded_to_a_numbered_cpu(tmp_path):
    """As the Trainer does on several processes; torch alone refuses it."""
    torch.save({"state": torch.ones(3)}, tmp_path / "optimizer.pt")
    script = tmp_path / "script.py"
    script.write_text("import sys, torch\nprint(torch.load(sys.argv[3], map_location=torch.device('cpu', 0), weights_only=True)['state'].sum())\n")
    words = [str(script), "--output_dir", str(tmp_path), str(tmp_path / "optimizer.pt")]
    alone, resumed = (subprocess.run([sys.executable, *start, *words], capture_output=True, text=True, timeout=240) for start in ([], ["-m", "trireme.resume"]))
    assert "don't know how to restore data location" in alone.stderr
    assert resumed.stdout == "tensor(3.)\n", resumed.stderr


# ---- Several ranks: rank 0 chooses


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def rank_env(rank: int, size: int, port: int, **more: str) -> dict[str, str]:
    return {"RANK": str(rank), "WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "CCL_KVS_CONNECTION_TIMEOUT": "250", **more}


class Rank(threading.Thread):
    """resumed(), as one rank calls it. `result` is what it returns or raises."""

    def __init__(self, env: dict[str, str], *arguments):
        super().__init__(daemon=True)
        self._env, self._arguments, self.result = env, [str(each) for each in arguments], None
        self.start()

    def run(self) -> None:
        try:
            self.result = resume.resumed(self._arguments, self._env)
        except Exception as error:
            self.result = error

    def ended(self):
        self.join(120)
        assert not self.is_alive(), "no end after 120 s"
        return self.result


GROUP = """
import json, sys, torch, torch.distributed as dist
dist.init_process_group("gloo")
sum = torch.ones(1)
dist.all_reduce(sum)
print(json.dumps([sys.argv[1:], sum.item()]))
dist.destroy_process_group()  # gloo's threads may end an exiting process otherwise
"""


def test_every_rank_goes_on_from_rank_0s_choice(tmp_path):
    """Rank 1 sees other folders than rank 0, as on a network's file system that shows it an old listing: it takes rank 0's and touches none. The store of the
    script's own group then listens where rank 0 did."""
    seen_by = [tmp_path / "seen by rank 0", tmp_path / "seen by rank 1"]
    chosen, old = make_checkpoint(seen_by[0], 20), make_checkpoint(seen_by[1], 5)
    (old / "trainer_state.json").unlink()
    script = tmp_path / "group.py"
    script.write_text(GROUP)
    port = free_port()
    ranks = []
    for rank in (1, 0):
        command = [sys.executable, "-m", "trireme.resume", str(script), "--output_dir", str(seen_by[rank])]
        env = {**os.environ, **rank_env(rank, 2, port)}
        ranks.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env))
    for rank, process in zip((1, 0), ranks):
        out, said = process.communicate(timeout=300)
        assert process.returncode == 0, said
        assert json.loads(out) == [["--output_dir", str(seen_by[rank]), "--resume_from_checkpoint", str(chosen)], 2.0]
        assert (f"goes on from {chosen}" in said) == (rank == 0)
    assert [each.name for each in seen_by[1].iterdir()] == ["checkpoint-5"]


def test_ranks_that_do_not_come_are_named(tmp_path):
    port = free_port()
    ranks = [Rank(rank_env(rank, 4, port, CCL_KVS_CONNECTION_TIMEOUT="3"), "--output_dir", tmp_path) for rank in (0, 2)]
    first, second = (str(rank.ended()) for rank in ranks)
    assert "after 3 s ranks 1, 3 of 4 have not come" in first and "CCL_KVS_CONNECTION_TIMEOUT" in first
    assert second == "rank 2: rank 0 has ended without a choice; its own message says why"
    assert "rank 1: rank 0 was not found within 1 s" in str(Rank(rank_env(1, 2, port, CCL_KVS_CONNECTION_TIMEOUT="1"), "--output_dir", tmp_path).ended())


def test_strangers_at_the_port_do_no_harm(tmp_path):
    chosen, port = make_checkpoint(tmp_path / "out", 20), free_port()
    first = Rank(rank_env(0, 3, port), "--output_dir", tmp_path / "out")
    strangers = []
    for said in (b"", b"GET / HTTP/1.0\r\n\r\n", b"\0" * 1000, b"trireme.resume 1 of 2\n", b"trireme.resume 7 of 3\n", b"trireme.resume 1 of 3\n"):
        while True:
            try:
                strangers.append(socket.create_connection(("127.0.0.1", port), timeout=30))
                break
            except ConnectionRefusedError:
                assert first.is_alive(), first.result
        strangers[-1].sendall(said)
        if said == b"trireme.resume 1 of 3\n":  # one that leaves again, if only half, is not counted
            assert strangers[-1].recv(64) == b"trireme.resume\n"
            strangers[-1].shutdown(socket.SHUT_WR)
            assert strangers[-1].recv(64) == b"", "rank 0 has closed it"
    others = [Rank(rank_env(rank, 3, port), "--output_dir", tmp_path / "elsewhere") for rank in (2, 1)]
    assert [each.ended()[-1] for each in (first, *others)] == [str(chosen)] * 3
    for stranger in strangers:
        stranger.close()


def test_an_agents_store_leads_to_rank_0(tmp_path, monkeypatch):
    """Also one that has the address of an earlier start, where nobody listens, or somebody else does, who says nothing."""
    monkeypatch.setattr("trireme._first_word.GREETING_S", 3.0)
    chosen = make_checkpoint(tmp_path / "out", 20)
    for stale in (free_port(), None):
        store = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=30))
        store.set("trireme.resume/rank0", json.dumps(["127.0.0.1", stale or store.port]))
        env = {"TORCHELASTIC_USE_AGENT_STORE": "True"}
        late = Rank(rank_env(1, 2, store.port, **env), "--output_dir", tmp_path / "elsewhere")
        late.join(1)
        assert late.is_alive(), late.result
        first = Rank(rank_env(0, 2, store.port, **env), "--output_dir", tmp_path / "out")
        assert [each.ended()[-1] for each in (first, late)] == [str(chosen)] * 2


def test_a_checkpoint_that_does_not_show_is_named(tmp_path):
    with pytest.raises(TimeoutError, match=f"rank 0 goes on from {tmp_path}/checkpoint-3, and there is none on this host"):
        resume._wait_until_it_shows(tmp_path / "checkpoint-3", 0.5)
    timer = threading.Timer(0.5, make_checkpoint, (tmp_path, 4))
    timer.start()
    resume._wait_until_it_shows(tmp_path / "checkpoint-4", 60)
    timer.join()


# ---- Hugging Face's Trainer itself


# Writes down which samples a rank has trained on in which step. Ends after --stop_at steps, as if it had been killed after its checkpoint.
TRAINER = """
import argparse, os, pathlib, torch, transformers
parser = argparse.ArgumentParser()
for name in ("model", "output_dir", "ledger", "resume_from_checkpoint"): parser.add_argument("--" + name)
parser.add_argument("--stop_at", type=int, default=0)
given = parser.parse_args()
data = [dict(input_ids=torch.full((8,), 5 + i), attention_mask=torch.ones(8, dtype=torch.long), start_positions=torch.tensor(1), end_positions=torch.tensor(2))
        for i in range(64)]
class Noting(transformers.Trainer):
    def training_step(self, model, inputs, *more):
        with open(f"{given.ledger}.{self.args.process_index}", "a") as ledger:
            for ids in inputs["input_ids"]: print(self.state.global_step, int(self.state.epoch), int(ids[0]) - 5, file=ledger)
        return super().training_step(model, inputs, *more)
class Stop(transformers.TrainerCallback):
    def on_save(self, args, state, control, **more):
        if state.global_step == given.stop_at: os._exit(0)
arguments = transformers.TrainingArguments(output_dir=given.output_dir, per_device_train_batch_size=4, num_train_epochs=1, save_steps=4, use_cpu=True,
                                           report_to=[], disable_tqdm=True, seed=1, ddp_backend="gloo")
model = transformers.AutoModelForQuestionAnswering.from_pretrained(given.model)
trainer = Noting(model, arguments, train_dataset=data, callbacks=[Stop()])
trainer.train(resume_from_checkpoint=given.resume_from_checkpoint)
os._exit(0)  # the threads of torch's gloo end some processes with SIGABRT where they leave in good order, without Trireme, too
"""


def samples_seen(folder: pathlib.Path, model: pathlib.Path, before: int, after: int) -> tuple[int, int]:
    """(lost, repeated) of an epoch of 64 samples that was stopped after 4 steps and gone on with, on another number of processes."""
    (folder / "trainer.py").write_text(TRAINER)
    flags = ["--model", str(model), "--output_dir", str(folder / "out")]
    for processes, more in [(before, ["--stop_at", "4", "--ledger", str(folder / "a")]), (after, ["--ledger", str(folder / "b")])]:
        launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
        words = [*launcher, "-m", "trireme.resume", str(folder / "trainer.py"), *flags, *more]
        done = subprocess.run(words, capture_output=True, text=True, timeout=300, env={**os.environ, "OMP_NUM_THREADS": "1"})
        assert done.returncode == 0, done.stderr[-3000:]
    assert "goes on from" in done.stderr
    lines = [line.split() for part in sorted(folder.glob("[ab].*")) for line in part.read_text().splitlines()]
    seen = [int(sample) for _, epoch, sample in lines if epoch == "0"]
    return 64 - len(set(seen)), len(seen) - len(set(seen))


@pytest.mark.long
@pytest.mark.parametrize(
    ("before", "after", "lost", "repeated"),
    [(2, 2, 0, 0), (2, 1, 0, 16), (1, 2, 16, 0)],
    ids=["as many processes", "fewer", "more"],
)
def test_what_hugging_faces_own_resume_does_to_samples(tmp_path, before, after, lost, repeated):
    """It counts steps, and a step has as many samples as there are processes; `trireme qa` counts samples. docs/huggingface.md says so."""
    from tests.trainer.runs import tiny_model

    assert samples_seen(tmp_path, tiny_model(tmp_path / "model"), before, after) == (lost, repeated)
