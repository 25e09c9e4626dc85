"""maco.LLM on the CPU target: tiny Llamas, made by transformers, whose ids are the reference."""

import json
import os
import pickle
import queue
import shutil
import signal
import subprocess
import sys
import threading
import time
import warnings
import weakref

import pytest
import ranks

import maco
from conftest import child_environment
from maco import _native, roles

torch = pytest.importorskip("torch")
numpy = pytest.importorskip("numpy")
transformers = pytest.importorskip("transformers")

VOCABULARY, MAX_SEQ, CHUNK, NEW = 97, 100, 20, 24


def make(folder, seed=0, **more):
    """A model with odd sizes, norm weights that aren't 1, and no id that ends answers."""
    torch.manual_seed(seed)
    sizes = {
        "vocab_size": VOCABULARY,
        "hidden_size": 40,
        "intermediate_size": 56,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 12,
        "max_position_embeddings": 160,
        "rms_norm_eps": 1e-5,
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
    }
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**{**sizes, **more})).float().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.uniform_(0.5, 1.5) if parameter.dim() == 1 else parameter.normal_(0, 0.2)
    model.save_pretrained(folder)
    return model


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("llama")
    make(path)
    return path


@pytest.fixture(scope="module")
def reference(folder):
    return transformers.LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)


def load(folder, **more):
    return maco.LLM(folder, **{"device": "cpu", "max_seq": MAX_SEQ, "chunk": CHUNK, **more})


@pytest.fixture(scope="module", params=[1, 2])
def llm(request, folder):
    with load(folder, tp=request.param) as made:
        yield made


@pytest.fixture(scope="module")
def one(folder):
    with load(folder) as made:
        yield made


def prompt(length, seed=0):
    return torch.randint(0, VOCABULARY, (length,), generator=torch.Generator().manual_seed(seed)).tolist()


def expected(model, ids, new=NEW, **how):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.generate(torch.tensor([ids]), max_new_tokens=new, do_sample=False, **how)[0, len(ids) :].tolist()


def changed(folder, path, config=None, generation=None):
    """The checkpoint with other JSON files."""
    path.mkdir()
    for one in folder.iterdir():
        if one.suffix == ".safetensors":
            os.symlink(one, path / one.name)
        elif one.suffix == ".json":
            shutil.copy(one, path)
    for name, more in (("config.json", config), ("generation_config.json", generation)):
        file = path / name
        told = json.loads(file.read_text()) if file.is_file() else {}
        file.write_text(json.dumps({**told, **(more or {})}))
    return path


# ---- ids


@pytest.mark.parametrize("length", [1, 2, 7, CHUNK, CHUNK + 1, 23, 61])
def test_greedy_ids_are_those_of_transformers(llm, reference, length):
    ids = prompt(length, length)
    answer = llm.generate(ids, max_new_tokens=NEW)
    assert answer.token_ids == expected(reference, ids)
    assert answer.finish_reason == "length" and answer.text is None


def test_answers_end_where_the_caches_do(llm, reference):
    """Prompts whose last rows don't fit a chunk; and no more ids than rows."""
    for length in (CHUNK * 4 + 1, CHUNK * 4 + 5, MAX_SEQ - 1):
        ids = prompt(length, length)
        answer = llm.generate(ids, max_new_tokens=50)
        assert answer.token_ids == expected(reference, ids, min(50, MAX_SEQ - length))
        assert answer.finish_reason == "length"


def test_logits_of_every_position(llm, reference):
    for length in (1, 8, 9, 37, MAX_SEQ):
        ids = prompt(length, 7)
        found = llm.logits(ids)
        assert found.dtype == numpy.float32 and found.shape == (length, VOCABULARY)
        with torch.no_grad():
            torch.testing.assert_close(torch.from_numpy(found), reference(torch.tensor([ids])).logits[0], rtol=1e-4, atol=1e-4)


def test_one_prompt_has_an_answer_and_a_list_a_list(one, reference):
    ids, other = prompt(5), prompt(9, 1)
    wanted = [expected(reference, each, 6) for each in (ids, other)]
    for given in (ids, tuple(ids), numpy.array(ids), torch.tensor(ids), [numpy.int64(each) for each in ids]):
        assert one.generate(given, max_new_tokens=6).token_ids == wanted[0]
    for given in ([ids, other], (tuple(ids), other), [numpy.array(ids), torch.tensor(other)]):
        assert [answer.token_ids for answer in one.generate(given, max_new_tokens=6)] == wanted
    assert [answer.token_ids for answer in one.generate(torch.tensor([ids, ids]), 6)] == [wanted[0]] * 2
    assert [answer.token_ids for answer in one.generate([ids], max_new_tokens=6)] == wanted[:1]
    empty = one.generate(ids, max_new_tokens=0)
    assert empty.token_ids == [] and empty.finish_reason == "length"


