#!/usr/bin/env python3
"""Prints the reference of the Python package's public names, from their signatures and docstrings.

  tools/python-api.py              # for docs/python-api.md, where tools/update-docs.py puts it

Reads the sources and imports nothing, so that it needs neither PyTorch nor the library.
"""

import ast
import pathlib
import textwrap

ROOT = pathlib.Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "python" / "maco"
WIDTH = 120

# Headings, what stands below each of them, and the modules whose public names follow; "module:Name" is a name that has no place in `maco`.
SECTIONS = [
    ("Ranks", "", ["groups"]),
    ("Collectives and messages", "collectives", ["collectives"]),
    ("Level 1: decorators, torch.compile", "", ["optimized", "backend", "fx_report:Report"]),
    (
        "Level 2: blocks that overlap",
        "",
        ["context", "context:OverlapRegion", "lazy", "pipeline", "schedule", "schedule:Phase", "schedule:CommHandle"],
    ),
    ("Level 3: persistent kernels", "", ["persistent", "taskgraph:TaskGraph"]),
    ("SM roles", "", ["roles", "dynamic"]),
    ("Layers: maco.nn", "nn", ["nn"]),
    ("torch.distributed: maco.distributed", "distributed", ["distributed"]),
    ("Checkpoints", "", ["models.llm", "models.llm:Answer", "models.llm:Piece", "models.importing", "models.importing:Model"]),
    ("Profiling", "", ["profiling", "profiling:Profiler"]),
    ("Settings: maco.config", "config", ["config"]),
    ("Graphs", "", ["graph", "expressions"]),
    ("Ops of graphs", "ops", ["ops:Ops"]),
    ("Kernels and sessions", "", ["kernel"]),
    ("Element types", "", ["dtypes"]),
    ("Errors", "errors", ["errors"]),
    ("Collectives of one's own: maco.mscclpp", "mscclpp", ["mscclpp"]),
]
PREFIXES = {"nn": "maco.nn.", "config": "maco.config.", "distributed": "maco.distributed.", "mscclpp": "maco.mscclpp."}
# What others give: callers don't make them.
GIVEN = {
    "Group",
    "Work",
    "Lazy",
    "Phase",
    "CommHandle",
    "Report",
    "Profiler",
    "OverlapRegion",
    "TaskGraph",
    "Value",
    "Profile",
    "TensorInfo",
    "VariableInfo",
    "Ops",
    "Diagnostic",
    "Chunk",
    "BaseBuffer",
    "Answer",
    "Piece",
    "Model",
}
# Torch calls what they have.
WITHOUT_MEMBERS = {"ProcessGroupMaco"}
CONSTANTS = {"dtypes": "Members of `maco.DType`. Where an element type is asked for, its name, torch's and NumPy's will do, too."}


def parsed(path):
    return ast.parse(path.read_text(encoding="utf-8"))


def assigned(tree, name):
    """The literal that a module assigns to a name."""
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            return ast.literal_eval(node.value)
    raise SystemExit(f"the package has no '{name}' any more")


def file_of(module):
    path = PACKAGE / module.replace(".", "/")
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def public_names():
    """Names by the module that has them: those of `maco`, and of its public modules."""
    tree = parsed(PACKAGE / "__init__.py")
    found = {}
    for name, module in assigned(tree, "_LAZY").items():
        found.setdefault(module, []).append(name)
    listed = set(assigned(tree, "__all__"))
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.level == 1 and node.module:
            for alias in node.names:
                if alias.name in listed:
                    found.setdefault(node.module, []).append(alias.name)
    for module in ("config", "nn", "distributed"):
        own = assigned(parsed(file_of(module)), "__all__")
        found[module] = [name for name in own if name not in found.get(module, ())] + [f"maco.{name}" for name in found.get(module, ())]
    for node in parsed(file_of("mscclpp")).body:
        if isinstance(node, ast.ImportFrom) and node.level == 1:
            found.setdefault("mscclpp", []).extend((f"mscclpp.{node.module}", alias.name) for alias in node.names)
    return found


def is_overload(node):
    return any(ast.unparse(one).rsplit(".", 1)[-1] == "overload" for one in node.decorator_list)


