"""Where tensors of NumPy, torch and others lie, and what is said of those that don't fit."""

import ctypes

import numpy as np
import pytest

import maco
from maco.tensors import check, describe


def test_numpy():
    a = np.zeros((3, 4), np.float32)
    m = describe(a)
    assert (m.address, m.dtype, m.shape, m.strides, m.bytes, m.device, m.index) == (a.ctypes.data, maco.f32, (3, 4), (4, 1), 48, "cpu", 0)
    assert m.contiguous and m.writable and m.place == "the CPU"
    t = describe(a.T)
    assert t.shape == (4, 3) and t.strides == (1, 4) and not t.contiguous
    assert describe(a[:, ::2]).strides == (4, 2) and not describe(a[:, ::2]).contiguous
    assert describe(a[:1].T).contiguous and describe(a[:, :1][:1]).contiguous and not describe(a[:, :1]).contiguous
    a.flags.writeable = False
    assert not describe(a).writable


def test_bits_of_what_numpy_has_not():
    a = np.zeros((2, 8), np.uint16)
    assert describe(a, dtype="bf16").dtype is maco.bf16
    assert describe(a, dtype=maco.f16).dtype is maco.f16
    assert describe(np.zeros(3, np.uint8), dtype="f8e4m3").dtype is maco.f8e4m3
    with pytest.raises(maco.Error, match="'w': MACO has no dtype 'uint16'"):
        describe(a, "w")
    with pytest.raises(maco.Error, match="with dtype= its elements are taken for the bits of bf16 or f16"):
        describe(a, "w")
    with pytest.raises(
        maco.Error, match="'w' is f8e4m3, but the tensor is u8; with dtype='f8e4m3' its elements are taken for the bits of it"
    ):
        check(describe(np.zeros(3, np.uint8)), "w", dtype=maco.f8e4m3)
    with pytest.raises(maco.Error, match="'w' is taken for bf16, of which elements have 2 bytes, but holds uint8"):
        describe(np.zeros(3, np.uint8), "w", "bf16")
    with pytest.raises(maco.Error, match="holds float16"):
        describe(np.zeros(3, np.float16), "w", "bf16")
    assert describe(np.zeros(3, np.float16), "w", "f16").dtype is maco.f16


def test_ml_dtypes():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    assert describe(np.zeros(3, ml_dtypes.bfloat16)).dtype is maco.bf16
    assert describe(np.zeros(3, ml_dtypes.float8_e5m2)).dtype is maco.f8e5m2


@pytest.mark.parametrize("shape", [(0,), (0, 4), (3, 0), (2, 0, 5)])
def test_zero_sizes(shape):
    m = describe(np.zeros(shape, np.float32))
    assert m.elements == 0 and m.bytes == 0 and m.contiguous
    check(m, "x", dtype=maco.f32, shape=shape, device="cpu")
    check(describe(np.zeros(shape, np.float32).T), "x")
    torch = pytest.importorskip("torch")
    t = describe(torch.zeros(shape))
    assert t.bytes == 0 and t.contiguous
    check(t, "x", shape=shape)


def test_torch():
    torch = pytest.importorskip("torch")
    a = torch.zeros(3, 4, dtype=torch.bfloat16, requires_grad=True)
    m = describe(a)
    assert (m.address, m.dtype, m.shape, m.strides, m.bytes) == (a.data_ptr(), maco.bf16, (3, 4), (4, 1), 24)
    assert not describe(a.t()).contiguous
    assert describe(a[1:]).address == a.data_ptr() + 8
    assert describe(torch.zeros(2, dtype=torch.float8_e4m3fn)).dtype is maco.f8e4m3
    with pytest.raises(maco.Error, match="'x': MACO has no dtype 'torch.int64'; did you mean 'i32'"):
        describe(torch.zeros(2, dtype=torch.int64), "x")
    with pytest.raises(maco.Error, match="'x' is on the device 'meta'"):
        describe(torch.zeros(2, device="meta"), "x")
    with pytest.raises(maco.Error, match="'x' is sparse_coo"):
        describe(torch.zeros(2, 2).to_sparse(), "x")


class OnlyDLPack:
    """What has nothing but DLPack's two methods."""

    def __init__(self, inner, old=False):
        self.inner, self.old = inner, old

    def __dlpack_device__(self):
        return self.inner.__dlpack_device__()

    def __dlpack__(self, **how):
        if self.old and how:
            raise TypeError("no such keyword")
        return self.inner.__dlpack__(**how)


@pytest.mark.parametrize("old", [False, True])
def test_dlpack(old):
    a = np.arange(12, dtype=np.int32).reshape(3, 4)
    m = describe(OnlyDLPack(a, old))
    assert (m.address, m.dtype, m.shape, m.strides, m.device) == (a.ctypes.data, maco.i32, (3, 4), (4, 1), "cpu")
    assert not describe(OnlyDLPack(a.T, old)).contiguous
    torch = pytest.importorskip("torch")
    t = torch.zeros(3, 4, dtype=torch.bfloat16)[1:]
    m = describe(OnlyDLPack(t, old))
    assert (m.address, m.dtype, m.shape) == (t.data_ptr(), maco.bf16, (2, 4))
    with pytest.raises(maco.Error, match="'x': MACO has no dtype 'int64'"):
        describe(OnlyDLPack(np.zeros(2, np.int64), old), "x")


