// cooperative_groups.cuh: CUDA's cooperative groups in terms of its other words.
//
// In place of <cooperative_groups.h> and its reduce.h and scan.h, so that a kernel means the same
// on a GPU and a host. It has blocks, tiles of up to 32 threads and coalesced groups, not grids,
// clusters, tiles of several warps, or memcpy_async.
//
// threadIdx and its like may be macros here: they are used as expressions only. Where they change
// from unit to unit, undefine MACO_COOPERATIVE_GROUPS and read this in each unit's namespace.

#ifndef MACO_COOPERATIVE_GROUPS
#define MACO_COOPERATIVE_GROUPS

#ifdef MACO_CPU
#define MACO_CG inline
#else
#define MACO_CG __device__ __forceinline__
#endif

namespace cooperative_groups {

namespace details {

MACO_CG unsigned block_rank() {
  return (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
}
MACO_CG unsigned block_size() { return blockDim.x * blockDim.y * blockDim.z; }
MACO_CG unsigned lane() { return block_rank() & 31u; }
MACO_CG unsigned lanes_below() { return (1u << lane()) - 1u; }

/// The lanes of the thread's tile of `size`, without those past the block's end.
MACO_CG unsigned present_lanes(unsigned size) {
  const unsigned first = block_rank() & ~(size - 1u);
  const unsigned after = block_size() - first;
  return (~0u >> (32u - (after < size ? after : size))) << (first & 31u);
}

/// The lane with rank `rank` among `lanes`; the own lane if there is none.
MACO_CG unsigned lane_of_rank(unsigned lanes, unsigned rank) {
  if (lanes == ~0u) return rank & 31u;
  for (unsigned i = 0; i < rank; ++i) lanes &= lanes - 1u;
  return lanes == 0u ? lane() : static_cast<unsigned>(__ffs(static_cast<int>(lanes))) - 1u;
}

/// The bits of `votes` at `lanes`, packed together.
MACO_CG unsigned pack(unsigned votes, unsigned lanes) {
  if (lanes == ~0u) return votes;
  unsigned packed = 0;
  for (unsigned rank = 0; lanes != 0u; ++rank, lanes &= lanes - 1u) {
    if ((votes & lanes & (0u - lanes)) != 0u) packed |= 1u << rank;
  }
  return packed;
}

/// Shuffles a trivially copyable value as words of 4 bytes.
template <class T, class Shuffle>
MACO_CG T shuffle_words(const T& value, Shuffle shuffle) {
  static_assert(sizeof(T) <= 32, "groups shuffle values of up to 32 bytes");
  constexpr int count = (sizeof(T) + 3) / 4;
  unsigned words[count] = {};
  memcpy(words, &value, sizeof(T));
  for (int i = 0; i < count; ++i) words[i] = shuffle(words[i]);
  T result = value;
  memcpy(static_cast<void*>(&result), words, sizeof(T));
  return result;
}

template <class T>
struct remove_reference {
  using type = T;
};
template <class T>
struct remove_reference<T&> {
  using type = T;
};
template <class T>
struct remove_reference<T&&> {
  using type = T;
};

}  // namespace details

// ---- groups -----------------------------------------------------------------

/// Any group by value: a block, or lanes of a warp.
class thread_group {
 public:
  MACO_CG unsigned long long size() const {
    return lanes_ == 0u ? details::block_size() : static_cast<unsigned>(__popc(lanes_));
  }
  MACO_CG unsigned long long num_threads() const { return size(); }
  MACO_CG unsigned long long thread_rank() const {
    return lanes_ == 0u ? details::block_rank()
                        : static_cast<unsigned>(__popc(lanes_ & details::lanes_below()));
  }
  MACO_CG void sync() const {
    if (lanes_ == 0u) {
      __syncthreads();
    } else {
      __syncwarp(lanes_);
    }
  }

 protected:
  friend class coalesced_group;
  MACO_CG thread_group(unsigned lanes, unsigned meta_rank, unsigned meta_size)
      : lanes_(lanes), meta_rank_(meta_rank), meta_size_(meta_size) {}

  unsigned lanes_;  // 0 is the block
  unsigned meta_rank_;
  unsigned meta_size_;

