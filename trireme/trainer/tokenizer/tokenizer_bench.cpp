// Encoding English text on one thread, with a vocabulary of its words: bytes per second.
#include <benchmark/benchmark.h>

#include "trireme/trainer/tokenizer/test_tokenizers.h"

namespace trireme::trainer {
namespace {

// Words of three to nine letters, the shorter ones more often, with some punctuation and a few letters that are not ASCII.
std::string make_text(size_t words, bool ascii) {
  std::string text;
  uint64_t state = 1;
  for (size_t i = 0; i < words; ++i) {
    state = state * 6364136223846793005 + 1442695040888963407;
    const size_t letters = 3 + (state >> 60) % 4 + (state >> 50) % 4;
    for (size_t j = 0; j < letters; ++j) text.push_back(static_cast<char>('a' + (state >> (5 * j + 3)) % 26));
    if (!ascii && i % 20 == 0) text += "\u00e9";
    text += i % 12 == 11 ? ". " : " ";
  }
  return text;
}

void run(benchmark::State& state, const Json& json, bool ascii) {
  const Pipeline pipeline = pipeline_of(json);
  const std::string text = make_text(130, ascii);
  size_t tokens = 0;
  for (auto _ : state) tokens = pipeline.encode(text).ids.size();
  state.counters["tokens"] = static_cast<double>(tokens);
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * text.size()));
}

BENCHMARK_CAPTURE(run, word_piece_ascii, letters_json("WordPiece"), true);
BENCHMARK_CAPTURE(run, word_piece_accents, letters_json("WordPiece"), false);
BENCHMARK_CAPTURE(run, bpe, letters_json("BPE"), true);
BENCHMARK_CAPTURE(run, unigram, letters_json("Unigram"), true);

}  // namespace
}  // namespace trireme::trainer
