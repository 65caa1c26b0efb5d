// Prints docs/environment.md; a test compares the two.
#include <cstdio>

#include "trireme/base/env.h"

int main() { return std::fputs(trireme::env::documentation().c_str(), stdout) < 0; }
