"""Labels words (names of persons, parts of speech), on Hugging Face's Trainer, from files in CoNLL's manner: a line of word<TAB>label for each
word, and an empty line after each sentence.

    python examples/token_classification.py --model_name_or_path MODEL --train_file train.tsv --validation_file dev.tsv --output_dir out \\
        --use_ipex --no_cuda
    mpirun -n 2 python examples/token_classification.py ... --no_cuda --ddp_backend ccl --use_ipex
    torchrun --nproc-per-node 2 examples/token_classification.py ... --no_cuda --ddp_backend ccl --use_ipex

The last line of its output is JSON: entity_f1, where an entity counts if its kind, beginning and end are right; token_accuracy, the share of words
with the right label, most of which are O in texts about names; and what it ran on.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
from typing import Any

import numpy as np
import torch
from ran_on import ran_on
from transformers import (
    AutoModelForTokenClassification,
    AutoTokenizer,
    DataCollatorForTokenClassification,
    EvalPrediction,
    HfArgumentParser,
    Trainer,
    TrainingArguments,
    set_seed,
)

IGNORED = -100  # the label of pieces that the loss does not look at

Sentence = list[tuple[str, str]]  # (word, label)


@dataclasses.dataclass
class WordArguments:
    model_name_or_path: str = dataclasses.field(metadata={"help": "An encoder with a fast tokenizer: a folder, or a name on the hub."})
    train_file: str = dataclasses.field(metadata={"help": "Lines of word<TAB>label. Its labels are those that the model learns."})
    validation_file: str = dataclasses.field(metadata={"help": "The same, to evaluate with."})
    max_seq_length: int = dataclasses.field(default=128, metadata={"help": "Tokens of a sentence; what is longer is cut."})


def read_sentences(path: str) -> list[Sentence]:
    blocks = pathlib.Path(path).read_text(encoding="utf-8").split("\n\n")
    return [[tuple(line.split("\t")) for line in block.strip().split("\n")] for block in blocks if block.strip()]


class LabelledWords(torch.utils.data.Dataset):
    """The first piece of a word has its label, the others and the special tokens are ignored: each word counts once."""

    def __init__(self, sentences: list[Sentence], tokenizer: Any, label2id: dict[str, int], max_length: int) -> None:
        words = [[word for word, _ in sentence] for sentence in sentences]
        encoded = tokenizer(words, is_split_into_words=True, truncation=True, max_length=max_length)
        labels = []
        for row, sentence in enumerate(sentences):
            word_of = encoded.word_ids(row)  # for each piece; None for special tokens
            is_first = [word is not None and word != before for word, before in zip(word_of, [None, *word_of], strict=False)]
            labels.append([label2id[sentence[word][1]] if first else IGNORED for word, first in zip(word_of, is_first, strict=True)])
        self.columns = {**encoded, "labels": labels}

    def __len__(self) -> int:
        return len(self.columns["labels"])

    def __getitem__(self, row: int) -> dict[str, Any]:
        return {name: column[row] for name, column in self.columns.items()}


def entities(labels: list[str]) -> set[tuple[str, int, int]]:
    """(kind, first word, word after the last). As CoNLL's evaluation has it, B- begins an entity, and so does I- after another kind or O."""
    found, begin, kind = set(), 0, "O"
    for place, label in enumerate([*labels, "O"]):
        prefix, _, next_kind = label.rpartition("-")
        if prefix == "B" or next_kind != kind:
            if kind != "O":
                found.add((kind, begin, place))
            begin, kind = place, next_kind
    return found


def score(prediction: EvalPrediction, names: dict[int, str]) -> dict[str, float]:
    right, guessed, true = 0, 0, 0
    for guess, truth in zip(prediction.predictions.argmax(-1), prediction.label_ids, strict=True):
        words = truth != IGNORED
        ours, theirs = (entities([names[label] for label in labels[words]]) for labels in (guess, truth))
        right, guessed, true = right + len(ours & theirs), guessed + len(ours), true + len(theirs)
    words = prediction.label_ids != IGNORED
    return {
        "entity_f1": 2 * right / max(guessed + true, 1),
        "token_accuracy": float(np.mean(prediction.predictions.argmax(-1)[words] == prediction.label_ids[words])),
    }


def main() -> None:
    arguments, training = HfArgumentParser((WordArguments, TrainingArguments)).parse_args_into_dataclasses()
    set_seed(training.seed)
    train, validation = read_sentences(arguments.train_file), read_sentences(arguments.validation_file)
    names = dict(enumerate(sorted({label for sentence in train for _, label in sentence})))
    label2id = {name: i for i, name in names.items()}
    tokenizer = AutoTokenizer.from_pretrained(arguments.model_name_or_path)
    model = AutoModelForTokenClassification.from_pretrained(
        arguments.model_name_or_path, num_labels=len(names), id2label=names, label2id=label2id
    )
    trainer = Trainer(
        model=model,
        args=training,
        train_dataset=LabelledWords(train, tokenizer, label2id, arguments.max_seq_length),
        eval_dataset=LabelledWords(validation, tokenizer, label2id, arguments.max_seq_length),
        data_collator=DataCollatorForTokenClassification(tokenizer),
        compute_metrics=lambda prediction: score(prediction, names),
    )
    trainer.train(resume_from_checkpoint=training.resume_from_checkpoint)
    description = ran_on(trainer)
    trainer.save_model()
    tokenizer.save_pretrained(training.output_dir)
    metrics = trainer.evaluate()
    if trainer.is_world_process_zero():
        figures = {name: metrics[f"eval_{name}"] for name in ("entity_f1", "token_accuracy", "loss")}
        print(json.dumps({**figures, **description}))


if __name__ == "__main__":
    main()
