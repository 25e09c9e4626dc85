#!/usr/bin/env python3
"""Collectives that users write chunk by chunk (docs/algorithms.md): examples give what they must, wrong ones are refused, plans are read.

  algorithms_test.py --macoc build/bin/macoc --maco-run build/bin/maco-run --maco-opt build/bin/maco-opt [--jobs 2]

"""
import argparse
import concurrent.futures
import glob
import json
import os
import re
import subprocess
import sys
import tempfile

EXAMPLES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples", "collectives")
MOST_LINES = 25  # of a collective

# World, element type and shape of the free examples' x; `{n}` is `world * ` where a tensor has a block for each rank. Numbers of elements
# are odd, there are fewer elements than chunks, and tensors too large for packets, or with rows that only the launch knows.
FREE = [(1, "f32", "{n}7, 13"), (2, "bf16", "{n}5, 77"), (3, "i32", "{n}33"), (5, "u8", "{n}3, 11"), (8, "f32", "{n}1"),
        (3, "f32", "{n}331, 261"), (3, "f16", "{n}rows, 96")]
POWERS = [(1, "f32", "7, 13"), (2, "bf16", "5, 77"), (8, "i32", "33"), (16, "u8", "3, 11"), (8, "f32", "331, 261"), (8, "f16", "rows, 96")]
FIXED = [(None, "f32", "{n}7, 13"), (None, "u8", "{n}1")]


def graph(head, statements, op, world=2, x="input x : f32[world * 8]"):
    body = "".join(f"  {s}\n" for s in statements)
    return f"collective c({head}) {{\n{body}}}\ngraph g(world = {world}) {{\n  {x}\n  output y = {op}\n}}\n"


def allgather(*statements, head="of = allgather, scratch = 1", **more):
    return graph(head, ["output[rank] = copy(input[0])", *statements], "allgather(x, algorithm = c)", **more)


def allreduce(*statements, head="of = allreduce", **more):
    return graph(head, statements, "allreduce(x, algorithm = c)", **more)


