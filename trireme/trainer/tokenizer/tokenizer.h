// Text to token ids, as Hugging Face's tokenizers library does it for the same files: the same ids, the same offsets.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <string_view>
#include <vector>

namespace trireme::trainer {

struct Encoding {
  struct Span {
    uint32_t begin = 0, end = 0;  // bytes of the text that was given
    bool operator==(const Span&) const = default;
  };
  std::vector<int32_t> ids;
  std::vector<Span> spans;  // one per id
};

// What stands around a question and its context: `before` question `between` context `after`.
struct PairTemplate {
  std::vector<int32_t> before, between, after;
  // The token_type_ids of the five parts, in that order.
  int32_t before_type = 0, first_type = 0, between_type = 0, second_type = 1, after_type = 1;
};

// Threads may share one. Nothing in it changes after it is made.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Without special tokens around it. InvalidArgument if it is not UTF-8.
  virtual Encoding encode(std::string_view text) const = 0;
  virtual const PairTemplate& pair_template() const = 0;
  virtual int32_t cls_id() const = 0;
  // One more than the highest id.
  virtual int32_t vocabulary_size() const = 0;
  // Tokens that its configuration lets a feature have.
  virtual int64_t longest() const { return std::numeric_limits<int64_t>::max(); }
  // The files it was read from, to be put beside a model that is saved.
  virtual const std::vector<std::filesystem::path>& files() const = 0;
};

// From a model's directory: tokenizer.json, else vocab.txt (WordPiece), else vocab.json (BPE), with the settings of
// tokenizer_config.json and the tokens of added_tokens.json beside it. Which settings count is a matter of the class that
// tokenizer_config.json or config.json names. A tokenizer whose directory has no config.json takes that of
// `model_directory`, with which it will be saved.
std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& directory,
                                          const std::filesystem::path& model_directory = {});

}  // namespace trireme::trainer
