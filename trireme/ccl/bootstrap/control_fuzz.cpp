// Control frames from a peer that is proved but broken. The first byte chooses the number of ranks.
#include <cstdlib>

#include "trireme/ccl/bootstrap/control_impl.h"
#include "trireme/ccl/bootstrap/wire.h"

namespace trireme::ccl {

static void read_frame(int size, const Frame& frame) {
  if (frame.kind == kShared && decode_contributions(frame.payload, size).size() != static_cast<size_t>(size)) std::abort();
  if (frame.kind == kFailure && decode_failure(frame.payload).reason.size() > kMaxFailureBytes) std::abort();
}

static void read_frames(std::string_view input) {
  if (input.empty()) return;
  const int size = static_cast<uint8_t>(input.front());
  input.remove_prefix(1);
  FrameAssembler assembler(1 << 20);
  while (!input.empty()) {
    const size_t take = std::min(assembler.missing(), input.size());
    input.copy(assembler.space(), take);
    input.remove_prefix(take);
    if (auto frame = assembler.filled(take)) read_frame(size, *frame);
  }
}

}  // namespace trireme::ccl

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  try {
    trireme::ccl::read_frames({reinterpret_cast<const char*>(data), bytes});
  } catch (const trireme::ccl::wire::Malformed&) {
  }
  return 0;
}
