#!/usr/bin/env python3
"""Holds the sources against the rules of the architecture that no compiler checks.

  lint.py [--macoc build/bin/macoc]    checks the tree, and the kernels that macoc emits for the examples
  lint.py --self-test                  breaks each rule in a copy of the tree, and expects to be told
"""
import argparse
import functools
import os
import re
import subprocess
import sys
from dataclasses import dataclass

import twins
from sources import ROOT, TOKEN, read, tracked

SOURCES = (".cpp", ".h", ".cuh", ".py", ".sh")


@dataclass(frozen=True)
class Finding:
    rule: str
    path: str
    line: int
    message: str

    def __str__(self):
        return f"{self.path}:{self.line}: {self.message} [{self.rule}]"


def read_tree():
    """Path from the root -> text, of all files of `tracked` that are text."""
    tree = {}
    for path in tracked():
        try:
            tree[path] = read(path)
        except UnicodeDecodeError:
            pass
    return tree


# ---- text of C++ -------------------------------------------------------------------------------------------------------------

def blanked(text, strings):
    """The text with comments, and strings if asked for, as blanks: the same places."""

    def blank(match):
        if not strings and not match[0].startswith("/"):
            return match[0]
        return re.sub(r"[^\n]", " ", match[0])

    return TOKEN.sub(blank, text)


def line_of(text, at):
    return text.count("\n", 0, at) + 1


def closing(text, at, opening="(", close=")"):
    """Index of the bracket that closes the one at `at`."""
    depth = 0
    for i in range(at, len(text)):
        depth += (text[i] == opening) - (text[i] == close)
        if depth == 0:
            return i
    return len(text)


def loops(code):
    """(start, header, body) of each loop."""
    for match in re.finditer(r"\b(?:while|for)\s*\(", code):
        end = closing(code, match.end() - 1)
        at = end + 1
        while at < len(code) and code[at].isspace():
            at += 1
        if at >= len(code):
            continue
        if code[at] == "{":
            stop = closing(code, at, "{", "}")
        elif code[at] == ";":
            stop = at  # no body, or the end of a do loop
            before = code[: match.start()].rstrip()
            if before.endswith("}"):
                depth, i = 0, len(before) - 1
                while i >= 0:
                    depth += (before[i] == "}") - (before[i] == "{")
                    if depth == 0:
                        break
                    i -= 1
                if re.search(r"\bdo\s*$", before[:i]):
                    yield match.start(), code[match.end() : end], before[i:]
                    continue
        else:
            stop = code.find(";", at)
            # `for (...) if (...) { ... }`: the statement ends with its block.
            brace = code.find("{", at)
            if 0 <= brace < stop:
                stop = closing(code, brace, "{", "}")
        yield match.start(), code[match.end() : end], code[at : stop + 1]


# ---- rules -------------------------------------------------------------------------------------------------------------------

# Differences between host and device live in the intrinsics of either.
MAY_DIFFER = re.compile(r"runtime/device/(intrinsics|cuda)/|runtime/cpu/|tests/cuda/")
HOST_OR_DEVICE = re.compile(r"\b(__CUDA\w*|__NVCC__|MACO_CPU|MACO_HAS_\w+|MACO_HOST\w*)\b")
IS_DEVICE = re.compile(r"runtime/device/.*\.cuh$")


def host_or_device(tree):
    """Conditions on host, device or architecture stand where the architecture allows them."""
    for path, text in tree.items():
        if not path.endswith((".cpp", ".h", ".cuh")) or MAY_DIFFER.match(path):
            continue
        code = blanked(text, strings=True)
        for match in re.finditer(r"^[ \t]*#[ \t]*(?:if|ifdef|ifndef|elif)\b[^\n]*", code, re.M):
            if HOST_OR_DEVICE.search(match[0]):
                yield path, line_of(code, match.start()), f"'{match[0].strip()}': host and device differ in intrinsics only"
            elif IS_DEVICE.match(path):
                message = f"'{match[0].strip()}': device headers outside of intrinsics have no conditions"
                yield path, line_of(code, match.start()), message


CPU_INTRINSICS = "runtime/cpu/intrinsics/"
INTRINSICS_INCLUDE = {"<cmath>", "<cstdint>", "<cstring>"}


def includes_nothing(tree):
    """Device headers and emitted kernels include nothing; the intrinsics of the CPU target include each other, and three headers."""
    for path, text in tree.items():
        emitted = path.startswith("emitted/")
        if not (emitted or path.startswith(("runtime/device/", CPU_INTRINSICS))) or not path.endswith((".cu", ".cuh", ".h")):
            continue
        code = blanked(text, strings=False)
        for match in re.finditer(r"^[ \t]*#[ \t]*include\s*(\S+)|__has_include\b|^[ \t]*(?:import|module)\b", code, re.M):
            own = match[1] and CPU_INTRINSICS + match[1].strip('"') in tree
            if not (path.startswith(CPU_INTRINSICS) and (own or match[1] in INTRINSICS_INCLUDE)):
                yield path, line_of(code, match.start()), f"'{match[0].strip()}': includes nothing"


def twins_agree(tree):
    """The three twins of the machine's functions declare what the list of them says, and no more."""
    yield from twins.compare(tree, blanked)


def readmes(tree):
    """Each folder with sources has a README.md, or a line in the README.md of the folder that it is in."""
    for folder in sorted({os.path.dirname(p) for p in tree if p.endswith(SOURCES)}):
        if os.path.join(folder, "README.md") in tree:
            continue
        above, name = os.path.split(folder)
        if re.search(rf"\b{re.escape(name)}/", tree.get(os.path.join(above, "README.md"), "")):
            continue
        yield folder, 1, "has no README.md"


