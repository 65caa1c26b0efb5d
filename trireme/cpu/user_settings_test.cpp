#include "trireme/cpu/user_settings.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "trireme/base/error.h"
#include "trireme/cpu/temporary_root.h"

namespace trireme::cpu {
namespace {

// Every variable that counts is unset before a test and as it was after it.
class UserSettingsTest : public testing::Test {
 protected:
  static constexpr const char* kNames[] = {"OMP_NUM_THREADS",     "TORCHELASTIC_RUN_ID", "KMP_AFFINITY",     "KMP_HW_SUBSET",
                                           "GOMP_CPU_AFFINITY",   "OMP_PLACES",          "OMP_PROC_BIND",    "I_MPI_PIN",
                                           "I_MPI_PIN_DOMAIN",    "I_MPI_PIN_PROCS",     "TRIREME_PIN",      "I_MPI_PIN_PROCESSOR_LIST",
                                           "CCL_WORKER_AFFINITY", "CCL_WORKER_COUNT",    "CCL_WORKER_OFFLOAD", "ACCELERATE_MIXED_PRECISION"};
  void SetUp() override {
    for (const char* name : kNames) {
      const char* value = std::getenv(name);
      before_.push_back(value ? std::optional<std::string>(value) : std::nullopt);
      unsetenv(name);
    }
  }
  void TearDown() override {
    for (size_t i = 0; i < std::size(kNames); ++i) before_[i] ? setenv(kNames[i], before_[i]->c_str(), 1) : unsetenv(kNames[i]);
  }
  static void set(const char* name, const char* value) { setenv(name, value, 1); }

  // A worker (this process), a shell that starts it, and torchrun with an environment of its own.
  void make_torchrun(const std::string& environment) {
    root_.write("proc/self/status", "Name:\tpython\nPPid:\t12\n");
    root_.write("proc/12/status", "Name:\tbash\nPPid:\t11\n");
    root_.write("proc/12/environ", std::string("TORCHELASTIC_RUN_ID=x\0OMP_NUM_THREADS=1\0", 40));
    root_.write("proc/11/status", "Name:\ttorchrun\nPPid:\t1\n");
    root_.write("proc/11/environ", environment);
    set("TORCHELASTIC_RUN_ID", "x"), set("OMP_NUM_THREADS", "1");
  }

  TemporaryRoot root_;

 private:
  std::vector<std::optional<std::string>> before_;
};

TEST_F(UserSettingsTest, NothingSet) {
  UserSettings settings = read_user_settings(root_.path());
  EXPECT_TRUE(settings.pin);
  EXPECT_EQ(settings.threads, std::nullopt);
  EXPECT_FALSE(settings.torchrun_threads);
  EXPECT_EQ(settings.placed_by, "");
  EXPECT_EQ(settings.workers, 1);
  EXPECT_TRUE(settings.worker_affinity.empty());
}

TEST_F(UserSettingsTest, ThreadsAreTheOutermostNumber) {
  set("OMP_NUM_THREADS", "23");
  EXPECT_EQ(read_user_settings(root_.path()).threads, 23);
  set("OMP_NUM_THREADS", " 4,2");
  EXPECT_EQ(read_user_settings(root_.path()).threads, 4);
  for (const char* unusable : {"", " ", "many", "0", "-3", ",2", "99999999999"}) {
    set("OMP_NUM_THREADS", unusable);
    EXPECT_EQ(read_user_settings(root_.path()).threads, std::nullopt) << unusable;
  }
}

TEST_F(UserSettingsTest, TorchrunsOwnOneDoesNotCount) {
  make_torchrun(std::string("HOME=/\0OMP_NUM_THREADS_X=1\0", 27));
  UserSettings settings = read_user_settings(root_.path());
  EXPECT_EQ(settings.threads, std::nullopt);
  EXPECT_TRUE(settings.torchrun_threads);
}

TEST_F(UserSettingsTest, AUsersOneUnderTorchrunCounts) {
  make_torchrun(std::string("HOME=/\0OMP_NUM_THREADS=1\0", 25));
  UserSettings settings = read_user_settings(root_.path());
  EXPECT_EQ(settings.threads, 1);
  EXPECT_FALSE(settings.torchrun_threads);
}

TEST_F(UserSettingsTest, ATorchrunThatCannotBeReadIsTakenToHaveSetIt) {
  set("TORCHELASTIC_RUN_ID", "x"), set("OMP_NUM_THREADS", "1");
  EXPECT_TRUE(read_user_settings(root_.path()).torchrun_threads);
}

TEST_F(UserSettingsTest, OtherNumbersAreNeverTorchruns) {
  make_torchrun("");
  set("OMP_NUM_THREADS", "2");
  EXPECT_EQ(read_user_settings(root_.path()).threads, 2);
  unsetenv("TORCHELASTIC_RUN_ID");
  set("OMP_NUM_THREADS", "1");
  EXPECT_EQ(read_user_settings(root_.path()).threads, 1);
}

TEST_F(UserSettingsTest, EveryWayToPlaceThreadsIsSeen) {
  for (auto [name, value] : {std::pair("KMP_AFFINITY", "granularity=fine,compact,1,0"), std::pair("KMP_HW_SUBSET", "1t"),
                             std::pair("GOMP_CPU_AFFINITY", "0-7"), std::pair("OMP_PLACES", "cores"), std::pair("OMP_PROC_BIND", "close"),
                             std::pair("I_MPI_PIN_DOMAIN", "socket"), std::pair("I_MPI_PIN_PROCESSOR_LIST", "0,24")}) {
    set(name, value);
    EXPECT_EQ(read_user_settings(root_.path()).placed_by, name);
    unsetenv(name);
  }
}

// No runtime is loaded here that would read it.
TEST_F(UserSettingsTest, WhatAccelerateSetsForEverybodyIsNobodysWish) {
  set("ACCELERATE_MIXED_PRECISION", "no"), set("KMP_AFFINITY", "granularity=fine,compact,1,0");
  EXPECT_EQ(read_user_settings(root_.path()).placed_by, "");
  set("KMP_AFFINITY", "granularity=fine,compact");
  EXPECT_EQ(read_user_settings(root_.path()).placed_by, "KMP_AFFINITY");
}

TEST_F(UserSettingsTest, NotToPlaceIsNoPlace) {
  set("KMP_AFFINITY", "disabled"), set("OMP_PROC_BIND", "FALSE");
  set("I_MPI_PIN", "off"), set("I_MPI_PIN_DOMAIN", "socket");
  EXPECT_EQ(read_user_settings(root_.path()).placed_by, "");
}

TEST_F(UserSettingsTest, WorkersAndTheSwitch) {
  set("CCL_WORKER_COUNT", "4"), set("CCL_WORKER_AFFINITY", "3,7"), set("TRIREME_PIN", "0");
  UserSettings settings = read_user_settings(root_.path());
  EXPECT_EQ(settings.workers, 4);
  EXPECT_EQ(settings.worker_affinity, (std::vector<int>{3, 7}));
  EXPECT_FALSE(settings.pin);
  set("CCL_WORKER_OFFLOAD", "0");
  EXPECT_EQ(read_user_settings(root_.path()).workers, 0);
  set("TRIREME_PIN", "maybe");
  EXPECT_THROW(read_user_settings(root_.path()), InvalidArgument);
}

}  // namespace
}  // namespace trireme::cpu
