#!/usr/bin/env python3
"""Does a model learn as well as with Hugging Face's Trainer? EM and F1 after fine-tuning MiniLM with the same hyper-parameters.

    .venv/bin/python bench/quality/run.py --train_file train.json --validation_file dev.json [--who trireme,hf-trireme,hf] [--seeds 1,2,3]
                                          [--bf16] [--reference 69.8] [--json]

`trireme` is `mpirun -n 2 trireme qa`; `hf` is Hugging Face's Trainer on gloo, `hf-trireme` the same script with --ddp_backend ccl --use_ipex. Two epochs, two
processes with batches of 12, a learning rate of 1e-4 with a tenth of warmup, 384 tokens. With --reference, the mean F1 of each must be at most 1.0
below it. With --bf16 the products are forced to bf16 (TRIREME_BF16=native), whether that is fast here or not. A run takes tens of minutes.
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

TRIREME = qa_runs.REPOSITORY / "build" / "release" / "bin" / "trireme"
FLAGS = "--do_train --do_eval --per_device_train_batch_size 12 --per_device_eval_batch_size 12 --learning_rate 1e-4 --num_train_epochs 2 --warmup_ratio 0.1"
FLAGS += " --max_seq_length 384 --doc_stride 128 --use_cpu --save_strategy no --report_to none --disable_tqdm True --overwrite_output_dir"
ALLOWED = 1.0  # below the reference


def run(who: str, seed: int, arguments: argparse.Namespace, output: pathlib.Path) -> dict:
    flags = [*FLAGS.split(), "--model_name_or_path", str(qa_runs.minilm()), "--seed", str(seed), "--output_dir", str(output)]
    flags += ["--train_file", str(arguments.train_file), "--validation_file", str(arguments.validation_file), *(["--bf16"] if arguments.bf16 else [])]
    if who == "trireme":
        command = [*qa_runs.mpirun(2), str(TRIREME), "qa", *flags, "--ddp_backend", "ccl"]
    else:
        # Grouping by length would scramble the answers of the evaluation; training packed or padded is the same to the model.
        backend = ["--ddp_backend", "ccl", "--use_ipex"] if who == "hf-trireme" else ["--ddp_backend", "gloo"]
        command = qa_runs.hf_command(*flags, *backend, "--pad_to_max_length", "False")
    environment = {**qa_runs.environment(), **({"TRIREME_BF16": "native"} if arguments.bf16 else {})}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{who}, seed {seed}, ended with {done.returncode}:\n{done.stderr[-3000:]}")
    if who == "hf-trireme":
        group = json.loads((output / "group.json").read_text())
        if (group["backend"], group["world_size"], group["packed"]) != ("ccl", 2, True):
            sys.exit(f"{who} did not run as it should have: {group}")
    results = json.loads((output / "all_results.json").read_text())
    return {key: results[key] for key in ("eval_exact_match", "eval_f1", "train_loss", "train_runtime")}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train_file", type=pathlib.Path, required=True)
    parser.add_argument("--validation_file", type=pathlib.Path, required=True)
    parser.add_argument("--who", type=lambda text: text.split(","), default=["trireme"])
    parser.add_argument("--seeds", type=lambda text: [int(each) for each in text.split(",")], default=[1, 2, 3])
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--reference", type=float, help="an F1 to compare with")
    parser.add_argument("--json", action="store_true", help="add to bench/results/quality.json")
    arguments = parser.parse_args()
    dtype, all_met = "bf16" if arguments.bf16 else "fp32", True
    with tempfile.TemporaryDirectory() as scratch:
        for who in arguments.who:
            of = {}
            for seed in arguments.seeds:
                of[seed] = run(who, seed, arguments, pathlib.Path(scratch) / "out")
                print(f"{who:12} seed {seed}: EM {of[seed]['eval_exact_match']:.1f}  F1 {of[seed]['eval_f1']:.1f}", flush=True)
                if arguments.json:
                    machine.add_results(HERE.parent / "results" / "quality.json", {f"{who}, {dtype}, seed {seed}": of[seed]})
            mean = statistics.mean(each["eval_f1"] for each in of.values())
            if arguments.reference is not None:
                met = mean >= arguments.reference - ALLOWED
                all_met = all_met and met
                print("PASS" if met else "FAIL", f"{who}: mean F1 {mean:.1f}, wanted at least {arguments.reference - ALLOWED:.1f}", flush=True)
    return 0 if all_met else 1


if __name__ == "__main__":
    sys.exit(main())
