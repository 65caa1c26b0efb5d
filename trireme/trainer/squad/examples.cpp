#include "trireme/trainer/squad/examples.h"

#include <unordered_map>

#include "trireme/base/error.h"
#include "trireme/trainer/json/json.h"
#include "trireme/trainer/squad/python_text.h"

namespace trireme::trainer {
namespace {

// Some files number their questions.
std::string id_of(const JsonPlace& place) {
  if (place.value().is_number_integer()) return place.value().dump();
  return place.string();
}

class Reader {
 public:
  Reader(const std::string& source, const ReadOptions& options) : source_(source), options_(options) {
    if (options.max_samples < -1) throw InvalidArgument(str("the number of samples is ", options.max_samples));
  }

  void document(const JsonPlace& place) {
    if (place.has("context")) return element(place);  // a file of one line
    const JsonPlace data = place["data"];
    for (size_t i = 0, n = data.size(); i < n && !full(); ++i) element(data.at(i));
  }

  // An article, or a row.
  void element(const JsonPlace& place) {
    if (!place.has("paragraphs")) return question(place, context(place["context"]), place.string_or("title", ""));
    const std::string title = place.string_or("title", "");
    const JsonPlace paragraphs = place["paragraphs"];
    for (size_t i = 0, n = paragraphs.size(); i < n && !full(); ++i) paragraph(paragraphs.at(i), title);
  }

  bool full() const { return options_.max_samples >= 0 && static_cast<int64_t>(examples_.size()) >= options_.max_samples; }

  std::vector<Example> finish() {
    if (examples_.empty() && !full()) throw InvalidArgument(str(source_, ": there is no question in it"));
    return std::move(examples_);
  }

 private:
  using Context = std::shared_ptr<const std::string>;

  void paragraph(const JsonPlace& place, const std::string& title) {
    const Context text = context(place["context"]);
    const JsonPlace questions = place["qas"];
    for (size_t i = 0, n = questions.size(); i < n && !full(); ++i) question(questions.at(i), text, title);
  }

  Context context(const JsonPlace& place) {
    const std::string& text = place.string();
    if (text.empty()) place.refuse("the context is empty");
    if (const auto known = contexts_.find(text); known != contexts_.end()) return known->second;
    auto shared = std::make_shared<const std::string>(text);
    contexts_.emplace(*shared, shared);
    return shared;
  }

  void question(const JsonPlace& place, Context text, const std::string& title) {
    const JsonPlace id_place = place["id"];
    Example example{id_of(id_place), title, place["question"].string(), std::move(text), {}};
    const auto [other, is_new] = ids_.emplace(example.id, examples_.size());
    if (!is_new) id_place.refuse(str("question number ", other->second + 1, " has the id \"", example.id, "\" too"));
    if (options_.answers_wanted || place.has("answers")) read_answers(place["answers"], example);
    if (place.boolean_or("is_impossible", false) && !example.answers.empty())
      place.refuse("is_impossible is true, and yet there are answers");
    examples_.push_back(std::move(example));
  }

  // As published, [{"text": ..., "answer_start": ...}], or flat, {"text": [...], "answer_start": [...]}.
  void read_answers(const JsonPlace& place, Example& example) {
    if (place.value().is_array()) {
      for (size_t i = 0, n = place.size(); i < n; ++i) {
        const JsonPlace one = place.at(i);
        add_answer(one["text"], one["answer_start"], example);
      }
      return;
    }
    const JsonPlace texts = place["text"], starts = place["answer_start"];
    const size_t n = texts.size();
    if (starts.size() != n) place.refuse(str(n, " texts, and ", starts.size(), " places where they start"));
    for (size_t i = 0; i < n; ++i) add_answer(texts.at(i), starts.at(i), example);
  }

  // The file counts code points; from here on everything counts bytes.
  void add_answer(const JsonPlace& text_place, const JsonPlace& start_place, Example& example) {
    const std::string& text = text_place.string();
    const int64_t start = start_place.integer();
    if (text.empty()) text_place.refuse("the answer is empty; a question without an answer has an empty list of answers");
    if (start < 0) start_place.refuse(str("an answer cannot start at ", start));
    const size_t begin = byte_of_code_point(*example.context, static_cast<size_t>(start));
    if (begin == std::string_view::npos) start_place.refuse(str(start, " is beyond the end of the context"));
    if (example.context->compare(begin, text.size(), text) != 0)
      start_place.refuse(str("the answer \"", text, "\" does not stand at ", start, " in the context"));
    example.answers.push_back({text, begin});
  }

  std::string source_;
  ReadOptions options_;
  std::vector<Example> examples_;
  std::unordered_map<std::string, size_t> ids_;
  std::unordered_map<std::string_view, Context> contexts_;  // a key is the text of its value
};

bool is_blank(std::string_view text) { return text.find_first_not_of(" \t\r\n") == std::string_view::npos; }

// More than one line, of which the first is a document of its own.
bool is_json_lines(std::string_view text) {
  const size_t end = text.find('\n', std::min(text.find_first_not_of(" \t\r\n"), text.size()));
  return end != std::string_view::npos && !is_blank(text.substr(end)) && Json::accept(text.substr(0, end));
}

void parse_lines(std::string_view text, const std::string& source, Reader& reader) {
  for (size_t number = 1; !text.empty() && !reader.full(); ++number) {
    const size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (is_blank(line)) continue;
    const Json row = parse_json(line, source, nullptr, number);
    reader.element({row, str(source, ": line ", number)});
  }
}

}  // namespace

std::vector<Example> parse_squad(std::string_view text, const std::string& source, const ReadOptions& options) {
  Reader reader(source, options);
  if (is_json_lines(text)) {
    parse_lines(text, source, reader);
  } else {
    const Json document = parse_json(text, source);
    reader.document({document, source});
  }
  return reader.finish();
}

std::vector<Example> read_squad(const std::filesystem::path& path, const ReadOptions& options) {
  if (std::filesystem::is_directory(path)) throw IoError(str(path.string(), " is a directory, not a JSON file"));
  return parse_squad(read_file(path), path.string(), options);
}

void require_answers(const std::vector<Example>& examples, const std::string& source) {
  for (const Example& example : examples)
    if (example.answers.empty())
      throw InvalidArgument(
          str(source, ": question ", example.id, " has no answer; if that is meant, say so with --version_2_with_negative"));
}

}  // namespace trireme::trainer
