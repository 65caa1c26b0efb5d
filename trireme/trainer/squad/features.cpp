#include "trireme/trainer/squad/features.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <functional>
#include <iterator>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "trireme/base/error.h"
#include "trireme/base/fnv.h"
#include "trireme/trainer/squad/python_text.h"

namespace trireme::trainer {
namespace {

// Runs work(0) ... work(count - 1) on several threads. Of those that throw the first in order is thrown here: numbers are
// handed out in order, and after a failure those below it are still done.
void run_in_threads(size_t count, int threads, const std::function<void(size_t)>& work) {
  constexpr size_t kPiece = 16;  // handed out at once, so that threads seldom meet at the counter
  std::atomic<size_t> next{0}, first_failed{count};
  std::exception_ptr failure;
  std::mutex mutex;
  const auto succeeds = [&](size_t i) {
    try {
      work(i);
      return true;
    } catch (...) {
      std::lock_guard lock(mutex);
      if (i < first_failed.load()) {
        first_failed = i;
        failure = std::current_exception();
      }
      return false;
    }
  };
  const auto run = [&] {
    for (size_t begin; (begin = next.fetch_add(kPiece)) < first_failed.load();)
      for (size_t i = begin; i < std::min(begin + kPiece, count); ++i)
        if (!succeeds(i)) return;
  };
  const auto pieces = static_cast<int64_t>(count / kPiece + 1);
  std::vector<std::jthread> others;
  for (int i = 1; i < std::min<int64_t>(threads, pieces); ++i) others.emplace_back(run);
  run();
  others.clear();  // joins
  if (failure) std::rethrow_exception(failure);
}

using Contexts = std::unordered_map<const std::string*, std::shared_ptr<const Encoding>>;

// Every distinct context, tokenised.
Contexts encode_contexts(const std::vector<Example>& examples, const Tokenizer& tokenizer, int threads) {
  Contexts contexts;
  std::vector<Contexts::value_type*> missing;
  for (const Example& example : examples) {
    const auto [place, is_new] = contexts.try_emplace(example.context.get());
    if (is_new) missing.push_back(&*place);
  }
  run_in_threads(missing.size(), threads, [&](size_t i) {
    missing[i]->second = std::make_shared<const Encoding>(tokenizer.encode(*missing[i]->first));
  });
  return contexts;
}

class FeatureMaker {
 public:
  FeatureMaker(const Tokenizer& tokenizer, const FeatureOptions& options)
      : tokenizer_(tokenizer), pair_(tokenizer.pair_template()), options_(options) {}

  std::vector<Feature> features_of(const Example& example, uint32_t number, std::shared_ptr<const Encoding> context) const {
    const std::vector<int32_t> question = tokenizer_.encode(python_lstrip(example.question)).ids;
    const size_t tokens = context->ids.size(), room = room_for_context(example, question.size(), tokens);
    std::vector<Feature> features;
    for (size_t first = 0;; first += room - static_cast<size_t>(options_.doc_stride)) {
      Feature& feature = features.emplace_back();
      feature.example = number;
      feature.context = context;
      feature.first_token = static_cast<uint32_t>(first);
      fill(feature, question, std::min(room, tokens - first));
      if (options_.with_labels) label(feature, example);
      if (first + room >= tokens) return features;
    }
  }

 private:
  // How many tokens of the context a window holds. Truncating takes the context's tokens only, must leave it at least one,
  // and must get ahead.
  size_t room_for_context(const Example& example, size_t question, size_t context) const {
    const size_t around = pair_.before.size() + pair_.between.size() + pair_.after.size();
    const auto room = options_.max_length - static_cast<int64_t>(around + question);
    if (room >= static_cast<int64_t>(context)) return static_cast<size_t>(room);
    if (room > 0 && room > options_.doc_stride) return static_cast<size_t>(room);
    throw InvalidArgument(str("question ", example.id, " has ", question, " tokens. Of ", options_.max_length,
                              " there remain ", std::max<int64_t>(room, 0), " for its context of ", context,
                              ", and windows that share ", options_.doc_stride,
                              " need more than that; see --max_seq_length and --doc_stride"));
  }

