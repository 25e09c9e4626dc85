"""What maco.LLM adds to its kernels: ids of an answer beside the kernel's time, the first id of a prompt, loading.

  words.py DIR [--tp N] [--device cuda|cpu] [--new 256] [--prompt 512]

DIR is a checkpoint; what its weights are doesn't count.
"""
import argparse
import time

import maco


def least(times, call):
    found = []
    for _ in range(times):
        begin = time.perf_counter()
        call()
        found.append(time.perf_counter() - begin)
    return min(found), sorted(found)[len(found) // 2]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--tp", type=int, default=1)
    parser.add_argument("--device")
    parser.add_argument("--new", type=int, default=256)
    parser.add_argument("--prompt", type=int, default=512)
    given = parser.parse_args()
    begin = time.perf_counter()
    with maco.LLM(given.folder, given.tp, device=given.device, progress=False) as llm:
        print(f"{llm!r}: loaded in {time.perf_counter() - begin:.2f} s")
        llm._settings = maco.models.checkpoint.Settings(frozenset(), 1.0, None)  # nothing ends an answer early
        decode, prefill = (llm._engine._sessions[kind] for kind in ("decode", "prefill"))
        few = [1] * 8
        llm.generate(few, given.new)
        kernel = decode.bench(100, pos=len(few) + given.new // 2)
        best, median = least(7, lambda: llm.generate(few, given.new))
        whole = given.new * kernel / 1e6
        print(f"{given.new} ids: {best * 1e3:.2f} ms at best, {median * 1e3:.2f} ms in the median; the kernel takes {kernel:.1f} us, "
              f"{whole * 1e3:.2f} ms for all: x{best / whole:.4f}, x{median / whole:.4f}")
        long = [1] * given.prompt

        waited = []

        def first():
            begin = time.perf_counter()
            for _ in llm.generate(long, 2, stream=True):
                waited.append(time.perf_counter() - begin)
                return

        first()
        waited.clear()
        rows = min(given.prompt, llm._engine.chunk)
        kernel = prefill.bench(30, rows=rows, pos=0)
        least(9, first)
        print(f"the first id behind {given.prompt}: {min(waited) * 1e3:.2f} ms at best, {sorted(waited)[4] * 1e3:.2f} ms in the median; "
              f"the kernel takes {kernel / 1e3:.2f} ms for {rows}")
    begin = time.perf_counter()
    maco.LLM(given.folder, given.tp, device=given.device, progress=False).close()
    print(f"loaded again in {time.perf_counter() - begin:.2f} s")


if __name__ == "__main__":
    main()
