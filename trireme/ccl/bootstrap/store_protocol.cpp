#include "trireme/ccl/bootstrap/store_protocol.h"

#include <algorithm>
#include <charconv>

#include "trireme/ccl/bootstrap/frame.h"
#include "trireme/ccl/bootstrap/wire.h"

namespace trireme::ccl {

namespace {

constexpr uint32_t kAddressMagic = 0x564b5254;  // "TRKV"
constexpr uint8_t kAddressVersion = 1;

}  // namespace

void check_store_sizes(const StoreRequest& request) {
  if (request.key.size() > kMaxStoreKeyBytes || request.value.size() > kMaxStoreValueBytes) {
    throw InvalidArgument(str("a key of ", request.key.size(), " and a value of ", request.value.size(),
                              " bytes: the kvs takes at most ", kMaxStoreKeyBytes, " and ", kMaxStoreValueBytes));
  }
}

std::string encode_store_request(uint8_t kind, const StoreRequest& request) {
  check_store_sizes(request);
  wire::Writer out;
  out.string(request.key);
  if (kind == kStoreSet) out.string(request.value);
  return encode_frame(kind, out.bytes());
}

StoreRequest decode_store_request(uint8_t kind, std::string_view payload) {
  if (kind != kStoreSet && kind != kStoreGet) throw wire::Malformed(str("an unknown request ", int{kind}));
  wire::Reader in(payload);
  StoreRequest request;
  request.key = in.string(kMaxStoreKeyBytes);
  if (kind == kStoreSet) request.value = in.string(kMaxStoreValueBytes);
  in.expect_end();
  return request;
}

StoreAddress encode_store_address(const StoreLocation& location) {
  wire::Writer out;
  out.integer(kAddressMagic);
  out.integer(kAddressVersion);
  out.raw(location.job);
  out.raw(location.secret);
  out.integer(location.port);

  StoreAddress address{};
  wire::Writer list;
  uint8_t count = 0;
  for (const std::string& text : location.addresses) {
    if (out.size() + 1 + list.size() + 4 + text.size() > address.size()) break;
    list.string(text);
    ++count;
  }
  out.integer(count);
  out.raw(list.bytes());
  std::copy(out.bytes().begin(), out.bytes().end(), address.begin());
  return address;
}

StoreLocation decode_store_address(const StoreAddress& address) {
  wire::Reader in(std::string_view(address.data(), address.size()));
  if (in.integer<uint32_t>() != kAddressMagic || in.integer<uint8_t>() != kAddressVersion)
    throw wire::Malformed("not a kvs address");
  StoreLocation location;
  location.job = in.array<16>();
  location.secret = in.array<32>();
  location.port = in.integer<uint16_t>();
  const auto count = in.integer<uint8_t>();
  for (int i = 0; i < count; ++i) location.addresses.emplace_back(in.string(address.size()));
  if (location.addresses.empty() || location.port == 0) throw wire::Malformed("a kvs address that leads nowhere");
  return location;
}

IpPort parse_ip_port(const std::string& text) {
  const size_t separator = text.rfind('_');
  IpPort out;
  if (separator != std::string::npos && separator > 0) {
    const char* const end = text.data() + text.size();
    auto [stop, error] = std::from_chars(text.data() + separator + 1, end, out.port);
    out.ip = text.substr(0, separator);
    if (error == std::errc() && stop == end && out.port != 0) return out;
  }
  throw InvalidArgument(str("CCL_KVS_IP_PORT is '", text, "'; it must be an address, '_' and a port, as in 10.0.0.1_5000"));
}

}  // namespace trireme::ccl