# What each library may link, directly or through others, of the project's own; and the folder that it is.
LINKS = {
    "maco_clang": ("compiler/frontend/cuda", {"maco_ir", "maco_frontend"}),
    "maco_ir": ("ir", set()),
    "maco_cost": ("compiler/cost", {"maco_ir"}),
    "maco_functions": ("compiler/functions", {"maco_ir", "maco_cost"}),
    "maco_ops": ("compiler/ops", {"maco_ir", "maco_cost", "maco_functions"}),
    "maco_graph": ("compiler/graph", {"maco_ir", "maco_cost", "maco_functions", "maco_ops"}),
    "maco_frontend": ("compiler/frontend", {"maco_ir", "maco_cost", "maco_functions", "maco_ops", "maco_graph"}),
    "maco_verify": ("compiler/verify", {"maco_ir"}),
    "maco_passes": ("compiler/passes", {"maco_ir", "maco_cost", "maco_functions", "maco_ops", "maco_graph", "maco_verify"}),
    "maco_pipeline": ("compiler/pipeline", {"maco_ir", "maco_cost", "maco_functions", "maco_ops", "maco_graph", "maco_frontend",
                                            "maco_verify", "maco_passes"}),
    "maco_codegen": ("compiler/codegen", {"maco_ir", "maco_cost", "maco_functions"}),
    "maco_compiler": ("compiler/api", {"maco_ir", "maco_cost", "maco_functions", "maco_ops", "maco_graph", "maco_frontend", "maco_verify",
                                       "maco_passes", "maco_pipeline", "maco_codegen"}),
    "maco_reference": ("runtime/reference", {"maco_ir"}),
    "maco_host": ("runtime/host", {"maco_ir"}),
    "maco_cpu": ("runtime/cpu", {"maco_ir", "maco_host"}),
    "maco_profile": ("runtime/profile", {"maco_ir", "maco_host"}),
    "maco_weights": ("runtime/weights", {"maco_ir", "maco_host"}),
    "maco_api": ("runtime/api", {"maco_ir", "maco_cost", "maco_functions", "maco_ops", "maco_graph", "maco_frontend", "maco_verify",
                                 "maco_passes", "maco_pipeline", "maco_codegen", "maco_compiler", "maco_host", "maco_cpu", "maco_profile",
                                 "maco_weights"}),
}
FOLDERS = {folder: library for library, (folder, _) in LINKS.items()}
PUBLIC_FOLDER = "runtime/include/maco/"
# Headers outside of the libraries, and who may include them.
SHARED = {
    "cmake/embedded.h": {"maco_codegen", "maco_cost", "maco_cpu", "maco_frontend"},
    "runtime/status.h": {"maco_reference", "maco_host", "maco_cpu", "maco_profile", "maco_weights", "maco_api"},
    "runtime/device/abi.cuh": {"maco_host"},
}
# Heavy headers, and where they stay; the CUDA of a machine is opened at run time, never included.
HEAVY = [
    (re.compile(r"<nlohmann/"),
     re.compile(r"compiler/frontend/(?:json_|huggingface/)|compiler/cost/boards\.cpp$|[\w/]*manifest(_parse)?\.cpp$|"
                r"(?:ir|runtime/reference)/safetensors\.cpp$|"
                r"ir/json_names\.cpp$|runtime/weights/(?:fields\.|map\.cpp$)|tests/")),
    (re.compile(r"<CLI/"), re.compile(r"tools/|tests/")),
    (re.compile(r"<clang/|<llvm/"), re.compile(r"compiler/frontend/cuda/")),
    (re.compile(r"<(cuda\w*|nvrtc|nccl|nvshmem\w*)\.h>"), re.compile(r"$^")),
]


def linked_libraries(tree):
    """Library -> (file, line, what it links), from the CMake files."""
    links = {}
    for path, text in tree.items():
        if not path.endswith("CMakeLists.txt"):
            continue
        text = re.sub(r"#[^\n]*", lambda m: " " * len(m[0]), text)
        for match in re.finditer(r"\b(?:maco_library|target_link_libraries)\s*\(\s*(\w+)([^)]*)\)", text):
            if match[0].startswith("maco_library"):
                _, _, names = match[2].partition("LINK")
            else:
                names = match[2]
            links.setdefault(match[1], []).append((path, line_of(text, match.start()), set(re.findall(r"\b(?:maco|CLI11)\w*", names))))
    return links


def links(tree):
    """Libraries link, and their files include, what lies below them."""
    direct = linked_libraries(tree)
    for library, (_, allowed) in LINKS.items():
        if library not in direct:
            yield "CMakeLists.txt", 1, f"no library '{library}'"
            continue
        seen, todo = set(), [library]
        while todo:
            for path, line, names in direct.get(todo.pop(), []):
                for name in sorted(names - seen):
                    seen.add(name)
                    todo.append(name)
                    if name not in allowed:
                        yield path, line, f"'{library}' links '{name}', and may link {', '.join(sorted(allowed)) or 'nothing'}"
    for library in direct:
        if library.startswith("maco_") and library not in LINKS and not any(
                path.startswith(("tools/", "tests/")) for path, _, _ in direct[library]):
            yield direct[library][0][0], direct[library][0][1], f"'{library}' has no rule; add what it may link"


def layers(tree):
    """Files include headers of the libraries that theirs may link; heavy headers stay where they belong."""
    for path, text in tree.items():
        if not path.endswith((".cpp", ".h", ".cuh")):
            continue
        code = blanked(text, strings=False)
        own = next((lib for folder, lib in FOLDERS.items() if path.startswith(folder + "/")), None)
        for match in re.finditer(r'^[ \t]*#[ \t]*include\s*(["<][^">\n]+[">])', code, re.M):
            name, line = match[1], line_of(code, match.start())
            for header, home in HEAVY:
                if header.match(name) and not home.match(path):
                    yield path, line, f"{name} does not belong here"
            target = name[1:-1]
            if path.startswith(PUBLIC_FOLDER) and name[0] == '"' and not target.startswith("maco/"):
                yield path, line, f"{name}: a header of applications sees those of its folder and of the language, no others"
            if target.startswith("maco/") and own == "maco_api":
                continue
            if own is None or name[0] == "<" or path.startswith(("runtime/cpu/intrinsics/", "runtime/cpu/cuda/")):
                continue
            theirs = next((lib for folder, lib in FOLDERS.items() if target.startswith(folder + "/")), None)
            if theirs == own or theirs in LINKS[own][1] or own in SHARED.get(target, ()):
                continue
            yield path, line, f"{name}: '{own}' may include {', '.join(sorted(LINKS[own][1])) or 'nothing'} of the project"