PUT, SIGNAL, WAIT = "output[rank] @ 1 - rank = put(input[0])", "signal(to = 1 - rank)", "wait(from = 1 - rank)"
TO_SCRATCH, FROM_SCRATCH = "scratch[0] @ 1 - rank = put(input[0])", "output[1 - rank] = copy(scratch[0])"
IN_PACKETS = TO_SCRATCH.replace("])", "], packets = true)")
# What is wrong with a collective, what is said, and what its witness claims; without one, no run shows it.
WRONG = {
    "each waits before it signals": (allgather(WAIT, PUT, SIGNAL), "comes to a deadlock: 2 thread blocks wait without end", "deadlock"),
    "a semaphore that nobody releases": (allgather("acquire(semaphore = 0)", PUT, SIGNAL, WAIT), "comes to a deadlock", "deadlock"),
    "packets that come too late": (allgather("output[1 - rank] = copy(scratch[0], block = 0)", IN_PACKETS), "comes to a deadlock",
                                   "deadlock"),
    "two blocks write a chunk": (allgather("output[1 - rank] = get(input[0] @ 1 - rank)",
                                           "output[1 - rank] = get(input[0] @ 1 - rank, block = 1)"),
                                 "block 1 of rank 0 writes output[1] of rank 0, which block 0 of rank 0 writes: nothing orders them",
                                 "race"),
    "a block reads what another writes": (allgather("scratch[0] = get(input[0] @ 1 - rank)",
                                                    "output[1 - rank] = copy(scratch[0], block = 1)"),
                                          "nothing orders them", "race"),
    "a peer writes what a block still reads": (allgather(TO_SCRATCH, SIGNAL, WAIT, FROM_SCRATCH, "scratch[0] @ 1 - rank = put(input[0])"),
                                               "which block 0 of rank 1 writes: nothing orders them", "race"),
    "two ranks write a chunk in one statement": (graph("of = broadcast", ["output[0] @ 0 = put(input[0])"],
                                                       "broadcast(x, root = 0, algorithm = c)"),
                                                 "rank 0 writes output[0] of rank 0, and so does rank 1 in the same statement", "race"),
    "a put without a signal": (allgather(TO_SCRATCH.replace("])", "], block = 0)"), FROM_SCRATCH),
                               "rank 0 reads scratch[0] of rank 0, which nothing is sure to have written by then", "empty"),
    "a put without a signal into the output": (allgather(PUT.replace("])", "], block = 0)")),
                                               "rank 0 may end before block 0 of rank 1 writes output[1] of rank 0", "late"),
    "a relaxed signal and what it says": (allgather(TO_SCRATCH, "signal(to = 1 - rank, relaxed = true)", WAIT, FROM_SCRATCH),
                                          "it comes first, but nothing makes it visible", "unseen"),
    "a relaxed wait": (allgather(TO_SCRATCH, SIGNAL, "wait(from = 1 - rank, relaxed = true)", FROM_SCRATCH),
                       "it comes first, but nothing makes it visible", "unseen"),
    "a relaxed signal at the end": (allgather(PUT, "signal(to = 1 - rank, relaxed = true)", WAIT),
                                    "rank 0 may end before block 0 of rank 1 makes visible what it writes", "unseen"),
    "a read before the write": (allgather(FROM_SCRATCH, TO_SCRATCH), "rank 0 reads scratch[0] of rank 0, which nothing has written",
                                "empty"),
    "packets read before they are written": (allgather(FROM_SCRATCH, IN_PACKETS),
                                             "rank 0 reads scratch[0] of rank 0, which nothing has written", "empty"),
    "an empty result": (allgather(), "leaves nothing in output[1] of rank 0, where 'allgather' needs chunk 0 of rank 1", "result"),
    "no statements": (allreduce(), "leaves nothing in output[0] of rank 0", "result"),
    "blocks in the wrong places": (allgather("output[0] = copy(input[0])", "output[1] = get(input[0] @ 1 - rank)"),
                                   "leaves chunk 0 of rank 1 in output[0] of rank 1, where 'allgather' needs chunk 0 of rank 0", "result"),
    "a rank that isn't added": (allreduce("output[0] = reduce(input[0], input[0] @ (rank + 1) % world)", world=3),
                                "leaves the reduction of chunk 0 over ranks 0, 1 in output[0] of rank 0", "result"),
    "a rank that counts twice": (allreduce("output[0] = reduce(input[0], input[0] @ 1 - rank)",
                                           "output[0] = reduce(output[0], input[0] @ 1 - rank)"),
                                 "rank 0 counts chunk 0 of rank 1 twice", None),
    "another order on each rank": (allreduce("output[0] = reduce(input[0], input[0] @ (rank + 1) % world)",
                                             "output[0] = reduce(output[0], input[0] @ (rank + 2) % world)", world=3),
                                   "reduces chunk 0 in another order on rank 1 than on rank 0", None),
    "chunks that don't belong together": (allreduce("output[0] = reduce(input[0], input[1])", head="of = allreduce, chunks = 2"),
                                          "rank 0 reduces chunk 0 of rank 0 with chunk 1 of rank 0", None),
    "a reduction in an all-gather": (allgather("output[0] = reduce(input[0], input[0] @ 1 - rank)"), "'allgather' reduces nothing", None),
    "a semaphore that keeps something": (allgather(PUT, SIGNAL, WAIT, "release(semaphore = 0)"),
                                         "releases semaphore 0 of rank 0 1 times and acquires it 0 times: the next launch would find",
                                         None),
    "a signal too many": (allgather(PUT, SIGNAL, WAIT, SIGNAL), "the next launch would find what is left", None),
    "a barrier that one block comes to": (allgather("output[1 - rank] = get(input[0] @ 1 - rank, block = 1)",
                                                    "barrier(blocks = [0, 1], block = 0)"),
                                          "1 of 2 blocks come to a barrier of rank 0", None),
    "two blocks wait for one signal": (allgather(PUT, SIGNAL, SIGNAL, WAIT, WAIT.replace(")", ", block = 1)")),
                                       "blocks 0 and 1 of rank 0 both wait for the signals from rank 1 to rank 0 with tag 0", None),
    "packets twice": (allgather(IN_PACKETS.replace("true", "true, block = 0"), IN_PACKETS, FROM_SCRATCH), "gets packets twice", None),
    "packets of unknown rows": (allgather(IN_PACKETS, FROM_SCRATCH, x="dim n <= 8\n  input x : f32[n, 8]"),
                                "asks for packets, but how many rows 'x' has, only the launch knows", None),
    "a chunk that there isn't": (allreduce("output[0] = copy(input[2])", head="of = allreduce, chunks = 2"),
                                 "but input has 2 chunks, from 0 on", None),
    "an index out of range on one rank": (allgather("output[rank + 1] = copy(input[0])"),
                                          "rank 1 names output[2], but output has 2 chunks", None),
    "a rank that there isn't": (allreduce("output[0] = get(input[0] @ rank + 1)"), "is 2 on rank 1, but must be 0 to 1", None),
    "ranges of different lengths": (allreduce("output[0:2] = copy(input[0])", head="of = allreduce, chunks = 2"),
                                    "all its ranges must have equally many", None),
    "a copy from a peer": (allreduce("output[0] = copy(input[0] @ 1)"), "'copy' reads memory of its own rank only; use 'get'", None),
    "a signal to oneself": (allreduce("signal(to = rank)"), "rank 0 would signal itself", None),
    "another world": (allreduce(head="of = allreduce, world = 4"), "is for 4 ranks, but the graph has 2", None),
    "another collective": (allreduce(head="of = allgather"), "collective 'c' is one of 'allgather', which 'allreduce' isn't", None),
    "blocks that don't divide": (graph("of = reduce_scatter, chunks = 3", [], "reduce_scatter(x, algorithm = c)"),
                                 "3 chunks are no multiple of that", None),
    "a name that is taken": (allreduce().replace("collective c(", "collective ring("), "'ring' is an algorithm of 'allreduce'", None),
    "an unknown statement": (allreduce("output[0] = move(input[0])"), "must be 'copy', 'put', 'get', 'reduce'", None),
    "an unknown buffer": (allreduce("result[0] = copy(input[0])"), "unknown buffer 'result'", None),
}

