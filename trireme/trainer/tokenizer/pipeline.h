// What a tokenizer.json describes: added tokens, normalizer, pre-tokenizer, model, post-processor, one after the other.
#pragma once

#include <algorithm>
#include <memory>

#include "trireme/trainer/tokenizer/added_tokens.h"
#include "trireme/trainer/tokenizer/model.h"
#include "trireme/trainer/tokenizer/normalizer.h"
#include "trireme/trainer/tokenizer/post_processor.h"
#include "trireme/trainer/tokenizer/pre_tokenizer.h"
#include "trireme/trainer/tokenizer/tokenizer_json.h"

namespace trireme::trainer {

// Threads may share one. Nothing in it changes after it is made.
class Pipeline {
 public:
  explicit Pipeline(const TokenizerJson& json);

  Encoding encode(std::string_view text) const;
  // Of an added token or the model's.
  std::optional<int32_t> find(std::string_view token) const;
  // How a token is written whose id encode() or find() gave.
  std::string_view token(int32_t id) const;
  int32_t highest_id() const { return std::max(model_->highest_id(), added_->highest_id()); }
  const PairTemplate& pair_template() const { return post_processor_.pair; }

 private:
  void normalize(Pieces& pieces) const;

  std::unique_ptr<Normalizer> normalizer_;       // may be null
  std::unique_ptr<PreTokenizer> pre_tokenizer_;  // may be null
  std::unique_ptr<Model> model_;
  std::unique_ptr<AddedTokens> added_;
  PostProcessor post_processor_;
};

}  // namespace trireme::trainer
