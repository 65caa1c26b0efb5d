// Questions in SQuAD's format: version 1.1 or 2.0 as published, or flat as run_qa.py reads it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::trainer {

struct Answer {
  std::string text;
  size_t begin = 0;  // byte in the context
};

struct Example {
  std::string id, title, question;
  std::shared_ptr<const std::string> context;  // one string for all questions about the same text
  std::vector<Answer> answers;                 // none: version 2.0 has questions that the context does not answer
};

struct ReadOptions {
  bool answers_wanted = true;  // else they may be missing
  int64_t max_samples = -1;    // so many, from the first on; -1 is all
};

// Reads {"data": [...]} whose elements are articles with paragraphs, or rows with id, context, question and answers; or one
// such row per line. The order is that of the file. InvalidArgument names the place in `source` of what is not as it should
// be, such as an answer that does not stand where it says, or an id that another question has.
std::vector<Example> parse_squad(std::string_view text, const std::string& source, const ReadOptions& options);

// The same from a file; IoError if it cannot be read.
std::vector<Example> read_squad(const std::filesystem::path& path, const ReadOptions& options);

// For data of which every question has an answer, as version 1.1. InvalidArgument names the first question without.
void require_answers(const std::vector<Example>& examples, const std::string& source);

}  // namespace trireme::trainer
