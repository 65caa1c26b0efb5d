// A file of questions that says anything at all: it is read, with answers that stand where they say, or refused.
#include <cstdlib>

#include "trireme/base/error.h"
#include "trireme/trainer/squad/examples.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  using namespace trireme::trainer;
  const std::string_view text(reinterpret_cast<const char*>(data), bytes);
  for (const bool answers_wanted : {true, false}) {
    try {
      for (const Example& example : parse_squad(text, "fuzz", {answers_wanted, 8})) {
        if (example.context->empty()) std::abort();
        for (const Answer& answer : example.answers)
          if (answer.text.empty() || example.context->substr(answer.begin, answer.text.size()) != answer.text) std::abort();
      }
    } catch (const trireme::InvalidArgument&) {
    }
  }
  return 0;
}
