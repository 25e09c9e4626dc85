"""The functions of the machine: runtime/device/intrinsics/interface.txt lists them, and which of three twins declares each."""

import re

LIST = "runtime/device/intrinsics/interface.txt"
# A twin's headers of a subject; those of the unit tests hold several subjects.
MOCK = ("tests/unit/mock_intrinsics.h", "tests/unit/mock_tensor_cores.h")
TWINS = {
    "gpu": lambda subject: (f"runtime/device/intrinsics/{subject}.cuh",),
    "cpu": lambda subject: (f"runtime/cpu/intrinsics/{subject}.h",),
    "mock": lambda subject: MOCK,
}
FOLDERS = {"gpu": "runtime/device/intrinsics/", "cpu": "runtime/cpu/intrinsics/"}
# Headers that only the CPU target has: the one that includes all others, and those that these include.
NO_SUBJECT = {"runtime/cpu/intrinsics/intrinsics.h", "runtime/cpu/intrinsics/cpu_context.h", "runtime/cpu/intrinsics/calls.h"}
MACROS_OF = {"runtime/device/intrinsics/machine.cuh", "runtime/cpu/intrinsics/machine.h", MOCK[0]}
SPECIFIERS = re.compile(r"\b(?:MACO_FN|inline|constexpr|static)\s+|\[\[\w+\]\]\s*")


def split(text, separator=","):
    """The parts between the separators that stand in no brackets."""
    parts, depth = [""], 0
    for c in text:
        depth += (c in "([{<") - (c in ")]}>")
        if c == separator and depth == 0:
            parts.append("")
        else:
            parts[-1] += c
    return [part.strip() for part in parts if part.strip()]


def without_name(parameter):
    """`const u32 (&a)[4]` -> `const u32 (&)[4]`, `i32 end = 1` -> `i32 = 1`."""
    declared, is_default, default = (part.strip() for part in parameter.partition("="))
    if "(&" in declared:
        declared = re.sub(r"\(&\w+\)", "(&)", declared)
    elif re.search(r"[\w>&*]\s*[\s&*]\w+$", declared) and not re.fullmatch(r"const \w+", declared):
        declared = re.sub(r"\s*\b\w+$", "", declared)
    return f"{declared} = {default}" if is_default else declared


def signature(declaration):
    """A declaration in one way of writing: without names of parameters, values of constants and specifiers; "" of what declares nothing."""
    text = " ".join(declaration.split())
    if not text or text.startswith(("static_assert", "extern")):
        return ""
    template = re.match(r"template <[^>]*> ", text)
    head, text = (template[0], text[template.end() :]) if template else ("", text)
    if text.startswith(("using ", "struct ")):
        return head + text
    constant = re.match(r"(?:\[\[\w+\]\] )?constexpr (\w+ \w+) =", text)
    if constant:
        return "constexpr " + constant[1]
    text = SPECIFIERS.sub("", text)
    function = re.fullmatch(r"([^()]*\b\w+)\((.*)\)", text)
    if not function:
        return head + text
    return f"{head}{function[1]}({', '.join(without_name(p) for p in split(function[2]))})"


def declarations(code, macros):
    """(place, signature) of what a header without comments declares in namespace maco itself, not deeper."""
    for match in re.finditer(r"^#define (\w+)", code if macros else "", re.M):
        yield match.start(), "#define " + match[1]
    code = re.sub(r"^#(?:[^\n]*\\\n)*[^\n]*", lambda m: re.sub(r"[^\n]", " ", m[0]), code, flags=re.M)
    at, start = 0, 0
    inside = False
    while at < len(code):
        c = code[at]
        if c == "{" and re.fullmatch(r"\s*namespace maco\s*", code[start:at]):
            inside, start = True, at + 1
        elif c == "{":
            depth, begin = 1, at
            while depth and at + 1 < len(code):
                at += 1
                depth += (code[at] == "{") - (code[at] == "}")
            declares = code[start:begin]
            if not declares.split()[:1] == ["namespace"]:
                first = start + len(declares) - len(declares.lstrip())
                said = signature(re.sub(r"\balignas\(.*\) ", "", " ".join(declares.split())))
                if inside and said:
                    yield first, said
            start = at + 1
        elif c == "}":
            inside, start = False, at + 1
        elif c == ";":
            declares = code[start:at]
            first = start + len(declares) - len(declares.lstrip())
            said = signature(declares)
            if inside and said:
                yield first, said
            start = at + 1
        at += 1


def listed(text):
    """(line, subject, twins, signature) of each row of the list."""
    subject = ""
    for number, line in enumerate(text.splitlines(), 1):
        heading = re.fullmatch(r"(\w+):", line)
        if heading:
            subject = heading[1]
        row = re.fullmatch(r"(gpu|-) +(cpu|-) +(mock|-) +(\S.*)", line)
        if row:
            yield number, subject, set(row.groups()[:3]), row[4]


def name_of(said):
    match = re.search(r"(\w+)\(", said) or re.search(r"(\w+)(?: =.*)?$", said)
    return match[1] if match else said


def compare(tree, blanked):
    """(path, line, message) of each difference between the list and the twins."""
    rows = list(listed(tree.get(LIST, "")))
    if not rows:
        yield LIST, 1, "lists nothing"
        return
    subjects = {row[1] for row in rows}
    for folder in FOLDERS.values():
        for path in sorted(tree):
            stem = path[len(folder) :].split(".")[0]
            if path.startswith(folder) and path.endswith((".h", ".cuh")) and path not in NO_SUBJECT and stem not in subjects:
                yield path, 1, f"the subject '{stem}' is not one of {LIST}"
    for twin, files_of in TWINS.items():
        wanted = {}  # files -> signature -> line of the list
        for number, subject, twins, said in rows:
            files = wanted.setdefault(files_of(subject), {})
            if twin in twins:
                files[said] = number
        for paths, signatures in wanted.items():
            found = {}
            for path in paths:
                code = blanked(tree.get(path, ""), strings=True)
                for at, said in declarations(code, path in MACROS_OF):
                    found.setdefault(said, (path, code.count("\n", 0, at) + 1))
            lacking = [said for said in signatures if said not in found]
            for said, (path, line) in found.items():
                if said not in signatures:
                    other = next((s for s in lacking if name_of(s) == name_of(said)), None)
                    known = f"'{other}'" if other else "nothing of that name"
                    lacking = [s for s in lacking if s != other]
                    yield path, line, f"declares '{said}'; {LIST} has {known} for {twin}"
            for said in lacking:
                yield paths[0], 1, f"does not declare '{said}', which {LIST} has for {twin} (line {signatures[said]})"
