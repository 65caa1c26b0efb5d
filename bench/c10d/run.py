#!/usr/bin/env python3
"""How fast is torch.distributed on the backend ccl, beside gloo? Collectives, and steps of DDP.

    .venv/bin/python bench/c10d/run.py [--ranks 2,4] [--quick] [--json] [--plot] [--targets]

The backends take turns in one run, every answer is checked before it is timed, and the time of a call is that of the slowest rank. --json
writes bench/results/c10d.json, --plot bench/plots/c10d.svg, --targets compares with the project's targets; what the C++ backend adds to the
library, also in buckets of DDP's, is then measured by overhead.cpp, built in the folder that --build names.
"""

import argparse
import importlib.util
import json
import os
import pathlib
import socket
import subprocess
import sys
from collections.abc import Iterator

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import machine  # noqa: E402

OPERATIONS = ["allreduce", "broadcast", "reduce", "allgather", "reduce_scatter", "alltoall", "gather", "scatter", "sendrecv", "barrier"]
SIZES = [8, 1 << 10, 64 << 10, 1 << 20, 16 << 20, 128 << 20]
QUICK_SIZES = [8, 1 << 10, 1 << 20, 16 << 20]
# allreduce in place on two ranks of one host: times as fast as gloo.
TARGETS = {1 << 10: 20, 1 << 20: 8, 16 << 20: 4, 128 << 20: 2.5}
ADDED_US = 10  # by the C++ backend to an allreduce of 8 B, at most
# An allreduce of a bucket of DDP's (25 MiB from the backend's memory) takes at most so many times the library's own in memory from its allocator.
BUCKET_TIMES = 1.1


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def run_ranks(size: int, *arguments: str) -> list[dict]:
    """What rank 0 of a job of workers measured."""
    port, processes = free_port(), []
    for rank in range(size):
        place = {"RANK": rank, "WORLD_SIZE": size, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": size, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        env = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", **{name: str(value) for name, value in place.items()}}
        output = subprocess.PIPE if rank == 0 else subprocess.DEVNULL
        command = [sys.executable, "-W", "ignore", str(HERE / "worker.py"), *arguments]
        processes.append(subprocess.Popen(command, env=env, stdout=output, text=True))
    assert processes[0].stdout is not None
    records = []
    for line in processes[0].stdout:
        if line.startswith("{"):
            records.append(json.loads(line))
            print(describe(records[-1]), flush=True)
    if any(process.wait() for process in processes):
        sys.exit(f"a rank failed: exit codes {[process.returncode for process in processes]}")
    return records


def measure_overhead(build: pathlib.Path) -> list[dict]:
    """An allreduce by the library and by the C++ backend, in turns: of 8 B, and of a bucket in memory of each."""
    program = build / "bench" / "bench_c10d_overhead"
    if not program.exists():
        sys.exit(f"{program} is not there: cmake --build --preset release --target bench_c10d_overhead, or --build")
    output = subprocess.run([program], check=True, stdout=subprocess.PIPE, text=True).stdout
    records = [json.loads(line) for line in output.splitlines()]
    for record in records:
        what = f"allreduce {size_of(record['bytes'])} by the library {record['library_us']:.2f} us, by the C++ backend {record['backend_us']:.2f} us"
        print(f"{record['ranks']} ranks  {what}", flush=True)
    return records


def size_of(nbytes: int) -> str:
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if nbytes >= unit:
            return f"{nbytes // unit} {name}"
    return f"{nbytes} B"


def describe(record: dict) -> str:
    what = f"{record['operation']} {size_of(record['bytes'])}" if record["kind"] == "collective" else f"DDP step, {record['model']} parameters"
    spread = f"({record['p10_us']:.1f} to {record['p90_us']:.1f})"
    return f"{record['ranks']} ranks  {what:28s} {record['backend']:10s} {record['median_us']:12.1f} us {spread}"


def key(record: dict) -> tuple:
    return (record["kind"], record["ranks"], record.get("operation", record.get("model")), record.get("bytes", 0))


def ratios(records: list[dict]) -> Iterator[tuple[dict, float]]:
    """Each of ours, with how many times as fast as gloo it is."""
    records = [record for record in records if "backend" in record]
    gloo = {key(record): record["median_us"] for record in records if record["backend"] == "gloo"}
    for record in records:
        if record["backend"] != "gloo" and key(record) in gloo:
            yield record, gloo[key(record)] / record["median_us"]


