// Communicators that are static objects of the program, and so go after the library's own; and a forked child that ends in good order.
#include <mutex>

#include "ranks.hpp"

// Ends the child when its communicators are gone: a leak checker would then miss what the parent's other threads hold.
struct child_end {
  bool in_child = false;
  ~child_end() {
    if (in_child) _exit(0);
  }
};
static child_end end;
static std::vector<ccl::communicator> kept;  // made before the library has made anything, and so destroyed after all of that
static std::mutex kept_mutex;

void run(ccl::communicator& comm, const ccl::shared_ptr_class<ccl::kvs>&) {
  ccl::communicator mine = comm.split(ccl::preview::create_comm_split_attr(ccl::attr_val<ccl::comm_split_attr_id::color>(0)));
  std::vector<float> data(1000, 1.0f);
  ccl::allreduce(data.data(), data.data(), data.size(), ccl::reduction::sum, mine).wait();
  CHECK(data[999] == static_cast<float>(comm.size()));
  {
    std::lock_guard<std::mutex> lock(kept_mutex);
    kept.push_back(std::move(mine));
  }
  ccl::barrier(comm);
  if (comm.rank() == 0) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(30);
      end.in_child = true;
      std::exit(0);  // its static objects go: copies of the parent's communicators
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(status == 0);
  }
  // The child has harmed nobody.
  ccl::allreduce(data.data(), data.data(), data.size(), ccl::reduction::sum, comm).wait();
  CHECK(data[999] == static_cast<float>(comm.size() * comm.size()));
}
