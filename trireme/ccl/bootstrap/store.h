// A place where the ranks of a job leave each other short values before they are connected. Only rank 0's address, the job
// id and the secret go through it; everything else travels over the live sockets.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "trireme/base/deadline.h"

namespace trireme::ccl {

// Implementations: MemoryStore (threads of one process), TcpStore (oneCCL's kvs), PmiStore (PMI-1), CallbackStore (a c10d
// Store, a user's kvs_interface). Threads may share one. Values are bytes, at most 512 long.
class Store {
 public:
  virtual ~Store() = default;
  virtual void set(const std::string& key, const std::string& value) = 0;

  // The value, or "" when nobody has set it yet. Does not wait for a key to appear.
  virtual std::string try_get(const std::string& key, Deadline deadline) = 0;
};

std::shared_ptr<Store> make_memory_store();
std::shared_ptr<Store> make_callback_store(std::function<std::string(const std::string&)> get,
                                           std::function<void(const std::string&, const std::string&)> set);

}  // namespace trireme::ccl
