"""Builds the stages of a Dockerfile into folders, by running its own lines in them: no container engine is needed.

`FROM debian:bookworm-<day>-slim` is what debootstrap makes of bookworm today, brought to what the slim image leaves out; all else is what the file says.
A stage is built again when anything that it was made of has changed. Packages come from where this machine has them: apt's mirror, and pip's settings.
"""

import fcntl
import fnmatch
import glob
import hashlib
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator

from .chroot import build_command, container_command
from .dockerfile import Dockerfile, DockerfileError, Instruction, expand, parse

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
DEADLINE_S = 3 * 3600  # of one RUN; compiling everything on two busy cores takes long

# What the slim image has no files of; it leaves licences.
SLIM_EXCLUDES = ("doc", "groff", "info", "linda", "lintian", "locale", "man")
SLIM_DPKG = "".join(f"path-exclude /usr/share/{name}/*\n" for name in SLIM_EXCLUDES) + "path-include /usr/share/doc/*/copyright\n"
# As in Debian's images: what apt-get downloads does not stay in the layer.
SLIM_APT = """APT::Keep-Downloaded-Packages "false";
DPkg::Post-Invoke { "rm -f /var/cache/apt/archives/*.deb /var/cache/apt/*.bin || true"; };
APT::Update::Post-Invoke { "rm -f /var/cache/apt/*.bin || true"; };
Acquire::Languages "none";
"""


class Ignore:
    """.dockerignore: the last pattern that matches a path, or a folder above it, decides."""

    def __init__(self, text: str):
        lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
        self._rules = [(not line.startswith("!"), self._regex(line.removeprefix("!").strip("/"))) for line in lines]
        self._kept = [line[1:].strip("/") for line in lines if line.startswith("!")]

    @staticmethod
    def _regex(pattern: str) -> re.Pattern:
        parts = [".*" if part == "**/" else "".join("[^/]*" if c == "*" else re.escape(c) for c in part) for part in re.split(r"(\*\*/)", pattern)]
        return re.compile("".join(parts) + "(/.*)?")

    def __call__(self, path: str) -> bool:
        ignored = False
        for ignores, regex in self._rules:
            if regex.fullmatch(path):
                ignored = ignores
        return ignored

    def whole(self, folder: str) -> bool:
        """Is nothing below it kept either?"""
        return self(folder) and not any(kept.startswith(folder + "/") for kept in self._kept)


def context_files(folder: pathlib.Path) -> list[str]:
    """What `docker build FOLDER` would send: every file that .dockerignore leaves."""
    ignored = Ignore((folder / ".dockerignore").read_text())
    names = []
    for path, folders, files in os.walk(folder):
        relative = pathlib.Path(path).relative_to(folder)
        folders[:] = [each for each in folders if not ignored.whole(str(relative / each))]
        names += [str(relative / each) for each in files if not ignored(str(relative / each))]
    return sorted(names)


def pip_settings() -> tuple[dict[str, str], dict[str, pathlib.Path]]:
    """This machine's pip settings as variables for a RUN, and the files and folders that they name, to be mounted below /mnt."""
    listed = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True).stdout
    variables, mounts = {}, {}
    names: dict[str, str] = {}

    def mounted(match: re.Match) -> str:
        name = names.setdefault(match[0], f"pip{len(names)}")
        mounts[name] = pathlib.Path(match[0])
        return f"/mnt/{name}"

    for line in listed.splitlines():
        key, _, value = line.partition("=")
        value = value.strip("'\"").replace("\\n", " ")
        paths = sorted((word.removeprefix("file://") for word in value.split()), key=len)
        paths = [path for path in paths if path.startswith("/") and pathlib.Path(path).exists()]
        for path in paths:
            # A file:// index refers to files beside it.
            top = str(pathlib.Path(path).parent) if pathlib.Path(path).name == "simple" else path
            value = re.sub(rf"{re.escape(top)}(?![\w-])", mounted, value)
        variables["PIP_" + key.rpartition(".")[2].replace("-", "_").upper()] = value
    return variables, mounts


