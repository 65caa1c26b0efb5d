"""A model as optimize leaves it, beside the plain one."""

from .models import assert_close, clone, make

import trireme


def pair(family="bert", name="Model", **options):
    theirs = make(family, name, **options)
    return trireme.optimize(clone(theirs)), theirs


def tokens(hidden, mask):
    return hidden[mask.bool()]


def assert_same_tokens(ours, theirs, inputs):
    for_ours, for_theirs = ours(**inputs)[0], theirs(**inputs)[0]
    assert_close(tokens(for_ours, inputs["attention_mask"]), tokens(for_theirs, inputs["attention_mask"]))
