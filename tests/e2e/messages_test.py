#!/usr/bin/env python3
"""Messages between ranks on the CPU target: what graphs say with send and recv is what the reference says, and so are random ones.

  messages_test.py --maco-run build/bin/maco-run [--seeds 1-24] [--jobs 2]

Each graph runs with jitter and accesses checked, and on one thread in an order of its own, some launches each.
"""
import argparse
import concurrent.futures
import random
import subprocess
import sys

DTYPES = ["f32", "f16", "bf16", "f8e4m3", "f8e5m2", "i32", "u8"]


def graph(world, *statements):
    return f"graph g(world = {world}) {{\n" + "".join(f"  {s}\n" for s in statements) + "}\n"


GRAPHS = {
    # World, element types, sizes.
    **{f"{t}, {n} elements": graph(3, f"input x : {t}[{n}]", "send(x, dst = (rank + 1) % 3)",
                                   f"output y = recv(src = (rank + 2) % 3, shape = [{n}], dtype = {t})")
       for t, n in zip(DTYPES, [1, 3, 7, 63, 1009, 4097, 70001])},
    "no packets": graph(2, "input x : f32[300, 263]", "send(x, dst = 1 - rank)", "output y : f32[300, 263] = recv(src = 1 - rank)"),
    "64 ranks": graph(64, "input x : f32[3, 8]", "send(x, dst = rank % 8 * 8 + rank / 8)",
                      "output y = recv(src = rank % 8 * 8 + rank / 8, shape = [3, 8], dtype = f32)"),
    "64 ranks in a row": graph(64, "input x : f32[3, 8]", "t = recv(src = rank - 1, shape = [3, 8], dtype = f32, if = rank > 0)",
                               "output y = add(t, x)", "send(y, dst = rank + 1, if = rank < 63)"),
    "one rank": graph(1, "input x : f32[40]", "state s : f32[40]", "b = recv(src = 0, tag = 1, shape = [40], dtype = f32)",
                      "send(s, dst = 0)", "s = add(s, x)", "send(s, dst = 0, tag = 1)", "a = recv(src = 0, shape = [40], dtype = f32)",
                      "n = recv(src = 0, shape = [40], dtype = f32, if = 0)", "c = add(a, b)", "output y = add(c, n)"),
    # Several pairs of one tag meet in the order of definition.
    "one tag": graph(2, "input x : i32[9]", "p = add(x, value = 1)", "q = add(x, value = 2)", "send(x, dst = 1 - rank)",
                     "output a = recv(src = 1 - rank, shape = [9], dtype = i32)", "send(q, dst = 1 - rank)", "send(p, dst = 1 - rank)",
                     "output b = recv(src = 1 - rank, shape = [9], dtype = i32)",
                     "output c = recv(src = 1 - rank, shape = [9], dtype = i32)"),
    "tags of ranks": graph(4, "input x : f32[5]", "send(x, dst = 3 - rank, tag = rank * rank)",
                           "output y = recv(src = 3 - rank, tag = (3 - rank) * (3 - rank), shape = [5], dtype = f32)"),
    # One op sends to ranks of several receives, and receives from ranks of several sends.
    "many to many": graph(4, "input x : f32[7]", "input z : f32[7]", "send(x, dst = 0, if = rank > 0)", "send(z, dst = 3, if = rank == 1)",
                          *(f"output y{s} = recv(src = {s}, shape = [7], dtype = f32, if = rank == 0)" for s in (1, 2, 3)),
                          "output w = recv(src = 1, shape = [7], dtype = f32, if = rank == 3)"),
    # A message is what a state was when it was sent.
    "states": graph(3, "input x : f32[6, 16]", "state s : f32[6, 16]", "state k : f32[6, 16]", "send(s, dst = (rank + 1) % 3)",
                    "send(s, dst = rank, tag = 1)", "s = add(s, x)", "send(s, dst = (rank + 1) % 3)",
                    "k = recv(src = (rank + 2) % 3)", "output a = copy(k)", "k = recv(src = (rank + 2) % 3)", "k = add(k, a)",
                    "output b = recv(src = rank, tag = 1, shape = [6, 16], dtype = f32)"),
    "a state handed round": graph(3, "input x : f32[6, 16]", "state s : f32[6, 16]", "s = add(s, x)",
                                  "send(s, dst = rank + 1, if = rank < 2)", "s = recv(src = rank - 1, if = rank > 0)",
                                  "output y = copy(s)"),
    "relayed as it is": graph(4, "input x : f32[5]", "t = recv(src = rank - 1, shape = [5], dtype = f32, if = rank > 0)",
                              "send(t, dst = rank + 1, if = rank < 3)", "output y = add(t, x)"),
    "a result sent on": graph(3, "input x : f32[5]", "send(x, dst = (rank + 1) % 3)",
                              "t = recv(src = (rank + 2) % 3, shape = [5], dtype = f32)", "send(t, dst = (rank + 1) % 3)",
                              "output y = recv(src = (rank + 2) % 3, shape = [5], dtype = f32)"),
    "rows of dims": graph(3, "dim n <= 70", "input x : bf16[2 * n, 40]",
                          "t = recv(src = rank - 1, shape = [2 * n, 40], dtype = bf16, if = rank > 0)", "u = add(t, x)",
                          "send(u, dst = rank + 1, if = rank < 2)", "output y = relu(u)"),
    # Received before it is sent, in the order of definition.
    "backwards": graph(2, "input x : f32[30, 20]", "output y : f32[30, 20] = recv(src = 1 - rank)", "a = exp(x)",
                       "send(a, dst = 1 - rank)"),
    "there and back": graph(4, "input x : f32[16, 64]", "repeat m in 0..3 {",
                            "g_{m} = recv(src = rank + 1, tag = 1, shape = [16, 64], dtype = f32, if = rank < 3)",
                            "t_{m} = recv(src = rank - 1, shape = [16, 64], dtype = f32, if = rank > 0)", "u_{m} = add(t_{m}, x)",
                            "send(u_{m}, dst = rank + 1, if = rank < 3)", "output h_{m} = add(g_{m}, u_{m})",
                            "send(h_{m}, dst = rank - 1, tag = 1, if = rank > 0)", "}"),
    "conservative, with a barrier": graph(3, "set overlap = conservative", "input x : f32[16, 64]",
                                          "t = recv(src = rank - 1, shape = [16, 64], dtype = f32, if = rank > 0, priority = high)",
                                          "u = add(t, x)", "send(u, dst = rank + 1, if = rank < 2, priority = low)", "barrier()",
                                          "output y = allreduce(u)"),
}


