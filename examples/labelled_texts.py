"""Texts with labels, for the examples that classify them. A file has lines of label<TAB>text."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Any

import torch


@dataclasses.dataclass
class TextArguments:
    model_name_or_path: str = dataclasses.field(metadata={"help": "An encoder: a folder, or a name on the hub."})
    train_file: str = dataclasses.field(metadata={"help": "Lines of label<TAB>text. Its labels are those that the model learns."})
    validation_file: str = dataclasses.field(metadata={"help": "The same, to evaluate with."})
    max_seq_length: int = dataclasses.field(default=128, metadata={"help": "Tokens of a text; what is longer is cut."})


def read_texts(path: str) -> list[tuple[str, str]]:
    """(label, text) of each line; lines without anything on them are left out."""
    rows = []
    for number, line in enumerate(pathlib.Path(path).read_text(encoding="utf-8").split("\n"), start=1):
        label, tab, text = line.partition("\t")
        if not tab and line.strip():
            raise ValueError(f"{path}, line {number}: no tab between label and text: {line[:60]!r}")
        if tab:
            rows.append((label, text))
    return rows


def labels_for(rows: list[tuple[str, str]]) -> dict[str, Any]:
    """As a model's configuration wants them: from_pretrained(..., **labels_for(rows))."""
    names = sorted({label for label, _ in rows})
    return {"num_labels": len(names), "id2label": dict(enumerate(names)), "label2id": {name: i for i, name in enumerate(names)}}


class LabelledTexts(torch.utils.data.Dataset):
    def __init__(self, rows: list[tuple[str, str]], tokenizer: Any, label2id: dict[str, int], max_length: int) -> None:
        if unknown := {label for label, _ in rows} - label2id.keys():
            raise ValueError(f"labels that are not in the training file: {', '.join(sorted(unknown))}")
        encoded = tokenizer([text for _, text in rows], truncation=True, max_length=max_length)
        self.columns = {**encoded, "labels": [label2id[label] for label, _ in rows]}

    def __len__(self) -> int:
        return len(self.columns["labels"])

    def __getitem__(self, row: int) -> dict[str, Any]:
        return {name: column[row] for name, column in self.columns.items()}
