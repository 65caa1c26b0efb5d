// The version of the API, and what marks its symbols.
#pragma once

#define CCL_API __attribute__((visibility("default")))
#define CCL_DEPRECATED __attribute__((deprecated))
#define CCL_DEPRECATED_ENUM_FIELD __attribute__((deprecated))

#define ONECCL_SPEC_VERSION "1.0"

// The oneCCL whose API this is.
#define CCL_MAJOR_VERSION 2022
#define CCL_MINOR_VERSION 2
#define CCL_UPDATE_VERSION 0
#define CCL_PRODUCT_STATUS "Trireme"
// Empty, so that a build can be reproduced bit for bit.
#define CCL_PRODUCT_BUILD_DATE ""
#define CCL_PRODUCT_FULL "Trireme, with the API of oneCCL 2022.2.0"
