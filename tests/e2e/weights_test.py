#!/usr/bin/env python3
"""maco-run --weights and --tokens: params of checkpoints against NumPy, a small model's words, and files that are wrong.

weights_test.py --maco-run build/bin/maco-run
"""

import argparse
import copy
import itertools
import json
import os
import pathlib
import pty
import subprocess
import sys
import tempfile

try:
    import numpy as np
except ImportError:
    print("skipped: NumPy is missing")
    sys.exit(77)

import tiny_checkpoint as tiny

TIMEOUT = 240


class Test:
    def __init__(self, maco_run, folder):
        self.maco_run, self.folder, self.failures, self.count = maco_run, folder, 0, 0

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def run(self, graph, *options, text=None):
        return subprocess.run(
            [self.maco_run, graph, "--device", "cpu", *options], input=text, capture_output=True, text=True, timeout=TIMEOUT
        )

    def expect(self, what, ran, status, *said, output=None):
        self.count += 1
        missing = [s for s in said if (s[5:] in ran.stderr if s.startswith("not: ") else s not in ran.stderr)]
        if ran.returncode != status or missing or (output is not None and ran.stdout != output):
            self.failures += 1
            print(f"{what}: status {ran.returncode}, not {status}; without {missing}\n{ran.stdout}{ran.stderr}")

    def check(self, good, what):
        self.count += 1
        if not good:
            self.failures += 1
            print(what)


def every_kind(folder, world):
    """A checkpoint, and a graph whose outputs are its params: all dtypes into all, and everything that weights.json can say."""
    random = np.random.default_rng(world)
    c = tiny.Checkpoint(os.path.join(folder, "checkpoint"), world)
    for dtype in tiny.TYPES:
        c.add(f"m.{dtype}", random.standard_normal((12, 18)) * 3, dtype)
        c.add(f"n.{dtype}", random.standard_normal(24), dtype)
    # Values that are rounded, in a tie or not, that f16 can't hold, that are subnormal in f16, and that no type rounds.
    c.add("edge", [1 + 2**-9, 1 + 2**-8, 1 + 3 * 2**-8, 65519, 65520, 1e-7, -3e-6, -0.0, np.inf, -np.inf, 3e38, 2.0**-133], "f32")
    c.add("cube", np.arange(4 * 3 * 2).reshape(4, 3, 2), "bf16")
    names = list(c.tensors)
    c.write([names[::2], names[1::2]], blanks=(1, 4))
    for source, to in itertools.product(tiny.TYPES, tiny.TYPES):
        of = f"{source}_{to}"
        c.param(f"same_{of}", to, (12, 18), parts=[{"from": f"m.{source}"}])
        c.param(f"plus_{of}", to, (24,), parts=[{"from": f"n.{source}", "plus": 1}])
        c.param(f"turned_{of}", to, (18, 12), parts=[{"from": f"m.{source}", "transpose": True}])
        each = 18 // world
        c.param(
            f"columns_{of}", to, (12, each), ranks=[[{"from": f"m.{source}", "columns": [r * each, (r + 1) * each]}] for r in range(world)]
        )
        # Fused, with rows of zeros between, one of the parts turned.
        c.param(
            f"fused_{of}",
            to,
            (11, 18),
            ranks=[
                [
                    {"from": f"m.{source}", "rows": [r, r + 3]},
                    {"from": f"m.{to}", "rows": [0, 6], "columns": [r, r + 4], "transpose": True, "to": [4, 12], "plus": -0.25},
                    {"from": f"n.{source}", "rows": [r, r + 7], "to": [4, 1]},
                ]
                for r in range(world)
            ],
        )
        c.param(f"edge_{of}", to, (12,), parts=[{"from": "edge"}])
    c.param("cube", "f32", (4, 3, 2), parts=[{"from": "cube"}])
    c.param("tall", "f16", (4, 6), parts=[{"from": "cube"}])
    c.param("zeros", "bf16", (3, 5), parts=[])
    c.param("other", "bf16", (3, 5), values=[i / 8 for i in range(15)])  # which the kernel doesn't have
    c.param("own", "f32", (3, 2), values=[1, 0.1, -2, 3e-40, 1e30, 0.7498942])
    lines = [f"graph every(world = {world}) {{"]
    for name, p in c.weights["params"].items():
        if name != "other":
            shape = ", ".join(map(str, p["shape"]))
            lines += [f"  param {name} : {p['dtype']}[{shape}]", f"  output {name}.out = copy({name})"]
    c.write_graphs(os.path.join(folder, "graphs"), {"decode": "\n".join(lines) + "\n}\n"})
    return c


