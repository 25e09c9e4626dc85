#!/usr/bin/env python3
"""What the programs say of their command lines, of their environment, and of files that are something else than they take.

  command_test.py --macoc build/bin/macoc --maco-run build/bin/maco-run --maco-opt build/bin/maco-opt
"""
import argparse
import json
import os
import pathlib
import pty
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
GRAPH = """graph g(world = 2) {
  input x : f32[4, 8]
  a = relu(x)
  b = exp(a)
  output y = allreduce(b)
}
"""
VALUES = """graph n {
  dim rows <= 4
  scalar pos in [0, 9)
  input x : f32[rows, 8]
  state s : f32[16, 8]
  s = kv_append(s, x, at = pos)
  output y = copy(s)
}
"""
# Strings of capitals, in sources that read variables, that are no variables.
NO_VARIABLES = {"MACOCUB1"}


def variables_read():
    """The environment variables that sources read: strings of capitals in files that read the environment."""
    found = set()
    for folder in ("ir", "compiler", "runtime", "tools"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix not in (".cpp", ".h"):
                continue
            text = re.sub(r"//[^\n]*", "", path.read_text(encoding="utf-8"))
            if re.search(r"getenv\(|\benvironment\(|\.variable = |temp_directory_path", text):
                found |= set(re.findall(r'"([A-Z][A-Z0-9_]{2,})"', text)) - set(re.findall(r'setenv\("(\w+)"', text))
            if "temp_directory_path" in text:
                found.add("TMPDIR")
    return found - NO_VARIABLES


class Test:
    def __init__(self, programs):
        self.programs, self.failures = programs, 0

    def run(self, program, *options, text=None, env=None):
        return subprocess.run([self.programs[program], *options], input=text, capture_output=True, text=True, env=os.environ | (env or {}),
                              timeout=120)

    def expect(self, what, ran, status, *said, output=""):
        missing = [s for s in said if s not in ran.stderr] + ([output] if output not in ran.stdout else [])
        if ran.returncode != status or missing:
            self.failures += 1
            print(f"{what}: status {ran.returncode}, not {status}; without {missing}\n{ran.stdout}{ran.stderr}")

    def check(self, good, what):
        if not good:
            self.failures += 1
            print(what)

    def words(self):
        """Misspelt commands, options and words are refused with a suggestion."""
        near = [
            ("macoc", ["--target", "sm_90"], "--target: 'sm_90' is unknown; did you mean 'sm_90a'?"),
            ("macoc", ["--board", "h20"], "--board: 'h20' is unknown; did you mean 'h200'?"),
            ("macoc", ["--board", "toaster"], "--board: 'toaster' is none of "),
            ("macoc", ["--emit=dls"], "--emit: 'dls' is unknown; did you mean 'dsl'?"),
            ("macoc", ["--print-after=send-packet"], "'send-packet' is unknown; did you mean 'send-packets'?"),
            ("macoc", ["--no-fuse=send,nrom"], "--no-fuse: 'nrom' is unknown; did you mean 'norm'?"),
            ("macoc", ["--no-fuse=everything"], "--no-fuse: 'everything' is none of attention, elementwise, pair, epilogue, norm, "),
            ("macoc", ["--verify", "eahc"], "--verify: 'eahc' is none of each, end; did you mean 'each'?"),
            ("macoc", ["--color", "alway"], "did you mean 'always'?"),
            ("macoc", ["--completion", "bsh"], "did you mean 'bash'?"),
            ("macoc", ["--reprot"], "unknown option '--reprot'; did you mean '--report'?"),
            ("macoc", ["-target", "cpu"], "unknown option '-target'; did you mean '--target'?"),
            ("maco-opt", ["--pass=fusee"], "--pass: 'fusee' is unknown; did you mean 'fuse'?"),
            ("maco-opt", ["--to", "tiel"], "--to: 'tiel' is unknown; did you mean 'tile'?"),
            ("maco-opt", ["--witnes", "w"], "unknown option '--witnes'; did you mean '--witness'?"),
            ("maco-run", ["--device", "gpu"], "--device: 'gpu' is none of cpu, cuda; did you mean 'cuda'?"),
            ("maco-run", ["--device", "cdua"], "did you mean 'cuda'?"),
            ("maco-run", ["--peer-memory", "thread"], "did you mean 'threads'?"),
            ("maco-run", ["--input", "f"], "unknown option '--input'; did you mean '--inputs'?"),
        ]
        for program, options, says in near:
            self.expect(f"{program} {options}", self.run(program, "g.maco", *options), 2, says)
        self.expect("macoc improt", self.run("macoc", "improt", "plan.json"), 2, "no file and no command 'improt'; did you mean 'import'?")
        self.expect("macoc import --dtype", self.run("macoc", "import", "p.json", "--dtype", "bf61"), 2, "did you mean 'bf16'?")
        # Options that may be repeated take one value each: what follows is the graph.
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "n.maco")
            with open(path, "w", encoding="utf-8") as file:
                file.write(VALUES)
            for option in ("--dim=rows=3", "--scalar=pos=3"):
                name, _, value = option.partition("=")
                self.expect(f"{name} in front of the graph", self.run("maco-run", "--device", "cpu", name, value, path), 0)
            for option, says in (("--dim=m=3", "--dim m: the graph has no such dim"), ("--dim=rws=3", "did you mean 'rows'?"),
                                 ("--scalar=po=3", "--scalar po: the graph has no such scalar; did you mean 'pos'?"),
                                 ("--dim=pos=3", "--dim pos: the graph has no such dim; 'pos' is a scalar"),
                                 ("--scalar=rows=3", "--scalar rows: the graph has no such scalar; 'rows' is a dim")):
                self.expect(option, self.run("maco-run", path, "--device=cpu", option), 2, says)
            self.expect("--explain", self.run("macoc", path, "--explain", "yy"), 2, "has no op 'yy'")

    def environment(self):
        """Every variable that sources ask for is in --help, in man pages and in docs/running.md."""
        read = variables_read()
        some = {"RANK", "MACO_CLANG", "CXX", "NO_COLOR", "HOME", "MACO_NVSHMEM", "PMI_SIZE"}
        self.check(some <= read, f"variables are not found: {read}")
        table = (ROOT / "docs" / "running.md").read_text(encoding="utf-8").partition("| variable |")[2]
        for program in self.programs:
            text = self.run(program, "--help").stdout.partition("Environment:")[2]
            told = set(re.findall(r"\b[A-Z][A-Z0-9_]{2,}\b", text))
            self.check(read <= told, f"{program} --help: without {sorted(read - told)}")
            self.check(told - {"CPU", "CUDA", "MPI", "MPICH"} <= read, f"{program} --help: nothing reads {sorted(told - read)}")
            page = self.run(program, "--man").stdout
            self.check(all(name in page for name in read), f"{program} --man: without some variables")
        documented = set(re.findall(r"`([A-Z][A-Z0-9_]{2,})`", table))
        self.check(read <= documented, f"docs/running.md: without {sorted(read - documented)}")
        for program in self.programs:
            for wrong in ("abc", "", "-1", "1.5"):
                ran = self.run(program, "-", text=GRAPH, env={"MACO_CACHE_MB": wrong})
                says = f"MACO_CACHE_MB is '{wrong}', which is no number of megabytes"
                self.expect(f"{program}: a cache of '{wrong}' megabytes", ran, 2, says)
            self.expect("help all the same", self.run(program, "--help", env={"MACO_CACHE_MB": "abc"}), 0, output="Environment:")

    def dumps(self):
        """A dump of a pass is refused as a user's graph, and the message names the program that takes it."""
        with tempfile.TemporaryDirectory() as folder:
            graph = os.path.join(folder, "g.maco")
            with open(graph, "w", encoding="utf-8") as file:
                file.write(GRAPH)
            made = self.run("macoc", graph, "--target=cpu", "--dump-dir", folder, "-o", "/dev/null")
            self.expect("dumps", made, 0)
            says = "is a dump of graph 'g', in which 'b' is a 'fused', which only passes make: maco-opt takes it"
            seen = 0
            for dump in sorted(pathlib.Path(folder).glob("*-*.maco")):
                if "fused(" not in dump.read_text(encoding="utf-8"):
                    self.expect(str(dump), self.run("macoc", str(dump), "--target=cpu", "-o", "/dev/null"), 0)
                    continue
                seen += 1
                self.expect(str(dump), self.run("macoc", str(dump), "-o", "/dev/null"), 2, says)
                self.expect(str(dump), self.run("macoc", str(dump), "--explain", "y"), 2, says)
                self.expect(str(dump), self.run("maco-run", str(dump), "--device", "cpu"), 2, says)
                self.expect(str(dump), self.run("maco-opt", str(dump), "--to=tile", "-o", "/dev/null"), 0)
            self.check(seen > 2, f"{seen} dumps with a fused op")
            program = next(pathlib.Path(folder).glob("*-tile.program"))
            self.expect("a Program", self.run("macoc", str(program)), 2, "is a Program: maco-opt takes one")
            self.expect("a Program", self.run("maco-run", str(program)), 2, "is a Program: run its graph with --program")
            # The same as JSON.
            fused = {"maco": 1, "name": "j", "world": 2, "tensors": {"x": {"kind": "input", "dtype": "f32", "shape": [4, 8]},
                                                                    "y": {"kind": "output"}},
                     "ops": [{"op": "allreduce", "in": ["x"], "out": "y", "tile": [4, 8], "method": "packets"}]}
            self.expect("a dump in JSON", self.run("macoc", "-", text=json.dumps(fused)), 2, "'<stdin>' is a dump of graph 'j'",
                        "maco-opt takes it")
            # Files of other kinds.
            kernel = os.path.join(folder, "kernel.cu")
            self.expect("a kernel", self.run("macoc", graph, "--target=cpu", "-o", kernel), 0)
            source = os.path.join(folder, "source.cu")
            pathlib.Path(source).write_text("__global__ void k(float* y) { y[0] = 1; }\n", encoding="utf-8")
            plan = os.path.join(folder, "plan.json")
            small = {"name": "p", "collective": "allgather", "gpus": [{"id": 0, "threadblocks": []}]}
            pathlib.Path(plan).write_text(json.dumps(small), encoding="utf-8")
            for tool in ("macoc", "maco-opt"):
                self.expect(f"a kernel for {tool}", self.run(tool, kernel), 2, "is a kernel that macoc wrote: maco-run takes it")
            for tool in ("maco-run", "maco-opt"):
                self.expect(f"CUDA source for {tool}", self.run(tool, source), 2, "is CUDA source: 'macoc ")
            for tool in ("macoc", "maco-run", "maco-opt"):
                self.expect(f"a plan for {tool}", self.run(tool, plan), 2, "is an execution plan of MSCCL++: 'macoc import ")
            self.expect("--kernel without CUDA", self.run("macoc", graph, "--kernel", "k"), 2, "--kernel names a kernel of CUDA source")
            # Inputs.
            braces = os.path.join(folder, "a{1}.safetensors")
            pointer = os.path.join(folder, "lfs.safetensors")
            said = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"
            pathlib.Path(pointer).write_text(said, encoding="utf-8")
            header = b'{"x":{"dtype":"F32","shape":[4,8],"data_offsets":[0,128]}}'
            pathlib.Path(braces).write_bytes(len(header).to_bytes(8, "little") + header + bytes(128))
            run = ("maco-run", graph, "--device=cpu", "-q")
            self.expect("a name with braces", self.run(*run, f"--inputs={braces}"), 0)
            self.expect("no such name", self.run(*run, f"--inputs={folder}/b{{1}}.safetensors"), 2, "'{1}' in '", "is no placeholder")
            self.expect("a pointer", self.run(*run, f"--inputs={pointer}"), 2, "is a pointer of Git LFS")
            self.expect("a list", self.run(*run, f"--inputs={pointer},{folder}/b.x"), 2, "--inputs takes one file, and can be repeated")
            self.expect("no name", self.run(*run, "--inputs", ""), 2, "--inputs: the name of a file is empty")
            # An error in a graph is reported as ever.
            wrong = GRAPH.replace("relu(x)", "relu(z)")
            self.expect("a wrong graph", self.run("macoc", "-", text=wrong), 1, "'z'")

    def traces(self):
        """A trace of another kernel says nothing of this one."""
        with tempfile.TemporaryDirectory() as folder:
            trace = os.path.join(folder, "t.json")
            self.expect("a trace", self.run("maco-run", "-", "--device=cpu", "--profile", trace, text=GRAPH), 0)
            explain = ["-", "--explain", "y", "--profile", trace]
            self.expect("of this kernel", self.run("macoc", *explain, "--target=cpu", text=GRAPH), 0, output="took ")
            self.expect("of another target", self.run("macoc", *explain, text=GRAPH), 2,
                        "it is of graph 'g' for target 'cpu' and board 'cpu', but this is graph 'g' for target 'sm_90a' and board 'h200'")
            self.expect("of another graph", self.run("macoc", *explain, "--target=cpu", text=GRAPH.replace("graph g", "graph h")), 2,
                        "it is of graph 'g' for target 'cpu'", "but this is graph 'h' for target 'cpu'")
            self.expect("of another text", self.run("macoc", *explain, "--target=cpu", text=GRAPH.replace("relu", "silu")), 2,
                        "it is of another kernel of graph 'g'")
            self.expect("with other options", self.run("macoc", *explain, "--target=cpu", "--no-fuse", text=GRAPH), 2,
                        "it is of another kernel of graph 'g'")
            with open(trace, encoding="utf-8") as file:
                events = [e for e in json.load(file) if e["name"] != "maco_kernel"]
            with open(trace, "w", encoding="utf-8") as file:
                json.dump(events, file)
            ran = self.run("macoc", *explain, "--target=cpu", text=GRAPH)
            self.expect("of nobody knows which", ran, 2, "it doesn't say which kernel")

    def terminal(self):
        """On a terminal maco-opt doesn't wait for a graph that nobody named."""
        for options in ([], ["--pass=fuse"]):
            terminal, end = pty.openpty()
            ran = subprocess.run([self.programs["maco-opt"], *options], stdin=end, capture_output=True, text=True, timeout=60)
            os.close(end)
            os.close(terminal)
            self.expect(f"maco-opt {options} on a terminal", ran, 2, "maco-opt [OPTIONS]")
        self.expect("from a pipe", self.run("maco-opt", "--to=fuse", text=GRAPH), 0, output="fused(")

    def no_gpu(self):
        env = {"LD_LIBRARY_PATH": "", "CUDA_VISIBLE_DEVICES": ""}
        ran = self.run("maco-run", "-", text=GRAPH, env=env)
        # A machine with a driver may name its GPUs otherwise.
        self.check(ran.returncode == 0 or ("no device: " not in ran.stderr or ran.stderr.endswith("; use --device cpu\n")),
                   f"no GPU: {ran.stderr}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for program in ("macoc", "maco-run", "maco-opt"):
        parser.add_argument("--" + program, required=True)
    args = vars(parser.parse_args())
    test = Test({name.replace("_", "-"): path for name, path in args.items()})
    for part in (test.words, test.environment, test.dumps, test.traces, test.terminal, test.no_gpu):
        part()
    print(f"{test.failures} failures")
    return 1 if test.failures else 0


if __name__ == "__main__":
    sys.exit(main())
