"""python/intel_extension_for_pytorch: programs that were written for Intel's extension train on Trireme, and it does not replace Intel's package."""

import ast
import importlib
import importlib.util
import json
import pathlib
import shutil
import subprocess
import sys

import pytest

from tests.optimize.models import LENGTHS, TOLERANCE, assert_close, assert_same_training, batch, make, torch, train_once

import trireme

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
SOURCE = REPOSITORY / "python" / "intel_extension_for_pytorch"
INPUTS = {**batch(), "labels": torch.arange(len(LENGTHS)) % 2}


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder for PYTHONPATH with the package in it. Built from a copy: setuptools leaves files behind."""
    folder = tmp_path_factory.mktemp("ipex_names")
    shutil.copytree(SOURCE, folder / "source")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-build-isolation", "--no-deps", "--target", str(folder / "site")]
    subprocess.run([*pip, str(folder / "source")], check=True, capture_output=True, text=True, timeout=300)
    return folder / "site"


@pytest.fixture(scope="module")
def ipex(installed):
    """The package, imported here, and gone afterwards: transformers and accelerate act otherwise where they find it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(installed))
        yield importlib.import_module("intel_extension_for_pytorch")
    for name in [name for name in sys.modules if name.split(".")[0] == "intel_extension_for_pytorch"]:
        del sys.modules[name]


@pytest.fixture(autouse=True)
def quiet_and_narrow(monkeypatch):
    """One thread for tiny models, fp32 unless a test asks, and what is said once is said once in each test."""
    from trireme._optimize import report

    for name in ("TRIREME_DISABLE", "TRIREME_VERIFY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TRIREME_BF16", "emulate")
    report.say_once.cache_clear()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def model_and_optimizer():
    """SGD: rounding stays small, where Adam's first steps are the signs of gradients."""
    model = make("bert", "ForSequenceClassification")
    return model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def train(model, optimizer, steps=3):
    """Loss and gradients before and after some steps."""
    before = train_once(model, INPUTS)
    for _ in range(steps):
        optimizer.step()
        after = train_once(model, INPUTS)
    return before, after


def is_packed(model):
    """Hidden states of padding are zero in a packed encoder alone."""
    with torch.no_grad():
        return not model.bert(**batch()).last_hidden_state[1, 1:].any()


def values(model):
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def assert_trains_like_transformers(model, optimizer):
    ours, theirs = train(model, optimizer), train(*model_and_optimizer())
    assert ours[1][0] < ours[0][0], "the loss falls"
    for mine, its in zip(ours, theirs, strict=True):
        assert_same_training(mine, its, 4 * TOLERANCE)  # as many passes


# ---- optimize ----


def test_in_place(ipex):
    model, optimizer = model_and_optimizer()
    result = ipex.optimize(model, optimizer=optimizer, inplace=True, level="O1")
    assert result[0] is model and result[1] is optimizer
    assert is_packed(model) and type(optimizer) is trireme.optim.SGD
    assert_trains_like_transformers(*result)


def test_copies(ipex):
    model, optimizer = model_and_optimizer()
    train(model, optimizer, steps=1)  # so that there is state to copy
    expected = values(model)
    ours, its_optimizer = ipex.optimize(model, optimizer=optimizer)
    assert type(optimizer) is torch.optim.SGD and not is_packed(model)
    assert is_packed(ours) and type(its_optimizer) is trireme.optim.SGD
    assert {id(p) for group in its_optimizer.param_groups for p in group["params"]} == {id(p) for p in ours.parameters()}
    first = next(ours.parameters())
    assert torch.equal(its_optimizer.state[first]["momentum_buffer"], optimizer.state[next(model.parameters())]["momentum_buffer"])
    before = values(ours)
    train(ours, its_optimizer)
    assert all(torch.equal(values(model)[name], tensor) for name, tensor in expected.items()), "the model that was given"
    assert not torch.equal(values(ours)["classifier.weight"], before["classifier.weight"]), "the copy trains"


def test_a_copy_trains_like_transformers(ipex):
    model, optimizer = model_and_optimizer()
    assert_trains_like_transformers(*ipex.optimize(model, None, optimizer))


def test_a_model_alone(ipex):
    model = make("bert", "ForSequenceClassification").eval()
    ours = ipex.optimize(model, dtype=torch.float32, conv_bn_folding=False)
    assert ours is not model and is_packed(ours) and not is_packed(model)
    with torch.no_grad():
        assert_close(ours(**batch()).logits, model(**batch()).logits)


def test_level_0_changes_nothing(ipex):
    model, optimizer = model_and_optimizer()
    result = ipex.optimize(model, torch.bfloat16, optimizer, "O0")
    assert result[0] is model and result[1] is optimizer
    assert type(optimizer) is torch.optim.SGD and not is_packed(model)
    with pytest.raises(RuntimeError, match="'O0' or 'O1', not 'O2'"):
        ipex.optimize(model, level="O2")


