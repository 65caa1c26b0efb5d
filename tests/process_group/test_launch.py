"""Rank discovery, and what `import torch` loads: little, and never with an exception."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest
from trireme import _launch, _library

from tests.multiprocess.ranks import MpirunRanks

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
SUM = """
import os, torch, torch.distributed as dist
dist.init_process_group("ccl")
tensor = torch.ones(3)
dist.all_reduce(tensor)
print(f"sum {int(tensor[0])} of rank {dist.get_rank()}, port {os.environ['MASTER_PORT']}\\n", end="", flush=True)  # one write: ranks may share a pipe
dist.destroy_process_group()
"""
HYDRA = {"PMI_RANK": "1", "PMI_SIZE": "4", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "4"}
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "3",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_RANK": "3",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "4",
    "PMIX_NAMESPACE": "job-17",
}
SLURM = {
    "SLURM_PROCID": "5",
    "SLURM_NTASKS": "6",
    "SLURM_STEP_NUM_TASKS": "6",
    "SLURM_LOCALID": "1",
    "SLURM_STEP_TASKS_PER_NODE": "2(x3)",
    "SLURM_STEP_NODELIST": "cn[07-08,12]",
    "SLURM_JOB_ID": "99",
    "SLURM_STEP_ID": "0",
}


# srun with its PMI2 plugin: hydra's names too, but not those of the place on the host.
SLURM_PMI2 = {**SLURM, "PMI_RANK": "5", "PMI_SIZE": "6", "PMI_FD": "9"}


def filled(*parts: dict[str, str]) -> dict[str, str]:
    env = {name: value for part in parts for name, value in part.items()}
    _launch.fill(env)
    return env


@pytest.mark.parametrize(
    "launcher, rank, size, master",
    [(HYDRA, "1", "4", "127.0.0.1"), (OPEN_MPI, "3", "4", "127.0.0.1"), (SLURM, "5", "6", "cn07"), (SLURM_PMI2, "5", "6", "cn07")],
)
def test_env_is_filled_from_the_launchers_variables(launcher, rank, size, master):
    env = filled(launcher)
    assert env["LOCAL_RANK"] in (launcher.get("MPI_LOCALRANKID"), launcher.get("OMPI_COMM_WORLD_LOCAL_RANK"), launcher.get("SLURM_LOCALID"))
    assert env["LOCAL_WORLD_SIZE"] == ("2" if "SLURM_PROCID" in launcher else "4")
    assert (env["RANK"], env["WORLD_SIZE"], env["MASTER_ADDR"]) == (rank, size, master)
    assert int(env["MASTER_PORT"]) in range(1024, 32768)
    assert filled(launcher, {"RANK": "0"})["MASTER_PORT"] == env["MASTER_PORT"], "the same in all processes of the job"


def test_jobs_differ_in_their_port():
    for addressed in ({}, {"MASTER_ADDR": "127.0.0.1"}):
        assert filled(OPEN_MPI, addressed)["MASTER_PORT"] != filled(OPEN_MPI, addressed, {"PMIX_NAMESPACE": "job-18"})["MASTER_PORT"]


def test_what_the_user_set_stays():
    mine = {"RANK": "7", "WORLD_SIZE": "9", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "1234"}
    assert filled(HYDRA, mine) == {**HYDRA, **mine}
    assert filled(HYDRA, {"MASTER_ADDR": "10.0.0.1"})["MASTER_PORT"] == "29500"


def test_torchrun_below_an_mpirun_counts():
    torchrun = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "a", "MASTER_PORT": "1"}
    assert filled(HYDRA, torchrun) == {**HYDRA, **torchrun}


def test_without_a_launcher_nothing_is_guessed():
    assert filled({}) == {}
    batch_script = {name: value for name, value in SLURM.items() if "STEP" not in name}
    assert filled(batch_script) == batch_script, "one process runs there, whatever srun will start"


def test_several_hosts_without_an_address_is_a_sentence():
    with pytest.raises(ValueError, match="set MASTER_ADDR to the address of the host of rank 0"):
        filled({**HYDRA, "MPI_LOCALNRANKS": "2"})


# mpirun -pmi-port, of MPICH 4 and 5.
PMI_PORT = {"PMI_PORT": "node0:40715", "PMI_ID": "1", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}


def test_a_launcher_that_does_not_tell_how_many_there_are_is_a_sentence():
    assert "Start them without -pmi-port, or with torchrun" in _launch.uncounted(PMI_PORT)
    for who_tells in (HYDRA, OPEN_MPI, SLURM, {"WORLD_SIZE": "2"}, {"MV2_COMM_WORLD_SIZE": "2"}):
        assert _launch.uncounted({**PMI_PORT, **who_tells}) is None
    assert _launch.uncounted({}) is None
    result = subprocess.run([sys.executable, "-c", SUM], env={**os.environ, **PMI_PORT}, capture_output=True, text=True, timeout=120)
    assert "ValueError: this process was started by mpirun -pmi-port" in result.stderr.splitlines()[-1], result.stderr


def test_the_caller_may_say_how_many_there_are():
    program = SUM.replace('"ccl"', '"ccl", rank=0, world_size=1')
    assert "sum 1 of rank 0" in run_python(program, env={**os.environ, **PMI_PORT, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"})


def test_another_torch_is_a_sentence():
    assert _library.why_not("2.13.0+cpu", "2.13.0") is None
    assert "built for torch 2.13.0, but torch 2.14.1+cpu is running" in _library.why_not("2.14.1+cpu", "2.13.0+cpu")


def find_mpirun(package: str, other: str | None) -> str | None:
    """Of the package that test.sh --long installs, else the other."""
    return shutil.which(REPOSITORY / "build" / "mpis" / package / "bin" / "mpirun") or other


# The mpirun, what to start it with, and a variable that only this launcher sets: the others' mpirun must not have run instead.
MPIRUNS = {
    "MPICH": (shutil.which("mpirun.mpich"), (), "PMI_RANK"),
    "Intel MPI": (find_mpirun("impi-rt", shutil.which("mpirun", path=os.environ.get("I_MPI_ROOT", "/nowhere") + "/bin")), (), "I_MPI_HYDRA_UUID"),
    "Open MPI": (find_mpirun("openmpi", shutil.which("mpirun.openmpi")), ("--oversubscribe",), "OMPI_COMM_WORLD_RANK"),
}


@pytest.mark.parametrize("name", MPIRUNS)
def test_mpirun_alone(tmp_path, name):
    mpirun, options, proof = MPIRUNS[name]
    if mpirun is None:
        pytest.skip(f"no mpirun of {name}'s: Debian's mpich, and test.sh --long for the others, or I_MPI_ROOT")
    prefix = pathlib.Path(mpirun).parents[1]
    env = {"OMP_NUM_THREADS": "1"}
    if name == "Intel MPI":  # its mpirun takes whichever mpiexec.hydra comes first
        env |= {"I_MPI_ROOT": str(prefix), "PATH": f"{prefix}/bin:{os.environ['PATH']}"}
    program = f"import os; assert '{proof}' in os.environ, 'another mpirun ran'\n{SUM}"
    with MpirunRanks([sys.executable, "-c", program], size=2, logs=tmp_path, mpirun=[mpirun, *options], env=env) as ranks:
        outputs = ranks.succeed(timeout_s=120)
    assert [f"sum 2 of rank {rank}" in output for rank, output in enumerate(outputs)] == [True, True], outputs
    assert "port 29500" not in outputs[0], "a port of the job's own: two jobs on this machine must not meet"


FORKED = """
import os, torch.distributed as dist
channel = int(os.environ["PMI_FD"])
os.fstat(channel)
dist.init_process_group("ccl")
if os.fork() == 0:
    try:
        os.fstat(channel)
        print("the channel is open", flush=True)
    except OSError:
        print("the channel is closed", flush=True)
    os._exit(0)
