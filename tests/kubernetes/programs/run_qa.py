"""Stands where the image has transformers' run_qa.py, which is not ours to keep in the tree: the same flags through the same Trainer.

Instead of asking the hub for SQuAD it takes the files that the claim has for `trireme qa`, and it begins anew only in an empty folder, as run_qa.py up to
4.57 does. The rest is examples/question_answering.py.
"""

import os
import pathlib
import runpy
import sys

EXAMPLES = pathlib.Path(__file__).resolve().parents[3] / "examples"


def main() -> None:
    arguments = sys.argv[1:]
    place = arguments.index("--dataset_name")
    assert arguments[place + 1] == "squad"
    data = pathlib.Path(os.environ["HF_HOME"]) / "datasets" / "trireme-squad"
    arguments[place : place + 2] = ["--train_file", str(data / "train-v1.1.json"), "--validation_file", str(data / "dev-v1.1.json")]
    output = pathlib.Path(arguments[arguments.index("--output_dir") + 1])
    if output.is_dir() and any(output.iterdir()) and not any(output.glob("checkpoint-*")):
        raise ValueError(f"{output} is not empty and has no checkpoint")
    sys.argv = ["question_answering.py", *arguments]
    sys.path.insert(0, str(EXAMPLES))
    runpy.run_path(str(EXAMPLES / "question_answering.py"), run_name="__main__")


if __name__ == "__main__":
    main()