def random_messages(seed):
    """Ops that each rank does its own way: who sends what to whom is drawn rank by rank, and written as expressions of the rank."""
    r = random.Random(seed)
    world = r.choice([2, 3, 4, 5, 8])
    dtype = r.choice(["f32", "f16", "i32"])
    shape = r.choice(["7", "33, 20", "n, 24"])
    statements = ["dim n <= 40", f"input x0 : {dtype}[{shape}]", f"state s : {dtype}[{shape}]"]
    values = ["x0", "s"]

    def by_rank(numbers):
        return " + ".join(f"{n} * (rank == {i})" for i, n in enumerate(numbers) if n) or "0"

    for m in range(r.randint(2, 6)):
        # A part of a permutation: each rank sends to at most one, and receives from at most one. Where ranks send in rising order only,
        # they may pass on.
        to = list(range(world))
        r.shuffle(to)
        takes_part = [r.random() < 0.8 for _ in to]
        source = [to.index(d) for d in range(world)]
        rising = r.random() < 0.4
        if rising:
            to, source = [min(i + 1, world - 1) for i in range(world)], [max(i - 1, 0) for i in range(world)]
            takes_part = [i < world - 1 and r.random() < 0.8 for i in range(world)]
        gets = [takes_part[source[d]] and (not rising or d > 0) for d in range(world)]
        tag = r.choice(["", f", tag = {m % 2}"])
        v = r.choice(values)
        recv = f"r{m} = recv(src = {by_rank(source)}, shape = [{shape}], dtype = {dtype}{tag}, if = {by_rank([int(g) for g in gets])})"
        ends = f"dst = {by_rank(to)}{tag}, if = {by_rank([int(t) for t in takes_part])}"
        if rising:
            statements += [recv, f"x{m + 1} = maximum(r{m}, {v})", f"send(x{m + 1}, {ends})"]
        else:
            pair = [f"send({v}, {ends})", recv]
            if r.random() < 0.3:
                pair.reverse()
            statements += [*pair, f"x{m + 1} = maximum(r{m}, {r.choice(values)})"]
        values.append(f"x{m + 1}")
        if r.random() < 0.3:
            statements.append(f"s = maximum(s, x{m + 1})")
    statements += [f"output y{i} = maximum({v}, value = 0)" for i, v in enumerate(values[2:])]
    return graph(world, *statements)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--maco-run", required=True)
    parser.add_argument("--seeds", default="1-24")
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()
    first, last = (int(n) for n in args.seeds.split("-"))
    graphs = {**GRAPHS, **{f"seed {s}": random_messages(s) for s in range(first, last + 1)}}

    def run(name):
        text = graphs[name]
        said = []
        for how in (["--jitter", "5", "--check-access"], ["--replay", "7"]):
            for dim in [["--dim", f"n={n}"] for n in (40, 1)] if "dim n" in text else [[]]:
                ran = subprocess.run([args.maco_run, "-", "--device", "cpu", "--check", "--launches", "4", *how, *dim], input=text,
                                     capture_output=True, text=True)
                if ran.returncode != 0 or ": ok" not in ran.stdout + ran.stderr:
                    said.append(f"{' '.join(how + dim)}: status {ran.returncode}\n{ran.stdout}{ran.stderr}")
        return said

    failures = 0
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for name, said in zip(graphs, pool.map(run, graphs)):
            if not said:
                continue
            failures += 1
            print(f"{name}:\n" + "".join(said) + graphs[name])
    print(f"{len(graphs)} graphs, {failures} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
