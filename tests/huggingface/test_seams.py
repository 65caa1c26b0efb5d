"""What is changed in transformers and accelerate, and what is not: each in a process of its own, as a script would see it."""

import os
import subprocess
import sys
import textwrap

import pytest

transformers = pytest.importorskip("transformers", reason="transformers is not installed: pip install -r tests/requirements.txt")


def run(program: str, *arguments: str, **env: str) -> str:
    """What a program prints."""
    done = attempt(program, *arguments, **env)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout.strip()


def attempt(program: str, *arguments: str, **env: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(program), *arguments]
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("TRIREME_", "ACCELERATE_"))}
    return subprocess.run(command, env={**clean, "OMP_NUM_THREADS": "1", **env}, capture_output=True, text=True, timeout=120)


PARSE = """
    from transformers import HfArgumentParser, {kind}
    {arguments}, = HfArgumentParser({kind}).parse_args_into_dataclasses()
    print(a.use_cpu, a.use_ipex, a.ddp_backend, a.device)
"""


@pytest.mark.parametrize("kind", ["TrainingArguments", pytest.param("Seq2SeqTrainingArguments", marks=pytest.mark.long)])
def test_flags_are_parsed(kind):
    flags = ["--output_dir", "out", "--no_cuda", "--use_ipex", "--ddp_backend", "ccl"]
    assert run(PARSE.format(kind=kind, arguments="a"), *flags) == "True True ccl cpu"
    assert run(PARSE.format(kind=kind, arguments="a"), "--output_dir", "out", "--use_cpu") == "True False None cpu"


def test_arguments_in_python():
    program = """
        from transformers import TrainingArguments
        a = TrainingArguments("out", no_cuda=True, use_ipex=True, ddp_backend="ccl")
        print(a.use_cpu, a.use_ipex, "use_ipex" in a.to_dict())
    """
    assert run(program) == "True True True"


def test_unknown_arguments_are_still_refused():
    assert "unexpected keyword argument 'no_such'" in attempt("from transformers import TrainingArguments; TrainingArguments('out', no_such=1)").stderr


def test_a_script_keeps_an_option_of_its_own():
    """And where it has one, a Trainer is not touched by it."""
    program = """
        import dataclasses
        from transformers import HfArgumentParser, TrainingArguments

        @dataclasses.dataclass
        class Mine:
            use_ipex: str = "never"

        mine, training = HfArgumentParser((Mine, TrainingArguments)).parse_args_into_dataclasses()
        from trireme._huggingface import asked
        print(mine.use_ipex, asked.optimized())
    """
    done = attempt(program, "--output_dir", "out", "--use_cpu", "--use_ipex", "sometimes")
    if "conflicting option string" in done.stderr:  # transformers has the flag itself, and refuses with or without Trireme
        assert tuple(int(part) for part in transformers.__version__.split(".")[:2]) <= (4, 52)
    else:
        assert done.stdout.strip() == "sometimes False", done.stderr[-2000:]


OWN = """
    import dataclasses
    from transformers import HfArgumentParser, TrainingArguments

    @dataclasses.dataclass
    class Mine:
        {field}

    print(*(given.cuda for given in HfArgumentParser({kinds}).parse_args_into_dataclasses() if hasattr(given, "cuda")))
"""
BOTH = "dataclasses.make_dataclass('Both', [], bases=(Mine, TrainingArguments))"


@pytest.mark.parametrize("kinds", ["(Mine, TrainingArguments)", "(TrainingArguments, Mine)", pytest.param(BOTH, marks=pytest.mark.long)], ids=["before", "after", "in one"])
@pytest.mark.parametrize(
    ("field", "flags", "expected"),
    [
        ("cuda: str = dataclasses.field(default='never', metadata={'aliases': ['--use-ipex', '-i']})", ["--use-ipex", "sometimes"], "sometimes"),
        ("cuda: bool = True", ["--no_cuda"], "False"),  # an option that HfArgumentParser adds
    ],
    ids=["alias", "negation"],
)
def test_a_script_keeps_options_that_come_with_its_own(kinds, field, flags, expected):
    done = attempt(OWN.format(field=field, kinds=kinds), "--output_dir", "out", "--use_cpu", *flags)
    if "conflicting option string" in done.stderr:  # transformers has the flag itself, and refuses with or without Trireme
        assert tuple(int(part) for part in transformers.__version__.split(".")[:2]) < ((5, 0) if flags == ["--no_cuda"] else (4, 53))
    else:
        assert done.stdout.strip() == expected, done.stderr[-2000:]


