// The collectives through oneCCL's C++ interface. Compiled twice, against Trireme and against Intel oneCCL.
#include <algorithm>
#include <oneapi/ccl.hpp>

#include "job.h"
#include "measure.h"

namespace trireme::bench {
namespace {

::ccl::datatype datatype(Type type) { return type == Type::fp32 ? ::ccl::datatype::float32 : ::ccl::datatype::bfloat16; }

::ccl::shared_ptr_class<::ccl::kvs> make_kvs(Scoreboard& board) {
  ::ccl::shared_ptr_class<::ccl::kvs> kvs;
  ::ccl::kvs::address_type address;
  if (board.rank() == 0) {
    kvs = ::ccl::create_main_kvs();
    address = kvs->get_address();
  }
  board.broadcast(address.data(), address.size());
  return kvs ? kvs : ::ccl::create_kvs(address);
}

::ccl::communicator make_communicator(Scoreboard& board) {
  ::ccl::init();
  return ::ccl::create_communicator(board.size(), board.rank(), make_kvs(board));
}

class CclLibrary : public Library {
 public:
  CclLibrary(Scoreboard& board, const Options& options)
      : shared_buffers_(options.shared_buffers), communicator_(make_communicator(board)) {
    if (std::count(options.ops.begin(), options.ops.end(), Op::gather)) gatherer_ = make_gatherer(board);
  }

  std::string version() const override { return ::ccl::get_library_version().full; }

  bool supports(const Case& c) const override { return c.op != Op::gather || gatherer_; }

  void run(const Call& call) override {
    if (call.c.op == Op::gather) gatherer_->gather(call.send, call.recv, call.c.bytes);
    else start(call).wait();
  }

  void send(void* data, size_t count, Type type, int peer) override {
    ::ccl::send(data, count, datatype(type), peer, communicator_).wait();
  }

  void recv(void* data, size_t count, Type type, int peer) override {
    ::ccl::recv(data, count, datatype(type), peer, communicator_).wait();
  }

  void* allocate(size_t bytes) override {
    if (!shared_buffers_) return Library::allocate(bytes);
    void* data = nullptr;
    ::ccl::mem_alloc(::ccl::create_stream(), bytes, &data);
    return data;
  }

  void release(void* data) override {
    if (!shared_buffers_) return Library::release(data);
    ::ccl::mem_free(::ccl::create_stream(), data);
  }

 private:
  ::ccl::event start(const Call& call) {
    const auto& [c, layout, send, recv] = call;
    const ::ccl::datatype type = datatype(c.type);
    constexpr auto kSum = ::ccl::reduction::sum;
    switch (c.op) {
      case Op::allreduce:
        return ::ccl::allreduce(send, recv, c.count(), type, kSum, communicator_);
      case Op::reduce:
        return ::ccl::reduce(send, recv, c.count(), type, kSum, kRoot, communicator_);
      case Op::broadcast:
        return c.in_place ? ::ccl::broadcast(recv, c.count(), type, kRoot, communicator_)
                          : ::ccl::broadcast(send, recv, c.count(), type, kRoot, communicator_);
      case Op::allgather:
        return ::ccl::allgather(send, recv, c.count(), type, communicator_);
      case Op::allgatherv:
        return ::ccl::allgatherv(send, layout.send_count, recv, layout.recv_counts, type, communicator_);
      case Op::alltoall:
        return ::ccl::alltoall(send, recv, c.count(), type, communicator_);
      case Op::alltoallv:
        return ::ccl::alltoallv(send, layout.send_counts, recv, layout.recv_counts, type, communicator_);
      case Op::reduce_scatter:
        return ::ccl::reduce_scatter(send, recv, layout.recv_count, type, kSum, communicator_);
      case Op::scatter:
        return ::ccl::scatter(send, recv, c.count(), type, kRoot, communicator_);
      default:
        return ::ccl::barrier(communicator_);
    }
  }

  Job job_;  // first: it outlives the communicator
  bool shared_buffers_;
  ::ccl::communicator communicator_;
  std::unique_ptr<Gatherer> gatherer_;
};

}  // namespace
}  // namespace trireme::bench

int main(int argc, char** argv) {
  using namespace trireme::bench;
  return run_benchmark(
      argc, argv, [](Scoreboard& board, const Options& options) { return std::make_unique<CclLibrary>(board, options); });
}
