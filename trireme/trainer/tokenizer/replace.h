// Replaces each occurrence of a string, or each run of two and more spaces: the only regular expression that the supported
// models use here.
#pragma once

#include "trireme/trainer/tokenizer/normalizer.h"

namespace trireme::trainer {

class Replace final : public Normalizer {
 public:
  explicit Replace(const JsonPlace& place);
  void apply(AlignedText& text) const override;

 private:
  // The first occurrence at or after `from`: where it begins and ends; both the end of the text if there is none.
  std::pair<size_t, size_t> next(std::string_view text, size_t from) const;

  std::string wanted_;  // empty: runs of spaces
  std::string content_;
};

}  // namespace trireme::trainer
