"""Reads a Dockerfile: its stages and their instructions, with the values of ARG and ENV put in where Docker does.

Covers what deploy/docker/Dockerfile uses and refuses the rest, so that nothing is passed over in silence.
"""

import dataclasses
import json
import re
import shlex

KNOWN = {"ADD", "ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "FROM", "LABEL", "RUN", "SHELL", "STOPSIGNAL", "USER", "VOLUME", "WORKDIR"}
FLAG = re.compile(r"--(?P<name>[a-z]+)=(?P<value>\S+)\s+")
VARIABLE = re.compile(r"\$(?:\{(?P<braced>\w+)\}|(?P<plain>\w+))")


class DockerfileError(ValueError):
    pass


@dataclasses.dataclass
class Instruction:
    """One instruction: `RUN --mount=... text`. `flags` are its --name=value; `text` is what follows, its lines joined as the shell sees them."""

    line: int
    name: str
    flags: list[tuple[str, str]]
    text: str

    def flag(self, name: str) -> str | None:
        return next((value for key, value in self.flags if key == name), None)

    def words(self) -> list[str]:
        """Of a COPY or ENV: a JSON list, or words in the shell's manner."""
        return self.exec_form() or shlex.split(self.text)

    def exec_form(self) -> list[str] | None:
        if not self.text.startswith("["):
            return None
        try:
            words = json.loads(self.text)
        except json.JSONDecodeError:
            return None
        return words if all(isinstance(word, str) for word in words) else None

    def pairs(self) -> dict[str, str]:
        """Of an ENV, LABEL or ARG: name to value, "" where an ARG has no default."""
        pairs = (word.partition("=") for word in shlex.split(self.text))
        return {name: value for name, _, value in pairs}


@dataclasses.dataclass
class Stage:
    name: str
    base: str  # an image, or an earlier stage
    line: int
    instructions: list[Instruction] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Dockerfile:
    global_args: dict[str, str]
    stages: list[Stage]

    def stage(self, name: str) -> Stage:
        return next(stage for stage in self.stages if stage.name == name)

    def is_stage(self, name: str) -> bool:
        return any(stage.name == name for stage in self.stages)

    def lineage(self, name: str) -> list[Stage]:
        """The stage and those that it stands on, the first one first."""
        stage = self.stage(name)
        return [*(self.lineage(stage.base) if self.is_stage(stage.base) else []), stage]

    def finals(self) -> list[Stage]:
        """What can ship: stages that no other stage takes anything from."""
        used = {stage.base for stage in self.stages}
        used |= {each.flag("from") for stage in self.stages for each in stage.instructions if each.name == "COPY"}
        return [stage for stage in self.stages if stage.name not in used]


def expand(text: str, values: dict[str, str]) -> str:
    """$NAME and ${NAME}; an unknown one is an error here, where Docker would take it as empty."""

    def value(match: re.Match) -> str:
        name = match["braced"] or match["plain"]
        if name not in values:
            raise DockerfileError(f"{match[0]} has no value in {text!r}")
        return values[name]

    return VARIABLE.sub(value, text)


def logical_lines(text: str) -> list[tuple[int, str]]:
    """Lines with their continuations, and without comments: Docker drops those between continued lines, too."""
    lines, parts, first = [], [], 0
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("#") or not line.strip():
            continue
        first = first if parts else number
        parts.append(line.rstrip().removesuffix("\\"))
        if not line.rstrip().endswith("\\"):
            lines.append((first, "".join(parts).strip()))
            parts = []
    if parts:
        raise DockerfileError(f"line {first}: the last line ends with a backslash")
    return lines


def parse_instruction(number: int, line: str) -> Instruction:
    name, _, rest = line.partition(" ")
    if name.upper() not in KNOWN:
        raise DockerfileError(f"line {number}: {name} is not an instruction that is known here")
    flags, rest = [], rest.strip()
    while match := FLAG.match(rest):
        flags.append((match["name"], match["value"]))
        rest = rest[match.end() :]
    return Instruction(number, name.upper(), flags, rest)


def parse(text: str, arguments: dict[str, str] | None = None) -> Dockerfile:
    """`arguments` are those of --build-arg; here they matter to FROM alone."""
    global_args: dict[str, str] = {}
    stages: list[Stage] = []
    for number, line in logical_lines(text):
        instruction = parse_instruction(number, line)
        if instruction.name == "FROM":
            match = re.fullmatch(r"(\S+)(?:\s+[aA][sS]\s+([a-z0-9_-]+))?", expand(instruction.text, {**global_args, **(arguments or {})}))
            if not match:
                raise DockerfileError(f"line {number}: cannot read FROM {instruction.text}")
            stages.append(Stage(match[2] or str(len(stages)), match[1], number))
        elif stages:
            stages[-1].instructions.append(instruction)
        elif instruction.name == "ARG":
            global_args.update(instruction.pairs())
        else:
            raise DockerfileError(f"line {number}: {instruction.name} before FROM")
    if not stages:
        raise DockerfileError("there is no FROM")
    return Dockerfile(global_args, stages)
