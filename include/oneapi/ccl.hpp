// oneCCL's C++ API for host memory: a program written for oneCCL's ccl.hpp (2021.14 to 2022.2) compiles unchanged, from
// C++11 on, and links with -lccl. What needs a device (SYCL queues, buffers, events) throws ccl::unsupported.
#pragma once

#include "oneapi/ccl/aliases.hpp"
#include "oneapi/ccl/attributes.hpp"
#include "oneapi/ccl/communicator.hpp"
#include "oneapi/ccl/config.h"
#include "oneapi/ccl/device.hpp"
#include "oneapi/ccl/event.hpp"
#include "oneapi/ccl/exception.hpp"
#include "oneapi/ccl/kvs.hpp"
#include "oneapi/ccl/library.hpp"
#include "oneapi/ccl/lp_types.hpp"
#include "oneapi/ccl/memory.hpp"
#include "oneapi/ccl/operations.hpp"
#include "oneapi/ccl/reductions.hpp"
#include "oneapi/ccl/string.hpp"
#include "oneapi/ccl/type_traits.hpp"
#include "oneapi/ccl/types.hpp"

namespace oneapi {
namespace ccl = ::ccl;
}
