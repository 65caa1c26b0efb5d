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

inline Json roberta_json() {
  return {{"added_tokens", {added_token(0, "<s>", true), added_token(1, "</s>", true)}},
          {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}}},
          {"model",
           {{"type", "BPE"},
            {"vocab",
             {{"<s>", 0},
              {"</s>", 1},
              {"\u0120", 2},
              {"a", 3},
              {"b", 4},
              {"c", 5},
              {"ab", 6},
              {"\u0120ab", 7},
              {"\u00C3", 8},
              {"\u00A9", 9},
              {"bc", 10}}},
            {"merges", {"a b", "\u0120 ab", "b c"}}}},
          {"post_processor",
           {{"type", "RobertaProcessing"},
            {"sep", {"</s>", 1}},
            {"cls", {"<s>", 0}},
            {"trim_offsets", true},
            {"add_prefix_space", false}}}};
}

inline Json xlm_roberta_json() {
  const auto entry = [](const char* token, double score) { return Json::array({token, score}); };
  return {{"added_tokens", Json::array({added_token(0, "<s>", true), added_token(1, "</s>", true)})},
          {"pre_tokenizer", {{"type", "Metaspace"}, {"replacement", "\u2581"}, {"add_prefix_space", true}}},
          {"model",
           {{"type", "Unigram"},
            {"unk_id", 2},
            {"vocab", Json::array({entry("<s>", 0), entry("</s>", 0), entry("<unk>", 0), entry("\u2581", -2), entry("a", -3),
                                   entry("b", -3), entry("ab", -5), entry("\u2581ab", -6.5), entry("ba", -4)})}}}};
}

// A model in which every letter, and every pair of letters, is a token.
inline Json letters_json(const std::string& type) {
  Json json = type == "BPE" ? roberta_json() : type == "Unigram" ? xlm_roberta_json() : bert_json();
  Json tokens = Json::array({"<s>", "</s>", "[UNK]", "[SEP]", "<unk>", "\u0120", "\u2581", "."}), merges = Json::array();
  for (char first = 'a'; first <= 'z'; ++first) {
    for (const char* prefix : {"", "##"}) tokens.push_back(prefix + std::string(1, first));
  }
  for (char first = 'a'; first <= 'z'; ++first) {
    for (char second = 'a'; second <= 'z'; ++second) {
      for (const char* prefix : {"", "##"}) tokens.push_back(prefix + std::string{first, second});
      merges.push_back(std::string{first, ' ', second});
    }
  }
  Json& model = json["model"];
  model["vocab"] = type == "Unigram" ? Json::array() : Json::object();
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (type == "Unigram")
      model["vocab"].push_back({tokens[i], -1.0 - static_cast<double>(i % 7)});
    else
      model["vocab"][tokens[i].get<std::string>()] = i;
  }
  if (type == "BPE") model["merges"] = merges;
  if (type == "Unigram") model["unk_id"] = 4;
  return json;
}

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
