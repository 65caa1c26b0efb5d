// load_tokenizer(): which files of a directory make a tokenizer, and which tokens in them are special.
#include "trireme/trainer/tokenizer/tokenizer.h"

#include "trireme/base/error.h"
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
  LoadedTokenizer(const TokenizerJson& json, const fs::path& directory) : pipeline_(json) {
    for (const char* name : kFiles) {
      if (fs::exists(directory / name)) files_.push_back(directory / name);
    }
    cls_id_ = special_id(json, directory, "cls_token", {"[CLS]", "<s>"});
    pad_id_ = special_id(json, directory, "pad_token", {"[PAD]", "<pad>"});
  }

  Encoding encode(std::string_view text) const override { return pipeline_.encode(text); }
  const PairTemplate& pair_template() const override { return pipeline_.pair_template(); }
  int32_t cls_id() const override { return cls_id_; }
  int32_t pad_id() const override { return pad_id_; }
  int32_t vocabulary_size() const override { return pipeline_.highest_id() + 1; }
  const std::vector<fs::path>& files() const override { return files_; }

 private:
  // As tokenizer_config.json or special_tokens_map.json name it, else by the names that BERT and RoBERTa have.
  int32_t special_id(const TokenizerJson& json, const fs::path& directory, const char* role,
                     std::initializer_list<const char*> usual) const {
    for (const char* name : {"tokenizer_config.json", "special_tokens_map.json"}) {
      if (!fs::exists(directory / name)) continue;
      const Json document = read_json(directory / name);
      const JsonPlace root(document, (directory / name).string());
      if (!root.has(role)) continue;
      const JsonPlace place = root[role];
      const std::string& token = place.value().is_object() ? place["content"].string() : place.string();
      const std::optional<int32_t> id = pipeline_.find(token);
      if (!id) place.refuse(str("\"", token, "\" is not in the vocabulary of ", json.source));
      return *id;
    }
    for (const char* token : usual) {
      if (const std::optional<int32_t> id = pipeline_.find(token)) return *id;
    }
    throw InvalidArgument(str(json.source, ": no ", role,
                              ": tokenizer_config.json names none, and none of the usual names is in", " the vocabulary"));
  }

  Pipeline pipeline_;
  int32_t cls_id_ = 0, pad_id_ = 0;
  std::vector<fs::path> files_;
};

}  // namespace

std::unique_ptr<Tokenizer> load_tokenizer(const fs::path& directory) {
  const fs::path json = directory / "tokenizer.json";
  if (fs::exists(json)) {
    return std::make_unique<LoadedTokenizer>(parse_tokenizer_json(read_file(json), json.string()), directory);
  }
  throw IoError(str(directory.string(), " has no tokenizer.json"));
}

}  // namespace trireme::trainer
