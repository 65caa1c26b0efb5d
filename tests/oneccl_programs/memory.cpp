// Memory that the library allocates, and buffers that the program registers.
#include "ranks.hpp"

void check_devices_part(const ccl::communicator& comm) {
  int buffer = 0;
  void* pointer = nullptr;
  ccl::window_t window = nullptr;
  CHECK_THROWS(ccl::unsupported, "host memory", ccl::comm_window_register_v2(comm, &buffer, sizeof buffer, CCL_WIN_DEFAULT));
  CHECK_THROWS(ccl::unsupported, "host memory", ccl::comm_window_deregister(comm, window));
  CHECK_THROWS(ccl::unsupported, "host memory", ccl::get_peer_device_pointer(window, 0, 0, &pointer));
  CHECK_THROWS(ccl::unsupported, "host memory", ccl::get_lsa_device_pointer(window, 0, 0, &pointer));
  CHECK_THROWS(ccl::unsupported, "host memory", ccl::get_local_device_pointer(window, 0, &pointer));
  const ccl::dev_comm_requirements requirements = {1};
  ccl::dev_comm_t on_device;
  CHECK_THROWS(ccl::unsupported, "host memory", ccl::dev_comm_create(comm, &requirements, &on_device));
  CHECK_THROWS(ccl::unsupported, "host memory", ccl::dev_comm_destroy(comm, &on_device));
}

void run(ccl::communicator& comm, const ccl::shared_ptr_class<ccl::kvs>&) {
  auto stream = ccl::create_stream();
  const size_t count = 100000;
  void *in = nullptr, *out = nullptr, *handle = nullptr;
  ccl::mem_alloc(stream, count * sizeof(float), &in);
  ccl::mem_alloc(stream, count * sizeof(float), &out);
  ccl::comm_register(comm, in, count * sizeof(float), &handle);
  auto window = ccl::comm_window_register(comm, out, count * sizeof(float), CCL_WIN_COLL_SYMMETRIC);

  float *from = static_cast<float*>(in), *to = static_cast<float*>(out);
  for (int round = 0; round < 3; ++round) {
    for (size_t i = 0; i < count; ++i) from[i] = ranks::value(comm.rank(), i + round);
    ccl::allreduce(from, to, count, ccl::reduction::sum, comm, stream).wait();
    for (size_t i = 0; i < count; ++i) CHECK(to[i] == ranks::sum(comm.size(), i + round));
  }

  ccl::comm_window_deregister(comm, window);
  ccl::comm_deregister(comm, handle);
  // Another rank may still be reading.
  ccl::barrier(comm);
  ccl::mem_free(stream, in);
  ccl::mem_free(stream, out);

  check_devices_part(comm);
  CHECK_THROWS(ccl::invalid_argument, "ptr", ccl::mem_alloc(stream, 1, nullptr));
  CHECK_THROWS(ccl::invalid_argument, "buffer", ccl::comm_register(comm, nullptr, 1, &handle));
  CHECK_THROWS(ccl::invalid_argument, "win_flags", ccl::comm_window_register(comm, &handle, 1, 99));
}