  friend MACO_CG thread_group tiled_partition(const thread_group& parent, unsigned size);
};

class thread_block : public thread_group {
 public:
  MACO_CG static unsigned size() { return details::block_size(); }
  MACO_CG static unsigned num_threads() { return details::block_size(); }
  MACO_CG static unsigned thread_rank() { return details::block_rank(); }
  MACO_CG static void sync() { __syncthreads(); }
  MACO_CG static dim3 group_index() { return dim3(blockIdx.x, blockIdx.y, blockIdx.z); }
  MACO_CG static dim3 thread_index() { return dim3(threadIdx.x, threadIdx.y, threadIdx.z); }
  MACO_CG static dim3 group_dim() { return dim3(blockDim.x, blockDim.y, blockDim.z); }
  MACO_CG static dim3 dim_threads() { return group_dim(); }

 private:
  friend MACO_CG thread_block this_thread_block();
  MACO_CG thread_block() : thread_group(0u, 0u, 1u) {}
};

MACO_CG thread_block this_thread_block() { return thread_block(); }

/// All blocks of the launch. They can't wait for each other: blocks are tasks.
class grid_group {
 public:
  MACO_CG static unsigned long long num_blocks() {
    return (unsigned long long)gridDim.x * gridDim.y * gridDim.z;
  }
  MACO_CG static unsigned long long block_rank() {
    return ((unsigned long long)blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  }
  MACO_CG static unsigned long long size() { return num_blocks() * details::block_size(); }
  MACO_CG static unsigned long long num_threads() { return size(); }
  MACO_CG static unsigned long long thread_rank() {
    return block_rank() * details::block_size() + details::block_rank();
  }
  MACO_CG static dim3 block_index() { return dim3(blockIdx.x, blockIdx.y, blockIdx.z); }
  MACO_CG static dim3 group_dim() { return dim3(gridDim.x, gridDim.y, gridDim.z); }
  MACO_CG static dim3 dim_blocks() { return group_dim(); }
};
MACO_CG grid_group this_grid() { return grid_group(); }

/// Lanes of a warp, ranked by their place in it.
class coalesced_group : public thread_group {
 public:
  MACO_CG unsigned size() const { return static_cast<unsigned>(__popc(lanes_)); }
  MACO_CG unsigned num_threads() const { return size(); }
  MACO_CG unsigned thread_rank() const {
    return static_cast<unsigned>(__popc(lanes_ & details::lanes_below()));
  }
  MACO_CG unsigned meta_group_rank() const { return meta_rank_; }
  MACO_CG unsigned meta_group_size() const { return meta_size_; }
  MACO_CG void sync() const { __syncwarp(lanes_); }

  /// A rank outside of the group gives the own value.
  template <class T>
  MACO_CG T shfl(T value, int rank) const {
    return from_lane(value, details::lane_of_rank(lanes_, static_cast<unsigned>(rank)));
  }
  template <class T>
  MACO_CG T shfl_up(T value, unsigned delta) const {
    const unsigned rank = thread_rank();
    return from_lane(value,
                     delta <= rank ? details::lane_of_rank(lanes_, rank - delta) : details::lane());
  }
  template <class T>
  MACO_CG T shfl_down(T value, unsigned delta) const {
    const unsigned rank = thread_rank() + delta;
    return from_lane(value, rank < size() ? details::lane_of_rank(lanes_, rank) : details::lane());
  }
  MACO_CG int any(int predicate) const { return __ballot_sync(lanes_, predicate) != 0u; }
  MACO_CG int all(int predicate) const { return __all_sync(lanes_, predicate); }
  MACO_CG unsigned ballot(int predicate) const {
    return details::pack(__ballot_sync(lanes_, predicate), lanes_);
  }
  template <class T>
  MACO_CG unsigned match_any(T value) const {
    return details::pack(__match_any_sync(lanes_, value), lanes_);
  }
  template <class T>
  MACO_CG unsigned match_all(T value, int& all_same) const {
    return details::pack(__match_all_sync(lanes_, value, &all_same), lanes_);
  }

  MACO_CG unsigned lanes() const { return lanes_; }  // not CUDA's
  MACO_CG explicit coalesced_group(unsigned lanes, unsigned meta_rank = 0u, unsigned meta_size = 1u)
      : thread_group(lanes, meta_rank, meta_size) {}

 private:
  template <class T>
  MACO_CG T from_lane(const T& value, unsigned lane) const {
    const unsigned lanes = lanes_;
    return details::shuffle_words(
        value, [=](unsigned word) { return __shfl_sync(lanes, word, static_cast<int>(lane)); });
  }
};

/// The threads that run this together. On a host the executor says which.
MACO_CG coalesced_group coalesced_threads() { return coalesced_group(__activemask()); }

namespace details {

template <unsigned kSize>
class tile : public thread_group {
  static_assert(kSize >= 1u && kSize <= 32u && (kSize & (kSize - 1u)) == 0u,
                "a tile has 1, 2, 4, 8, 16 or 32 threads");

