// What a directory says of its tokenizer outside of tokenizer.json: the files of the time before it, and its settings.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "trireme/trainer/tokenizer/tokenizer_json.h"

namespace trireme::trainer {

// tokenizer_config.json, special_tokens_map.json, added_tokens.json and config.json; each may be missing.
class TokenizerConfig {
 public:
  // Where the directory has no config.json, that of `model_directory` counts, if it is not empty.
  TokenizerConfig(const std::filesystem::path& directory, const std::filesystem::path& model_directory);

  // "BertTokenizer": the class with which transformers' AutoTokenizer reads the directory, without "Fast". Empty if nothing
  // says.
  std::string tokenizer_class() const;
  // Those that are not in a tokenizer.json or a vocabulary, or with other flags there; as "added_tokens" of a tokenizer.json
  // has them, in the order of their ids. By tokenizer_config.json, else by added_tokens.json.
  Json added_tokens() const;
  // added_tokens() are from added_tokens.json: of two tokens with one id that of a tokenizer.json counts.
  bool has_old_added_tokens() const { return !settings().has("added_tokens_decoder"); }
  // "cls_token" and the like: "[CLS]" or {"content": "[CLS]"}. Empty if neither file has it.
  std::string special_token(const std::string& role) const;
  std::string special_token_or(const std::string& role, const std::string& otherwise) const;
  // Nothing where it is not said, or where it is the number by which transformers says that.
  std::optional<int64_t> model_max_length() const;
  // Whether a model is handed token_type_ids: "model_input_names", else what the class does by itself.
  bool gives_token_types() const;
  JsonPlace settings() const { return {settings_, settings_name_}; }

 private:
  std::vector<JsonPlace> sources() const;
  bool is_special(const std::string& token) const;

  std::string settings_name_, special_tokens_name_, added_tokens_name_, config_name_;
  Json settings_ = Json::object(), special_tokens_ = Json::object(), config_ = Json::object();
  TokenList added_tokens_;
};

// vocab.txt, as transformers' BertTokenizerFast converts it.
TokenizerJson read_vocab_txt(const std::filesystem::path& directory, const TokenizerConfig& config);

// vocab.json and merges.txt, as transformers' RobertaTokenizerFast converts them.
TokenizerJson read_vocab_json(const std::filesystem::path& directory, const TokenizerConfig& config);

// What transformers changes in a tokenizer.json: the settings that its class has, by their defaults where the configuration
// does not say, and the tokens that the configuration adds.
void apply_settings(TokenizerJson& json, const TokenizerConfig& config);

}  // namespace trireme::trainer
