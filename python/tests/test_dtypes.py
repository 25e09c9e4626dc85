"""Element types and their names elsewhere."""

import numpy as np
import pytest

import maco
from maco.dtypes import as_dtype

ALL = {"f32": 4, "f16": 2, "bf16": 2, "f8e4m3": 1, "f8e5m2": 1, "i32": 4, "u8": 1}


def test_names_and_sizes():
    assert {str(t): t.itemsize for t in maco.DType} == ALL
    assert [repr(t) for t in maco.DType][:2] == ["maco.f32", "maco.f16"]
    assert maco.bf16 is maco.DType.bf16 and maco.u8 is maco.DType.u8
    assert [t.name for t in maco.DType if not t.is_float] == ["i32", "u8"]
    for name in ALL:
        assert as_dtype(name) is getattr(maco, name)


@pytest.mark.parametrize(
    "theirs, own",
    [
        ("float32", "f32"),
        ("bfloat16", "bf16"),
        ("half", "f16"),
        ("torch.float8_e5m2", "f8e5m2"),
        ("BF16", "bf16"),
        (np.float32, "f32"),
        (np.dtype("int32"), "i32"),
        (np.uint8, "u8"),
        (np.dtype("<f2"), "f16"),
    ],
)
def test_what_others_call_them(theirs, own):
    assert str(as_dtype(theirs)) == own


@pytest.mark.parametrize(
    "theirs, near", [("bfloat", "'bf16'"), ("float64", "'f32'"), (np.int64, "'i32'"), (np.dtype(bool), "'u8'"), ("f33", "'f32'")]
)
def test_unknown_ones_have_a_suggestion(theirs, near):
    with pytest.raises(maco.Error, match=f"no dtype .*did you mean {near}.*it has f32, f16"):
        as_dtype(theirs)


def test_what_is_no_dtype():
    with pytest.raises(TypeError, match="a dtype is expected, not list"):
        as_dtype([1])
    with pytest.raises(maco.Error, match="no dtype 'qqqqq'; it has"):
        as_dtype("qqqqq")
    with pytest.raises(maco.Error, match="other order"):
        as_dtype(np.dtype(">f4"))


def test_numpy():
    for t in maco.DType:
        assert t.numpy().itemsize == t.itemsize
        assert t.numpy() in (np.dtype("uint8"), np.dtype("uint16")) or as_dtype(t.numpy()) is t


def test_ml_dtypes():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
        t = as_dtype(getattr(ml_dtypes, name))
        assert t is as_dtype(name)
        assert as_dtype(np.dtype(getattr(ml_dtypes, name))) is t
        assert t.numpy() == np.dtype(getattr(ml_dtypes, name))


def test_torch():
    torch = pytest.importorskip("torch")
    for t in maco.DType:
        assert as_dtype(t.torch()) is t
    with pytest.raises(maco.Error, match="no dtype 'torch.int64'; did you mean 'i32'"):
        as_dtype(torch.int64)
    with pytest.raises(maco.Error, match="no dtype 'torch.complex64'"):
        as_dtype(torch.complex64)