def digest(*parts) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def digest_of_files(paths: list[pathlib.Path]) -> str:
    return digest([(str(path), os.stat(path).st_mode & 0o111, hashlib.sha256(path.read_bytes()).hexdigest()) for path in sorted(paths)])


class Image:
    """A stage that was built: its root, and what a container of it starts with."""

    def __init__(self, root: pathlib.Path, config: dict):
        self.root = root
        self.environment: dict[str, str] = config["environment"]
        self.user: str = config["user"]
        self.workdir: str = config["workdir"]
        self.entrypoint: list[str] = config["entrypoint"]
        self.cmd: list[str] = config["cmd"]

    def size_bytes(self) -> dict[str, int]:
        """Of all files: their length (as an engine counts, hard links once), and what they take on this disk."""
        sizes = {}
        for name, flags in (("apparent", ["--apparent-size"]), ("on disk", [])):
            counted = subprocess.run(["du", "-s", "-x", "-B1", *flags, str(self.root)], capture_output=True, text=True, check=True).stdout
            sizes[name] = int(counted.split()[0])
        return sizes

    def command(self, *argv: str, volumes: dict[str, pathlib.Path] | None = None, own_network: bool = True, **environment: str) -> list[str]:
        """The command that runs a container of it, the strict way; see chroot.py. Without argv, its CMD."""
        if self.user != "1000:1000":
            raise AssertionError(f"the image runs as {self.user}")
        start = [*self.entrypoint, *(argv or self.cmd)]
        environment = {**self.environment, **environment}
        return container_command(self.root, start, environment=environment, workdir=self.workdir, volumes=volumes or {}, own_network=own_network)

    def run(self, *argv: str, timeout_s: float = 300, check: bool = True, volumes=None, **environment: str) -> subprocess.CompletedProcess:
        command = self.command(*argv, volumes=volumes, **environment)
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, stdin=subprocess.DEVNULL)
        if check:
            assert done.returncode == 0, f"{shlex.join(argv)} ended with {done.returncode}\n{done.stdout}{done.stderr}"
        return done


