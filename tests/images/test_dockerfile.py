"""The Dockerfile keeps the rules of rules.py, and every rule is seen to fail on a Dockerfile that breaks it."""

import os
import re
import subprocess

import pytest

from . import rules
from .builder import REPOSITORY, Ignore, context_files
from .dockerfile import DockerfileError, parse

TEXT = (REPOSITORY / "deploy" / "docker" / "Dockerfile").read_text()
SSH = REPOSITORY / "deploy" / "docker" / "ssh"


def test_the_dockerfile_keeps_the_rules():
    assert rules.findings(TEXT) == []


# (rule, what to look for, what to put there)
MUTATIONS = [
    ("base_is_pinned", "ARG DEBIAN=bookworm-20250520-slim", "ARG DEBIAN=latest"),
    ("base_is_pinned", "ARG DEBIAN=bookworm-20250520-slim", "ARG DEBIAN=bookworm-slim"),
    ("base_is_pinned", "FROM debian:${DEBIAN} AS base", "FROM debian AS base"),
    ("base_is_pinned", "FROM debian:${DEBIAN} AS toolchain", "FROM ubuntu:24.04 AS toolchain"),
    ("stages_are_named_once", "FROM toolchain AS wheels", "FROM toolchain AS program"),
    ("stages_are_named_once", "FROM toolchain AS wheels", "FROM toolchain"),
    ("copies_come_from_earlier_stages", "COPY --from=program /image/torch /usr/local", "COPY --from=progam /image/torch /usr/local"),
    ("copies_come_from_earlier_stages", "COPY --from=program /image/torch /usr/local", "COPY --from=wheels /image/torch /usr/local"),
    ("apt_get_leaves_nothing", "apt-get install -y --no-install-recommends python3", "apt-get install -y python3"),
    ("apt_get_leaves_nothing", "apt-get install -y --no-install-recommends python3", "apt-get install --no-install-recommends python3"),
    ("apt_get_leaves_nothing", "    rm -rf /var/lib/apt/lists/*\nARG", "    true\nARG"),
    ("apt_get_leaves_nothing", "RUN apt-get update && \\\n    DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends python3",
     "RUN apt-get update\nRUN apt-get install -y --no-install-recommends python3"),
    ("apt_get_leaves_nothing", "apt-get install -y --no-install-recommends python3", "apt install -y --no-install-recommends python3"),
    ("apt_get_leaves_nothing", "RUN apt-get update && ", "RUN apt-get update && apt-get upgrade -y && "),
    ("pip_pins_and_keeps_no_cache", "numpy==2.4.6", "numpy"),
    ("pip_pins_and_keeps_no_cache", "pip install --no-cache-dir scikit-build-core", "pip install scikit-build-core"),
    ("nothing_is_piped_into_a_shell", "RUN python3 -m venv", "RUN curl -sSf https://example.com/install.sh | sh && python3 -m venv"),
    ("nothing_is_piped_into_a_shell", "RUN python3 -m venv", "RUN wget -qO- https://example.com/x | sudo bash && python3 -m venv"),
    ("nothing_is_piped_into_a_shell", "RUN python3 -m venv", "RUN cd /opt && python3 -m venv"),
    ("nothing_is_piped_into_a_shell", "RUN python3 -m venv", "RUN sudo python3 -m venv"),
    ("copy_instead_of_add", "COPY examples /opt", "ADD https://example.com/examples.tar.gz /opt"),
    ("copies_name_what_they_take", "COPY cmake cmake", "COPY . ."),
    ("copies_name_what_they_take", "COPY CMakeLists.txt CMakePresets.json ./", "COPY CMakeLists.txt CMakePresets.json here"),
    ("workdirs_are_absolute", "WORKDIR /src", "WORKDIR src"),
    ("images_run_as_uid_1000", "USER 1000:1000\nWORKDIR /home/trireme\nCMD [\"trireme\"", "WORKDIR /home/trireme\nCMD [\"trireme\""),
    ("images_run_as_uid_1000", "USER 1000:1000\nWORKDIR /home/trireme\nCMD [\"torchrun\"", "USER 1000:1000\nUSER root\nCMD [\"torchrun\""),
    ("images_run_as_uid_1000", "USER 1000:1000", "USER trireme"),
    ("images_start_through_tini", 'ENTRYPOINT ["/usr/bin/tini", "--"]', "ENTRYPOINT /usr/bin/tini --"),
    ("images_start_through_tini", 'ENTRYPOINT ["/usr/bin/tini", "--"]', 'ENTRYPOINT ["/usr/local/bin/trireme"]'),
    ("images_start_through_tini", 'ENTRYPOINT ["/usr/bin/tini", "--"]\n', ""),
    ("images_start_through_tini", 'CMD ["trireme", "info"]', "CMD trireme info"),
    ("there_is_no_secret", "ARG TORCH_VERSION", "ARG HF_TOKEN\nARG TORCH_VERSION"),
    ("there_is_no_secret", "ENV TMPDIR=/tmp", "ENV DB_PASSWORD=x TMPDIR=/tmp"),
    ("there_is_no_secret", "ARG DEBIAN=", "ARG REGISTRY_SECRET=x\nARG DEBIAN="),
    ("there_is_no_secret", "ARG TORCH_INDEX=https://", "ARG TORCH_INDEX=https://me:word@"),
    ("there_is_no_secret", "RUN python3 -m venv", "RUN echo hf_" + "a" * 30 + " && python3 -m venv"),
    ("host_keys_are_removed", "rm -f /etc/ssh/ssh_host_* && \\\n", "true && \\\n"),
]  # fmt: skip


