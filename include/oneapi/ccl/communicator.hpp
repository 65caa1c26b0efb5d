// A group of ranks, and how to make one.
#pragma once

#include <cstdint>
#include <memory>

#include "oneapi/ccl/attributes.hpp"
#include "oneapi/ccl/config.h"
#include "oneapi/ccl/device.hpp"
#include "oneapi/ccl/kvs.hpp"

namespace ccl {
inline namespace v1 {

namespace detail {
struct access;
class communicator_state;
}  // namespace detail

// One rank's part in a group of ranks. Operations run in the order of submission; communicators are independent of each
// other. Threads may share one. Destroying it does not wait for the other ranks.
class CCL_API communicator final {
 public:
  using device_type = device::native_t;
  using context_type = context::native_t;

  communicator(communicator&& other) noexcept;
  communicator& operator=(communicator&& other) noexcept;
  ~communicator();

  int rank() const;
  int size() const;
  device get_device() const;
  context get_context() const;

  // Collective. Ranks with the same color form a communicator, ordered by key, then by rank. A rank with a negative color
  // takes part and gets one with no ranks: its rank() is -1 and operations on it throw invalid_argument.
  communicator split(int color, int key, bool split_external_use = false);
  communicator split(const comm_split_attr& attr);

  // Waits for the operations under way. None may follow.
  void finalize();

 private:
  friend struct detail::access;
  explicit communicator(std::shared_ptr<detail::communicator_state> state);
  std::shared_ptr<detail::communicator_state> state_;
};

namespace detail {

// `ranks` of the `size` live in this process.
CCL_API vector_class<communicator> create_communicators(int size, const vector_class<int>& ranks,
                                                        shared_ptr_class<kvs_interface> kvs, const comm_attr& attr);

template <class RankDevicePairs>
vector_class<int> ranks_of(const RankDevicePairs& devices) {
  vector_class<int> ranks;
  for (const auto& rank_and_device : devices) ranks.push_back(static_cast<int>(rank_and_device.first));
  return ranks;
}

}  // namespace detail

// Collective over `size` ranks that share a kvs. Returns when all of them are connected; throws when some do not come in
// time (CCL_KVS_CONNECTION_TIMEOUT). Several communicators may be made from one kvs, in the same order on every rank.
CCL_API communicator create_communicator(int size, int rank, shared_ptr_class<kvs_interface> kvs,
                                         const comm_attr& attr = default_comm_attr);

template <class Device, class Context>
communicator create_communicator(int size, int rank, const Device&, const Context&, shared_ptr_class<kvs_interface> kvs,
                                 const comm_attr& attr = default_comm_attr) {
  return create_communicator(size, rank, kvs, attr);
}

// The same for several ranks of one process at once.
template <class Device, class Context>
vector_class<communicator> create_communicators(int size, const vector_class<pair_class<int, Device>>& devices,
                                                const Context&, shared_ptr_class<kvs_interface> kvs,
                                                const comm_attr& attr = default_comm_attr) {
  return detail::create_communicators(size, detail::ranks_of(devices), kvs, attr);
}

template <class Device, class Context>
vector_class<communicator> create_communicators(int size, const map_class<int, Device>& devices, const Context&,
                                                shared_ptr_class<kvs_interface> kvs,
                                                const comm_attr& attr = default_comm_attr) {
  return detail::create_communicators(size, detail::ranks_of(devices), kvs, attr);
}

// oneCCL's names for the same on devices of its own choice; there is no difference here.
template <class Device, class Context>
communicator create_communicatorExt(int size, int rank, const Device& device, const Context& context,
                                    shared_ptr_class<kvs_interface> kvs, const comm_attr& attr = default_comm_attr) {
  return create_communicator(size, rank, device, context, kvs, attr);
}

template <class Devices, class Context>
vector_class<communicator> create_communicatorsExt(int size, const Devices& devices, const Context& context,
                                                   shared_ptr_class<kvs_interface> kvs,
                                                   const comm_attr& attr = default_comm_attr) {
  return create_communicators(size, devices, context, kvs, attr);
}

CCL_API communicator split_communicator(const communicator& comm, int color, int key);

// A communicator as code on a device uses it: where its rank is, in all and among those whose memory it can reach, and the
// barriers among the latter.
struct dev_comm_data {
  int rank;
  int nranks;
  int lsa_rank;
  int lsa_size;
  uint32_t** barrier_inboxes;
  int n_barriers;
  uint32_t* barrier_epochs;
};
typedef dev_comm_data dev_comm_t;

struct dev_comm_requirements {
  int lsa_barrier_count;
};

// Both throw unsupported.
CCL_API void dev_comm_create(const communicator& comm, const dev_comm_requirements* requirements, dev_comm_t* dev_comm);
CCL_API void dev_comm_destroy(const communicator& comm, const dev_comm_t* dev_comm);

namespace preview {

// Size and rank come from the launcher: PMI for both, its variables for the rank alone. Throws when there is none.
CCL_API communicator create_communicator(const comm_attr& attr = default_comm_attr);
CCL_API communicator create_communicator(int size, shared_ptr_class<kvs_interface> kvs,
                                         const comm_attr& attr = default_comm_attr);

// Without ranks: every rank must live in this process. Throws unimplemented when there are fewer devices than ranks.
CCL_API vector_class<communicator> create_communicators(int size, const vector_class<device>& devices,
                                                        const context& context, shared_ptr_class<kvs_interface> kvs,
                                                        const comm_attr& attr = default_comm_attr);
CCL_API vector_class<communicator> create_communicatorsExt(int size, const vector_class<device>& devices,
                                                           const context& context, shared_ptr_class<kvs_interface> kvs,
                                                           const comm_attr& attr = default_comm_attr);

// Splits several communicators of one process at once.
CCL_API vector_class<communicator> split_communicators(const vector_class<pair_class<communicator, comm_split_attr>>& attrs);

}  // namespace preview

using preview::split_communicators;  // where some versions of oneCCL have it
}  // namespace v1
}  // namespace ccl
