"""Real words: SmolLM2-135M continues prompts as transformers does with the same weights."""

import os

import pytest

import maco

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("tokenizers")
pytest.importorskip("safetensors")

import words  # noqa: E402

NEW = 10
PROMPTS = ("The capital of France is", "Water boils at", "Once upon a time, there was a little girl who")


@pytest.fixture(scope="module")
def folder():
    if os.environ.get("MACO_NO_NETWORK"):
        pytest.skip("MACO_NO_NETWORK is set")
    found = words.folder()
    if isinstance(found, str):
        pytest.skip(found)
    return found


@pytest.fixture(scope="module")
def both(folder):
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    return tokenizer, model


def continued(model, ids):
    with torch.no_grad():
        return model.generate(torch.tensor([ids]), max_new_tokens=NEW, do_sample=False)[0, len(ids) :].tolist()


def test_prompts_go_on_as_with_transformers(folder, both):
    tokenizer, model = both
    with maco.LLM(folder, max_seq=64, device="cpu", chunk=16) as llm:
        answers = llm.generate(list(PROMPTS), max_new_tokens=NEW)
        for prompt, answer in zip(PROMPTS, answers, strict=True):
            ids = tokenizer(prompt).input_ids
            assert llm.encode(prompt) == ids
            want = continued(model, ids)
            assert answer.token_ids == want
            assert answer.text == tokenizer.decode(want, skip_special_tokens=True)
        assert "Paris" in answers[0].text
        # A chat, by the checkpoint's template.
        messages = [{"role": "user", "content": "What is 2 + 2?"}]
        ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
        assert llm.chat(messages, max_new_tokens=NEW).token_ids == continued(model, ids)
