// Copying memory of the caller's, or that ranks of a host share.
#pragma once

#include <cstddef>

namespace trireme::ccl {

// Blocks from here on, together with where they go, no longer fit a core's cache: what is written is better sent around it.
inline constexpr size_t kCopyAroundCache = 1 << 20;

// Around the caches, whatever the size.
void copy_around_caches(void* to, const void* from, size_t bytes);

// Into the caches, by vector loads and stores: for memory that another core has written this takes half the time of a memcpy that
// leaves it to the processor's string instructions.
void copy_in_registers(void* to, const void* from, size_t bytes);
// To two places, reading once.
void copy_twice_in_registers(void* to, void* also, const void* from, size_t bytes);

// The memories may overlap only if they are the same, and then nothing is done. `whole` is the size of the block of which this is a piece.
void copy_own(void* to, const void* from, size_t bytes, size_t whole);

}  // namespace trireme::ccl
