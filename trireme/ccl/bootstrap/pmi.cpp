#include "trireme/ccl/bootstrap/pmi.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <netdb.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <charconv>
#include <cstdlib>
#include <mutex>
#include <set>

#include "trireme/base/env.h"
#include "trireme/base/error.h"
#include "trireme/base/log.h"
#include "trireme/ccl/bootstrap/pmi_client.h"
#include "trireme/ccl/bootstrap/socket.h"

namespace trireme::ccl {

namespace {

Deadline connection_deadline() { return Deadline::after(env::duration("CCL_KVS_CONNECTION_TIMEOUT")); }

// PMI-1 shows a key to the others at a barrier of all processes. So every key has one: its setter enters it when it has put
// the value, every other process when it first asks for the key. All processes must therefore use the same keys in the same
// order.
class PmiStore : public Store {
 public:
  explicit PmiStore(std::unique_ptr<PmiClient> client) : client_(std::move(client)) {}

  // Waits for the others: they have to ask for the key.
  void set(const std::string& key, const std::string& value) override {
    std::lock_guard lock(mutex_);
    const Deadline deadline = connection_deadline();
    client_->put(key, value, deadline);
    pass_barrier(key, deadline);
  }

  std::string try_get(const std::string& key, Deadline deadline) override {
    std::lock_guard lock(mutex_);
    if (!visible_.contains(key)) pass_barrier(key, deadline);
    return client_->get(key, deadline);
  }

  const PmiClient& client() const { return *client_; }

  void finalize() {
    std::unique_lock lock(mutex_, std::try_to_lock);
    // A thread that is still in a barrier keeps the channel: then this process does not end in an orderly way anyway.
    if (!lock || !client_->usable()) return;
    try {
      client_->finalize(Deadline::after(std::chrono::seconds(5)));
    } catch (const Error& error) {
      log(LogLevel::debug, str("PMI finalize: ", error.what()));
    }
  }

 private:
  void pass_barrier(const std::string& key, Deadline deadline) {
    client_->barrier(deadline);
    visible_.insert(key);
  }

  std::mutex mutex_;
  const std::unique_ptr<PmiClient> client_;
  std::set<std::string> visible_;
};

// The channel belongs to the process: one connection for all, until the process ends.
struct ProcessChannel {
  ~ProcessChannel() {
    if (store && !forgo_finalize) store->finalize();
  }

  std::mutex mutex;
  std::shared_ptr<PmiStore> store;
  bool forgo_finalize = false;
};

ProcessChannel& process_channel() {
  static ProcessChannel channel;
  return channel;
}

bool mpi_is_initialised() {
  auto* initialised = reinterpret_cast<int (*)(int*)>(::dlsym(RTLD_DEFAULT, "MPI_Initialized"));
  int flag = 0;
  return initialised != nullptr && initialised(&flag) == 0 && flag != 0;
}

std::optional<int> environment_number(const char* name) {
  const char* text = std::getenv(name);
  if (text == nullptr) return std::nullopt;
  const char* const end = text + std::char_traits<char>::length(text);
  int value = -1;
  auto [stop, error] = std::from_chars(text, end, value);
  if (error != std::errc() || stop != end || value < 0) return std::nullopt;
  return value;
}

// A process that a rank has started inherits PMI_FD's number but not the channel.
bool is_socket(int fd) {
  struct stat status;
  return ::fstat(fd, &status) == 0 && S_ISSOCK(status.st_mode);
}

std::unique_ptr<PmiClient> connect_by_descriptor() {
  const auto fd = environment_number("PMI_FD"), rank = environment_number("PMI_RANK"), size = environment_number("PMI_SIZE");
  if (!fd || !rank || !size || *rank >= *size || !is_socket(*fd)) return nullptr;
  ::fcntl(*fd, F_SETFD, FD_CLOEXEC);
  return std::make_unique<PmiClient>(UniqueFd(*fd), *rank, *size, connection_deadline());
}

std::vector<std::string> resolve(const std::string& host) {
  addrinfo hints{}, *list = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  if (int error = ::getaddrinfo(host.c_str(), nullptr, &hints, &list); error != 0) {
    throw IoError(str("PMI_PORT: cannot find the address of ", host, ": ", ::gai_strerror(error)));
  }
  std::vector<std::string> addresses;
  for (const addrinfo* i = list; i != nullptr; i = i->ai_next) {
    char text[NI_MAXHOST];
    if (::getnameinfo(i->ai_addr, i->ai_addrlen, text, sizeof text, nullptr, 0, NI_NUMERICHOST) == 0)
      addresses.emplace_back(text);
  }
  ::freeaddrinfo(list);
  return addresses;
}

UniqueFd connect_to_manager(const std::string& host, uint16_t port) {
  std::string reasons;
  for (const std::string& address : resolve(host)) {
    try {
      return connect_to(address, port, connection_deadline());
    } catch (const Error& error) {
      reasons += str(error.what(), "; ");
    }
  }
  throw IoError("PMI_PORT: " + reasons + "is mpirun still running?");
}

std::unique_ptr<PmiClient> connect_by_port() {
  const char* text = std::getenv("PMI_PORT");
  const char* id = std::getenv("PMI_ID");
  if (text == nullptr || id == nullptr) return nullptr;
  const std::string_view at = text;
  const size_t colon = at.rfind(':');
  uint16_t port = 0;
  if (colon != std::string_view::npos) std::from_chars(at.data() + colon + 1, at.data() + at.size(), port);
  if (port == 0) throw InvalidArgument(str("PMI_PORT is '", text, "'; it must be host:port"));
  return std::make_unique<PmiClient>(connect_to_manager(std::string(at.substr(0, colon)), port), id, connection_deadline());
}

}  // namespace

std::optional<Pmi> connect_pmi() {
  if (mpi_is_initialised()) return std::nullopt;
  ProcessChannel& channel = process_channel();
  std::lock_guard lock(channel.mutex);
  if (!channel.store) {
    std::unique_ptr<PmiClient> client = connect_by_descriptor();
    if (!client) client = connect_by_port();
    if (!client) return std::nullopt;
    channel.store = std::make_shared<PmiStore>(std::move(client));
  }
  const PmiClient& client = channel.store->client();
  if (!client.usable()) return std::nullopt;
  return Pmi{client.rank(), client.size(), channel.store};
}

bool forgo_pmi_finalize() {
  ProcessChannel& channel = process_channel();
  std::lock_guard lock(channel.mutex);
  channel.forgo_finalize = true;
  return channel.store != nullptr;
}

}  // namespace trireme::ccl
