"""What the checks of sources share: the files that git knows, the text of C++, the tools of tools/requirements.txt."""

import os
import re
import shutil
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

# Comments, string literals, and characters that aren't the apostrophes of a number.
TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])+\'', re.S)


def tracked():
    """Paths from the root of all files that git knows; without git, of all that no build made."""
    git = subprocess.run(["git", "-C", ROOT, "ls-files", "-z"], capture_output=True, check=False)
    if git.returncode == 0 and git.stdout:
        return sorted(p for p in git.stdout.decode().split("\0") if p and os.path.isfile(os.path.join(ROOT, p)))
    paths = []
    for folder, folders, files in os.walk(ROOT):
        folders[:] = [f for f in folders if not f.startswith((".", "build", "__pycache__"))]
        paths += [os.path.relpath(os.path.join(folder, f), ROOT) for f in files]
    return sorted(paths)


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


def find_tool(name):
    """(path, "") of the tool in the version that tools/requirements.txt pins, or ("", why there is none)."""
    wanted = re.search(rf"^{name}==(\S+)", read("tools/requirements.txt"), re.M)[1]
    found = []
    for path in (os.path.join(ROOT, ".venv", "bin", name), shutil.which(name)):
        if not path or not os.path.exists(path):
            continue
        said = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout
        version = re.search(r"version (\d+\.\d+\.\d+)", said)
        if version and version[1] == wanted:
            return path, ""
        found.append(f"{path} is {version[1] if version else 'broken'}")
    return "", f"no {name} {wanted}{' (' + ', '.join(found) + ')' if found else ''}; tools/setup.sh installs it into .venv"
