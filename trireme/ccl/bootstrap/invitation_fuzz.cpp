// An invitation that is understood is written again as the same job at the same place.
#include <cstdlib>

#include "trireme/ccl/bootstrap/invitation.h"
#include "trireme/ccl/bootstrap/wire.h"

using namespace trireme::ccl;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  try {
    const Whereabouts once = decode_invitation({reinterpret_cast<const char*>(data), bytes});
    const Whereabouts again = decode_invitation(encode_invitation(once));
    if (again.job != once.job || again.secret != once.secret || again.port != once.port || again.size != once.size)
      std::abort();
  } catch (const wire::Malformed&) {
  }
  return 0;
}
