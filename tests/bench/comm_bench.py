"""What the benchmarks of communication share: MACO in this process, PyTorch's collectives in a process for each GPU, a table."""
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time

import gpu_bench
import library

# NVLink multicast may hang machines that others share: nobody uses it here.
NO_MULTICAST = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "CUDA_MODULE_LOADING": "EAGER"}


def arguments(description, default_gpus="2,4,8"):
    parser = gpu_bench.arguments(description, runs=False)
    parser.add_argument("--gpus", default=default_gpus, help=f"numbers of GPUs, of those that are there (default: {default_gpus})")
    parser.add_argument("--quick", action="store_true", help="fewer sizes, launches and repetitions")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda", help="cpu: to try the script where there is no GPU")
    parser.add_argument("--peer-jobs", help="(the script's own) what a process of the peers is to do")
    return parser


def open_library(args):
    os.environ.update(NO_MULTICAST)
    try:
        return library.Library(args.bin, args.device)
    except (library.MacoError, OSError) as error:
        sys.exit(f"{sys.argv[0]}: {error}")


def worlds(args, maco):
    return [n for n in map(int, args.gpus.split(",")) if args.device == "cpu" or n <= maco.gpus]


def measure(maco, graphs, launches):
    """{name: microseconds of a launch, or None} for {name: text of a graph}."""
    times = {}
    for name, kernel in maco.compile_all(graphs).items():
        try:
            if isinstance(kernel, library.MacoError):
                raise kernel
            times[name] = maco.bench(kernel, launches)
        except library.MacoError as error:
            print(f"{name}: {error}", file=sys.stderr, flush=True)
            times[name] = None
    return times


def check(args, graphs):
    """Runs each of {name: text} three times and compares with the reference; says how many are right, and which are not."""
    wrong = 0
    for name, text in graphs.items():
        command = [os.path.join(args.bin, "maco-run"), "-", "-q", "--device", args.device, "--check", "--launches", "3"]
        done = subprocess.run(command, input=text, capture_output=True, text=True)
        if done.returncode:
            wrong += 1
            print(f"WRONG: {name}: status {done.returncode}: {done.stderr.strip()[:300]}", flush=True)
    print(f"checked: {len(graphs) - wrong} of {len(graphs)} are right", flush=True)


def inside(many, one, count):
    """Microseconds of each of `count` operations of a launch behind the first, from the time of both launches."""
    if many is None or one is None or count < 2:
        return None
    return (many - one) / (count - 1)


# ---- peers ------------------------------------------------------------------------------------------


def ask_peers(script, gpus, jobs):
    """What `serve_peers` of the script says of each job, from one process a GPU."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        asked = os.path.join(folder, "jobs.json")
        with open(asked, "w") as file:
            json.dump({"jobs": jobs, "answers": asked + ".out"}, file)
        ranks = []
        for rank in range(gpus):
            where = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(gpus), "MASTER_ADDR": "127.0.0.1",
                     "MASTER_PORT": str(port)}
            ranks.append(subprocess.Popen([sys.executable, script, "--peer-jobs", asked], env={**os.environ, **NO_MULTICAST, **where}))
        # Where one fails, the others would wait for it.
        late = time.monotonic() + 300
        while any(process.poll() is None for process in ranks) and time.monotonic() < late:
            if any(process.poll() for process in ranks):
                late = min(late, time.monotonic() + 5)
            time.sleep(0.1)
        failed = [rank for rank, process in enumerate(ranks) if process.poll() != 0]
        for process in ranks:
            process.kill()
            process.wait()
        if failed:
            print(f"peers on {gpus} GPUs: ranks {failed} failed or were late", file=sys.stderr, flush=True)
        try:
            with open(asked + ".out") as file:
                return [json.loads(line) for line in file]
        except OSError:
            return []


def serve_peers(args, answer):
    """In a process of the peers: answer(job, rank, world), a dictionary, of each job; rank 0 writes them down one by one."""
    import torch
    import torch.distributed as dist
    with open(args.peer_jobs) as file:
        asked = json.load(file)
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.cuda.set_device(rank)
    torch.set_grad_enabled(False)
    dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
    for job in asked["jobs"]:
        found = {**job, **answer(job, rank, world)}
        if rank == 0:
            with open(asked["answers"], "a") as file:
                file.write(json.dumps(found) + "\n")
    dist.barrier()
    dist.destroy_process_group()


def graph_us(step, inner, repeats):
    """Microseconds of each of `inner` steps in one CUDA graph: the median of the slowest rank."""
    import torch
    import torch.distributed as dist
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(2):
            step()
    torch.cuda.synchronize()
    dist.barrier()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for _ in range(inner):
            step()
    for _ in range(2):
        graph.replay()
    torch.cuda.synchronize()
    times = []
    for _ in range(repeats):
        dist.barrier()
        torch.cuda.synchronize()
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) * 1000 / inner)
    slowest = torch.tensor([statistics.median(times)], device="cuda")
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    del graph
    return round(slowest.item(), 2)


# ---- tables -----------------------------------------------------------------------------------------


def size_name(size):
    return f"{size >> 20} MB" if size >= 1 << 20 else f"{size >> 10} KB"


def table(rows, columns):
    """Lines of a table: `columns` are (heading, width, row -> text), to the left where the width is negative."""
    place = lambda text, width: f"{text:<{-width}}" if width < 0 else f"{text:>{width}}"
    lines = [[place(heading, width) for heading, width, _ in columns]]
    lines += [[place(str(text(row)), width) for _, width, text in columns] for row in rows]
    return "\n".join("  ".join(line) for line in lines)


def us(key):
    """A column's text: microseconds, or a dash."""
    return lambda row: "-" if row.get(key) is None else f"{row[key]:.2f}" if row[key] < 100 else f"{row[key]:.0f}"


def finish(args, bench, more):
    """Writes the figures, with what they were measured under."""
    bench.finish(**more, multicast="off (NCCL_NVLS_ENABLE=0, TORCH_SYMM_MEM_DISABLE_MULTICAST=1)")
