"""What a launch costs beyond its kernel's own time: many launches of a kernel of one small task, from the host and in a CUDA graph, beside
PyTorch's kernel for it. A task's own time is what each further one of a chain adds."""
import ctypes
import statistics
import time

import gpu_bench
import library
from tasks import chain


class Launches(library.Library):
    def open(self, kernel):
        options = library.SessionOptions(size=ctypes.sizeof(library.SessionOptions), device=int(self.device == "cpu"), timeout_ms=20000)
        session = ctypes.c_void_p(self._call("maco_session_open", kernel, ctypes.byref(options)))
        self._call("maco_session_allocate", session)
        return session

    def launch(self, session, stream):
        """Puts a launch into the stream; it may be captured."""
        streams = (ctypes.c_void_p * 1)(stream)
        self._call("maco_session_launch", session, None, ctypes.c_size_t(0), streams)


def times(torch, step, count):
    """Microseconds of a launch: of `count` from the host, until all are done, and until they are enqueued; of as many in a CUDA graph."""
    stream = torch.cuda.Stream()
    host, issued, graphed = [], [], []
    with torch.cuda.stream(stream):
        for _ in range(8):
            step(stream.cuda_stream)
        stream.synchronize()
        for _ in range(7):
            begin = time.perf_counter()
            for _ in range(count):
                step(stream.cuda_stream)
            put = time.perf_counter()
            stream.synchronize()
            issued.append((put - begin) / count * 1e6)
            host.append((time.perf_counter() - begin) / count * 1e6)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream, capture_error_mode="relaxed"):
        for _ in range(count):
            step(torch.cuda.current_stream().cuda_stream)
    for _ in range(7):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        with torch.cuda.stream(stream):
            begin.record()
            graph.replay()
            end.record()
        stream.synchronize()
        graphed.append(begin.elapsed_time(end) / count * 1e3)
    return tuple(map(statistics.median, (host, issued, graphed)))


def main():
    parser = gpu_bench.arguments(__doc__, runs=False)
    parser.set_defaults(launches=200)
    args = parser.parse_args()
    import torch
    maco = Launches(args.bin)
    bench = gpu_bench.Bench(args)
    x = torch.randn(1, 128, device="cuda")
    measured = {}
    for tasks in (1, 101):
        session = maco.open(maco.compile(chain(tasks)))
        measured[tasks] = times(torch, lambda stream: maco.launch(session, stream), args.launches)
        maco.lib.maco_session_free(session)
    own = (measured[101][2] - measured[1][2]) / 100
    peer = times(torch, lambda _: torch.softmax(x, -1), args.launches)
    for name, (host, issued, graphed) in (("maco", measured[1]), ("pytorch", peer)):
        bench.add(what=name, host_us=host, issue_us=issued, graph_us=graphed, own_us=own if name == "maco" else None)
    bench.finish()


if __name__ == "__main__":
    main()
