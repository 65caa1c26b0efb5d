"""The commands of Hugging Face's guides, with a script that has run_qa.py's flags: the flags act, on one process and on several."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

from . import programs
from .programs import EXAMPLES, MPIRUN
from .questions import minilm, write_questions

SCRIPT = EXAMPLES / "question_answering.py"
GUIDE = "--do_train --do_eval --per_device_train_batch_size 4 --learning_rate 3e-5 --num_train_epochs 1 --max_seq_length 64 --doc_stride 16"


@pytest.fixture(scope="module")
def mpirun():
    if MPIRUN is None:
        pytest.skip("no mpiexec (Debian: mpich)")
    return MPIRUN


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("questions")
    return {"train": write_questions(folder / "train.json", 24, seed=1), "dev": write_questions(folder / "dev.json", 8, seed=2)}


def run(launcher, flags, files, output, model=None, env=None, script=SCRIPT):
    """The results of a run of the script, and what the script says of its group."""
    command = [*launcher, str(script), "--model_name_or_path", str(model or minilm()), *GUIDE.split(), *flags]
    command += ["--train_file", str(files["train"]), "--validation_file", str(files["dev"]), "--output_dir", str(output)]
    command += ["--report_to", "none", "--disable_tqdm", "True"]
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("TRIREME_", "ACCELERATE_", "CCL_", "OMP_"))}
    clean |= {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore", **(env or {})}
    done = subprocess.run(command, env=clean, cwd=output.parent, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]
    results, group = (json.loads((output / name).read_text()) for name in ("all_results.json", "group.json"))
    return results, {name: group[name] for name in TOGETHER}, done.stderr


TOGETHER = {"backend": "ccl", "world_size": 2, "wrapper": "DistributedDataParallel", "packed": True, "optimizer": "trireme.optim"}
ALONE = {"backend": None, "world_size": 1, "wrapper": "BertForQuestionAnswering", "packed": True, "optimizer": "trireme.optim"}
PYTHON = [sys.executable]
TORCHRUN = [*PYTHON, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "0", "--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0"]


def test_mpirun(files, tmp_path, mpirun):
    """As printed: mpirun -n 2 -genv OMP_NUM_THREADS=23 python3 run_qa.py ... --no_cuda --ddp_backend ccl --use_ipex"""
    launcher = [mpirun, "-n", "2", "-genv", "OMP_NUM_THREADS=23", *PYTHON]
    env = {"MASTER_ADDR": "127.0.0.1", "CCL_WORKER_COUNT": "1"}
    results, group, _ = run(launcher, ["--no_cuda", "--ddp_backend", "ccl", "--use_ipex"], files, tmp_path / "out", env=env)
    assert group == TOGETHER
    assert results["train_loss"] < 5 and 0 <= results["eval_exact_match"] <= results["eval_f1"] <= 100


@pytest.mark.long
def test_torchrun_with_bf16(files, tmp_path):
    _, group, said = run(TORCHRUN, ["--no_cuda", "--ddp_backend", "ccl", "--use_ipex", "--bf16"], files, tmp_path / "out", env={"TRIREME_BF16": "emulate"})
    assert group == TOGETHER
    assert "bf16: computes in fp32" in said


def test_a_job_that_has_come_down_to_one_process(files, tmp_path):
    """It is a group of one, which settles its threads as the larger one did."""
    torchrun = ["1" if word == "2" else word for word in TORCHRUN]
    _, group, said = run(torchrun, ["--no_cuda", "--ddp_backend", "ccl", "--use_ipex", "--max_steps", "2"], files, tmp_path / "out")
    assert group == {**TOGETHER, "world_size": 1}
    assert "local rank 0 of 1: 1 compute thread" in said


def test_one_cpu(files, tmp_path):
    """As printed: python run_qa.py ... --use_ipex --bf16 --no_cuda"""
    _, group, said = run(PYTHON, ["--use_ipex", "--bf16", "--no_cuda"], files, tmp_path / "out", env={"TRIREME_BF16": "emulate"})
    assert group == ALONE
    assert "bf16: computes in fp32" in said


PATCHED = """
import runpy, sys, trireme
trireme.patch_trainer()
sys.path.insert(0, {folder!r})
runpy.run_path({script!r}, run_name="__main__")
"""


def test_a_script_that_says_so_in_python(files, tmp_path):
    """trireme.patch_trainer(), and no flag."""
    script = tmp_path / "script.py"
    script.write_text(PATCHED.format(folder=str(EXAMPLES), script=str(SCRIPT)))
    _, group, _ = run(PYTHON, ["--max_steps", "1"], files, tmp_path / "out", script=script)
    assert group == ALONE


def test_accelerate_launch(files, tmp_path, mpirun):
    """MULTI_CPU through accelerate's own mpirun_config, with a hostfile, and a configuration as it was printed when accelerate knew ccl and ipex: the script
    gets no --use_ipex."""
    hosts = tmp_path / "hostfile"
    hosts.write_text("localhost\n")
    config = tmp_path / "config.yaml"
    config.write_text(
        "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_CPU\nmixed_precision: 'no'\nnum_machines: 1\nnum_processes: 2\nuse_cpu: true\n"
        f"ipex_config:\n  ipex: true\nmpirun_config:\n  mpirun_ccl: '1'\n  mpirun_hostfile: {hosts}\nmachine_rank: 0\nmain_training_function: main\n"
    )
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "mpirun").write_text(f'#!/bin/sh\nexec {mpirun} "$@"\n')
    (tools / "mpirun").chmod(0o755)
    launcher = [*PYTHON, "-m", "accelerate.commands.launch", "--config_file", str(config)]
    env = {"PATH": f"{tools}:{os.environ['PATH']}", "MASTER_ADDR": "127.0.0.1"}
    _, group, _ = run(launcher, ["--ddp_backend", "ccl", "--use_cpu"], files, tmp_path / "out", env=env)
    assert group == TOGETHER


def test_nothing_is_done_that_was_not_asked_for(files, tmp_path):
    _, group, said = run(PYTHON, ["--use_cpu", "--max_steps", "1"], files, tmp_path / "out")
    assert group == {"backend": None, "world_size": 1, "wrapper": "BertForQuestionAnswering", "packed": False, "optimizer": "torch.optim.adamw"}
    assert "trireme" not in said


@pytest.mark.long
def test_all_of_it_without_a_flag(files, tmp_path, mpirun):
    _, group, _ = run([mpirun, "-n", "2", *PYTHON], ["--max_steps", "1"], files, tmp_path / "out", env={"TRIREME_AUTO": "1"})
    assert group == TOGETHER


def test_several_processes_do_not_train_alone(files, tmp_path, mpirun):
    """transformers takes them together by itself with accelerate 1.12; later versions only with --use_cpu."""
    accelerate = pytest.importorskip("accelerate")
    if tuple(int(part) for part in accelerate.__version__.split(".")[:2]) < (1, 13):
        pytest.skip("this accelerate takes a launcher's processes together by itself")
    with pytest.raises(AssertionError, match="2 processes were launched.*--use_cpu"):
        run([mpirun, "-n", "2", *PYTHON], ["--max_steps", "1"], files, tmp_path / "out")


# ---- What the guides preload ----

WRITE_MAPS = """
import os, pathlib, runpy, sys
sys.path.insert(0, {folder!r})
runpy.run_path({script!r}, run_name="__main__")
pathlib.Path(f"maps.{{os.getpid()}}").write_text(pathlib.Path("/proc/self/maps").read_text())
"""


def library(*names: str) -> str | None:
    """LD_LIBRARY_PATH counts, too: the packages need not be installed."""
    folders = [*os.environ.get("LD_LIBRARY_PATH", "").split(":"), f"{sys.prefix}/lib", "/usr/local/lib", "/usr/lib/x86_64-linux-gnu", "/usr/lib/llvm-14/lib"]
    return next((str(path) for folder in folders for name in names if folder and (path := pathlib.Path(folder) / name).exists()), None)


OPENMPS = {"Intel's": "libiomp5.so", "LLVM's": "libomp.so.5"}


@pytest.mark.long
@pytest.mark.parametrize("openmp", OPENMPS)
def test_preloaded_libraries(files, tmp_path, openmp):
    """deploy/kubernetes/pytorchjob.yaml's command. The image has LLVM's under Intel's name."""
    tcmalloc, runtime = library("libtcmalloc_minimal.so.4", "libtcmalloc.so.4"), library(OPENMPS[openmp])
    if tcmalloc is None or runtime is None:
        missing = [name for name, path in (("libtcmalloc (Debian: libtcmalloc-minimal4)", tcmalloc), (f"{OPENMPS[openmp]} (pip: intel-openmp; Debian: libomp5-14)", runtime)) if not path]
        pytest.skip(f"no {', no '.join(missing)}")
    script = tmp_path / "run_qa.py"
    script.write_text(WRITE_MAPS.format(folder=str(EXAMPLES), script=str(SCRIPT)))
    flags = ["--use_cpu", "--ddp_backend", "ccl", "--use_ipex", "--bf16", "--max_steps", "4"]
    env = {"LD_PRELOAD": f"{tcmalloc}:{runtime}", "TRIREME_BF16": "emulate", "CCL_WORKER_COUNT": "1"}
    _, group, said = run([*TORCHRUN, "-m", "trireme.resume"], flags, files, tmp_path / "out", env=env, script=script)
    assert group == TOGETHER and "cannot be preloaded" not in said
    maps = [path.read_text() for path in tmp_path.glob("maps.*")]
    assert len(maps) == 2 and all(os.path.realpath(path) in each for path in (tcmalloc, runtime) for each in maps)


