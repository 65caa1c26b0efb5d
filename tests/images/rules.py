"""What is asked of our Dockerfiles, in the manner of hadolint: each rule is a function that yields what is wrong.

Versions of Debian packages are not asked for: Debian keeps one version of each in a release, the newest security update, and a pinned one
would soon be gone from its archive. The base is pinned by a dated tag instead.
"""

import re
from collections.abc import Iterator

from .dockerfile import Dockerfile, Instruction, parse

SECRET_NAME = re.compile(r"(?i)(password|passwd|secret|token|api_?key|private_?key|credential)")
SECRET_VALUE = re.compile(r"(-----BEGIN [A-Z ]*PRIVATE KEY|\bhf_[A-Za-z0-9]{20,}|\bgh[pousr]_[A-Za-z0-9]{20,}|\bAKIA[0-9A-Z]{16}\b|://[^/\s:@]+:[^/\s@]+@)")
DOWNLOAD_TO_SHELL = re.compile(r"\b(curl|wget)\b[^;&]*\|\s*(sudo\s+)?\S*\b(ba|da|z)?sh\b")
PINNED_TAG = re.compile(r"[\w./-]+:[\w.-]*\d[\w.-]*(@sha256:[0-9a-f]{64})?")


def of(dockerfile: Dockerfile, *names: str) -> Iterator[Instruction]:
    for stage in dockerfile.stages:
        yield from (each for each in stage.instructions if each.name in names)


def commands(instruction: Instruction) -> list[str]:
    """The commands of a RUN, one by one."""
    return [command.strip() for command in re.split(r"&&|\|\||;|\|", instruction.text)]


def base_is_pinned(dockerfile: Dockerfile) -> Iterator[str]:
    for stage in dockerfile.stages:
        if dockerfile.is_stage(stage.base):
            continue
        tag = stage.base.partition("@")[0].rpartition(":")[2]
        if not PINNED_TAG.fullmatch(stage.base) or "latest" in tag:
            yield f"line {stage.line}: {stage.base} is not pinned to a version"
        elif not re.fullmatch(r"debian:bookworm-\d{8}-slim(@sha256:[0-9a-f]{64})?", stage.base):
            yield f"line {stage.line}: {stage.base} is not Debian slim of a day"


def stages_are_named_once(dockerfile: Dockerfile) -> Iterator[str]:
    names = [stage.name for stage in dockerfile.stages]
    for stage in dockerfile.stages:
        if stage.name.isdigit():
            yield f"line {stage.line}: the stage has no name"
        elif names.count(stage.name) > 1:
            yield f"line {stage.line}: there are two stages {stage.name}"


def copies_come_from_earlier_stages(dockerfile: Dockerfile) -> Iterator[str]:
    earlier: set[str] = set()
    for stage in dockerfile.stages:
        for each in stage.instructions:
            source = each.flag("from")
            if each.name == "COPY" and source is not None and source not in earlier:
                yield f"line {each.line}: COPY --from={source}: no such stage above"
        earlier.add(stage.name)


def apt_get_leaves_nothing(dockerfile: Dockerfile) -> Iterator[str]:
    for run in of(dockerfile, "RUN"):
        words = [command.split() for command in commands(run)]
        installs = [each for each in words if "apt-get" in each and "install" in each]
        for install in installs:
            if "--no-install-recommends" not in install:
                yield f"line {run.line}: apt-get install without --no-install-recommends"
            if "-y" not in install and "--yes" not in install:
                yield f"line {run.line}: apt-get install without -y"
        updates = [each for each in words if "apt-get" in each and "update" in each]
        if bool(updates) != bool(installs):
            yield f"line {run.line}: apt-get update and install belong into one RUN: a cached list grows old"
        removes = [each for each in words if each[:1] == ["rm"] and "/var/lib/apt/lists/*" in each]
        if (updates or installs) and not removes:
            yield f"line {run.line}: /var/lib/apt/lists stays in the layer"
        if any("apt" in each or ("apt-get" in each and {"upgrade", "dist-upgrade"} & set(each)) for each in words):
            yield f"line {run.line}: apt-get install what is needed; neither apt nor an upgrade"


def pip_pins_and_keeps_no_cache(dockerfile: Dockerfile) -> Iterator[str]:
    for run in of(dockerfile, "RUN"):
        for command in commands(run):
            words = [word.strip("\"'") for word in command.split()]
            if "install" not in words or not any(word.endswith("pip") for word in words):
                continue
            if "--no-cache-dir" not in words:
                yield f"line {run.line}: pip install without --no-cache-dir"
            arguments = words[words.index("install") + 1 :]
            takes_value = {"--extra-index-url", "--index-url", "--wheel-dir"}
            packages = [word for last, word in zip(["", *arguments], arguments) if not word.startswith("-") and last not in takes_value]
            for package in packages:
                if "==" not in package and "/" not in package and package != ".":
                    yield f"line {run.line}: pip install {package} without a version"