@pytest.mark.parametrize(
    "how",
    [
        "parser = HfArgumentParser(kind for kind in (TrainingArguments,)); parser.add_argument('--use_ipex', default='never')",
        "parser = HfArgumentParser(TrainingArguments); parser.add_argument_group('mine').add_argument('--use_ipex', default='never')",
        "parser = HfArgumentParser(TrainingArguments); parser.add_mutually_exclusive_group().add_argument('--use_ipex', default='never')",
        "own = argparse.ArgumentParser(add_help=False); own.add_argument('--use_ipex', default='never'); "
        "parser = HfArgumentParser(TrainingArguments, parents=[own])",
    ],
    ids=["parser", "group", "exclusive", "parent"],
)
def test_a_script_adds_an_option_of_its_own(how):
    program = f"""
        import argparse
        from transformers import HfArgumentParser, TrainingArguments

        {how}
        training, rest = parser.parse_args_into_dataclasses()
        from trireme._huggingface import asked
        print(training.use_cpu, rest.use_ipex, asked.optimized())
    """
    done = attempt(program, "--output_dir", "out", "--use_cpu", "--use_ipex", "sometimes")
    if "conflicting option string" in done.stderr:  # transformers has the flag itself, and refuses with or without Trireme
        assert tuple(int(part) for part in transformers.__version__.split(".")[:2]) <= (4, 52)
    else:
        assert done.stdout.strip() == "True sometimes False", done.stderr[-2000:]


def test_each_trainer_has_its_own_arguments():
    """Whichever were made last."""
    program = """
        import torch
        from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

        config = BertConfig(vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32)
        data = [dict(input_ids=torch.arange(5), labels=torch.tensor(0))] * 8

        def arguments(**more):
            return TrainingArguments("out", use_cpu=True, max_steps=1, report_to=[], disable_tqdm=True, save_strategy="no", **more)

        def trainer(of):
            return Trainer(BertForSequenceClassification(config), of, train_dataset=data)

        fast, plain = arguments(use_ipex=True), arguments()
        fast, plain = trainer(fast), trainer(plain)
        for each in (fast, plain):
            each.train()
            print(type(getattr(each.optimizer, "optimizer", each.optimizer)).__module__)
    """
    found = [line for line in run(program).splitlines() if line.startswith(("torch.optim", "trireme.optim"))]
    assert found[0] == "trireme.optim" and found[1].startswith("torch.optim"), found


def test_imports_bring_nothing_that_is_not_needed():
    """Of Trireme: neither its library nor what makes models fast."""
    program = """
        import sys
        from accelerate import Accelerator
        from transformers import Trainer, TrainingArguments
        print(sorted(name for name in sys.modules if name.startswith("trireme._optimize") or name in ("trireme.optim", "trireme.ops")))
    """
    assert run(program) == "[]"


def test_what_asks_for_nothing_trains_as_without_trireme():
    """The same bits, and an import that costs about as much. Processor time: machines that run other things too are slow by the clock."""
    program = """
        import time
        begin = time.process_time()
        import torch, transformers
        from transformers import Trainer, TrainingArguments
        seconds = time.process_time() - begin

        import hashlib, sys
        torch.manual_seed(1)
        shape = dict(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32)
        model = transformers.BertForSequenceClassification(transformers.BertConfig(vocab_size=50, **shape))
        data = [dict(input_ids=torch.arange(i, i + 5), labels=torch.tensor(i % 2)) for i in range(16)]
        arguments = TrainingArguments("out", use_cpu=True, max_steps=3, report_to=[], disable_tqdm=True, save_strategy="no")
        Trainer(model, arguments, train_dataset=data).train()
        bits = b"".join(tensor.numpy().tobytes() for tensor in model.state_dict().values())
        print("trireme._huggingface.hook" in sys.modules, seconds, hashlib.sha256(bits).hexdigest())
    """
    seconds_without, seconds_with = [], []
    for _ in range(3):  # a busy machine can make any of them slow, and none fast
        without, with_it = (run(program, TORCH_DEVICE_BACKEND_AUTOLOAD=each).splitlines()[-1].split() for each in "01")
        assert (without[0], with_it[0]) == ("False", "True")
        assert without[2] == with_it[2]
        seconds_without.append(float(without[1]))
        seconds_with.append(float(with_it[1]))
        if min(seconds_with) < min(seconds_without) + 1.5:
            return
    raise AssertionError(f"{seconds_with} with it, {seconds_without} without")


