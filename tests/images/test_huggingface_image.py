"""The image trireme/huggingface, built from the Dockerfile's own lines and run as a strict cluster would.

One thing differs from what ships: transformers' examples come from a repository that the test makes, with our question_answering.py as run_qa.py, so
that no network but that of apt and pip is needed. At its end this one writes down which files its process has mapped.
"""

import json
import re
import shutil
import subprocess

import pytest

from tests.kubernetes.manifests import load

from .builder import REPOSITORY, Builder, Image

pytestmark = pytest.mark.long

RUN_QA = "/opt/transformers/examples/pytorch/question-answering/run_qa.py"
TOGETHER = {"backend": "ccl", "world_size": 2, "wrapper": "DistributedDataParallel", "packed": True, "optimizer": "trireme.optim"}
PRELOAD = "/usr/local/lib/libtcmalloc.so:/usr/local/lib/libiomp5.so"  # of deploy/kubernetes/pytorchjob.yaml
WRITE_MAPS = """
if __name__ == "__main__":
    import os, pathlib
    pathlib.Path(f"/data/maps.{os.getpid()}").write_text(pathlib.Path("/proc/self/maps").read_text())
"""
LAUNCHERS = {
    "mpirun": ["mpirun", "-n", "2", "-genv", "OMP_NUM_THREADS=23", "python3"],
    "torchrun": ["torchrun", "--nproc-per-node", "2"],
}


@pytest.fixture(scope="module")
def image(images_folder, tmp_path_factory) -> Image:
    text = (REPOSITORY / "deploy" / "docker" / "Dockerfile").read_text()
    repository = tmp_path_factory.mktemp("transformers")
    folder = repository / "examples" / "pytorch" / "question-answering"
    folder.mkdir(parents=True)
    (folder / "run_qa.py").write_text((REPOSITORY / "examples" / "question_answering.py").read_text() + WRITE_MAPS)
    shutil.copy(REPOSITORY / "examples" / "ran_on.py", folder)
    git = ["git", "-C", str(repository), "-c", "user.name=test", "-c", "user.email=test@example.com"]
    version = re.search(r"ARG TRANSFORMERS_VERSION=(\S+)", text)[1]
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "examples"], ["tag", f"v{version}"]):
        subprocess.run([*git, *command], check=True)
    arguments = {"TRANSFORMERS_REPOSITORY": "file:///mnt/transformers"}
    with Builder(images_folder, arguments=arguments, mounts={"transformers": repository}) as builder:
        yield builder.build("huggingface")


def test_what_is_in_it(image):
    code = (
        "import torch, transformers, accelerate, datasets, evaluate, trireme, oneccl_bindings_for_pytorch as o, intel_extension_for_pytorch as i; "
        "print(torch.__version__, transformers.__version__, i.__version__, o.cwd)"
    )
    torch_version, transformers_version, ipex, cwd = image.run("python3", "-c", code, timeout_s=600).stdout.split()[-4:]
    assert torch_version == "2.13.0+cpu" and ipex == "2.13.0+trireme" and cwd.startswith("/opt/venv/")
    assert f"ARG TRANSFORMERS_VERSION={transformers_version}\n" in (REPOSITORY / "deploy" / "docker" / "Dockerfile").read_text()
    assert not (image.root / "opt/transformers/.git").exists() and not (image.root / "src").exists()
    assert not list(image.root.glob("etc/ssh/ssh_host_*"))
    assert "not found" not in image.run("ldd", "/usr/local/bin/trireme").stdout
    print(image.size_bytes())


@pytest.mark.parametrize("preload", ["", PRELOAD], ids=["plain", "preloaded"])
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_the_guides_command(image, data, qa_flags, launcher, preload):
    """As printed, with `source` of the bindings' setvars.sh before it; 64 MB of /dev/shm, no network. Preloaded libraries are in the ranks, not only in their launcher."""
    flags = [*qa_flags, "--no_cuda", "--ddp_backend", "ccl", "--use_ipex", "--output_dir", "/data/out", "--disable_tqdm", "True"]
    flags.remove("--use_cpu")
    script = (
        'oneccl_bindings_for_pytorch_path=$(python -c "from oneccl_bindings_for_pytorch import cwd; print(cwd)")\n'
        '. "$oneccl_bindings_for_pytorch_path/env/setvars.sh"\nexec "$@"'
    )
    volumes, environment = {"/data": data}, {"CCL_WORKER_COUNT": "1", "MASTER_ADDR": "127.0.0.1", "HF_HUB_OFFLINE": "1"}
    environment |= {"LD_PRELOAD": preload} if preload else {}
    done = image.run("sh", "-c", script, "sh", *LAUNCHERS[launcher], RUN_QA, *flags, volumes=volumes, timeout_s=1800, **environment)
    group = json.loads((data / "out" / "group.json").read_text())
    assert {name: group[name] for name in TOGETHER} == TOGETHER
    assert "cannot be preloaded" not in done.stderr
    maps = [path.read_text() for path in data.glob("maps.*")]
    assert len(maps) == 2
    for library in ("libtcmalloc_minimal.so", "libomp.so"):  # what the links of those names lead to
        assert all((library in each) == bool(preload) for each in maps), library


def test_what_is_preloaded_is_what_the_manifest_says():
    (worker,) = load("pytorchjob")["spec"]["pytorchReplicaSpecs"].values()
    assert {"name": "LD_PRELOAD", "value": PRELOAD} in worker["template"]["spec"]["containers"][0]["env"]


def test_torchrun_starts_the_trainer(image, data, qa_flags):
    torchrun = ["torchrun", "--nproc-per-node", "2", "--no-python", "trireme", "qa"]
    done = image.run(*torchrun, *qa_flags, "--output_dir", "/data/out", volumes={"/data": data}, timeout_s=1800)
    assert "2 ranks on 1 host" in done.stderr and (data / "out" / "model.safetensors").exists()
