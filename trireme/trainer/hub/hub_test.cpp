// What needs no server. tests/trainer/test_hub.py has the rest.
#include "trireme/trainer/hub/hub.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "trireme/trainer/hub/cache.h"
#include "trireme/trainer/hub/content_check.h"
#include "trireme/trainer/hub/download.h"
#include "trireme/trainer/hub/file_lock.h"

namespace trireme::trainer {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

class Environment : public testing::Test {
 protected:
  Environment() : folder_(testing::TempDir() + str("hub_test.", ::getpid())) {
    std::filesystem::create_directory(folder_);
    for (const char* name :
         {"HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "TRANSFORMERS_CACHE", "XDG_CACHE_HOME", "HF_DATASETS_CACHE",
          "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_TOKEN_PATH", "HF_ENDPOINT", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE",
          "HF_DATASETS_OFFLINE", "HF_HUB_ETAG_TIMEOUT", "HF_HUB_DOWNLOAD_TIMEOUT", "TRIREME_SQUAD_URL"}) {
      ::unsetenv(name);
    }
    ::setenv("HOME", folder_.c_str(), 1);
  }
  ~Environment() override { std::filesystem::remove_all(folder_); }

  static HubSettings with(std::initializer_list<std::pair<const char*, std::string>> variables) {
    for (const auto& [name, value] : variables) ::setenv(name, value.c_str(), 1);
    return HubSettings::from_environment();
  }

