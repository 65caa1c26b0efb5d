// Byte pair encoding: characters, of which the pair with the lowest rank is joined until no pair has one.
#pragma once

#include <array>

#include "trireme/trainer/tokenizer/model.h"

namespace trireme::trainer {

class Bpe final : public VocabularyModel {
 public:
  Bpe(const JsonPlace& place, const TokenList& tokens);

  void tokenize(std::string_view word, std::vector<Token>& tokens) const override;

 private:
  struct Merge {
    uint32_t rank = 0;
    int32_t id = 0;  // of both together
  };
  // A part of the word, in a list that shrinks as parts are joined.
  struct Symbol {
    int32_t id = 0;
    uint32_t bytes = 0;  // 0, it was joined to the one before
    int32_t before = -1, after = -1;
  };
  struct Candidate;

  void read_merges(const JsonPlace& place);
  void add_merge(const std::string& first, const std::string& second, uint32_t rank, const JsonPlace& place);
  const Merge* merge_of(int32_t first, int32_t second) const;

  std::vector<Symbol> split(std::string_view word) const;
  std::optional<int32_t> find_character(std::string_view character, bool first, bool last) const;
  bool split_into_bytes(std::string_view character, std::vector<Symbol>& symbols) const;
  int32_t unknown_id() const;
  void join(std::vector<Symbol>& symbols) const;

  std::unordered_map<uint64_t, Merge> merges_;  // by both ids
  std::string unknown_, prefix_, suffix_;       // empty: none
  bool has_unknown_, fuse_unknown_, byte_fallback_, ignore_merges_;
  // Ids of the characters below U+0200, in which byte-level texts are written; -1 for none.
  std::array<int32_t, 0x200> small_characters_;
};

}  // namespace trireme::trainer
