#!/usr/bin/env python3
"""Fails on an #include against the direction of dependence in ARCHITECTURE.md.

    tests/check_includes.py [REPOSITORY]

Prints one line per offence and ends with 1 if there is any.
"""

import pathlib
import re
import sys
from collections.abc import Iterator

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"\n]+)[>"]', re.MULTILINE)
SOURCES = {".h", ".hpp", ".cpp", ".cc", ".c"}

# base <- cpu <- {ccl, kernels} <- torch_ext <- {trainer, python}
MAY_INCLUDE = {
    "base": [],
    "cpu": ["base"],
    "ccl": ["base", "cpu"],
    "kernels": ["base", "cpu"],
    "torch_ext": ["base", "cpu", "ccl", "kernels"],
    "trainer": ["base", "cpu", "ccl", "kernels", "torch_ext"],
    "python": ["base", "cpu", "ccl", "kernels", "torch_ext"],
    "include": [],
}

# Inside ccl: what each folder links, as in the CMakeLists.txt files (test_includes.py compares). A folder may include what it links,
# directly or through others. The empty name is ccl itself: types, operations, signatures.
CCL_LINKS = {
    "": [],
    "engine": [""],
    "reduction": [""],
    "bootstrap": [""],
    "fabric": ["engine", "bootstrap"],
    "fabric/tcp": ["fabric"],
    "fabric/ofi": ["fabric"],
    "node": ["engine", "bootstrap", "fabric"],
    "algorithms": ["node", "fabric/tcp", "reduction"],
    "comm": ["algorithms", "fabric/ofi"],
    "api": ["comm"],
}

# Outside libraries that only some folders may see.
RESERVED = [
    (re.compile(r"(torch|ATen|c10|caffe2)/"), "torch", ["trireme/torch_ext", "trireme/trainer", "python"]),
    (re.compile(r"hwloc(\.h$|/)"), "hwloc", ["trireme/cpu"]),
    (re.compile(r"rdma/"), "libfabric", ["trireme/ccl/fabric/ofi"]),
    (re.compile(r"oneapi/"), "the public API", ["trireme/ccl/api", "include/oneapi"]),
]


def part_of(path: pathlib.PurePosixPath) -> str:
    """trireme/<part>/..., or the top folder of what lies outside trireme/."""
    return path.parts[1] if path.parts[0] == "trireme" and len(path.parts) > 2 else path.parts[0]


def ccl_folder(path: pathlib.PurePosixPath) -> str:
    """engine, fabric/tcp, ..."""
    return "/".join(path.parts[2:-1])


def ccl_below(folder: str) -> set[str]:
    """All that a folder links, directly or through others."""
    below = set(CCL_LINKS[folder])
    return below.union(*(ccl_below(linked) for linked in below))


def within(path: pathlib.PurePosixPath, folders: list[str]) -> bool:
    return any(path.is_relative_to(folder) for folder in folders)


def offence(file: pathlib.PurePosixPath, included: str, is_neighbour: bool) -> str | None:
    """Why this file may not include that, or None."""
    target = pathlib.PurePosixPath(included)
    if is_neighbour or ".." in target.parts:
        return "an include is written from the root of the repository"
    for pattern, library, folders in RESERVED:
        if pattern.match(included) and not within(file, folders):
            return f"only {' and '.join(folders)} may see {library}"
    if target.parts[0] != "trireme":
        return None
    part, target_part = part_of(file), part_of(target)
    if part not in MAY_INCLUDE or target_part not in MAY_INCLUDE:
        return f"{part if part not in MAY_INCLUDE else target_part} is not a known part"
    if target_part != part:
        return None if target_part in MAY_INCLUDE[part] else f"{part} may not depend on {target_part}"
    return ccl_offence(file, target) if part == "ccl" else None


def ccl_offence(file: pathlib.PurePosixPath, target: pathlib.PurePosixPath) -> str | None:
    folder, target_folder = ccl_folder(file), ccl_folder(target)
    if folder == target_folder:
        return None
    for name in (folder, target_folder):
        if name not in CCL_LINKS:
            return f"ccl/{name} is not a known folder of ccl"
    if target_folder in ccl_below(folder):
        return None
    return f"{'ccl/' + folder if folder else 'ccl'} may not depend on ccl/{target_folder}"


def offences(root: pathlib.Path) -> Iterator[str]:
    for top in ("trireme", "include", "python"):
        for path in sorted((root / top).rglob("*")):
            if path.suffix not in SOURCES:
                continue
            file = pathlib.PurePosixPath(path.relative_to(root).as_posix())
            text = path.read_text(encoding="utf-8")
            for match in INCLUDE.finditer(text):
                is_neighbour = '"' in match[0] and (path.parent / match[1]).exists()
                if reason := offence(file, match[1], is_neighbour):
                    line = text.count("\n", 0, match.start(1)) + 1
                    yield f"{file}:{line}: includes {match[1]}: {reason}"


def main() -> int:
    default = pathlib.Path(__file__).resolve().parents[1]
    found = list(offences(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else default))
    print("\n".join(found) if found else "every include points down")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