POLLS = re.compile(r"\b(load_acquire_\w+|packet(?:_pair)?_load\w*|words_load<1>|is_full|is_empty(?:_soon)?|load_relaxed)\s*\(")
ACQUIRES = re.compile(r"\b(load_acquire_\w+|packet(?:_pair)?_load\w*|words_load<1>|is_full|is_empty(?:_soon)?)\s*\(")
AGAIN = re.compile(r"\.\s*again\s*\(")
# A loop over ranks or words that looks at each once.
COUNTED = re.compile(r"^[^;]*=[^;]*;\s*\w+\s*<[^;]*;\s*(\+\+\w+|\w+\+\+|\w+\s*\+=\s*\w+)\s*$", re.S)


def device_texts(tree):
    for path, text in tree.items():
        if IS_DEVICE.match(path) or path.startswith("emitted/"):
            yield path, text, blanked(text, strings=True)


def waits_bounded(tree):
    """A loop that polls goes through Watch; no wait loops inside of asm."""
    for path, text, code in device_texts(tree):
        for start, header, body in loops(code):
            polls = POLLS.search(header) or (not COUNTED.match(header) and POLLS.search(body))
            if polls and not AGAIN.search(header + body):
                yield path, line_of(code, start), f"polls with '{polls[1]}' and has no deadline (Watch::again)"
        for match in re.finditer(r"\b(bra|trap|nanosleep)\b[^\"\n]*;", blanked(text, strings=False)):
            if "asm" in text[max(0, match.start() - 600) : match.start()]:
                yield path, line_of(text, match.start()), f"'{match[1]}' in asm: waits are loops of C++ that Watch bounds"
        for match in re.finditer(r"\b(__trap|__nanosleep|__brkpt|assert|exit)\s*\(", code):
            if match[1] != "__nanosleep" or not re.search(r"\bpause_for\b[^}]*$", code[: match.start()]):
                yield path, line_of(code, match.start()), f"'{match[1]}': whoever waits pauses in pause_for, and leaves by a branch"


def waits_compare(tree):
    """Loops that wait compare with >=, never with !=."""
    for path, _, code in device_texts(tree):
        for start, header, body in loops(code):
            inner = any(AGAIN.search(h + b) for _, h, b in loops(body))
            if AGAIN.search(header + body) and not inner and "!=" in header + body:
                yield path, line_of(code, start), "'!=' in the loop of a wait: a counter may be past its target"


def waits_acquire(tree):
    """A wait's look at its word is an acquire, or a packet that carries its own data."""
    for path, _, code in device_texts(tree):
        for start, header, body in loops(code):
            if AGAIN.search(header + body) and not ACQUIRES.search(header + body):
                yield path, line_of(code, start), "the loop of a wait has no acquire"
            elif POLLS.search(header) and not ACQUIRES.search(header):
                yield path, line_of(code, start), "the loop's condition looks at a word without acquire"


def no_volatile(tree):
    """`volatile` belongs to asm; it synchronises nothing."""
    for path, _, code in device_texts(tree):
        for match in re.finditer(r"\bvolatile\b", code):
            if not re.search(r"\basm\s*$", code[: match.start()]):
                yield path, line_of(code, match.start()), "'volatile' is no synchronisation"


def no_fence(tree):
    """Release and acquire are on the flag itself; fences are for the async proxy."""
    fence = re.compile(r"\b(__threadfence\w*|\w*atomic_thread_fence|membar\.\w+|fence\.(?:acq_rel|sc|acquire|release)\b[\w.]*)")
    for path, text in tree.items():
        if IS_DEVICE.match(path) or path.startswith(("emitted/", "runtime/cpu/intrinsics/")) and path.endswith((".cu", ".h")):
            code = blanked(text, strings=False)
            for match in fence.finditer(code):
                yield path, line_of(code, match.start()), f"'{match[1]}' in place of a release or acquire on the flag"


# Where flags are touched: the atoms themselves, and the few places built on them.
FLAG_WORDS = re.compile(r"\b(load_acquire_\w+|(?:add|store)_release_\w+|packet(?:_pair)?_load\w*|claim)\s*\(")
FLAG_PTX = re.compile(r"\b(ld|st|red|atom)\.(acquire|release|acq_rel|relaxed)\b[\w.]*")


def flags_in_place(tree):
    """Ops don't touch flags: they wait and signal through sync and pages; PTX for flags stands in intrinsics."""
    for path, text in tree.items():
        if not IS_DEVICE.match(path) or path.startswith("runtime/device/intrinsics/"):
            continue
        code = blanked(text, strings=False)
        if path.startswith("runtime/device/ops/"):
            for match in FLAG_WORDS.finditer(blanked(text, strings=True)):
                yield path, line_of(text, match.start()), f"'{match[1]}' in an op: waits and signals are those of sync.cuh and pages.cuh"
        for match in FLAG_PTX.finditer(code):
            yield path, line_of(code, match.start()), f"'{match[0]}' outside of intrinsics"
        for match in re.finditer(r"cp\.async\.bulk\.wait_group\.read", code):
            yield path, line_of(code, match.start()), "'.read' does not wait until what was written is visible"