def kinds_test(t):
    for world in (1, 2, 3):
        folder = t.path(f"every{world}")
        c = every_kind(folder, world)
        for processes in ([], ["--processes"]) if world > 1 else ([],):
            out = os.path.join(folder, "out.{rank}.safetensors")
            ran = t.run(os.path.join(folder, "graphs"), "--weights", c.folder, "--outputs", out, "--check", *processes)
            t.expect(f"every kind on {world} ranks {processes}", ran, 0, "of weights loaded")
            for rank in range(world) if ran.returncode == 0 else ():
                found = tiny.read_file(out.replace("{rank}", str(rank)))
                for name in c.weights["params"]:
                    if name == "other":
                        continue
                    expected, got = c.expected(name, rank), found[name + ".out"]
                    same = np.array_equal(expected.view(np.uint32), got.view(np.uint32)) and expected.shape == got.shape
                    t.check(same, f"'{name}' on rank {rank} of {world} {processes}:\n{got}\nnot\n{expected}")


def model_test(t):
    prompt = [3, 1, 4, 1, 5, 9, 2]
    for world in (1, 2, 3):
        folder = t.path(f"model{world}")
        c = tiny.tiny_model(folder, world)
        graphs, weights = os.path.join(folder, "graphs"), ["--weights", c.folder]

        def says(ids, *more, graphs=graphs, weights=weights):
            return t.run(graphs, *weights, "--tokens", ",".join(map(str, ids)), *more)

        def line(ids):
            return ",".join(map(str, ids)) + "\n"

        all_new, closest = tiny.greedy(c, prompt, 99, 24)
        t.check(closest > 1e-3, f"the prompt's best two logits are {closest} apart")
        t.expect(
            f"words on {world} ranks",
            says(prompt),
            0,
            "; the caches are full",
            "7 ids in ",
            f"then {len(all_new)} new ones",
            output=line(all_new),
        )
        t.expect("fewer", says(prompt, "--max-new-tokens", "3"), 0, "not: full", output=line(all_new[:3]))
        if world > 1:
            t.expect(
                "words of processes", says(prompt, "--max-new-tokens", "5", "--processes"), 0, "loaded by rank 0", output=line(all_new[:5])
            )
        # Ids by the dozen: the last rows are no chunk of prefill's.
        for length in (1, 4, 20, 21, 23, 24):
            ids = [(7 * i + 3) % tiny.VOCABULARY for i in range(length)]
            new, closest = tiny.greedy(c, ids, 99, 24)
            t.check(closest > 1e-3, f"the best two logits of {length} ids are {closest} apart")
            if world == 1 or length in (4, 23):
                t.expect(f"words behind {length} ids on {world} ranks", says(ids), 0, "the caches are full", output=line(new))
        if world == 2:
            t.expect(
                "too long",
                says(range(25)),
                2,
                "--tokens: the prompt has 25 ids, but the caches 24 rows: import the model with a larger --max-seq",
            )
            t.expect("no id", says([1, 60]), 2, "--tokens: 60 is outside of the vocabulary, [0, 60)")
            t.expect("no id in processes", says([-1], "--processes"), 2, "--tokens: -1 is outside of the vocabulary")
            ended = tiny.tiny_model(t.path("ended"), world, eos=(all_new[4], 59))
            made = all_new[: 1 + next(i for i, n in enumerate(all_new) if n in (all_new[4], 59))]
            t.expect(
                "an end",
                says(prompt, graphs=t.path("ended", "graphs"), weights=["--weights", ended.folder]),
                0,
                "not: full",
                output=line(made),
            )
        options = ["--inputs", t.path("ids.safetensors"), "--dim", "rows=3", "--scalar", "pos=2", "--check"]
        tiny.write_file(t.path("ids.safetensors"), {"tokens": ("I32", (3,), np.array([5, 6, 7], np.int32).tobytes())})
        t.expect(
            f"prefill on {world} ranks",
            t.run(graphs, "--kind", "prefill", *weights, *options, "--require-inputs"),
            0,
            "'logits': ok",
            "'next': ok",
            "'kc_1': ok",
        )
        t.expect("decode, measured", t.run(graphs, *weights, "--check", "--bench", "2"), 0, "'logits': ok")
        t.expect(
            "its file, as a graph", t.run(os.path.join(graphs, "decode.maco"), *weights, "--check"), 0, "'logits': ok", "of weights loaded"
        )
        if world == 2:
            t.expect("checked in processes", t.run(graphs, *weights, "--check", "--processes"), 0, "'logits': ok on 2 ranks")
            t.expect(
                "an input that nothing binds", t.run(graphs, *weights, "--require-inputs"), 2, "no file binds input 'tokens'", "not: param"
            )
            t.expect("random without --weights", t.run(graphs, "--check"), 0, "'logits': ok", "not: loaded")
            tiny.write_file(t.path("norm.safetensors"), {"norm": ("F32", (tiny.HIDDEN,), bytes(4 * tiny.HIDDEN))})
            t.expect(
                "a param in both",
                t.run(graphs, *weights, "--inputs", t.path("norm.safetensors")),
                2,
                f"'norm' is in '{t.path('norm.safetensors')}', and comes from the checkpoint of --weights",
            )
            bf16 = tiny.tiny_model(t.path("bf16"), world, "bf16")
            t.expect("in bf16", t.run(t.path("bf16", "graphs"), "--weights", bf16.folder, "--check"), 0, "'logits': ok")


