// The errors of the project. Three kinds, and what each leaves behind:
//   the caller's   InvalidArgument, Unsupported: nothing was sent, the object is as it was;
//   the world's    PeerLost, Timeout, IoError, Mismatch, Aborted: the communicator is dead, make a new one;
//   ours           InternalError, from TRIREME_ENFORCE: a bug.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>

namespace trireme {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class InvalidArgument : public Error {
 public:
  using Error::Error;
};

class Unsupported : public Error {
 public:
  using Error::Error;
};

class PeerLost : public Error {
 public:
  PeerLost(int rank, const std::string& what) : Error(what), rank_(rank) {}
  // The lost rank, in the numbering of the communicator that reports it.
  int rank() const { return rank_; }

 private:
  int rank_;
};

class Timeout : public Error {
 public:
  using Error::Error;
};

class IoError : public Error {
 public:
  using Error::Error;
};

// The ranks of a communicator did not call the same operation.
class Mismatch : public Error {
 public:
  using Error::Error;
};

class Aborted : public Error {
 public:
  using Error::Error;
};

class InternalError : public Error {
 public:
  using Error::Error;
};

// str("rank ", 3, ": ", reason): anything that has operator<<, as one string.
template <class... Args>
std::string str(const Args&... args) {
  std::ostringstream out;
  (out << ... << args);
  return std::move(out).str();
}

// "what: Connection refused", from errno.
std::string errno_message(const std::string& what, int error_number);

[[noreturn]] void enforce_failed(const char* condition, const char* file, int line, const std::string& message);

}  // namespace trireme

#define TRIREME_ENFORCE(condition, ...)                                                                     \
  do {                                                                                                      \
    if (!(condition)) ::trireme::enforce_failed(#condition, __FILE__, __LINE__, ::trireme::str(__VA_ARGS__)); \
  } while (false)