# What cmake/precompiled.h includes, and names that need it.
NAMES = {
    "<fmt/": r"fmt::\w+",
    "<algorithm>": r"std::(?:(?:all|any|none)_of|binary_search|clamp|copy(?:_if|_n)|count(?:_if)?|equal_range|fill(?:_n)?|find_if(?:_not)?"
                   r"|(?:lower|upper)_bound|(?:max|min|minmax)_element|next_permutation|nth_element|(?:stable_)?partition(?:_point)?"
                   r"|ranges::\w+|remove(?:_if)?|replace(?:_if)?|reverse|rotate|set_(?:difference|intersection|union)|shuffle"
                   r"|(?:is_|partial_|stable_)?sort|transform|unique)\b",
    "<cmath>": r"std::(?:ceil|cos|erf|exp2?|floor|fma|isfinite|isinf|isnan|ldexp|log2?|lround|llround|nearbyint|pow|round|sin|sqrt|tanh"
               r"|trunc)\b",
    "<cstdint>": r"\bu?int(?:8|16|32|64)_t\b",
    "<cstring>": r"std::(?:mem(?:chr|cmp|cpy|move|set)|str(?:chr|cmp|error|len|ncmp|rchr|str))\b",
    "<functional>": r"std::(?:function|greater|hash|less|plus|ref)\b",
    "<map>": r"std::(?:multi)?map\b",
    "<memory>": r"std::(?:make_shared|make_unique|shared_ptr|unique_ptr|weak_ptr)\b",
    "<optional>": r"std::(?:optional|nullopt)\b",
    "<set>": r"std::(?:multi)?set\b",
    "<string>": r"std::(?:string|to_string|sto\w+)\b",
    "<string_view>": r"std::string_view\b",
    "<unordered_map>": r"std::unordered_map\b",
    "<utility>": r"std::(?:as_const|exchange|in_range)\b",
    "<vector>": r"std::vector\b",
}
NAMES = {header: re.compile(pattern) for header, pattern in NAMES.items()}
IS_HOST = re.compile(r"(?!runtime/(?:cpu/intrinsics|cpu/cuda|device)/|tests/cuda/).*\.(?:cpp|h)$")


def names_included(tree):
    """A file includes the headers that are read precompiled as if they weren't, itself or with a header of the project."""
    of_file = {path: re.findall(r'^#include (<[^>]+>|"[^"]+")', text, re.M) for path, text in tree.items() if IS_HOST.match(path)}

    def reached(path, seen):
        if path in of_file and path not in seen:
            seen.add(path)
            for header in of_file[path]:
                yield header
                yield from reached(header.strip('"'), seen)

    for path in of_file:
        if path.endswith(".h") and "#pragma once" not in tree[path]:
            continue  # a part of what includes it
        code, headers = blanked(tree[path], strings=True), set(reached(path, set()))
        for header, names in NAMES.items():
            match = names.search(code)
            if match and not any(name.startswith(header) for name in headers):
                yield path, line_of(code, match.start()), f"'{match[0]}' without {header}"


# Paths of somebody's machine; /usr, /opt and /tmp are those of all.
MACHINE_PATH = re.compile(r"(?<![\w.\-$}~])/(?:home|root|Users|mnt|work|data|scratch|nfs)/[\w.-]+")
LEFT_OVER = re.compile(r"\b(" + "|".join(("TO" + "DO", "FIX" + "ME", "X" + "XX", "HA" + "CK")) + r")\b")


def left_overs(tree):
    """No paths of a machine, nothing left to do."""
    for path, text in tree.items():
        if path.startswith("emitted/"):
            continue
        for pattern, what in ((MACHINE_PATH, "a path of one machine"), (LEFT_OVER, "is left over")):
            for match in pattern.finditer(text):
                yield path, line_of(text, match.start()), f"'{match[0]}': {what}"


PUBLIC = re.compile(r"(ir|runtime/host|runtime/include/maco)/\w+\.h$")
DECLARES = re.compile(r"^\s*(?:template\s*<[^;{]*>\s*)?(?:class\s+\w+[^;]*\{|"
                      r"(?:\[\[\w+\]\]\s*)?(?:virtual |static |inline |constexpr |explicit )*"
                      r"[\w:<>,&*\s]+?[\s&*](\w+)\([^;{]*\)[^;{]*[;{])",
                      re.S)


def headers_say(tree):
    """A public header begins with what it is, and each group of functions or class has a comment.

    A group is what stands between blank lines: one comment may speak for several lines. Getters in a class, operators, overrides and what
    is private need none.
    """
    for path, text in tree.items():
        if not PUBLIC.match(path):
            continue
        if not text.startswith("//"):
            yield path, 1, "a public header begins with a comment that says what it is"
        depth_of_private, depth = None, 0
        at = 0
        for group in re.split(r"\n[ \t]*\n", text):
            start = text.index(group, at)
            at = start + len(group)
            code = blanked(group, strings=True)
            if depth_of_private is not None and depth < depth_of_private:
                depth_of_private = None
            hidden = depth_of_private is not None
            private = re.search(r"^\s*private:", code, re.M)
            visible = code[: private.start()] if private else code
            if not hidden and "//" not in group and "#" not in visible:
                inside = re.match(r"\s*namespace\b[^{]*\{", visible)
                if inside:
                    visible = visible[inside.end() :]
                match = DECLARES.match(visible)
                trivial = re.search(r"\boperator\b|\boverride\b|= default|= delete|~|^\s*(?:explicit )?[A-Z]\w*\([^;]*\)\s*(?:;|:)",
                                    visible)
                if match and not trivial:
                    line = line_of(text, start + len(group) - len(group.lstrip()))
                    yield path, line, "a declaration without a comment that says its contract"
            if private:
                depth_of_private = depth + code[: private.start()].count("{") - code[: private.start()].count("}")
            depth += code.count("{") - code.count("}")


LITERALS = re.compile(r'"((?:[^"\\\n]|\\.)*)"')


@functools.lru_cache(maxsize=None)
def messages_in(text):
    """The strings of a source, one a line, those side by side as one; comments left out."""
    joined = re.sub(r'"\s*\n\s*"', "", blanked(text, strings=False))
    return "".join(match[1].replace('\\"', '"') + "\n" for match in LITERALS.finditer(joined))


def quoted_messages(tree):
    """Messages that docs/troubleshooting.md explains are said somewhere in the sources, word by word but for `...`."""
    page = "docs/troubleshooting.md"
    said = "".join(messages_in(text) for path, text in tree.items() if path.startswith(("ir/", "compiler/", "runtime/", "tools/"))
                   and path.endswith((".cpp", ".h", ".sh", "CMakeLists.txt")))
    for match in re.finditer(r"^\| `([^`]+)` \|", tree.get(page, ""), re.M):
        if not re.search(".*".join(re.escape(part) for part in match[1].split("...")), said):
            yield page, line_of(tree[page], match.start()), f"'{match[1]}': no source says so"