def test_launches_that_run_ahead_change_nothing(one, reference, monkeypatch):
    """As on GPUs: what was launched behind the end is thrown away."""
    ids, wanted = prompt(9, 3), expected(reference, prompt(9, 3))
    monkeypatch.setattr(one._engine, "_ahead", 4)
    assert one.generate(ids, max_new_tokens=NEW).token_ids == wanted
    monkeypatch.setattr(one, "_settings", maco.models.checkpoint.Settings(frozenset([wanted[10]]), 1.0, None))
    end = wanted.index(wanted[10]) + 1
    for _ in range(2):
        answer = one.generate(ids, max_new_tokens=NEW)
        assert answer.token_ids == wanted[:end] and answer.finish_reason == "stop"
    launched = one._engine._launched
    assert end < launched <= end + 4
    stream = one.generate(ids, max_new_tokens=NEW, stream=True)
    assert next(stream).token_ids == wanted[:1]
    stream.close()
    assert one.generate(ids, max_new_tokens=3).token_ids == wanted[:3]


class Later:
    """Launches of an engine that return at once, as on GPUs: a thread does them in their order."""

    def __init__(self, engine, monkeypatch):
        self.engine, self.pause = engine, 0.002
        self.jobs = queue.Queue()
        threading.Thread(target=self.work, daemon=True).start()
        for name in ("_launch", "_wait", "_seen", "_read_logits", "settle", "give_up"):
            setattr(self, f"own_{name}", getattr(engine, name))
            monkeypatch.setattr(engine, name, getattr(self, name))
        monkeypatch.setattr(engine, "_ahead", 4)

    def work(self):
        while (job := self.jobs.get()) is not None:
            time.sleep(self.pause)
            try:
                job()
            finally:
                self.jobs.task_done()
        self.jobs.task_done()

    def _launch(self, kind, launches, places, *numbers):
        self.engine._logits_of = kind
        self.jobs.put(lambda: launches(places, *numbers))

    def _wait(self, kind):
        self.jobs.join()

    def _seen(self, place):
        end = time.monotonic() + 20
        while self.engine._ring.at[4 * place] < 0:
            assert time.monotonic() < end
            time.sleep(0.0001)
        return self.own__seen(place)

    def _read_logits(self, rows):
        self._wait(self.engine._logits_of)
        return self.own__read_logits(rows)

    def settle(self):
        self.jobs.join()
        self.own_settle()

    def give_up(self):
        self.jobs.join()
        return self.own_give_up()


@pytest.mark.parametrize("tp", [1, 2])
def test_launches_that_return_at_once(folder, reference, monkeypatch, tp):
    """The order of what the host and a stream do, as on GPUs."""
    with load(folder, tp=tp) as made:
        later = Later(made._engine, monkeypatch)
        for length in (1, 7, CHUNK + 1, 61, CHUNK * 4 + 5, MAX_SEQ - 1):
            ids = prompt(length, length)
            wanted = expected(reference, ids, min(NEW, MAX_SEQ - length))
            assert made.generate(ids, NEW).token_ids == wanted
            assert made.generate([ids, ids], NEW, temperature=1, top_k=1)[1].token_ids == wanted
            assert [one.token_ids[0] for one in made.generate(ids, NEW, stream=True)] == wanted
        for _ in made.generate(prompt(30), NEW, stream=True):
            break
        assert made.generate(ids, 1).token_ids == wanted
        with torch.no_grad():
            found = torch.from_numpy(made.logits(prompt(MAX_SEQ)))
            torch.testing.assert_close(found, reference(torch.tensor([prompt(MAX_SEQ)])).logits[0], rtol=1e-4, atol=1e-4)
        later.jobs.put(None)


@pytest.mark.parametrize("where", ["config", "generation"])
@pytest.mark.parametrize("many", [False, True])
def test_ids_that_end_answers(folder, tmp_path, reference, where, many):
    ids = prompt(11, 5)
    wanted = expected(reference, ids)
    end = wanted[8]
    path = changed(folder, tmp_path / "m", **{where: {"eos_token_id": [96, end] if many else end}})
    theirs = transformers.LlamaForCausalLM.from_pretrained(path, dtype=torch.float32)
    with load(path) as made:
        answer = made.generate(ids, max_new_tokens=NEW)
        assert end in made.eos
    assert answer.token_ids == wanted[: wanted.index(end) + 1] and answer.finish_reason == "stop"
    if where == "generation":  # transformers takes those of config.json only where there is no generation_config.json
        assert answer.token_ids == expected(theirs, ids, pad_token_id=0)


def test_the_ids_of_both_files_end_answers(folder, tmp_path, reference):
    wanted = expected(reference, prompt(11, 5))
    path = changed(folder, tmp_path / "m", {"eos_token_id": 96}, {"eos_token_id": [wanted[3]]})
    with load(path) as made:
        assert made.eos == {96, wanted[3]}
        assert made.generate(prompt(11, 5), NEW).token_ids == wanted[: wanted.index(wanted[3]) + 1]


