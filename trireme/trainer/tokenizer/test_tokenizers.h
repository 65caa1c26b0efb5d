// Small tokenizers for the tests, and what they make of a text in a form that reads well.
#pragma once

#include <string>
#include <vector>

#include "trireme/trainer/tokenizer/pipeline.h"

namespace trireme::trainer {

inline Pipeline pipeline_of(const Json& json) { return Pipeline(parse_tokenizer_json(json.dump(), "test.json")); }

inline Json added_token(int id, const std::string& content, bool special) {
  return {{"id", id},        {"content", content},     {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", !special}, {"special", special}};
}

inline Json bert_json() {
  return {{"added_tokens", {added_token(0, "[UNK]", true), added_token(1, "[SEP]", true)}},
          {"normalizer",
           {{"type", "BertNormalizer"},
            {"clean_text", true},
            {"handle_chinese_chars", true},
            {"strip_accents", nullptr},
            {"lowercase", true}}},
          {"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
          {"model",
           {{"type", "WordPiece"},
            {"unk_token", "[UNK]"},
            {"continuing_subword_prefix", "##"},
            {"max_input_chars_per_word", 12},
            {"vocab",
             {{"[UNK]", 0},
              {"[SEP]", 1},
              {"un", 2},
              {"want", 3},
              {"##want", 4},
              {"##ed", 5},
              {"?", 6},
              {"\u4E00", 7},
              {"wa", 8}}}}}};
}

inline Pipeline bert_pipeline() { return pipeline_of(bert_json()); }

// "un[0,2]": the token and its span.
inline std::vector<std::string> tokens_of(const Pipeline& pipeline, std::string_view text) {
  const Encoding encoding = pipeline.encode(text);
  std::vector<std::string> tokens;
  for (size_t i = 0; i < encoding.ids.size(); ++i) {
    tokens.push_back(std::string(pipeline.token(encoding.ids[i])) + "[" + std::to_string(encoding.spans[i].begin) + "," +
                     std::to_string(encoding.spans[i].end) + "]");
  }
  return tokens;
}

}  // namespace trireme::trainer
