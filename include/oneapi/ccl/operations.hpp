// Collective and point-to-point operations.
//
// Each comes with untyped buffers and a datatype, or with typed buffers; with or without a stream, which means nothing on
// host memory. An operation starts when `deps` are complete: the call waits for them. Buffers must live until the event is
// complete. A wrong argument throws invalid_argument, and nothing was sent. Every rank calls the collectives of a
// communicator in the same order.
#pragma once

#include <type_traits>

#include "oneapi/ccl/attributes.hpp"
#include "oneapi/ccl/communicator.hpp"
#include "oneapi/ccl/config.h"
#include "oneapi/ccl/device.hpp"
#include "oneapi/ccl/event.hpp"
#include "oneapi/ccl/type_traits.hpp"

namespace ccl {
inline namespace v1 {

namespace detail {

template <class T>
using if_native = typename std::enable_if<is_native_type_supported<T>()>::type;

template <class T>
vector_class<void*> untyped(const vector_class<T*>& buffers) {
  return vector_class<void*>(buffers.begin(), buffers.end());
}

}  // namespace detail

// Between the two, this thread's operations are collected; the outermost group_end submits them in order, and waits for
// those whose events are gone or whose attribute says synchronous. When one fails the others are carried out all the same, and
// what the first failed with is thrown at the end.
CCL_API void group_start();
CCL_API void group_end();

// Every rank's send_count elements, in rank order, in recv_buf or in one buffer each. In place: send_buf is this rank's
// share of the result, or null.
CCL_API event allgather(const void* send_buf, void* recv_buf, size_t send_count, datatype dtype, const communicator& comm,
                        const allgather_attr& attr = default_allgather_attr, const vector_class<event>& deps = {});

inline event allgather(const void* send_buf, void* recv_buf, size_t send_count, datatype dtype, const communicator& comm,
                       const stream&, const allgather_attr& attr = default_allgather_attr,
                       const vector_class<event>& deps = {}) {
  return allgather(send_buf, recv_buf, send_count, dtype, comm, attr, deps);
}

template <class T, class = detail::if_native<T>>
event allgather(const T* send_buf, T* recv_buf, size_t send_count, const communicator& comm,
                const allgather_attr& attr = default_allgather_attr, const vector_class<event>& deps = {}) {
  return allgather(send_buf, recv_buf, send_count, native_type_info<T>::dtype, comm, attr, deps);
}

template <class T, class = detail::if_native<T>>
event allgather(const T* send_buf, T* recv_buf, size_t send_count, const communicator& comm, const stream&,
                const allgather_attr& attr = default_allgather_attr, const vector_class<event>& deps = {}) {
  return allgather(send_buf, recv_buf, send_count, native_type_info<T>::dtype, comm, attr, deps);
}

CCL_API event allgather(const void* send_buf, const vector_class<void*>& recv_bufs, size_t send_count, datatype dtype,
                        const communicator& comm, const allgather_attr& attr = default_allgather_attr,
                        const vector_class<event>& deps = {});

inline event allgather(const void* send_buf, const vector_class<void*>& recv_bufs, size_t send_count, datatype dtype,
                       const communicator& comm, const stream&, const allgather_attr& attr = default_allgather_attr,
                       const vector_class<event>& deps = {}) {
  return allgather(send_buf, recv_bufs, send_count, dtype, comm, attr, deps);
}

template <class T, class = detail::if_native<T>>
event allgather(const T* send_buf, const vector_class<T*>& recv_bufs, size_t send_count, const communicator& comm,
                const allgather_attr& attr = default_allgather_attr, const vector_class<event>& deps = {}) {
  return allgather(send_buf, detail::untyped(recv_bufs), send_count, native_type_info<T>::dtype, comm, attr, deps);
}

template <class T, class = detail::if_native<T>>
event allgather(const T* send_buf, const vector_class<T*>& recv_bufs, size_t send_count, const communicator& comm,
                const stream&, const allgather_attr& attr = default_allgather_attr, const vector_class<event>& deps = {}) {
  return allgather(send_buf, detail::untyped(recv_bufs), send_count, native_type_info<T>::dtype, comm, attr, deps);
}

// The same with recv_counts[r] elements from rank r.
CCL_API event allgatherv(const void* send_buf, size_t send_count, void* recv_buf, const vector_class<size_t>& recv_counts,
                         datatype dtype, const communicator& comm, const allgatherv_attr& attr = default_allgatherv_attr,
                         const vector_class<event>& deps = {});

inline event allgatherv(const void* send_buf, size_t send_count, void* recv_buf, const vector_class<size_t>& recv_counts,
                        datatype dtype, const communicator& comm, const stream&,
                        const allgatherv_attr& attr = default_allgatherv_attr, const vector_class<event>& deps = {}) {
  return allgatherv(send_buf, send_count, recv_buf, recv_counts, dtype, comm, attr, deps);
}

template <class T, class = detail::if_native<T>>
event allgatherv(const T* send_buf, size_t send_count, T* recv_buf, const vector_class<size_t>& recv_counts,
                 const communicator& comm, const allgatherv_attr& attr = default_allgatherv_attr,
                 const vector_class<event>& deps = {}) {
  return allgatherv(send_buf, send_count, recv_buf, recv_counts, native_type_info<T>::dtype, comm, attr, deps);
}

template <class T, class = detail::if_native<T>>
event allgatherv(const T* send_buf, size_t send_count, T* recv_buf, const vector_class<size_t>& recv_counts,
                 const communicator& comm, const stream&, const allgatherv_attr& attr = default_allgatherv_attr,
                 const vector_class<event>& deps = {}) {
  return allgatherv(send_buf, send_count, recv_buf, recv_counts, native_type_info<T>::dtype, comm, attr, deps);
}

CCL_API event allgatherv(const void* send_buf, size_t send_count, const vector_class<void*>& recv_bufs,
                         const vector_class<size_t>& recv_counts, datatype dtype, const communicator& comm,
                         const allgatherv_attr& attr = default_allgatherv_attr, const vector_class<event>& deps = {});

inline event allgatherv(const void* send_buf, size_t send_count, const vector_class<void*>& recv_bufs,
                        const vector_class<size_t>& recv_counts, datatype dtype, const communicator& comm, const stream&,
                        const allgatherv_attr& attr = default_allgatherv_attr, const vector_class<event>& deps = {}) {
  return allgatherv(send_buf, send_count, recv_bufs, recv_counts, dtype, comm, attr, deps);
}

template <class T, class = detail::if_native<T>>
event allgatherv(const T* send_buf, size_t send_count, const vector_class<T*>& recv_bufs,
                 const vector_class<size_t>& recv_counts, const communicator& comm,
                 const allgatherv_attr& attr = default_allgatherv_attr, const vector_class<event>& deps = {}) {
  return allgatherv(send_buf, send_count, detail::untyped(recv_bufs), recv_counts, native_type_info<T>::dtype, comm, attr,
                    deps);
}

template <class T, class = detail::if_native<T>>
event allgatherv(const T* send_buf, size_t send_count, const vector_class<T*>& recv_bufs,
                 const vector_class<size_t>& recv_counts, const communicator& comm, const stream&,
                 const allgatherv_attr& attr = default_allgatherv_attr, const vector_class<event>& deps = {}) {
  return allgatherv(send_buf, send_count, detail::untyped(recv_bufs), recv_counts, native_type_info<T>::dtype, comm, attr,
                    deps);
}

// The reduction of every rank's count elements, on every rank.
CCL_API event allreduce(const void* send_buf, void* recv_buf, size_t count, datatype dtype, reduction rtype,
                        const communicator& comm, const allreduce_attr& attr = default_allreduce_attr,
                        const vector_class<event>& deps = {});

inline event allreduce(const void* send_buf, void* recv_buf, size_t count, datatype dtype, reduction rtype,
                       const communicator& comm, const stream&, const allreduce_attr& attr = default_allreduce_attr,
                       const vector_class<event>& deps = {}) {
  return allreduce(send_buf, recv_buf, count, dtype, rtype, comm, attr, deps);
}

template <class T, class = detail::if_native<T>>
event allreduce(const T* send_buf, T* recv_buf, size_t count, reduction rtype, const communicator& comm,
                const allreduce_attr& attr = default_allreduce_attr, const vector_class<event>& deps = {}) {
  return allreduce(send_buf, recv_buf, count, native_type_info<T>::dtype, rtype, comm, attr, deps);
}

template <class T, class = detail::if_native<T>>
event allreduce(const T* send_buf, T* recv_buf, size_t count, reduction rtype, const communicator& comm, const stream&,
                const allreduce_attr& attr = default_allreduce_attr, const vector_class<event>& deps = {}) {
  return allreduce(send_buf, recv_buf, count, native_type_info<T>::dtype, rtype, comm, attr, deps);
}

// count elements from each rank to each rank. In place: send_buf is recv_buf.
CCL_API event alltoall(const void* send_buf, void* recv_buf, size_t count, datatype dtype, const communicator& comm,
                       const alltoall_attr& attr = default_alltoall_attr, const vector_class<event>& deps = {});

inline event alltoall(const void* send_buf, void* recv_buf, size_t count, datatype dtype, const communicator& comm,
                      const stream&, const alltoall_attr& attr = default_alltoall_attr,
                      const vector_class<event>& deps = {}) {
  return alltoall(send_buf, recv_buf, count, dtype, comm, attr, deps);
}

template <class T, class = detail::if_native<T>>
event alltoall(const T* send_buf, T* recv_buf, size_t count, const communicator& comm,
               const alltoall_attr& attr = default_alltoall_attr, const vector_class<event>& deps = {}) {
  return alltoall(send_buf, recv_buf, count, native_type_info<T>::dtype, comm, attr, deps);
}

template <class T, class = detail::if_native<T>>
event alltoall(const T* send_buf, T* recv_buf, size_t count, const communicator& comm, const stream&,
               const alltoall_attr& attr = default_alltoall_attr, const vector_class<event>& deps = {}) {
  return alltoall(send_buf, recv_buf, count, native_type_info<T>::dtype, comm, attr, deps);
}

CCL_API event alltoall(const vector_class<void*>& send_bufs, const vector_class<void*>& recv_bufs, size_t count,
                       datatype dtype, const communicator& comm, const alltoall_attr& attr = default_alltoall_attr,
                       const vector_class<event>& deps = {});

inline event alltoall(const vector_class<void*>& send_bufs, const vector_class<void*>& recv_bufs, size_t count,
                      datatype dtype, const communicator& comm, const stream&,
                      const alltoall_attr& attr = default_alltoall_attr, const vector_class<event>& deps = {}) {
  return alltoall(send_bufs, recv_bufs, count, dtype, comm, attr, deps);
}

template <class T, class = detail::if_native<T>>
event alltoall(const vector_class<T*>& send_bufs, const vector_class<T*>& recv_bufs, size_t count, const communicator& comm,
               const alltoall_attr& attr = default_alltoall_attr, const vector_class<event>& deps = {}) {
  return alltoall(detail::untyped(send_bufs), detail::untyped(recv_bufs), count, native_type_info<T>::dtype, comm, attr,
                  deps);
}

template <class T, class = detail::if_native<T>>
event alltoall(const vector_class<T*>& send_bufs, const vector_class<T*>& recv_bufs, size_t count, const communicator& comm,
               const stream&, const alltoall_attr& attr = default_alltoall_attr, const vector_class<event>& deps = {}) {
  return alltoall(detail::untyped(send_bufs), detail::untyped(recv_bufs), count, native_type_info<T>::dtype, comm, attr,
                  deps);
}

// The same with send_counts[r] elements to rank r and recv_counts[r] from it.
CCL_API event alltoallv(const void* send_buf, const vector_class<size_t>& send_counts, void* recv_buf,
                        const vector_class<size_t>& recv_counts, datatype dtype, const communicator& comm,
                        const alltoallv_attr& attr = default_alltoallv_attr, const vector_class<event>& deps = {});

inline event alltoallv(const void* send_buf, const vector_class<size_t>& send_counts, void* recv_buf,
                       const vector_class<size_t>& recv_counts, datatype dtype, const communicator& comm, const stream&,
                       const alltoallv_attr& attr = default_alltoallv_attr, const vector_class<event>& deps = {}) {
  return alltoallv(send_buf, send_counts, recv_buf, recv_counts, dtype, comm, attr, deps);
}

template <class T, class = detail::if_native<T>>
event alltoallv(const T* send_buf, const vector_class<size_t>& send_counts, T* recv_buf,
                const vector_class<size_t>& recv_counts, const communicator& comm,
                const alltoallv_attr& attr = default_alltoallv_attr, const vector_class<event>& deps = {}) {
  return alltoallv(send_buf, send_counts, recv_buf, recv_counts, native_type_info<T>::dtype, comm, attr, deps);
}

template <class T, class = detail::if_native<T>>
event alltoallv(const T* send_buf, const vector_class<size_t>& send_counts, T* recv_buf,
                const vector_class<size_t>& recv_counts, const communicator& comm, const stream&,
                const alltoallv_attr& attr = default_alltoallv_attr, const vector_class<event>& deps = {}) {
  return alltoallv(send_buf, send_counts, recv_buf, recv_counts, native_type_info<T>::dtype, comm, attr, deps);
}

CCL_API event alltoallv(const vector_class<void*>& send_bufs, const vector_class<size_t>& send_counts,
                        const vector_class<void*>& recv_bufs, const vector_class<size_t>& recv_counts, datatype dtype,
                        const communicator& comm, const alltoallv_attr& attr = default_alltoallv_attr,
                        const vector_class<event>& deps = {});

inline event alltoallv(const vector_class<void*>& send_bufs, const vector_class<size_t>& send_counts,
                       const vector_class<void*>& recv_bufs, const vector_class<size_t>& recv_counts, datatype dtype,
                       const communicator& comm, const stream&, const alltoallv_attr& attr = default_alltoallv_attr,
                       const vector_class<event>& deps = {}) {
  return alltoallv(send_bufs, send_counts, recv_bufs, recv_counts, dtype, comm, attr, deps);
}

template <class T, class = detail::if_native<T>>
event alltoallv(const vector_class<T*>& send_bufs, const vector_class<size_t>& send_counts,
                const vector_class<T*>& recv_bufs, const vector_class<size_t>& recv_counts, const communicator& comm,
                const alltoallv_attr& attr = default_alltoallv_attr, const vector_class<event>& deps = {}) {
  return alltoallv(detail::untyped(send_bufs), send_counts, detail::untyped(recv_bufs), recv_counts,
                   native_type_info<T>::dtype, comm, attr, deps);
}

template <class T, class = detail::if_native<T>>
event alltoallv(const vector_class<T*>& send_bufs, const vector_class<size_t>& send_counts,
                const vector_class<T*>& recv_bufs, const vector_class<size_t>& recv_counts, const communicator& comm,
                const stream&, const alltoallv_attr& attr = default_alltoallv_attr, const vector_class<event>& deps = {}) {
  return alltoallv(detail::untyped(send_bufs), send_counts, detail::untyped(recv_bufs), recv_counts,
                   native_type_info<T>::dtype, comm, attr, deps);
}

// Returns, as in oneCCL, when every rank has called it: the event is already complete, unless this is in a group.
CCL_API event barrier(const communicator& comm, const barrier_attr& attr = default_barrier_attr,
                      const vector_class<event>& deps = {});

inline event barrier(const communicator& comm, const stream&, const barrier_attr& attr = default_barrier_attr,
                     const vector_class<event>& deps = {}) {
  return barrier(comm, attr, deps);
}

// The root's count elements on every rank, in place, or from the root's send_buf to every rank's recv_buf.
CCL_API event broadcast(void* buf, size_t count, datatype dtype, int root, const communicator& comm,
                        const broadcast_attr& attr = default_broadcast_attr, const vector_class<event>& deps = {});

inline event broadcast(void* buf, size_t count, datatype dtype, int root, const communicator& comm, const stream&,
                       const broadcast_attr& attr = default_broadcast_attr, const vector_class<event>& deps = {}) {
  return broadcast(buf, count, dtype, root, comm, attr, deps);
}

template <class T, class = detail::if_native<T>>
event broadcast(T* buf, size_t count, int root, const communicator& comm,
                const broadcast_attr& attr = default_broadcast_attr, const vector_class<event>& deps = {}) {
  return broadcast(buf, count, native_type_info<T>::dtype, root, comm, attr, deps);
}

template <class T, class = detail::if_native<T>>
event broadcast(T* buf, size_t count, int root, const communicator& comm, const stream&,
                const broadcast_attr& attr = default_broadcast_attr, const vector_class<event>& deps = {}) {
  return broadcast(buf, count, native_type_info<T>::dtype, root, comm, attr, deps);
}

CCL_API event broadcast(void* send_buf, void* recv_buf, size_t count, datatype dtype, int root, const communicator& comm,
                        const broadcast_attr& attr = default_broadcast_attr, const vector_class<event>& deps = {});

inline event broadcast(void* send_buf, void* recv_buf, size_t count, datatype dtype, int root, const communicator& comm,
                       const stream&, const broadcast_attr& attr = default_broadcast_attr,
                       const vector_class<event>& deps = {}) {
  return broadcast(send_buf, recv_buf, count, dtype, root, comm, attr, deps);
}

template <class T, class = detail::if_native<T>>
event broadcast(T* send_buf, T* recv_buf, size_t count, int root, const communicator& comm,
                const broadcast_attr& attr = default_broadcast_attr, const vector_class<event>& deps = {}) {
  return broadcast(send_buf, recv_buf, count, native_type_info<T>::dtype, root, comm, attr, deps);
}

template <class T, class = detail::if_native<T>>
event broadcast(T* send_buf, T* recv_buf, size_t count, int root, const communicator& comm, const stream&,
                const broadcast_attr& attr = default_broadcast_attr, const vector_class<event>& deps = {}) {
  return broadcast(send_buf, recv_buf, count, native_type_info<T>::dtype, root, comm, attr, deps);
}

// Every rank's count elements, in rank order, in the root's recv_buf. In place: send_buf is the root's share of it.
CCL_API event gather(const void* send_buf, void* recv_buf, size_t count, datatype dtype, int root, const communicator& comm,
                     const gather_attr& attr = default_gather_attr, const vector_class<event>& deps = {});

inline event gather(const void* send_buf, void* recv_buf, size_t count, datatype dtype, int root, const communicator& comm,
                    const stream&, const gather_attr& attr = default_gather_attr, const vector_class<event>& deps = {}) {
  return gather(send_buf, recv_buf, count, dtype, root, comm, attr, deps);
}

template <class T, class = detail::if_native<T>>
event gather(const T* send_buf, T* recv_buf, size_t count, int root, const communicator& comm,
             const gather_attr& attr = default_gather_attr, const vector_class<event>& deps = {}) {
  return gather(send_buf, recv_buf, count, native_type_info<T>::dtype, root, comm, attr, deps);
}

template <class T, class = detail::if_native<T>>
event gather(const T* send_buf, T* recv_buf, size_t count, int root, const communicator& comm, const stream&,
             const gather_attr& attr = default_gather_attr, const vector_class<event>& deps = {}) {
  return gather(send_buf, recv_buf, count, native_type_info<T>::dtype, root, comm, attr, deps);
}

// count elements from one rank to another. Sends and receives between two ranks match in order. Ranks that send to each
// other before they receive do so in a group.
CCL_API event send(void* buf, size_t count, datatype dtype, int peer, const communicator& comm,
                   const pt2pt_attr& attr = default_pt2pt_attr, const vector_class<event>& deps = {});

inline event send(void* buf, size_t count, datatype dtype, int peer, const communicator& comm, const stream&,
                  const pt2pt_attr& attr = default_pt2pt_attr, const vector_class<event>& deps = {}) {
  return send(buf, count, dtype, peer, comm, attr, deps);
}

template <class T, class = detail::if_native<T>>
event send(T* buf, size_t count, int peer, const communicator& comm, const pt2pt_attr& attr = default_pt2pt_attr,
           const vector_class<event>& deps = {}) {
  return send(buf, count, native_type_info<T>::dtype, peer, comm, attr, deps);
}

template <class T, class = detail::if_native<T>>
event send(T* buf, size_t count, int peer, const communicator& comm, const stream&,
           const pt2pt_attr& attr = default_pt2pt_attr, const vector_class<event>& deps = {}) {
  return send(buf, count, native_type_info<T>::dtype, peer, comm, attr, deps);
}

CCL_API event recv(void* buf, size_t count, datatype dtype, int peer, const communicator& comm,
                   const pt2pt_attr& attr = default_pt2pt_attr, const vector_class<event>& deps = {});

inline event recv(void* buf, size_t count, datatype dtype, int peer, const communicator& comm, const stream&,
                  const pt2pt_attr& attr = default_pt2pt_attr, const vector_class<event>& deps = {}) {
  return recv(buf, count, dtype, peer, comm, attr, deps);
}

template <class T, class = detail::if_native<T>>
event recv(T* buf, size_t count, int peer, const communicator& comm, const pt2pt_attr& attr = default_pt2pt_attr,
           const vector_class<event>& deps = {}) {
  return recv(buf, count, native_type_info<T>::dtype, peer, comm, attr, deps);
}

template <class T, class = detail::if_native<T>>
event recv(T* buf, size_t count, int peer, const communicator& comm, const stream&,
           const pt2pt_attr& attr = default_pt2pt_attr, const vector_class<event>& deps = {}) {
  return recv(buf, count, native_type_info<T>::dtype, peer, comm, attr, deps);
}

// The reduction of every rank's count elements, on the root.
CCL_API event reduce(const void* send_buf, void* recv_buf, size_t count, datatype dtype, reduction rtype, int root,
                     const communicator& comm, const reduce_attr& attr = default_reduce_attr,
                     const vector_class<event>& deps = {});

inline event reduce(const void* send_buf, void* recv_buf, size_t count, datatype dtype, reduction rtype, int root,
                    const communicator& comm, const stream&, const reduce_attr& attr = default_reduce_attr,
                    const vector_class<event>& deps = {}) {
  return reduce(send_buf, recv_buf, count, dtype, rtype, root, comm, attr, deps);
}

template <class T, class = detail::if_native<T>>
event reduce(const T* send_buf, T* recv_buf, size_t count, reduction rtype, int root, const communicator& comm,
             const reduce_attr& attr = default_reduce_attr, const vector_class<event>& deps = {}) {
  return reduce(send_buf, recv_buf, count, native_type_info<T>::dtype, rtype, root, comm, attr, deps);
}

template <class T, class = detail::if_native<T>>
event reduce(const T* send_buf, T* recv_buf, size_t count, reduction rtype, int root, const communicator& comm,
             const stream&, const reduce_attr& attr = default_reduce_attr, const vector_class<event>& deps = {}) {
  return reduce(send_buf, recv_buf, count, native_type_info<T>::dtype, rtype, root, comm, attr, deps);
}

// The reduction of every rank's recv_count x size elements, of which rank r gets the r-th recv_count. In place: recv_buf is
// this rank's share of send_buf.
CCL_API event reduce_scatter(const void* send_buf, void* recv_buf, size_t recv_count, datatype dtype, reduction rtype,
                             const communicator& comm, const reduce_scatter_attr& attr = default_reduce_scatter_attr,
                             const vector_class<event>& deps = {});

inline event reduce_scatter(const void* send_buf, void* recv_buf, size_t recv_count, datatype dtype, reduction rtype,
                            const communicator& comm, const stream&,
                            const reduce_scatter_attr& attr = default_reduce_scatter_attr,
                            const vector_class<event>& deps = {}) {
  return reduce_scatter(send_buf, recv_buf, recv_count, dtype, rtype, comm, attr, deps);
}

template <class T, class = detail::if_native<T>>
event reduce_scatter(const T* send_buf, T* recv_buf, size_t recv_count, reduction rtype, const communicator& comm,
                     const reduce_scatter_attr& attr = default_reduce_scatter_attr, const vector_class<event>& deps = {}) {
  return reduce_scatter(send_buf, recv_buf, recv_count, native_type_info<T>::dtype, rtype, comm, attr, deps);
}

template <class T, class = detail::if_native<T>>
event reduce_scatter(const T* send_buf, T* recv_buf, size_t recv_count, reduction rtype, const communicator& comm,
                     const stream&, const reduce_scatter_attr& attr = default_reduce_scatter_attr,
                     const vector_class<event>& deps = {}) {
  return reduce_scatter(send_buf, recv_buf, recv_count, native_type_info<T>::dtype, rtype, comm, attr, deps);
}

// The r-th count elements of the root's send_buf, on rank r.
CCL_API event scatter(const void* send_buf, void* recv_buf, size_t count, datatype dtype, int root, const communicator& comm,
                      const scatter_attr& attr = default_scatter_attr, const vector_class<event>& deps = {});

inline event scatter(const void* send_buf, void* recv_buf, size_t count, datatype dtype, int root, const communicator& comm,
                     const stream&, const scatter_attr& attr = default_scatter_attr, const vector_class<event>& deps = {}) {
  return scatter(send_buf, recv_buf, count, dtype, root, comm, attr, deps);
}

template <class T, class = detail::if_native<T>>
event scatter(const T* send_buf, T* recv_buf, size_t count, int root, const communicator& comm,
              const scatter_attr& attr = default_scatter_attr, const vector_class<event>& deps = {}) {
  return scatter(send_buf, recv_buf, count, native_type_info<T>::dtype, root, comm, attr, deps);
}

template <class T, class = detail::if_native<T>>
event scatter(const T* send_buf, T* recv_buf, size_t count, int root, const communicator& comm, const stream&,
              const scatter_attr& attr = default_scatter_attr, const vector_class<event>& deps = {}) {
  return scatter(send_buf, recv_buf, count, native_type_info<T>::dtype, root, comm, attr, deps);
}

}  // namespace v1
}  // namespace ccl