def test_a_repetition_penalty(one, folder, tmp_path, reference):
    ids = prompt(13, 2)
    wanted = expected(reference, ids, repetition_penalty=1.8)
    assert wanted != expected(reference, ids)
    assert one.generate(ids, NEW, repetition_penalty=1.8).token_ids == wanted
    path = changed(folder, tmp_path / "m", generation={"repetition_penalty": 1.8})
    with load(path) as made:  # that of generation_config.json, greedy too
        assert made.generate(ids, NEW).token_ids == wanted
        assert made.generate(ids, NEW, repetition_penalty=1).token_ids == expected(reference, ids)


def test_samples(llm, reference):
    ids = prompt(6, 4)
    how = {"max_new_tokens": 12, "temperature": 1.5, "top_k": 50, "top_p": 0.95, "min_p": 0.01}
    first = llm.generate(ids, seed=3, **how).token_ids
    assert llm.generate(ids, seed=3, **how).token_ids == first
    assert llm.generate([ids, ids], seed=3, **how)[0].token_ids == first
    assert llm.generate([ids, ids], seed=3, **how)[1].token_ids != first
    assert len({tuple(llm.generate(ids, **how).token_ids) for _ in range(4)}) > 1
    assert llm.generate(ids, NEW, temperature=0.7, top_k=1).token_ids == expected(reference, ids)
    assert [piece.token_ids[0] for piece in llm.generate(ids, seed=3, stream=True, **how)] == first


def test_settings_that_are_not_followed_are_told(folder, tmp_path):
    path = changed(folder, tmp_path / "m", generation={"no_repeat_ngram_size": 3, "top_k": 50, "num_beams": 1})
    with pytest.warns(UserWarning, match="generation_config.json sets no_repeat_ngram_size, which"):
        load(path).close()
    with pytest.warns(UserWarning, match="max_seq is 170, and the model is made for 160 positions"):
        load(folder, max_seq=170).close()


# ---- streams


def test_a_stream_of_ids(llm, reference):
    ids = prompt(23, 6)
    pieces = list(llm.generate(ids, max_new_tokens=NEW, stream=True))
    assert [piece.token_ids for piece in pieces] == [[one] for one in expected(reference, ids)]
    assert [piece.finish_reason for piece in pieces] == [None] * (NEW - 1) + ["length"]
    assert all(isinstance(piece, str) and piece == piece.text == "" for piece in pieces)


def test_a_stream_that_is_left(one, reference):
    ids, wanted = prompt(4, 8), expected(reference, prompt(4, 8), 5)
    for piece in one.generate(ids, stream=True):
        assert piece.token_ids == wanted[:1]
        break
    assert one.generate(ids, 5).token_ids == wanted
    stream = one.generate(ids, stream=True)
    next(stream)
    with pytest.raises(maco.Error, match="still being streamed"):
        one.generate(ids, 5)
    with pytest.raises(maco.Error, match="still being streamed"):
        one.logits(ids)
    stream.close()
    assert one.generate(ids, 5).token_ids == wanted
    with pytest.raises(maco.Error, match="stream=True gives the answer to one prompt"):
        one.generate([ids, ids], stream=True)


def test_threads_wait_for_each_other(one, reference):
    prompts = [prompt(5 + i, 20 + i) for i in range(4)]
    found = {}

    def work(i):
        found[i] = one.generate(prompts[i], 10).token_ids

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == {i: expected(reference, prompts[i], 10) for i in range(4)}


# ---- what is refused


@pytest.mark.parametrize(
    ("arguments", "kind", "text"),
    [
        (([],), maco.Error, "a prompt is empty"),
        (([[1], []],), maco.Error, "a prompt is empty"),
        (([1, 97],), maco.Error, "a prompt has id 97, but the model's go from 0 to 96"),
        (([1, -1],), maco.Error, "a prompt has id -1"),
        (([1] * MAX_SEQ,), maco.Error, "a prompt has 100 ids, and this model takes 99 at most"),
        (([1.5],), TypeError, "an id of a prompt is an integer"),
        (([True],), TypeError, "an id of a prompt"),
        ((5,), TypeError, "a prompt is a str or a list of ids"),
        ((b"text",), TypeError, "not a bytes"),
        (("text",), maco.Error, "has no tokenizer.json"),
        (([1], -1), maco.Error, "max_new_tokens is at least 0"),
        (([1], 1.5), TypeError, "max_new_tokens"),
        (([1], 8, -0.5), maco.Error, "temperature"),
        (([1], 8, 1, -1), maco.Error, "top_k"),
        (([1], 8, 1, 0, 1, 0, None, -1), maco.Error, "seed is at least 0"),
        (([1], 8, 1, 0, 1, 0, None, None, 5), TypeError, "stop"),
        (([1], 8, 1, 0, 1, 0, None, None, "x"), maco.Error, "has no tokenizer.json"),
    ],
)
def test_wrong_arguments_are_refused_by_name(one, arguments, kind, text):
    with pytest.raises(kind, match=text):
        one.generate(*arguments)
    with pytest.raises(kind, match=text):
        one.generate(*arguments, stream=True) if len(arguments) < 10 else None


