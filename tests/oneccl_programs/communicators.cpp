// Making communicators: from one kvs, from a kvs of the program's own, by splitting.
#include <chrono>
#include <mutex>
#include <thread>

#include "ranks.hpp"

static_assert(!std::is_copy_constructible<ccl::communicator>::value, "a communicator is move only");

void check_works(const ccl::communicator& comm, int size) {
  int one = 1, sum = 0;
  ccl::allreduce(&one, &sum, 1, ccl::reduction::sum, comm).wait();
  CHECK(comm.size() == size && sum == size);
}

void check_several_from_one_kvs(const ccl::communicator& comm, const ccl::shared_ptr_class<ccl::kvs>& kvs) {
  const int size = comm.size(), rank = comm.rank();
  auto device = ccl::create_device();
  auto context = ccl::create_context();
  auto attr = ccl::create_comm_attr(ccl::attr_val<ccl::comm_attr_id::blocking>(1));
  std::vector<ccl::communicator> comms;
  comms.push_back(ccl::create_communicator(size, rank, kvs));
  comms.push_back(ccl::create_communicator(size, rank, kvs, attr));
  comms.push_back(ccl::create_communicator(size, rank, device, context, kvs));
  comms.push_back(ccl::create_communicatorExt(size, rank, device, context, kvs));
  const std::vector<std::pair<int, ccl::device>> devices = {{rank, device}};
  for (auto& made : ccl::create_communicators(size, devices, context, kvs)) comms.push_back(std::move(made));
  for (auto& made : ccl::create_communicatorsExt(size, std::map<int, ccl::device>{{rank, device}}, context, kvs, attr)) {
    comms.push_back(std::move(made));
  }
  CHECK(comms.size() == 6);
  for (auto& made : comms) {
    CHECK(made.rank() == rank);
    CHECK(made.get_device() == device && made.get_context() == context);
    check_works(made, size);
  }
}

// Keeps the keys in the library's kvs, under names of its own.
class programs_kvs : public ccl::kvs_interface {
 public:
  explicit programs_kvs(ccl::shared_ptr_class<ccl::kvs> store) : store_(store) {}
  ccl::vector_class<char> get(const ccl::string_class& key) override { return store_->get(ccl::string_class("own-") + key); }
  void set(const ccl::string_class& key, const ccl::vector_class<char>& data) override {
    store_->set(ccl::string_class("own-") + key, data);
  }

 private:
  ccl::shared_ptr_class<ccl::kvs> store_;
};

void check_programs_kvs(const ccl::communicator& comm, const ccl::shared_ptr_class<ccl::kvs>& kvs) {
  auto own = std::make_shared<programs_kvs>(kvs);
  for (int i = 0; i < 2; ++i) check_works(ccl::create_communicator(comm.size(), comm.rank(), own), comm.size());
}

void check_split(ccl::communicator& comm) {
  const int size = comm.size(), rank = comm.rank();
  const int evens = (size + 1) / 2, odds = size / 2;
  auto by_color = comm.split(ccl::preview::create_comm_split_attr(ccl::attr_val<ccl::comm_split_attr_id::color>(rank % 2)));
  CHECK(by_color.rank() == rank / 2);
  check_works(by_color, rank % 2 ? odds : evens);

  auto backwards = comm.split(0, -rank);
  CHECK(backwards.rank() == size - 1 - rank);
  check_works(backwards, size);

  auto everyone = comm.split(
      ccl::preview::create_comm_split_attr(ccl::attr_val<ccl::comm_split_attr_id::group>(ccl::split_group::cluster)));
  check_works(everyone, size);

  auto without_last = ccl::split_communicator(comm, rank == size - 1 ? -1 : 3, 0);
  if (rank == size - 1) {
    CHECK(without_last.rank() == -1 && without_last.size() == 0);
    CHECK_THROWS(ccl::invalid_argument, "no ranks", ccl::barrier(without_last));
  } else {
    check_works(without_last, size - 1);
  }

  std::vector<std::pair<ccl::communicator, ccl::comm_split_attr>> to_split;
  to_split.emplace_back(std::move(everyone),
                        ccl::preview::create_comm_split_attr(ccl::attr_val<ccl::comm_split_attr_id::color>(1)));
  for (auto& made : ccl::preview::split_communicators(to_split)) check_works(made, size);
  for (auto& made : ccl::split_communicators(to_split)) check_works(made, size);

  CHECK_THROWS(ccl::invalid_argument, "color", comm.split(ccl::default_comm_split_attr));
}

// It waits for what is under way, though the event is there to wait for it as well.
void check_finalize_waits(const ccl::communicator& comm, const ccl::shared_ptr_class<ccl::kvs>& kvs) {
  auto last = ccl::create_communicator(comm.size(), comm.rank(), kvs);
  const size_t count = 1 << 18;
  std::vector<int> in(count, comm.rank() + 1), out(count);
  if (comm.rank() == comm.size() - 1) std::this_thread::sleep_for(std::chrono::milliseconds(300));
  auto event = ccl::allreduce(in.data(), out.data(), count, ccl::reduction::sum, last);
  last.finalize();
  CHECK(out == std::vector<int>(count, ranks::sum(comm.size(), 0)));
  CHECK(event.test());
  last.finalize();
}

void check_end(const ccl::communicator& comm, const ccl::shared_ptr_class<ccl::kvs>& kvs) {
  auto last = ccl::create_communicator(comm.size(), comm.rank(), kvs);
  ccl::barrier(last);
  last.finalize();
  CHECK(last.rank() == comm.rank());
  CHECK_THROWS(ccl::invalid_argument, "finalized", ccl::barrier(last));
  ccl::communicator moved(std::move(last));
  CHECK_THROWS(ccl::invalid_argument, "moved", last.rank());
}

void check_arguments(const ccl::shared_ptr_class<ccl::kvs>& kvs) {
  CHECK_THROWS(ccl::invalid_argument, "size", ccl::create_communicator(0, 0, kvs));
  CHECK_THROWS(ccl::invalid_argument, "rank", ccl::create_communicator(2, 2, kvs));
  CHECK_THROWS(ccl::invalid_argument, "rank", ccl::create_communicator(2, -1, kvs));
  CHECK_THROWS(ccl::invalid_argument, "kvs", ccl::create_communicator(1, 0, ccl::shared_ptr_class<ccl::kvs>()));
  CHECK_THROWS(ccl::invalid_argument, "devices",
               ccl::create_communicators(2, std::map<int, ccl::device>(), ccl::create_context(), kvs));
  CHECK_THROWS(ccl::unimplemented, "ranks",
               ccl::preview::create_communicators(2, {ccl::create_device()}, ccl::create_context(), kvs));
}

void run(ccl::communicator& comm, const ccl::shared_ptr_class<ccl::kvs>& kvs) {
  check_several_from_one_kvs(comm, kvs);
  check_programs_kvs(comm, kvs);
  check_split(comm);
  check_finalize_waits(comm, kvs);
  check_end(comm, kvs);
  check_arguments(kvs);
}