# A string with one of these words is a sentence; others name something, or say what is expected.
VERB = re.compile(r"\b(?:am|is|isn't|are|aren't|has|have|must|can't|cannot|may|would|does|takes|gives|names|needs|waits|unknown)\b")


def sentence_of(literal):
    """The words of a message without its placeholders, or () if the string is no sentence."""
    text = re.sub(r"\{[^{}]*\}", " ", literal)
    words = tuple(re.findall(r"[A-Za-z][A-Za-z']*", text))
    return words if len(words) > 1 and VERB.search(text) else ()


def messages_once(tree):
    """What is wrong with a graph is said in compiler/graph alone, whoever built the graph: no frontend has the same message."""
    said = {}
    for path, text in tree.items():
        if path.startswith("compiler/graph/") and path.endswith((".cpp", ".h")):
            said.update((sentence_of(line), path) for line in messages_in(text).splitlines())
    said.pop((), None)
    for path, text in tree.items():
        # Plans of MSCCL++ and CUDA kernels are other documents than graphs.
        if not path.startswith("compiler/frontend/") or not path.endswith((".cpp", ".h")) or "/mscclpp_" in path or "/cuda/" in path:
            continue
        for line in messages_in(text).splitlines():
            other = said.get(sentence_of(line))
            if other:
                where = line_of(text, max(0, text.find(line[:20])))
                yield path, where, f"'{line}' is a message of {other}, too: make the check there, and call it"


# Files that may know ops and device functions by name, and why.
KNOW_NAMES = {
    r"compiler/ops/": "ops, and the tile rules that call device functions",
    r"compiler/functions/": "device functions",
    r"runtime/reference/": "what each op means, sharing no code with the compiler",
    r"runtime/include/maco/graph\.h$": "a function of the builder for each op",
    r"ir/body\.cpp$|compiler/codegen/body\.cpp$": "functions of bodies, which are named as ops are, and their C++",
    r"ir/program\.cpp$": "words of CollectiveKind",
    r"ir/graph\.h$|compiler/frontend/(build_algorithms|chunk_print)\.cpp$": "statements of users' algorithms",
    r"compiler/frontend/dsl_hints\.cpp$": "the ops that stand for operators of other languages",
    r"compiler/frontend/mscclpp_(ops|plan|ranks)\.cpp$": "words of MSCCL++'s plans",
    r"compiler/frontend/huggingface/import\.cpp$": "functions of the templates of models",
    r"compiler/frontend/cuda_kernels\.cpp$": "reads the kernels that ops 'cuda' name",
    r"compiler/frontend/cuda/": "names of CUDA's own functions",
    r"compiler/passes/(fuse/\w+|prepare_operands)\.cpp$": "patterns of the ops that are fused, until ops declare what they absorb",
}
# Names that are words of something else, too: of those only comparisons count.
OTHER_WORDS = {"chunks", "clear", "copy", "cuda", "max", "reduce", "send", "sum", "transpose"}
DEVICE_FUNCTION = re.compile(r"^MACO_(?:OP|FN) void (\w+)\(Context&(?: \w+)?, (?:const )?Args\b&?(?: \w+)?, u32\b", re.M)
COMPARED = re.compile(r'(?:\b(?:op_)?kind\b|\bfunction\b(?:\([^()"]*\))?)\s*[!=]=\s*$|\bfind_(?:op|function)\(\s*$')


def entity_names(tree):
    """The kinds of ops, as docs/ops.md and compiler/ops say them, and the names of device functions."""
    names = set()
    for table in re.findall(r"^\| op \|.*\n(?:\|.*\n)*", tree["docs/ops.md"], re.M):
        for row in re.findall(r"^\| ((?:`\w+` ?)+)", table, re.M):
            names.update(re.findall(r"`(\w+)`", row))
    for path, text in tree.items():
        if path.startswith("compiler/ops/"):
            names.update(re.findall(r'\bkind = "(\w+)";', text))
            if path.startswith("compiler/ops/stages/"):  # the attribute that says that an op has the stage
                names.update(re.findall(r'\.attrs = \{\{"(\w+)"', text))
        elif path.startswith("runtime/device/ops/"):
            names.update(DEVICE_FUNCTION.findall(text))
    return names


def names_in_place(tree):
    """Kinds of ops and names of device functions are written in their own files and in those of KNOW_NAMES."""
    names, unused = entity_names(tree), set(KNOW_NAMES)
    for path, text in tree.items():
        if not path.startswith(("compiler/", "ir/", "runtime/", "tools/")) or not path.endswith((".cpp", ".h")):
            continue
        known = [where for where in KNOW_NAMES if re.match(where, path)]
        for match in TOKEN.finditer(text):
            word = match[0][1:-1]
            if not match[0].startswith('"') or word not in names:
                continue
            if word in OTHER_WORDS and not COMPARED.search(text[max(0, match.start() - 200) : match.start()]):
                continue
            unused.difference_update(known)
            if not known:
                message = f"'{word}' is known by name: ask for a property that the op or the device function declares"
                yield path, line_of(text, match.start()), message
    for where in sorted(unused):
        yield "tests/lint/lint.py", 1, f"KNOW_NAMES lists '{where}', where no name is known any more"


# Stages of matmul, the attributes by which ops have them, and words for matmuls that have them. `turned`, `added` and `normed` are words of
# much else, too.
STAGES = "pair|norm|turn|append|send|add|gather|halve"
STAGE_ATTRS = "paired|norm_eps|first_turned|append_at|first_appended|pushed|gathered"
STAGE_FLAGS = re.compile(r"\b(?:is_)?(?:paired|pushed|halved|gathered)\b")
STAGE_NAMES = re.compile(
    rf'\b(?:has|has_stage|\w*takes|takes_stage|may_have_stage|add_stage_inputs|find)\([^()"]*(?:\([^()"]*\)[^()"]*)*"(?:{STAGES})"'
    rf'|emplace_back\("(?:{STAGES})"\)|\{{"(?:{STAGES})"(?:, "(?:{STAGES})")*\}}|\bhas_(?:{STAGES})\b|"(?:{STAGE_ATTRS})"')