def test_unknown_arguments_are_refused(one):
    with pytest.raises(TypeError, match="max_tokens"):
        one.generate([1], max_tokens=5)
    with pytest.raises(TypeError, match="'role'"):
        one.chat("hello")


def test_what_cannot_be_loaded(folder, tmp_path, monkeypatch):
    with pytest.raises(maco.Error, match="there is no folder 'meta/llama'"):
        maco.LLM("meta/llama", device="cpu")
    with pytest.raises(maco.Error, match="has no config.json"):
        maco.LLM(tmp_path, device="cpu")
    with pytest.raises(TypeError, match="a checkpoint is a folder's path"):
        maco.LLM(5)
    with pytest.raises(maco.Error, match="did you mean 'cuda'"):
        maco.LLM(folder, device="cude")
    with pytest.raises(maco.Error, match="not in i32"):
        maco.LLM(folder, device="cpu", dtype="i32")
    with pytest.raises(maco.Error, match="tp is at least 1"):
        maco.LLM(folder, tp=0, device="cpu")
    path = changed(folder, tmp_path / "m", generation={"eos_token_id": "end"})
    with pytest.raises(maco.Error, match="eos_token_id"):
        load(path)
    (path / "generation_config.json").write_text("[")
    with pytest.raises(maco.Error, match="generation_config.json"):
        load(path)


def test_a_machine_without_a_gpu_says_so(folder, monkeypatch):
    if roles._gpu_sms(0):
        pytest.skip("there is one")
    monkeypatch.delenv("MACO_DEVICE", raising=False)
    with pytest.raises(maco.Unavailable, match='device="cpu"'):
        maco.LLM(folder)
    with pytest.raises(maco.Unavailable, match="GPU"):
        maco.LLM(folder, device="cuda")
    monkeypatch.setenv("MACO_DEVICE", "cpu")
    with maco.LLM(folder, max_seq=MAX_SEQ, chunk=CHUNK) as made:
        assert made.device == "cpu" and len(made.generate([1, 2], 3).token_ids) == 3


# ---- its life


def test_what_it_is(one):
    assert (one.device, one.dtype, one.tp, one.max_seq, one.vocabulary) == ("cpu", "f32", 1, MAX_SEQ, VOCABULARY)
    assert one.eos == frozenset() and not one.closed
    assert "LlamaForCausalLM in f32 on 1 rank (cpu)" in repr(one)
    assert "2 ids, finish_reason 'length'" in repr(one.generate([1], 2))
    with pytest.raises(TypeError, match="pickle"):
        pickle.dumps(one)


def test_close(folder):
    made = load(folder)
    stream = made.generate([1, 2, 3], 20, stream=True)
    next(stream)
    made.close()
    made.close()
    assert made.closed and "closed" in repr(made)
    with pytest.raises(maco.Error, match="closed"):
        list(stream)
    with pytest.raises(maco.Error, match="the LLM was closed"):
        made.generate([1])
    with pytest.raises(maco.Error, match="the LLM was closed"):
        made.logits([1])


def test_it_goes_with_the_last_reference(folder):
    made = load(folder)
    answer = made.generate([1, 2], 3)
    sessions = [weakref.ref(session) for session in made._engine._sessions.values()]
    gone = weakref.ref(made)
    del made
    assert gone() is None and all(session() is None for session in sessions)
    assert answer.text is None and len(answer.token_ids) == 3


@pytest.mark.parametrize("tp", [1, 2])
def test_ctrl_c_ends_an_answer_and_the_next_one_comes(folder, reference, tp):
    ids = prompt(9, 9)
    with load(folder, tp=tp) as made:
        for after in (0.0, 0.003, 0.02):
            timer = threading.Timer(after, os.kill, [os.getpid(), signal.SIGINT])
            with pytest.raises(KeyboardInterrupt):
                timer.start()
                while True:
                    made.generate(ids, 90)
            timer.join()
        step = made._engine.step

        def interrupted():
            step()
            signal.raise_signal(signal.SIGINT)

        made._engine.step = interrupted
        with pytest.raises(KeyboardInterrupt):
            made.generate(ids, 90)
        made._engine.step = step
        assert made.generate(ids, NEW).token_ids == expected(reference, ids)


def test_a_launch_that_fails_leaves_it_usable(one, reference):
    """An id out of range, which only a fault of ours would give, stops the launch by name."""
    ids = prompt(5, 1)
    put = one._engine._put
    one._engine._put = lambda slot, token: put(slot, 5000)
    with pytest.raises(maco.LaunchError, match="5000"):
        one.generate(ids, 5, temperature=1)
    one._engine._put = put
    assert one.generate(ids, NEW).token_ids == expected(reference, ids)


