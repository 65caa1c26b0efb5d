// One line to stderr per message, prefixed with the level and, once known, the rank. The level comes from CCL_LOG_LEVEL.
#pragma once

#include <string>

namespace trireme {

enum class LogLevel { error, warn, info, debug, trace };

bool log_enabled(LogLevel level);
void log(LogLevel level, const std::string& message);

// Says it once per process, whatever the number of calls with the same text.
void log_once(LogLevel level, const std::string& message);

// What a user wants to read in every run, once per process and text: written at every level but error.
void announce(const std::string& message);

// The rank that later lines carry: the process's rank in the first communicator it makes.
void set_log_rank(int rank);

}  // namespace trireme
