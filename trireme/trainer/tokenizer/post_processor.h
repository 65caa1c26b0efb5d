// The "post_processor" of a tokenizer.json: which special tokens stand around a pair of texts, and how offsets are trimmed.
#pragma once

#include <functional>
#include <vector>

#include "trireme/trainer/json/json.h"
#include "trireme/trainer/tokenizer/tokenizer.h"

namespace trireme::trainer {

struct PostProcessor {
  PairTemplate pair;
  // One entry per processor that takes the spaces of a token out of its span; what it knows of a space before the text.
  std::vector<bool> trims;
};

// InvalidArgument says where in the file what is wrong, and names a type that we do not know.
PostProcessor make_post_processor(const JsonPlace& place);

// Takes the spaces at both ends of a token out of its span. `written` has the token as the vocabulary writes it; `index` is
// its place among the tokens of `text`.
void trim_span(std::string_view text, Encoding::Span& span, std::string_view written, size_t index, bool add_prefix_space);

}  // namespace trireme::trainer
