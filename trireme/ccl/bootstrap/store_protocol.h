// What TcpStore's clients and server say to each other, and the address that leads to one. No socket here.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/ccl/bootstrap/control.h"
#include "trireme/ccl/bootstrap/tcp_store.h"

namespace trireme::ccl {

inline constexpr size_t kMaxStoreKeyBytes = 256;
inline constexpr size_t kMaxStoreValueBytes = 64 * 1024;

// Kinds of store frames. A client sends one request and waits for its answer.
inline constexpr uint8_t kStoreSet = 1;    // key, value; answered by an empty value
inline constexpr uint8_t kStoreGet = 2;    // key; answered by its value, empty when nobody has set it
inline constexpr uint8_t kStoreValue = 3;  // the answer

inline constexpr size_t kMaxStoreRequestBytes = 4 + kMaxStoreKeyBytes + 4 + kMaxStoreValueBytes;

struct StoreRequest {
  std::string key;
  std::string value;  // of kStoreSet
};

// Throws InvalidArgument for a key or a value that is too long.
void check_store_sizes(const StoreRequest& request);
std::string encode_store_request(uint8_t kind, const StoreRequest& request);
// Throws wire::Malformed.
StoreRequest decode_store_request(uint8_t kind, std::string_view payload);

struct StoreLocation {
  JobId job{};
  Secret secret{};
  uint16_t port = 0;
  std::vector<std::string> addresses;
};

// With as many addresses as fit into 256 bytes, the first ones first.
StoreAddress encode_store_address(const StoreLocation& location);
// Throws wire::Malformed.
StoreLocation decode_store_address(const StoreAddress& address);

// "10.0.0.1_5000", CCL_KVS_IP_PORT's form. Throws InvalidArgument.
struct IpPort {
  std::string ip;
  uint16_t port = 0;
};
IpPort parse_ip_port(const std::string& text);

}  // namespace trireme::ccl