os.wait()
os.fstat(channel)
dist.destroy_process_group()
"""


@pytest.mark.skipif(MPIRUNS["MPICH"][0] is None, reason="no mpirun of MPICH's (Debian: mpich)")
def test_forked_children_do_not_keep_mpiruns_channel(tmp_path):
    """By its end mpirun sees that a rank has died; a DataLoader's workers may live on."""
    with MpirunRanks([sys.executable, "-c", FORKED], size=2, logs=tmp_path, mpirun=[MPIRUNS["MPICH"][0]], env={"OMP_NUM_THREADS": "1"}) as ranks:
        outputs = ranks.succeed(timeout_s=120)
    assert ["the channel is closed" in output for output in outputs] == [True, True], outputs


def test_torchrun(tmp_path):
    program = tmp_path / "sum.py"
    program.write_text(SUM)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(program)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0 and result.stdout.count("sum 2") == 2, result.stderr


THREADS = """
import os, torch, torch.distributed as dist
before = len(os.sched_getaffinity(0))
dist.init_process_group("ccl")
print("threads", torch.get_num_threads(), "cpus", before, sorted(os.sched_getaffinity(0)), flush=True)
dist.destroy_process_group()
"""


@pytest.mark.skipif(shutil.which("mpirun") is None, reason="no mpirun (Debian: mpich)")
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core is nothing to divide")
def test_the_first_group_settles_the_threads(tmp_path):
    """Where nothing was set, every rank gets cores of its own, and one line says which; TRIREME_PIN=0 leaves all as it was."""
    chosen = []
    for pin in ("1", "0"):
        folder = tmp_path / pin
        folder.mkdir()
        env = {"TRIREME_PIN": pin, "OMP_NUM_THREADS": "1000" if pin == "1" else "2"}
        with MpirunRanks([sys.executable, "-c", THREADS], size=2, logs=folder, env=env) as ranks:
            outputs = ranks.succeed(timeout_s=120)
        text = "".join(outputs)
        lines = [re.search(r"threads (\d+) cpus (\d+) \[([^]]*)\]", output) for output in outputs]
        assert all(lines), text
        chosen.append([(int(line[1]), int(line[2]), set(line[3].split(", "))) for line in lines])
        said = [line for line in text.splitlines() if line.startswith("trireme:")]
        assert len(said) == 1 and ("local rank 0 of 2: 1 compute thread on CPU" if pin == "1" else "TRIREME_PIN=0: threads") in said[0], text
    pinned, untouched = chosen
    assert all(threads <= cpus for threads, cpus, _ in pinned), pinned
    assert pinned[0][2].isdisjoint(pinned[1][2]), pinned
    assert all(threads == 2 and len(mask) == cpus for threads, cpus, mask in untouched), untouched


