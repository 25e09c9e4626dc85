"""Words and ids: tokenizers, text while ids come, stop strings, chat templates; against transformers where it says the same."""

import json
import random

import pytest

import maco

tokenizers = pytest.importorskip("tokenizers")
pytest.importorskip("jinja2")
from maco.models.template import ChatTemplate  # noqa: E402
from maco.models.text import TextStream, Tokenizer, has_tokenizer  # noqa: E402

TEXTS = [
    "The quick brown fox jumps over the lazy dog. It's 12:30, isn't it?\n\n  Indented,\tand so on…",
    "Größe, façade, naïve — “quotes” and 日本語のテキスト, ελληνικά; emoji 👩‍👩‍👧‍👦 🇩🇪 👍🏽!",
    " leading and trailing spaces  ",
    "a <|end|> b<|start|>c",
]
SPECIAL = ["<|start|>", "<|end|>", "<pad>"]


def byte_level(folder):
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=400, special_tokens=SPECIAL, initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    made.train_from_iterator(TEXTS * 3, trainer)
    start = made.token_to_id("<|start|>")
    made.post_processor = tokenizers.processors.TemplateProcessing(single="<|start|> $A", special_tokens=[("<|start|>", start)])
    return saved(made, folder)


def metaspace(folder):
    """As Llama 2 and Gemma have it: spaces as a letter, and bytes where there is no piece."""
    words = ["<pad>", "<|start|>", "<|end|>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁"]
    words += [letter for letter in "abcdefghijklmnopqrstuvwxyzTI.,'?:!" if letter not in words]
    merges = [("t", "h"), ("th", "e"), ("▁", "the"), ("o", "v"), ("e", "r"), ("ov", "er")]
    words += ["".join(pair) for pair in merges]
    vocabulary = {word: i for i, word in enumerate(words)}
    made = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, merges, byte_fallback=True, unk_token="<pad>"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    made.decoder = tokenizers.decoders.Sequence(
        [
            tokenizers.decoders.Replace("▁", " "),
            tokenizers.decoders.ByteFallback(),
            tokenizers.decoders.Fuse(),
            tokenizers.decoders.Strip(" ", 1, 0),
        ]
    )
    made.add_special_tokens(SPECIAL)
    return saved(made, folder)


