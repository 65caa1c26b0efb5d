// Arbitrary bytes as a tokenizer.json, and what stands after its first zero byte as a text: whatever they are, the tokenizer
// is made and encodes, or throws one of our errors; each token stands for bytes of the text.
#include <cstdint>
#include <cstdlib>

#include "trireme/base/error.h"
#include "trireme/trainer/tokenizer/pipeline.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  using namespace trireme::trainer;
  const std::string_view input(reinterpret_cast<const char*>(data), bytes);
  const size_t end = std::min(input.find('\0'), input.size());
  try {
    const Pipeline pipeline(parse_tokenizer_json(input.substr(0, end), "fuzz.json"));
    for (const std::string_view text :
         {std::string_view("It's caf\u00e9, e\u0301 \u4e2d  1\u00bd <s>\n"), input.substr(end)}) {
      const Encoding encoding = pipeline.encode(text);
      for (const Encoding::Span& span : encoding.spans) {
        if (span.begin > span.end || span.end > text.size()) std::abort();
      }
    }
  } catch (const trireme::Error&) {
  }
  return 0;
}