# The files of the stages themselves.
STAGE_FILES = re.compile(rf"compiler/ops/stages/|compiler/ops/collectives/push\.|compiler/functions/matmul\.cpp$|"
                         rf"compiler/passes/fuse/(?:{STAGES}|sum)\.cpp$|runtime/device/ops/matmul_(?:{STAGES})\.cuh$")
# Other files that may know stages, and why; at most twelve.
KNOW_STAGES = {
    r"compiler/functions/matmul_methods\.cpp$": "methods, which say what their code asks for",
    r"compiler/functions/exchange\.cpp$": "what tasks with stage send, or send and add, touch and move",
    r"runtime/device/ops/matmul\.cuh$": "the parameters of all methods",
    r"runtime/device/ops/matmul_(few|few_mma|line|row|tensor)\.cuh$": "main loops with two sums of an element",
    r"runtime/device/ops/matmul_ways\.cuh$": "the choice of the main loop",
}
MOST_STAGE_FILES = 12


def stages_in_place(tree):
    """A stage of matmul is known by name in its own files and in those of KNOW_STAGES, which are at most twelve."""
    unused, others = set(KNOW_STAGES), set()
    for path, text in tree.items():
        if not path.startswith(("compiler/", "ir/", "runtime/")) or not path.endswith((".cpp", ".h", ".cuh")) or STAGE_FILES.match(path):
            continue
        known = [where for where in KNOW_STAGES if re.match(where, path)]
        found = [*STAGE_NAMES.finditer(blanked(text, strings=False)), *STAGE_FLAGS.finditer(blanked(text, strings=True))]
        if known and found:
            unused.difference_update(known)
            others.add(path)
            continue
        for match in found:
            yield path, line_of(text, match.start()), f"'{match[0]}' is known of a stage of matmul: ask for a property that stages declare"
    for where in sorted(unused):
        yield "tests/lint/lint.py", 1, f"KNOW_STAGES lists '{where}', where no stage is known any more"
    if len(others) > MOST_STAGE_FILES:
        yield "tests/lint/lint.py", 1, f"{len(others)} files besides their own know stages of matmul, more than {MOST_STAGE_FILES}"


RULES = [host_or_device, includes_nothing, twins_agree, readmes, links, layers, waits_bounded, waits_compare, waits_acquire, no_volatile,
         no_fence, flags_in_place, names_included, left_overs, headers_say, quoted_messages, messages_once, names_in_place,
         stages_in_place]


def lint(tree, rules=None):
    return [Finding(rule.__name__.replace("_", "-"), *found) for rule in rules or RULES for found in rule(tree)]


def emitted_kernels(macoc):
    """Kernels of the examples and of the graph with every op, for a GPU and for the CPU's description."""
    folder = os.path.join(ROOT, "examples", "graphs")
    graphs = [os.path.join(folder, name) for name in ("tp_mlp.json", "decode_layer.maco")]
    graphs.append(os.path.join(ROOT, "tests", "e2e", "all_ops.maco"))
    kernels = {}
    for graph in graphs:
        for target in ("sm_90a", "cpu"):
            run = subprocess.run([macoc, graph, "-q", "--target", target], capture_output=True, text=True)
            if run.returncode != 0:
                sys.exit(f"{macoc} {graph}: {run.stderr}")
            kernels[f"emitted/{os.path.splitext(os.path.basename(graph))[0]}-{target}.cu"] = run.stdout
    return kernels


# ---- self-test ---------------------------------------------------------------------------------------------------------------

