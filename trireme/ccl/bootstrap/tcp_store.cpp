#include "trireme/ccl/bootstrap/tcp_store.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <list>
#include <map>
#include <mutex>
#include <thread>

#include "trireme/base/env.h"
#include "trireme/base/log.h"
#include "trireme/ccl/bootstrap/control.h"
#include "trireme/ccl/bootstrap/forked_child.h"
#include "trireme/ccl/bootstrap/frame.h"
#include "trireme/ccl/bootstrap/random.h"
#include "trireme/ccl/bootstrap/socket.h"
#include "trireme/ccl/bootstrap/store_protocol.h"
#include "trireme/ccl/bootstrap/wire.h"

namespace trireme::ccl {

namespace {

// A store has no ranks: every client makes the same claim.
Claim client_claim(const JobId& job) { return {job, 1, 0, 0}; }

// Owns the listener, the clients' connections and the thread that serves them. Only proved connections become clients, and a
// frame is understood before anything of it is stored.
class Server {
 public:
  Server(const JobId& job, const Secret& secret, const IpPort& at)
      : values_(make_memory_store()),
        listener_(job, secret, 1, at.ip, at.port),
        wake_(UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK))),
        generation_(fork_generation()) {
    if (!wake_) throw IoError(errno_message("eventfd", errno));
    thread_ = std::thread([this] { run(); });
  }

  ~Server() {
    // In a forked child there is no such thread: joining it would wait forever.
    if (generation_ != fork_generation()) {
      thread_.detach();
    } else {
      ::eventfd_write(wake_.get(), 1);
      thread_.join();
    }
  }

  Store& values() { return *values_; }
  uint16_t port() const { return listener_.port(); }

 private:
  struct Client {
    ProcessFd connection;
    FrameAssembler input{kMaxStoreRequestBytes};
    std::string output;  // of one answer; no request is read until it is sent
  };

  void run() {
    std::vector<pollfd> entries;
    do {
      entries = {{wake_.get(), POLLIN, 0}, {listener_.descriptor(), POLLIN, 0}};
      for (const Client& client : clients_) {
        entries.push_back({client.connection.get(), static_cast<short>(client.output.empty() ? POLLIN : POLLOUT), 0});
      }
      // Once a second at the latest the listener drops slow strangers.
      ::poll(entries.data(), entries.size(), 1000);
      try {
        serve_clients(entries);
        admit();
      } catch (const Error& error) {
        // Whatever is short now may be there again soon; the clients need their server.
        log_once(LogLevel::warn, str("kvs: ", error.what()));
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      }
    } while (entries[0].revents == 0);
  }

  void serve_clients(const std::vector<pollfd>& entries) {
    size_t entry = 2;
    std::erase_if(clients_, [&](Client& client) { return entries[entry++].revents != 0 && !serve(client); });
  }

  // False when the connection is to be closed.
  bool serve(Client& client) try {
    if (client.output.empty()) {
      if (auto frame = receive_some(client.connection.get(), client.input)) client.output = answer(*frame);
    }
    client.output.erase(0, send_some(client.connection.get(), client.output));
    return true;
  } catch (const IoError& error) {
    log(LogLevel::debug, str("kvs: a client has gone: ", error.what()));
    return false;
  }

  std::string answer(const Frame& frame) {
    const StoreRequest request = decode_store_request(frame.kind, frame.payload);
    if (frame.kind == kStoreGet) return encode_frame(kStoreValue, values_->try_get(request.key, Deadline::never()));
    values_->set(request.key, request.value);
    return encode_frame(kStoreValue, "");
  }

  void admit() {
    while (auto arrival = listener_.accept(Deadline::after(std::chrono::milliseconds(0)))) {
      AuthListener::confirm(arrival->first.get());
      clients_.push_back(Client{ProcessFd(std::move(arrival->first)), FrameAssembler(kMaxStoreRequestBytes), ""});
    }
  }

  const std::shared_ptr<Store> values_;
  AuthListener listener_;
  ProcessFd wake_;
  const unsigned generation_;
  std::list<Client> clients_;
  std::thread thread_;
};

class ServerStore : public Store {
 public:
  ServerStore(const JobId& job, const Secret& secret, const IpPort& at) : server_(job, secret, at) {}

  void set(const std::string& key, const std::string& value) override {
    check_store_sizes({key, value});
    server_.values().set(key, value);
  }
  std::string try_get(const std::string& key, Deadline deadline) override { return server_.values().try_get(key, deadline); }
  uint16_t port() const { return server_.port(); }

 private:
  Server server_;
};

// Owns one connection, made on first use. Threads take turns. A failure closes the connection; the next call makes a new
// one.
class ClientStore : public Store {
 public:
  explicit ClientStore(StoreLocation location) : location_(std::move(location)) {}

  void set(const std::string& key, const std::string& value) override {
    ask(kStoreSet, {key, value}, Deadline::after(env::duration("CCL_KVS_CONNECTION_TIMEOUT")));
  }

  std::string try_get(const std::string& key, Deadline deadline) override {
    return ask(kStoreGet, {key, ""},
               Deadline::earlier(deadline, Deadline::after(env::duration("CCL_KVS_CONNECTION_TIMEOUT"))));
  }

 private:
  std::string ask(uint8_t kind, const StoreRequest& request, Deadline deadline) {
    const std::string bytes = encode_store_request(kind, request);
    std::lock_guard lock(mutex_);
    try {
      if (!connection_) connect(deadline);
      send_all(connection_.get(), bytes, deadline);
      Frame frame = receive_frame(connection_.get(), kMaxStoreValueBytes, deadline);
      if (frame.kind != kStoreValue) throw wire::Malformed("an unexpected answer");
      return std::move(frame.payload);
    } catch (const Timeout& timeout) {
      connection_.reset();
      throw Timeout(explain(timeout));
    } catch (const IoError& error) {
      connection_.reset();
      throw IoError(explain(error));
    }
  }

  void connect(Deadline deadline) {
    connection_ = ProcessFd(
        connect_proved(location_.addresses, location_.port, location_.secret, client_claim(location_.job), deadline));
  }

  std::string explain(const Error& error) const {
    return str("kvs at ", location_.addresses.front(), " port ", location_.port, ": ", error.what(),
               "; is the process that made the kvs still running?");
  }

  const StoreLocation location_;
  std::mutex mutex_;
  ProcessFd connection_;
};

}  // namespace

std::shared_ptr<Store> make_tcp_store_server(const std::string& ip_port, StoreAddress& address) {
  const IpPort at = ip_port.empty() ? IpPort{} : parse_ip_port(ip_port);
  StoreLocation location{random<JobId>(), random<Secret>(), 0, {at.ip}};
  if (at.ip.empty()) location.addresses = local_addresses();
  auto store = std::make_shared<ServerStore>(location.job, location.secret, at);
  location.port = store->port();
  address = encode_store_address(location);
  return store;
}

std::shared_ptr<Store> make_tcp_store_client(const StoreAddress& address) {
  try {
    return std::make_shared<ClientStore>(decode_store_address(address));
  } catch (const wire::Malformed& malformed) {
    throw InvalidArgument(str("these 256 bytes are not the address of a kvs made by this library: ", malformed.what()));
  }
}

}  // namespace trireme::ccl
