// Collectives small enough to travel inside the records, or in early slots beside them, within one host: everybody announces, everybody waits for all,
// everybody reads. One meeting. Because nothing is left to do for others after it, such an operation can also be finished by its caller at once, without
// a coroutine, when the others are here already.
#pragma once

#include "trireme/ccl/algorithms/op_context.h"

namespace trireme::ccl {

// The same answer on every rank as far as the records go; of what needs an early slot a rank may think otherwise.
bool fits_inline(const CommContext& comm, const Operation& op);
// The first step. Who takes it calls node().wake_sleepers() before it leaves.
void show_payload(OpContext& run);
// What there is to do when all have. Throws what check_records() throws. False: somebody's payload did not come along, and meet_inline has to go on.
bool finish_inline(OpContext& run);

// The whole of it as a coroutine; `announced`: the first step has been done.
Task meet_inline(OpContext& run, bool announced);

}  // namespace trireme::ccl