def test_element_types(folder, reference):
    ids = prompt(9, 9)
    for dtype in ("bf16", maco.f16, torch.float16):
        with load(folder, dtype=dtype) as made:
            assert made.dtype == ("bf16" if dtype == "bf16" else "f16")
            found = torch.from_numpy(made.logits(ids))
            with torch.no_grad():
                wanted = reference(torch.tensor([ids])).logits[0]
            assert (found - wanted).norm() < 0.05 * wanted.norm()
            assert made.generate(ids, 4, temperature=1, top_k=1).token_ids == made.generate(ids, 4).token_ids


def test_the_type_of_the_checkpoint(tmp_path):
    make(tmp_path).to(torch.bfloat16).save_pretrained(tmp_path)
    with load(tmp_path) as made:
        assert made.dtype == "bf16"


def test_4096_means_what_the_model_is_made_for(folder):
    with maco.LLM(folder, device="cpu", chunk=CHUNK) as made:
        assert made.max_seq == 160


# ---- the cache of kernels


def test_the_second_start_compiles_nothing(folder, tmp_path, monkeypatch, reference):
    monkeypatch.setenv("MACO_CACHE_DIR", str(tmp_path / "cache"))
    ids = prompt(7, 7)
    compiled = []
    compile = maco.Graph.compile
    monkeypatch.setattr(maco.Graph, "compile", lambda graph, **options: compiled.append(graph.name) or compile(graph, **options))
    with load(folder) as made:
        made.logits(ids)
    assert len(compiled) == 3
    with load(folder) as made:
        assert made.generate(ids, NEW).token_ids == expected(reference, ids)
        made.logits(ids)
    assert len(compiled) == 3
    entries = sorted((tmp_path / "cache").glob("*.kernel"))
    assert len(entries) == 3 and not list((tmp_path / "cache").glob("*.tmp"))
    entries[0].write_bytes(entries[0].read_bytes()[:-10])
    entries[1].write_bytes(b"")
    entries[2].unlink()
    with load(folder) as made:
        assert made.generate(ids, NEW).token_ids == expected(reference, ids)
        made.logits(ids)
    assert len(compiled) == 6
    with load(folder) as made:
        made.logits(ids)
    assert len(compiled) == 6


def test_without_a_cache(folder, tmp_path, monkeypatch):
    for value in ("", str(tmp_path / "file" / "below")):
        (tmp_path / "file").write_text("")
        monkeypatch.setenv("MACO_CACHE_DIR", value)
        assert maco.models.kernels._read(maco.models.kernels.cache_folder() / "x" if value else tmp_path / "x") is None
    monkeypatch.setenv("MACO_CACHE_DIR", "")
    assert maco.models.kernels.cache_folder() is None
    monkeypatch.delenv("MACO_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert str(maco.models.kernels.cache_folder()) == "/x/maco"


def test_of_many_kernels_the_newest_stay(tmp_path, monkeypatch):
    monkeypatch.setattr(maco.models.kernels, "MOST_ENTRIES", 3)
    for i in range(5):
        maco.models.kernels._write(tmp_path / f"{i}.kernel", f"source {i}")
        os.utime(tmp_path / f"{i}.kernel", (i, i))
    (tmp_path / "other.cubin").write_text("")
    maco.models.kernels._write(tmp_path / "5.kernel", "source 5")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["3.kernel", "4.kernel", "5.kernel", "other.cubin"]


# ---- words


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    """A checkpoint with a tokenizer and a chat template."""
    pytest.importorskip("tokenizers")
    pytest.importorskip("jinja2")
    from test_llm_text import PLAIN, byte_level

    path = byte_level(tmp_path_factory.mktemp("words"))
    make(path, vocab_size=400)
    (path / "chat_template.jinja").write_text(PLAIN)
    return path


@pytest.fixture(scope="module")
def talking(words):
    with load(words) as made:
        yield made


def test_texts(talking, words):
    theirs = transformers.PreTrainedTokenizerFast.from_pretrained(words)
    model = transformers.LlamaForCausalLM.from_pretrained(words, dtype=torch.float32)
    text = "The quick brown fox"
    ids = theirs(text)["input_ids"]
    assert talking.encode(text) == ids and talking.decode(ids) == text
    wanted = expected(model, ids)
    answer = talking.generate(text, NEW)
    assert answer.token_ids == wanted == talking.generate(ids, NEW).token_ids
    assert answer.text == theirs.decode(wanted, skip_special_tokens=True) == talking.generate(ids, NEW).text
    both = talking.generate([text, ids], NEW)
    assert [one.text for one in both] == [answer.text] * 2
    pieces = list(talking.generate(text, NEW, stream=True))
    assert "".join(pieces) == answer.text and sum((piece.token_ids for piece in pieces), []) == wanted
    assert pieces[-1].finish_reason == "length" and all(piece.finish_reason is None for piece in pieces[:-1])
    with pytest.raises(maco.Error, match="a prompt is empty"):
        talking.generate([], NEW)


def test_stop_strings(talking):
    text = "The quick brown fox"
    whole = talking.generate(text, NEW).text
    for begin, end in ((3, 5), (5, 9), (8, 9)):
        word = whole[begin:end]
        for stop in (word, ["\0never", word]):
            answer = talking.generate(text, NEW, stop=stop)
            assert answer.text == whole[: whole.find(word)] and answer.finish_reason == "stop"
            pieces = list(talking.generate(text, NEW, stop=stop, stream=True))
            assert "".join(pieces) == answer.text and pieces[-1].finish_reason == "stop"
            assert sum((piece.token_ids for piece in pieces), []) == answer.token_ids
    answer = talking.generate(text, NEW, stop="\0never")
    assert answer.text == whole and answer.finish_reason == "length"
    with pytest.raises(maco.Error, match="at least one character"):
        talking.generate(text, stop=[""])


def test_the_id_that_ends_an_answer_has_no_text(talking, monkeypatch):
    answer = talking.generate("The quick", NEW)
    end = answer.token_ids[6]
    monkeypatch.setattr(talking, "_settings", maco.models.checkpoint.Settings(frozenset([end]), 1.0, None))
    short = talking.generate("The quick", NEW)
    assert short.token_ids[-1] == end and short.text == talking.decode(short.token_ids[:-1])
    assert "".join(talking.generate("The quick", NEW, stream=True)) == short.text


def test_chats(talking, words):
    theirs = transformers.PreTrainedTokenizerFast.from_pretrained(words)
    chat = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "The quick?"}]
    ids = theirs.apply_chat_template(chat, add_generation_prompt=True, return_dict=False)
    wanted = talking.generate(ids, NEW)
    answer = talking.chat(chat, NEW)
    assert answer.token_ids == wanted.token_ids and answer.text == wanted.text
    assert "".join(talking.chat(chat, NEW, stream=True)) == wanted.text
    assert [one.token_ids for one in talking.chat([chat, chat[1:]], NEW)][0] == wanted.token_ids
    with pytest.raises(maco.Error, match="no role wizard"):
        talking.chat([{"role": "wizard", "content": "x"}])
    with pytest.raises(maco.Error, match="at least one message"):
        talking.chat([])