USES = """graph g(world = 4) {
  input x : bf16[6, 35]
  output y = allgather(x, algorithm = my_ring)
  output z = allgather(x, algorithm = direct)
}
"""
BROKEN = """collective broken(of = allgather, colour = red) {
  nowhere[0] = copy(output[rank - world])
}
"""


def plan(**changes):
    """Two ranks: each puts its input into the other's scratch, signals, waits and adds up."""
    def rank(r):
        chunk = lambda kind: {"type": kind, "index": 0, "size": 1}
        memory = {"channel_type": "memory", "channel_ids": [0]}
        ops = [{"name": "put", "src_buff": [chunk("i")], "dst_buff": [{"buffer_id": 0, "index": 0, "size": 1}], "channel_type": "memory"},
               {"name": "nop"}, {"name": "signal", **memory}, {"name": "wait", **memory}, {"name": "nop"},
               {"name": "re", "src_buff": [chunk("i"), chunk("s")], "dst_buff": [chunk("o")], "reduce_op": "sum"}]
        return {"id": r, "input_chunks": 1, "output_chunks": 1, "scratch_chunks": 1, "semaphores": [],
                "channels": [{"channel_type": "memory", "connected_to": [1 - r]}],
                "remote_buffers": [{"rank": 1 - r, "type": "s", "access_channel_types": ["memory"]}],
                "threadblocks": [{"id": 0, "channels": [memory], "ops": ops,
                                  "remote_buffer_refs": [{"access_channel_type": "memory", "remote_buffer_ids": [0]}]}]}
    made = {"name": "swap and add", "collective": "allreduce", "protocol": "Simple", "inplace": False, "gpus": [rank(0), rank(1)]}
    return json.dumps({**made, **changes})


