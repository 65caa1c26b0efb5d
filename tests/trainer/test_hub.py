"""Models by name, from a look-alike of the hub on 127.0.0.1 (hub_server.py) and from the cache that huggingface_hub shares with us."""

import json
import os
import pathlib
import random
import re
import shutil
import signal
import ssl
import subprocess
import sys
import time

import filelock
import huggingface_hub
import pytest

from .hub_server import COMMIT, Fault, Hub, Server

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("TRIREME_BUILD_DIR", REPOSITORY / "build" / "release")).resolve()
PROGRAM = BUILD / "tests" / "trainer" / "hub_get"
WEIGHTS = random.Random(1).randbytes(3_000_000)
FILES = {
    "config.json": b'{"model_type": "bert"}',
    "tokenizer.json": b"{}" * 50_000,
    "vocab.txt": b"[PAD]\n[UNK]\n",
    "special_tokens_map.json": b"",
    "README.md": b"nobody needs it",
    "model.safetensors": WEIGHTS,
}
FETCHED = {name: content for name, content in FILES.items() if name != "README.md"}
TOKENIZER_FILES = {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.txt", "vocab.json", "merges.txt"}
# Pauses between attempts in which nothing happens.
QUICK = "--first_pause_ms=20"


@pytest.fixture
def hub():
    hub = Hub(dict(FILES))
    yield hub
    hub.close()


@pytest.fixture
def get(hub, tmp_path):
    return Getter(hub.hub.url(), tmp_path)


class Getter:
    """Runs hub_get with an environment of its own."""

    def __init__(self, endpoint, home):
        self.home = home
        self.cache = home / "hf" / "hub"
        self.folder = self.cache / "models--org--name"
        self.snapshot = self.folder / "snapshots" / COMMIT
        self.env = {"PATH": os.environ["PATH"], "HOME": str(home), "HF_HOME": str(home / "hf"), "HF_ENDPOINT": endpoint, "NO_PROXY": "*"}

    def start(self, *words, **env) -> subprocess.Popen:
        words = [PROGRAM, QUICK, *words] if QUICK not in words else [PROGRAM, *words]
        return subprocess.Popen(words, env=self.env | env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def __call__(self, *words, **env) -> subprocess.CompletedProcess:
        process = self.start(*words, **env)
        try:
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
        return subprocess.CompletedProcess(words, process.returncode, out.strip(), err)

    def succeed(self, *words, **env) -> pathlib.Path:
        run = self(*(words or ("model", "org/name")), **env)
        assert run.returncode == 0, run.stderr
        return pathlib.Path(run.stdout)

    def fail(self, *words, **env) -> str:
        run = self(*(words or ("model", "org/name")), **env)
        assert run.returncode == 1, f"{run.returncode} {run.stdout} {run.stderr}"
        return run.stderr


def contents(folder: pathlib.Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def until(condition, what, seconds=30):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.01)


# What is downloaded, and how it lies.


def test_a_model_is_downloaded_into_the_cache_of_hugging_face(hub, get):
    assert get.succeed() == get.snapshot
    assert contents(get.snapshot) == FETCHED
    for name in FETCHED:
        assert os.readlink(get.snapshot / name) == f"../../blobs/{hub.etag(name)}"
    assert contents(get.folder / "refs") == {"main": COMMIT.encode()}
    assert sorted(path.name for path in (get.folder / "blobs").iterdir()) == sorted(map(hub.etag, FETCHED))
    absent = TOKENIZER_FILES - FILES.keys()
    assert set(contents(get.folder / ".no_exist" / COMMIT)) == absent
    version = re.search(r"project\(trireme VERSION (\S+)", (REPOSITORY / "CMakeLists.txt").read_text())[1]
    assert {request.headers["user-agent"] for request in hub.hub.requests} == {f"trireme/{version}"}


def test_huggingface_hub_reads_what_we_downloaded(hub, get):
    get.succeed()
    report = huggingface_hub.scan_cache_dir(get.cache)
    assert not report.warnings
    (repository,) = report.repos
    assert (repository.repo_id, repository.repo_type, repository.refs.keys()) == ("org/name", "model", {"main"})
    (revision,) = repository.revisions
    assert {file.file_name: file.size_on_disk for file in revision.files} == {name: len(content) for name, content in FETCHED.items()}
    assert huggingface_hub.try_to_load_from_cache("org/name", "model.safetensors", get.cache) == str(get.snapshot / "model.safetensors")
    assert huggingface_hub.try_to_load_from_cache("org/name", "merges.txt", get.cache) is huggingface_hub._CACHED_NO_EXIST
    requests = len(hub.hub.requests)
    path = huggingface_hub.hf_hub_download("org/name", "config.json", cache_dir=get.cache, local_files_only=True)
    assert pathlib.Path(path).read_bytes() == FILES["config.json"]
    assert len(hub.hub.requests) == requests


def test_we_read_what_huggingface_hub_downloaded(hub, get, monkeypatch):
    monkeypatch.setenv("NO_PROXY", "*")
    for name in FETCHED:
        huggingface_hub.hf_hub_download("org/name", name, cache_dir=get.cache, endpoint=hub.hub.url(), token=False)
    requests = len(hub.hub.requests)
    assert contents(get.succeed("model", "org/name", HF_HUB_OFFLINE="1")) == FETCHED
    assert contents(get.succeed("model", "org/name", COMMIT, TRANSFORMERS_OFFLINE="1")) == FETCHED
    assert len(hub.hub.requests) == requests
    downloads = len(hub.hub.asked("GET"))
    assert contents(get.succeed()) == FETCHED
    assert len(hub.hub.asked("GET")) == downloads


def test_huggingface_hub_continues_what_we_began(hub, get, monkeypatch):
    monkeypatch.setenv("NO_PROXY", "*")
    hub.storage.fail("GET", hub.stored_path("model.safetensors"), Fault(cut_after=1_000_000))
    get.fail("--attempts=1", "model", "org/name")
    assert (get.folder / "blobs" / (hub.etag("model.safetensors") + ".incomplete")).stat().st_size == 1_000_000
    huggingface_hub.hf_hub_download("org/name", "model.safetensors", cache_dir=get.cache, endpoint=hub.hub.url(), token=False)
    assert hub.storage.requests[-1].headers["range"] == "bytes=1000000-"
    assert contents(get.succeed()) == FETCHED


def test_what_is_there_is_not_downloaded_again(hub, get):
    get.succeed()
    requests = len(hub.hub.requests)
    get.succeed()
    assert [(r.method, r.path) for r in hub.hub.requests[requests:]] == [("HEAD", hub.path("config.json", "main"))]
    get.succeed("model", "org/name", COMMIT)
    assert len(hub.hub.requests) == requests + 1


def test_the_cache_is_that_of_transformers(hub, get, tmp_path):
    caches = {name: str(tmp_path / name) for name in ("TRANSFORMERS_CACHE", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE")}
    while caches:
        theirs = subprocess.run(
            [sys.executable, "-c", "from transformers.utils.hub import TRANSFORMERS_CACHE; print(TRANSFORMERS_CACHE)"],
            env=get.env | caches, capture_output=True, text=True, check=True, timeout=60,
        )  # fmt: skip
        assert get.succeed("model", "org/name", **caches).is_relative_to(theirs.stdout.strip())
        del caches[pathlib.Path(theirs.stdout.strip()).name]


def test_a_snapshot_with_a_link_to_nowhere_is_mended(hub, get):
    get.succeed()
    (get.folder / "blobs" / hub.etag("vocab.txt")).unlink()
    assert contents(get.succeed()) == FETCHED


def test_shards(hub, get):
    hub.files["a.safetensors"] = hub.files.pop("model.safetensors")
    hub.files["b.safetensors"] = b"b" * 1000
    hub.files["model.safetensors.index.json"] = json.dumps({"weight_map": {"x": "a.safetensors", "y": "b.safetensors", "z": "a.safetensors"}}).encode()
    hub.large = {"a.safetensors", "b.safetensors"}
    expected = {name: content for name, content in hub.files.items() if name != "README.md"}
    assert contents(get.succeed()) == expected
    assert contents(get.succeed(HF_HUB_OFFLINE="1")) == expected
    (get.snapshot / "b.safetensors").unlink()
    message = get.fail(HF_HUB_OFFLINE="1")
    assert f"lacks b.safetensors: put it into {get.snapshot}" in message


def test_an_index_cannot_name_files_elsewhere(hub, get):
    del hub.files["model.safetensors"]
    hub.files["model.safetensors.index.json"] = b'{"weight_map": {"x": "../../../../evil"}}'
    assert "is not the name of a file beside the index" in get.fail()
    hub.files["config.json"], hub.etags["config.json"] = b"{} ", "../../evil"
    shutil.rmtree(get.cache)
    assert "does not tell the etag" in get.fail()


def test_other_revisions(hub, get):
    assert get.succeed("model", "org/name", "refs/pr/1") == get.snapshot
    assert (get.folder / "refs" / "refs" / "pr" / "1").read_text() == COMMIT
    assert any("/resolve/refs%2Fpr%2F1/" in r.path for r in hub.hub.requests)
    assert 'has no revision "v9"' in get.fail("model", "org/name", "v9")


def test_a_tokenizer_alone(hub, get):
    del hub.files["config.json"]
    assert contents(get.succeed("tokenizer", "org/name")).keys() == {"tokenizer.json", "vocab.txt", "special_tokens_map.json"}
    assert not hub.storage.requests
    assert "has no config.json" in get.fail()
    message = get.fail("tokenizer", "org/other", HF_HUB_OFFLINE="1")
    assert "put the tokenizer's files" in message and "model.safetensors" not in message


def test_a_configuration_alone(hub, get):
    message = get.fail("config", "org/name", HF_HUB_OFFLINE="1")
    assert "put config.json into a directory" in message and "tokenizer" not in message
    assert contents(get.succeed("config", "org/name")).keys() == {"config.json"}
    assert {request.path for request in hub.hub.requests} == {hub.path("config.json", "main"), hub.path("config.json")}
    assert get.succeed("config", "org/name", HF_HUB_OFFLINE="1") == get.snapshot
    assert contents(get.succeed()) == FETCHED, "what else a model needs is still to come"
    del hub.files["config.json"]
    shutil.rmtree(get.cache)
    assert "has no config.json" in get.fail("config", "org/name")


def test_progress_is_told(hub, get):
    run = get("--progress", "model", "org/name")
    told = [line.split()[1:] for line in run.stderr.splitlines() if line.startswith("progress")]
    assert ["model.safetensors", "0", str(len(WEIGHTS))] in told
    assert ["model.safetensors", str(len(WEIGHTS)), str(len(WEIGHTS))] in told


# Who is told the token.


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"], ids=["another-port", "another-host"])
def test_the_token_goes_to_the_hub_and_to_nobody_else(hub, get, host):
    hub.token, hub.storage_host = "hf_secret", host
    assert contents(get.succeed(HF_TOKEN="hf_secret")) == FETCHED
    assert all(r.headers["authorization"] == "Bearer hf_secret" for r in hub.hub.requests)
    assert hub.storage.asked("GET")
    assert all("authorization" not in r.headers for r in hub.storage.requests)


def test_a_renamed_model_is_followed_with_the_token(hub, get):
    hub.token, hub.former = "hf_secret", "org/former"
    folder = get.succeed("model", "org/former", HF_TOKEN="hf_secret")
    assert contents(folder) == FETCHED and folder.parts[-3] == "models--org--former"


# What goes wrong on the way.


def test_a_download_that_is_cut_goes_on_where_it_was(hub, get):
    path = hub.stored_path("model.safetensors")
    hub.storage.fail("GET", path, Fault(cut_after=1_000_000), Fault(cut_after=500_000))
    assert contents(get.succeed()) == FETCHED
    first, second, third = hub.storage.asked("GET", path)
    assert "range" not in first.headers
    assert (second.headers["range"], third.headers["range"]) == ("bytes=1000000-", "bytes=1500000-")
    assert second.headers["if-range"].startswith('"'), "a changed file must not be continued"
    # Every attempt asks the hub for a fresh address.
    assert len(hub.hub.asked("GET", hub.path("model.safetensors"))) == 3


def test_a_server_without_ranges_sends_all_of_it_again(hub, get):
    hub.storage.knows_ranges = False
    hub.storage.fail("GET", hub.stored_path("model.safetensors"), Fault(cut_after=1_000_000))
    assert contents(get.succeed()) == FETCHED


def test_small_files_are_continued_too(hub, get):
    hub.hub.fail("GET", hub.path("tokenizer.json"), Fault(cut_after=70_000))
    assert contents(get.succeed()) == FETCHED
    assert hub.hub.asked("GET", hub.path("tokenizer.json"))[1].headers["if-range"] == f'"{hub.etag("tokenizer.json")}"'


def test_a_server_that_stalls_is_left(hub, get):
    hub.storage.fail("GET", hub.stored_path("model.safetensors"), Fault(stall_after=1_000_000))
    hub.hub.fail("GET", hub.path("vocab.txt"), Fault(stall_after=0))
    assert contents(get.succeed(HF_HUB_DOWNLOAD_TIMEOUT="1")) == FETCHED
    assert hub.storage.requests[-1].headers["range"] == "bytes=1000000-"


def test_a_server_in_trouble_is_asked_again(hub, get):
    hub.hub.fail("HEAD", hub.path("config.json", "main"), Fault(status=500), Fault(status=503))
    hub.hub.fail("HEAD", hub.path("vocab.txt"), Fault(status=502))
    hub.storage.fail("GET", hub.stored_path("model.safetensors"), Fault(status=504), Fault(status=500))
    assert contents(get.succeed()) == FETCHED


def test_a_server_in_lasting_trouble_is_given_up(hub, get):
    hub.storage.fail("GET", hub.stored_path("model.safetensors"), *[Fault(status=500)] * 10)
    message = get.fail("--attempts=3", "model", "org/name")
    assert re.search(r"model.safetensors: http://\S+ answered 500 \(given up after 3 attempts\)", message)
    assert len(hub.storage.requests) == 3


def test_a_server_that_asks_to_wait_is_obeyed(hub, get):
    hub.hub.fail("HEAD", hub.path("config.json", "main"), Fault(status=429, headers={"Retry-After": "1"}))
    begin = time.monotonic()
    get.succeed()
    assert time.monotonic() - begin >= 1
    hub.hub.fail("HEAD", hub.path("config.json", "main"), Fault(status=429, headers={"Retry-After": "86400"}))
    shutil.rmtree(get.cache)
    assert "the server asks to wait for 86400 s" in get.fail()


@pytest.mark.parametrize("file, kind", [("model.safetensors", "SHA-256"), ("tokenizer.json", "git's SHA-1")])
def test_damaged_content_is_deleted(hub, get, file, kind):
    if file == "model.safetensors":
        hub.storage.fail("GET", hub.stored_path(file), Fault(damage=True))
    else:
        hub.hub.fail("GET", hub.path(file), Fault(damage=True))
    message = get.fail()
    assert message.startswith(f"IoError: {file}: ") and f"its {kind} is" in message and hub.etag(file) in message
    assert not [path for path in (get.folder / "blobs").iterdir() if hub.etag(file) in path.name]
    assert contents(get.succeed()) == FETCHED


def test_what_an_earlier_process_left_wrong_is_replaced(hub, get):
    blobs = get.folder / "blobs"
    blobs.mkdir(parents=True)
    for name, wrong in {"model.safetensors": b"x" * 1000, "tokenizer.json": b"x" * 200_000, "vocab.txt": b"x" * len(FILES["vocab.txt"])}.items():
        (blobs / f"{hub.etag(name)}.incomplete").write_bytes(wrong)
    assert contents(get.succeed()) == FETCHED


def test_a_file_that_is_not_what_was_announced(hub, get):
    hub.etags["vocab.txt"] = "nohash"
    hub.hub.fail("HEAD", hub.path("vocab.txt"), Fault(status=200, headers={"X-Repo-Commit": COMMIT, "ETag": '"nohash"', "Content-Length": "5"}))
    assert "sends more than the 5 bytes" in get.fail()


def test_refusals_say_what_to_do(hub, get):
    hub.token = "hf_secret"
    message = get.fail()
    assert "answered 401" in message and "misspelt" in message and "set HF_TOKEN" in message and str(get.home / "hf" / "token") in message
    assert "is wrong or has expired" in get.fail(HF_TOKEN="hf_wrong")
    hub.token, hub.gated = None, True
    assert "answered 403 (Access is restricted.)" in (message := get.fail()) and "accept the conditions" in message
    hub.gated = False
    assert "InvalidArgument: org/misspelt:" in (message := get.fail("model", "org/misspelt")) and "check the spelling" in message
    del hub.files["model.safetensors"]
    assert "safe_serialization=True" in get.fail()
    assert not (get.cache / "models--org--misspelt").exists()


def test_what_is_no_hub_is_told_apart(tmp_path):
    portal = Server(lambda request: (200, {"Content-Type": "text/html"}, b"<html>log in</html>"))
    try:
        assert "does not answer like a hub (no X-Repo-Commit)" in Getter(portal.url(), tmp_path).fail()
    finally:
        portal.close()


@pytest.mark.parametrize("options, remedy", [("size=1m", "free some space"), ("ro", "read-only file system")])
def test_a_disk_that_refuses(hub, get, tmp_path, options, remedy):
    """On a file system of its own, in a mount namespace that ends with the test."""
    mount = tmp_path / "mount"
    mount.mkdir()
    script = f"mount -t tmpfs -o {options} none {mount} || exit 77; {PROGRAM} model org/name"
    flags = ["--mount"] if os.geteuid() == 0 else ["--mount", "--user", "--map-root-user"]
    run = subprocess.run(["unshare", *flags, "sh", "-c", script], env=get.env | {"HF_HOME": str(mount)}, capture_output=True, text=True, timeout=60)
    if run.returncode == 77 or "unshare" in run.stderr:
        pytest.skip(f"this machine lets nobody mount: {run.stderr}")
    assert run.returncode == 1 and run.stderr.startswith(f"IoError: cannot write {mount}") and remedy in run.stderr


# Without a network.


def test_offline(hub, get):
    message = get.fail(HF_HUB_OFFLINE="1")
    assert f"copy {get.folder} from a machine that has it" in message and "pass that instead of org/name" in message
    get.succeed()
    requests = len(hub.hub.requests)
    assert get.succeed(HF_HUB_OFFLINE="1") == get.succeed(TRANSFORMERS_OFFLINE="1") == get.snapshot
    assert len(hub.hub.requests) == requests
    (get.snapshot / "model.safetensors").unlink()
    assert f"lacks model.safetensors: put it into {get.snapshot}" in get.fail(HF_HUB_OFFLINE="1")


def test_a_hub_that_cannot_be_reached(hub, get):
    dead = get.env["HF_ENDPOINT"].rsplit(":", 1)[0] + ":1"
    message = get.fail("--attempts=2", "model", "org/name", HF_ENDPOINT=dead)
    assert "given up after 2 attempts" in message and f"copy {get.folder} from" in message
    get.succeed()
    run = get("model", "org/name", HF_ENDPOINT=dead)
    assert (run.returncode, run.stdout) == (0, str(get.snapshot)) and f"; using {get.snapshot}" in run.stderr
    hub.hub.fail("HEAD", hub.path("config.json", "main"), Fault(status=503))
    assert get.succeed() == get.snapshot


def test_a_cache_that_cannot_be_written_to_is_read(hub, get):
    get.succeed()
    script = f"mount --bind -o ro {get.cache} {get.cache} && mount -o remount,ro,bind {get.cache} || exit 77; {PROGRAM} model org/name"
    flags = ["--mount"] if os.geteuid() == 0 else ["--mount", "--user", "--map-root-user"]
    run = subprocess.run(["unshare", *flags, "sh", "-c", script], env=get.env, capture_output=True, text=True, timeout=60)
    if run.returncode == 77 or "unshare" in run.stderr:
        pytest.skip(f"this machine lets nobody mount: {run.stderr}")
    assert run.stdout.strip() == str(get.snapshot), run.stderr


# Several processes.


def test_two_processes_at_once_download_once(hub, get):
    hub.storage.fail("GET", hub.stored_path("model.safetensors"), Fault(slow=1))
    processes = [get.start("model", "org/name") for _ in range(3)]
    for process in processes:
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        assert contents(pathlib.Path(out.strip())) == FETCHED
    for name, content in FETCHED.items():
        assert len(hub.hub.asked("GET", hub.path(name))) == (1 if content else 0), name
    assert len(hub.storage.asked("GET")) == 1


def test_a_process_that_was_killed_is_continued(hub, get):
    path = hub.stored_path("model.safetensors")
    hub.storage.fail("GET", path, Fault(stall_after=2_000_000))
    incomplete = get.folder / "blobs" / f"{hub.etag('model.safetensors')}.incomplete"
    process = get.start("model", "org/name")
    until(lambda: incomplete.exists() and incomplete.stat().st_size == 2_000_000, "two million bytes")
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    assert not (get.snapshot / "model.safetensors").exists() and not (get.folder / "refs" / "main").exists()
    assert contents(get.succeed()) == FETCHED
    assert hub.storage.requests[-1].headers["range"] == "bytes=2000000-"
    assert hub.storage.requests[-1].sent == len(WEIGHTS) - 2_000_000


def test_a_lock_of_huggingface_hub_is_respected(hub, get):
    lock = get.cache / ".locks" / "models--org--name" / f"{hub.etag('model.safetensors')}.lock"
    lock.parent.mkdir(parents=True)
    with filelock.FileLock(lock):
        assert get.fail("--lock_timeout=1", "model", "org/name").startswith(f"Timeout: another process holds {lock}")
        process = get.start("model", "org/name")
        until(lambda: (get.snapshot / "vocab.txt").exists(), "the files before")
        time.sleep(0.3)
        assert process.poll() is None and not hub.storage.requests
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0 and contents(get.snapshot) == FETCHED, err


# Encrypted.


def test_https_with_certificates_of_ones_own(tmp_path):
    if not shutil.which("openssl"):
        pytest.skip("openssl, which makes the certificate, is missing")
    key, certificate = tmp_path / "key", tmp_path / "certificate"
    subject = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *subject, "-keyout", key, "-out", certificate]
    subprocess.run(command, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    hub = Hub(dict(FILES), tls=context)
    try:
        get = Getter(hub.hub.url(), tmp_path)
        assert "name its certificates in REQUESTS_CA_BUNDLE" in get.fail()
        assert not hub.hub.requests
        assert contents(get.succeed(REQUESTS_CA_BUNDLE=str(certificate))) == FETCHED
    finally:
        hub.close()


# Datasets.


@pytest.fixture
def squad(tmp_path):
    files = {f"/data/{split}-{version}.json": b"{" + random.Random(split + version).randbytes(500_000) for split in ("train", "dev") for version in ("v1.1", "v2.0")}
    etags = {}

    def find(request):
        if request.path not in files:
            return 404, {}, b""
        return 200, {"ETag": etags.get(request.path, '"1"')}, files[request.path]

    server = Server(find)
    server.files, server.etags = files, etags
    yield server
    server.close()


@pytest.fixture
def get_dataset(squad, tmp_path):
    getter = Getter("http://127.0.0.1:1", tmp_path)
    getter.env |= {"TRIREME_SQUAD_URL": squad.url() + "/data/", "HF_TOKEN": "hf_secret"}
    return getter


def test_datasets(squad, get_dataset, tmp_path):
    folder = tmp_path / "hf" / "datasets" / "trireme-squad"
    for name, split, file in [("squad", "train", "train-v1.1.json"), ("rajpurkar/squad", "validation", "dev-v1.1.json"),
                              ("squad_v2", "train", "train-v2.0.json"), ("rajpurkar/squad_v2", "validation", "dev-v2.0.json")]:  # fmt: skip
        path = get_dataset.succeed("dataset", name, split)
        assert path == folder / file and path.read_bytes() == squad.files[f"/data/{file}"]
    assert all("authorization" not in request.headers for request in squad.requests)
    requests = len(squad.requests)
    get_dataset.succeed("dataset", "squad", "train", "plain_text")
    get_dataset.succeed("dataset", "squad", "train", HF_DATASETS_OFFLINE="1")
    assert len(squad.requests) == requests
    assert get_dataset.succeed("dataset", "squad", "train", HF_DATASETS_CACHE=str(tmp_path / "d")) == tmp_path / "d" / "trireme-squad" / "train-v1.1.json"
    message = get_dataset.fail("dataset", "squad", "train", HF_DATASETS_CACHE=str(tmp_path / "e"), HF_DATASETS_OFFLINE="1")
    assert f"Put train-v1.1.json into {tmp_path / 'e' / 'trireme-squad'}" in message
    squad.files["/data/train-v1.1.json"] = b"<html>log in</html>"
    assert "is not JSON" in get_dataset.fail("dataset", "squad", "train", HF_DATASETS_CACHE=str(tmp_path / "f"))
    assert contents(tmp_path / "f" / "trireme-squad") == {"train-v1.1.json.lock": b""}
    del squad.files["/data/train-v1.1.json"]
    assert "check TRIREME_SQUAD_URL" in get_dataset.fail("dataset", "squad", "train", HF_DATASETS_CACHE=str(tmp_path / "f"))


def test_a_dataset_is_continued_only_if_it_is_the_same(squad, get_dataset):
    path = "/data/train-v1.1.json"
    squad.fail("GET", path, Fault(cut_after=200_000), Fault(cut_after=100_000))
    get_dataset.fail("--attempts=1", "dataset", "squad", "train")
    get_dataset.fail("--attempts=1", "dataset", "squad", "train")
    assert squad.requests[-1].headers["range"] == "bytes=200000-" and squad.requests[-1].headers["if-range"] == '"1"'
    squad.etags[path], squad.files[path] = '"2"', b"{" + random.Random(9).randbytes(500_000)
    assert get_dataset.succeed("dataset", "squad", "train").read_bytes() == squad.files[path]
    assert "range" not in squad.requests[-1].headers


def test_a_dataset_that_changes_on_the_way_is_begun_again(squad, get_dataset):
    path = "/data/dev-v1.1.json"
    squad.fail("GET", path, Fault(cut_after=200_000))
    process = get_dataset.start("--first_pause_ms=1500", QUICK.replace("20", "1500"), "dataset", "squad", "validation")
    until(lambda: squad.asked("GET", path) and squad.asked("GET", path)[0].sent == 200_000, "the cut")
    squad.etags[path], squad.files[path] = '"2"', b"{" + random.Random(9).randbytes(500_000)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert pathlib.Path(out.strip()).read_bytes() == squad.files[path]


def test_a_dataset_without_an_etag_is_never_continued(squad, get_dataset):
    path = "/data/dev-v2.0.json"
    squad.etags[path] = 'W/"weak"'
    squad.fail("GET", path, Fault(cut_after=200_000), Fault(cut_after=100_000))
    assert get_dataset.succeed("dataset", "squad_v2", "validation").read_bytes() == squad.files[path]
    assert all("range" not in request.headers for request in squad.requests)
