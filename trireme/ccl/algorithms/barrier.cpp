// Barrier: in the host by meeting, between hosts by an exchange of empty messages among the first ranks.
#include "trireme/ccl/algorithms/inline.h"

namespace trireme::ccl {

// Dissemination: in round k every host tells the one 2^k further and hears from the one 2^k before. ceil(log2 H) rounds.
static Task disseminate(OpContext& run) {
  const Topology& topology = run.topology();
  int hosts = topology.host_count();
  uint32_t round = 0;
  for (int distance = 1; distance < hosts; distance *= 2, ++round) {
    int to = (topology.my_host() + distance) % hosts, from = (topology.my_host() + hosts - distance) % hosts;
    Transfer receive = run.transfer(topology.lane_rank(from, 0), round, nullptr, 0);
    Transfer send = run.transfer(topology.lane_rank(to, 0), round, nullptr, 0);
    run.post_receive(receive);
    run.post_send(send);
    co_await run.done(receive);
    co_await run.done(send);
  }
}

Task barrier(OpContext& run) {
  co_await run.may_enter();
  run.announce_inline(nullptr, 0);
  co_await run.all_reached(kEntered);
  run.check_records();
  if (run.local() == 0) {
    co_await disseminate(run);
    run.reach(kPartReady);
  } else {
    co_await run.reached(0, kPartReady);
  }
}

Task run_collective(OpContext& run) {
  if (fits_inline(run.comm, run.op)) return meet_inline(run, false);
  run.note_buffers();
  switch (run.op.kind) {
    case OpKind::barrier:
      return barrier(run);
    case OpKind::allreduce:
      return allreduce(run);
    case OpKind::reduce:
      return reduce(run);
    case OpKind::broadcast:
      return broadcast(run);
    case OpKind::allgather:
      return allgather(run);
    case OpKind::alltoall:
      return alltoall(run);
    case OpKind::reduce_scatter:
      return reduce_scatter(run);
    case OpKind::gather:
      return gather(run);
    case OpKind::scatter:
      return scatter(run);
    case OpKind::send:
    case OpKind::recv:
      break;
  }
  return {};
}

}  // namespace trireme::ccl