def test_without_a_template(one):
    with pytest.raises(maco.Error, match="has no tokenizer.json"):
        one.chat([{"role": "user", "content": "x"}])


# ---- the command line


def command(*arguments, timeout=120, text=None, **env):
    return subprocess.run(
        [sys.executable, "-m", "maco", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        input=text,
        env=child_environment(**env),
    )


SIZES = ("--max-seq", MAX_SEQ, "--chunk", CHUNK, "--device", "cpu")


@pytest.mark.parametrize("tp", [1, 2])
def test_generate_on_the_command_line(folder, reference, tp):
    ids = prompt(6, 3)
    ran = command("generate", folder, "--tokens", ",".join(map(str, ids)), "--max-new-tokens", 9, "--tp", tp, *SIZES)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == ",".join(map(str, expected(reference, ids, 9))) + "\n" and ran.stderr == ""


def test_texts_on_the_command_line(words, talking):
    wanted = talking.generate("The quick", 20).text
    for arguments, text in ((["The quick"], None), (["-"], "The quick")):
        ran = command("generate", words, *arguments, "--max-new-tokens", 20, *SIZES, text=text)
        assert ran.returncode == 0 and ran.stdout == wanted + "\n", ran.stderr
    ran = command("generate", words, "The quick", "--max-new-tokens", 20, "--stop", wanted[4:6], *SIZES)
    assert ran.stdout == wanted[: wanted.find(wanted[4:6])] + "\n"
    sampled = ["--temperature", "1.2", "--top-k", "20", "--top-p", "0.9", "--min-p", "0.01", "--seed", "5"]
    ran = command("generate", words, "The quick", "--max-new-tokens", 20, *sampled, *SIZES)
    assert ran.stdout == talking.generate("The quick", 20, 1.2, 20, 0.9, 0.01, seed=5).text + "\n"


def test_a_chat_on_the_command_line(words, talking):
    first = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "The quick?"}]
    one = talking.chat(first, 8).text
    second = [*first, {"role": "assistant", "content": one}, {"role": "user", "content": "And?"}]
    two = talking.chat(second, 8).text
    ran = command(
        "chat", words, "--system", "Be brief.", "--max-new-tokens", 8, *SIZES, text="The quick?\n\nAnd?\n/new\nThe quick?\n/exit\nmore\n"
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == f"{one}\n{two}\n{one}\n"


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        (["generate"], 2, "DIR"),
        (["generate", "DIR"], 2, "takes a prompt: TEXT, or --tokens"),
        (["generate", "DIR", "x", "--tokens", "1"], 2, "takes a prompt"),
        (["generate", "DIR", "--tokens", "1,x"], 2, "'1,x' are no ids"),
        (["generate", "DIR", "--tokens", "1", "--device", "tpu"], 1, "the device can't be 'tpu'"),
        (["generate", "DIR", "--tokens", "1", "--dtype", "f64"], 1, "f64"),
        (["generate", "DIR", "--tokens", "1,97"], 1, "a prompt has id 97"),
        (["generate", "DIR", "--tokens", ""], 1, "a prompt is empty"),
        (["generate", "DIR", "hello"], 1, "has no tokenizer.json"),
        (["generate", "NOWHERE", "hello"], 1, "there is no folder 'NOWHERE'"),
        (["generate", "DIR", "hello", "--tokns", "1"], 2, "--tokns"),
        (["generate", "DIR", "--tokens", "1", "--temperature", "-1"], 1, "temperature"),
        (["chat", "DIR"], 1, "has no tokenizer.json"),
        (["chat"], 2, "DIR"),
        (["genrate", "DIR"], 2, "did you mean 'generate'?"),
    ],
)
def test_wrong_command_lines(folder, arguments, status, text):
    sizes = SIZES if arguments[0] != "genrate" and "--device" not in arguments else ()
    ran = command(*[folder if one == "DIR" else one for one in arguments], *sizes)
    assert ran.returncode == status and text in ran.stderr and ran.stdout == "", ran.stderr


