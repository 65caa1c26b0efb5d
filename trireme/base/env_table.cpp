// The rows of the table. A new variable is a new row here; docs/environment.md is printed from it.
#include "trireme/base/env.h"

namespace trireme::env {

namespace {

constexpr Variable kTable[] = {
    // Progress.
    {"CCL_WORKER_COUNT", Type::integer, "1", "1..64", "Worker threads of a process."},
    {"CCL_WORKER_AFFINITY", Type::text, "auto", "",
     "CPUs the workers are pinned to: a list such as `3,4,7-9` with one for each worker of each rank of the host, in rank order, "
     "or one for each worker of every rank; fewer are an error, more are not used. `auto`: as chosen with TRIREME_PIN, or else the "
     "last ones that the process may use, where that leaves every rank one to compute on."},
    {"CCL_WORKER_OFFLOAD", Type::flag, "1", "", "0: the calling thread does the work; a worker is there only for what a program has handed over, as torch's futures do."},
    {"CCL_SPIN_COUNT", Type::integer, "-1", "-1..1000000000",
     "Rounds of polling before a waiting thread sleeps. -1: automatic: a few when there are more ranks than cores, else up to "
     "50 ms for a caller and about 0.1 ms for a worker."},
    {"CCL_UNORDERED_COLL", Type::choice, "0", "0",
     "oneCCL's matching of operations by match_id is not supported: every rank must submit in the same order. Only 0 is accepted."},

    // Who is in the job, and where.
    {"CCL_PROCESS_LAUNCHER", Type::choice, "", "hydra|torchrun|pmix|none",
     "Who started the processes, and so which variables tell a process its rank. Unset: whoever left its variables, as always for `env://` in Python."},
    {"CCL_LOCAL_RANK", Type::integer, "0", "0..65535", "Rank within the host, with CCL_PROCESS_LAUNCHER=none; less than CCL_LOCAL_SIZE."},
    {"CCL_LOCAL_SIZE", Type::integer, "1", "1..65536", "Ranks on the host, with CCL_PROCESS_LAUNCHER=none."},
    {"CCL_KVS_IFACE", Type::text, "", "", "Another name of TRIREME_IFACE, which counts where both are set."},
    {"CCL_KVS_IP_PORT", Type::text, "", "", "`address_port` of the main kvs. Empty: chosen by the rank that makes it."},
    {"CCL_KVS_CONNECTION_TIMEOUT", Type::seconds, "120", "1..86400", "How long a rank tries to reach the kvs."},

    // Transports.
    {"CCL_ATL_TRANSPORT", Type::choice, "mpi", "mpi|ofi",
     "oneCCL's choice. `ofi`: where TRIREME_FABRIC is unset, libfabric carries data between hosts if every rank can use it. `mpi`: "
     "no MPI is needed, it changes nothing."},
    {"TRIREME_FABRIC", Type::choice, "tcp", "tcp|ofi",
     "What carries data between hosts: our TCP, or libfabric (verbs, EFA, psm3; see FI_PROVIDER)."},
    {"TRIREME_IFACE", Type::text, "", "",
     "Interface or address of this host that others reach it by. Empty: the one that reaches rank 0."},
    {"TRIREME_TCP_STREAMS", Type::integer, "1", "1..16", "TCP connections per pair of ranks."},
    {"TRIREME_SHARED_MEMORY", Type::flag, "1", "", "0: ranks of one host use the fabric as if they were apart."},
    {"TRIREME_DIRECT_READ", Type::flag, "1", "",
     "Read a peer's memory with process_vm_readv where the kernel permits it. 0: copy through shared memory."},
    {"TRIREME_NODE_WAY", Type::choice, "auto", "auto|direct|slots|past|around",
     "How ranks of one host move large private buffers: out of each other's memory, or through slots in shared memory, where results "
     "(`past`), or all that is written (`around`), may go around the caches. `auto`: whichever is found to be the fastest. Where `direct` is not possible it "
     "is slots. The host's first rank decides."},
    {"TRIREME_SEGMENT_BYTES", Type::bytes, "2m", "65536..", "Staging memory per rank in the shared segment: its slots. Best larger than a second-level cache."},
    {"TRIREME_HUGE_PAGES", Type::flag, "1", "",
     "Ask the kernel (Linux 6.1 or later) for huge pages under large buffers that operations come back with, unless the machine's setting is never. 0: leave them as they are."},
    {"TRIREME_HOST", Type::text, "", "",
     "A label: ranks with different labels never share memory. Empty: the host decides."},

    // Failure.
    {"TRIREME_PEER_TIMEOUT_MS", Type::milliseconds, "15000", "1..86400000",
     "A peer whose host has been silent for this long counts as lost. A process that dies is seen at once."},
    {"TRIREME_TIMEOUT_MS", Type::milliseconds, "0", "0..1000000000", "How long an operation may take. 0: for ever."},

    // Algorithms.
    {"CCL_ALLREDUCE", Type::text, "", "",
     "`algorithm[:range][;...]`, a range being bytes such as `0-4096` or `65536-max`; docs/ccl.md has the names. Empty: chosen by size."},
    {"CCL_ALLGATHER", Type::text, "", "", "As CCL_ALLREDUCE."},
    {"CCL_ALLGATHERV", Type::text, "", "", "As CCL_ALLREDUCE."},
    {"CCL_ALLTOALL", Type::text, "", "", "As CCL_ALLREDUCE."},
    {"CCL_ALLTOALLV", Type::text, "", "", "As CCL_ALLREDUCE."},
    {"CCL_BARRIER", Type::text, "", "", "As CCL_ALLREDUCE."},
    {"CCL_BCAST", Type::text, "", "", "As CCL_ALLREDUCE."},
    {"CCL_BROADCAST", Type::text, "", "", "As CCL_ALLREDUCE."},
    {"CCL_REDUCE", Type::text, "", "", "As CCL_ALLREDUCE."},
    {"CCL_REDUCE_SCATTER", Type::text, "", "", "As CCL_ALLREDUCE."},
    {"TRIREME_MAX_ISA", Type::choice, "avx512", "scalar|avx2|avx512",
     "The highest vector instructions to use; the CPU may offer less."},

    // Threads and cores.
    {"TRIREME_PIN", Type::flag, "1", "",
     "1: a program that asks for it (the `ccl` backend for PyTorch does) gets threads, cores and memory chosen from what is granted, as far as "
     "the user has not chosen them; see docs/threads.md. 0: they are left as they are."},

    // Training.
    {"TRIREME_BF16", Type::choice, "auto", "auto|native|emulate",
     "What a run that asks for bf16 computes in. `native`: bf16 matrix products. `emulate`: fp32. `auto`: native where the CPU "
     "has AMX-BF16 or AVX512-BF16, TRIREME_MAX_ISA permits it, and torch's bf16 matrix product is found to be at least 1.2 "
     "times as fast as fp32's."},
    {"TRIREME_DETERMINISTIC", Type::flag, "0", "",
     "1: training gives the same bits for any number of threads. Sets MKL_CBWR before torch's first matrix product; see "
     "docs/compute.md."},
    {"TRIREME_DISABLE", Type::flag, "0", "", "1: trireme.optimize changes nothing; see docs/optimize.md."},
    {"TRIREME_KEEP_BLOCKS", Type::flag, "1", "",
     "1: trireme.optimize and `trireme qa` keep the memory of large tensors that are freed, for those of the next step. 0: it goes back to the "
     "system's allocator."},
    {"TRIREME_MATMUL", Type::choice, "auto", "auto|trireme|torch",
     "Whose matrix products the encoder's layers compute fp32 with. `trireme`: this project's, for those of at least 96 rows whose columns are a "
     "multiple of 16. `torch`: those of torch's BLAS. `auto`: this project's on AMD's CPUs with AVX-512, torch's elsewhere. See docs/compute.md."},
    {"TRIREME_VERIFY", Type::flag, "0", "",
     "1: an optimized encoder computes its first batch with transformers' own code as well and prints the difference."},
    {"TRIREME_AUTO", Type::flag, "0", "",
     "1: every Trainer and Accelerator of Hugging Face trains on Trireme, without a flag; see docs/huggingface.md."},
    {"TRIREME_LEDGER", Type::text, "", "",
     "`trireme qa`: each rank appends a line for every sample that it has trained on to the file of this name with its rank "
     "added: the step, the epoch, the sample's number, and the number of the run, which is larger for later ones. What a "
     "model has seen in a step is in the last run that began at or before it."},
    {"TRIREME_ALONE", Type::flag, "0", "",
     "1: a Trainer may train alone in each of several launched processes, which is an error otherwise."},

    {"TRIREME_SQUAD_URL", Type::text, "https://rajpurkar.github.io/SQuAD-explorer/dataset", "",
     "Where the trainer downloads SQuAD's files from; see docs/trainer.md."},

    // What is told.
    {"CCL_LOG_LEVEL", Type::choice, "warn", "error|warn|info|debug|trace", "What is written to stderr."},
    {"TRIREME_DEBUG_SIGNAL", Type::text, "USR1", "",
     "Signal on which a rank prints what it waits for and from whom. `none`: no handler. A program's own handler is kept."},
    {"TRIREME_REPORT", Type::flag, "0", "", "1: at the end, one line says how long each rank waited for which."},
};

}  // namespace

std::span<const Variable> table() { return kTable; }

}  // namespace trireme::env