def test_argparse_is_left_alone():
    program = """
        import argparse, torch, transformers
        parser = argparse.ArgumentParser()
        parser.add_argument("--no_cuda", type=int)
        print(parser.parse_args().no_cuda)
    """
    assert run(program, "--no_cuda", "7") == "7"


GROUP = """
    import torch.distributed
    from transformers import TrainingArguments

    def init_process_group(**options):
        print(options["backend"], options.get("timeout"), options["world_size"])
        raise SystemExit

    torch.distributed.init_process_group = init_process_group
    TrainingArguments("out", use_cpu=True, ddp_timeout=77, {more})
"""
RANK = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29511"}


def test_the_group_is_ccl_and_has_its_timeout():
    assert run(GROUP.format(more="ddp_backend='ccl'"), **RANK) == "ccl 0:01:17 2"


def test_another_group_is_left_as_it_is():
    assert run(GROUP.format(more="ddp_backend='gloo'"), **RANK) == "gloo None 2"


def test_checkpoints_can_be_loaded_on_several_processes():
    """The Trainer loads the optimizer's state to its device, and torch.load knows no cpu:0, which accelerate makes of one of several processes' CPU."""
    program = """
        import io, torch, torch.distributed as dist
        from transformers import TrainingArguments

        dist.init_process_group, dist.get_world_size, dist.get_rank = lambda **options: None, lambda *group: 2, lambda *group: 0
        device = TrainingArguments("out", use_cpu=True, ddp_backend="ccl").device
        file = io.BytesIO()
        torch.save(torch.ones(2), file)
        file.seek(0)
        print(device, torch.load(file, map_location=device).tolist())
    """
    assert run(program, **RANK) == "cpu:0 [1.0, 1.0]"