class Builder:
    """Owns `folder`, which holds one folder per stage and stays, as a cache; another Builder waits until this one ends.

    `arguments` are those of docker build --build-arg; `mounts` are folders that RUN lines find below /mnt.
    """

    def __init__(self, folder: pathlib.Path, *, arguments: dict[str, str] | None = None, mounts: dict[str, pathlib.Path] | None = None):
        self._folder = folder
        self._arguments = arguments or {}
        self._pip, pip_mounts = pip_settings()
        self._mounts = {**pip_mounts, **(mounts or {})}
        self._dockerfile: Dockerfile = parse((REPOSITORY / "deploy" / "docker" / "Dockerfile").read_text(), self._arguments)
        self._files = context_files(REPOSITORY)
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = open(folder / "lock", "w")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self.log = folder / "build.log"

    def __enter__(self) -> "Builder":
        return self

    def __exit__(self, *exception) -> None:
        self._lock.close()

    def argument(self, name: str) -> str | None:
        return self._arguments.get(name)

    def build(self, name: str) -> Image:
        """Builds the stage and what it needs. A failure carries the last lines of what the RUN line said."""
        root, config = self._stage(name)
        return Image(root, config)

    def _stage(self, name: str) -> tuple[pathlib.Path, dict]:
        stage = self._dockerfile.stage(name)
        if self._dockerfile.is_stage(stage.base):
            base, config = self._stage(stage.base)
        else:
            base, config = self._debian(stage.base), dict(environment={}, user="0", workdir="/", entrypoint=[], cmd=[])
        root, record = self._folder / name, self._folder / f"{name}.json"
        declared = {name for each in stage.instructions if each.name == "ARG" for name in each.pairs()}
        given = {name: value for name, value in self._arguments.items() if name in declared}
        stamp = digest(self._stamp(base), [self._inputs(each) for each in stage.instructions], given)
        if record.exists() and (known := json.loads(record.read_text()))["stamp"] == stamp:
            return root, known["config"]
        record.unlink(missing_ok=True)
        self._say(f"== {name}")
        remove(root)
        subprocess.run(["cp", "-a", "--reflink=auto", str(base), str(root)], check=True)
        run = StageRun(self, root, config)
        for each in stage.instructions:
            run.execute(each)
        config = run.config()
        record.write_text(json.dumps(dict(stamp=stamp, config=config)) + "\n")
        return root, config

    def _stamp(self, root: pathlib.Path) -> str:
        return json.loads(root.with_name(f"{root.name}.json").read_text())["stamp"]

    def _inputs(self, each: Instruction) -> list:
        """What the result of an instruction depends on."""
        parts = [each.name, each.flags, each.text]
        if each.name == "COPY":
            source = each.flag("from")
            if source is None:
                parts.append(digest_of_files([REPOSITORY / name for pattern in each.words()[:-1] for name in self.matching(pattern)]))
            else:
                parts.append(self._stamp(self._stage(source)[0]))
        return parts

    def _debian(self, image: str) -> pathlib.Path:
        """The slim image of bookworm, by debootstrap. The day in the tag is not to be had that way: packages are today's."""
        match = re.fullmatch(r"debian:(?P<suite>[a-z]+)-\d{8}-slim(@sha256:[0-9a-f]{64})?", image)
        if not match:
            raise DockerfileError(f"do not know how to make {image}")
        suite = match["suite"]
        root = self._folder / f"debian-{suite}-slim"
        record = root.with_name(root.name + ".json")
        stamp = digest(suite, SLIM_DPKG, SLIM_APT)
        if record.exists() and json.loads(record.read_text())["stamp"] == stamp:
            return root
        self._say(f"== {image}, by debootstrap")
        remove(root)
        self.execute(["debootstrap", "--variant=minbase", suite, str(root)], "debootstrap")
        (root / "etc/dpkg/dpkg.cfg.d/docker").write_text(SLIM_DPKG)
        (root / "etc/apt/apt.conf.d/docker-clean").write_text(SLIM_APT)
        for name in SLIM_EXCLUDES:
            for path in (root / "usr/share" / name).rglob("*"):
                if path.name != "copyright" and (path.is_file() or path.is_symlink()):
                    path.unlink()
        # debootstrap names the release alone; Debian's images have its updates, too.
        sources = root / "etc/apt/sources.list"
        mirror = sources.read_text().split()[1].rstrip("/")
        sources.write_text(f"deb {mirror} {suite} main\ndeb {mirror} {suite}-updates main\ndeb {mirror}-security {suite}-security main\n")
        upgrade = "apt-get update && apt-get -y dist-upgrade && apt-get clean && rm -rf /var/lib/apt/lists/* /var/log/*.log /var/log/apt"
        self.execute(build_command(root, upgrade, environment={"DEBIAN_FRONTEND": "noninteractive"}, workdir="/", mounts={}, caches={}), upgrade)
        record.write_text(json.dumps(dict(stamp=stamp)) + "\n")
        return root

    def matching(self, pattern: str) -> list[str]:
        """The files of the context that a COPY source names."""
        pattern = pattern.removeprefix("./").rstrip("/")
        names = [name for name in self._files if fnmatch.fnmatchcase(name, pattern) or name.startswith(pattern + "/")]
        if not names:
            raise DockerfileError(f"COPY {pattern}: nothing of that name is sent to the builder; see .dockerignore")
        return names

    def sources(self, copy: Instruction, words: list[str]) -> Iterator[tuple[pathlib.Path, str]]:
        """(file or folder, its path relative to what is copied) for a COPY; of a folder, what is in it."""
        source = copy.flag("from")
        for word in words:
            if source is None:
                pattern = word.removeprefix("./").rstrip("/")
                for name in self.matching(word):
                    inside = name.removeprefix(pattern + "/") if name.startswith(pattern + "/") else pathlib.Path(name).name
                    yield REPOSITORY / name, inside
                continue
            found = glob.glob(str(self._stage(source)[0] / word.lstrip("/")))
            if not found:
                raise DockerfileError(f"line {copy.line}: {word} is not in stage {source}")
            for path in map(pathlib.Path, found):
                is_folder = path.is_dir() and not path.is_symlink()
                yield from ((child, child.name) for child in path.iterdir()) if is_folder else [(path, path.name)]

    def run(self, root: pathlib.Path, run: Instruction, environment: dict[str, str], workdir: str) -> None:
        caches = {}
        for name, value in run.flags:
            options = dict(option.partition("=")[::2] for option in value.split(","))
            if name != "mount" or options.keys() != {"type", "target"} or options["type"] != "cache":
                raise DockerfileError(f"line {run.line}: only --mount=type=cache,target=PATH is known here, not --{name}={value}")
            caches[options["target"]] = self._folder / "caches" / options["target"].strip("/").replace("/", "-")
            caches[options["target"]].mkdir(parents=True, exist_ok=True)
        self._say(f"RUN {run.text}")
        command = build_command(root, run.text, environment={**self._pip, **environment}, workdir=workdir, mounts=self._mounts, caches=caches)
        self.execute(command, f"line {run.line}: {run.text}")

    def _say(self, text: str) -> None:
        with open(self.log, "a") as log:
            log.write(text + "\n")

    def execute(self, command: list[str], what: str) -> None:
        with open(self.log, "ab") as log:
            done = subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, timeout=DEADLINE_S)
        if done.returncode != 0:
            raise AssertionError(f"{what}\nended with {done.returncode}:\n{self.log.read_text(errors='replace')[-4000:]}")


