// What a directory says of its tokenizer outside of tokenizer.json: the files of the time before it, and its settings.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "trireme/trainer/tokenizer/tokenizer_json.h"

namespace trireme::trainer {

// tokenizer_config.json and special_tokens_map.json; either may be missing.
class TokenizerConfig {
 public:
  explicit TokenizerConfig(const std::filesystem::path& directory);

  // "cls_token" and the like: "[CLS]" or {"content": "[CLS]"}. Empty if neither file has it.
  std::string special_token(const std::string& role) const;
  std::string special_token_or(const std::string& role, const std::string& otherwise) const;
  // Nothing where it is not said, or where it is the number by which transformers says that.
  std::optional<int64_t> model_max_length() const;
  JsonPlace settings() const { return {settings_, settings_name_}; }

 private:
  std::string settings_name_, special_tokens_name_;
  Json settings_ = Json::object(), special_tokens_ = Json::object();
};

// vocab.txt, as transformers' BertTokenizerFast converts it.
TokenizerJson read_vocab_txt(const std::filesystem::path& directory, const TokenizerConfig& config);

// vocab.json and merges.txt, as transformers' RobertaTokenizerFast converts them.
TokenizerJson read_vocab_json(const std::filesystem::path& directory, const TokenizerConfig& config);

// BERT's settings in tokenizer_config.json count more than what its tokenizer.json says, as in transformers.
void apply_bert_settings(TokenizerJson& json, const TokenizerConfig& config);

}  // namespace trireme::trainer
