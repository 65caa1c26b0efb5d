// SentencePiece's normalization as its models carry it: a trie from strings to what replaces them, precompiled.
#pragma once

#include <string>
#include <vector>

#include "trireme/trainer/tokenizer/normalizer.h"

namespace trireme::trainer {

class Precompiled final : public Normalizer {
 public:
  explicit Precompiled(const JsonPlace& place);
  void apply(AlignedText& text) const override;

 private:
  // What replaces `part`: that of its shortest beginning that the trie has, as Hugging Face's library takes it. Null data if
  // there is none. InvalidArgument if the trie leads out of itself.
  std::string_view find(std::string_view part) const;
  // find() for characters of ASCII, without a walk.
  std::string_view find_character(std::string_view character) const;

  std::string where_;
  std::vector<uint32_t> trie_;  // a double array, of the library darts-clone
  std::string replacements_;    // each ends with a zero byte
  std::vector<std::string_view> ascii_;
};

}  // namespace trireme::trainer
