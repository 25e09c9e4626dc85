// packets.cuh: temporaries with packets, which tasks of a rank pass to each other without an event.
// Each element lies beside a flag that identifies the launch, together in a word: 2 bytes each, or
// 4 bytes each.
//
// If there are many packets, their reader first waits for a hint, which says that the first ones
// are there (tables.cpp). It looks at all packets, and again at those that weren't there.

namespace maco {

template <int kBytes>
struct PacketWord {
  using type = u64;
};
template <>
struct PacketWord<2> {
  using type = u32;
};

template <class T>
struct Packet {
  static_assert(sizeof(T) == 2 || sizeof(T) == 4, "elements of packets have 2 or 4 bytes");
  static constexpr bool kNarrow = sizeof(T) == 2;
  using Word = typename PacketWord<(int)sizeof(T)>::type;
  static constexpr int kAtOnce = 16 / (int)sizeof(Word);  // words of one access
  static MACO_FN Word make(T value, u32 flag) {
    if constexpr (kNarrow) {
      return (flag << 16) | bits_as<u16>(value);
    } else {
      return ((u64)flag << 32) | bits_as<u32>(value);
    }
  }
  // Not 0 if a word doesn't have this flag: bits that it can't have otherwise.
  static MACO_FN u32 differs(Word word, u32 flag) {
    if constexpr (kNarrow) {
      return (word ^ (flag << 16)) >> 16;
    } else {
      return (u32)(word >> 32) ^ flag;
    }
  }
  static MACO_FN T value(Word word) {
    if constexpr (kNarrow) {
      return bits_as<T>((u16)word);
    } else {
      return bits_as<T>((u32)word);
    }
  }
};

// Where the packets lie that a task reads, as a pointer to elements; and those that it writes.
template <class T>
struct Received {
  Context* ctx;
  const typename Packet<T>::Word* words;
  int operand;
  MACO_FN Received operator+(i64 n) const { return {ctx, words + n, operand}; }
};
template <class T>
struct Sends {
  typename Packet<T>::Word* words;
  u32 flag;
  MACO_FN Sends operator+(i64 n) const { return {words + n, flag}; }
};
template <class T>
MACO_FN Received<T> received(const Args& args, int i) {
  return {&args.ctx, args.ptr<const typename Packet<T>::Word>(i), i};
}
template <class T>
MACO_FN Sends<T> sends(const Args& args, int i) {
  return {args.ptr<typename Packet<T>::Word>(i), args.ctx.own_sent_flag()};
}
// Operand i for reading or writing, with packets or without.
template <class T, bool kPackets>
MACO_FN auto to_read(const Args& args, int i) {
  if constexpr (kPackets) {
    return received<T>(args, i);
  } else {
    return args.ptr<const T>(i);
  }
}
template <class T, bool kPackets>
MACO_FN auto to_write(const Args& args, int i) {
  if constexpr (kPackets) {
    return sends<T>(args, i);
  } else {
    return args.ptr<T>(i);
  }
}

// Adjacent words for which a thread waits.
template <class T>
struct AwaitedRun {
  using Word = typename Packet<T>::Word;
  const Word* next;  // the first word that isn't known to have come
  const Word* end;
  u32 differs = 0;  // bits in which its flag differs
  MACO_FN AwaitedRun(const Word* first, int count) : next(first), end(first + count) {}
  // Looks at the words that hadn't come; returns whether some still haven't. All lanes take as many
  // steps.
  MACO_FN bool packet_load_missing(u32 flag, int count) {
    MACO_ROLLED
    for (int i = 0; i < count; ++i) {
      if (next == end) continue;
      Word seen[1];
      words_load<1>(next, seen);
      differs = Packet<T>::differs(seen[0], flag);
      if (differs == 0) ++next;
    }
    return next != end;
  }
};
// All lanes of a warp wait until the runs of `count` words that they need, if any, have come.
// Returns false if the run stops: the data may be anything, and the CTA exits when the task has
// ended. Not inlined: rarely used code would be fetched with the code beside it.
template <class T>
MACO_OP bool await_words(Context& ctx, const typename Packet<T>::Word* first, int count,
                         int operand) {
  WatchState state(0);
  Watch watch(ctx, state, first, kPatienceLocal, kWaitPacket, (u32)operand, ctx.rank());
  const u32 flag = ctx.own_flag();
  AwaitedRun<T> run(first, first ? count : 0);
  while (true) {
    const bool waits = run.packet_load_missing(flag, count);
    if (!warp_any(waits)) return true;
    watch.word = run.next;
    const bool goes_on = watch.again() || !waits;
    if (!warp_any(!goes_on)) continue;
    if (!goes_on) watch.give_up(flag, flag ^ run.differs);
    return false;
  }
}
// The same for a single lane.
template <class T>
MACO_OP bool await_lone_words(Context& ctx, const typename Packet<T>::Word* first, int count,
                              int operand) {
  WatchState state(0);
  Watch watch(ctx, state, first, kPatienceLocal, kWaitPacket, (u32)operand, ctx.rank());
  const u32 flag = ctx.own_flag();
  AwaitedRun<T> run(first, count);
  while (run.packet_load_missing(flag, count)) {
    watch.word = run.next;
    if (watch.again()) continue;
    watch.give_up(flag, flag ^ run.differs);
    return false;
  }
  return true;
}

// V elements in a row, which may or may not have come.
template <class T, int V>
struct PacketRun {
  using Word = typename Packet<T>::Word;
  static constexpr int kPiece = V < Packet<T>::kAtOnce ? V : Packet<T>::kAtOnce;
  static_assert(V % kPiece == 0, "whole accesses");
  Word words[V];
  // `p` is aligned to as many elements.
  MACO_FN void load(const Received<T>& p) {
    MACO_UNROLL
    for (int i = 0; i < V; i += kPiece) words_load<kPiece>(p.words + i, words + i);
  }
  MACO_FN bool has_come(u32 flag) const {
    u32 differs = 0;
    MACO_UNROLL
    for (int i = 0; i < V; ++i) differs |= Packet<T>::differs(words[i], flag);
    return differs == 0;
  }
  MACO_FN T get(int i) const { return Packet<T>::value(words[i]); }
  MACO_FN Vec<T, V> values() const {
    Vec<T, V> v;
    MACO_UNROLL
    for (int i = 0; i < V; ++i) v.v[i] = get(i);
    return v;
  }
};

// All lanes of a warp load runs of packets, run i from place(i), until all of the warp's runs have
// come. All are loaded again: keeping those that have come would hold registers over the bounded
// wait, and double the code. For the same reason lanes that need nothing load what other lanes do.
template <class T, int V, int N, class F>
MACO_FN void receive_together(Context& ctx, int operand, PacketRun<T, V> (&runs)[N], F place) {
  // Mostly packets come within a few looks; a longer wait goes on in the bounded wait.
  constexpr int kLooksAtOnce = 64;
  const u32 flag = ctx.own_flag();
  u64 since = 0;
  bool goes_on = true;
  int missing = -1, looks = 0;
  // The check is at the loop's end: else the compiler would put a second look before the loop.
  do {
    if (looks == kLooksAtOnce) {
      goes_on = await_words<T>(ctx, missing < 0 ? nullptr : place(missing).words, V, operand);
      looks = 0;
    }
    MACO_UNROLL
    for (int i = 0; i < N; ++i) runs[i].load(place(i));
    missing = -1;
    MACO_UNROLL
    for (int i = 0; i < N; ++i)
      if (!runs[i].has_come(flag)) missing = i;
    ++looks;
    goes_on = warp_any(missing >= 0) && goes_on;
    if (goes_on) {
      since = ctx.profile_first_pause(since);
    }
  } while (goes_on);
  ctx.profile_packet(since);
}

// N elements in a row that are requested first, and awaited when they are taken. `operand`: the
// operand's number, for a report.
template <int N, class P>
struct Asked;
template <int N, class T>
struct Asked<N, const T*> {
  Vec<T, N> elements;
  MACO_FN void ask(const T* p) { elements = gload_vec<N>(p); }
  MACO_FN Vec<T, N> take(Context&, int) {
    used_from_here(elements);
    return elements;
  }
};
template <int N, class T>
struct Asked<N, Received<T>> {
  const typename Packet<T>::Word* words;
  PacketRun<T, N> run;
  MACO_FN void ask(const Received<T>& p) {
    words = p.words;
    run.load(p);
  }
  MACO_FN Vec<T, N> take(Context& ctx, int operand) {
    if (!run.has_come(ctx.own_flag())) {
      const u64 since = ctx.profile_first_pause(0);
      await_lone_words<T>(ctx, words, N, operand);
      ctx.profile_packet(since);
      run.load({&ctx, words, operand});
    }
    return run.values();
  }
};

template <int N, class T>
MACO_FN Vec<T, N> gload_vec(const Received<T>& p) {
  Asked<N, Received<T>> asked;
  asked.ask(p);
  return asked.take(*p.ctx, p.operand);
}
template <class T>
MACO_FN T gload(const Received<T>& p) {
  return gload_vec<1>(p).v[0];
}
// Writes the packets of a task that waits for nothing more from here on.
template <class T>
struct Sealed {
  typename Packet<T>::Word* words;
  u32 flag;
};
template <class T>
MACO_FN Sealed<T> seal(const Sends<T>& p) {
  return {p.words, Context::unless_stopped(p.flag)};
}
template <class T>
MACO_FN T* seal(T* p) {
  return p;
}
template <class T>
MACO_FN void gstore(const Sealed<T>& p, T value) {
  word_store(p.words, Packet<T>::make(value, p.flag));
}
template <class T>
MACO_FN void gstore(const Sends<T>& p, T value) {
  gstore(seal(p), value);
}

}  // namespace maco