# Rule, file, and what makes it bad: a text to add at the end, or (before, after) to replace; then what the message must name.
BAD = [
    (host_or_device, "runtime/device/sync.cuh", "#ifdef __CUDA_ARCH__\n#endif\n", "__CUDA_ARCH__"),
    (host_or_device, "runtime/device/ops/matmul.cuh", "#if MACO_HAS_F8\n#endif\n", "MACO_HAS_F8"),
    (host_or_device, "compiler/codegen/codegen.cpp", "#if defined(__CUDACC__)\n#endif\n", "__CUDACC__"),
    (host_or_device, "runtime/device/rows.cuh", "#if kRows\n#endif\n", "no conditions"),
    (includes_nothing, "runtime/device/numbers.cuh", "#include <cuda_fp16.h>\n", "cuda_fp16"),
    (includes_nothing, "runtime/cpu/intrinsics/intrinsics.h", "#include <vector>\n", "vector"),
    (includes_nothing, "emitted/kernel.cu", "#include <cstdint>\n", "cstdint"),
    (twins_agree, "runtime/cpu/intrinsics/cta.h", ("MACO_FN void start_sync() {}\n", ""), "does not declare 'void start_sync()'"),
    (twins_agree, "runtime/device/intrinsics/memory.cuh",
     ("MACO_FN void prefetch(", "MACO_FN void prefetch_far() {}\nMACO_FN void prefetch("),
     "declares 'void prefetch_far()'"),
    (twins_agree, "runtime/device/intrinsics/copies.cuh", ("i32 = 0x7fffffff", "i32 = 0"), "i32 = 0)"),
    (twins_agree, "tests/unit/mock_intrinsics.h", ("float fdiv(float a, float b)", "float fdiv(float a, double b)"),
     "'float fdiv(float, float)'"),
    (twins_agree, "tests/unit/mock_tensor_cores.h", ("inline u32 transpose_matrix(u32 matrix)", "inline u64 transpose_matrix(u32 matrix)"),
     "declares 'u64 transpose_matrix(u32)'"),
    (twins_agree, "runtime/device/intrinsics/interface.txt", ("gpu cpu -      void pair_sync()", "gpu cpu mock   void pair_sync()"),
     "has for mock"),
    (twins_agree, "runtime/cpu/intrinsics/novel.h", "namespace maco {}\n", "subject 'novel'"),
    (readmes, "compiler/novel/pass.cpp", "int x;\n", "README"),
    (links, "compiler/CMakeLists.txt", ("maco_library(maco_verify ${verify} LINK maco_ir)",
                                        "maco_library(maco_verify ${verify} LINK maco_ir maco_passes)"),
     "'maco_verify' links 'maco_passes'"),
    (links, "compiler/CMakeLists.txt", "target_link_libraries(maco_ops PRIVATE maco_codegen)\n", "'maco_ops' links 'maco_codegen'"),
    (links, "compiler/CMakeLists.txt", ("maco_library(maco_passes ${passes} LINK maco_graph",
                                        "maco_library(maco_passes ${passes} LINK maco_frontend maco_graph"),
     "'maco_passes' links 'maco_frontend'"),
    (links, "ir/CMakeLists.txt", "target_link_libraries(maco_ir PUBLIC maco_host)\n", "'maco_ir' links 'maco_host'"),
    (links, "runtime/CMakeLists.txt", "target_link_libraries(maco_reference PUBLIC maco_ops)\n", "'maco_reference' links 'maco_ops'"),
    (links, "compiler/CMakeLists.txt", "maco_library(maco_novel x.cpp LINK maco_ir)\n", "'maco_novel' has no rule"),
    (layers, "compiler/verify/verify.cpp", '#include "compiler/passes/passes.h"\n', "maco_verify"),
    (layers, "compiler/passes/tile.cpp", '#include "compiler/frontend/frontend.h"\n', "maco_passes"),
    (layers, "ir/graph.cpp", '#include "compiler/ops/op.h"\n', "maco_ir"),
    (layers, "compiler/ops/matmul.cpp", '#include "compiler/codegen/codegen.h"\n', "maco_ops"),
    (layers, "runtime/reference/rope.cpp", '#include "compiler/ops/op.h"\n', "maco_reference"),
    (layers, "runtime/host/jit.cpp", "#include <cuda.h>\n", "cuda.h"),
    (layers, "runtime/include/maco/graph.h", '#include "ir/graph.h"\n', "no others"),
    (layers, "ir/expr.cpp", "#include <nlohmann/json.hpp>\n", "nlohmann"),
    (waits_bounded, "runtime/device/ops/put.cuh", "MACO_FN void f(const u32* p) { while (load_acquire_sys(p) < 3) {} }\n",
     "load_acquire_sys"),
    (waits_bounded, "runtime/device/ops/put.cuh",
     "MACO_FN void f(const u32* p) {\n  do {\n    v = load_acquire_gpu(p);\n  } while (v < 3);\n}\n", "load_acquire_gpu"),
    (waits_bounded, "runtime/device/ops/put.cuh", "void f() { for (;;) { if (u32(packet_load(s) >> 32) == e) break; } }\n", "packet_load"),
    (waits_bounded, "emitted/kernel.cu", "void f() { for (u32 v = load_relaxed(p); v < 3; v = load_relaxed(p)) ; }\n", "load_relaxed"),
    (waits_bounded, "runtime/device/pages.cuh",
     'asm volatile("{\\n\\tL: mbarrier.try_wait.b64 p, [%0], 1;\\n\\t@!p bra L;\\n\\t}" :: "r"(a));\n', "bra"),
    (waits_bounded, "runtime/device/sync.cuh", "MACO_FN void f() { __trap(); }\n", "__trap"),
    (waits_bounded, "runtime/device/sync.cuh", ("goes_on = watch.again() || !waits;", "goes_on = true;"), "no deadline"),
    (waits_compare, "runtime/device/sync.cuh", ("!reached(seen, a.target)", "seen != a.target"), "'!='"),
    (waits_acquire, "runtime/device/sync.cuh",
     ("acquires ? load_acquire_counter(sys, a.word) : load_relaxed(a.word)", "load_relaxed(a.word)"), "acquire"),
    (waits_acquire, "runtime/device/pages.cuh",
     ("while (!is_full(full_barrier, round))", "while (load_relaxed(full_barrier) == 0)"),
     "acquire"),
    (no_volatile, "runtime/device/sync.cuh", "MACO_FN u32 f(const u32* p) { return *(const volatile u32*)p; }\n", "volatile"),
    (no_volatile, "emitted/kernel.cu", "volatile int flag;\n", "volatile"),
    (no_fence, "runtime/device/sync.cuh", "MACO_FN void f(u32* p) { __threadfence_system(); store_relaxed(p, 1); }\n",
     "__threadfence_system"),
    (no_fence, "runtime/device/intrinsics/flags.cuh", 'asm volatile("fence.acq_rel.gpu;" ::: "memory");\n', "fence.acq_rel.gpu"),
    (no_fence, "runtime/cpu/intrinsics/intrinsics.h", "inline void f() { std::atomic_thread_fence(std::memory_order_release); }\n",
     "atomic_thread_fence"),
    (flags_in_place, "runtime/device/ops/matmul.cuh", "MACO_FN void f(u32* p) { store_release_sys(p, 1); }\n", "store_release_sys"),
    (flags_in_place, "runtime/device/sync.cuh", 'asm volatile("ld.acquire.gpu.u32 %0, [%1];");\n', "ld.acquire"),
    (flags_in_place, "runtime/device/ops/put.cuh", 'asm volatile("cp.async.bulk.wait_group.read 0;");\n', ".read"),
    (names_included, "compiler/codegen/novel.cpp", "std::vector<int> list;\n", "<vector>"),
    (names_included, "compiler/ops/novel.h", "#pragma once\n#include <string>\nbool f() { return std::any_of(s.begin(), s.end(), g); }\n",
     "<algorithm>"),
    (left_overs, "compiler/passes/fuse.cpp", "// TO" + "DO: more\n", "left over"),
    (left_overs, "docs/language.md", "See /ho" + "me/somebody/maco.\n", "one machine"),
    (quoted_messages, "docs/troubleshooting.md", "| `no device: the driver shows no GPU` | |\n", "no source says so"),
    (quoted_messages, "docs/troubleshooting.md", "| `no device: ... shows ... no driver` | |\n", "no source says so"),
    (quoted_messages, "runtime/host/driver.cpp", ("the NVIDIA driver shows no GPU", "there is no GPU"), "the NVIDIA driver shows no GPU"),
    (messages_once, "compiler/frontend/build_ops.cpp",
     'c.error(loc, fmt::format("\'{}\' is read "\n                          "before it is defined{}", name, hint));\n',
     "compiler/graph/check_ops.cpp"),
    (messages_once, "compiler/frontend/build_order.cpp", 'auto text = fmt::format("{} has no ops{}", what, hint);\n',
     "compiler/graph/check_constraints.cpp"),
    (names_in_place, "compiler/passes/tile.cpp", 'bool f(const Op& op) { return op.kind == "allreduce"; }\n', "'allreduce'"),
    (names_in_place, "compiler/passes/tile.cpp", 'bool f(const Op& op) { return op.kind != "copy"; }\n', "'copy'"),
    (names_in_place, "compiler/codegen/codegen.cpp", 'bool f(const Call& c) { return c.function == "cuda_kernel"; }\n', "'cuda_kernel'"),
    (names_in_place, "compiler/verify/verify.cpp", 'bool f(const Task& t) { return function(t) ==\n      "clear"; }\n', "'clear'"),
    (names_in_place, "compiler/passes/schedule.cpp", 'const auto* def = ops::find_op("sum");\n', "'sum'"),
    (names_in_place, "runtime/host/session.cpp", 'const std::set<std::string> kinds = {"rope_sines", "gelu"};\n', "'rope_sines'"),
    (names_in_place, "compiler/frontend/dsl_hints.cpp", ('op("', 'op("other_'), "no name is known any more"),
    (stages_in_place, "compiler/ops/matmul.cpp", 'bool f(const Op& op) { return attr_flag(op, "pushed", false); }\n', "'\"pushed\"'"),
    (stages_in_place, "compiler/codegen/codegen.cpp", 'bool f(const Call& c) { return functions::has_stage(c, "halve"); }\n', '"halve"'),
    (stages_in_place, "compiler/passes/schedule.cpp", "bool f(const Op& op) { return is_paired(op); }\n", "'is_paired'"),
    (stages_in_place, "runtime/device/ops/matmul_block.cuh", "constexpr int kSums = C::has_pair ? 2 : 1;\n", "'has_pair'"),
    (stages_in_place, "runtime/device/ops/matmul_ways.cuh", ("has_halve", "has_mates"), "no stage is known any more"),
    (headers_say, "ir/novel.h", "#pragma once\n", "begins with a comment"),
    (headers_say, "ir/program_text.h", "\nint count_tasks(const Program& program);\n", "contract"),
    (headers_say, "runtime/host/jit.h", "\nclass Compiler {\n public:\n  void go();\n};\n", "contract"),
]
# What looks like a breach and is none.
GOOD = [
    ("runtime/device/sync.cuh", "// A wait is never while (load_acquire_sys(p) != 3), nor volatile, nor a __threadfence().\n"),
    ("runtime/device/sync.cuh",
     "MACO_FN u32 f(Context& c) { u32 n = 0; for (int r = 0; r < c.world; ++r) n += load_relaxed(p + r); return n; }\n"),
    ("runtime/device/pages.cuh", 'MACO_FN void f() { asm volatile("fence.proxy.async;" ::: "memory"); }\n'),
    ("compiler/codegen/novel.cpp", '#include "ir/program.h"\nstd::vector<int> list;  // of ir/program.h\n'),
    ("runtime/device/intrinsics/mma.cuh", "#if MACO_HAS_WGMMA\n#endif\n"),
    ("docs/troubleshooting.md", "| `no device: ... shows no GPU` | |\n"),
    ("compiler/passes/tile.cpp", '// An op of kind == "allreduce".\nconst char* wide = "max";\n'),
    ("compiler/passes/tile.cpp", 'const std::string text = "an allreduce of \'matmul\'";\n'),
    ("compiler/frontend/dsl_parse.cpp", 'auto what = scan_.name("the name of a tensor");  // two phases are called so\n'),
    ("ir/program_text.h", "\n/// How many.\nint count_tasks(const Program& program);\nint count_calls(const Program& program);\n"),
]


