#include "trireme/trainer/tokenizer/legacy_files.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <set>
#include <span>

#include "trireme/base/error.h"

namespace trireme::trainer {
namespace {

namespace fs = std::filesystem;

// Which class of transformers 4.57 reads the tokenizer of a model.
constexpr std::pair<std::string_view, const char*> kClasses[] = {{"bert", "BertTokenizer"},
                                                                 {"roberta", "RobertaTokenizer"},
                                                                 {"xlm-roberta", "XLMRobertaTokenizer"},
                                                                 {"electra", "ElectraTokenizer"},
                                                                 {"distilbert", "DistilBertTokenizer"}};

// Those that make BERT's normalizer anew, and those that set RoBERTa's post-processor.
constexpr std::string_view kBertClasses[] = {"BertTokenizer",       "DistilBertTokenizer", "ElectraTokenizer",
                                             "ConvBertTokenizer",   "FunnelTokenizer",     "LayoutLMTokenizer",
                                             "LxmertTokenizer",     "RealmTokenizer",      "RetriBertTokenizer",
                                             "MobileBertTokenizer", "SqueezeBertTokenizer",
                                             "DPRReaderTokenizer",  "DPRQuestionEncoderTokenizer",
                                             "DPRContextEncoderTokenizer"};
constexpr std::string_view kRobertaClasses[] = {"RobertaTokenizer",    "BartTokenizer", "BlenderbotTokenizer",
                                                "LayoutLMv3Tokenizer", "LEDTokenizer",  "LongformerTokenizer",
                                                "MvpTokenizer"};

// Those whose models are not handed token_type_ids, beside RoBERTa's.
constexpr std::string_view kOthersWithoutTypes[] = {"XLMRobertaTokenizer", "DistilBertTokenizer", "CamembertTokenizer",
                                                    "MPNetTokenizer"};

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

// After those that the configuration adds, which keep what it says of them, in the order in which transformers adds those that the vocabulary lacks.
Json with_special_tokens(Json list, const TokenizerJson& json, const std::vector<std::string>& tokens,
                         const std::string& mask) {
  const auto is_there = [&](const std::string& token) {
    return std::any_of(list.begin(), list.end(), [&](const Json& each) { return each["content"] == token; });
  };
  for (const std::string& token : tokens) {
    if (is_there(token)) continue;
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

// "[CLS]" or {"content": "[CLS]"}.
const std::string& content_of(const JsonPlace& token) {
  return token.value().is_object() ? token["content"].string() : token.string();
}

bool is_one_of(std::span<const std::string_view> names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Of a tokenizer.json, where it has that part in that form.
Json* find_part(TokenizerJson& json, const char* part, std::initializer_list<std::string_view> types) {
  const JsonPlace root = json.root();
  if (!root.has(part) || !is_one_of(types, root[part].string_or("type", ""))) return nullptr;
  return &json.document[part];
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

void add_tokens(TokenizerJson& json, const TokenizerConfig& config) {
  const Json added = config.added_tokens();
  if (added.empty()) return;
  const JsonPlace root = json.root();
  std::set<int64_t> ids;  // that the file's own tokens keep
  if (!root.has("added_tokens")) json.document["added_tokens"] = Json::array();
  const JsonPlace own = root["added_tokens"];
  for (size_t i = 0; i < own.size(); ++i)
    if (config.has_old_added_tokens()) ids.insert(own.at(i)["id"].integer());
  for (const Json& token : added)
    if (!ids.contains(token["id"].get<int64_t>())) json.document["added_tokens"].push_back(token);
}

}  // namespace

TokenizerConfig::TokenizerConfig(const fs::path& directory, const fs::path& model_directory)
    : settings_name_((directory / "tokenizer_config.json").string()),
      special_tokens_name_((directory / "special_tokens_map.json").string()),
      added_tokens_name_((directory / "added_tokens.json").string()),
      config_name_((directory / "config.json").string()) {
  if (!fs::exists(config_name_) && !model_directory.empty()) config_name_ = (model_directory / "config.json").string();
  if (fs::exists(settings_name_)) settings_ = read_json(settings_name_);
  if (fs::exists(special_tokens_name_)) special_tokens_ = read_json(special_tokens_name_);
  if (fs::exists(added_tokens_name_))
    added_tokens_ = parse_vocabulary_json(read_file(added_tokens_name_), added_tokens_name_);
  if (fs::exists(config_name_)) config_ = read_json(config_name_);
}

bool TokenizerConfig::gives_token_types() const {
  if (!settings().has("model_input_names"))
    return !is_one_of(kRobertaClasses, tokenizer_class()) && !is_one_of(kOthersWithoutTypes, tokenizer_class());
  const JsonPlace names = settings()["model_input_names"];
  for (size_t i = 0; i < names.size(); ++i)
    if (names.at(i).string() == "token_type_ids") return true;
  return false;
}

std::string TokenizerConfig::tokenizer_class() const {
  const JsonPlace config(config_, config_name_);
  std::string name = settings().string_or("tokenizer_class", config.string_or("tokenizer_class", ""));
  if (name.ends_with("Fast")) name.resize(name.size() - 4);
  if (!name.empty()) return name;
  for (const auto& [type, its_class] : kClasses)
    if (config.string_or("model_type", "") == type) return its_class;
  return "";
}

Json TokenizerConfig::added_tokens() const {
  std::map<int64_t, Json> by_id;
  const auto add = [&](int64_t id, const std::string& content, const JsonPlace& flags, bool special) {
    const auto flag = [&](const char* name) { return flags.boolean_or(name, false); };
    by_id[id] = {{"id", id},
                 {"content", content},
                 {"single_word", flag("single_word")},
                 {"lstrip", flag("lstrip")},
                 {"rstrip", flag("rstrip")},
                 {"normalized", flags.boolean_or("normalized", !special)},
                 {"special", special}};
  };
  if (has_old_added_tokens()) {
    const Json none = Json::object();
    for (const auto& [token, id] : added_tokens_) add(id, token, {none, added_tokens_name_}, is_special(token));
  } else {
    const JsonPlace decoder = settings()["added_tokens_decoder"];
    for (const auto& [key, value] : decoder.object().items()) {
      const JsonPlace token(value, str(decoder.where(), ".", key));
      int64_t id = 0;
      const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
      if (error != std::errc() || end != key.data() + key.size()) token.refuse("a token's id is wanted as its key");
      add(id, token["content"].string(), token, token.boolean_or("special", false));
    }
  }
  Json list = Json::array();
  for (auto& [id, token] : by_id) list.push_back(std::move(token));
  return list;
}

// special_tokens_map.json counts more, unless transformers has written all into tokenizer_config.json.
std::vector<JsonPlace> TokenizerConfig::sources() const {
  if (!has_old_added_tokens()) return {settings()};
  return {JsonPlace(special_tokens_, special_tokens_name_), settings()};
}

std::string TokenizerConfig::special_token(const std::string& role) const {
  for (const JsonPlace& file : sources())
    if (file.has(role)) return content_of(file[role]);
  return {};
}

bool TokenizerConfig::is_special(const std::string& token) const {
  for (const char* role : {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"})
    if (special_token(role) == token) return true;
  for (const JsonPlace& file : sources()) {
    if (!file.has("additional_special_tokens")) continue;
    const JsonPlace list = file["additional_special_tokens"];
    for (size_t i = 0; i < list.size(); ++i)
      if (content_of(list.at(i)) == token) return true;
  }
  return false;
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
  json.document["added_tokens"] = with_special_tokens(config.added_tokens(), json, {unknown, sep, pad, cls, mask}, "");
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
  json.document["added_tokens"] = with_special_tokens(
      config.added_tokens(), json,
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

void apply_settings(TokenizerJson& json, const TokenizerConfig& config) {
  add_tokens(json, config);
  const std::string name = config.tokenizer_class();
  if (name.empty()) return;  // transformers would not read the directory
  const JsonPlace settings = config.settings();
  const bool add_prefix_space = settings.boolean_or("add_prefix_space", false);
  if (Json* words = find_part(json, "pre_tokenizer", {"ByteLevel"})) (*words)["add_prefix_space"] = add_prefix_space;
  if (is_one_of(kBertClasses, name))
    if (Json* found = find_part(json, "normalizer", {"BertNormalizer"})) {
      Json normalizer = bert_normalizer(settings);
      normalizer["clean_text"] = json.root()["normalizer"]["clean_text"].boolean();
      *found = std::move(normalizer);
    }
  if (is_one_of(kRobertaClasses, name))
    if (Json* found = find_part(json, "post_processor", {"RobertaProcessing", "ByteLevel"})) {
      (*found)["add_prefix_space"] = add_prefix_space;
      (*found)["trim_offsets"] = settings.boolean_or("trim_offsets", true);
    }
}

}  // namespace trireme::trainer
