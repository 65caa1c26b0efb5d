#include "trireme/ccl/bootstrap/store.h"

#include <map>
#include <mutex>

#include "trireme/base/error.h"

namespace trireme::ccl {

namespace {

class MemoryStore : public Store {
 public:
  void set(const std::string& key, const std::string& value) override {
    std::lock_guard lock(mutex_);
    values_[key] = value;
  }

  std::string try_get(const std::string& key, Deadline) override {
    std::lock_guard lock(mutex_);
    auto at = values_.find(key);
    return at == values_.end() ? "" : at->second;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, std::string> values_;
};

class CallbackStore : public Store {
 public:
  CallbackStore(std::function<std::string(const std::string&)> get,
                std::function<void(const std::string&, const std::string&)> set)
      : get_(std::move(get)), set_(std::move(set)) {}

  // The functions are a user's and need not bear two threads at once.
  void set(const std::string& key, const std::string& value) override {
    std::lock_guard lock(mutex_);
    set_(key, value);
  }

  std::string try_get(const std::string& key, Deadline) override {
    std::lock_guard lock(mutex_);
    return get_(key);
  }

 private:
  std::mutex mutex_;
  const std::function<std::string(const std::string&)> get_;
  const std::function<void(const std::string&, const std::string&)> set_;
};

}  // namespace

std::shared_ptr<Store> make_memory_store() { return std::make_shared<MemoryStore>(); }

std::shared_ptr<Store> make_callback_store(std::function<std::string(const std::string&)> get,
                                           std::function<void(const std::string&, const std::string&)> set) {
  return std::make_shared<CallbackStore>(std::move(get), std::move(set));
}

}  // namespace trireme::ccl
