"""SentencePiece: ids by hand, of both layouts, and those of a trained model against the reference."""

import io
import json
import struct
import unicodedata

import numpy as np
import pytest
import tensorflow as tf

from rank4class import data
from rank4class.data.preprocessing.tokenizers.sentencepiece import SentencePiece
from rank4class.data.preprocessing.tokenizers.wordpiece_test import assert_cuts_pairs

LAYOUTS = ("spiece.model", "sentencepiece.bpe.model")
UNKNOWN, CONTROL = 2, 3  # types of pieces; 1 is a normal one
SPECIAL = {
    "spiece.model": {"<pad>": CONTROL, "<unk>": UNKNOWN, "[CLS]": CONTROL, "[SEP]": CONTROL},
    "sentencepiece.bpe.model": {"<unk>": UNKNOWN, "<s>": CONTROL, "</s>": CONTROL},
}
PIECES = ["▁play", "ing", "▁ball", "!", "▁", "Ball", "e", "12", ","]
# Id of the first of PIECES, and those of the start, the end, the unknown piece and padding.
FIRST = {"spiece.model": (4, 2, 3, 1, 0), "sentencepiece.bpe.model": (4, 0, 2, 3, 1)}


def field(number, content):
    """Returns a field of a protocol buffer."""
    return bytes([number << 3 | 2, len(content)]) + content


def model_of(special):
    """Returns a unigram model of special tokens and PIECES, without normalization."""
    pieces = [*special.items(), *((piece, 1) for piece in PIECES)]
    content = b""
    for i, (piece, kind) in enumerate(pieces):
        score = bytes([2 << 3 | 5]) + struct.pack("<f", -i)
        content += field(1, field(1, piece.encode()) + score + bytes([3 << 3, kind]))
    return content + field(3, field(1, b"identity"))


@pytest.fixture
def write(tmp_path):
    """Returns a function that writes the folder of an encoder."""

    def write(file, special=None, **config):
        (tmp_path / file).write_bytes(model_of(special or SPECIAL[file]))
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
        return str(tmp_path)

    return write


def ids_of(tokenizer, *texts):
    features = tokenizer({"text": tf.constant(texts)})
    assert {value.dtype for value in features.values()} == {tf.int32}
    words = features["input_word_ids"].numpy()
    masks = features["input_mask"].numpy()
    return [ids[mask == 1].tolist() for ids, mask in zip(words, masks, strict=True)]


@pytest.mark.parametrize("file", LAYOUTS)
def test_by_hand(write, file):
    tokenizer = data.TOKENIZERS["SentencePiece"].from_folder(write(file), 6)
    first, start, end, unknown, padding = FIRST[file]
    play, ing, ball, mark, space, capital = range(first, first + 6)
    texts = ["playing  ball", "", "ball ball! playing", "zzz", "Ball", "[CLS]</s>"]
    ids = ids_of(tokenizer, *texts)
    assert ids[:4] == [
        [start, play, ing, ball, end],
        [start, end],
        [start, ball, ball, mark, play, end],
        [start, space, unknown, end],
    ]
    assert ids[4][1:-1] == ([ball] if file == "spiece.model" else [space, capital])
    assert not {start, end} & set(ids[5][1:-1])  # literal special tokens
    padded = tokenizer({"text": tf.constant(texts)})["input_word_ids"].numpy()
    assert padded[1].tolist() == [start, end, *[padding] * 4]
    assert tokenizer.size == len(SPECIAL[file]) + len(PIECES) + (2 if file == LAYOUTS[1] else 0)
    assert tokenizer({"text": tf.constant([], tf.string)})["input_mask"].shape == [0, 6]


@pytest.mark.nightly
@pytest.mark.parametrize("max_length", [6, 7, 12])
@pytest.mark.parametrize("file", LAYOUTS)
def test_pairs_are_cut_as_those_of_word_pieces(write, file, max_length):
    tokenizer = SentencePiece.from_folder(write(file), max_length)
    first, start, end, _, padding = FIRST[file]
    pieces = {first: "play", first + 2: "ball"}
    assert_cuts_pairs(tokenizer, pieces, max_length, start, end, padding, separators=1 + (file == LAYOUTS[1]))


def test_a_pair_needs_room(write):
    tokenizer = SentencePiece.from_folder(write(LAYOUTS[1]), 5)
    with pytest.raises(ValueError, match=r"data\.max_length=5: too small\. Choose at least 6"):
        tokenizer({"text": tf.constant(["play"]), "text_pair": tf.constant(["ball"])})