@pytest.mark.skipif(shutil.which("mpirun") is None, reason="no mpirun (Debian: mpich)")
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core is nothing to divide")
@pytest.mark.parametrize("apart", [{"TRIREME_SHARED_MEMORY": "0"}, {"TRIREME_HOST": "{rank}"}], ids=["no_shared_memory", "labels"])
def test_ranks_of_a_host_that_share_no_memory_leave_each_other_their_cores(tmp_path, apart):
    code = "import os\nos.environ.update((name, value.format(rank=os.environ['PMI_RANK'])) for name, value in " + repr(apart) + ".items())\n" + THREADS
    with MpirunRanks([sys.executable, "-c", code], size=2, logs=tmp_path) as ranks:
        outputs = ranks.succeed(timeout_s=120)
    lines = [re.search(r"threads (\d+) cpus (\d+) \[([^]]*)\]", output) for output in outputs]
    assert all(int(line[1]) <= int(line[2]) // 2 for line in lines), outputs
    assert set(lines[0][3].split(", ")).isdisjoint(lines[1][3].split(", ")), outputs


THREADS_OF_SMALL_GROUPS = """
import os, torch.distributed as dist
dist.init_process_group("gloo")
groups = [dist.new_group([rank], backend="ccl") for rank in range(2)]
print("cpus", sorted(os.sched_getaffinity(0)), flush=True)
dist.destroy_process_group()
"""


@pytest.mark.skipif(shutil.which("mpirun") is None, reason="no mpirun (Debian: mpich)")
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core is nothing to divide")
def test_groups_of_some_ranks_leave_the_others_their_cores(tmp_path):
    """The first group of each process has one rank; the launcher says that two share the host."""
    with MpirunRanks([sys.executable, "-c", THREADS_OF_SMALL_GROUPS], size=2, logs=tmp_path) as ranks:
        outputs = ranks.succeed(timeout_s=120)
    masks = [set(re.search(r"cpus \[([^]]*)\]", output)[1].split(", ")) for output in outputs]
    assert masks[0].isdisjoint(masks[1]), outputs


WAYS = """
import ctypes, datetime, torch, torch.distributed as dist
def seconds(**options):
    dist.init_process_group(store=dist.HashStore(), rank=0, world_size=1, **options)
    group = dist.group.WORLD._get_backend(torch.device("cpu"))
    tensor = torch.ones(3)
    dist.all_reduce(tensor)
    assert isinstance(group, dist.ProcessGroupCCL)
    dist.destroy_process_group()
    return int(group.options._timeout.total_seconds())
limit = datetime.timedelta(seconds=77)
print(seconds(backend="ccl"), seconds(backend="cpu:ccl", timeout=limit), seconds(backend="ccl", timeout=limit),
      seconds(backend="ccl", pg_options=dist.ProcessGroupCCL.Options(limit)), seconds(backend="ccl", timeout=limit, pg_options=dist.ProcessGroupCCL.Options()),
      seconds(backend="ccl", timeout=2 * limit, pg_options=dist.ProcessGroupCCL.Options(limit)))
getenv = ctypes.CDLL(None).getenv
getenv.restype = ctypes.c_char_p
print(getenv(b"DDP_DISABLE_COMM_MEM").decode())
"""


@pytest.mark.parametrize("users", [None, "1"])
def test_ways_to_ask_for_a_group(users):
    """With its timeout; and DDP is told of the backend's memory, unless the user has said something else."""
    env = {name: value for name, value in os.environ.items() if name != "DDP_DISABLE_COMM_MEM"}
    assert run_python(WAYS, env=env if users is None else {**env, "DDP_DISABLE_COMM_MEM": users}) == f"1800 77 77 77 77 77\n{users or 0}"


DEFAULTS = """
import sys, warnings, torch, torch.distributed as dist
warnings.simplefilter("error")
for backend in sys.argv[1].split():
    dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
    group = dist.new_group()
    group.allreduce([torch.ones(3)]).wait()
    if "ccl" in backend:
        group._wait_for_pending_works()
    print(dist.group.WORLD.name(), group.name(), group._has_hooks(), dist.get_backend(), dist.get_backend_config())
    dist.destroy_process_group()
"""


def test_a_group_by_devices_has_a_default_backend():
    """Ours where it is named, and gloo as where trireme is not installed."""
    assert run_python(DEFAULTS, "ccl cpu:ccl").splitlines() == ["custom custom False ccl cpu:ccl", "custom custom False cpu:ccl cpu:ccl"]
    plain = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    assert run_python(DEFAULTS, "gloo cpu:gloo") == run_python(DEFAULTS, "gloo cpu:gloo", env=plain)


def run_python(code: str, *arguments: str, **options) -> str:
    result = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=120, **options)
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def test_import_torch_registers_the_name_and_loads_no_library():
    code = """
import torch
import torch.distributed as dist
loaded = any("libtrireme" in line for line in open("/proc/self/maps"))
print(dist.is_backend_available("ccl"), dist.Backend.CCL, loaded)
"""
    assert run_python(code) == "True ccl False"


