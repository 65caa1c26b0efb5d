// A communicator's inside: its queue of operations, and the turn-taking of the threads that carry them out.
//
// One thread at a time drives: it polls the engine, which resumes the operations' coroutines. It is a waiting caller, or a worker when
// nobody waits. Collectives run one after another in the order of submission; point-to-point operations run beside them.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/deadline.h"
#include "trireme/ccl/algorithms/op_context.h"
#include "trireme/ccl/bootstrap/control.h"
#include "trireme/ccl/bootstrap/forked_child.h"
#include "trireme/ccl/bootstrap/frame.h"
#include "trireme/ccl/comm/communicator.h"
#include "trireme/ccl/engine/engine.h"
#include "trireme/ccl/fabric/messenger.h"
#include "trireme/ccl/node/local_meeting.h"
#include "trireme/ccl/node/node.h"

namespace trireme::ccl {

class CommunicatorState;

// Filled by the driver; read by others once `finished`.
struct RequestState {
  RequestState(std::shared_ptr<CommunicatorState> communicator, Operation operation, Deadline until)
      : comm(std::move(communicator)), op(std::move(operation)), deadline(until) {}

  std::shared_ptr<CommunicatorState> comm;
  Operation op;
  Deadline deadline;
  uint64_t number = 0;
  uint64_t announced_as = 0;  // its number, if its first step was done when it was submitted
  std::unique_ptr<OpContext> run;
  Task task;
  Transfer transfer;  // of point-to-point operations
  std::exception_ptr error;
  std::atomic<bool> finished{false};
};
using RequestPtr = std::shared_ptr<RequestState>;

// The process of another rank of this host, by which its end is seen at once.
struct PeerProcess {
  int rank = 0;
  pid_t pid = 0;
  std::shared_ptr<ProcessFd> pidfd;  // null: gone, or it cannot be watched
  bool gone = false;
};

// What creation hands over.
struct CommunicatorParts {
  int rank = 0;
  std::vector<int> hosts;
  std::vector<std::string> host_names;
  LocalGroup local;
  std::vector<PeerProcess> processes;
  std::vector<std::vector<std::unique_ptr<Stream>>> streams;  // by rank; empty for ranks of this host
  std::vector<std::string> ways;  // by rank, on several hosts: interface and address of its connections to the others
  std::unique_ptr<BulkLane> bulk;
  std::unique_ptr<Control> control;  // kept where it is needed to see who is alive
  CommunicatorOptions options;
};

// Threads may share it.
class CommunicatorState : public std::enable_shared_from_this<CommunicatorState> {
 public:
  explicit CommunicatorState(CommunicatorParts parts);
  ~CommunicatorState();
  // After construction, when shared_from_this works: begins to watch the peers.
  void open();
  // Orderly end: tells the others, stops watching. What is still pending fails with Aborted; a collective under way then fails on all ranks.
  // The second time nothing happens.
  void close();
  // This process was forked from the one that made the communicator. It has none of the threads, descriptors and memory that this speaks of:
  // abort() does nothing here, submit(), wait(), nudge() and hand_over() throw InvalidArgument, and it is not closed.
  bool in_forked_child() const { return generation_ != fork_generation(); }

  const Topology& topology() const { return topology_; }
  const CommunicatorOptions& options() const { return options_; }
  std::string describe() const;
  std::string report();
  // TRIREME_REPORT
  bool reports() const { return reports_; }

  // Null: it is complete already.
  RequestPtr submit(Operation&& op);
  // False when the deadline passed first. Does not throw what the operation failed with.
  bool wait(RequestState& request, Deadline deadline);
  // Until nothing that was submitted is pending.
  void wait_for_all();
  // One round of progress if nobody else is at it.
  void nudge();
  // Calls a worker to what is pending, also with CCL_WORKER_OFFLOAD=0.
  void hand_over();

  void abort(const std::string& reason);
  std::exception_ptr error();

  // ---- for the workers
  // How many communicators this process had made before.
  size_t creation_number() const { return creation_number_; }
  bool closed() const { return closing_.load(std::memory_order_acquire); }
  bool has_work() const { return pending_.load(std::memory_order_seq_cst) != 0 || unsent_.load(std::memory_order_seq_cst); }
  bool try_drive() {
    if (driving_.exchange(true, std::memory_order_acquire)) return false;
    turns_.store(turns_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);  // only who has the turn writes it
    return true;
  }
  // How often somebody has taken the turn.
  uint64_t turns() const { return turns_.load(std::memory_order_relaxed); }
  // Drives until `stop`, which it asks again no later than `until`. The caller has the turn.
  enum class Patience { caller, worker };
  void drive(const std::function<bool()>& stop, Patience patience, Deadline until = Deadline::never());
  // A few rounds, without sleeping: for a thread that has several communicators to look after.
  bool drive_briefly();
  void stop_driving();
  // Gives the turn back at the end of a scope, whatever ends it.
  class Turn {
   public:
    explicit Turn(CommunicatorState& owner) : owner_(owner) {}
    ~Turn() noexcept(false) { owner_.stop_driving(); }
    Turn(const Turn&) = delete;