def damage_test(t):
    """Each kind of damage is told with the file's name, before anything runs."""
    folder = t.path("damaged")
    c = tiny.tiny_model(folder, 2)
    graphs = os.path.join(folder, "graphs")
    shards = [os.path.join(c.folder, f["name"]) for f in c.weights["files"]]
    intact = [pathlib.Path(s).read_bytes() for s in shards]

    def says(what, *said):
        ran = t.run(graphs, "--weights", c.folder, "--processes" if "processes" in what else "-q")
        t.expect(what, ran, 2, *said, "not: loaded")

    def with_file(what, which, data, *said):
        os.remove(shards[which])
        if data is not None:
            pathlib.Path(shards[which]).write_bytes(data)
        says(what, shards[which] + ": ", *said)
        pathlib.Path(shards[which]).unlink(missing_ok=True)
        pathlib.Path(shards[which]).write_bytes(intact[which])

    def header(which, change):
        size = int.from_bytes(intact[which][:8], "little")
        parsed = json.loads(intact[which][8 : 8 + size])
        change(parsed)
        text = json.dumps(parsed).encode().ljust(size)
        return len(text).to_bytes(8, "little") + text + intact[which][8 + size :]

    for which in (0, 1):
        with_file("a missing shard", which, None, "cannot be opened: No such file")
        with_file("a missing shard in processes", which, None, "cannot be opened: No such file")
        with_file("an empty shard", which, b"", "it has no header")
        with_file("half a shard", which, intact[which][: len(intact[which]) // 2], "is cut off: tensor '")
        with_file("a shard without its last byte", which, intact[which][:-1], "is cut off: tensor '")
        with_file("half a header", which, intact[which][:100], "is cut off: the header takes")
        with_file("a shard and a byte", which, intact[which] + b"x", "has 1 bytes after the last tensor")
        with_file("another shard", which, intact[1 - which], "but the model was imported from one with")
        with_file("a header that is no JSON", which, intact[which][:8] + b"x" + intact[which][9:], "no JSON object")
        with_file("a header of 2^63 bytes", which, b"\xff" * 7 + b"\x7f" + intact[which][8:], "is no safetensors file")
        with_file("a pointer of Git LFS", which, b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull brings it")
        with_file("text", which, b"not a checkpoint at all", "is no safetensors file")
        name = next(
            n for n, s in c.weights["sources"].items() if s["file"] == which and len(s["shape"]) == 2 and 0 < s["shape"][0] != s["shape"][1]
        )
        with_file("another name", which, header(which, lambda h: h.update({"q" * len(name): h.pop(name)})), f"has no tensor '{name}'")
        other = {"F32": "I32", "F16": "I16", "BF16": "F16"}[c.weights["sources"][name]["dtype"]]
        with_file("another dtype", which, header(which, lambda h: h[name].update(dtype=other)), f"has '{name}' as {other}[")
        with_file("another shape", which, header(which, lambda h: h[name].update(shape=h[name]["shape"][::-1])), f"has '{name}' as ")
        os.remove(shards[which])
        os.mkdir(shards[which])
        says("a folder for a shard", shards[which] + ": is not a file")
        os.rmdir(shards[which])
        os.mkfifo(shards[which])
        says("a pipe for a shard", shards[which] + ": is not a file")
        os.remove(shards[which])
        pathlib.Path(shards[which]).write_bytes(intact[which])

    # Paths that lead out of the folder, and other wrong values in weights.json.
    path = os.path.join(graphs, "weights.json")

    def with_map(what, change, *said):
        weights = copy.deepcopy(c.weights)
        change(weights)
        with open(path, "w", encoding="utf-8") as out:
            json.dump(weights, out)
        says(what, path + ": ", *said)

    for name in ("../model.safetensors", "/etc/passwd", "a/b.safetensors", ".."):
        with_map(
            f"a file {name}",
            lambda w, name=name: w["files"][0].update(name=name),
            f"file 0: '{name}' is no name of a file in the checkpoint's folder",
        )
    with_map("an unknown key", lambda w: w["params"]["norm"].update(part=[]), "param 'norm': unknown key 'part'; did you mean 'parts'?")
    with_map(
        "a part outside",
        lambda w: w["params"]["head"]["ranks"][1][0].update(rows=[40, 70]),
        "param 'head', rank 1, part 0: rows [40, 70) are outside",
    )
    with_map(
        "an overlap", lambda w: w["params"]["norm"]["parts"].append(w["params"]["norm"]["parts"][0]), "param 'norm': parts 0 and 1 overlap"
    )
    with_map("an offset outside", lambda w: w["sources"]["norm.weight"].update(begin=1 << 40), "source 'norm.weight': its ")
    pathlib.Path(path).write_text("{\n", encoding="utf-8")
    says("no JSON", path + ": is no JSON: byte ")

    def with_params(what, change, *said):
        weights = copy.deepcopy(c.weights)
        change(weights)
        with open(path, "w", encoding="utf-8") as out:
            json.dump(weights, out)
        says(what, *said)

    with_params(
        "another world",
        lambda w: (w.update(world=1), [p.update(ranks=p["ranks"][:1]) for p in w["params"].values() if "ranks" in p]),
        "the weights are cut for 1 rank, but the kernel has 2",
    )
    with_params("a param that is missing", lambda w: w["params"].pop("wo_1"), "the weights have no param 'wo_1'; did you mean 'w")
    with_params(
        "params that are missing", lambda w: [w["params"].pop(n) for n in ("wo_0", "wo_1")], "the weights have no params 'wo_0', 'wo_1'"
    )
    with_params(
        "another dtype",
        lambda w: w["params"]["norm"].update(dtype="bf16"),
        "param 'norm' is bf16[48] in the weights, but the kernel wants f32[48]",
    )
    with_params(
        "another shape",
        lambda w: w["params"]["norm"].update(shape=[48, 1]),
        "param 'norm' is f32[48,1] in the weights, but the kernel wants f32[48]",
    )
    with_params(
        "another offset",
        lambda w: w["sources"]["norm.weight"].update(begin=w["sources"]["norm.weight"]["begin"] - 1),
        "has 'norm.weight' as ",
        "at byte ",
    )
    os.remove(path)
    says("no weights.json", path, "--weights wants the weights.json that macoc import writes beside its graphs")


def usage_test(t):
    c = tiny.tiny_model(t.path("usage"), 1)
    graphs, decode, weights = t.path("usage", "graphs"), t.path("usage", "graphs", "decode.maco"), ["--weights", c.folder]
    for what, graph, options, says in (
        ("--kind of a file", decode, ["--kind", "prefill"], "--kind chooses one of a folder's graphs, and "),
        ("a kind that is near", graphs, ["--kind", "prefil"], "did you mean 'prefill'?"),
        (
            "a kind that isn't there",
            graphs,
            ["--kind", "verify"],
            f"'{graphs}' has no 'verify.maco': a folder of graphs is what macoc import writes",
        ),
        ("a folder without graphs", c.folder, [], f"'{c.folder}' has no 'decode.maco'"),
        ("standard input", "-", weights, "--weights wants a file or a folder: weights.json lies beside the graph"),
        ("no folder", graphs, ["--weights", ""], "--weights wants the folder of a checkpoint"),
        (
            "--tokens of a file",
            decode,
            [*weights, "--tokens", "1"],
            f"--tokens runs the graphs of a folder that macoc import wrote, and '{decode}' is none",
        ),
        ("--tokens without weights", graphs, ["--tokens", "1"], "--tokens wants the checkpoint: --weights FOLDER"),
        ("an empty prompt", graphs, [*weights, "--tokens", ""], "--tokens: the prompt is empty"),
        ("a word", graphs, [*weights, "--tokens", "1,a"], "--tokens wants ids with commas between them, not '1,a'"),
        ("a comma", graphs, [*weights, "--tokens", "1,"], "--tokens wants ids with commas between them, not '1,'"),
        ("a large id", graphs, [*weights, "--tokens", "99999999999999999999"], "--tokens wants ids with commas between them"),
        (
            "--check of a prompt",
            graphs,
            [*weights, "--tokens", "1", "--check"],
            "--tokens runs a model's prefill and decode: --check is for one graph",
        ),
        ("--seed of a prompt", graphs, [*weights, "--tokens", "1", "--seed", "4"], "--seed is for one graph"),
        ("none new", graphs, [*weights, "--tokens", "1", "--max-new-tokens", "0"], "--max-new-tokens"),
        ("no prompt", graphs, [*weights, "--max-new-tokens", "3"], "--max-new-tokens is for --tokens"),
    ):
        t.expect(what, t.run(graph, *options, text=""), 2, says)
    os.rename(os.path.join(graphs, "prefill.maco"), t.path("prefill"))
    t.expect("no prefill", t.run(graphs, *weights, "--tokens", "1"), 2, "prefill.maco", "--tokens runs prefill and decode of a folder")
    for what, change, says in (
        ("no dim", ("dim rows <= 4", "dim row <= 4"), "'tiny_prefill' has no dim 'rows': it is no prefill graph of macoc import"),
        ("no position", ("scalar pos", "scalar place"), "'tiny_prefill' has no scalar 'pos'"),
        ("other caches", ("c_1 : f32[24,", "c_1 : f32[25,"), "'kc_1' of prefill isn't the same in decode"),
    ):
        text = pathlib.Path(t.path("prefill")).read_text(encoding="utf-8").replace(*change)
        if "row" in change[1]:
            text = text.replace("i32[rows]", "i32[row]").replace("pos + rows", "pos + row")
        if "place" in change[1]:
            text = text.replace("= pos)", "= place)").replace("= pos,", "= place,").replace("pos + rows", "place + rows")
        pathlib.Path(graphs, "prefill.maco").write_text(text, encoding="utf-8")
        t.expect(what, t.run(graphs, *weights, "--tokens", "1"), 2, says)
    # A process that reads another weights.json than the others says so.
    two = tiny.tiny_model(t.path("two"), 2)
    other = t.path("two", "other")
    os.makedirs(other)
    for name in os.listdir(t.path("two", "graphs")):
        pathlib.Path(other, name).write_bytes(pathlib.Path(t.path("two", "graphs"), name).read_bytes())
    pathlib.Path(other, "weights.json").write_text(json.dumps(two.weights | {"eos": [7]}), encoding="utf-8")
    environment = os.environ | {"WORLD_SIZE": "2", "MASTER_ADDR": "weights_test", "MASTER_PORT": str(os.getpid())}
    ranks = [
        subprocess.Popen(
            [t.maco_run, t.path("two", folder), "--device", "cpu", "--weights", two.folder],
            env=environment | {"RANK": str(rank)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank, folder in enumerate(("graphs", "other"))
    ]
    for rank in ranks:
        said = rank.communicate(timeout=TIMEOUT)[1]
        t.check(rank.returncode == 4 and "weights.json is " in said, f"other weights in a process: {rank.returncode}\n{said}")
    # On a terminal, too, nothing of the progress line stays.
    primary, secondary = pty.openpty()
    ran = subprocess.run(
        [t.maco_run, t.path("two", "graphs"), "--device", "cpu", "--weights", two.folder],
        stdout=subprocess.PIPE,
        stderr=secondary,
        timeout=TIMEOUT,
    )
    os.close(secondary)
    said = os.read(primary, 65536).decode()
    os.close(primary)
    t.check(ran.returncode == 0 and "of weights loaded in" in said, f"on a terminal: {said}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--maco-run", required=True)
    parser.add_argument("--only", help="the one of these tests")
    args = parser.parse_args()
    tests = {"kinds": kinds_test, "model": model_test, "damage": damage_test, "usage": usage_test}
    with tempfile.TemporaryDirectory() as folder:
        t = Test(os.path.abspath(args.maco_run), folder)
        for name, test in tests.items():
            if args.only in (None, name):
                test(t)
    print(f"{t.count} checks, {t.failures} failures")
    return 1 if t.failures else 0


if __name__ == "__main__":
    sys.exit(main())