def test_registering_takes_under_ten_milliseconds():
    """What the entry point adds to `import torch`, in a process where it has not run: its modules are loaded too. The best of ten: others use the machine."""
    code = """
import time, torch, torch.distributed as dist
assert not dist.is_backend_available("ccl")
start = time.process_time()
import trireme._register
trireme._register.register()
took_s = time.process_time() - start
assert dist.is_backend_available("ccl")
print(took_s)
"""
    took_s = []
    for _ in range(10):
        took_s.append(float(run_python(code, env={**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"})))
        if took_s[-1] < 0.010:
            return
    raise AssertionError(took_s)


def test_a_broken_installation_does_not_break_torch(tmp_path):
    """Whatever registering raises becomes a warning."""
    code = """
import sys, warnings
import trireme._register as register
register._register = lambda dist: 1 / 0
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    register.register()
print(caught[0].message)
"""
    assert run_python(code) == "trireme: the backend ccl is not available: division by zero"
    strict = """
import warnings
import trireme._register as register
register._register = lambda dist: 1 / 0
warnings.simplefilter("error")
register.register()
"""
    assert run_python(strict) == ""


def test_another_torch_stops_before_the_library_is_loaded():
    code = """
import torch, trireme._build as build
build.TORCH_VERSION = "2.12.1+cpu"
try:
    torch.distributed.ProcessGroupCCL
except ImportError as error:
    print(str(error).split(";")[0], any("libtrireme" in line for line in open("/proc/self/maps")))
"""
    assert run_python(code) == f"trireme was built for torch 2.12.1, but torch {torch_version()} is running False"


def torch_version() -> str:
    import importlib.metadata

    return importlib.metadata.version("torch")


def test_the_package_is_typed():
    import trireme

    folder = pathlib.Path(trireme.__file__).parent
    assert (folder / "py.typed").exists() and (folder / "_bindings.pyi").exists()
