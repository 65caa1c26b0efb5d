// The tokens of texts, for tests/trainer/test_tokenizers.py:
//   print_tokens DIRECTORY     about the tokenizer, one line of JSON
//   print_tokens DIRECTORY -   stdin holds texts, each as "<bytes>\n<text>"; for each a line "id begin end id begin end ..."
// Ends with 1 and a line on stderr if the tokenizer refuses something.
#include <iostream>
#include <string>

#include "trireme/base/error.h"
#include "trireme/trainer/json/json.h"
#include "trireme/trainer/tokenizer/tokenizer.h"

namespace trireme::trainer {
namespace {

void print_about(const Tokenizer& tokenizer) {
  const PairTemplate& pair = tokenizer.pair_template();
  Json about;
  about["cls_id"] = tokenizer.cls_id();
  about["vocabulary_size"] = tokenizer.vocabulary_size();
  about["before"] = pair.before;
  about["between"] = pair.between;
  about["after"] = pair.after;
  about["types"] = {pair.before_type, pair.first_type, pair.between_type, pair.second_type, pair.after_type};
  for (const auto& file : tokenizer.files()) about["files"].push_back(file.filename().string());
  std::cout << about.dump() << "\n";
}

void print_tokens(const Tokenizer& tokenizer) {
  std::string text;
  for (size_t bytes; std::cin >> bytes;) {
    std::cin.get();
    text.resize(bytes);
    std::cin.read(text.data(), static_cast<std::streamsize>(bytes));
    const Encoding encoding = tokenizer.encode(text);
    std::string line;
    for (size_t i = 0; i < encoding.ids.size(); ++i) {
      line += std::to_string(encoding.ids[i]) + ' ' + std::to_string(encoding.spans[i].begin) + ' ' +
              std::to_string(encoding.spans[i].end) + ' ';
    }
    std::cout << line << '\n';
  }
}

}  // namespace
}  // namespace trireme::trainer

int main(int argc, char** argv) {
  std::ios::sync_with_stdio(false);
  if (argc != 2 && argc != 3) {
    std::cerr << "print_tokens DIRECTORY [-]\n";
    return 2;
  }
  try {
    const auto tokenizer = trireme::trainer::load_tokenizer(argv[1]);
    argc == 2 ? trireme::trainer::print_about(*tokenizer) : trireme::trainer::print_tokens(*tokenizer);
  } catch (const trireme::Error& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