def word_pieces(folder):
    words = [
        "[UNK]",
        *SPECIAL,
        *"abcdefghijklmnopqrstuvwxyzTI.,'?:!",
        *("##" + letter for letter in "abcdefghijklmnopqrstuvwxyz"),
        "the",
        "##er",
    ]
    made = tokenizers.Tokenizer(tokenizers.models.WordPiece({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    made.decoder = tokenizers.decoders.WordPiece()
    made.add_special_tokens(SPECIAL)
    return saved(made, folder)


def saved(made, folder):
    made.save(str(folder / "tokenizer.json"))
    config = {"bos_token": "<|start|>", "eos_token": "<|end|>", "pad_token": {"content": "<pad>", "__type": "AddedToken"}}
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", **config}))
    return folder


@pytest.fixture(scope="module", params=[byte_level, metaspace, word_pieces], ids=lambda make: make.__name__)
def folder(request, tmp_path_factory):
    return request.param(tmp_path_factory.mktemp(request.param.__name__))


@pytest.fixture(scope="module")
def bytes_folder(tmp_path_factory):
    return byte_level(tmp_path_factory.mktemp("bytes"))


def of_transformers(folder):
    return pytest.importorskip("transformers").PreTrainedTokenizerFast.from_pretrained(str(folder))


# ---- tokenizers


def test_ids_and_texts_are_those_of_transformers(folder):
    own, theirs = Tokenizer(str(folder)), of_transformers(folder)
    draw = random.Random(0)
    for text in TEXTS:
        assert own.encode(text) == theirs(text)["input_ids"]
        assert own.encode(text, special=False) == theirs(text, add_special_tokens=False)["input_ids"]
    for _ in range(30):
        ids = [draw.randrange(len(theirs)) for _ in range(draw.randrange(1, 25))]
        assert own.decode(ids) == theirs.decode(ids, skip_special_tokens=True)


def test_what_the_file_says_of_cutting_and_filling_counts_for_nothing(bytes_folder, tmp_path):
    made = tokenizers.Tokenizer.from_file(str(bytes_folder / "tokenizer.json"))
    made.enable_truncation(4)
    made.enable_padding(length=64)
    saved(made, tmp_path)
    assert Tokenizer(str(tmp_path)).encode(TEXTS[0]) == Tokenizer(str(bytes_folder)).encode(TEXTS[0])


def test_special_words_of_the_configuration_are_special(bytes_folder, tmp_path):
    """Also where the tokenizer's file has them as ordinary ones."""
    whole = json.loads((bytes_folder / "tokenizer.json").read_text())
    whole["added_tokens"] = [token for token in whole["added_tokens"] if token["content"] != "<|end|>"]
    (tmp_path / "tokenizer.json").write_text(json.dumps(whole))
    (tmp_path / "tokenizer_config.json").write_text((bytes_folder / "tokenizer_config.json").read_text())
    own = Tokenizer(str(tmp_path))
    end = whole["model"]["vocab"]["<|end|>"]
    assert own.encode("a<|end|>")[-1] == end and own.decode([end]) == ""
    assert own.special == {"bos_token": "<|start|>", "eos_token": "<|end|>", "pad_token": "<pad>"}


def test_without_a_file_or_with_a_damaged_one(tmp_path):
    with pytest.raises(maco.Error, match="has no tokenizer.json.*--tokens"):
        Tokenizer(str(tmp_path))
    assert not has_tokenizer(str(tmp_path))
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(maco.Error, match="can't be read"):
        Tokenizer(str(tmp_path))


def test_without_the_package(python, tmp_path):
    (tmp_path / "tokenizer.json").write_text("{}")
    ran = python(
        "import sys; sys.modules['tokenizers'] = None; sys.modules['jinja2'] = None\n"
        "import maco\nfrom maco.models import text, template\n"
        "print(text.has_tokenizer(sys.argv[1]))\n"
        "for make in (lambda: text.Tokenizer(sys.argv[1]), template._environment):\n"
        "    try: make()\n"
        "    except maco.Unavailable as error: print(error)\n",
        args=[str(tmp_path)],
    )
    lines = ran.stdout.splitlines()
    assert lines[0] == "False" and all("pip install 'maco[models]'" in line for line in lines[1:]) and len(lines) == 3, ran.stderr


# ---- text while ids come


def streamed(tokenizer, ids, stop=()):
    stream = TextStream(tokenizer, stop)
    pieces = []
    for one in ids:
        pieces.append(stream.add(one))
        if stream.stopped:
            return pieces, stream
    pieces.append(stream.finish())
    return pieces, stream


def test_pieces_are_the_text(folder):
    own = Tokenizer(str(folder))
    for text in TEXTS:
        ids = own.encode(text)
        pieces, _ = streamed(own, ids)
        assert "".join(pieces) == own.decode(ids)
        assert all("\ufffd" not in piece for piece in pieces) or "\ufffd" in own.decode(ids)


def test_pieces_of_any_ids_are_the_text(bytes_folder):
    """Bytes that are no characters, too."""
    own, draw = Tokenizer(str(bytes_folder)), random.Random(1)
    for _ in range(300):
        ids = [draw.randrange(400) for _ in range(draw.randrange(1, 30))]
        assert "".join(streamed(own, ids)[0]) == own.decode(ids)


def test_a_character_comes_when_it_is_whole(bytes_folder):
    own = Tokenizer(str(bytes_folder))
    single = [own._tokenizer.token_to_id(letter) for letter in _letters()]
    ids = [single[byte] for byte in "🦊a".encode()]
    assert streamed(own, ids)[0] == ["", "", "", "🦊", "a", ""]


def _letters():
    """ByteLevel's letter for each byte."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    more = iter(range(256, 512))
    return [chr(byte) if byte in plain else chr(next(more)) for byte in range(256)]


@pytest.mark.parametrize("stop", [["STOP"], ["xyz", "STOP"], ["TOP", "STOP it"], ["S"]])
def test_stop_strings_are_found_wherever_ids_end(bytes_folder, stop):
    own = Tokenizer(str(bytes_folder))
    text = "Some words, ST and STO, then STOP it here."
    first = min((text.find(word) + len(word), text.find(word)) for word in stop if word in text)[1]
    for ids in (own.encode(text), [i for letter in text for i in own.encode(letter, special=False)]):
        pieces, stream = streamed(own, ids, stop)
        assert stream.stopped and "".join(pieces) == text[:first]


def test_what_only_begins_as_a_stop_string_comes_in_the_end(bytes_folder):
    own = Tokenizer(str(bytes_folder))
    pieces, stream = streamed(own, [i for letter in "all STO" for i in own.encode(letter, special=False)], ["STOP"])
    assert not stream.stopped and "".join(pieces) == "all STO" and pieces[-1] == "STO"


# ---- chat templates


PLAIN = (
    "{%- for message in messages %}\n"
    "    {%- if message['role'] not in ['system', 'user', 'assistant'] %}{{ raise_exception('no role ' + message['role']) }}{%- endif %}\n"
    "    {{- bos_token if loop.first else '' }}[{{ message.role }}] {{ message.content | trim }}{{ eos_token }}\n"
    "{%- endfor %}\n"
    "{%- if tools %}{{ '\\n' }}{{ tools | tojson(indent=2) }}{%- endif %}\n"
    "{%- if add_generation_prompt %}[assistant] {% endif %}"
)
ODD = (
    "{% for m in messages %}\n"
    "  {% if m.content is not defined %}\n  {% continue %}\n  {% endif %}\n"
    "{% generation %}{{ m.content }}{% endgeneration %}\n"
    "{{ m | tojson }} {{ documents is none }} {{ tools is none }} {{ pad_token }}\n"
    "  {% if loop.index > 2 %}{% break %}{% endif %}\n"
    "{% endfor %}\n"
    "{% set ns = namespace(found=false) %}{% set ns.found = true %}{{ ns.found }} {{ enable_thinking | default('unset') }}\n"
)
CHAT = [
    {"role": "system", "content": "Be <brief> & 'kind'. "},
    {"role": "user", "content": "Größe?", "name": None},
    {"role": "assistant", "content": None},
    {"role": "assistant", "content": "1.80 m", "extra": {"a": [1, 2.5, True, None]}},
    {"role": "user", "content": "more"},
]
TOOLS = [{"type": "function", "function": {"name": "f", "description": "Über <b>", "parameters": {"type": "object", "properties": {}}}}]


@pytest.mark.parametrize("text", [PLAIN, ODD], ids=["plain", "odd"])
@pytest.mark.parametrize("where", ["file", "config", "named"])
def test_chats_are_written_as_by_transformers(bytes_folder, tmp_path, text, where):
    config = json.loads((bytes_folder / "tokenizer_config.json").read_text())
    (tmp_path / "tokenizer.json").write_text((bytes_folder / "tokenizer.json").read_text())
    if where == "file":
        (tmp_path / "chat_template.jinja").write_text(text)
        config["chat_template"] = "older"
    elif where == "config":
        config["chat_template"] = text
    else:
        config["chat_template"] = [{"name": "default", "template": text}, {"name": "tool_use", "template": "tools: " + text}]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    theirs, special = of_transformers(tmp_path), Tokenizer(str(tmp_path)).special
    template = ChatTemplate(str(tmp_path), special)
    chat = [m for m in CHAT if m["content"] is not None] if text is PLAIN else CHAT
    for tools in (None, TOOLS):
        for prompt in (False, True):
            expected = theirs.apply_chat_template(chat, tools=tools, tokenize=False, add_generation_prompt=prompt, enable_thinking=False)
            assert template.render(chat, tools, prompt, {"enable_thinking": False}) == expected
    assert template.render(chat) == theirs.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)


def test_a_template_may_refuse_messages(bytes_folder):
    template = from_text(bytes_folder, PLAIN)
    with pytest.raises(maco.Error, match="the chat template refuses these messages: no role wizard"):
        template.render([{"role": "wizard", "content": "x"}])


def from_text(folder, text):
    (folder / "chat_template.jinja").write_text(text)
    return ChatTemplate(str(folder), {})


@pytest.mark.parametrize(
    "text",
    [
        "{{ messages.__class__.__mro__ }}",
        "{{ messages.append(1) }}",
        "{{ ''.__class__.__base__.__subclasses__() }}",
        "{{ strftime_now.__globals__['json'] }}",
        "{{ raise_exception.__globals__.json }}",
        "{{ cycler.__init__.__globals__.os }}",
        "{{ namespace.__init__.__globals__ }}",
        "{% set _ = messages[0].update({'role': 'x'}) %}",
        "{{ '{0.__class__.__mro__}'.format(messages) }}",
        "{{ namespace(__init__=1) }}",
        "{% set ns = namespace() %}{% set ns.__class__ = 1 %}",
        "{{ dict.__subclasses__() }}",
    ],
)
def test_templates_run_in_a_sandbox(tmp_path, text):
    with pytest.raises(maco.Error, match="the chat template"):
        from_text(tmp_path, text).render([{"role": "user", "content": "x"}])


def test_wrong_templates_and_messages(tmp_path):
    with pytest.raises(maco.Error, match="has no chat template"):
        ChatTemplate(str(tmp_path), {})
    with pytest.raises(maco.Error, match="the chat template is wrong: "):
        from_text(tmp_path, "{% for %}").render([{"role": "user", "content": "x"}])
    template = from_text(tmp_path, PLAIN)
    with pytest.raises(maco.Error, match="at least one message"):
        template.render([])
    for wrong in ("hello", {"role": "user"}, ["hello"], 5):
        with pytest.raises(TypeError, match="'role'"):
            template.render(wrong)
    with pytest.raises(TypeError, match="can't hold a object"):
        template.render([{"role": "user", "content": object()}])
    with pytest.raises(TypeError, match="tools are JSON schemas"):
        template.render([{"role": "user", "content": "x"}], [print])


def test_the_time_is_in_the_template(tmp_path):
    from datetime import datetime

    text = from_text(tmp_path, "{{ strftime_now('%Y') }}").render([{"role": "user", "content": "x"}])
    assert abs(int(text) - datetime.now().year) <= 1
