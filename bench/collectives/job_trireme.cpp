// Trireme needs nothing around it. Its gather is reached through its own interface.
#include "cases.h"
#include "job.h"
#include "trireme/ccl/bootstrap/tcp_store.h"
#include "trireme/ccl/comm/communicator.h"

namespace trireme::bench {
namespace {

class TriremeGatherer : public Gatherer {
 public:
  explicit TriremeGatherer(Scoreboard& board) {
    ccl::StoreAddress address{};
    std::shared_ptr<ccl::Store> store;
    if (board.rank() == 0) store = ccl::make_tcp_store_server("", address);
    board.broadcast(address.data(), address.size());
    if (!store) store = ccl::make_tcp_store_client(address);
    communicator_ = ccl::Communicator::create(board.size(), board.rank(), store);
  }

  void gather(const void* send, void* recv, size_t bytes) override {
    ccl::Operation operation;
    operation.kind = ccl::OpKind::gather;
    operation.root = kRoot;
    operation.count = bytes;
    operation.send_buffer = send;
    operation.caller_waits = true;
    for (int rank = 0; communicator_->rank() == kRoot && rank < communicator_->size(); ++rank) {
      operation.recv_blocks.push_back({static_cast<std::byte*>(recv) + static_cast<size_t>(rank) * bytes, bytes});
    }
    communicator_->submit(std::move(operation)).wait();
  }

 private:
  std::shared_ptr<ccl::Communicator> communicator_;
};

}  // namespace

Job::Job() = default;
Job::~Job() = default;

std::unique_ptr<Gatherer> make_gatherer(Scoreboard& board) { return std::make_unique<TriremeGatherer>(board); }

}  // namespace trireme::bench
