"""What Intel's extension had and this has not: what to use instead. Looking such a name up is an AttributeError, so that hasattr answers right; the
names of modules are files that raise when they are imported."""

PACKAGE = "intel_extension_for_pytorch"

OPTIMIZE = "intel_extension_for_pytorch.optimize takes any model"
COMPILE = "use torch.compile"
THREADS = (
    "the backend ccl chooses threads and cores from what the process was granted (docs/threads.md); by hand, use OMP_NUM_THREADS and taskset or numactl"
)

INSTEAD = {
    "OnDevice": 'use torch.device("meta") as a context',
    "compatible_mode": "it made programs for CUDA run on xpu; Trireme is for CPUs",
    "compile": COMPILE,
    "cpu.launch": "start processes with torchrun or mpirun; " + THREADS,
    "cpu.runtime": THREADS,
    "cpu.tpp": "intel_extension_for_pytorch.fast_bert is there",
    "disable_auto_channels_last": "no layout is changed",
    "distributed": "the backend ccl of torch.distributed is Trireme's",
    "enable_auto_channels_last": "use model.to(memory_format=torch.channels_last)",
    "fx": COMPILE,
    "jit": COMPILE,
    "llm": f"the kernels for generating text are not there; {OPTIMIZE}, and transformers generates with it",
    "nn": f"use torch.nn; {OPTIMIZE}",
    "optim": "trireme.optim has AdamW, Adam, SGD, Adagrad and Lamb",
    "optimize_transformers": f"the kernels for generating text are not there; {OPTIMIZE}, and transformers generates with it",
    "quantization": "use torchao, or torch.bfloat16 where trireme.bf16_plan() says that it is fast",
    "transformers": f"the kernels for generating text are not there; {OPTIMIZE}, and transformers generates with it",
    "xpu": "Trireme is for CPUs; torch.xpu is torch's own",
}


def sentence(module: str, name: str) -> str:
    full = f"{module}.{name}"
    key = full.removeprefix(f"{PACKAGE}.")
    reason = INSTEAD.get(key) or INSTEAD.get(key.rpartition(".")[0])
    return f"{full} is not there: this is Trireme's {PACKAGE}" + (f"; {reason}" if reason else "; docs/huggingface.md has what it covers")


def missing(module: str, name: str) -> AttributeError:
    return AttributeError(sentence(module, name))


def missing_module(name: str) -> ImportError:
    return ImportError(sentence(*name.rsplit(".", 1)), name=name)
