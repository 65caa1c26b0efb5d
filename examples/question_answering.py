"""Extractive question answering on Hugging Face's Trainer, with the flags of transformers' own run_qa.py, from files in SQuAD's format.

    python examples/question_answering.py --model_name_or_path MODEL --train_file train.json --validation_file dev.json --do_train --do_eval \\
        --output_dir out --max_seq_length 384 --doc_stride 128 --use_ipex --no_cuda
    mpirun -n 2 python examples/question_answering.py ... --no_cuda --ddp_backend ccl --use_ipex

It says what it runs on: {"backend": ..., "world_size": ..., "packed": ...} in the file group.json of the output folder.
"""

from __future__ import annotations

import collections
import dataclasses
import json
import pathlib
import re
import string
import sys
from typing import Any

import numpy as np
import torch
from ran_on import ran_on
from transformers import AutoModelForQuestionAnswering, AutoTokenizer, HfArgumentParser, Trainer, TrainingArguments, default_data_collator, set_seed


@dataclasses.dataclass
class ModelArguments:
    model_name_or_path: str = dataclasses.field(metadata={"help": "A folder, or a name on the hub."})


@dataclasses.dataclass
class DataArguments:
    train_file: str | None = dataclasses.field(default=None, metadata={"help": "Questions in SQuAD's format."})
    validation_file: str | None = dataclasses.field(default=None, metadata={"help": "The same, to evaluate with."})
    max_seq_length: int = dataclasses.field(default=384, metadata={"help": "Tokens of a feature: question and context."})
    doc_stride: int = dataclasses.field(default=128, metadata={"help": "Tokens that features of one context share."})
    pad_to_max_length: bool = dataclasses.field(default=True, metadata={"help": "Pad to max_seq_length, else to the longest of a batch."})
    max_train_samples: int | None = None
    max_eval_samples: int | None = None
    n_best_size: int = 20
    max_answer_length: int = 30


def read_questions(path: str, limit: int | None) -> list[dict[str, Any]]:
    articles = json.loads(pathlib.Path(path).read_text())["data"]
    questions = [
        {"id": qa["id"], "question": qa["question"].lstrip(), "context": paragraph["context"], "answers": qa["answers"]}
        for article in articles
        for paragraph in article["paragraphs"]
        for qa in paragraph["qas"]
    ]
    return questions[:limit]


class Features(torch.utils.data.Dataset):
    """A question with a window of its context, each a row. Those for training know where their answer lies."""

    def __init__(self, questions: list[dict[str, Any]], tokenizer: Any, arguments: DataArguments, with_answers: bool) -> None:
        self.encoded = tokenizer(
            [each["question"] for each in questions],
            [each["context"] for each in questions],
            truncation="only_second",
            max_length=arguments.max_seq_length,
            stride=arguments.doc_stride,
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
            padding="max_length" if arguments.pad_to_max_length else False,
        )
        self.question_of = self.encoded.pop("overflow_to_sample_mapping")
        self.offsets = self.encoded.pop("offset_mapping")
        self.columns = {name: self.encoded[name] for name in self.encoded}
        if with_answers:
            spans = [self.find_answer(row, questions[question], tokenizer.cls_token_id) for row, question in enumerate(self.question_of)]
            self.columns["start_positions"], self.columns["end_positions"] = ([span[i] for span in spans] for i in (0, 1))

    def context_tokens(self, row: int) -> range:
        ids = self.encoded.sequence_ids(row)
        return range(ids.index(1), len(ids) - ids[::-1].index(1))

    def find_answer(self, row: int, question: dict[str, Any], cls_token: int) -> tuple[int, int]:
        """The first and last token of the answer, or [CLS] twice where this window does not have all of it."""
        nothing = self.encoded["input_ids"][row].index(cls_token)
        if not question["answers"]:
            return nothing, nothing
        begin = question["answers"][0]["answer_start"]
        end = begin + len(question["answers"][0]["text"])
        tokens, offsets = self.context_tokens(row), self.offsets[row]
        if offsets[tokens[0]][0] > begin or offsets[tokens[-1]][1] < end:
            return nothing, nothing
        first = max(token for token in tokens if offsets[token][0] <= begin)
        last = min(token for token in tokens if offsets[token][1] >= end)
        return first, last

    def __len__(self) -> int:
        return len(self.question_of)

    def __getitem__(self, row: int) -> dict[str, Any]:
        return {name: column[row] for name, column in self.columns.items()}