   private:
    CommunicatorState& owner_;
  };
  // Makes a sleeping driver look up.
  void interrupt();
  std::atomic<bool> looked_after{false};  // a worker looks in now and then without being called
  void worker_took_over() { blocking_streak_.store(0, std::memory_order_relaxed); }

 private:
  std::string describe_ways() const;
  void refuse_forked_child() const;
  bool run_at_once(Operation& op, RequestPtr& request);
  RequestPtr make_request(Operation& op);
  RequestPtr enqueue(Operation& op);
  void call_for_progress(RequestState& request);
  template <class Over>
  bool wait_until(const Over& over, Deadline deadline);
  bool poll();
  bool take_inbox();
  void start(const RequestPtr& request);
  bool start_next_collective();
  bool reap();
  void end(const RequestPtr& request);
  void finish(const RequestPtr& request, std::exception_ptr error);
  void fail(const std::exception_ptr& error);
  void await_users_of_buffers() const;
  void await_first_cause();
  void end_collective_under_way();
  void end_pending();
  void poison(PoisonNote note, int except);
  void check_deadlines();
  void check_deadline(const RequestState& request);
  std::string missing_ranks(const RequestState& request);
  struct Idle {
    Patience patience;
    Deadline until;
    int rounds = 0;
    std::chrono::steady_clock::time_point since{};
  };
  void idle(Idle& idle);
  void sleep(Deadline until);
  void remember_waits();
  Task collective(RequestState& request);
  Task point_to_point(RequestState& request);
  void watch_peers();
  void peer_died(int rank, const std::string& how);
  bool take_notice(int from);
  void begin_heartbeats();
  void send_heartbeats();
  static void beat(int fd);
  void tell_others(const PoisonNote& note, int except);
  void tell(int fd, const std::string& frame);

  static inline std::atomic<size_t> created_{0};
  const unsigned generation_ = fork_generation();
  const size_t creation_number_ = created_.fetch_add(1, std::memory_order_relaxed);
  CommunicatorOptions options_;
  Topology topology_;
  std::vector<std::string> host_names_;
  std::vector<std::string> ways_;
  Engine engine_;
  std::unique_ptr<BulkLane> bulk_;
  std::unique_ptr<Control> control_;
  std::vector<LocalPeer> local_peers_;
  PeerMemory::Access access_;
  std::unique_ptr<Node> node_;
  std::unique_ptr<DirectReader> reader_;
  std::unique_ptr<Messenger> messenger_;
  std::optional<CommContext> context_;

  // Submitted, not yet seen by the driver.
  std::mutex inbox_mutex_;
  std::vector<RequestPtr> inbox_;
  bool ended_ = false;  // nobody will look into it again
  std::atomic<size_t> inbox_size_{0};

  // The driver's.
  std::deque<RequestPtr> collectives_;  // the first one runs
  bool collective_started_ = false;
  Deadline earliest_queued_ = Deadline::never();  // no later than that of any of them, but for what was announced at once
  std::list<RequestPtr> messages_;
  uint64_t last_number_ = 0;
  int spin_rounds_ = 0;
  int at_once_rounds_ = 0;
  bool spin_by_time_ = false;

  // Taking turns.
  std::atomic<bool> driving_{false};
  std::atomic<uint64_t> turns_{0};
  std::atomic<bool> asleep_{false};
  Idle nudged_{Patience::caller, Deadline::never()};  // of calls of nudge() in which nothing moved
  std::atomic<size_t> pending_{0};
  std::atomic<bool> unsent_{false};
  std::atomic<int> blocked_{0};
  std::mutex wait_mutex_;
  std::condition_variable wait_changed_;
  std::atomic<int> blocking_streak_{0};
  bool offload_ = true;
  bool reports_ = false;

  // For reports.
  std::mutex report_mutex_;
  std::string waits_;
  std::vector<std::chrono::nanoseconds> waited_;

  // The end.
  std::mutex poison_mutex_;
  std::exception_ptr poison_;
  std::atomic<bool> poisoned_{false};
  std::atomic<bool> told_{false};  // the other hosts have been told
  std::atomic<bool> closing_{false};
  std::vector<bool> departed_;  // ranks that said they were leaving; under poison_mutex_
  std::vector<uint64_t> watches_;
  std::vector<PeerProcess> processes_;
  std::vector<std::unique_ptr<FrameAssembler>> notices_;  // by rank, where there is a control connection
  ProcessFd heartbeat_;          // rank 0's timer
  std::vector<int> unanswered_;  // heartbeats, by rank; the watcher's
};

}  // namespace trireme::ccl
