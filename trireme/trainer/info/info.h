// `trireme info`: this machine as a run would see it, what a run would choose, and why.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "trireme/trainer/json/json.h"

namespace trireme::trainer {

// Sections in the order in which they are shown, each an object of names and values (a text, a number, a truth value or a
// list of texts). What cannot be found out is a sentence that says so: nothing is thrown. Loads libfabric if it is there and
// starts one short-lived child; changes nothing in this process.
//
// The plan is for so many ranks on this host and so many hosts; where they are not given, for what the launcher says, or for one.
Json collect_info(std::optional<int> ranks_on_host = {}, std::optional<int> hosts = {});

// A value, or the sentence that says why there is none.
Json found_out(const std::function<Json()>& find);

// The same for people: a heading for each section, a line for each name, at most `width` columns where words allow it.
std::string info_text(const Json& info, size_t width = 100);

// Parts of collect_info(), with a root that a test may point elsewhere.
Json memory_section(const std::filesystem::path& root = "/");
Json settings_section();

// May the processes of a user read each other's memory here (process_vm_readv)? Tried between this process and a child.
bool direct_reads_are_permitted();

}  // namespace trireme::trainer
