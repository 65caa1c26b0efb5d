#include "trireme/trainer/tokenizer/legacy_files.h"

#include <map>

#include "trireme/base/error.h"

namespace trireme::trainer {
namespace {

namespace fs = std::filesystem;

// Lines end with LF, CR or CR LF; what follows the last one is a line if it is not empty.
std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find_first_of("\r\n"), text.size());
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(text.size(), end + (text.substr(end).starts_with("\r\n") ? 2 : 1)));
  }
  return lines;
}

// Of equal tokens the last counts, as in a Python dictionary.
TokenList without_repetition(const std::vector<std::string>& tokens) {
  std::map<std::string_view, size_t> last;
  for (size_t i = 0; i < tokens.size(); ++i) last[tokens[i]] = i;
  TokenList list;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (last[tokens[i]] == i) list.emplace_back(tokens[i], i);
  }
  return list;
}

int64_t id_of(const TokenizerJson& json, const std::string& token, const char* role) {
  for (const auto& [name, id] : json.tokens) {
    if (name == token) return id;
  }
  throw InvalidArgument(str(json.source, ": the ", role, " \"", token, "\" is missing"));
}

// In the order in which transformers adds those that the vocabulary lacks.
Json special_tokens(const TokenizerJson& json, const std::vector<std::string>& tokens, const std::string& mask) {
  Json list = Json::array();
  for (const std::string& token : tokens) {
    int64_t id = 0;
    for (const auto& [name, its_id] : json.tokens) id = name == token ? its_id : id;
    list.push_back({{"id", id},
                    {"content", token},
                    {"single_word", false},
                    {"lstrip", token == mask},
                    {"rstrip", false},
                    {"normalized", false},
                    {"special", true}});
  }
  return list;
}

Json bert_normalizer(const JsonPlace& settings) {
  Json normalizer = {{"type", "BertNormalizer"},
                     {"clean_text", true},
                     {"handle_chinese_chars", settings.boolean_or("tokenize_chinese_chars", true)},
                     {"strip_accents", nullptr},
                     {"lowercase", settings.boolean_or("do_lower_case", true)}};
  if (settings.has("strip_accents")) normalizer["strip_accents"] = settings["strip_accents"].boolean();
  return normalizer;
}

}  // namespace

TokenizerConfig::TokenizerConfig(const fs::path& directory)
    : settings_name_((directory / "tokenizer_config.json").string()),
      special_tokens_name_((directory / "special_tokens_map.json").string()) {
  if (fs::exists(settings_name_)) settings_ = read_json(settings_name_);
  if (fs::exists(special_tokens_name_)) special_tokens_ = read_json(special_tokens_name_);
}

std::string TokenizerConfig::special_token(const std::string& role) const {
  for (const JsonPlace& file : {JsonPlace(settings_, settings_name_), JsonPlace(special_tokens_, special_tokens_name_)}) {
    if (!file.has(role)) continue;
    const JsonPlace token = file[role];
    return token.value().is_object() ? token["content"].string() : token.string();
  }
  return {};
}

std::string TokenizerConfig::special_token_or(const std::string& role, const std::string& otherwise) const {
  const std::string token = special_token(role);
  return token.empty() ? otherwise : token;
}

std::optional<int64_t> TokenizerConfig::model_max_length() const {
  constexpr double kNoLimit = 1e18;  // transformers writes int(1e30)
  if (!settings().has("model_max_length")) return std::nullopt;
  const JsonPlace place = settings()["model_max_length"];
  const double length = place.number();
  if (length < 1) place.refuse(str("a feature cannot have ", length, " tokens"));
  return length < kNoLimit ? std::optional(static_cast<int64_t>(length)) : std::nullopt;
}

TokenizerJson read_vocab_txt(const fs::path& directory, const TokenizerConfig& config) {
  TokenizerJson json{(directory / "vocab.txt").string(), Json::object(), {}};
  json.tokens = without_repetition(lines_of(read_file(json.source)));
  const std::string unknown = config.special_token_or("unk_token", "[UNK]"),
                    sep = config.special_token_or("sep_token", "[SEP]"), pad = config.special_token_or("pad_token", "[PAD]"),
                    cls = config.special_token_or("cls_token", "[CLS]"),
                    mask = config.special_token_or("mask_token", "[MASK]");
  json.document["added_tokens"] = special_tokens(json, {unknown, sep, pad, cls, mask}, "");
  json.document["normalizer"] = bert_normalizer(config.settings());
  json.document["pre_tokenizer"] = {{"type", "BertPreTokenizer"}};
  json.document["model"] = {{"type", "WordPiece"},
                            {"unk_token", unknown},
                            {"continuing_subword_prefix", "##"},
                            {"max_input_chars_per_word", 100},
                            {"vocab", Json::object()}};
  json.document["post_processor"] = {{"type", "BertProcessing"},
                                     {"sep", Json::array({sep, id_of(json, sep, "sep_token")})},
                                     {"cls", Json::array({cls, id_of(json, cls, "cls_token")})}};
  return json;
}

TokenizerJson read_vocab_json(const fs::path& directory, const TokenizerConfig& config) {
  TokenizerJson json{(directory / "vocab.json").string(), Json::object(), {}};
  json.tokens = parse_vocabulary_json(read_file(json.source), json.source);
  const JsonPlace settings = config.settings();
  const bool add_prefix_space = settings.boolean_or("add_prefix_space", false);
  const bool trim_offsets = settings.boolean_or("trim_offsets", true);
  const std::string sep = config.special_token_or("sep_token", "</s>"), cls = config.special_token_or("cls_token", "<s>"),
                    mask = config.special_token_or("mask_token", "<mask>");
  json.document["added_tokens"] = special_tokens(
      json,
      {config.special_token_or("bos_token", "<s>"), config.special_token_or("eos_token", "</s>"),
       config.special_token_or("unk_token", "<unk>"), sep, config.special_token_or("pad_token", "<pad>"), cls, mask},
      mask);
  json.document["pre_tokenizer"] = {
      {"type", "ByteLevel"}, {"add_prefix_space", add_prefix_space}, {"trim_offsets", trim_offsets}, {"use_regex", true}};
  Json merges = Json::array();
  const std::vector<std::string> lines = lines_of(read_file(directory / "merges.txt"));
  for (size_t i = 1; i < lines.size(); ++i) merges.push_back(lines[i]);  // the first says the version
  json.document["model"] = {{"type", "BPE"}, {"vocab", Json::object()}, {"merges", std::move(merges)}};
  json.document["post_processor"] = {{"type", "RobertaProcessing"},
                                     {"sep", Json::array({sep, id_of(json, sep, "sep_token")})},
                                     {"cls", Json::array({cls, id_of(json, cls, "cls_token")})},
                                     {"trim_offsets", trim_offsets},
                                     {"add_prefix_space", add_prefix_space}};
  return json;
}

void apply_bert_settings(TokenizerJson& json, const TokenizerConfig& config) {
  const JsonPlace root = json.root(), settings = config.settings();
  if (!root.has("normalizer") || root["normalizer"].string_or("type", "") != "BertNormalizer") return;
  // This class takes a tokenizer.json as it is.
  if (settings.string_or("tokenizer_class", "") == "PreTrainedTokenizerFast") return;
  if (!settings.has("do_lower_case")) return;
  Json normalizer = bert_normalizer(settings);
  normalizer["clean_text"] = root["normalizer"]["clean_text"].boolean();
  json.document["normalizer"] = std::move(normalizer);
}

}  // namespace trireme::trainer
