// BERT's cleaning: control characters away, spaces around Chinese characters, accents off, lower case.
#pragma once

#include "trireme/trainer/tokenizer/normalizer.h"

namespace trireme::trainer {

class BertNormalizer final : public Normalizer {
 public:
  explicit BertNormalizer(const JsonPlace& place);
  void apply(AlignedText& text) const override;

 private:
  void apply_to_ascii(AlignedText& text) const;

  bool clean_text_, handle_chinese_chars_, strip_accents_, lowercase_;
};

// One character to one or two, with the span of what it was.
void to_lower_case(AlignedText& text);

}  // namespace trireme::trainer
