// Questions and contexts as the model's input: the windows that run_qa.py makes of them, token for token, without padding.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "trireme/trainer/squad/examples.h"
#include "trireme/trainer/tokenizer/tokenizer.h"

namespace trireme::trainer {

// A question and as much of its context as fits. A context that is too long gives several features, which overlap.
struct Feature {
  uint32_t example = 0;                          // its number among the examples
  std::vector<int32_t> ids;                      // real tokens only
  uint32_t context_begin = 0, context_end = 0;   // the positions in ids that hold the context
  int32_t start_position = 0, end_position = 0;  // of the answer, where labels were asked for

  bool is_context(size_t position) const { return position >= context_begin && position < context_end; }
  // The bytes of the context that the token at this position stands for; is_context must hold.
  Encoding::Span span(size_t position) const { return context->spans[first_token + position - context_begin]; }

  std::shared_ptr<const Encoding> context;  // the whole of it, shared by all features about the same text
  uint32_t first_token = 0;                 // the number in it of the token at context_begin
};

struct FeatureOptions {
  int64_t max_length = 384;   // tokens of a feature: the smaller of --max_seq_length and what the model can take
  int64_t doc_stride = 128;   // tokens that a window shares with the one before
  bool with_labels = false;   // start_position and end_position of the first answer
  int64_t max_features = -1;  // run_qa.py's --max_*_samples limits features as well as examples; -1 is all
};

// In the order of the examples, the same for any number of threads. Each distinct context is tokenised once.
//
// An answer that is not wholly inside a window, and a question without an answer, are labelled with the position of the CLS
// token. As in run_qa.py, the label of an answer that is the one last token of its window starts at the last position of
// ids, behind the context: its search does not stop at the context's end. (With --pad_to_max_length it runs on to the last
// padding. Features have none, and are those of --pad_to_max_length False.)
//
// InvalidArgument, for the first such question, where a question leaves its context no more room than the stride.
std::vector<Feature> make_features(const std::vector<Example>& examples, const Tokenizer& tokenizer,
                                   const FeatureOptions& options, int threads);

// The token_type_ids of a feature that was made with this template.
std::vector<int32_t> type_ids(const Feature& feature, const PairTemplate& pair);

// Of ids and labels: ranks that have the same number have the same data.
uint64_t fingerprint(const std::vector<Feature>& features);

}  // namespace trireme::trainer
