// How the ranks of a test's program find each other: RANK, WORLD_SIZE, and STORE, a path where rank 0 leaves the store's address.
#pragma once

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <thread>

#include "trireme/ccl/bootstrap/tcp_store.h"

namespace trireme::ccl {

struct Place {
  int rank, size;
  std::string store_path;
};

inline Place place_from_environment() { return {std::atoi(getenv("RANK")), std::atoi(getenv("WORLD_SIZE")), getenv("STORE")}; }

// Rank 0 serves the store and leaves its address in a file; the file appears whole.
inline std::shared_ptr<Store> meet(const Place& place) {
  const std::string& path = place.store_path;
  StoreAddress address{};
  if (place.rank == 0) {
    auto store = make_tcp_store_server("", address);
    std::ofstream(path + ".new", std::ios::binary).write(address.data(), address.size());
    std::rename((path + ".new").c_str(), path.c_str());
    return store;
  }
  while (access(path.c_str(), R_OK) != 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  std::ifstream(path, std::ios::binary).read(address.data(), address.size());
  return make_tcp_store_client(address);
}

// A program's main: what `run` throws is printed, and the exit code 3.
template <class Run>
int run_and_report(Run run) {
  try {
    return run();
  } catch (const std::exception& error) {
    std::printf("failed: %s\n", error.what());
    return 3;
  }
}

}  // namespace trireme::ccl