def print_table(records: list[dict]) -> None:
    print(f"\n{'':44s} {'median us':>12s} {'times as fast as gloo':>24s}")
    for record, ratio in ratios(records):
        print(f"{describe(record)[:44]} {record['median_us']:12.1f} {ratio:24.1f}")


def check_targets(records: list[dict]) -> bool:
    met = True
    print()
    for added_us in (record["added_us"] for record in records if record["kind"] == "overhead"):
        met = met and added_us < ADDED_US
        print(f"{'PASS' if added_us < ADDED_US else 'FAIL'}  the C++ backend adds {added_us:.1f} us to an allreduce of 8 B, target under {ADDED_US}")
    for times in (record["backend_us"] / record["library_us"] for record in records if record["kind"] == "bucket"):
        met = met and times <= BUCKET_TIMES
        what = f"allreduce of a bucket: {times:.2f} times the library's in its allocator's memory, target {BUCKET_TIMES}"
        print(f"{'PASS' if times <= BUCKET_TIMES else 'FAIL'}  {what}")
    for record, ratio in ratios(records):
        if record["kind"] != "collective" or record["ranks"] != 2 or record["backend"] != "ccl" or record["operation"] != "allreduce":
            continue
        if wanted := TARGETS.get(record["bytes"]):
            met = met and ratio >= wanted
            print(f"{'PASS' if ratio >= wanted else 'FAIL'}  allreduce {size_of(record['bytes'])}: {ratio:.1f} times as fast as gloo, target {wanted}")
    slower = [f"{describe(record)}: {ratio:.2f}" for record, ratio in ratios(records) if ratio < 1]
    print("PASS  faster than gloo everywhere" if not slower else "FAIL  slower than gloo:\n      " + "\n      ".join(slower))
    return met and not slower


def plot(records: list[dict], path: pathlib.Path) -> None:
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4))
    operations = [operation for operation in OPERATIONS if operation != "barrier"]
    for operation in operations:
        points = [
            (record["bytes"], ratio)
            for record, ratio in ratios(records)
            if record.get("operation") == operation and record["ranks"] == 2 and record["backend"] == "ccl"
        ]
        if points:
            axes.plot(*zip(*points), marker="o", label=operation)
    axes.axhline(1, color="black", linewidth=0.8)
    axes.set(xscale="log", yscale="log", xlabel="bytes", ylabel="times as fast as gloo", title="torch.distributed, 2 ranks on one host")
    axes.legend(fontsize=8, ncols=2)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--operations", default=",".join(OPERATIONS))
    parser.add_argument("--sizes", help="in bytes, such as 8,1024")
    parser.add_argument("--models", default="20M,110M", help="for DDP; empty for none")
    parser.add_argument("--quick", action="store_true", help="fewer sizes, the smaller model")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--plot", action="store_true")
    parser.add_argument("--targets", action="store_true")
    parser.add_argument("--build", type=pathlib.Path, default=HERE.parents[1] / "build" / "release", help="where bench_c10d_overhead was built")
    options = parser.parse_args()
    if options.plot and importlib.util.find_spec("matplotlib") is None:
        parser.error("--plot needs matplotlib: .venv/bin/pip install matplotlib")
    sizes = options.sizes or ",".join(map(str, QUICK_SIZES if options.quick else SIZES))
    models = "20M" if options.quick and options.models else options.models
    records = []
    for ranks in map(int, options.ranks.split(",")):
        if options.operations:
            records += run_ranks(ranks, "collectives", options.operations, sizes, "ccl,ccl-shared,gloo")
        if models:
            records += run_ranks(ranks, "ddp", models, "ccl,gloo")
    if options.targets:
        records += measure_overhead(options.build)
    print_table(records)
    root = HERE.parent
    if options.json:
        results = {"machine": machine.describe(), "records": records}
        (root / "results" / "c10d.json").write_text(json.dumps(results, indent=1) + "\n")
    if options.plot:
        plot(records, root / "plots" / "c10d.svg")
    if options.targets and not check_targets(records):
        sys.exit(1)


if __name__ == "__main__":
    main()
