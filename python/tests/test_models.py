"""Every architecture that MACO imports, against transformers: tiny random models of odd sizes, over 1 to 3 ranks."""

import json
import re
import shutil
import struct
from pathlib import Path

import pytest

import maco

np = pytest.importorskip("numpy")
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import checkpoints  # noqa: E402

from maco.models.importing import import_model  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
NEW = 24
ROWS = 96  # of the caches
CHUNK = 10
LENGTHS = (1, 7, 23, 40)  # of prompts; windows are 7 to 11


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A function that gives the folder of a model and the model."""
    made = {}

    def get(name, **more):
        key = (name, *sorted(more.items()))
        if key not in made:
            folder = tmp_path_factory.mktemp(name)
            made[key] = folder, checkpoints.make(name, folder, **more)
        return made[key]

    return get


def prompt(length, seed=0):
    return np.random.default_rng(seed).integers(3, checkpoints.SIZES["vocab_size"], length).tolist()


def close(got, want):
    """Within what f32 gives, of the largest."""
    assert np.abs(got - want).max() <= 2e-5 * np.abs(want).max()


def whole(model, ids):
    """The logits and hidden states of transformers."""
    with torch.no_grad():
        out = model(torch.tensor([ids]), use_cache=False, output_hidden_states=True)
    return out.logits[0].numpy(), [h[0].numpy() for h in out.hidden_states]


def greedy(model, ids):
    with torch.no_grad():
        made = model.generate(torch.tensor([ids]), max_new_tokens=NEW, do_sample=False, repetition_penalty=1.0)
    return made[0, len(ids) :].tolist()


@pytest.mark.parametrize("tp", [1, 2, 3])
@pytest.mark.parametrize("name", checkpoints.MODELS)
def test_tokens_and_logits_are_those_of_transformers(saved, name, tp):
    folder, model = saved(name)
    with maco.LLM(folder, tp=tp, max_seq=ROWS, device="cpu", chunk=CHUNK) as llm:
        for length in LENGTHS:
            ids = prompt(length, length)
            answer = llm.generate(ids, max_new_tokens=NEW)
            assert answer.token_ids == greedy(model, ids), length
            # What decoding gives one by one, a prompt gives at once.
            both = ids + answer.token_ids
            close(llm.logits(both), whole(model, both)[0])


def weights_of(model):
    """Each param as NumPy makes it of weights.json: (name, rank) -> an array of f32."""
    about = json.loads(model.weights)

    def source(name):
        entry = about["sources"][name]
        raw = (Path(model.folder) / about["files"][entry["file"]]["name"]).read_bytes()[entry["begin"] :]
        count = int(np.prod(entry["shape"]))
        if entry["dtype"] == "BF16":
            numbers = (np.frombuffer(raw, np.uint16, count).astype(np.uint32) << 16).view(np.float32)
        else:
            numbers = np.frombuffer(raw, {"F32": np.float32, "F16": np.float16}[entry["dtype"]], count).astype(np.float32)
        return numbers.reshape(entry["shape"][0], -1)

    def param(name, rank):
        entry = about["params"][name]
        if "values" in entry:
            return np.array(entry["values"], np.float32)
        made = np.zeros((entry["shape"][0], int(np.prod(entry["shape"][1:]))), np.float32)
        for part in entry["parts"] if "parts" in entry else entry["ranks"][rank]:
            whole = source(part["from"])
            rows, columns = part.get("rows", [0, whole.shape[0]]), part.get("columns", [0, whole.shape[1]])
            box = whole[slice(*rows), slice(*columns)]
            box = (box.T if part.get("transpose") else box) + np.float32(part.get("plus", 0))
            down, right = part.get("to", [0, 0])
            made[down : down + box.shape[0], right : right + box.shape[1]] = box
        return made.reshape(entry["shape"])

    return {(name, rank): param(name, rank) for name in about["params"] for rank in range(about["world"])}


@pytest.mark.parametrize("name", checkpoints.MODELS)
def test_hidden_states_are_those_of_transformers(saved, name):
    """Of two ranks, with weights that NumPy puts into their places."""
    folder, model = saved(name)
    imported = import_model(folder, tp=2, max_seq=ROWS, chunk=CHUNK)
    layers, hidden = model.config.num_hidden_layers, model.config.hidden_size
    text = imported.graphs["prefill"].rstrip().removesuffix("}")
    more = "".join(f"  output hidden_{i} : f32[rows, {hidden}] = copy(x_{i})\n" for i in range(layers))
    with maco.Session(maco.Graph.parse(text + more + "}\n").compile(target="cpu"), device="cpu") as session:
        session.allocate()
        for (param, rank), array in weights_of(imported).items():
            session.write(param, array, rank)
        ids = prompt(2 * CHUNK - 3)
        _, states = whole(model, ids)
        for begin in range(0, len(ids), CHUNK):
            piece = ids[begin : begin + CHUNK]
            for rank in range(2):
                session.write("tokens", np.pad(np.array(piece, np.int32), (0, CHUNK - len(piece))), rank)
            session.run(pos=begin, rows=len(piece))
            for i in range(layers):
                for rank in range(2):
                    close(session.read(f"hidden_{i}", rank, rows=len(piece), to="numpy"), states[i][begin : begin + len(piece)])


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("llama-tied", torch.float16), *[(name, torch.bfloat16) for name in ("llama", "qwen3", "gemma2", "gemma3", "phi4-mini")]],
)
def test_half_precision_stays_near(saved, name, dtype):
    """Attention over the caches is one task with norms and turns of heads then, where heads are multiples of 8."""
    folder, model = saved(name, dtype=dtype)
    ids = prompt(30)
    want = whole(model, ids)[0]
    with maco.LLM(folder, tp=2, max_seq=ROWS, device="cpu", chunk=CHUNK) as llm:
        assert llm.dtype == {torch.bfloat16: "bf16", torch.float16: "f16"}[dtype]
        got = llm.logits(ids)
        assert np.linalg.norm(got - want) <= 0.05 * np.linalg.norm(want)


def test_weights_of_half_precision_are_exact_in_f32(saved):
    folder, model = saved("llama", dtype=torch.bfloat16)
    ids = prompt(30)
    with maco.LLM(folder, max_seq=ROWS, dtype="f32", device="cpu", chunk=CHUNK) as llm:
        close(llm.logits(ids), whole(model, ids)[0])


def test_frequencies_of_long_texts(saved):
    """Behind as many tokens as a model was trained for, longrope has others; transformers takes them for all of a text that is longer."""
    folder, model = saved("phi4-mini")
    ids = prompt(140)
    with maco.LLM(folder, max_seq=160, device="cpu", chunk=70) as llm:
        close(llm.logits(ids), whole(model, ids)[0])


# ---- spellings


def same_graphs(one, other):
    first, second = (import_model(f, tp=2, max_seq=ROWS, chunk=CHUNK) for f in (one, other))
    for kind in ("decode", "prefill", "verify"):
        assert first.graphs[kind] == second.graphs[kind]
    assert json.loads(first.weights)["params"] == json.loads(second.weights)["params"]


def changed(folder, to, change):
    """The checkpoint with another config.json."""
    shutil.copytree(folder, to)
    config = json.loads((to / "config.json").read_text())
    change(config)
    (to / "config.json").write_text(json.dumps(config))
    return to


@pytest.mark.parametrize("name", ["llama", "llama-tied", "llama-linear", "llama-yarn", "qwen3", "mistral", "phi4-mini"])
def test_the_older_spelling_of_a_config_means_the_same(saved, tmp_path, name):
    def change(config):
        rope = config.pop("rope_parameters")
        config["rope_theta"] = rope.pop("rope_theta")
        if "partial_rotary_factor" in rope:
            config["partial_rotary_factor"] = rope.pop("partial_rotary_factor")
        kind = rope.pop("rope_type")
        config["rope_scaling"] = None if kind == "default" else {"type": kind, **rope}
        config["torch_dtype"] = config.pop("dtype")
        config.pop("layer_types", None)

    folder, _ = saved(name)
    same_graphs(folder, changed(folder, tmp_path / "older", change))


def test_the_older_spelling_of_gemma_3(saved, tmp_path):
    def change(config):
        rope = config.pop("rope_parameters")
        config["rope_theta"] = rope["full_attention"]["rope_theta"]
        config["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
        config["rope_scaling"] = None
        config["layer_types"] = None
        config["sliding_window_pattern"] = 3

    folder, model = saved("gemma3")
    assert model.config.layer_types[2] == "full_attention"
    same_graphs(folder, changed(folder, tmp_path / "older", change))


def test_what_gemma_3_leaves_out_is_as_in_its_smallest_model(saved, tmp_path):
    def change(config):
        for key in ("num_attention_heads", "num_key_value_heads", "head_dim", "query_pre_attn_scalar", "rms_norm_eps", "hidden_activation"):
            config.pop(key)

    folder, _ = saved("gemma3", num_attention_heads=8, num_key_value_heads=4, head_dim=256, query_pre_attn_scalar=256)
    same_graphs(folder, changed(folder, tmp_path / "shorter", change))


def read_tensors(path):
    raw = path.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    return json.loads(raw[8 : 8 + length]), raw[8 + length :]


def write_tensors(path, header, data):
    head = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(head)) + head + data)


@pytest.mark.parametrize("prefix", ["language_model.model.", "model.language_model."])
def test_the_texts_of_a_model_that_also_sees(saved, tmp_path, prefix):
    """Gemma 3 with a config and names as a checkpoint for texts and pictures has them."""
    folder, _ = saved("gemma3")
    to = changed(folder, tmp_path / "sees", lambda config: None)
    text = json.loads((to / "config.json").read_text())
    outer = {"architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3", "text_config": text}
    outer["vision_config"] = {"hidden_size": 8}
    text.pop("architectures")
    outer["dtype"] = text.pop("dtype")
    outer["eos_token_id"] = [text.pop("eos_token_id"), 106]
    (to / "config.json").write_text(json.dumps(outer))
    header, data = read_tensors(to / "model.safetensors")
    header = {key if key == "__metadata__" else prefix + key.removeprefix("model."): value for key, value in header.items()}
    header["vision_tower.patch.weight"] = {"dtype": "F32", "shape": [2], "data_offsets": [len(data), len(data) + 8]}
    write_tensors(to / "model.safetensors", header, data + bytes(8))
    one, other = (import_model(f, tp=2, max_seq=ROWS, chunk=CHUNK) for f in (folder, to))

    def strip(text):  # the head names architecture and type
        return re.sub(r"^# .*\n|graph \w+", "", text)

    assert strip(one.graphs["decode"]) == strip(other.graphs["decode"])
    about = json.loads(other.weights)
    assert about["eos"] == [2, 106]
    assert "vision_tower.patch.weight" not in about["sources"]


# ---- what is refused


def refusal(folder, **how):
    with pytest.raises(maco.Error) as caught:
        import_model(folder, **{"max_seq": ROWS, **how})
    return str(caught.value)


def test_a_checkpoint_that_is_not_whole_is_refused_by_name(saved, tmp_path):
    folder, _ = saved("llama")
    header, data = read_tensors(folder / "model.safetensors")

    def damaged(name, change):
        to = shutil.copytree(folder, tmp_path / name)
        other = json.loads(json.dumps(header))
        write_tensors(to / "model.safetensors", other, change(other) or data)
        return refusal(to)

    def rename(tensors):
        tensors["model.layers.0.mlp.up.weight"] = tensors.pop("model.layers.0.mlp.up_proj.weight")

    def more(tensors):
        tensors["model.layers.0.self_attn.q_proj.bias"] = {"dtype": "F32", "shape": [1], "data_offsets": [len(data), len(data) + 4]}
        return data + bytes(4)

    def turned(tensors):
        tensors["model.layers.1.mlp.up_proj.weight"]["shape"].reverse()

    def kind(tensors):
        tensors["model.norm.weight"] |= {"dtype": "I32"}

    assert "no tensor 'model.layers.0.mlp.up_proj.weight'" in damaged("rename", rename)
    assert "a tensor that llama.arch doesn't know: 'model.layers.0.self_attn.q_proj.bias'" in damaged("more", more)
    assert "'model.layers.1.mlp.up_proj.weight' is F32[40, 72], but 'wu_1' wants [72, 40]" in damaged("turned", turned)
    assert "'model.norm.weight' is I32[40]" in damaged("kind", kind)
    assert "model.safetensors" in damaged("short", lambda tensors: data[:-8])
    assert "has no config.json" in refusal(tmp_path)
    assert "is no folder" in refusal(tmp_path / "nowhere")


def test_an_index_is_held_to_its_files(saved, tmp_path):
    folder, _ = saved("llama")
    to = shutil.copytree(folder, tmp_path / "index")
    header, _ = read_tensors(to / "model.safetensors")
    names = [key for key in header if key != "__metadata__"]

    def index(change):
        where = dict.fromkeys(names, "model.safetensors")
        change(where)
        (to / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": where}))
        return refusal(to)

    assert "isn't in the folder itself" in index(lambda where: where.update({names[0]: "../model.safetensors"}))
    assert "isn't in the folder itself" in index(lambda where: where.update({names[0]: "/etc/passwd"}))
    assert "has no tensor 'more'" in index(lambda where: where.update(more="model.safetensors"))
    assert f"has a tensor '{names[0]}', which model.safetensors.index.json doesn't put there" in index(lambda where: where.pop(names[0]))
    assert "other.safetensors: cannot be opened" in index(lambda where: where.update(dict.fromkeys(names, "other.safetensors")))


def test_configs_that_cannot_be_had_are_refused_by_name(saved, tmp_path):
    folder, _ = saved("llama")
    count = iter(range(100))

    def of(**more):
        return refusal(changed(folder, tmp_path / str(next(count)), lambda config: config.update(more)))

    assert "architecture 'LlamaForCausalML' isn't known; did you mean 'LlamaForCausalLM'?" in of(architectures=["LlamaForCausalML"])
    assert "quant_method gptq" in of(quantization_config={"quant_method": "gptq"})
    assert "hidden_act is relu" in of(hidden_act="relu")
    assert "rotary embeddings of type 'mrope' aren't known" in of(rope_parameters={"rope_type": "mrope", "rope_theta": 1e4})
    assert "4 heads are no multiple of 3" in of(num_key_value_heads=3)
    assert "'embedded' wants [130, 40]" in of(vocab_size=130)


def test_a_head_that_is_missing_is_no_tied_one(saved, tmp_path):
    folder, _ = saved("llama")
    to = shutil.copytree(folder, tmp_path / "headless")
    header, data = read_tensors(to / "model.safetensors")
    first = header.pop("lm_head.weight")["data_offsets"]
    assert first[0] == 0
    for key, value in header.items():
        if key != "__metadata__":
            value["data_offsets"] = [at - first[1] for at in value["data_offsets"]]
    write_tensors(to / "model.safetensors", header, data[first[1] :])
    assert "the checkpoint has no lm_head.weight, and tie_word_embeddings isn't true" in refusal(to)


# ---- architectures of the user's own


def test_the_architecture_of_the_page(tmp_path):
    """docs/models.md shows one; it works from the checkpoint's folder, and from anywhere by name."""
    page = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"<!-- file: bigram.arch -->\n```\n(.*?)```", page, re.S)
    folder = tmp_path / "bigram"
    folder.mkdir()
    config = {"architectures": ["BigramForCausalLM"], "model_type": "bigram", "vocab_size": 11, "order": 2, "dtype": "float32"}
    config["max_position_embeddings"] = 32
    (folder / "config.json").write_text(json.dumps(config))
    table = np.random.default_rng(0).standard_normal((11, 11)).astype(np.float32)
    tensors = {"model.table.weight": table, "statistics.count": np.zeros(2, np.float32)}
    header, data = {}, b""
    for name, array in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": [len(data), len(data) + array.nbytes]}
        data += array.tobytes()
    write_tensors(folder / "model.safetensors", header, data)
    assert "architecture 'BigramForCausalLM' isn't known" in refusal(folder, max_seq=32)
    want = [3]
    for _ in range(6):
        want.append(int(table[want[-1]].argmax()))
    elsewhere = tmp_path / "elsewhere.arch"
    elsewhere.write_text(text)
    with maco.LLM(folder, max_seq=32, device="cpu", architecture=elsewhere) as llm:
        assert llm.generate([5, 3], max_new_tokens=6).token_ids == want[1:]
    (folder / "bigram.arch").write_text(text)
    with maco.LLM(folder, tp=2, max_seq=32, device="cpu") as llm:
        assert llm.generate([5, 3], max_new_tokens=6).token_ids == want[1:]
    (folder / "config.json").write_text(json.dumps({**config, "order": 3}))
    assert "bigram.arch:5:8: error: order is 3, and this architecture knows 2" in refusal(folder, max_seq=32)
