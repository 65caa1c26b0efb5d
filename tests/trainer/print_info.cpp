// `trireme info` alone, for the tests: print_info [--ranks N] [--hosts N] [--json].
#include <iostream>

#include "trireme/base/error.h"
#include "trireme/trainer/info/info.h"
#include "trireme/trainer/options/small_options.h"

int main(int count, char** words) {
  using namespace trireme::trainer;
  try {
    const InfoOptions options = parse_info({words + 1, words + count}).options;
    const Json info = collect_info(options.ranks, options.hosts);
    std::cout << (options.json ? info.dump(2) + "\n" : info_text(info));
    return 0;
  } catch (const trireme::Error& error) {
    std::cerr << error.what() << '\n';
    return 2;
  }
}
