// Intel oneCCL, CPU build: stands on MPI, which the program starts.
#include <mpi.h>

#include <stdexcept>

#include "job.h"

// The static library refers to Intel's tracing library; null pointers mean that it is not there.
extern "C" {
void* __itt_domain_create_ptr__3_0 = nullptr;
void* __itt_event_create_ptr__3_0 = nullptr;
void* __itt_event_end_ptr__3_0 = nullptr;
void* __itt_event_start_ptr__3_0 = nullptr;
void* __itt_metadata_add_ptr__3_0 = nullptr;
void* __itt_string_handle_create_ptr__3_0 = nullptr;
void* __itt_task_begin_ptr__3_0 = nullptr;
void* __itt_task_end_ptr__3_0 = nullptr;
void* __itt_thread_set_name_ptr__3_0 = nullptr;
}

namespace trireme::bench {

Job::Job() {
  int provided;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided);
  if (provided != MPI_THREAD_MULTIPLE) throw std::runtime_error("oneCCL needs MPI_THREAD_MULTIPLE");
}

Job::~Job() { MPI_Finalize(); }

std::unique_ptr<Gatherer> make_gatherer(Scoreboard&) { return nullptr; }

}  // namespace trireme::bench