  std::filesystem::path folder_;
};

std::string sha1(const std::string& text) {
  Sha1 hash;
  for (const char c : text) hash.update(&c, 1);
  const auto digest = hash.finish();
  return hexadecimal(digest.data(), digest.size());
}

TEST(Sha1, GivesThePublishedDigests) {
  EXPECT_EQ(sha1(""), "da39a3ee5e6b4b0d3255bfef95601890afd80709");
  EXPECT_EQ(sha1("abc"), "a9993e364706816aba3e25717850c26c9cd0d89d");
  EXPECT_EQ(sha1("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"), "84983e441c3bd26ebaae4aa1f95129e5e54670f1");
  EXPECT_EQ(sha1(std::string(1'000'000, 'a')), "34aa973cd4c4daa4f61eeb2bdbad27316534016f");
}

std::string difference(const std::string& etag, const std::string& content) {
  ContentCheck check(etag, content.size());
  check.update(content.data(), content.size());
  return check.difference();
}

TEST(ContentCheck, KnowsTheHubsEtagsByTheirForm) {
  EXPECT_EQ(difference("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad", "abc"), "");
  EXPECT_THAT(difference("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad", "abd"),
              HasSubstr("SHA-256 is a52d159f"));
  EXPECT_EQ(difference("f2ba8f84ab5c1bce84a7b441cb1959cfc7093b7f", "abc"), "");  // printf abc | git hash-object --stdin
  EXPECT_THAT(difference("f2ba8f84ab5c1bce84a7b441cb1959cfc7093b7f", "abd"), HasSubstr("git's SHA-1"));
  EXPECT_FALSE(ContentCheck("5d41402abc4b2a76b9719d911017c592-2", 3).is_possible());
  EXPECT_EQ(difference("5d41402abc4b2a76b9719d911017c592-2", "abc"), "");
}

TEST(Etag, BecomesAFilesNameOnlyIfItIsSafe) {
  EXPECT_EQ(plain_etag("\"abc\""), "abc");
  EXPECT_EQ(plain_etag("W/\"abc-1\""), "abc-1");
  for (const char* evil : {"", "\"\"", "\"../x\"", "\"a/b\"", "\".x\"", "\"a b\""}) EXPECT_EQ(plain_etag(evil), "") << evil;
}

TEST(Redirect, LeadsWhereAClientWouldGo) {
  const auto target = [](const std::string& url, const std::string& location) {
    HttpResponse response;
    response.url = url, response.status = 302, response.headers["location"] = location;
    return redirect_target(response);
  };
  EXPECT_EQ(target("https://a.b/x/y?z", "/other?q=1"), "https://a.b/other?q=1");
  EXPECT_EQ(target("http://a.b:81/x/y", "w"), "http://a.b:81/x/w");
  EXPECT_EQ(target("https://a.b/x", "https://c.d/"), "https://c.d/");
  EXPECT_THAT([&] { target("https://a.b/x", "http://a.b/x"); }, ThrowsMessage<IoError>(HasSubstr("not https")));
  EXPECT_THAT([&] { target("http://a.b/x", "file:///etc/passwd"); }, ThrowsMessage<IoError>(HasSubstr("not https")));
  EXPECT_EQ(origin_of("https://a.b/x"), origin_of("https://a.b:443/y"));
  EXPECT_NE(origin_of("https://a.b/x"), origin_of("http://a.b/x"));
  EXPECT_NE(origin_of("http://a.b/x"), origin_of("http://a.b:81/x"));
  EXPECT_NE(origin_of("https://a.b@c.d/x"), origin_of("https://a.b/x"));
}

TEST_F(Environment, TheCacheIsWhereHuggingFaceHasIt) {
  EXPECT_EQ(with({}).cache_dir, folder_ / ".cache/huggingface/hub");
  EXPECT_EQ(with({}).datasets_dir, folder_ / ".cache/huggingface/datasets");
  EXPECT_EQ(with({{"XDG_CACHE_HOME", "/xdg"}}).cache_dir, "/xdg/huggingface/hub");
  EXPECT_EQ(with({{"HF_HOME", "~/hf"}}).cache_dir, folder_ / "hf/hub");
  EXPECT_EQ(with({{"PLACE", "here"}, {"HF_HOME", "/a/$PLACE/${PLACE}b/$NOT_SET/$"}}).cache_dir,
            "/a/here/hereb/$NOT_SET/$/hub");
  EXPECT_EQ(with({{"HUGGINGFACE_HUB_CACHE", "/old"}}).cache_dir, "/old");
  EXPECT_EQ(with({{"HF_HUB_CACHE", "/new"}}).cache_dir, "/new");
  EXPECT_EQ(with({{"TRANSFORMERS_CACHE", "/t"}}).cache_dir, "/t");
  EXPECT_EQ(HubSettings::from_environment("/flag").cache_dir, "/flag");
  EXPECT_EQ(with({{"HF_DATASETS_CACHE", "/d"}}).datasets_dir, "/d");
  EXPECT_EQ(HubSettings::from_environment("/flag").datasets_dir, "/flag");
}

TEST_F(Environment, TheTokenComesFromAVariableOrAFile) {
  EXPECT_EQ(with({{"HF_HOME", folder_}}).token, "");
  std::ofstream(folder_ / "token") << " hf_file\n";
  EXPECT_EQ(with({}).token, "hf_file");
  std::ofstream(folder_ / "other") << "hf_other";
  EXPECT_EQ(with({{"HF_TOKEN_PATH", folder_ / "other"}}).token, "hf_other");
  EXPECT_EQ(with({{"HF_TOKEN", "hf_variable\n"}}).token, "hf_variable");
  EXPECT_THAT([] { with({{"HF_TOKEN", "a\nX-Evil: b"}}); }, ThrowsMessage<InvalidArgument>(HasSubstr("no token has")));
}

TEST_F(Environment, SwitchesAndUrls) {
  HubSettings settings = with({});
  EXPECT_EQ(settings.endpoint, "https://huggingface.co");
  EXPECT_FALSE(settings.offline || settings.datasets_offline);
  settings = with({{"HF_ENDPOINT", "http://127.0.0.1:1/"}, {"HF_DATASETS_OFFLINE", "1"}, {"HF_HUB_DOWNLOAD_TIMEOUT", "3"}});
  EXPECT_EQ(settings.endpoint, "http://127.0.0.1:1");
  EXPECT_TRUE(settings.datasets_offline && !settings.offline);
  EXPECT_EQ(settings.stall_timeout.count(), 3);
  EXPECT_TRUE(with({{"TRANSFORMERS_OFFLINE", "yes"}}).offline);
  EXPECT_THAT([] { with({{"HF_ENDPOINT", "ftp://x"}}); }, ThrowsMessage<InvalidArgument>(HasSubstr("HF_ENDPOINT=ftp://x")));
  ::unsetenv("HF_ENDPOINT");
  EXPECT_THAT(
      [] {
        with({{"HF_HUB_ETAG_TIMEOUT", "soon"}});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("whole number of seconds")));
}

TEST_F(Environment, WhatIsNoNameIsNotAskedFor) {
  const HubSettings settings = with({{"HF_ENDPOINT", "http://127.0.0.1:1"}, {"HF_HUB_OFFLINE", "1"}});
  for (const char* name : {"", "/no/where", "./nowhere", "a/b/c", "../a", "a--b", "a b", "-a", "a.", "a/..", "org/"}) {
    EXPECT_THAT([&] { model_directory(name, settings); },
                ThrowsMessage<InvalidArgument>(HasSubstr("neither a directory nor")))
        << name;
  }
  for (const char* revision : {"", "../x", "/x", "a/../b"}) {
    EXPECT_THAT([&] { model_directory("org/name", settings, revision); },
                ThrowsMessage<InvalidArgument>(HasSubstr("not a revision")));
  }
  EXPECT_THAT([&] { model_directory(folder_, settings); }, ThrowsMessage<InvalidArgument>(HasSubstr("has no config.json")));
  std::ofstream(folder_ / "config.json") << "{}";
  EXPECT_EQ(model_directory(folder_, settings), folder_);
  EXPECT_THAT([&] { model_directory("org/name", settings); },
              ThrowsMessage<IoError>(HasSubstr((folder_ / ".cache/huggingface/hub/models--org--name").string())));
  EXPECT_THAT([&] { dataset_file("glue", true, settings); },
              ThrowsMessage<InvalidArgument>(HasSubstr("squad and squad_v2 are")));
  EXPECT_THAT([&] { dataset_file("squad", true, settings, "x"); },
              ThrowsMessage<InvalidArgument>(HasSubstr("\"plain_text\"")));
  EXPECT_THAT([&] { dataset_file("rajpurkar/squad_v2", false, settings, "squad_v2"); },
              ThrowsMessage<IoError>(
                  HasSubstr("Put dev-v2.0.json into " + (folder_ / ".cache/huggingface/datasets/trireme-squad").string())));
}

TEST_F(Environment, ALockIsWaitedForAsLongAsItsHolderAdvances) {
  const auto lock = folder_ / "x.lock", watched = folder_ / "x.incomplete";
  {
    UniqueFd holder(::open(lock.c_str(), O_RDWR | O_CREAT, 0666));
    ASSERT_EQ(::flock(holder.get(), LOCK_EX), 0);
    EXPECT_THAT([&] { FileLock(lock, watched, std::chrono::seconds(0)); },
                ThrowsMessage<Timeout>(HasSubstr("another process holds")));
  }
  FileLock(lock, watched, std::chrono::seconds(0));
}

}  // namespace
}  // namespace trireme::trainer