def test_help():
    for name in ("generate", "chat"):
        ran = command(name, "--help")
        assert ran.returncode == 0 and "--max-new-tokens" in ran.stdout and "--tp" in ran.stdout
        assert len(ran.stdout.splitlines()) < 45
    ran = command("--help")
    assert all(f"maco {name} " in ran.stdout for name in ("generate", "chat", "import"))


def test_import(folder, tmp_path):
    model = maco.import_model(folder, tp=2, max_seq=MAX_SEQ, chunk=CHUNK, dtype="f32")
    assert set(model.graphs) == {"decode", "prefill", "verify"} and model.about["world"] == 2
    assert model.graph("decode").world == 2
    with pytest.raises(maco.Error, match="did you mean 'decode'"):
        model.graph("decod")
    model.save(tmp_path / "own")
    ran = command("import", folder, "--tp", 2, "--max-seq", MAX_SEQ, "--chunk", CHUNK, "--dtype", "f32", "-o", tmp_path / "out")
    assert ran.returncode == 0, ran.stderr
    names = sorted(one.name for one in (tmp_path / "own").iterdir())
    assert names == ["decode.maco", "prefill.maco", "verify.maco", "weights.json"]
    for name in names:
        assert (tmp_path / "own" / name).read_text() == (tmp_path / "out" / name).read_text()