# ---- Answers from logits, and how good they are ----


def best_answers(questions: list[dict[str, Any]], features: Features, logits: tuple[np.ndarray, np.ndarray], arguments: DataArguments) -> dict[str, str]:
    rows_of = collections.defaultdict(list)
    for row, question in enumerate(features.question_of):
        rows_of[question].append(row)
    answers = {}
    for number, question in enumerate(questions):
        best, answer = -np.inf, ""
        for row in rows_of[number]:
            tokens, offsets = features.context_tokens(row), features.offsets[row]
            starts, ends = (each[row][tokens.start : tokens.stop] for each in logits)
            for i in np.argsort(starts)[-arguments.n_best_size :]:
                for j in np.argsort(ends)[-arguments.n_best_size :]:
                    if i <= j < i + arguments.max_answer_length and starts[i] + ends[j] > best:
                        best = starts[i] + ends[j]
                        answer = question["context"][offsets[tokens[i]][0] : offsets[tokens[j]][1]]
        answers[question["id"]] = answer
    return answers


def normalize(text: str) -> list[str]:
    """As SQuAD's evaluation does: without case, punctuation and articles."""
    text = "".join(letter for letter in text.lower() if letter not in string.punctuation)
    return re.sub(r"\b(a|an|the)\b", " ", text).split()


def f1(answer: list[str], truth: list[str]) -> float:
    common = sum((collections.Counter(answer) & collections.Counter(truth)).values())
    return 2 * common / (len(answer) + len(truth)) if common else float(answer == truth)


def score(questions: list[dict[str, Any]], answers: dict[str, str]) -> dict[str, float]:
    exact, overlap = [], []
    for question in questions:
        answer = normalize(answers[question["id"]])
        truths = [normalize(each["text"]) for each in question["answers"]] or [[]]
        exact.append(max(float(answer == truth) for truth in truths))
        overlap.append(max(f1(answer, truth) for truth in truths))
    return {"eval_exact_match": 100 * float(np.mean(exact)), "eval_f1": 100 * float(np.mean(overlap))}  # run_qa.py's names


def collate_padded(tokenizer: Any) -> Any:
    def collate(features: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        return tokenizer.pad(features, return_tensors="pt")

    return collate


def main() -> None:
    model_arguments, arguments, training = HfArgumentParser((ModelArguments, DataArguments, TrainingArguments)).parse_args_into_dataclasses()
    set_seed(training.seed)
    tokenizer = AutoTokenizer.from_pretrained(model_arguments.model_name_or_path, use_fast=True)
    model = AutoModelForQuestionAnswering.from_pretrained(model_arguments.model_name_or_path)
    if training.do_train and not arguments.train_file or training.do_eval and not arguments.validation_file:
        sys.exit("--do_train needs --train_file, --do_eval needs --validation_file")
    train = Features(read_questions(arguments.train_file, arguments.max_train_samples), tokenizer, arguments, True) if training.do_train else None
    trainer = Trainer(
        model=model,
        args=training,
        train_dataset=train,
        data_collator=default_data_collator if arguments.pad_to_max_length else collate_padded(tokenizer),
    )
    results = {}
    if train is not None:
        results |= trainer.train(resume_from_checkpoint=training.resume_from_checkpoint).metrics
        group = ran_on(trainer)
        trainer.save_model()
        tokenizer.save_pretrained(training.output_dir)
    if training.do_eval:
        questions = read_questions(arguments.validation_file or "", arguments.max_eval_samples)
        features = Features(questions, tokenizer, arguments, False)
        answers = best_answers(questions, features, trainer.predict(features).predictions, arguments)
        results |= score(questions, answers)
    if trainer.is_world_process_zero():
        folder = pathlib.Path(training.output_dir)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "all_results.json").write_text(json.dumps(results, indent=1))
        if train is not None:
            (folder / "group.json").write_text(json.dumps(group, indent=1))
        print(json.dumps(results))


if __name__ == "__main__":
    main()
