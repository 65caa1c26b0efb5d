"""Runs the check_* functions of a program, one after another, on every rank of a job. What comes of each goes to RESULTS/rank<N>.jsonl.

After a check that failed, the ranks may no longer be in step: the rest is not run.
"""

import json
import os
import pathlib
import sys
import time
import traceback
from collections.abc import Callable


def names(program: str) -> list[str]:
    """The checks in the order of the file, without importing it."""
    lines = pathlib.Path(program).read_text().splitlines()
    return [line[4 : line.index("(")] for line in lines if line.startswith("def check_")]


def run(*namespaces: dict[str, Callable]) -> None:
    """All of them, file after file; SystemExit if one failed. ONLY names some, separated by spaces, SKIP those to leave out."""
    rank = os.environ.get("RANK", "0")
    path = pathlib.Path(os.environ.get("RESULTS", ".")) / f"rank{rank}.jsonl"
    with path.open("w") as results:
        for namespace, name in ((each, name) for each in namespaces for name in names(each["__file__"])):
            if name not in os.environ.get("ONLY", name).split() or name in os.environ.get("SKIP", "").split():
                continue
            start = time.perf_counter()
            try:
                namespace[name]()
                error = ""
            except BaseException:
                error = traceback.format_exc()
            json.dump({"check": name, "error": error, "seconds": round(time.perf_counter() - start, 3)}, results)
            print(file=results, flush=True)
            if error:
                print(f"rank {rank}: {name} failed\n{error}", file=sys.stderr, flush=True)
                os._exit(1)  # without leaving in order: the others must not wait for this rank
