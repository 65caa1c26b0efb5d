// What a proved but broken client may send to the store, and addresses of unknown origin.
#include <algorithm>
#include <cstdlib>

#include "trireme/ccl/bootstrap/frame.h"
#include "trireme/ccl/bootstrap/store_protocol.h"
#include "trireme/ccl/bootstrap/wire.h"

namespace trireme::ccl {

static void read_requests(std::string_view input) {
  FrameAssembler assembler(kMaxStoreRequestBytes);
  while (!input.empty()) {
    const size_t take = std::min(assembler.missing(), input.size());
    input.copy(assembler.space(), take);
    input.remove_prefix(take);
    auto frame = assembler.filled(take);
    if (!frame) continue;
    const StoreRequest request = decode_store_request(frame->kind, frame->payload);
    if (request.key.size() > kMaxStoreKeyBytes || request.value.size() > kMaxStoreValueBytes) std::abort();
  }
}

static void read_address(std::string_view input) {
  StoreAddress address{};
  input.copy(address.data(), address.size());
  decode_store_address(address);
}

}  // namespace trireme::ccl

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  const std::string_view input(reinterpret_cast<const char*>(data), bytes);
  for (auto* read : {trireme::ccl::read_requests, trireme::ccl::read_address}) {
    try {
      read(input);
    } catch (const trireme::ccl::wire::Malformed&) {
    }
  }
  return 0;
}