def definition(module, name):
    """The class or function, or the assignment and the string behind it, of a name in a module."""
    tree = parsed(file_of(module))
    body = list(tree.body)
    for node in tree.body:
        if isinstance(node, ast.If):
            body += node.body
    for at, node in enumerate(body):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and node.name == name and not is_overload(node):
            return node, ""
        targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        names = [one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)]
        if name in names:
            behind = body[at + 1] if at + 1 < len(body) else None
            text = behind.value.value if isinstance(behind, ast.Expr) and isinstance(behind.value, ast.Constant) else ""
            return node, text
    raise SystemExit(f"python/maco/{module} defines no '{name}' any more")


def arguments(node, skip_first):
    """The parameters of a function as they are written, without types that only the package knows."""
    spec = node.args
    made, ordinary = [], [*spec.posonlyargs, *spec.args]
    defaults = [None] * (len(ordinary) - len(spec.defaults)) + list(spec.defaults)

    def one(arg, default):
        text = arg.arg
        kind = ast.unparse(arg.annotation) if arg.annotation else ""
        if kind and kind != "Any" and "Unpack" not in kind:
            text += f": {kind}"
        if default is not None:
            value = ast.unparse(default)
            text += (" = " if ":" in text else "=") + (f'"{value[1:-1]}"' if value.startswith("'") else value)
        return text

    for at, (arg, default) in enumerate(zip(ordinary, defaults, strict=True)):
        if not (at == 0 and skip_first):
            made.append(one(arg, default))
        if spec.posonlyargs and at == len(spec.posonlyargs) - 1:
            made.append("/")
    if spec.vararg:
        made.append("*" + one(spec.vararg, None))
    elif spec.kwonlyargs:
        made.append("*")
    made += [one(arg, default) for arg, default in zip(spec.kwonlyargs, spec.kw_defaults, strict=True)]
    if spec.kwarg:
        made.append("**" + spec.kwarg.arg)
    return made


def signature(head, parameters, returns):
    result = f" -> {ast.unparse(returns)}" if returns is not None and ast.unparse(returns) not in ("None", "Any") else ""
    line = f"{head}({', '.join(parameters)}){result}"
    if len(line) <= WIDTH:
        return [line]
    kept = [one.replace(" ", "\0") for one in parameters]
    inside = [one.replace("\0", " ") for one in textwrap.wrap(", ".join(kept), WIDTH - 4, break_long_words=False, break_on_hyphens=False)]
    return [f"{head}(", *(f"    {one}" for one in inside), f"){result}"]


def doc(node):
    return ast.get_docstring(node) or ""


def decorators(node):
    return {ast.unparse(one).rsplit(".", 1)[-1].partition("(")[0] for one in node.decorator_list}


def bases(module, node):
    """The classes of the package that a class is derived from, with their modules."""
    imports = {}
    for one in parsed(file_of(module)).body:
        if isinstance(one, ast.ImportFrom) and one.level == 1 and one.module:
            parent = module.rpartition(".")[0]
            imports.update({alias.asname or alias.name: (f"{parent}.{one.module}" if parent else one.module) for alias in one.names})
    made = []
    for base in node.bases:
        name = ast.unparse(base).partition("[")[0]
        where = imports.get(name, module)
        if "." not in name:
            try:
                found, _ = definition(where, name)
            except SystemExit:
                continue
            if isinstance(found, ast.ClassDef):
                made.append((where, found))
    return made


def is_enum(module, node):
    own = any(ast.unparse(base) in ("Enum", "IntEnum", "Flag") for base in node.bases)
    return own or any(is_enum(*base) for base in bases(module, node))


def constructor(module, node):
    """The `__init__` of a class, or of a base of the package's whose subclasses callers make."""
    found = next((one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "__init__"), None)
    if found is None and module.startswith("mscclpp."):
        found = next((one for one in (constructor(*base) for base in bases(module, node)) if one is not None), None)
    return found


def attributes(init):
    """Lines of the attributes that `__init__` sets and that have a docstring."""
    lines = []
    for statement, text in zip(init.body, init.body[1:], strict=False):
        told = isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
        if told and isinstance(statement, (ast.Assign, ast.AnnAssign)):
            target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
            if isinstance(target, ast.Attribute) and not target.attr.startswith("_"):
                lines.append(item(target.attr, text.value.value))
    return lines


