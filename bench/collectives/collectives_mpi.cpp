// The collectives on MPI itself. Compiled with MPICH's mpicxx.
#include <mpi.h>

#include <stdexcept>

#include "measure.h"

namespace trireme::bench {
namespace {

MPI_Datatype datatype(Type type) { return type == Type::fp32 ? MPI_FLOAT : MPI_UINT16_T; }

std::vector<int> to_int(const std::vector<size_t>& values) { return {values.begin(), values.end()}; }

class MpiLibrary : public Library {
 public:
  explicit MpiLibrary(const Options& options) {
    if (options.shared_buffers) throw std::invalid_argument("shared buffers are not measured on MPI");
    MPI_Init(nullptr, nullptr);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
  }
  ~MpiLibrary() override { MPI_Finalize(); }

  std::string version() const override {
    char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int length = 0;
    MPI_Get_library_version(text, &length);
    const std::string_view all(text, length);
    const auto first_line = all.substr(0, all.find('\n'));
    const auto number = first_line.find_first_of("0123456789");
    return "MPICH " + std::string(first_line.substr(number));
  }

  // MPI has no bf16 to reduce, no broadcast between two buffers, and leaves an in-place reduce_scatter's result at the start
  // of the buffer, where oneCCL's users do not look.
  bool supports(const Case& c) const override {
    if (c.op == Op::broadcast) return c.in_place;
    if (c.op == Op::reduce_scatter && c.in_place) return false;
    return c.type == Type::fp32 || !reduces(c.op);
  }

  void run(const Call& call) override {
    const auto& [c, layout, send, recv] = call;
    const MPI_Datatype type = datatype(c.type);
    const int count = static_cast<int>(c.count());
    const void* from = c.in_place ? MPI_IN_PLACE : send;
    const bool root = rank_ == kRoot;
    switch (c.op) {
      case Op::allreduce:
        MPI_Allreduce(from, recv, count, type, MPI_SUM, MPI_COMM_WORLD);
        break;
      case Op::reduce:
        MPI_Reduce(root ? from : send, recv, count, type, MPI_SUM, kRoot, MPI_COMM_WORLD);
        break;
      case Op::broadcast:
        MPI_Bcast(recv, count, type, kRoot, MPI_COMM_WORLD);
        break;
      case Op::allgather:
        MPI_Allgather(from, count, type, recv, count, type, MPI_COMM_WORLD);
        break;
      case Op::allgatherv:
        allgatherv(call, from);
        break;
      case Op::alltoall:
        MPI_Alltoall(from, count, type, recv, count, type, MPI_COMM_WORLD);
        break;
      case Op::alltoallv:
        alltoallv(call, from);
        break;
      case Op::reduce_scatter:
        MPI_Reduce_scatter_block(send, recv, static_cast<int>(layout.recv_count), type, MPI_SUM, MPI_COMM_WORLD);
        break;
      case Op::scatter:
        MPI_Scatter(send, count, type, c.in_place && root ? MPI_IN_PLACE : recv, count, type, kRoot, MPI_COMM_WORLD);
        break;
      case Op::gather:
        MPI_Gather(root ? from : send, count, type, recv, count, type, kRoot, MPI_COMM_WORLD);
        break;
      default:
        MPI_Barrier(MPI_COMM_WORLD);
    }
  }

  void send(void* data, size_t count, Type type, int peer) override {
    MPI_Send(data, static_cast<int>(count), datatype(type), peer, 0, MPI_COMM_WORLD);
  }

  void recv(void* data, size_t count, Type type, int peer) override {
    MPI_Recv(data, static_cast<int>(count), datatype(type), peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }

 private:
  static void allgatherv(const Call& call, const void* from) {
    const MPI_Datatype type = datatype(call.c.type);
    const auto counts = to_int(call.layout.recv_counts);
    const auto offsets = to_int(offsets_of(call.layout.recv_counts));
    MPI_Allgatherv(from, static_cast<int>(call.layout.send_count), type, call.recv, counts.data(), offsets.data(), type,
                   MPI_COMM_WORLD);
  }

  static void alltoallv(const Call& call, const void* from) {
    const MPI_Datatype type = datatype(call.c.type);
    const auto send_counts = to_int(call.layout.send_counts), recv_counts = to_int(call.layout.recv_counts);
    const auto send_offsets = to_int(offsets_of(call.layout.send_counts));
    const auto recv_offsets = to_int(offsets_of(call.layout.recv_counts));
    MPI_Alltoallv(from, send_counts.data(), send_offsets.data(), type, call.recv, recv_counts.data(), recv_offsets.data(),
                  type, MPI_COMM_WORLD);
  }

  int rank_ = 0;
};

}  // namespace
}  // namespace trireme::bench

int main(int argc, char** argv) {
  using namespace trireme::bench;
  return run_benchmark(argc, argv,
                       [](Scoreboard&, const Options& options) { return std::make_unique<MpiLibrary>(options); });
}