def test_a_scripted_model_is_returned_as_it_is(ipex):
    scripted = torch.jit.trace(torch.nn.Linear(2, 2), torch.ones(2))
    assert ipex.optimize(scripted) is scripted


def test_an_optimizer_that_shall_not_be_fused(ipex):
    model, optimizer = model_and_optimizer()
    result = ipex.optimize(model, optimizer=optimizer, inplace=True, fuse_update_step=False)
    assert result[0] is model and result[1] is optimizer
    assert is_packed(model) and type(optimizer) is torch.optim.SGD


def test_dropout_stays_in_a_model_that_trains_later(ipex):
    model = make("bert", "ForSequenceClassification", dropout=0.5).eval()
    ours = ipex.optimize(model, replace_dropout_with_identity=True).train()
    with torch.no_grad():
        torch.manual_seed(0)
        assert not torch.equal(ours(**batch()).logits, ours(**batch()).logits)


def test_bf16_follows_the_plan(ipex, monkeypatch, capfd):
    for setting, dtype in (("emulate", torch.float32), ("native", torch.bfloat16)):
        monkeypatch.setenv("TRIREME_BF16", setting)
        alone = ipex.optimize(make("bert", "ForSequenceClassification"), dtype=torch.bfloat16)
        assert next(alone.parameters()).dtype == torch.float32, "a model that trains needs its optimizer given too"
        model, optimizer = model_and_optimizer()
        ours, its_optimizer = ipex.optimize(model, dtype=torch.bfloat16, optimizer=optimizer)
        assert next(ours.parameters()).dtype == dtype and next(model.parameters()).dtype == torch.float32
        assert torch.equal(its_optimizer.fp32_weights(next(ours.parameters())), next(model.parameters()))
    assert "computes in fp32: TRIREME_BF16=emulate" in capfd.readouterr().err


def test_torch_autocast_around_an_optimized_model(ipex):
    """As Intel's examples have it. Without a head: there are CPUs on which torch's bf16 products end the process."""
    model = make("bert")
    model.pooler = None
    ours, optimizer = ipex.optimize(model, torch.bfloat16, torch.optim.SGD(model.parameters(), lr=0.1))
    with pytest.warns(FutureWarning), torch.cpu.amp.autocast():
        loss = ours(**batch()).last_hidden_state.square().mean()
    loss.backward()
    before = values(ours)["encoder.layer.0.output.dense.weight"]
    optimizer.step()
    assert not torch.equal(values(ours)["encoder.layer.0.output.dense.weight"], before)


@pytest.mark.parametrize(("setting", "is_on"), [("emulate", False), ("native", True)])
def test_its_own_autocast_follows_the_plan(ipex, monkeypatch, capfd, setting, is_on):
    monkeypatch.setenv("TRIREME_BF16", setting)
    assert importlib.import_module("intel_extension_for_pytorch.cpu.amp").autocast is ipex.cpu.autocast
    for context in (ipex.cpu.autocast(), ipex.cpu.amp.autocast(enabled=True, dtype=torch.bfloat16), ipex.cpu.amp.autocast(True, torch.bfloat16, False)):
        with context:
            assert torch.is_autocast_enabled("cpu") is is_on
            assert not is_on or torch.get_autocast_dtype("cpu") == torch.bfloat16
    with torch.autocast("cpu", torch.bfloat16), ipex.cpu.autocast(enabled=False):
        assert not torch.is_autocast_enabled("cpu")
    assert capfd.readouterr().err.count("ipex.cpu.autocast: bf16: computes in fp32") == (0 if is_on else 1)


@pytest.mark.parametrize("dtype", [torch.half, torch.float64, torch.int8])
def test_other_types_are_refused(ipex, dtype):
    model, optimizer = model_and_optimizer()
    for function in (ipex.optimize, ipex.fast_bert):
        with pytest.raises(ValueError, match=f"torch.bfloat16 or torch.float32, not {dtype}"):
            function(model, dtype=dtype, optimizer=optimizer)


