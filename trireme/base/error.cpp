#include "trireme/base/error.h"

#include <cstring>

namespace trireme {

std::string errno_message(const std::string& what, int error_number) {
  char buffer[128];
  return what + ": " + strerror_r(error_number, buffer, sizeof buffer);
}

void enforce_failed(const char* condition, const char* file, int line, const std::string& message) {
  throw InternalError(str("internal error at ", file, ":", line, ": ", condition, message.empty() ? "" : ": ", message));
}

}  // namespace trireme