def test_dlpack_keeps_memory_alive_and_gives_it_back():
    import gc
    import weakref

    torch = pytest.importorskip("torch")
    t = torch.arange(100_000, dtype=torch.int32)
    address, gone = t.data_ptr(), weakref.ref(t.untyped_storage())
    m = describe(OnlyDLPack(t))
    inner = weakref.ref(m.keep[0])
    del t
    gc.collect()
    assert ctypes.c_int32.from_address(address + 4 * 99_999).value == 99_999
    del m
    gc.collect()
    assert inner() is None
    del gone


def test_dlpack_with_an_offset():
    from maco import tensors

    a = np.arange(8, dtype=np.float32)
    shape = (ctypes.c_int64 * 1)(4)
    raw = tensors._DLTensor(data=a.ctypes.data, device_type=1, ndim=1, code=2, bits=32, lanes=1, shape=shape, byte_offset=16)
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]

    class Offset:
        def __dlpack_device__(self):
            return (self.kind, 0)

        def __dlpack__(self):
            return new(ctypes.addressof(raw), b"dltensor", None)

    Offset.kind = 1
    m = describe(Offset())
    assert (m.address, m.shape, m.strides, m.bytes) == (a.ctypes.data + 16, (4,), (1,), 16)
    Offset.kind = 2
    assert describe(Offset()).place == "GPU 0"
    Offset.kind = 10
    with pytest.raises(maco.Error, match="'x' is on a device of DLPack's kind 10"):
        describe(Offset(), "x")
    Offset.kind, raw.bits, raw.lanes = 1, 32, 4
    with pytest.raises(maco.Error, match="'x': MACO has no dtype 'float32x4'"):
        describe(Offset(), "x")


def test_dlpack_of_arrays_that_are_read_only():
    a = np.zeros(4, np.float32)
    a.flags.writeable = False
    assert describe(OnlyDLPack(a)).writable is False


class OnlyCuda:
    def __init__(self, **fields):
        self.__cuda_array_interface__ = {"shape": (2, 3), "typestr": "<f4", "data": (4096, False), "version": 3, **fields}


def test_cuda_array_interface():
    m = describe(OnlyCuda())
    assert (m.address, m.dtype, m.shape, m.strides, m.device, m.index) == (4096, maco.f32, (2, 3), (3, 1), "cuda", 0)
    assert not describe(OnlyCuda(strides=(4, 8))).contiguous
    assert not describe(OnlyCuda(data=(4096, True))).writable
    assert describe(OnlyCuda(typestr="<u2"), "x", "bf16").dtype is maco.bf16
    with pytest.raises(maco.Error, match="no dtype '<f8'"):
        describe(OnlyCuda(typestr="<f8"))
    with pytest.raises(maco.Error, match="has a mask"):
        describe(OnlyCuda(mask=object()))


def test_what_is_no_tensor():
    for wrong in ([1.0], 3, "x", None, object()):
        with pytest.raises(TypeError, match="'w': a tensor is expected .* not"):
            describe(wrong, "w")


def test_checks_name_the_tensor_and_both_values():
    a = np.zeros((3, 4), np.float32)
    m = describe(a, "x")
    for how, words in [
        ({"dtype": maco.bf16}, "'x' is bf16, but the tensor is f32"),
        ({"shape": (4, 3)}, "'x' has the shape [4,3], but the tensor has [3,4]"),
        ({"shape": (2, 4), "rows_up_to": True}, "'x' has the shape up to [2,4], but the tensor has [3,4]"),
        ({"shape": (12,)}, "'x' has the shape [12], but the tensor has [3,4]"),
        ({"device": "cuda"}, "'x' must be on a GPU, but the tensor is on the CPU"),
    ]:
        with pytest.raises(maco.Error) as raised:
            check(m, "x", **how)
        assert str(raised.value) == words
    check(m, "x", shape=(5, 4), rows_up_to=True)
    with pytest.raises(maco.Error, match=r"'x' must be contiguous, with strides \[3,1\], but the tensor has \[1,4\]"):
        check(describe(a.T), "x")
    odd = np.zeros(64, np.uint8)
    odd = odd[(-odd.ctypes.data) % 16 + 4 :][:16].view(np.float32)
    with pytest.raises(maco.Error, match="'x' must be aligned to 16 bytes, but the tensor's address, 0x.*4, is 4 beyond a multiple"):
        check(describe(odd), "x")
    check(describe(odd), "x", aligned=False)
    with pytest.raises(maco.Error, match="'x' must be on GPU 1, but the tensor is on GPU 0"):
        check(describe(OnlyCuda()), "x", index=1)
    a.flags.writeable = False
    with pytest.raises(maco.Error, match="'x' is written by the kernel, but the tensor is read-only"):
        check(describe(a), "x", writable=True)
