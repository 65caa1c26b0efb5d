"""Every head that transformers has for the five families: loss and gradients beside transformers' own, without dropout.

Hidden states of padding are zero in a packed encoder, and something else in transformers. So a head is compared on what a training run looks at:
labels of padding are -100, as transformers' collators make them. A question answering head is the exception: transformers lets the logits of
padding take part in its softmax, here they do not; a batch is compared with a loss over the logits of each sequence's own places.
"""

import pytest

from .models import FAMILIES, assert_same_training, batch, clone, gradients, heads_of, make, torch, train_once

import trireme

HEADS = [(family, head) for family in FAMILIES for head in heads_of(family)]


def labels_for(head, inputs):
    """The inputs of a head, with labels."""
    ids, mask = inputs["input_ids"], inputs["attention_mask"]
    rows = len(ids)
    tokens = torch.where(mask.bool(), ids % 2, -100)
    if head.endswith("ForMultipleChoice"):
        choices = {name: x.view(2, rows // 2, -1) for name, x in inputs.items()}
        return {**choices, "labels": torch.tensor([0, 1])}
    if head.endswith(("ForMaskedLM", "ForCausalLM", "LMHeadModel")):
        return {**inputs, "labels": torch.where(mask.bool(), ids, -100)}
    if head.endswith("BertForPreTraining"):
        return {**inputs, "labels": torch.where(mask.bool(), ids, -100), "next_sentence_label": torch.arange(rows) % 2}
    if head.endswith("ElectraForPreTraining"):
        return {**inputs, "labels": tokens.clamp(min=0)}
    if head.endswith("ForTokenClassification"):
        return {**inputs, "labels": tokens}
    return {**inputs, "labels": torch.arange(rows) % 2}  # sentences


@pytest.mark.parametrize("left", [False, True], ids=["right", "left"])
@pytest.mark.parametrize(("family", "head"), HEADS, ids=[head for _, head in HEADS])
def test_head(family, head, left, packed):
    theirs = make(family, head)
    ours = trireme.optimize(clone(theirs))
    if head.endswith("ForQuestionAnswering"):
        check_question_answering(ours, theirs, left)
    else:
        inputs = labels_for(head, batch(left=left))
        assert_same_training(train_once(ours, inputs), train_once(theirs, inputs))
    assert bool(packed) == (not left)  # on the left the first place, which heads read, is padding


def check_question_answering(ours, theirs, left):
    inputs = batch(left=left)
    present = inputs["attention_mask"].bool()
    lengths = present.sum(1)
    starts, ends = torch.tensor([3, 0, 6, 2]), torch.tensor([9, 0, 6, 40])  # the last end lies outside of the batch: ignored
    if left:
        starts, ends = starts + present.shape[1] - lengths, ends + present.shape[1] - lengths
    theirs.zero_grad()
    result = theirs(**inputs)
    losses = []
    for logits, places in ((result.start_logits, starts), (result.end_logits, ends)):
        terms = [
            torch.logsumexp(row[own], 0) - row[place]
            for row, own, place in zip(logits, present, places, strict=True)
            if place < len(row)
        ]
        losses.append(sum(terms) / len(terms))
    loss = sum(losses) / 2
    loss.backward()
    expected = loss.detach(), gradients(theirs)
    assert_same_training(train_once(ours, {**inputs, "start_positions": starts, "end_positions": ends}), expected)


@pytest.mark.parametrize("family", FAMILIES)
def test_an_answer_in_the_padding_does_not_count(family, packed):
    """As one outside of the batch does not. The second sequence has one token, the third seven."""
    model = trireme.optimize(make(family, "ForQuestionAnswering"))
    results = []
    for start, end in ((1, 11), (40, 40)):
        places = {"start_positions": torch.tensor([3, start, 6, 2]), "end_positions": torch.tensor([9, 0, end, 2])}
        results.append(train_once(model, batch() | places))
    assert_same_training(*results, 0.0)
    assert packed and results[0][0] < 10, "a place with the lowest logit there is was asked for"


def test_heads_are_there():
    """That the list above was not empty for a reason of its own."""
    assert len(HEADS) >= 25
    assert {"BertForQuestionAnswering", "ElectraForPreTraining", "DistilBertForMaskedLM"} <= {head for _, head in HEADS}