def test_options_without_effect_are_told(ipex, capfd):
    options = ["conv_bn_folding", "linear_bn_folding", "weights_prepack", "replace_dropout_with_identity", "optimize_lstm"]
    options += ["auto_kernel_selection", "graph_mode", "concat_linear"]
    accepted = [*options, "split_master_weight_for_bf16", "fuse_update_step"]
    model, optimizer = model_and_optimizer()
    ipex.optimize(model, optimizer=optimizer, inplace=True, sample_input=None, **dict.fromkeys(accepted))
    ipex.optimize(model, optimizer=optimizer, inplace=True, **dict.fromkeys(accepted, False))
    assert "no effect" not in capfd.readouterr().err
    for _ in range(2):
        ipex.optimize(model, optimizer=optimizer, inplace=True, sample_input=torch.ones(2), **dict.fromkeys(accepted, True))
    said = [line for line in capfd.readouterr().err.splitlines() if "no effect" in line]
    assert sorted(line.split()[3] for line in said) == sorted([*options, "sample_input"])
    assert any("use torch.compile" in line for line in said)
    ipex.optimize(model, torch.bfloat16, optimizer, inplace=True, split_master_weight_for_bf16=False)
    assert "split_master_weight_for_bf16=False has no effect" in capfd.readouterr().err
    with pytest.raises(TypeError, match="weight_prepack"):
        ipex.optimize(model, weight_prepack=True)


def test_a_scheduler_that_would_drive_the_wrong_optimizer_is_told(ipex, capfd):
    model, optimizer = model_and_optimizer()
    torch.optim.lr_scheduler.StepLR(optimizer, 1)
    ipex.optimize(model, optimizer=optimizer)
    assert "scheduler was made before" in capfd.readouterr().err


# ---- fast_bert ----


def test_fast_bert(ipex):
    model, optimizer = model_and_optimizer()
    expected = values(model)
    scheduler = torch.optim.lr_scheduler.ConstantLR(optimizer, factor=1.0)
    ours, its_optimizer = ipex.fast_bert(model, optimizer=optimizer, unpad=True)
    assert ours is not model and is_packed(ours) and not is_packed(model)
    assert type(its_optimizer) is trireme.optim.SGD and scheduler.optimizer is its_optimizer
    assert_trains_like_transformers(ours, its_optimizer)
    assert all(torch.equal(values(model)[name], tensor) for name, tensor in expected.items()), "the model that was given"
    assert is_packed(ipex.fast_bert(model.eval(), dtype=torch.bfloat16)), "without an optimizer, the model alone"


def test_fast_bert_keeps_the_optimizers_state(ipex):
    model, optimizer = model_and_optimizer()
    reference, its_optimizer = model_and_optimizer()
    train(model, optimizer, steps=1)
    train(reference, its_optimizer, steps=1)
    ours, optimizer = ipex.fast_bert(model, optimizer=optimizer)
    assert len(optimizer.state) == len(list(model.parameters()))
    for mine, its in zip(train(ours, optimizer), train(reference, its_optimizer), strict=True):
        assert_same_training(mine, its, 5 * TOLERANCE)


def test_fast_bert_is_for_bert(ipex):
    for model in (torch.nn.Linear(2, 2), make("roberta", "ForSequenceClassification")):
        with pytest.raises(TypeError, match=f"not {type(model).__name__}; intel_extension_for_pytorch.optimize takes any model"):
            ipex.fast_bert(model)


# ---- everything else ----


def test_fp32_math_mode(ipex, monkeypatch, capfd):
    assert ipex.get_fp32_math_mode() == ipex.FP32MathMode.FP32
    try:
        monkeypatch.setenv("TRIREME_BF16", "native")
        ipex.set_fp32_math_mode(ipex.FP32MathMode.BF32)
        assert ipex.get_fp32_math_mode(device="cpu") == ipex.FP32MathMode.BF32 and torch.get_float32_matmul_precision() == "medium"
        monkeypatch.setenv("TRIREME_BF16", "emulate")
        ipex.set_fp32_math_mode(ipex.FP32MathMode.BF32)
        assert ipex.get_fp32_math_mode() == ipex.FP32MathMode.FP32 and "computes in fp32" in capfd.readouterr().err
        with pytest.raises(ValueError, match="TF32"):
            ipex.set_fp32_math_mode(ipex.FP32MathMode.TF32)
        with pytest.raises(RuntimeError, match="for CPUs"):
            ipex.set_fp32_math_mode(device="xpu")
    finally:
        torch.set_float32_matmul_precision("highest")


def test_onednn_says_what_it_computes(ipex, capfd):
    images, weights = torch.ones(4, 16, 32, 32), torch.ones(16, 16, 3, 3)
    torch.nn.functional.conv2d(images, weights)
    assert "onednn_verbose" not in capfd.readouterr().out
    with ipex.verbose(ipex.verbose.VERBOSE_ON):
        torch.nn.functional.conv2d(images, weights)
    assert "onednn_verbose" in capfd.readouterr().out