 public:
  MACO_CG static constexpr unsigned size() { return kSize; }
  MACO_CG static constexpr unsigned num_threads() { return kSize; }
  MACO_CG static unsigned thread_rank() { return block_rank() & (kSize - 1u); }
  MACO_CG unsigned meta_group_rank() const { return meta_rank_; }
  MACO_CG unsigned meta_group_size() const { return meta_size_; }
  MACO_CG void sync() const { __syncwarp(lanes_); }

  template <class T>
  MACO_CG T shfl(T value, int rank) const {
    const unsigned lanes = lanes_;
    return shuffle_words(value,
                         [=](unsigned word) { return __shfl_sync(lanes, word, rank, int(kSize)); });
  }
  template <class T>
  MACO_CG T shfl_up(T value, unsigned delta) const {
    const unsigned lanes = lanes_;
    return shuffle_words(
        value, [=](unsigned word) { return __shfl_up_sync(lanes, word, delta, int(kSize)); });
  }
  template <class T>
  MACO_CG T shfl_down(T value, unsigned delta) const {
    const unsigned lanes = lanes_;
    return shuffle_words(
        value, [=](unsigned word) { return __shfl_down_sync(lanes, word, delta, int(kSize)); });
  }
  template <class T>
  MACO_CG T shfl_xor(T value, unsigned bits) const {
    const unsigned lanes = lanes_;
    return shuffle_words(value, [=](unsigned word) {
      return __shfl_xor_sync(lanes, word, static_cast<int>(bits), int(kSize));
    });
  }
  MACO_CG int any(int predicate) const { return __ballot_sync(lanes_, predicate) != 0u; }
  MACO_CG int all(int predicate) const { return __all_sync(lanes_, predicate); }
  MACO_CG unsigned ballot(int predicate) const {
    return __ballot_sync(lanes_, predicate) >> first_lane();
  }
  template <class T>
  MACO_CG unsigned match_any(T value) const {
    return __match_any_sync(lanes_, value) >> first_lane();
  }
  template <class T>
  MACO_CG unsigned match_all(T value, int& all_same) const {
    return __match_all_sync(lanes_, value, &all_same) >> first_lane();
  }

  /// The lanes that the block has: fewer than the size in its last warp. Not CUDA's.
  MACO_CG unsigned lanes() const { return present_lanes(kSize); }

 protected:
  MACO_CG tile(unsigned meta_rank, unsigned meta_size)
      : thread_group((~0u >> (32u - kSize)) << first_lane(), meta_rank, meta_size) {}

 private:
  MACO_CG static unsigned first_lane() { return lane() & ~(kSize - 1u); }
};

}  // namespace details

template <unsigned kSize, class Parent = void>
class thread_block_tile;

/// A tile whose type doesn't say of what it is a part.
template <unsigned kSize>
class thread_block_tile<kSize, void> : public details::tile<kSize> {
 public:
  template <class Parent>
  MACO_CG thread_block_tile(const thread_block_tile<kSize, Parent>& other)
      : details::tile<kSize>(other.meta_group_rank(), other.meta_group_size()) {}