IMPORTED = """collective swap_and_add(of = allreduce, world = 2, chunks = 1, scratch = 1) {
  scratch[0] @ (rank + 1) % world = put(input[0])
  signal(to = (rank + 1) % world, tag = 0)
  wait(from = (rank + 1) % world, tag = 0)
  output[0] = reduce(input[0], scratch[0])
}
graph swap_and_add(world = 2) {
  input x : bf16[65536]
  output y = allreduce(x, reduce = sum, algorithm = swap_and_add)
}
"""
BAD_PLANS = {
    "another collective": (plan(collective="gather"), "there is no collective 'gather' here"),
    "no ranks": (plan(gpus=[]), "a plan must be for 1 to 64 ranks, found 0"),
    "no wait": (plan().replace('"wait"', '"nop"'), "rank 0 signals rank 1 1 times on their channel 0, but there are 0 waits"),
    "an operation that there isn't": (plan().replace('"re"', '"red"'), "unknown operation 'red'; did you mean"),
    "past the end": (plan().replace('"type": "o", "index": 0', '"type": "o", "index": 1'),
                     "past the end of the output of rank 0, which has 1"),
    "another reduction": (plan().replace('"sum"', '"product"'), "'reduce_op' must be 'sum', 'min' or 'max', found 'product'"),
    "no JSON": (plan()[:-2], "error:"),
    "no plan": ("[]", "a plan must be an object, found a list"),
}