def test_onednn_fusion(ipex):
    before = torch.jit.onednn_fusion_enabled()
    try:
        ipex.enable_onednn_fusion()
        assert torch.jit.onednn_fusion_enabled()
        ipex.enable_onednn_fusion(False)
        assert not torch.jit.onednn_fusion_enabled()
    finally:
        torch.jit.enable_onednn_fusion(before)


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("llm", "transformers generates"),
        ("optimize_transformers", "transformers generates"),
        ("quantization", "torchao"),
        ("xpu", "torch.xpu"),
        ("optim", "trireme.optim"),
        ("cpu.amp.GradScaler", "docs/huggingface.md"),
        ("cpu.runtime.CPUPool", "docs/threads.md"),
        ("cpu.runtime.pin", "OMP_NUM_THREADS"),
        ("nothing_of_this_name", "docs/huggingface.md"),
    ],
)
def test_what_is_not_there(ipex, name, instead):
    holder = ipex
    for part in name.split(".")[:-1]:
        holder = getattr(holder, part)
    last = name.rpartition(".")[2]
    assert not hasattr(holder, last)
    with pytest.raises(AttributeError, match=f"{name} is not there: .*{instead}"):
        getattr(holder, last)


@pytest.mark.parametrize("name", ["llm", "quantization", "xpu", "cpu.launch"])
def test_modules_that_are_not_there(ipex, name):
    with pytest.raises(ImportError, match=f"{name} is not there: this is Trireme's"):
        importlib.import_module(f"intel_extension_for_pytorch.{name}")


def test_programs_that_ask_for_pools_of_cores_are_told_that_there_are_none(ipex):
    assert ipex.cpu.runtime.is_runtime_ext_enabled() is False


# ---- the distribution ----


def test_transformers_and_accelerate_take_it_for_the_extension_on_a_cpu(installed):
    code = """
import importlib.metadata, json
import accelerate.utils.imports as accelerate, transformers.utils.import_utils as transformers, intel_extension_for_pytorch as ipex
print(json.dumps({
    "ipex": [module.is_ipex_available() for module in (accelerate, transformers) if hasattr(module, "is_ipex_available")],
    "xpu": accelerate.is_xpu_available() or transformers.is_torch_xpu_available(),
    "versions": [importlib.metadata.version("intel_extension_for_pytorch"), ipex.__version__],
    "requires": importlib.metadata.requires("intel_extension_for_pytorch"),
}))
"""
    pytest.importorskip("accelerate")
    env = {"PYTHONPATH": str(installed), "PATH": "/usr/bin:/bin"}
    result = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=240)
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout.splitlines()[-1])
    assert all(found["ipex"]) and found["xpu"] is False  # the newest versions no longer ask
    torch_version = ".".join(torch.__version__.split(".")[:2])
    assert found["versions"] == [f"{torch_version}.0", f"{torch_version}.0+trireme"]
    assert found["requires"] == ["trireme-train"]


@pytest.mark.parametrize("ipex_config", ["", "ipex_config:\n  ipex: true\n"])
def test_accelerate_launch_beside_it(installed, tmp_path, ipex_config):
    """accelerate 1.10 to 1.12 read an option that they do not have, where they find the package. What a configuration says reaches the script, with every
    version."""
    pytest.importorskip("accelerate")
    config, script = tmp_path / "config.yaml", tmp_path / "script.py"
    lines = "compute_environment: LOCAL_MACHINE\ndistributed_type: 'NO'\nmixed_precision: 'no'\nnum_machines: 1\nnum_processes: 1\nuse_cpu: true\n"
    config.write_text(lines + ipex_config)
    script.write_text("import os\nprint(os.environ.get('ACCELERATE_USE_IPEX', 'false'))\n")
    command = [sys.executable, "-m", "accelerate.commands.launch", "--config_file", str(config), str(script)]
    result = subprocess.run(command, env={"PYTHONPATH": str(installed), "PATH": "/usr/bin:/bin"}, capture_output=True, text=True, timeout=240)
    assert result.stdout.strip() == ("true" if ipex_config else "false"), result.stderr


def test_intels_package_is_not_replaced(tmp_path):
    spec = importlib.util.spec_from_file_location("setup_of_intel_extension_for_pytorch", SOURCE / "setup.py")
    setup = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(setup)
    assert setup.why_not(tmp_path) is None
    shutil.copytree(SOURCE / "intel_extension_for_pytorch", tmp_path / "intel_extension_for_pytorch")
    assert setup.why_not(tmp_path) is None, "over itself it may be installed"
    (tmp_path / "intel_extension_for_pytorch" / "__init__.py").write_text("from .frontend import optimize\n")
    assert "pip uninstall intel_extension_for_pytorch" in setup.why_not(tmp_path)


def test_nothing_of_trireme_imports_it():
    for path in (REPOSITORY / "python" / "trireme").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [getattr(node, "module", None) or ""]
            assert not any(name.startswith("intel_extension_for_pytorch") for name in names), path
