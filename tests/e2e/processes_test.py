"""Ranks in processes of their own, on the CPU target: the same bits as threads give; and processes that are killed, stopped, missing or
other than the rest: every other rank ends with status 4 in time, and says which rank it was. MACO_FAULTS=N kills N times (200)."""

import argparse
import concurrent.futures
import json
import os
import pathlib
import random
import signal
import struct
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
GRAPHS = ROOT / "examples" / "graphs"
SMALL = """graph small(world = {world}) {{
  scalar step in [0, 9)
  input x : f32[16, 64]
  state s : f32[24, 64]
  s = kv_append(s, x, at = step)
  a = allreduce(x)
  b = alltoall(a)
  output y = ring_shift(b)
}}
"""


def write_inputs(path):
    """With the input x of SMALL, over three ranks."""
    header = json.dumps({"x": {"dtype": "F32", "shape": [15, 64], "data_offsets": [0, 15 * 64 * 4]}}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(15 * 64 * 4))


def clean(**more):
    """The environment without a group's, and with what is given."""
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "MACO_GROUP")
    return {k: v for k, v in os.environ.items() if k not in names} | {k: str(v) for k, v in more.items()}


class Test:
    def __init__(self, maco_run, folder):
        self.maco_run, self.folder, self.problems, self.groups = maco_run, pathlib.Path(folder), [], 0

    def command(self, graph, *options):
        return [self.maco_run, str(graph), "--device=cpu", *options]

    def check(self, good, what, said=""):
        if not good:
            self.problems.append(f"{what}\n{said}".rstrip())

    def run(self, graph, *options, status=0, says="", env=None):
        ran = subprocess.run(self.command(graph, *options), capture_output=True, text=True, timeout=300, env=env or clean())
        said = ran.stdout + ran.stderr
        self.check(ran.returncode == status and says in said, f"{graph} {options}: status {ran.returncode}, not {status} with '{says}'",
                   said)

    def start(self, graph, world, *options, without=(), by_rank=None, name=None):
        """A process for each rank, as torchrun starts them."""
        self.groups += 1
        port = name or f"{os.getpid()}.{self.groups}"
        started = {}
        for rank in range(world):
            if rank in without:
                continue
            env = clean(RANK=rank, WORLD_SIZE=world, LOCAL_RANK=rank, LOCAL_WORLD_SIZE=world, MASTER_ADDR="localhost", MASTER_PORT=port)
            command = self.command((by_rank or {}).get(rank, (graph,))[0], *options, *(by_rank or {}).get(rank, (graph,))[1:])
            started[rank] = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env)
        return started

    def ended(self, started, seconds, status, says, what):
        """Checks that all processes end in time with the status. Returns what they wrote, joined."""
        end = time.monotonic() + seconds
        said = ""
        for rank, process in started.items():
            try:
                out, _ = process.communicate(timeout=max(0.1, end - time.monotonic()))
                said += out
                self.check(process.returncode == status, f"{what}: rank {rank} ended with {process.returncode}, not {status}", out)
            except subprocess.TimeoutExpired:
                process.kill()
                self.check(False, f"{what}: rank {rank} did not end within {seconds} s")
        self.check(says in said, f"{what}: nobody says '{says}'", said)

    # ---- what is right

    def same_bits(self, graph, *options):
        for how in ("threads", "processes"):
            out = self.folder / f"{pathlib.Path(graph).stem}.{how}.{{rank}}.safetensors"
            self.run(graph, "--check", "--launches=3", f"--outputs={out}", *options, *(["--processes"] if how == "processes" else []))
        for threads in self.folder.glob(f"{pathlib.Path(graph).stem}.threads.*"):
            processes = self.folder / threads.name.replace(".threads.", ".processes.")
            self.check(processes.exists() and threads.read_bytes() == processes.read_bytes(), f"{graph}: other bits in {threads.name}")

    # ---- what is wrong

    def all_say(self, started, status, says, what):
        """Every one of these says all of it."""
        for rank, process in started.items():
            said, _ = process.communicate(timeout=60)
            missing = [text for text in says if text not in said]
            good = process.returncode == status and not missing
            self.check(good, f"{what}: rank {rank}: status {process.returncode}, without {missing}", said)

    def told_differently(self):
        """All ranks say what differs, with the values of all."""
        small, inputs = self.folder / "small3.maco", self.folder / "in.safetensors"
        write_inputs(inputs)
        dims = self.folder / "dims.maco"
        dims.write_text("graph d(world = 2) {\n  dim n <= 16\n  input x : f32[n, 8]\n  output y = allreduce(x)\n}\n")
        other = self.folder / "other.maco"
        other.write_text(small.read_text().replace("ring_shift(b)", "relu(b)"))
        different = [
            (small, ("--seed=2",), ("--seed=3",), "--seed is 2 on ranks 0 and 2, 3 on rank 1"),
            (small, (), ("--scalar=step=3",), "--scalar step is 0 on ranks 0 and 2, 3 on rank 1"),
            (small, ("--scalar=step=1",), ("--scalar=step=1+",), "--scalar step is 1 on ranks 0 and 2, 1+ on rank 1"),
            (dims, (), ("--dim=n=5",), "--dim n is 16 on rank 0, 5 on rank 1"),
            (small, ("--launches=2",), (), "--launches is 2 on ranks 0 and 2, 1 on rank 1"),
            (small, (), ("--check",), "--check is not given on ranks 0 and 2, given on rank 1"),
            (small, ("--check", "--rtol=0.5"), ("--check",), "--rtol is 0.5 on ranks 0 and 2, not given on rank 1"),
            (small, ("--bench=3",), ("--bench=4",), "--bench is 3 on ranks 0 and 2, 4 on rank 1"),
            (small, (), ("--profile=-",), "a profile is not given on ranks 0 and 2, asked for on rank 1"),
            (small, (), ("--first-epoch=7",), "the first epoch is 1 on ranks 0 and 2, 7 on rank 1"),
            (small, (f"--inputs={inputs}",), (), "--inputs is given on ranks 0 and 2, not given on rank 1"),
            (small, (f"--inputs={inputs}", "--check"), (f"--inputs={self.folder}/./in.safetensors", "--check"),
             f"--inputs is '{inputs}' on ranks 0 and 2, '{self.folder}/./in.safetensors' on rank 1"),
            (small, (f"--inputs={inputs}", "--require-inputs"), (f"--inputs={inputs}",),
             "--require-inputs is given on ranks 0 and 2, not given on rank 1"),
            (small, (), ("--no-prune",), "--target=cpu on ranks 0 and 2, --target=cpu --no-prune on rank 1"),
            (small, (), ("--target=sm_80",), "--target=cpu on ranks 0 and 2, --target=sm_80 on rank 1"),
        ]
        for graph, usual, ones, says in different:
            world = 2 if graph == dims else 3
            ranks = {r: (graph, *(ones if r == 1 else usual)) for r in range(world)}
            started = self.start(graph, world, "--timeout=20", by_rank=ranks)
            self.all_say(started, 4, ["the ranks were told different things: ", says], says)
        started = self.start(small, 3, "--timeout=20", by_rank={2: (other,)})
        self.all_say(started, 4, ["the graph is 'small' (", ") on ranks 0 and 1, 'small' ("], "another graph")
        # Delays, patience and where outputs go are a rank's own business, and so are its files where nobody else reads them.
        ranks = {r: (small, f"--jitter={r}", f"--timeout={20 + r}", f"--inputs={self.folder}/own{r}.safetensors") for r in range(3)}
        for r in range(3):
            write_inputs(self.folder / f"own{r}.safetensors")
        self.all_say(self.start(small, 3, by_rank=ranks), 0, [], "what may differ")

    def has_socket(self, pid):
        """Whether the process has opened a socket: it is about to meet the others, or does."""
        try:
            return any(os.readlink(f"/proc/{pid}/fd/{fd}").startswith("socket:") for fd in os.listdir(f"/proc/{pid}/fd"))
        except OSError:
            return False

    def twice(self):
        """A second process of a rank: it and those who wait hear that, with the processes' numbers."""
        small = self.folder / "small3.maco"
        name = f"{os.getpid()}.twice"
        for rank in (0, 1):
            first = self.start(small, 3, "--timeout=40", without={0, 1, 2} - {rank}, name=name)[rank]
            while first.poll() is None and not self.has_socket(first.pid):
                time.sleep(0.01)
            second = self.start(small, 3, "--timeout=40", without={0, 1, 2} - {rank}, name=name)[rank]
            self.all_say({rank: second}, 4, [f"two processes say that they are rank {rank}", str(first.pid), str(second.pid)], "the second")
            self.all_say({rank: first}, 4, [f"two processes say that they are rank {rank}", str(first.pid), str(second.pid)], "the first")

    def killed(self, seed):
        """One rank of three is killed somewhere between its start and its end."""
        chance = random.Random(seed)
        # A quarter of them hand their collectives over.
        graph = self.folder / ("handed3.maco" if seed % 4 == 0 else "small3.maco")
        started = self.start(graph, 3, "--launches=100000", "--scalar=step=1", "--timeout=10", name=f"{os.getpid()}.k{seed}")
        time.sleep(chance.random() * 0.3)
        victim = chance.randrange(3)
        started[victim].send_signal(signal.SIGKILL)
        started[victim].communicate()
        del started[victim]
        # A rank that the others had not met yet did not come; one that they had is gone.
        self.ended(started, 40, 4, f"rank {victim} ", f"seed {seed}: rank {victim} killed")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--maco-run", required=True)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        test = Test(args.maco_run, folder)
        for world, rows in ((2, 16), (3, 15)):
            (test.folder / f"small{world}.maco").write_text(SMALL.format(world=world).replace("16, 64", f"{rows}, 64"))
        small, handed = test.folder / "small3.maco", test.folder / "handed3.maco"
        handed.write_text(small.read_text().replace("  scalar", "  set backend = nccl\n  scalar"))

        test.same_bits(GRAPHS / "tp_mlp.maco", "--jitter=5")
        test.same_bits(GRAPHS / "pipeline_4_stages.maco")
        for name in ("allreduce", "reduce_scatter", "allgather", "alltoall", "broadcast", "ring_shift"):
            test.same_bits(GRAPHS / f"{name}.maco")
        test.same_bits(small, "--scalar=step=1+")
        test.same_bits(handed, "--scalar=step=1+")
        test.run(small, "--processes", "--bench=5", says="slowest of 3 ranks")
        trace = test.folder / "trace.json"
        test.run(small, "--processes", f"--profile={trace}", says="critical path")
        lanes = {event["pid"] for event in json.loads(trace.read_text()) if event["ph"] == "X"}
        test.check(len(lanes) == 3, "--processes --profile: a trace of all ranks", lanes)
        test.run(small, "--processes", "--check", "--rtol=0", status=3, says="more than 0")

        started = test.start(small, 3, "--check", "--launches=2")
        test.ended(started, 60, 0, "a process each", "started by the environment")
        env = {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2", "PMIX_NAMESPACE": f"job{os.getpid()}"}
        other = subprocess.Popen(test.command(test.folder / "small2.maco"), env=clean(**(env | {"OMPI_COMM_WORLD_RANK": "1"})))
        test.run(test.folder / "small2.maco", env=clean(**env), says="2 ranks")
        test.check(other.wait(60) == 0, "Open MPI's names")

        # Command lines that can't be.
        test.run(small, status=2, says="there are 2 processes, but the graph has 3 ranks", env=clean(RANK=0, WORLD_SIZE=2))
        test.run(small, "--peer-memory=threads", env=clean(RANK=0, WORLD_SIZE=2))
        test.run(small, env=clean(RANK=0, WORLD_SIZE=1))
        test.run(small, status=2, says="RANK is '7'", env=clean(RANK=7, WORLD_SIZE=2))
        test.run(small, status=2, says="several hosts", env=clean(RANK=0, WORLD_SIZE=3, LOCAL_WORLD_SIZE=1))
        # tests/unit/group_test.cpp has all halves.
        test.run(small, status=2, says="RANK is '1', but WORLD_SIZE is not set", env=clean(RANK=1))
        test.run(small, "--peer-memory=threads", env=clean(RANK=1))
        test.run(small, status=2, says="MACO_CACHE_MB is 'abc', which is no number of megabytes", env=clean(MACO_CACHE_MB="abc"))
        test.run(small, "--peer-memory=processes", status=2, says="the environment names no rank")
        test.run(small, "--processes", "--peer-memory=threads", status=2, says="contradict each other")
        test.run("-", "--processes", status=2, says="standard input")
        test.run(small, "--processes", "--replay=7", status=2, says="look at all ranks")
        cuda = subprocess.run([args.maco_run, str(small), "--device=cuda", "--processes"], capture_output=True, text=True, env=clean(),
                              timeout=60)
        # Where GPUs are too few, all ranks fail of it, and one says so.
        test.check((cuda.returncode, cuda.stderr.count("error: ")) in ((0, 0), (4, 1)), "--device=cuda --processes", cuda.stderr)

        # Ranks that don't come, or are others.
        for missing in (0, 2):
            started = test.start(small, 3, "--timeout=1", without=(missing,))
            test.ended(started, 20, 4, f"rank {missing} did not come within 1 s", f"without rank {missing}")
        test.told_differently()
        test.twice()

        # One that is stopped, and so neither moves nor ends.
        started = test.start(small, 3, "--launches=1000000", "--timeout=1")
        time.sleep(1)
        started[1].send_signal(signal.SIGSTOP)
        stopped = started.pop(1)
        test.ended(started, 30, 4, "rank 1", "rank 1 stopped")
        stopped.kill()
        stopped.communicate()
        parent = subprocess.Popen(test.command(small, "--launches=1000000", "--timeout=1", "--processes"), stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True, env=clean())
        time.sleep(1)
        children = pathlib.Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text(encoding="utf-8").split()
        os.kill(int(children[1]), signal.SIGSTOP)
        # It can't end by itself: whoever started it does that, once it is the only one left.
        test.ended({1: parent}, 90, 4, "rank 1: its process was stopped, and is ended now", "a child stopped")

        faults = int(os.environ.get("MACO_FAULTS", "200"))
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            list(pool.map(test.killed, range(faults)))
        for problem in test.problems:
            print(problem)
        print(f"{faults} processes killed; {len(test.problems)} problems")
    return 1 if test.problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