# ---- Checkpoints ----


def without_dropout(folder: pathlib.Path) -> pathlib.Path:
    folder.mkdir()
    for path in minilm().iterdir():
        if path.is_file() and path.name != "config.json":
            (folder / path.name).symlink_to(path)
    config = json.loads((minilm() / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}))
    return folder


def weights_of(folder: pathlib.Path):
    from safetensors.torch import load_file

    return load_file(folder / "model.safetensors")


# By the number of processes. Without trireme.resume, torch does not load theirs on several, nor those of transformers 4.46.
LAUNCHERS = {1: {"theirs": [*PYTHON, "-m", "trireme.resume"], "ours": PYTHON}, 2: {"theirs": [*TORCHRUN, "-m", "trireme.resume"], "ours": TORCHRUN}}


@pytest.mark.long
@pytest.mark.parametrize("processes", LAUNCHERS)
def test_either_resumes_the_others_checkpoint(files, tmp_path, processes):
    import torch

    launchers = LAUNCHERS[processes]
    # accelerate takes a backend for a group, and one process that nobody launched has none.
    flags = {"theirs": ["--use_cpu", *(["--ddp_backend", "gloo"] if processes > 1 else [])], "ours": ["--use_cpu", "--ddp_backend", "ccl", "--use_ipex"]}
    model, steps = without_dropout(tmp_path / "model"), ["--max_steps", "4", "--save_strategy", "steps", "--save_steps", "2", "--seed", "3"]
    # One sequence a batch: no padding, which transformers lets take part in the softmax over the positions.
    steps += ["--pad_to_max_length", "False", "--per_device_train_batch_size", "1"]
    for who, own in flags.items():
        _, group, _ = run(launchers[who], [*own, *steps], files, tmp_path / who, model)
        assert group["world_size"] == processes
    for who, other in (("ours", "theirs"), ("theirs", "ours")):
        resumed = tmp_path / f"{who}-resumed"
        checkpoint = tmp_path / other / "checkpoint-2"
        assert (checkpoint / "optimizer.pt").exists()
        run(launchers[who], [*flags[who], *steps, "--resume_from_checkpoint", str(checkpoint)], files, resumed, model)
        expected = weights_of(tmp_path / "theirs")
        begin = weights_of(checkpoint)
        for name, weight in weights_of(resumed).items():
            if weight.dim() == 1:
                continue  # the biases of keys, of the head and of the last LayerNorm shift a softmax: AdamW makes steps of rounding alone
            moved = (expected[name] - begin[name]).abs().max().item()
            # AdamW divides by the root of the second moment: where a single gradient is all rounding, its sign is too, and a step may differ by
            # the whole learning rate. So: the mean of the differences, against how far the weights came.
            difference = (weight - expected[name]).abs().mean().item()
            assert difference <= 1e-3 * moved, f"{who} from {other}: {name}: {difference} of {moved}"
        state = torch.load(resumed / "checkpoint-4" / "optimizer.pt", weights_only=True)
        assert all(entry["step"] == 4 for entry in state["state"].values())
        schedulers = [torch.load(folder / "checkpoint-4" / "scheduler.pt", weights_only=True) for folder in (resumed, tmp_path / "theirs")]
        assert schedulers[0] == schedulers[1] and schedulers[0]["last_epoch"] == 4