def test_an_interrupted_command_ends_quietly(folder):
    arguments = ["generate", str(folder), "--tokens", "1", "--max-new-tokens", "150", "--max-seq", "160", "--chunk", str(CHUNK)]
    child = subprocess.Popen(
        [sys.executable, "-c", SLOW, *arguments, "--device", "cpu"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=child_environment(),
    )
    assert child.stderr.readline() == "begun\n"
    child.send_signal(signal.SIGINT)
    out, errors = child.communicate(timeout=60)
    assert child.returncode == 130 and out == "" and "Traceback" not in errors


def test_ctrl_c_in_a_chat_ends_the_answer(words, talking):
    child = subprocess.Popen(
        [sys.executable, "-c", SLOW, "chat", str(words), "--max-new-tokens", "12", *map(str, SIZES)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=child_environment(),
    )
    child.stdin.write("The quick?\n")
    child.stdin.flush()
    assert child.stderr.readline() == "begun\n"
    child.send_signal(signal.SIGINT)
    begun = child.stdout.readline().rstrip("\n")
    child.stdin.write("/new\nThe quick?\n")
    child.stdin.close()
    out, errors = child.stdout.read(), child.stderr.read()
    assert child.wait(60) == 0 and "Traceback" not in errors, errors
    whole = talking.chat([{"role": "user", "content": "The quick?"}], 12).text
    assert whole.startswith(begun) and len(begun) < len(whole) and out == whole + "\n"


SLOW = """
import sys, time
from maco import cli
from maco.models.engine import Engine
step = Engine.step
def slow(self):
    if self._launched == 3: print("begun", file=sys.stderr, flush=True)
    time.sleep(0.2)
    step(self)
Engine.step = slow
sys.exit(cli.main(sys.argv[1:]))
"""


def test_without_numpy(python, folder, reference):
    """Greedy ids need none; logits say what is missing."""
    ran = python(
        "import sys; sys.modules['numpy'] = None\n"
        "import maco\n"
        f"llm = maco.LLM(sys.argv[1], device='cpu', max_seq={MAX_SEQ}, chunk={CHUNK})\n"
        "print(llm.generate([3, 1, 4], 8).token_ids)\n"
        "for call in (lambda: llm.logits([1]), lambda: llm.generate([1], temperature=1)):\n"
        "    try: call()\n"
        "    except maco.Unavailable as error: print(error)\n"
        "assert 'torch' not in sys.modules\n",
        args=[str(folder)],
    )
    lines = ran.stdout.splitlines()
    assert ran.returncode == 0, ran.stderr
    assert json.loads(lines[0]) == expected(reference, [3, 1, 4], 8)
    assert len(lines) == 3 and all("pip install 'maco[models]'" in line for line in lines[1:])


# ---- a bar


class Terminal:
    def __init__(self):
        self.text = ""

    def write(self, text):
        self.text += text

    def flush(self):
        pass

    def isatty(self):
        return True

    def fileno(self):
        raise OSError


def test_a_bar_on_a_terminal_only(folder, monkeypatch, capsys):
    load(folder).close()
    assert capsys.readouterr().err == ""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    load(folder).close()
    assert "reading weights [" in terminal.text and "100 %" in terminal.text
    assert terminal.text.endswith(" \r")  # nothing is left of it
    terminal.text = ""
    load(folder, progress=False).close()
    assert terminal.text == ""


# ---- several processes


def together(folder, ids):
    rank = int(os.environ["RANK"])
    with load(folder, tp=2) as made:
        found = [made.generate(ids, NEW).token_ids]
        found.append(made.generate(ids, 10, temperature=1.5).token_ids)  # rank 0's seed
        found.append([piece.token_ids[0] for piece in made.generate(ids, 10, stream=True)])
        found.append(float(made.logits(ids).sum()))
        try:
            made.generate([rank, 1], 3)
        except maco.MismatchError as error:
            found.append(str(error))
        found.append(made.generate(ids, NEW).token_ids)
    return found


def test_a_process_a_rank(folder, reference):
    ids = prompt(23, 23)
    first, second = ranks.run(2, together, str(folder), ids)
    assert first == second
    assert first[0] == first[5] == expected(reference, ids) and first[2] == first[0][:10]
    assert "the ranks do different things" in first[4]


def interrupted(folder, ids):
    with load(folder, tp=2, timeout=5) as made:
        step = made._engine.step

        def stopped():
            step()
            if made._engine._launched == 4:
                raise KeyboardInterrupt

        made._engine.step = stopped
        try:
            made.generate(ids, NEW)
        except KeyboardInterrupt:
            found = ["interrupted"]
        found.append(made.generate(ids, NEW).token_ids)
        # Only one of them.
        if os.environ["RANK"] == "1":
            made._engine.step = lambda: (_ for _ in ()).throw(KeyboardInterrupt)
        begin = time.monotonic()
        try:
            made.generate(ids, NEW)
        except (KeyboardInterrupt, maco.Error) as error:
            found.append(type(error).__name__)
        found.append(time.monotonic() - begin < 20)
        found.append(made.generate(ids, NEW).token_ids)
    return found


def test_processes_go_on_after_ctrl_c(folder, reference):
    ids = prompt(9, 9)
    found = ranks.run(2, interrupted, str(folder), ids)
    wanted = expected(reference, ids)
    assert [one[:2] for one in found] == [["interrupted", wanted]] * 2
    assert found[1][2] == "KeyboardInterrupt" and found[0][2] in ("LaunchError", "Error")
    assert [one[3:] for one in found] == [[True, wanted]] * 2


def apart(folder, ids):
    with load(folder) as made:  # each has a model of its own
        found = made.generate(ids[: 3 + int(os.environ["RANK"])], 5).token_ids
    with pytest.raises(maco.Error, match="tp is 3, but there are 2 processes"):
        load(folder, tp=3)
    return found


def test_processes_with_a_model_each(folder, reference):
    ids = prompt(9, 9)
    assert ranks.run(2, apart, str(folder), ids) == [expected(reference, ids[:3], 5), expected(reference, ids[:4], 5)]


MEMORY = """
import ctypes
from maco.models.memory import DeviceIntegers, HostIntegers, Streams
streams = Streams([0, 1])
host, devices = HostIntegers(8, 0), DeviceIntegers(10, streams)
assert len(set(streams.handles)) == 2 and all(streams.handles)
assert list(host.at) == [0] * 8 and host.address % 16 == 0
host.at[3] = 7
assert ctypes.c_int32.from_address(host.address + 12).value == 7
devices.put(4, [1, 2, 3])
assert len(set(devices.addresses)) == 2
for address in devices.addresses:
    assert list((ctypes.c_int32 * 3).from_address(address + 16)) == [1, 2, 3]
for one in (host, devices, streams) * 2:
    one.close()
print("right")
"""


def test_memory_of_gpus(python):
    """By the driver's functions, which a stand-in has."""
    build = _native.build_folder()
    driver = build / "tests" / "fake_driver" if build else None
    if driver is None or not (driver / "libcuda.so.1").is_file():
        pytest.skip("no stand-in of the driver")
    ran = python(MEMORY, env={"LD_LIBRARY_PATH": str(driver)})
    assert ran.stdout == "right\n", ran.stderr