def self_test(tree):
    failures = 0
    tree = dict(tree)
    tree.setdefault("emitted/kernel.cu", "")

    def changed(path, change):
        copy = dict(tree)
        if isinstance(change, str):
            copy[path] = copy.get(path, "") + change
        else:
            if change[0] not in copy[path]:
                raise SystemExit(f"self-test: {path} no longer has '{change[0]}'")
            copy[path] = copy[path].replace(*change)
        return copy

    before = {rule: set(lint(tree, [rule])) for rule in RULES}
    for rule, path, change, names in BAD:
        new = [f for f in lint(changed(path, change), [rule]) if f not in before[rule]]
        if not any(names in f.message for f in new):
            failures += 1
            print(f"self-test: {rule.__name__} does not see what is wrong with {path}: {change!r}; it says {[str(f) for f in new]}")
    for rule in RULES:
        if not any(bad[0] is rule for bad in BAD):
            failures += 1
            print(f"self-test: no bad example for {rule.__name__}")
    for path, change in GOOD:
        new = [f for f in lint(changed(path, change)) if not any(f in known for known in before.values())]
        if new:
            failures += 1
            print(f"self-test: {path} is good with {change!r}, but {[str(f) for f in new]}")
    print(f"self-test: {len(BAD)} bad and {len(GOOD)} good examples, {failures} failures")
    return failures


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--macoc", help="also check kernels that it emits")
    parser.add_argument("--self-test", action="store_true", help="check the rules themselves first")
    args = parser.parse_args()
    tree = read_tree()
    failures = self_test(tree) if args.self_test else 0
    if args.macoc:
        tree.update(emitted_kernels(args.macoc))
    findings = lint(tree)
    for finding in findings:
        print(finding)
    print(f"{len(tree)} files, {len(RULES)} rules, {len(findings)} findings")
    return 1 if failures or findings else 0


if __name__ == "__main__":
    sys.exit(main())