@pytest.mark.nightly
@pytest.mark.parametrize("file", LAYOUTS)
def test_settings_and_assets_restore_the_tokenizer(write, tmp_path, file):
    tokenizer = SentencePiece.from_folder(write(file, do_lower_case=False), 8)
    texts = {"text": tf.constant(["Ball! play", "", "élan"]), "text_pair": tf.constant(["ball", "a", ""])}
    for name, content in tokenizer.assets.items():
        (tmp_path / "again").mkdir(exist_ok=True)
        (tmp_path / "again" / name).write_bytes(content)
    settings = json.loads(json.dumps(tokenizer.settings))
    restored = data.kind_of(texts).restore("SentencePiece", settings)
    for other in (restored, SentencePiece.from_folder(str(tmp_path / "again"), 8)):
        assert other.settings == tokenizer.settings
        for name, expected in tokenizer(texts).items():
            np.testing.assert_array_equal(other.with_static_length()(texts)[name], expected)
    module = tf.Module()
    module.tokenizer = tokenizer
    module.encode = tf.function(tokenizer, input_signature=[{"text": tf.TensorSpec([None], tf.string)}])
    tf.saved_model.save(module, str(tmp_path / "model"))
    exported = tf.saved_model.load(tmp_path / "model").encode({"text": texts["text"]})
    expected = tokenizer({"text": texts["text"]})
    np.testing.assert_array_equal(exported["input_word_ids"], expected["input_word_ids"])


def test_wrong_folders(write, tmp_path):
    for file, config, message in (
        (
            LAYOUTS[0],
            {"tokenizer_class": "BigBirdTokenizer"},
            "'BigBirdTokenizer' is not supported, only 'Alb",
        ),
        (LAYOUTS[0], {"keep_accents": True}, r"tokenizer_config\.json: keep_accents True is not supported"),
        (LAYOUTS[0], {"special": SPECIAL[LAYOUTS[1]]}, r"spiece\.model: no <pad>\. Give the model of an ALB"),
        (LAYOUTS[1], {"tokenizer_class": "CamembertTokenizer"}, "not supported, only 'XLMRobertaTokenizer'"),
    ):
        with pytest.raises(ValueError, match=message):
            SentencePiece.from_folder(write(file, **config), 8)
        (tmp_path / file).unlink()
    (tmp_path / LAYOUTS[0]).write_text("version https://git-lfs.github.com/spec/v1\n")
    (tmp_path / "tokenizer_config.json").unlink()
    with pytest.raises(ValueError, match=r"spiece\.model: not a complete SentencePiece model\. Download it"):
        SentencePiece.from_folder(str(tmp_path), 8)
    (tmp_path / LAYOUTS[0]).unlink()
    with pytest.raises(
        FileNotFoundError, match=r"spiece\.model: no such file, and no sentencepiece\.bpe\.mo"
    ):
        SentencePiece.from_folder(str(tmp_path), 8)


TEXTS = [
    *(
        "My card hasn't arrived, after 2 weeks!",
        "``Crème brûlée'' costs 1,200 \u20ac",
        "\u00a0two\u2003spaces \t",
    ),
    *(
        "\ufb01ne \uff21\uff22\uff23 \u2460 a\u0301",
        "\u4e2d\u6587 \u041f\u0440\u0438\u0432\u0435\u0442",
        "",
        " ",
    ),
    "what is the ISTANBUL exchange rate for my top up",
]


def cleaned(text):
    """Returns a text as `AlbertTokenizer.preprocess_text` of transformers cleans it."""
    text = " ".join(text.strip().split()).replace("``", '"').replace("''", '"')
    decomposed = unicodedata.normalize("NFKD", text)
    return "".join(c for c in decomposed if not unicodedata.combining(c)).lower()


@pytest.mark.parametrize("file", LAYOUTS)
def test_ids_of_a_trained_model_match_the_reference(tmp_path, file):
    """The model is normalized as the published ones. tf-models-official brings the reference."""
    reference = pytest.importorskip("sentencepiece")
    special = {"pad_id": 0, "unk_id": 1, "bos_id": -1, "eos_id": -1, "control_symbols": ["[CLS]", "[SEP]"]}
    content = io.BytesIO()
    reference.SentencePieceTrainer.train(
        sentence_iterator=iter([cleaned(text) for text in TEXTS] * 5),
        model_writer=content,
        vocab_size=90,
        hard_vocab_limit=False,
        minloglevel=2,
        **(special if file == "spiece.model" else {}),
    )
    (tmp_path / file).write_bytes(content.getvalue())
    processor = reference.SentencePieceProcessor(model_proto=content.getvalue())
    ids = ids_of(SentencePiece.from_folder(str(tmp_path), 128), *TEXTS)
    for text, actual in zip(TEXTS, ids, strict=True):
        if file == "spiece.model":
            expected = [2, *processor.encode(cleaned(text)), 3]
        else:  # `XLMRobertaTokenizer._convert_token_to_id` of transformers
            expected = [0, *(3 if i == 0 else i + 1 for i in processor.encode(text)), 2]
        assert actual == expected, text
