"""What slow tools said, kept for all checkouts of this machine by a hash of everything that they read: $MACO_TEST_CACHE, else
~/.cache/maco-tests; empty: nowhere. Judgements aren't kept: the tests make them of what the tools said, every time."""

import gzip
import hashlib
import json
import os
import tempfile
import time

DAYS = 30  # what nobody has asked for since is removed


def folder():
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.environ.get("MACO_TEST_CACHE", os.path.join(home, "maco-tests"))


def identity(program):
    """A program's path, size and time: another one says other things."""
    path = os.path.realpath(program)
    said = os.stat(path)
    return f"{path} {said.st_size} {said.st_mtime_ns}"


def installed():
    """The machine's packages, whose headers a compiler reads: any that is installed makes another key."""
    try:
        return str(os.stat("/var/lib/dpkg/status").st_mtime_ns)
    except OSError:
        return ""


def remove_old(place):
    for name in os.listdir(place):
        path = os.path.join(place, name)
        try:
            if os.stat(path).st_mtime < time.time() - DAYS * 86400:
                os.remove(path)
        except OSError:
            pass  # another run removed it


def kept(inputs, make, good=lambda value: True):
    """`make()`, which JSON can hold, or what it gave when all `inputs`, texts, were the same. What isn't `good` isn't kept."""
    place = folder()
    if not place:
        return make()
    made = hashlib.sha256()
    for text in inputs:
        data = text.encode()
        made.update(f"{len(data)} ".encode() + data)
    path = os.path.join(place, made.hexdigest() + ".json.gz")
    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            value = json.load(file)
        os.utime(path)
        return value
    except (OSError, EOFError, ValueError):
        pass  # none, or a damaged one
    value = make()
    if not good(value):
        return value
    os.makedirs(place, exist_ok=True)
    remove_old(place)
    with tempfile.NamedTemporaryFile(dir=place, delete=False) as file:
        file.write(gzip.compress(json.dumps(value).encode()))
    os.replace(file.name, path)
    return value