 private:
  friend MACO_CG thread_block_tile<1u, void> this_thread();
  MACO_CG thread_block_tile() : details::tile<kSize>(0u, 1u) {}
};

template <unsigned kSize, class Parent>
class thread_block_tile : public details::tile<kSize> {
 public:
  // Use tiled_partition.
  MACO_CG thread_block_tile(unsigned meta_rank, unsigned meta_size)
      : details::tile<kSize>(meta_rank, meta_size) {}
};

MACO_CG thread_block_tile<1u, void> this_thread() { return thread_block_tile<1u, void>(); }

// ---- partitions -------------------------------------------------------------

template <unsigned kSize>
MACO_CG thread_block_tile<kSize, thread_block> tiled_partition(const thread_block&) {
  return thread_block_tile<kSize, thread_block>(details::block_rank() / kSize,
                                                (details::block_size() + kSize - 1u) / kSize);
}
template <unsigned kSize, unsigned kParent, class Grandparent>
MACO_CG thread_block_tile<kSize, thread_block_tile<kParent, Grandparent>> tiled_partition(
    const thread_block_tile<kParent, Grandparent>& parent) {
  static_assert(kSize <= kParent, "a tile's tile has no more threads than it");
  return thread_block_tile<kSize, thread_block_tile<kParent, Grandparent>>(
      parent.thread_rank() / kSize, kParent / kSize);
}

/// Tiles of `size` (1, 2, 4, 8, 16 or 32) threads with consecutive ranks.
MACO_CG coalesced_group tiled_partition(const coalesced_group& parent, unsigned size) {
  if (parent.size() <= size) return parent;
  const unsigned tile = parent.thread_rank() / size;
  unsigned lanes = 0u;
  unsigned rank = 0u;
  for (unsigned left = parent.lanes(); left != 0u; left &= left - 1u, ++rank) {
    if (rank / size == tile) lanes |= left & (0u - left);
  }
  return coalesced_group(lanes, tile, (parent.size() + size - 1u) / size);
}
MACO_CG thread_group tiled_partition(const thread_group& parent, unsigned size) {
  if (parent.lanes_ != 0u) return tiled_partition(coalesced_group(parent.lanes_), size);
  return coalesced_group(details::present_lanes(size), details::block_rank() / size,
                         (details::block_size() + size - 1u) / size);
}

namespace details {

// The lanes of `lanes` with the thread's label; groups are ranked by their first lanes.
MACO_CG coalesced_group label_lanes(unsigned lanes, unsigned long long label) {
  const unsigned same = __match_any_sync(lanes, label);
  const unsigned first = same & (0u - same);
  const unsigned firsts = __ballot_sync(lanes, (first >> lane()) == 1u);
  return coalesced_group(same, static_cast<unsigned>(__popc(firsts & (first - 1u))),
                         static_cast<unsigned>(__popc(firsts)));
}
// Ranked as in CUDA: the lanes with true are group 1, unless all agree.
MACO_CG coalesced_group halve_lanes(unsigned lanes, bool predicate) {
  const unsigned yes = __ballot_sync(lanes, predicate);
  if (yes == 0u || yes == lanes) return coalesced_group(lanes);
  return coalesced_group(predicate ? yes : lanes & ~yes, predicate ? 1u : 0u, 2u);
}

MACO_CG coalesced_group partition_lanes(unsigned lanes, bool label) {
  return halve_lanes(lanes, label);
}
template <class T>
MACO_CG coalesced_group partition_lanes(unsigned lanes, T label) {
  return label_lanes(lanes, static_cast<unsigned long long>(label));
}
template <class T>
MACO_CG coalesced_group partition_lanes(unsigned lanes, T* label) {
  return label_lanes(lanes, reinterpret_cast<unsigned long long>(label));
}

}  // namespace details

template <class Label>
MACO_CG coalesced_group labeled_partition(const coalesced_group& parent, Label label) {
  return details::partition_lanes(parent.lanes(), label);
}
template <class Label, unsigned kSize, class Parent>
MACO_CG coalesced_group labeled_partition(const thread_block_tile<kSize, Parent>& parent,
                                          Label label) {
  return details::partition_lanes(parent.lanes(), label);
}
MACO_CG coalesced_group binary_partition(const coalesced_group& parent, bool predicate) {
  return details::halve_lanes(parent.lanes(), predicate);
}
template <unsigned kSize, class Parent>
MACO_CG coalesced_group binary_partition(const thread_block_tile<kSize, Parent>& parent,
                                         bool predicate) {
  return details::halve_lanes(parent.lanes(), predicate);
}

// ---- functions of groups ----------------------------------------------------

template <class Group>
MACO_CG void sync(const Group& group) {
  group.sync();
}
template <class Group>
MACO_CG auto thread_rank(const Group& group) -> decltype(group.thread_rank()) {
  return group.thread_rank();
}
template <class Group>
MACO_CG auto group_size(const Group& group) -> decltype(group.size()) {
  return group.size();
}

/// Calls `f` in one thread of the group.
template <class Group, class F, class... Args>
MACO_CG void invoke_one(const Group& group, F&& f, Args&&... args) {
  if (group.thread_rank() == 0u) static_cast<F&&>(f)(static_cast<Args&&>(args)...);
}
/// Gives all threads of a tile or coalesced group what `f` returned in one of them.
template <class Group, class F, class... Args>
MACO_CG auto invoke_one_broadcast(const Group& group, F&& f, Args&&... args) ->
    typename details::remove_reference<decltype(f(args...))>::type {
  typename details::remove_reference<decltype(f(args...))>::type result{};
  if (group.thread_rank() == 0u) result = static_cast<F&&>(f)(static_cast<Args&&>(args)...);
  return group.shfl(result, 0);
}

template <class T>
struct plus {
  MACO_CG T operator()(T a, T b) const { return a + b; }
};
template <class T>
struct less {
  MACO_CG T operator()(T a, T b) const { return b < a ? b : a; }
};
template <class T>
struct greater {
  MACO_CG T operator()(T a, T b) const { return a < b ? b : a; }
};
template <class T>
struct bit_and {
  MACO_CG T operator()(T a, T b) const { return a & b; }
};
template <class T>
struct bit_or {
  MACO_CG T operator()(T a, T b) const { return a | b; }
};
template <class T>
struct bit_xor {
  MACO_CG T operator()(T a, T b) const { return a ^ b; }
};

namespace details {

// Reductions of integers for which a warp has one instruction.
template <class T, class Op>
struct at_once {
  static constexpr bool value = false;
};
#if defined(MACO_CPU) || (defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800)
#define MACO_AT_ONCE(T, OP, FUNCTION)                                                           \
  template <>                                                                                   \
  struct at_once<T, OP<T>> {                                                                    \
    static constexpr bool value = true;                                                         \
    MACO_CG static T reduce(unsigned lanes, T x) { return static_cast<T>(FUNCTION(lanes, x)); } \
  };
MACO_AT_ONCE(int, plus, __reduce_add_sync)
MACO_AT_ONCE(unsigned, plus, __reduce_add_sync)
MACO_AT_ONCE(int, less, __reduce_min_sync)
MACO_AT_ONCE(unsigned, less, __reduce_min_sync)
MACO_AT_ONCE(int, greater, __reduce_max_sync)
MACO_AT_ONCE(unsigned, greater, __reduce_max_sync)
MACO_AT_ONCE(int, bit_and, __reduce_and_sync)
MACO_AT_ONCE(unsigned, bit_and, __reduce_and_sync)
MACO_AT_ONCE(int, bit_or, __reduce_or_sync)
MACO_AT_ONCE(unsigned, bit_or, __reduce_or_sync)
MACO_AT_ONCE(int, bit_xor, __reduce_xor_sync)
MACO_AT_ONCE(unsigned, bit_xor, __reduce_xor_sync)
#undef MACO_AT_ONCE
#endif

template <class Group, class T, class Op>
MACO_CG T scan(const Group& group, T value, Op op) {
  const unsigned rank = group.thread_rank();
  const unsigned count = static_cast<unsigned>(__popc(group.lanes()));
  for (unsigned delta = 1u; delta < count; delta *= 2u) {
    const T before = group.shfl_up(value, delta);
    if (delta <= rank) value = op(value, before);
  }
  return value;
}

// Full tiles combine partners; other groups scan, and take what the last thread has. The order of
// operations is that of CUDA's own reduce.
template <class Group, class T, class Op>
MACO_CG T reduce_in_order(const Group& group, T value, Op op) {
  const unsigned count = static_cast<unsigned>(__popc(group.lanes()));
  return group.shfl(scan(group, value, op), static_cast<int>(count) - 1);
}
template <unsigned kSize, class T, class Op>
MACO_CG T reduce_steps(const tile<kSize>& group, T value, Op op) {
  if (static_cast<unsigned>(__popc(group.lanes())) < kSize) {
    return reduce_in_order(group, value, op);
  }
  for (unsigned bits = kSize / 2u; bits > 0u; bits /= 2u) {
    value = op(value, group.shfl_xor(value, bits));
  }
  return value;
}
template <class T, class Op>
MACO_CG T reduce_steps(const coalesced_group& group, T value, Op op) {
  return reduce_in_order(group, value, op);
}

}  // namespace details

/// op over the values of a tile's or coalesced group's threads, in each of them.
template <class Group, class T, class Op>
MACO_CG T reduce(const Group& group, T value, Op op) {
  if constexpr (details::at_once<T, Op>::value) {
    return details::at_once<T, Op>::reduce(group.lanes(), value);
  } else {
    return details::reduce_steps(group, value, op);
  }
}

template <class Group, class T, class Op>
MACO_CG T inclusive_scan(const Group& group, T value, Op op) {
  return details::scan(group, value, op);
}
template <class Group, class T>
MACO_CG T inclusive_scan(const Group& group, T value) {
  return details::scan(group, value, plus<T>());
}
/// The first thread gets T{}.
template <class Group, class T, class Op>
MACO_CG T exclusive_scan(const Group& group, T value, Op op) {
  const T before = group.shfl_up(details::scan(group, value, op), 1u);
  return group.thread_rank() == 0u ? T{} : before;
}
template <class Group, class T>
MACO_CG T exclusive_scan(const Group& group, T value) {
  return exclusive_scan(group, value, plus<T>());
}

}  // namespace cooperative_groups

#endif  // MACO_COOPERATIVE_GROUPS
