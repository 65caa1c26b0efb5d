// Operations for tests, and what they fail with.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "trireme/ccl/comm/communicator.h"

namespace trireme::ccl {

// In place.
inline Operation allreduce_of(std::vector<float>& data) {
  Operation op;
  op.kind = OpKind::allreduce;
  op.type = DataType::float32;
  op.count = data.size();
  op.send_buffer = op.recv_buffer = data.data();
  return op;
}

inline Operation message_op(OpKind kind, int peer, std::vector<float>& data, int tag = 0) {
  Operation op = allreduce_of(data);
  op.kind = kind;
  op.peer = peer;
  op.tag = tag;
  return op;
}

// The message of what an operation fails with, or "" when it does not.
template <class Expected>
std::string failure_of(Communicator& comm, Operation op) {
  try {
    comm.submit(std::move(op)).wait();
  } catch (const Expected& error) {
    return error.what();
  }
  return "";
}

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace trireme::ccl
