// A clock for durations.
#pragma once

#include <chrono>

namespace trireme::trainer {

// Since some moment.
inline double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

}  // namespace trireme::trainer