@pytest.mark.parametrize("rule, old, new", MUTATIONS, ids=[f"{i}-{rule}" for i, (rule, _, _) in enumerate(MUTATIONS)])
def test_a_mutation_is_found(rule, old, new):
    assert old in TEXT, "the mutation does not fit the Dockerfile any more"
    assert rule in {name for name, _ in rules.findings(TEXT.replace(old, new))}


def test_every_rule_has_a_mutation():
    assert {rule.__name__ for rule in rules.RULES} == {rule for rule, _, _ in MUTATIONS}


@pytest.mark.parametrize("text", ["", "RUN true", "FROM debian:1\nFORM x", "FROM debian:${NOTHING}", "FROM debian:1\nRUN true \\"])
def test_what_cannot_be_read_is_an_error(text):
    with pytest.raises(DockerfileError):
        parse(text)


def test_comments_and_continued_lines_are_read_as_docker_does():
    read = parse("ARG A=1\nFROM debian:$A AS x\nRUN one && \\\n    # why\n    two\nCOPY --from=x --chmod=755 a b c/\n")
    run, copy = read.stage("x").instructions
    assert read.stage("x").base == "debian:1" and re.split(r"\s+", run.text) == ["one", "&&", "two"]
    assert copy.flags == [("from", "x"), ("chmod", "755")] and copy.words() == ["a", "b", "c/"]


def test_dockerignore_patterns():
    ignored = Ignore("*\n!python\n!deploy/docker\n**/__pycache__\n")
    assert ignored("build/x") and ignored("deploy/kubernetes/x") and ignored("python/a/__pycache__/b.pyc")
    assert not ignored("python/a/b.py") and not ignored("deploy/docker/Dockerfile")


def test_the_context_holds_what_the_dockerfile_copies_and_nothing_else():
    """A file that no COPY takes makes the context larger for nothing, or was forgotten in the Dockerfile."""
    copies = [each for stage in parse(TEXT).stages for each in stage.instructions if each.name == "COPY" and each.flag("from") is None]
    sources = {word for copy in copies for word in copy.words()[:-1]}
    files = context_files(REPOSITORY)
    for source in sources:
        assert any(name == source or name.startswith(source + "/") for name in files), f"{source} is not in the context"
    assert [name for name in files if not any(name == source or name.startswith(source + "/") for source in sources)] == []


def test_versions_are_those_of_the_project():
    setup = (REPOSITORY / "tools" / "setup.sh").read_text()
    requirements = (REPOSITORY / "tests" / "requirements.txt").read_text()
    arguments = dict(re.findall(r"^ARG (\w+)=(\S+)$", TEXT, re.MULTILINE))
    assert f"TORCH_VERSION={arguments['TORCH_VERSION']}\n" in setup
    for package in ("transformers", "accelerate"):
        assert f"{package}=={arguments[package.upper() + '_VERSION']}\n" in requirements
    version = re.search(r"project\(trireme VERSION (\S+)", (REPOSITORY / "CMakeLists.txt").read_text())[1]
    assert f"trireme/trainer:{version} " in TEXT and f"trireme/huggingface:{version} " in TEXT


def settings_of(name: str) -> dict[str, str]:
    lines = [line.strip() for line in (SSH / name).read_text().splitlines()]
    return dict(line.split(None, 1) for line in lines if line and not line.startswith("#"))


def test_sshd_lets_nobody_in_but_by_key():
    server, client = settings_of("sshd_config"), settings_of("ssh_config")
    assert server["Port"] == "2222" and server["AuthenticationMethods"] == "publickey" and server["PasswordAuthentication"] == "no"
    assert client["StrictHostKeyChecking"] == "yes" and client["Port"] == "2222"
    for script in ("trireme-sshd", "trireme-mpirun"):
        subprocess.run(["sh", "-n", SSH / script], check=True)


@pytest.mark.parametrize("named", [None, "/nowhere/hosts"])
def test_mpirun_does_not_start_without_its_hosts(tmp_path, named):
    (tmp_path / "mpirun").write_text("#!/bin/sh\necho started\n")
    (tmp_path / "mpirun").chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", **({} if named is None else {"HYDRA_HOST_FILE": named})}
    done = subprocess.run(["sh", SSH / "trireme-mpirun", "-n", "8", "true"], env=env, capture_output=True, text=True)
    assert done.returncode != 0 and done.stdout == "" and (named or "HYDRA_HOST_FILE") in done.stderr


def test_ssh_waits_for_a_host_that_is_only_just_there():
    settings = settings_of("ssh_config")
    assert (settings["ConnectionAttempts"], settings["ConnectTimeout"]) == ("10", "5")


def test_ssh_gives_a_lost_host_up():
    """Both sides, after 15 s: neither mpirun nor ranks of a launcher that is gone wait for ever."""
    for name, side in (("ssh_config", "Server"), ("sshd_config", "Client")):
        settings = settings_of(name)
        assert (settings[f"{side}AliveInterval"], settings[f"{side}AliveCountMax"]) == ("5", "2"), name
    assert "--pdeathsig PIPE" in settings_of("sshd_config")["ForceCommand"]