def nothing_is_piped_into_a_shell(dockerfile: Dockerfile) -> Iterator[str]:
    for run in of(dockerfile, "RUN"):
        if DOWNLOAD_TO_SHELL.search(run.text):
            yield f"line {run.line}: a download is piped into a shell"
        if any(re.match(r"(\S+=\S+\s+)*sudo\b", command) for command in commands(run)):
            yield f"line {run.line}: sudo in a build is root already"
        if any(re.match(r"cd\s", command) for command in commands(run)):
            yield f"line {run.line}: cd in RUN: say WORKDIR, or name the folder"


def copy_instead_of_add(dockerfile: Dockerfile) -> Iterator[str]:
    for add in of(dockerfile, "ADD"):
        yield f"line {add.line}: ADD fetches and unpacks by guess; COPY does neither"


def copies_name_what_they_take(dockerfile: Dockerfile) -> Iterator[str]:
    for copy in of(dockerfile, "COPY"):
        *sources, target = copy.words()
        if copy.flag("from") is None and "." in (source.rstrip("/") for source in sources):
            yield f"line {copy.line}: COPY . takes whatever lies about; name what is needed"
        if len(sources) > 1 and not target.endswith("/"):
            yield f"line {copy.line}: COPY of several files into {target}, which does not end with /"


def workdirs_are_absolute(dockerfile: Dockerfile) -> Iterator[str]:
    for workdir in of(dockerfile, "WORKDIR"):
        if not workdir.text.startswith("/"):
            yield f"line {workdir.line}: WORKDIR {workdir.text} depends on what was before"


def images_run_as_uid_1000(dockerfile: Dockerfile) -> Iterator[str]:
    for stage in dockerfile.finals():
        users = [each for base in dockerfile.lineage(stage.name) for each in base.instructions if each.name == "USER"]
        if not users:
            yield f"line {stage.line}: {stage.name} runs as root"
        elif not re.fullmatch(r"1000(:1000)?", users[-1].text):
            yield f"line {users[-1].line}: {stage.name} runs as {users[-1].text}: Kubernetes' runAsNonRoot believes in numbers alone"


def images_start_through_tini(dockerfile: Dockerfile) -> Iterator[str]:
    for stage in dockerfile.finals():
        entries = [each for base in dockerfile.lineage(stage.name) for each in base.instructions if each.name == "ENTRYPOINT"]
        if not entries:
            yield f"line {stage.line}: {stage.name} has no ENTRYPOINT"
        elif (entries[-1].exec_form() or [""])[0] != "/usr/bin/tini":
            yield f"line {entries[-1].line}: {stage.name} does not start through /usr/bin/tini"
    for each in of(dockerfile, "ENTRYPOINT", "CMD"):
        if each.exec_form() is None:
            yield f"line {each.line}: {each.name} is not a JSON list: a shell would stand between tini and the program"


def there_is_no_secret(dockerfile: Dockerfile) -> Iterator[str]:
    declared = [(each.line, each.pairs()) for each in of(dockerfile, "ARG", "ENV", "LABEL")] + [(0, dockerfile.global_args)]
    for line, pairs in declared:
        for name in pairs:
            if SECRET_NAME.search(name):
                yield f"line {line}: {name} would stay in the image's history; mount a secret"
    for stage in dockerfile.stages:
        for each in stage.instructions:
            if SECRET_VALUE.search(each.text):
                yield f"line {each.line}: this looks like a secret"


def host_keys_are_removed(dockerfile: Dockerfile) -> Iterator[str]:
    for run in of(dockerfile, "RUN"):
        if re.search(r"install\b.*\bopenssh-server\b", run.text) and not re.search(r"\brm -f /etc/ssh/ssh_host_\*", run.text):
            yield f"line {run.line}: openssh-server makes host keys, which would be the same in every container"


RULES = [
    base_is_pinned,
    stages_are_named_once,
    copies_come_from_earlier_stages,
    apt_get_leaves_nothing,
    pip_pins_and_keeps_no_cache,
    nothing_is_piped_into_a_shell,
    copy_instead_of_add,
    copies_name_what_they_take,
    workdirs_are_absolute,
    images_run_as_uid_1000,
    images_start_through_tini,
    there_is_no_secret,
    host_keys_are_removed,
]


def findings(text: str) -> list[tuple[str, str]]:
    """(rule, what is wrong) for every breach."""
    dockerfile = parse(text)
    return [(rule.__name__, finding) for rule in RULES for finding in rule(dockerfile)]