class Test:
    def __init__(self, args, folder):
        self.args, self.folder, self.problems, self.jobs = args, folder, [], []

    def path(self, name, text=None):
        path = os.path.join(self.folder, name)
        if text is not None:
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
        return path

    def call(self, program, *arguments, text=None):
        ran = subprocess.run([program, *arguments], input=text, capture_output=True, text=True)
        return ran.returncode, ran.stdout, ran.stderr

    def expect(self, what, ran, status, *said):
        status = (status,) if isinstance(status, int) else status
        missing = [s for s in said if s not in ran[1] + ran[2]]
        if ran[0] not in status or missing:
            expected = f"{' or '.join(map(str, status))} and {missing}"
            self.problems.append(f"{what}: status {ran[0]}, expected {expected}\n{ran[1][-600:]}{ran[2][-1500:]}")
        return ran

    def check(self, what, text, *options):
        self.expect(what, self.call(self.args.maco_run, "-", "--device", "cpu", "--check", *options, text=text), 0)

    # (a)

    def example(self, path):
        name = os.path.basename(path)
        with open(path, encoding="utf-8") as file:
            text = file.read()
        if not re.match(r"# .*\.\ncollective ", text):
            self.problems.append(f"{name} doesn't begin with a line that says what it is")
        for collective in re.findall(r"^collective .*?^}\n", text, re.M | re.S):
            if collective.count("\n") > MOST_LINES:
                self.problems.append(f"{name}: {collective.count(chr(10))} lines are too many")
        of = re.search(r"of = (\w+)", text)[1]
        fixed = re.search(r"^collective .*world = \d", text, re.M) is not None
        self.add(self.check, name, text, "--launches", "3", "--jitter", "1", "--check-access")
        for world, dtype, shape in FIXED if fixed else POWERS if "doubling" in name else FREE:
            x = shape.replace("{n}", "world * " if of in ("reduce_scatter", "alltoall") else "")
            other = re.sub(r"input x : .*", ("dim rows <= 37\n  " if "rows" in x else "") + f"input x : {dtype}[{x}]", text)
            if world:
                other = re.sub(r"^(graph .*world = )4", rf"\g<1>{world}", other, flags=re.M)
            if dtype in ("i32", "u8"):
                other = other.replace("reduce = avg", "reduce = min")
            options = ["--launches", "2", *(["--dim", "rows=19"] if "rows" in x else [])]
            self.add(self.check, f"{name} on {world or 'its'} ranks with {dtype}[{x}]", other, *options)

    # (b)

    def wrong(self, what, text, message, claim):
        stem = re.sub(r"\W", "_", what)
        path, witness = self.path(stem + ".maco", text), self.path(stem + ".witness")
        ran = self.expect(what, self.call(self.args.macoc, path, "-o", self.path(stem + ".cu")), 1, message)
        if ("--witness" in ran[2]) != (claim is not None):
            self.problems.append(f"{what}: a witness is promised, or not, against what there is\n{ran[2][-600:]}")
        self.expect(what, self.call(self.args.maco_opt, path, "--verify", "--witness", witness, "-o", self.path(stem + ".txt")), 1, message)
        if not os.path.exists(witness):
            if claim is not None:
                self.problems.append(f"{what}: no witness")
            return
        with open(witness, encoding="utf-8") as file:
            said = file.read()
        if claim is None or not said.startswith(f"witness collective c of op y: {claim}\n"):
            self.problems.append(f"{what}: a witness of {claim} was expected\n{said}")
        self.expect(f"{what}, replayed", self.replay(path, witness), 0, "\nconfirmed\n")

    def replay(self, path, witness):
        return self.call(self.args.maco_run, path, "--device", "cpu", "--replay", witness)

    def edited_witnesses(self):
        sound = self.path("sound.maco", allgather(PUT, SIGNAL, WAIT))
        path = self.path("edited.maco", WRONG["each waits before it signals"][0])
        lines = ["witness collective c of op y: deadlock", "about rank 0 block 0 step 1", "about rank 1 block 0 step 1",
                 "run rank 0 block 0 step 0", "run rank 1 block 0 step 0  // output[1] = copy(input[0])"]
        for what, edited, graph_of, status, said in [
                ("as written", lines, path, 0, "confirmed"),
                ("a run that is too short", lines[:-1], path, 3, "rank 1 block 0 can go on: output[1] = copy(input[0])\nnot confirmed"),
                ("of a sound collective", lines, sound, 3, "not confirmed"),
                ("another claim", [lines[0].replace("deadlock", "race"), *lines[1:]], path, 3,
                 "rank 0 block 0 step 1 can't be next\nnot confirmed"),
                ("a step that isn't next", [*lines, "run rank 0 block 0 step 2"], path, 2, "isn't its block's next"),
                ("a step that has to wait", [*lines, "run rank 0 block 0 step 1"], path, 2, "has to wait"),
                ("of another op", [lines[0].replace("op y", "op z"), *lines[1:]], path, 2, "no op 'z' with an algorithm of its own"),
                ("another word", [*lines, "runs rank 0 block 0 step 1"], path, 1, "expected 'about' or 'run'"),
                ("an unknown claim", [lines[0].replace("deadlock", "hang"), *lines[1:]], path, 1,
                 "expected 'witness collective NAME of op OP: CLAIM'")]:
            witness = self.path(re.sub(r"\W", "_", what) + ".edited", "\n".join(edited) + "\n")
            self.expect(f"a witness, {what}", self.replay(graph_of, witness), status, said)

    # (c)

    def files(self):
        ring, direct = (os.path.join(EXAMPLES, name) for name in ("allgather_ring.maco", "allgather_oneshot.maco"))
        as_json = self.path("ring.json", self.call(self.args.macoc, ring, "--emit", "json")[1])
        alone = self.path("alone.json", json.dumps({"collectives": json.loads(open(as_json, encoding="utf-8").read())["collectives"]}))
        broken = self.path("broken.maco", BROKEN)
        graph_text = self.path("uses.maco", USES)
        graph_json = self.path("uses.json", self.call(self.args.macoc, graph_text, "--algorithms", f"{ring},{direct}", "--emit", "json")[1])
        for what, given in [("in the DSL", [ring, direct]), ("in JSON", [as_json, direct]), ("without a graph", [alone, direct]),
                            ("beside a broken one", [ring, broken, direct])]:
            self.check(f"collectives of files, {what}", USES, "--algorithms", ",".join(given))
        ran = self.call(self.args.maco_run, graph_text, "--device", "cpu", "--check", "--algorithms", as_json, "--algorithms", direct)
        self.expect("two options", ran, 0)
        self.expect("a JSON graph with its collectives in it", self.call(self.args.maco_run, graph_json, "--device", "cpu", "--check"), 0)
        self.expect("maco-opt", self.call(self.args.maco_opt, graph_text, "--algorithms", f"{ring},{direct}", "--target=cpu",
                                          "--to=prune-sync",
                                          "--verify", "-o", self.path("uses.program")), 0)
        kernel = self.path("uses.cu")
        self.expect("macoc", self.call(self.args.macoc, graph_text, "--algorithms", f"{ring},{direct}", "--target", "cpu", "-o", kernel), 0)
        self.expect("a kernel.cu has them", self.call(self.args.maco_run, kernel, "--device", "cpu", "--check"), 0)
        uses_broken = USES.replace("my_ring", "broken")
        for what, text, given, said in [
                ("a broken one that is used", uses_broken, f"{broken},{direct}", ["unknown key 'colour'", "unknown buffer 'nowhere'"]),
                ("one that is missing", USES, ring, ["'algorithm' of 'allgather' must be", "or 'my_ring', found 'direct'"]),
                ("no such file", USES, "nowhere.maco", ["can't read 'nowhere.maco'"]),
                ("a file without collectives", USES, self.path("none.json", "{}"), ["expected a map with 'collectives', a list"]),
                ("one name twice", open(ring, encoding="utf-8").read(), ring, ["collective 'my_ring' is defined twice"])]:
            self.expect(what, self.call(self.args.macoc, "-", "--algorithms", given, "-o", self.path("x.cu"), text=text), 1, *said)

    def round_trip(self, path):
        def emit(form, given):
            return self.expect(f"{path} as {form}", self.call(self.args.macoc, "-", "--emit", form, text=given), 0)[1]
        with open(path, encoding="utf-8") as file:
            dsl = emit("dsl", file.read())
        as_json = emit("json", dsl)
        if emit("dsl", as_json) != dsl or emit("json", as_json) != as_json or emit("dsl", dsl) != dsl:
            self.problems.append(f"{path}: DSL to JSON and back gives another text")

    # (d)

    def plans(self):
        def imported(*options, text=plan()):
            return self.call(self.args.macoc, "import", "-", *options, text=text)
        if imported()[1] != IMPORTED:
            self.problems.append(f"the plan became\n{imported()[1]}")
        path = self.path("plan.maco")
        self.expect("import to a file", imported("-o", path), 0)
        self.expect("an imported plan", self.call(self.args.maco_run, path, "--device", "cpu", "--check"), 0)
        self.expect("--elements and --dtype", imported("--elements", "1001", "--dtype", "i32"), 0, "input x : i32[1001]")
        self.check("the same, run", imported("--elements", "1001", "--dtype", "i32")[1])
        self.check("as the algorithm of another graph",
                   "graph g(world = 2) {\n  input x : f32[9, 9]\n  output y = allreduce(x, algorithm = swap_and_add)\n}\n",
                   "--algorithms", path)
        self.expect("the largest", imported(text=plan().replace('"sum"', '"max"')), 0, "reduce = max")
        self.expect("--help", self.call(self.args.macoc, "import", "--help"), 0, "execution plan of MSCCL++", "--elements", "--dtype")
        self.expect("no plan given", self.call(self.args.macoc, "import"), 2, "no checkpoint or plan given")
        self.expect("no file", self.call(self.args.macoc, "import", self.path("nowhere.json")), 2)
        self.expect("an unknown dtype", imported("--dtype", "f64"), 2)
        self.expect("no elements", imported("--elements", "0"), 2)
        for what, (text, said) in BAD_PLANS.items():
            if self.expect(f"a plan with {what}", imported(text=text), 1, said)[1]:
                self.problems.append(f"a plan with {what}: something was written")
        # What the import lets pass, the check of the collective finds.
        late = plan().replace('{"name": "nop"}, {"name": "signal"', '{"name": "nop"}, {"name": "rlxsignal"')
        self.expect("a plan with a relaxed signal", self.call(self.args.macoc, "-", "-o", self.path("x.cu"), text=imported(text=late)[1]),
                    1,
                    "it comes first, but nothing makes it visible")

    def add(self, job, *arguments):
        self.jobs.append((job, arguments))

    def run(self):
        examples = sorted(glob.glob(os.path.join(EXAMPLES, "*.maco")))
        if len(examples) < 16:
            self.problems.append(f"{len(examples)} examples only")
        for path in examples:
            self.example(path)
            self.add(self.round_trip, path)
        for what, (text, message, claim) in WRONG.items():
            self.add(self.wrong, what, text, message, claim)
        for job in (self.edited_witnesses, self.files, self.plans):
            self.add(job)
        with concurrent.futures.ThreadPoolExecutor(self.args.jobs) as pool:
            for done in [pool.submit(job, *arguments) for job, arguments in self.jobs]:
                done.result()
        for problem in self.problems:
            print(problem)
        print(f"{len(examples)} examples, {len(WRONG)} wrong collectives, {len(self.jobs)} jobs, {len(self.problems)} problems")
        return 1 if self.problems else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for program in ("--macoc", "--maco-run", "--maco-opt"):
        parser.add_argument(program, required=True)
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        return Test(args, folder).run()


if __name__ == "__main__":
    sys.exit(main())