def test_mpirun_needs_no_other_variables():
    mpi = {"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}
    assert run(GROUP.format(more="ddp_backend='ccl'"), **mpi) == "ccl 0:01:17 2"


ONE = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
ONE_OF_MPIRUN = {"PMI_RANK": "0", "PMI_SIZE": "1", "MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "1"}


@pytest.mark.parametrize("launched", [ONE, ONE_OF_MPIRUN], ids=["torchrun", "mpirun"])
def test_one_process_of_a_launcher_is_a_group_of_one(launched):
    """accelerate would make it of gloo, or none. An elastic job may come down to one."""
    assert run(GROUP.format(more="ddp_backend='ccl'"), **launched) == "ccl 0:01:17 1"


def test_a_single_process_takes_ccl_by_itself_only_where_accelerate_makes_a_group_of_it():
    """A shell that srun or mpirun started is no job: all that runs in it would want the same port."""
    assert run(GROUP.format(more=""), TRIREME_AUTO="1", **ONE) == "ccl 0:01:17 1"
    program = "import torch.distributed as dist\nfrom accelerate import PartialState\nPartialState()\nprint(dist.is_initialized())"
    assert run(program, TRIREME_AUTO="1", **ONE_OF_MPIRUN) == run(program, TRIREME_AUTO="1", LOCAL_RANK="-1") == "False"


def test_patch_trainer_registers_the_backend():
    """Where torch does not."""
    program = """
        import trireme
        trireme.patch_trainer()
        import torch.distributed as dist
        from transformers import TrainingArguments
        TrainingArguments("out", report_to=[]).device
        print(dist.get_backend(), dist.get_world_size())
    """
    assert run(program, TORCH_DEVICE_BACKEND_AUTOLOAD="0", **ONE) == "ccl 1"


def test_an_existing_group_is_respected():
    program = """
        import torch.distributed as dist
        from transformers import TrainingArguments

        dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
        print(TrainingArguments("out", use_cpu=True, ddp_backend="ccl").device, dist.get_backend())
    """
    assert run(program) == "cpu gloo"


# ---- Accelerator ----

PREPARE = """
    import torch
    from accelerate import Accelerator

    {before}
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.LayerNorm(4), torch.nn.Dropout(0.1))
    optimizer = torch.optim.AdamW(model.parameters())
    accelerator = Accelerator(cpu=True, mixed_precision={precision!r})
    model, optimizer = accelerator.prepare(model, optimizer)
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    print(type(optimizer.optimizer).__module__, accelerator.native_amp)
"""


def test_an_accelerator_is_left_alone():
    assert run(PREPARE.format(before="", precision="no")).startswith("torch.optim")


@pytest.mark.parametrize("how", ["ACCELERATE_USE_IPEX", "TRIREME_AUTO", "patch_trainer"])
def test_an_accelerator_that_asks(how):
    before = "import trireme; trireme.patch_trainer()" if how == "patch_trainer" else ""
    env = {} if before else {how: "1"}
    assert run(PREPARE.format(before=before, precision="no"), **env) == "trireme.optim False"


def test_an_accelerator_with_all_of_it_turned_off():
    env = {"TRIREME_AUTO": "1", "TRIREME_DISABLE": "1", "TRIREME_BF16": "emulate", "ONEDNN_MAX_CPU_ISA": "AVX512_CORE"}
    assert run(PREPARE.format(before="", precision="bf16"), **env) == "torch.optim.adamw True"


@pytest.mark.parametrize(("choice", "autocast"), [("emulate", "False"), ("native", "True")])
def test_bf16_follows_the_plan(choice, autocast):
    program = PREPARE.format(before="", precision="bf16")
    env = {"TRIREME_AUTO": "1", "TRIREME_BF16": choice, "ONEDNN_MAX_CPU_ISA": "AVX512_CORE"}
    assert run(program, **env) == f"trireme.optim {autocast}"


@pytest.mark.parametrize(("choice", "dtype"), [("emulate", "torch.float32"), ("native", "torch.bfloat16")])
def test_bf16_of_a_model_that_was_optimized_by_hand(choice, dtype):
    """accelerate's autocast is inside of the model's forward."""
    program = """
        import torch, trireme
        from accelerate import Accelerator
        from transformers import GPT2Config, GPT2LMHeadModel

        model = trireme.optimize(GPT2LMHeadModel(GPT2Config(vocab_size=50, n_embd=16, n_layer=1, n_head=2, n_positions=16)))
        accelerator = Accelerator(cpu=True, mixed_precision="bf16")
        model = accelerator.prepare(model)
        seen = []
        model.lm_head.register_forward_hook(lambda module, inputs, output: seen.append(output.dtype))
        model(input_ids=torch.arange(5)[None])
        print(*seen, accelerator.native_amp)
    """
    assert run(program, TRIREME_BF16=choice).split() == [dtype, "True"]


# ---- Versions that do not fit ----


def test_a_missing_seam_is_told_when_it_is_needed():
    program = """
        import torch, accelerate.state
        import trireme._huggingface as ours
        from trireme._huggingface import for_accelerate
        import types
        for_accelerate.patch_state(types.SimpleNamespace(__name__="accelerate.state", PartialState=object))
        from transformers import TrainingArguments
        TrainingArguments("out", use_cpu=True)
        print("not asked for")
        TrainingArguments("out", use_cpu=True, ddp_backend="ccl")
    """
    done = attempt(program)
    assert done.stdout.strip() == "not asked for"
    last = done.stderr.strip().splitlines()[-1]
    assert "Misfit" in last and "accelerate.state has no PartialState._prepare_backend" in last and "are known to fit" in last


def test_a_missing_seam_is_told_to_a_script_without_a_trainer():
    program = """
        import os, torch, types
        import accelerate
        from trireme._huggingface import for_accelerate

        class Accelerator:
            native_amp = False

        for_accelerate.patch_accelerator(types.SimpleNamespace(__name__="accelerate.accelerator", Accelerator=Accelerator))
        Accelerator()
        print("not asked for")
        os.environ["ACCELERATE_USE_IPEX"] = "true"
        Accelerator()
    """
    done = attempt(program)
    assert done.stdout.strip() == "not asked for"
    last = done.stderr.strip().splitlines()[-1]
    assert "Misfit" in last and "accelerate.accelerator has no Accelerator.prepare_model" in last, done.stderr


def test_a_missing_seam_of_transformers_is_told_when_it_is_needed():
    program = """
        import torch, types
        from transformers import TrainingArguments
        from trireme._huggingface import for_transformers
        for_transformers.patch_trainer(types.SimpleNamespace(__name__="transformers.trainer"))
        TrainingArguments("out", use_cpu=True)
        print("not asked for")
        TrainingArguments("out", use_cpu=True, use_ipex=True)
    """
    done = attempt(program)
    assert done.stdout.strip() == "not asked for"
    last = done.stderr.strip().splitlines()[-1]
    assert "Misfit" in last and "transformers.trainer has no Trainer" in last and "are known to fit" in last, done.stderr


def test_a_patch_that_failed_is_told_when_it_is_needed():
    """By the flag that asks for it: -W ignore turns the warning off."""
    program = """
        import sys, torch
        from trireme._huggingface import hook
        hook.TARGETS = {**hook.TARGETS, "accelerate.state": ("trireme._huggingface.for_accelerate", "no_such_function")}
        from transformers import TrainingArguments
        TrainingArguments("out", use_cpu=True)
        print("not asked for")
        TrainingArguments("out", use_cpu=True, ddp_backend="ccl")
    """
    done = attempt(program)
    assert done.stdout.strip() == "not asked for"
    last = done.stderr.strip().splitlines()[-1]
    assert "Misfit" in last and "accelerate.state stays as it is: AttributeError" in last


def test_what_the_seams_read_may_be_gone():
    """As long as nothing is asked for."""
    program = """
        import accelerate
        from transformers import TrainingArguments
        from trireme._huggingface import for_transformers

        class Arguments:
            _setup_devices = property(lambda self: "a device")

        for_transformers._hand_over_timeout(Arguments)
        print(Arguments()._setup_devices)
        plain = accelerate.Accelerator.__init__.__wrapped__

        def without_native_amp(self, *args, **kwargs):
            plain(self, *args, **kwargs)
            del self.native_amp

        accelerate.Accelerator.__init__ = without_native_amp
        from trireme._huggingface import for_accelerate
        for_accelerate._follow_bf16_plan(accelerate.Accelerator)
        print(accelerate.Accelerator(cpu=True).device)
    """
    assert run(program).splitlines() == ["a device", "cpu"]


# ---- Processes that would train alone ----

# accelerate's state as 1.13 and later make it without --use_cpu: the backend that was named, and no kind of distribution.
ALONE = """
    import accelerate.state, torch.distributed as dist
    from transformers import TrainingArguments

    accelerate.state.PartialState._prepare_backend = lambda self, cpu=False, sagemaker=False, backend=None: (backend, accelerate.state.DistributedType.NO)
    {before}
    print(TrainingArguments("out", {more}).device)
"""
MPI = {"PMI_RANK": "1", "PMI_SIZE": "3", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "3"}
SLURM = {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "3", "SLURM_LOCALID": "0", "SLURM_STEP_TASKS_PER_NODE": "3"}
EITHER, CCL = "Give --use_cpu (or --no_cuda) or --ddp_backend ccl.", "Give --ddp_backend ccl."
GROUP_OF_TWO = "dist.init_process_group, dist.get_world_size, dist.get_rank = lambda **options: None, lambda *group: 2, lambda *group: 0"


@pytest.mark.parametrize(
    ("env", "before", "more", "remedy"),
    [
        pytest.param(MPI, "", "", EITHER, marks=pytest.mark.long),
        (MPI, "", "ddp_backend='gloo'", EITHER),  # accelerate asks for the size of a group that was not made
        (RANK, GROUP_OF_TWO, "ddp_backend='gloo'", EITHER),  # the group is there, and no model is put into DDP
        pytest.param(SLURM, "", "", CCL, marks=pytest.mark.long),
        (SLURM, "", "use_cpu=True", CCL),
    ],
    ids=["mpirun", "gloo under mpirun", "gloo under torchrun", "Slurm", "Slurm with --use_cpu"],
)
def test_processes_that_would_train_alone(env, before, more, remedy):
    program = ALONE.format(before=before, more=more)
    last = attempt(program, **env).stderr.strip().splitlines()[-1]
    count = 2 if env is RANK else 3
    assert last.startswith(f"ValueError: trireme: {count} processes were launched, but the Trainer would train alone in each of them") and remedy in last
    if more != "ddp_backend='gloo'" or env is RANK:
        assert run(program, **env, TRIREME_ALONE="1") == "cpu"


# mpirun -pmi-port, of MPICH 4 and 5.
PMI_PORT = {"PMI_PORT": "node0:40715", "PMI_ID": "1", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "3"}


@pytest.mark.parametrize(
    ("made", "env"),
    [
        ("TrainingArguments('out', use_cpu=True).device", {}),
        ("TrainingArguments('out', ddp_backend='ccl').device", {}),
        ("Accelerator(cpu=True).device", {"TRIREME_AUTO": "1"}),
    ],
    ids=["Trainer", "ccl", "Accelerator"],
)
def test_processes_that_nobody_has_counted(made, env):
    program = f"from accelerate import Accelerator\nfrom transformers import TrainingArguments\nprint({made})"
    last = attempt(program, **PMI_PORT, **env).stderr.strip().splitlines()[-1]
    assert last.startswith("ValueError: trireme: this process was started by mpirun -pmi-port") and "without -pmi-port, or with torchrun" in last
    assert run(program, **PMI_PORT, **env, TRIREME_ALONE="1") == "cpu"


def test_other_errors_stay():
    """Where the processes would train together, whatever stops them is not about training alone."""
    program = """
        import accelerate.state
        from transformers import TrainingArguments
        TrainingArguments("out", use_cpu=True, ddp_backend="gloo").device
    """
    done = attempt(program, **{**MPI, "MPI_LOCALNRANKS": "1"})
    assert "MASTER_ADDR" in done.stderr.strip().splitlines()[-1] and "train alone" not in done.stderr


# ---- bf16 without --use_cpu, which transformers refuses ----

BF16 = """
    import torch.distributed as dist
    from transformers import TrainingArguments
    dist.init_process_group, dist.get_world_size, dist.get_rank = lambda **options: None, lambda *group: 2, lambda *group: 0
    print(TrainingArguments("out", bf16=True, {more}).use_cpu)
"""


def test_bf16_of_several_processes_without_a_word_about_cpus():
    """Hugging Face's example for Kubernetes: torchrun run_qa.py ... --bf16"""
    if transformers.__version__.startswith("4.46."):
        assert run(BF16.format(more="")) == "False"
        pytest.skip("transformers 4.46 does not refuse --bf16 without --use_cpu")
    last = attempt(BF16.format(more=""), **RANK).stderr.strip().splitlines()[-1]
    assert last.startswith("ValueError: trireme: 2 processes were launched, but nothing says that they train on CPUs") and EITHER in last
    for env in ({}, {**RANK, "TRIREME_ALONE": "1"}):
        last = attempt(BF16.format(more=""), **env).stderr.strip().splitlines()[-1]
        assert "bf16/gpu" in last and "trireme" not in last


@pytest.mark.parametrize("env", [pytest.param({}, marks=pytest.mark.long), RANK], ids=["alone", "together"])
def test_what_means_the_cpu_needs_no_use_cpu(env):
    assert run(BF16.format(more="ddp_backend='ccl'"), **env) == "True"
    assert run(BF16.format(more=""), **env, TRIREME_AUTO="1") == "True"


# ---- The hook ----


def test_a_module_that_is_being_imported(tmp_path):
    """transformers' modules may import torch, and with it the hook, halfway through."""
    (tmp_path / "halfway.py").write_text("import sys\nsys.modules['hook'].install()\nclass Thing:\n    pass\n")
    (tmp_path / "patches.py").write_text("def mark(module):\n    module.Thing.marked = True\n")
    program = """
        import sys
        sys.path.insert(0, sys.argv[1])
        from trireme._huggingface import hook
        sys.modules["hook"] = hook
        hook.TARGETS = {"halfway": ("patches", "mark")}
        from halfway import Thing
        import halfway
        print(Thing.marked, type(halfway).__name__)
    """
    assert run(program, str(tmp_path)) == "True module"


def test_a_patch_that_fails_does_not_break_an_import(tmp_path):
    (tmp_path / "target.py").write_text("here = 1\n")
    (tmp_path / "patches.py").write_text("def fail(module):\n    raise KeyError('seam')\n")
    program = """
        import sys, warnings
        sys.path.insert(0, sys.argv[1])
        from trireme._huggingface import hook
        hook.TARGETS = {"target": ("patches", "fail")}
        hook.install()
        warnings.simplefilter("always")
        with warnings.catch_warnings(record=True) as caught:
            import target
        print(target.here, str(caught[0].message))
    """
    assert run(program, str(tmp_path)) == "1 trireme: target stays as it is: KeyError: 'seam'"
