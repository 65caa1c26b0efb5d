#include "oneapi/ccl/communicator.hpp"

#include <future>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/ccl/api/errors.h"
#include "trireme/ccl/api/handles.h"
#include "trireme/ccl/bootstrap/pmi.h"

namespace ccl::inline v1 {
namespace detail {

communicator_state::communicator_state(std::shared_ptr<core::Communicator> communicator)
    : communicator_(std::move(communicator)) {
  if (!communicator_) return;
  rank_ = communicator_->rank();
  size_ = communicator_->size();
}

const std::shared_ptr<core::Communicator>& communicator_state::get() const {
  if (communicator_ && !finalized_.load(std::memory_order_acquire)) return communicator_;
  throw trireme::InvalidArgument(size_ == 0 ? "comm has no ranks: this rank gave its split a negative color"
                                            : "comm was finalized");
}

void communicator_state::finalize() {
  if (communicator_ && !finalized_.exchange(true)) communicator_->finalize();
}

communicator access::make(std::shared_ptr<core::Communicator> core_communicator) {
  return communicator(std::make_shared<communicator_state>(std::move(core_communicator)));
}

communicator_state& access::state(const communicator& comm) {
  if (!comm.state_) throw trireme::InvalidArgument("comm was moved from");
  return *comm.state_;
}

namespace {

std::shared_ptr<core::Store> store_of(const shared_ptr_class<kvs_interface>& kvs_or_programs) {
  if (auto* own = dynamic_cast<kvs*>(kvs_or_programs.get())) return access::store(*own).store;
  return core::make_callback_store(
      [kvs_or_programs](const std::string& key) {
        const vector_class<char> value = kvs_or_programs->get(key);
        return std::string(value.begin(), value.end());
      },
      [kvs_or_programs](const std::string& key, const std::string& value) {
        kvs_or_programs->set(key, vector_class<char>(value.begin(), value.end()));
      });
}

// How many communicators this process has made for `rank` from `kvs` before. Every rank makes them in the same order, so the
// number tells them apart in the store, and is the same on all ranks.
int next_number(const shared_ptr_class<kvs_interface>& kvs, int rank) {
  static std::mutex mutex;
  static std::map<std::weak_ptr<kvs_interface>, std::map<int, int>, std::owner_less<>> made;
  std::lock_guard lock(mutex);
  std::erase_if(made, [](const auto& entry) { return entry.first.expired(); });
  return made[kvs][rank]++;
}

communicator create_one(int size, int rank, const shared_ptr_class<kvs_interface>& kvs) {
  core::CommunicatorOptions options;
  options.name = trireme::str("ccl-", next_number(kvs, rank));
  return access::make(core::Communicator::create(size, rank, store_of(kvs), options));
}

void check_ranks(int size, const vector_class<int>& ranks) {
  if (size < 1) throw trireme::InvalidArgument(trireme::str("size = ", size, " is not positive"));
  if (ranks.empty()) throw trireme::InvalidArgument("devices is empty: no rank lives in this process");
  std::set<int> seen;
  for (int rank : ranks) {
    if (rank < 0 || rank >= size) {
      throw trireme::InvalidArgument(trireme::str("rank = ", rank, " is not a rank: they go from 0 to ", size - 1));
    }
    if (!seen.insert(rank).second) throw trireme::InvalidArgument(trireme::str("rank = ", rank, " is given twice"));
  }
}

// Runs make(0) ... make(count - 1) at the same time: each is collective, and would wait for the others for ever.
template <class Make>
vector_class<communicator> make_together(size_t count, const Make& make) {
  vector_class<communicator> made;
  if (count == 1) {
    made.push_back(make(0));
    return made;
  }
  std::vector<std::future<communicator>> futures;
  for (size_t i = 0; i < count; ++i) futures.push_back(std::async(std::launch::async, make, i));
  for (auto& future : futures) made.push_back(future.get());
  return made;
}

int color_of(const comm_split_attr& attr) {
  if (attr.is_valid<comm_split_attr_id::color>()) return attr.get<comm_split_attr_id::color>();
  if (attr.is_valid<comm_split_attr_id::group>()) return 0;
  throw trireme::InvalidArgument("attr has neither comm_split_attr_id::color nor comm_split_attr_id::group");
}

communicator split(const communicator& comm, int color, int key) {
  return access::make(access::state(comm).get()->split(color, key));
}

// The launcher's channel is one for the whole process, so it is opened once, and communicators made over it are numbered
// here.
communicator create_over_pmi() {
  static std::mutex mutex;
  static std::optional<core::Pmi> pmi;
  static int number = 0;
  std::lock_guard lock(mutex);
  if (!pmi) pmi = core::connect_pmi();
  if (!pmi) {
    throw trireme::InvalidArgument(
        "no kvs was given and no PMI launcher answers: start the program with mpirun and without MPI_Init, or pass size, "
        "rank and a kvs");
  }
  core::CommunicatorOptions options;
  options.name = trireme::str("pmi-", number++);
  return access::make(core::Communicator::create(pmi->size, pmi->rank, pmi->store, options));
}

}  // namespace

vector_class<communicator> create_communicators(int size, const vector_class<int>& ranks,
                                                shared_ptr_class<kvs_interface> kvs, const comm_attr&) {
  return translating("create_communicators", [&] {
    check_ranks(size, ranks);
    if (!kvs) throw trireme::InvalidArgument("kvs is null");
    return make_together(ranks.size(), [&](size_t i) { return create_one(size, ranks[i], kvs); });
  });
}

}  // namespace detail

communicator::communicator(std::shared_ptr<detail::communicator_state> state) : state_(std::move(state)) {}
communicator::communicator(communicator&& other) noexcept = default;
communicator& communicator::operator=(communicator&& other) noexcept = default;
communicator::~communicator() = default;

int communicator::rank() const {
  return detail::translating("communicator::rank", [&] { return detail::access::state(*this).rank(); });
}

int communicator::size() const {
  return detail::translating("communicator::size", [&] { return detail::access::state(*this).size(); });
}

device communicator::get_device() const { return device(); }
context communicator::get_context() const { return context(); }

communicator communicator::split(int color, int key, bool) {
  return detail::translating("communicator::split", [&] { return detail::split(*this, color, key); });
}

communicator communicator::split(const comm_split_attr& attr) {
  return detail::translating("communicator::split", [&] { return detail::split(*this, detail::color_of(attr), 0); });
}

void communicator::finalize() {
  detail::translating("communicator::finalize", [&] { detail::access::state(*this).finalize(); });
}

communicator create_communicator(int size, int rank, shared_ptr_class<kvs_interface> kvs, const comm_attr& attr) {
  return std::move(detail::create_communicators(size, {rank}, std::move(kvs), attr).front());
}

communicator split_communicator(const communicator& comm, int color, int key) {
  return detail::translating("split_communicator", [&] { return detail::split(comm, color, key); });
}

void dev_comm_create(const communicator&, const dev_comm_requirements*, dev_comm_t*) { detail::needs_device("dev_comm_create"); }
void dev_comm_destroy(const communicator&, const dev_comm_t*) { detail::needs_device("dev_comm_destroy"); }

namespace preview {

communicator create_communicator(const comm_attr&) {
  return detail::translating("create_communicator", [] { return detail::create_over_pmi(); });
}

communicator create_communicator(int size, shared_ptr_class<kvs_interface> kvs, const comm_attr& attr) {
  return detail::translating("create_communicator", [&] {
    const auto launcher = trireme::ccl::launcher_rank();
    if (!launcher)
      throw trireme::InvalidArgument("no launcher's variables tell the rank: pass it, or use mpirun or torchrun");
    return v1::create_communicator(size, launcher->rank, std::move(kvs), attr);
  });
}

vector_class<communicator> create_communicators(int size, const vector_class<device>& devices, const context&,
                                                shared_ptr_class<kvs_interface> kvs, const comm_attr& attr) {
  if (devices.size() != static_cast<size_t>(size)) {
    throw unimplemented("ccl", "create_communicators",
                        "devices without ranks, unless all of the ranks live in this process");
  }
  vector_class<int> ranks;
  for (int rank = 0; rank < size; ++rank) ranks.push_back(rank);
  return detail::create_communicators(size, ranks, std::move(kvs), attr);
}

vector_class<communicator> create_communicatorsExt(int size, const vector_class<device>& devices, const context& context,
                                                   shared_ptr_class<kvs_interface> kvs, const comm_attr& attr) {
  return create_communicators(size, devices, context, std::move(kvs), attr);
}

vector_class<communicator> split_communicators(const vector_class<pair_class<communicator, comm_split_attr>>& attrs) {
  return detail::translating("split_communicators", [&] {
    for (const auto& [comm, attr] : attrs) detail::color_of(attr);
    return detail::make_together(
        attrs.size(), [&](size_t i) { return detail::split(attrs[i].first, detail::color_of(attrs[i].second), 0); });
  });
}

}  // namespace preview
}  // namespace ccl::inline v1
