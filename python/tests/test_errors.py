"""Exceptions, what is read from the library's messages, and pickling."""

import pickle

import pytest

import maco
from maco.errors import from_library

WAITED = (
    "rank 1, SM 3: task 'y' (allreduce) tile 2 waited 30 s without progress for rank 0's event 'y.arrived' (peer event 4): "
    "expected 2, seen 1"
)


def test_what_stopped():
    error = from_library(4, WAITED, (), (1, "task 'y' (allreduce) tile 3", "event 'e'", 4, 2))
    assert type(error) is maco.LaunchError
    assert error.code is maco.ErrorCode.RUN_FAILED
    assert (error.rank, error.task, error.event, error.expected, error.seen) == (1, "y", "event 'e'", 4, 2)
    assert str(error) == WAITED
    index = from_library(4, "rank 1: op 'e': index 99 is outside [0, 8)", (), (1, "'e'", "", 8, 99))
    assert (index.rank, index.task, index.event, index.expected, index.seen) == (1, "e", None, 8, 99)
    memory = from_library(4, "no memory")
    assert (memory.rank, memory.task, memory.event, memory.expected, memory.seen) == (None,) * 5


def test_notes_belong_to_what_is_before_them():
    row = [
        maco.Diagnostic(*one)
        for one in (("error", "<g>", 4, 7, "a"), ("note", "<g>", 3, 9, "b"), ("note", "<g>", 2, 1, "c"), ("warning", "/x.cu", 7, 1, "odd"))
    ]
    first, second = from_library(2, "text", row).diagnostics
    assert [n.text for n in first.notes] == ["b", "c"]
    assert (second.severity, second.file, second.notes) == ("warning", "/x.cu", ())
    assert str(first) == "<g>:4:7: error: a\n<g>:3:9: note: b\n<g>:2:1: note: c"


@pytest.mark.parametrize(
    "code, message, kind",
    [
        (1, "a size", maco.Error),
        (2, "<g>:1:1: error: x", maco.GraphError),
        (3, "no GPU", maco.Unavailable),
        (4, "no memory", maco.LaunchError),
        (5, "a fault", maco.Error),
        (77, "new", maco.Error),
        (3, "the ranks were told different things: the kernel is 1 on rank 0, 2 on rank 1", maco.MismatchError),
    ],
)
def test_kinds(code, message, kind):
    error = from_library(code, message)
    assert type(error) is kind
    assert error.code == (code if code < 6 else maco.ErrorCode.INTERNAL)
    assert isinstance(error, maco.Error)


@pytest.mark.parametrize(
    "error",
    [
        maco.Error("a"),
        maco.Unavailable("b"),
        maco.MismatchError("c"),
        from_library(4, WAITED),
        from_library(2, "<g>:4:7: error: x\n<g>:1:1: note: y"),
        maco.GraphError("d", diagnostics=[maco.Diagnostic("error", "f.py", 3, 0, "t", (maco.Diagnostic("note", "f.py", 2, 0, "n"),))]),
    ],
)
def test_errors_can_be_pickled(error):
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert again.__dict__ == error.__dict__
    assert again.args == error.args
