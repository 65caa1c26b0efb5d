"""The image trireme/trainer, built from the Dockerfile's own lines and run as a strict cluster would: uid 1000, no capability, a read-only root."""

import json
import subprocess
import time

import pytest

from .builder import Builder, Image

pytestmark = pytest.mark.long

LIMIT_BYTES = 600_000_000
PRELOAD = "/usr/local/lib/libtcmalloc.so:/usr/local/lib/libiomp5.so"
ABOUT_ITSELF = "id -u; id -g; grep CapEff /proc/self/status; grep NoNewPrivs /proc/self/status; df --output=size -B1 /dev/shm | tail -1; touch /usr/x /home/trireme/x"


@pytest.fixture(scope="module")
def image(images_folder) -> Image:
    with Builder(images_folder) as builder:
        yield builder.build("trainer")


def losses(data) -> list[float]:
    state = json.loads((data / "out" / "trainer_state.json").read_text())
    return [entry["loss"] for entry in state["log_history"] if "loss" in entry]


def test_the_image_is_small(image):
    sizes = image.size_bytes()
    print(sizes)
    assert max(sizes.values()) < LIMIT_BYTES, sizes


def test_there_is_no_python(image):
    names = ("python3", "libpython", "site-packages", "dist-packages")
    found = [str(path) for path in image.root.rglob("*") if path.name.startswith(names)]
    assert not [path for path in found if "/share/doc/torch/licenses/" not in path]
    assert image.run("sh", "-c", "command -v python || command -v python3", check=False).returncode != 0


def test_nothing_is_left_that_should_not_be(image):
    assert not list(image.root.glob("etc/ssh/ssh_host_*"))
    assert not list(image.root.glob("var/lib/apt/lists/*")) and not list(image.root.glob("var/cache/apt/archives/*.deb"))
    assert not (image.root / "src").exists() and not (image.root / "opt/venv").exists()
    assert not list((image.root / "mnt").iterdir()) and not list((image.root / "tmp").iterdir())


def test_a_container_is_as_strict_as_it_says(image):
    """The other tests mean something only if these conditions hold while they run."""
    done = image.run("sh", "-c", ABOUT_ITSELF, check=False)
    assert done.stdout.split() == ["1000", "1000", "CapEff:", "0" * 16, "NoNewPrivs:", "1", str(64 << 20)], done.stdout
    assert done.stderr.count("Read-only file system") == 2, done.stderr


def test_every_library_is_found(image):
    listed = image.run("ldd", "/usr/local/bin/trireme").stdout
    assert "not found" not in listed
    for name in ("libtorch_cpu.so", "libc10.so", "libgomp.so.1"):
        assert f"/lib/trireme/{name} " in listed
    for path in PRELOAD.split(":"):
        assert "not found" not in image.run("ldd", path).stdout
    assert "topology" in image.run().stdout  # CMD: trireme info


@pytest.mark.parametrize("environment", [{}, {"LD_PRELOAD": PRELOAD}], ids=["plain", "preloaded"])
def test_two_ranks_train(image, data, qa_flags, environment):
    done = image.run("mpirun", "-n", "2", "trireme", "qa", *qa_flags, "--do_eval", "--output_dir", "/data/out", volumes={"/data": data}, **environment)
    assert "2 ranks on 1 host" in done.stderr and "cannot be preloaded" not in done.stderr
    assert len(losses(data)) == 3 and (data / "out" / "model.safetensors").stat().st_uid == 1000
    assert "eval_f1" in json.loads((data / "out" / "all_results.json").read_text())


def test_numactl_is_there(image):
    assert "physcpubind" in image.run("numactl", "--show").stdout


# ---- ssh ----


def start_sshd(image, host, volumes) -> subprocess.Popen:
    command = image.command("trireme-sshd", volumes=volumes, own_network=False)
    sshd = host.popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    said = ""
    while "Server listening" not in said:
        line = sshd.stdout.readline()
        assert line, f"sshd ended: {said}"
        said += line
    assert "port 2222" in said
    return sshd


def test_mpirun_reaches_other_hosts_over_ssh(image, data, qa_flags, make_secret, make_cluster):
    cluster = make_cluster(hosts=2)
    volumes = {"/data": data, "/home/trireme/.ssh": make_secret("secret")}
    for host in cluster:
        start_sshd(image, host, volumes)
    hosts = ",".join(host.address for host in cluster)
    mpirun = ["mpirun", "-hosts", hosts, "-n", "2", "-ppn", "1", "trireme", "qa", *qa_flags, "--output_dir", "/data/out"]
    done = cluster[0].run(image.command(*mpirun, volumes=volumes, own_network=False), timeout_s=300)
    assert "2 ranks on 2 hosts" in done.stderr, done.stderr
    across = losses(data)
    image.run("mpirun", "-n", "2", "trireme", "qa", *qa_flags, "--overwrite_output_dir", "--output_dir", "/data/out", volumes=volumes)
    assert losses(data) == pytest.approx(across, rel=1e-5)


def test_a_host_with_another_key_is_refused(image, make_secret, make_cluster):
    cluster = make_cluster(hosts=2)
    ours, theirs = {"/home/trireme/.ssh": make_secret("ours")}, {"/home/trireme/.ssh": make_secret("theirs")}
    start_sshd(image, cluster[1], theirs)
    done = cluster[0].run(image.command("ssh", cluster[1].address, "true", volumes=ours, own_network=False), check=False, timeout_s=60)
    assert done.returncode == 255 and "verification failed" in done.stderr, done.stderr


def test_sshd_wants_keys(image):
    done = image.run("trireme-sshd", check=False)
    assert done.returncode == 1 and "id_rsa cannot be read. Mount a Secret" in done.stderr


def test_sigterm_ends_a_container_at_once(image, make_secret):
    """tini hands it on: a pod's end does not have to wait for SIGKILL."""
    command = image.command("trireme-sshd", volumes={"/home/trireme/.ssh": make_secret("secret")})
    container = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert "listening" in container.stderr.readline()
    inside = subprocess.run(["pgrep", "-P", str(container.pid)], capture_output=True, text=True, check=True).stdout.split()
    start = time.monotonic()
    subprocess.run(["kill", "-TERM", *inside], check=True)
    container.communicate(timeout=30)
    assert time.monotonic() - start < 10
