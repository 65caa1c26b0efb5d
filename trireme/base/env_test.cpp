#include "trireme/base/env.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

#include "trireme/base/error.h"

namespace trireme::env {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

// Sets a variable for one scope; nullptr unsets it.
class ScopedVariable {
 public:
  ScopedVariable(const char* name, const char* value) : name_(name) {
    if (const char* old = std::getenv(name)) previous_ = old, was_set_ = true;
    value ? setenv(name, value, 1) : unsetenv(name);
  }
  ~ScopedVariable() { was_set_ ? setenv(name_, previous_.c_str(), 1) : unsetenv(name_); }
  ScopedVariable(const ScopedVariable&) = delete;

 private:
  const char* name_;
  std::string previous_;
  bool was_set_ = false;
};

template <class Read>
std::string rejection(const char* name, const char* value, Read read) {
  ScopedVariable variable(name, value);
  try {
    read(name);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Env, UnsetAndEmptyMeanTheDefault) {
  for (const char* value : {static_cast<const char*>(nullptr), ""}) {
    ScopedVariable count("CCL_WORKER_COUNT", value);
    EXPECT_EQ(integer("CCL_WORKER_COUNT"), 1);
    EXPECT_FALSE(is_set("CCL_WORKER_COUNT"));
  }
}

TEST(Env, ReadsEveryType) {
  ScopedVariable count("CCL_WORKER_COUNT", "64"), spin("CCL_SPIN_COUNT", "-1"), offload("CCL_WORKER_OFFLOAD", "off"),
      peer("TRIREME_PEER_TIMEOUT_MS", "2000"), kvs("CCL_KVS_CONNECTION_TIMEOUT", "3"),
      segment("TRIREME_SEGMENT_BYTES", "64K"), fabric("TRIREME_FABRIC", "ofi"), host("TRIREME_HOST", "a|b c");
  EXPECT_EQ(integer("CCL_WORKER_COUNT"), 64);
  EXPECT_EQ(integer("CCL_SPIN_COUNT"), -1);
  EXPECT_FALSE(flag("CCL_WORKER_OFFLOAD"));
  EXPECT_EQ(duration("TRIREME_PEER_TIMEOUT_MS"), milliseconds(2000));
  EXPECT_EQ(duration("CCL_KVS_CONNECTION_TIMEOUT"), milliseconds(3000));
  EXPECT_EQ(bytes("TRIREME_SEGMENT_BYTES"), 65536u);
  EXPECT_EQ(text("TRIREME_FABRIC"), "ofi");
  EXPECT_EQ(text("TRIREME_HOST"), "a|b c");
  EXPECT_TRUE(is_set("TRIREME_HOST"));
}

TEST(Env, AWrongValueSaysWhatIsAllowed) {
  EXPECT_EQ(rejection("CCL_WORKER_COUNT", "abc", integer), "CCL_WORKER_COUNT=abc: expected an integer in 1..64");
  EXPECT_EQ(rejection("CCL_WORKER_COUNT", "65", integer), "CCL_WORKER_COUNT=65: expected an integer in 1..64");
  EXPECT_EQ(rejection("CCL_WORKER_COUNT", "4x", integer), "CCL_WORKER_COUNT=4x: expected an integer in 1..64");
  EXPECT_EQ(rejection("CCL_SPIN_COUNT", "-2", integer), "CCL_SPIN_COUNT=-2: expected an integer in -1..1000000000");
  EXPECT_EQ(rejection("TRIREME_FABRIC", "verbs", text), "TRIREME_FABRIC=verbs: expected tcp|ofi");
  EXPECT_EQ(rejection("TRIREME_FABRIC", "tcp|ofi", text), "TRIREME_FABRIC=tcp|ofi: expected tcp|ofi");
  EXPECT_EQ(rejection("TRIREME_REPORT", "2", flag), "TRIREME_REPORT=2: expected 0 or 1 (or off|on, false|true, no|yes)");
  EXPECT_THAT(rejection("TRIREME_PEER_TIMEOUT_MS", "2s", duration), HasSubstr("expected milliseconds"));
  EXPECT_THAT(rejection("TRIREME_PEER_TIMEOUT_MS", "0", duration), HasSubstr("in 1..86400000"));
  EXPECT_THAT(rejection("TRIREME_SEGMENT_BYTES", "4096", bytes), HasSubstr("65536"));
  EXPECT_THAT(rejection("TRIREME_SEGMENT_BYTES", "1t", bytes), HasSubstr("expected bytes such as 4096, 64k, 1m or 2g"));
}

TEST(Env, NumbersTooLargeAreRejectedNotWrapped) {
  EXPECT_NE(rejection("CCL_SPIN_COUNT", "99999999999999999999", integer), "accepted");
  EXPECT_NE(rejection("TRIREME_SEGMENT_BYTES", "9223372036854775807g", bytes), "accepted");
  EXPECT_NE(rejection("CCL_KVS_CONNECTION_TIMEOUT", "9223372036854775807", duration), "accepted");
}

TEST(Env, AskingForWhatIsNotInTheTableIsABug) {
  EXPECT_THROW(flag("TRIREME_NO_SUCH_THING"), InternalError);
  EXPECT_THROW(flag("CCL_WORKER_COUNT"), InternalError);
}

// Each row: a unique name, a sentence, and a default that its own rule accepts.
TEST(EnvTable, EveryRowIsSound) {
  std::set<std::string_view> names;
  for (const Variable& variable : table()) {
    SCOPED_TRACE(variable.name);
    ScopedVariable unset(std::string(variable.name).c_str(), nullptr);
    EXPECT_TRUE(names.insert(variable.name).second);
    EXPECT_FALSE(variable.sentence.empty());
    switch (variable.type) {
      case Type::flag: EXPECT_NO_THROW(flag(variable.name)); break;
      case Type::integer: EXPECT_NO_THROW(integer(variable.name)); break;
      case Type::milliseconds:
      case Type::seconds:
        EXPECT_NO_THROW(duration(variable.name));
        // An upper end, so that no sum of a time and a duration overflows.
        EXPECT_FALSE(variable.allowed.empty() || variable.allowed.ends_with("..")) << variable.allowed;
        break;
      case Type::bytes: EXPECT_NO_THROW(bytes(variable.name)); break;
      case Type::choice:
      case Type::text: EXPECT_NO_THROW(text(variable.name)); break;
    }
    EXPECT_THAT(documentation(), HasSubstr(str("| `", variable.name, "` |")));
  }
}

TEST(EnvDeathTest, UnknownVariablesAreNamedOnce) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  auto warn_twice = [] {
    setenv("TRIREME_TYPO", "1", 1);
    setenv("CCL_WORKER_COUNT", "2", 1);
    unsetenv("CCL_LOG_LEVEL");
    warn_about_unknown();
    warn_about_unknown();
    std::exit(0);
  };
  EXPECT_EXIT(warn_twice(), testing::ExitedWithCode(0), "^trireme: warn: [^\n]*TRIREME_TYPO[^\n]*\n$");
}

}  // namespace
}  // namespace trireme::env