class StageRun:
    """A stage while its instructions are executed, one after the other, on its root."""

    def __init__(self, builder: Builder, root: pathlib.Path, config: dict):
        self._builder, self._root = builder, root
        self._environment, self._args = dict(config["environment"]), {}
        self._config = dict(config)

    def config(self) -> dict:
        return {**self._config, "environment": self._environment}

    def _values(self) -> dict[str, str]:
        return {**self._args, **self._environment}

    def execute(self, each: Instruction) -> None:
        getattr(self, "_" + each.name.lower())(each)

    def _arg(self, each: Instruction) -> None:
        for name, value in each.pairs().items():
            self._args[name] = self._builder.argument(name) or expand(value, self._values())

    def _env(self, each: Instruction) -> None:
        self._environment |= {name: expand(value, self._values()) for name, value in each.pairs().items()}

    def _user(self, each: Instruction) -> None:
        self._config["user"] = each.text

    def _workdir(self, each: Instruction) -> None:
        self._config["workdir"] = each.text
        self._inside(each.text).mkdir(parents=True, exist_ok=True)

    def _entrypoint(self, each: Instruction) -> None:
        self._config |= {"entrypoint": each.exec_form(), "cmd": []}

    def _cmd(self, each: Instruction) -> None:
        self._config["cmd"] = each.exec_form()

    def _run(self, each: Instruction) -> None:
        if self._config["user"] != "0":
            raise DockerfileError(f"line {each.line}: RUN as {self._config['user']} is not known here")
        self._builder.run(self._root, each, self._values(), self._config["workdir"])

    def _inside(self, path: str) -> pathlib.Path:
        return self._root / (pathlib.PurePosixPath(self._config["workdir"]) / path).relative_to("/")

    def _copy(self, each: Instruction) -> None:
        *sources, target = [expand(word, self._values()) for word in each.words()]
        files = list(self._builder.sources(each, sources))
        # One file to a name that does not end with /: that is its name; everything else goes into a folder.
        single = len(files) == 1 and not target.endswith("/") and files[0][1] == pathlib.PurePosixPath(sources[0]).name
        for path, relative in files:
            to = self._inside(target) if single else self._inside(target) / relative
            to.parent.mkdir(parents=True, exist_ok=True)
            # Into a folder that is there already, not beside it.
            source = [f"{path}/."] if path.is_dir() and not path.is_symlink() and to.is_dir() else [str(path)]
            subprocess.run(["cp", "-a", "--no-preserve=ownership", *source, str(to)], check=True)
            if mode := each.flag("chmod"):
                to.chmod(int(mode, 8))


def remove(root: pathlib.Path) -> None:
    if root.exists():
        shutil.rmtree(root)
