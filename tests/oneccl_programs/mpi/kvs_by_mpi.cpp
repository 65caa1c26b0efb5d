// As oneCCL's own examples do it: the program calls MPI_Init, and MPI hands the kvs address round. MPI goes on working beside the library.
#include <mpi.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "oneapi/ccl.hpp"

static void finalize_mpi() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (!finalized) MPI_Finalize();
}

int main(int argc, char** argv) {
  ccl::init();
  int size = 0, rank = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  std::atexit(finalize_mpi);

  ccl::shared_ptr_class<ccl::kvs> kvs;
  ccl::kvs::address_type address;
  if (rank == 0) {
    kvs = ccl::create_main_kvs();
    address = kvs->get_address();
  }
  MPI_Bcast(address.data(), static_cast<int>(address.size()), MPI_BYTE, 0, MPI_COMM_WORLD);
  if (rank != 0) kvs = ccl::create_kvs(address);

  auto comm = ccl::create_communicator(size, rank, kvs);
  const size_t count = 100000;
  std::vector<float> mine(count, static_cast<float>(rank + 1)), ours(count), theirs(count);
  ccl::allreduce(mine.data(), ours.data(), count, ccl::reduction::sum, comm).wait();
  MPI_Allreduce(mine.data(), theirs.data(), static_cast<int>(count), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  const bool equal = comm.size() == size && comm.rank() == rank && ours == theirs;
  if (!equal) std::fprintf(stderr, "rank %d of %d: the sums differ\n", rank, size);
  return equal ? 0 : 1;
}