def members(module, node, seen, inherited=False):
    """Lines that tell of a class's fields, properties and methods; those of bases that aren't public, too."""
    lines = []
    whole = "dataclass" in decorators(node)
    enum = is_enum(module, node)
    for at, one in enumerate(node.body):
        behind = node.body[at + 1] if at + 1 < len(node.body) else None
        told = behind.value.value if isinstance(behind, ast.Expr) and isinstance(behind.value, ast.Constant) else ""
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name) and (whole or told):
            field = one.target.id
            if field not in seen and not field.startswith("_"):
                seen.add(field)
                lines.append(item(f"{field}: {ast.unparse(one.annotation)}", told))
        if enum and isinstance(one, ast.Assign) and isinstance(one.targets[0], ast.Name):
            seen.add(one.targets[0].id)
            value = ast.unparse(one.value).replace("'", '"')
            lines.append(item(f"{one.targets[0].id} = {value}", ""))
        if not isinstance(one, ast.FunctionDef) or is_overload(one) or one.name in seen:
            continue
        if one.name == "__init__" and not inherited:
            lines += attributes(one)
        if one.name.startswith("_"):
            continue
        seen.add(one.name)
        kinds = decorators(one)
        text = doc(one)
        if not text and inherited is False:
            text = next(
                (
                    doc(theirs)
                    for _, base in bases(module, node)
                    for theirs in base.body
                    if isinstance(theirs, ast.FunctionDef) and theirs.name == one.name and not is_overload(theirs)
                ),
                "",
            )
        if "property" in kinds:
            kind = f": {ast.unparse(one.returns)}" if one.returns is not None and ast.unparse(one.returns) != "Any" else ""
            lines.append(item(one.name + kind, text))
        elif kinds <= {"classmethod", "staticmethod", "untraced", "contextmanager"}:
            lines.append(item(signature_line(one, "staticmethod" not in kinds), text))
    return lines


def signature_line(node, method):
    return " ".join(" ".join(signature(node.name, arguments(node, method), node.returns)).split()).replace("( ", "(").replace(" )", ")")


def item(head, text):
    """A member in one line of a list, with the paragraphs of its docstring behind it."""
    paragraphs = [" ".join(one.split()) for one in text.strip().split("\n\n") if one.strip()]
    made = f"- `{head}`" + (f": {paragraphs[0]}" if paragraphs else "")
    return "\n\n".join([made, *(textwrap.indent(one, "  ") for one in paragraphs[1:])])


def entry(module, name, prefix):
    """What the page says of a name."""
    node, behind = definition(module, name)
    title = f"### {prefix}{name}\n"
    if isinstance(node, ast.FunctionDef):
        return "\n".join([title, "```python", *signature(prefix + name, arguments(node, False), node.returns), "```", "", doc(node), ""])
    if not isinstance(node, ast.ClassDef):
        return "\n".join([title, behind or f"`{ast.unparse(node)}`", ""])
    init = constructor(module, node)
    body, heads = [], ""
    if init is not None and name not in GIVEN and not any(isinstance(one, ast.Raise) for one in init.body[:1]):
        heads = "\n".join(["```python", *signature(prefix + name, arguments(init, True), None), "```", ""])
    seen = {"extra_repr"}
    if name in WITHOUT_MEMBERS:
        return "\n".join([title, heads, doc(node), ""])
    body += members(module, node, seen)
    for where, base in bases(module, node):
        if not (where == "ops" and name in ("Graph", "TaskGraph")) and base.name not in ("Graph", "Lazy"):
            body += members(where, base, seen, inherited=True)
    return "\n".join([title, *([heads] if heads else []), doc(node), *(["", *body] if body else []), ""])


def main():
    names = public_names()
    parts = []
    for title, about, modules in SECTIONS:
        parts.append(f"## {title}\n")
        if about:
            parts.append(doc(parsed(file_of(about))) + "\n")
        for module in modules:
            module, _, single = module.partition(":")
            prefix = PREFIXES.get(module, "maco.")
            group = [single] if single else sorted(names.pop(module), key=lambda one: one if isinstance(one, str) else one[1])
            constants = []
            for one in group:
                where, name = one if isinstance(one, tuple) else (module, one)
                own = "" if single else "maco." if name.startswith("maco.") else prefix
                name = name.removeprefix("maco.")
                node, behind = definition(where, name)
                if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
                    parts.append(entry(where, name, own))
                else:
                    constants.append((own + name, behind))
            if constants:
                told = next((text for _, text in constants if text), CONSTANTS.get(module, ""))
                parts.append(f"### {', '.join(name for name, _ in constants)}\n\n{told}\n")
    if names:
        raise SystemExit(f"public names of modules without a heading: {names}")
    print("\n".join(parts).rstrip())


if __name__ == "__main__":
    main()
