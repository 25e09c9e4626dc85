"""Models of Hugging Face's transformers, as they come: compiled whole, with the results of eager PyTorch."""

import pytest

import maco

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

SMALL = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 100,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
HEADS = {"head_dim": 16}
# Of which one launch is all.
WHOLE = {
    "Llama": {},
    "Qwen2": {},
    "Qwen3": HEADS,
    "Mistral": {},
    "Phi3": {},
    "Olmo2": {},
    "Granite": {},
    "Gemma2": {**HEADS, "sliding_window": 4},
}


@pytest.fixture(autouse=True)
def anew():
    """Dynamo keeps numbers open that differ between models of one class."""
    torch._dynamo.reset()


def model_of(name, **more):
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**SMALL, **more)
    return getattr(transformers, f"{name}ForCausalLM")(config).eval()


@pytest.mark.parametrize("name", WHOLE)
def test_a_prompt_is_one_launch(name):
    model, ids = model_of(name, **WHOLE[name]), torch.randint(3, 100, (1, 7))
    with torch.no_grad():
        want = model(ids, use_cache=False).logits
        report = maco.explain(model, ids, use_cache=False)
        torch.testing.assert_close(maco.compile(model)(ids, use_cache=False).logits, want, rtol=1e-4, atol=1e-5)
    assert len(report.graphs) == 1 and not report.fallbacks, report
    assert "= rope(" in report.graphs[0]
    assert name == "Gemma2" or "= attention(" in report.graphs[0]  # its scores are capped: products and a softmax


def test_tokens_of_a_static_cache():
    model = model_of("Llama")
    ids = torch.randint(3, 100, (1, 7))
    caches = [transformers.StaticCache(config=model.config, max_cache_len=32) for _ in range(2)]
    with torch.no_grad():
        for cache in caches:
            last = model(ids, past_key_values=cache).logits
        fast = maco.compile(model, dynamic=False)
        for _ in range(3):
            token = last[:, -1:].argmax(-1)
            last = model(token, past_key_values=caches[0]).logits
            found = fast(token, past_key_values=caches[1]).logits
            torch.testing.assert_close(found, last, rtol=1e-4, atol=1e-5)
        report = maco.explain(model, token, past_key_values=caches[1])
    # What is left counts places, in integers of 64 bits.
    assert len(report.graphs) == 1 and {row["reason"] for row in report.fallbacks} <= {"MACO has no dtype int64"}, report


def test_other_kinds_of_models():
    torch.manual_seed(0)
    bert = transformers.BertConfig(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128, vocab_size=100)
    gpt = transformers.GPT2Config(n_embd=64, n_layer=2, n_head=4, vocab_size=100, n_positions=64, bos_token_id=1, eos_token_id=2)
    ids = torch.randint(3, 100, (2, 7))
    for model in (transformers.BertModel(bert).eval(), transformers.GPT2Model(gpt).eval()):
        with torch.no_grad():
            want = model(ids).last_hidden_state
            torch.testing.assert_close(maco.compile(model)(ids).last_hidden_state, want, rtol=1e-4, atol=1e-5)
