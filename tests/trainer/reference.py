"""What run_qa.py does with questions, windows and logits, written down a second time and slowly: on Hugging Face's tokenizers and numpy, in code points."""

import dataclasses

import numpy as np


@dataclasses.dataclass
class Window:
    id: str
    ids: list[int]
    types: list[int]
    context: tuple[int, int]  # the positions that hold the context
    offsets: list[tuple[int, int]]  # of those, in code points
    labels: tuple[int, int]


def read_rows(document: dict) -> list[dict]:
    """The rows of a file in the published format, as run_qa.py wants them."""
    return [
        {"id": question["id"], "question": question["question"], "context": paragraph["context"], "answers": flat(question["answers"])}
        for article in document["data"]
        for paragraph in article["paragraphs"]
        for question in paragraph["qas"]
    ]


def flat(answers: list[dict]) -> dict[str, list]:
    return {key: [answer[key] for answer in answers] for key in ("text", "answer_start")}


def make_windows(tokenizer, rows: list[dict], max_length: int, doc_stride: int) -> list[Window]:
    made = tokenizer(
        [row["question"].lstrip() for row in rows],
        [row["context"] for row in rows],
        truncation="only_second",
        max_length=max_length,
        stride=doc_stride,
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
        return_token_type_ids=True,
    )
    windows = []
    for i, sample in enumerate(made["overflow_to_sample_mapping"]):
        row, offsets, ids = rows[sample], made["offset_mapping"][i], made["input_ids"][i]
        positions = [k for k, part in enumerate(made.sequence_ids(i)) if part == 1]
        context = (positions[0], positions[-1] + 1) if positions else (len(ids) - 1, len(ids) - 1)
        labels = label(offsets, context, row["answers"], ids.index(tokenizer.cls_token_id))
        windows.append(Window(row["id"], ids, made["token_type_ids"][i], context, offsets[slice(*context)], labels))
    return windows


def label(offsets: list, context: tuple[int, int], answers: dict, cls: int) -> tuple[int, int]:
    """The positions of the first answer. Offsets are those of all tokens; of special ones they are (0, 0), and the searches run over these."""
    if not answers["text"]:
        return cls, cls
    begin = answers["answer_start"][0]
    end = begin + len(answers["text"][0])
    first, last = context[0], context[1] - 1
    if offsets[first][0] > begin or offsets[last][1] < end:
        return cls, cls
    behind_start = next((k for k in range(first, len(offsets)) if offsets[k][0] > begin), len(offsets))
    before_end = next(k for k in range(last, -1, -1) if offsets[k][1] < end)
    return behind_start - 1, before_end + 1


def answer(context: str, windows: list[Window], logits: list, version_2: bool, n_best: int, max_length: int, threshold: float):
    """The answer, the n best and (version 2.0) the odds of the null answer. logits: for each window (start, end), float32."""
    candidates, null = [], None
    for window, (start, end) in zip(windows, logits):
        if null is None or start[0] + end[0] < null["score"]:
            null = {"span": (0, 0), "score": start[0] + end[0], "start_logit": start[0], "end_logit": end[0]}
        inside = range(*window.context)
        for s in np.argsort(start)[::-1][:n_best]:
            for e in np.argsort(end)[::-1][:n_best]:
                if s in inside and e in inside and s <= e < s + max_length:
                    span = (window.offsets[s - inside.start][0], window.offsets[e - inside.start][1])
                    candidates.append({"span": span, "score": start[s] + end[e], "start_logit": start[s], "end_logit": end[e]})
    best = sorted(candidates + [null] * version_2, key=lambda one: -one["score"])[:n_best]
    if version_2 and (0, 0) not in [one["span"] for one in best]:
        best.append(null)
    best = [{**one, "text": context[slice(*one.pop("span"))]} for one in best]
    if [one["text"] for one in best] in ([], [""]):
        best.insert(0, {"text": "empty", "start_logit": np.float32(0), "end_logit": np.float32(0), "score": np.float32(0)})

    weights = np.exp(np.array([one.pop("score") for one in best]) - max(one["start_logit"] + one["end_logit"] for one in best))
    for one, weight in zip(best, weights / weights.sum()):
        one["probability"] = weight
    if not version_2:
        return best[0]["text"], best, None
    chosen = next(one for one in best if one["text"])
    odds = null["score"] - chosen["start_logit"] - chosen["end_logit"]
    return "" if odds > threshold else chosen["text"], best, odds
