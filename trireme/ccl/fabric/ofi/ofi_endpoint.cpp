#include "trireme/ccl/fabric/ofi/ofi_endpoint.h"

#include <rdma/fi_cm.h>
#include <rdma/fi_errno.h>

#include <bit>

#include "trireme/base/error.h"
#include "trireme/ccl/fabric/ofi/ofi_offers.h"

namespace trireme::ccl {

void OfiEndpoint::check(long result, const char* call) const {
  if (result < 0) throw IoError(str("libfabric, provider ", info_->fabric_attr->prov_name, ": ", call, ": ", library_.text_of(result)));
}

OfiEndpoint::OfiEndpoint(const OfiLibrary& library, OfiLibrary::Info info) : library_(library), info_(std::move(info)) {
  fid_fabric* fabric = nullptr;
  check(library_.fabric(info_->fabric_attr, &fabric, nullptr), "fi_fabric");
  fabric_.reset(fabric);
  fid_domain* domain = nullptr;
  check(fi_domain(fabric, info_.get(), &domain, nullptr), "fi_domain");
  domain_.reset(domain);
  fi_av_attr av_attributes{};
  av_attributes.type = FI_AV_TABLE;
  fid_av* addresses = nullptr;
  check(fi_av_open(domain, &av_attributes, &addresses, nullptr), "fi_av_open");
  addresses_.reset(addresses);
  open_completions();
  fid_ep* endpoint = nullptr;
  check(fi_endpoint(domain, info_.get(), &endpoint, nullptr), "fi_endpoint");
  endpoint_.reset(endpoint);
  check(fi_ep_bind(endpoint, &addresses->fid, 0), "fi_ep_bind");
  check(fi_ep_bind(endpoint, &completions_->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind");
  check(fi_enable(endpoint), "fi_enable");
}

// With a descriptor to sleep on where the provider has one.
void OfiEndpoint::open_completions() {
  fi_cq_attr attributes{};
  attributes.format = FI_CQ_FORMAT_TAGGED;
  attributes.size = info_->tx_attr->size + info_->rx_attr->size;
  attributes.wait_obj = FI_WAIT_FD;
  fid_cq* completions = nullptr;
  if (fi_cq_open(domain_.get(), &attributes, &completions, nullptr) == 0) {
    completions_.reset(completions);
    if (fi_control(&completions->fid, FI_GETWAIT, &wait_fd_) == 0 && wait_fd_ >= 0) return;
    wait_fd_ = -1;
    completions_.reset();
  }
  attributes.wait_obj = FI_WAIT_NONE;
  check(fi_cq_open(domain_.get(), &attributes, &completions, nullptr), "fi_cq_open");
  completions_.reset(completions);
}

std::string OfiEndpoint::address() const {
  size_t bytes = 0;
  int result = fi_getname(&endpoint_->fid, nullptr, &bytes);
  if (result != -FI_ETOOSMALL) check(result, "fi_getname");
  std::string address(bytes, '\0');
  check(fi_getname(&endpoint_->fid, address.data(), &bytes), "fi_getname");
  address.resize(bytes);
  return address;
}

fi_addr_t OfiEndpoint::insert(const std::string& address) {
  fi_addr_t handle = FI_ADDR_UNSPEC;
  int inserted = fi_av_insert(addresses_.get(), address.data(), 1, &handle, 0, nullptr);
  check(inserted == 0 ? -FI_EINVAL : inserted, "fi_av_insert");
  return handle;
}

// mem_tag_format has alternating bits, one per bit of the tag, and leading zeros for those that the provider keeps for itself.
int OfiEndpoint::tag_bits() const {
  uint64_t format = info_->ep_attr->mem_tag_format;
  return format == 0 ? 64 : std::bit_width(format);
}

bool OfiEndpoint::crashes_when_closed_busy() const { return is_rxm_over_sockets(info_->fabric_attr->prov_name); }

bool OfiEndpoint::may_wait() const {
  if (wait_fd_ < 0) return false;
  fid* completions = &completions_->fid;
  return fi_trywait(fabric_.get(), &completions, 1) == 0;
}

OfiObject<fid_mr> OfiEndpoint::register_memory(const void* data, size_t bytes) {
  fid_mr* registration = nullptr;
  check(fi_mr_reg(domain_.get(), data, bytes, FI_SEND | FI_RECV, 0, next_key_++, 0, &registration, nullptr), "fi_mr_reg");
  OfiObject<fid_mr> owner(registration);
  if (binds_registrations()) {
    check(fi_mr_bind(registration, &endpoint_->fid, 0), "fi_mr_bind");
    check(fi_mr_enable(registration), "fi_mr_enable");
  }
  return owner;
}

}  // namespace trireme::ccl
