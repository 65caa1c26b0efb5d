// One libfabric endpoint and what it stands on.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>

#include <memory>
#include <string>

#include "trireme/ccl/fabric/ofi/ofi_library.h"

namespace trireme::ccl {

struct OfiCloser {
  template <class T>
  void operator()(T* object) const {
    fi_close(&object->fid);
  }
};
template <class T>
using OfiObject = std::unique_ptr<T, OfiCloser>;

// Owns an endpoint with its own fabric, domain, address vector and completion queue, so that nothing is shared between
// communicators. One thread at a time. Never blocks. Its objects are closed in the order that libfabric asks for.
class OfiEndpoint {
 public:
  // Throws IoError naming the call that failed.
  OfiEndpoint(const OfiLibrary& library, OfiLibrary::Info info);

  const OfiLibrary& library() const { return library_; }
  const fi_info& info() const { return *info_; }
  fid_ep* endpoint() const { return endpoint_.get(); }
  fid_cq* completions() const { return completions_.get(); }

  // As libfabric writes it; means something to another endpoint of the same provider.
  std::string address() const;
  fi_addr_t insert(const std::string& address);

  // How many of a tag's low bits travel.
  int tag_bits() const;
  // Readable when a completion may be there; -1 where the provider has none.
  int wait_fd() const { return wait_fd_; }
  // True when it is safe to sleep on wait_fd(): nothing is there yet, and what comes will show.
  bool may_wait() const;

  OfiObject<fid_mr> register_memory(const void* data, size_t bytes);
  bool must_register() const { return (info_->domain_attr->mr_mode & FI_MR_LOCAL) != 0; }
  // Whether registrations belong to the endpoint and go before it; else they go after it.
  bool binds_registrations() const { return (info_->domain_attr->mr_mode & FI_MR_ENDPOINT) != 0; }

  // Over sockets ofi_rxm (1.17) cannot be closed while it sends a peer what that peer has asked to read: the cancelled answer has no
  // context, and rxm_handle_comp_error follows the null pointer. Such an endpoint must be left open, at the cost of its descriptors and
  // some 90 MB.
  bool crashes_when_closed_busy() const;
  // Ends all operations: afterwards the provider touches none of their memory.
  void close() { endpoint_.reset(); }

 private:
  void check(long result, const char* call) const;
  void open_completions();

  OfiLibrary library_;
  OfiLibrary::Info info_;
  OfiObject<fid_fabric> fabric_;
  OfiObject<fid_domain> domain_;
  OfiObject<fid_av> addresses_;
  OfiObject<fid_cq> completions_;
  OfiObject<fid_ep> endpoint_;
  int wait_fd_ = -1;
  uint64_t next_key_ = 1;
};

}  // namespace trireme::ccl
