// The key-value store behind oneCCL's kvs: a server thread in the process that made it, clients elsewhere. The 256-byte
// address that programs hand round carries host addresses, port, job id and secret; every client proves the secret.
#pragma once

#include <array>
#include <memory>
#include <string>

#include "trireme/ccl/bootstrap/store.h"

namespace trireme::ccl {

using StoreAddress = std::array<char, 256>;

// A store with its own server. `ip_port` is CCL_KVS_IP_PORT's form ("10.0.0.1_5000"), or empty for the best address and a
// free port. The server ends with the last reference to the store.
std::shared_ptr<Store> make_tcp_store_server(const std::string& ip_port, StoreAddress& address);

// Connects on first use. Throws InvalidArgument for bytes that are not an address made by this library.
std::shared_ptr<Store> make_tcp_store_client(const StoreAddress& address);

}  // namespace trireme::ccl
