// load_tokenizer(): which files of a directory make a tokenizer, and which tokens in them are special.
#include "trireme/trainer/tokenizer/tokenizer.h"

#include "trireme/base/error.h"
#include "trireme/trainer/tokenizer/legacy_files.h"
#include "trireme/trainer/tokenizer/pipeline.h"

namespace trireme::trainer {
namespace {

namespace fs = std::filesystem;

// What save_pretrained writes for a tokenizer: all of it goes beside a model that is saved.
constexpr const char* kFiles[] = {
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.txt", "vocab.json",
    "merges.txt"};

class LoadedTokenizer final : public Tokenizer {
 public:
  LoadedTokenizer(const TokenizerJson& json, const fs::path& directory, const TokenizerConfig& config) : pipeline_(json) {
    for (const char* name : kFiles) {
      if (fs::exists(directory / name)) files_.push_back(directory / name);
    }
    cls_id_ = special_id(json, config, "cls_token", {"[CLS]", "<s>"});
    longest_ = config.model_max_length().value_or(longest_);
    if (const JsonPlace settings = config.settings(); settings.string_or("padding_side", "right") != "right")
      settings["padding_side"].refuse("run_qa.py puts the context before the question then; only \"right\" is supported");
    pair_ = pipeline_.pair_template();
    if (!config.gives_token_types())
      pair_.before_type = pair_.first_type = pair_.between_type = pair_.second_type = pair_.after_type = 0;
  }

  Encoding encode(std::string_view text) const override { return pipeline_.encode(text); }
  const PairTemplate& pair_template() const override { return pair_; }
  int32_t cls_id() const override { return cls_id_; }
  int32_t vocabulary_size() const override { return pipeline_.highest_id() + 1; }
  int64_t longest() const override { return longest_; }
  const std::vector<fs::path>& files() const override { return files_; }

 private:
  // As the configuration names it, else by the names that BERT and RoBERTa have.
  int32_t special_id(const TokenizerJson& json, const TokenizerConfig& config, const char* role,
                     std::initializer_list<const char*> usual) const {
    if (const std::string token = config.special_token(role); !token.empty()) {
      if (const std::optional<int32_t> id = pipeline_.find(token)) return *id;
      throw InvalidArgument(
          str(json.source, ": \"", token, "\", the ", role, " of the configuration beside it, is not in the vocabulary"));
    }
    for (const char* token : usual) {
      if (const std::optional<int32_t> id = pipeline_.find(token)) return *id;
    }
    throw InvalidArgument(str(json.source, ": no ", role,
                              ": tokenizer_config.json names none, and the vocabulary has none of the usual names"));
  }

  Pipeline pipeline_;
  PairTemplate pair_;
  int32_t cls_id_ = 0;
  int64_t longest_ = std::numeric_limits<int64_t>::max();
  std::vector<fs::path> files_;
};

}  // namespace

std::unique_ptr<Tokenizer> load_tokenizer(const fs::path& directory, const fs::path& model_directory) {
  const TokenizerConfig config(directory, model_directory);
  const auto make = [&](const TokenizerJson& json) { return std::make_unique<LoadedTokenizer>(json, directory, config); };
  if (const fs::path path = directory / "tokenizer.json"; fs::exists(path)) {
    TokenizerJson json = parse_tokenizer_json(read_file(path), path.string());
    apply_settings(json, config);
    return make(json);
  }
  if (fs::exists(directory / "vocab.txt")) return make(read_vocab_txt(directory, config));
  if (fs::exists(directory / "vocab.json")) return make(read_vocab_json(directory, config));
  throw IoError(str(directory.string(), " has no tokenizer: neither tokenizer.json nor vocab.txt nor vocab.json"));
}

}  // namespace trireme::trainer