  void fill(Feature& feature, const std::vector<int32_t>& question, size_t tokens) const {
    const auto context = feature.context->ids.begin() + feature.first_token;
    std::vector<int32_t>& ids = feature.ids;
    ids.reserve(pair_.before.size() + question.size() + pair_.between.size() + tokens + pair_.after.size());
    for (const auto* part : {&pair_.before, &question, &pair_.between}) ids.insert(ids.end(), part->begin(), part->end());
    feature.context_begin = static_cast<uint32_t>(ids.size());
    ids.insert(ids.end(), context, context + static_cast<ptrdiff_t>(tokens));
    feature.context_end = static_cast<uint32_t>(ids.size());
    ids.insert(ids.end(), pair_.after.begin(), pair_.after.end());
  }

  void label(Feature& feature, const Example& example) const {
    const auto cls = std::find(feature.ids.begin(), feature.ids.end(), tokenizer_.cls_id());
    const auto nowhere = static_cast<int32_t>(cls == feature.ids.end() ? 0 : cls - feature.ids.begin());
    feature.start_position = feature.end_position = nowhere;
    if (example.answers.empty()) return;
    if (feature.context_begin == feature.context_end)
      throw InvalidArgument(str("question ", example.id, " has an answer, but its context has no tokens"));

    const size_t begin = example.answers[0].begin, end = begin + example.answers[0].text.size();
    if (feature.span(feature.context_begin).begin > begin || feature.span(feature.context_end - 1).end < end) return;
    uint32_t start = feature.context_begin;
    while (start < feature.context_end && feature.span(start).begin <= begin) ++start;
    // Behind the context the search goes on to the end: run_qa.py compares with offsets of 0 there.
    if (start == feature.context_end) start = static_cast<uint32_t>(feature.ids.size());
    uint32_t behind = feature.context_end;
    while (behind > feature.context_begin && feature.span(behind - 1).end >= end) --behind;
    feature.start_position = static_cast<int32_t>(start) - 1;
    feature.end_position = static_cast<int32_t>(behind);
  }

  const Tokenizer& tokenizer_;
  const PairTemplate& pair_;
  const FeatureOptions options_;
};

}  // namespace

std::vector<Feature> make_features(const std::vector<Example>& examples, const Tokenizer& tokenizer,
                                   const FeatureOptions& options, int threads) {
  if (options.max_length < 1 || options.doc_stride < 0)
    throw InvalidArgument(
        str("windows of ", options.max_length, " tokens that share ", options.doc_stride, " cannot be made"));
  const Contexts contexts = encode_contexts(examples, tokenizer, threads);
  const FeatureMaker maker(tokenizer, options);
  std::vector<std::vector<Feature>> of_example(examples.size());
  run_in_threads(examples.size(), threads, [&](size_t i) {
    of_example[i] = maker.features_of(examples[i], static_cast<uint32_t>(i), contexts.at(examples[i].context.get()));
  });

  std::vector<Feature> features;
  features.reserve(examples.size());
  for (std::vector<Feature>& some : of_example)
    features.insert(features.end(), std::move_iterator(some.begin()), std::move_iterator(some.end()));
  if (options.max_features >= 0 && features.size() > static_cast<size_t>(options.max_features))
    features.resize(static_cast<size_t>(options.max_features));
  return features;
}

std::vector<int32_t> type_ids(const Feature& feature, const PairTemplate& pair) {
  std::vector<int32_t> types;
  types.reserve(feature.ids.size());
  types.resize(pair.before.size(), pair.before_type);
  types.resize(feature.context_begin - pair.between.size(), pair.first_type);
  types.resize(feature.context_begin, pair.between_type);
  types.resize(feature.context_end, pair.second_type);
  types.resize(feature.ids.size(), pair.after_type);
  return types;
}

uint64_t fingerprint(const std::vector<Feature>& features) {
  Fnv hash;
  for (const Feature& feature : features) {
    hash.mix(feature.example);
    hash.mix(feature.ids.size());
    for (const int32_t id : feature.ids) hash.mix(static_cast<uint32_t>(id));
    hash.mix(feature.context_begin);
    hash.mix(feature.context_end);
    hash.mix(static_cast<uint32_t>(feature.start_position));
    hash.mix(static_cast<uint32_t>(feature.end_position));
  }
  return hash.value();
}

}  // namespace trireme::trainer