# ---- What --bf16 computes in ----

# Without --use_ipex: an optimized model leaves autocast by itself, whatever the Trainer does.
BF16 = """
import json, torch, transformers

parser = transformers.HfArgumentParser(transformers.TrainingArguments)
arguments, = parser.parse_args_into_dataclasses()
shape = dict(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32)
model = transformers.BertForSequenceClassification(transformers.BertConfig(vocab_size=50, **shape))
seen = set()
model.classifier.register_forward_pre_hook(lambda head, inputs: seen.add(torch.is_autocast_enabled("cpu")))
data = [dict(input_ids=torch.arange(5), labels=torch.tensor(0))] * 8
transformers.Trainer(model, arguments, train_dataset=data).train()
sizes = [torch.distributed.get_world_size() if torch.distributed.is_initialized() else 1, *seen]
print(json.dumps({"size_and_autocast": sizes}))
"""


@pytest.mark.parametrize("launcher", [None, pytest.param("torchrun", marks=pytest.mark.long)])
@pytest.mark.parametrize(("choice", "autocast"), [("emulate", False), ("native", True)])
def test_bf16_computes_as_the_plan_says(tmp_path, launcher, choice, autocast):
    script = tmp_path / "script.py"
    script.write_text(BF16)
    flags = ["--output_dir", tmp_path / "out", "--max_steps", "2", "--save_strategy", "no", "--report_to", "none", "--per_device_train_batch_size", "2"]
    env = {"TRIREME_BF16": choice, "ONEDNN_MAX_CPU_ISA": "AVX512_CORE"}  # there are CPUs on which AMX ends the process
    done = programs.run(script, *flags, "--no_cuda", "--bf16", "--ddp_backend", "ccl", logs=tmp_path, launcher=launcher, env=env)
    assert done.result["size_and_autocast"] == [2 if launcher else 1, autocast]
