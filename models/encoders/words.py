"""The encoder of words: TF-IDF vectors of texts."""

import functools
import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from rank4class import arguments, compat
from rank4class.models.registry import ENCODERS, Part

_BLOCK = 512  # texts at a time
_CHARACTERS = 512  # of a text, those whose runs are terms


@ENCODERS.register("words")
class Words(Part):
    r"""TF-IDF vectors of the words of a text and their pairs, and of its runs of two to four characters.

    With $t_j$ occurrences of term $j$ in a text, and $N_j$ of $N$ texts with it, the vector has the values

    $$v_j \propto (1 + \ln t_j) \left(1 + \ln \frac{1 + N}{1 + N_j}\right)$$

    of words and pairs, a part of length 1, and of characters, another one. They are those of scikit-learn's
    `TfidfVectorizer(sublinear_tf=True)` with `ngram_range=(1, 2)`, where words may have one letter, and with
    `analyzer="char_wb", ngram_range=(2, 4)`. Words are runs of letters, digits and underscores, or single
    Chinese characters. Capital letters count as small ones. Terms are known by hashes of 62 bits. A text
    without a known term has the vector 0. The work is linear in the length of the texts.

    Features: `text` string `[B]`, and `text_pair`, whose words follow those of the text.

    Args:
      max_terms: largest width; the terms of most texts are kept.
      min_texts: number of texts that a term needs.
      width: `d`, the number of terms; None until `adapt` chooses them.

    >>> words = Words()
    >>> words.adapt({"text": np.array(["a red car", "a blue car"], object)})
    >>> words.width, np.square(words({"text": tf.constant(["A car!", "bike"])})).sum(axis=1).round(6).tolist()
    (14, [2.0, 0.0])

    References:
      Wang, Manning (2012), "Baselines and bigrams: simple, good sentiment and topic classification".
    """

    FEATURES = ("text",)
    SAVED = ("max_terms", "min_texts", "width")

    def __init__(self, max_terms: int = 65_536, min_texts: int = 2, width: int | None = None, **kwargs: Any):
        super().__init__(**kwargs)
        arguments.check_integer(max_terms=max_terms, min_texts=min_texts)
        self.max_terms = max_terms
        self.min_texts = min_texts
        self.width = width
        # A partial, since TensorFlow warns if many encoders trace one and the same function.
        rows = functools.partial(self._sparse_rows)
        self._rows = tf.function(rows, autograph=False, reduce_retracing=True)

    def build(self, shapes: Any) -> None:
        if self.width is None:
            raise ValueError("width=None: the terms are not chosen. Call adapt on the training texts first.")
        options = {"shape": [self.width], "initializer": "zeros", "trainable": False}
        self.hashes = self.add_weight(name="hashes", dtype=tf.int64, **options)
        self.idf = self.add_weight(name="idf", dtype=tf.float32, **options)
        super().build(shapes)

    def adapt(self, features: Mapping[str, np.ndarray]) -> None:
        """Chooses the terms and their weights by the texts of a training split.

        Args:
          features: `text` object `[N]`, and `text_pair` if there are pairs.

        Raises:
          ValueError: no term is in `min_texts` texts.
        """
        hashes, counts = [], []
        for block in _blocks(features):
            terms = _terms(block)
            texts = np.stack([terms.value_rowids().numpy(), terms.flat_values.numpy()], axis=1)
            each, count = np.unique(np.unique(texts, axis=0)[:, 1], return_counts=True)
            hashes.append(each)
            counts.append(count)
        known, places = np.unique(np.concatenate(hashes), return_inverse=True)
        num_texts = np.bincount(places, np.concatenate(counts)).astype(np.int64)
        most = np.argsort(-num_texts, kind="stable")[: self.max_terms]
        kept = np.sort(most[num_texts[most] >= self.min_texts])
        if not len(kept):
            problem = "no word is in as many training texts. Lower it, or choose another encoder."
            raise ValueError(f"min_texts={self.min_texts}: {problem}")
        self.width = len(kept)
        self.build(None)
        total = len(features["text"])
        self.set_weights([known[kept], 1.0 + np.log((1.0 + total) / (1.0 + num_texts[kept]))])

    def rows(self, features: Mapping[str, np.ndarray]) -> Any:
        """Returns the vectors of texts, float32 `[N, d]`, as sparse rows; see `adapt`."""
        scipy_sparse = compat.import_extra("scipy.sparse", "data")
        blocks = []
        for block in _blocks(features):
            sparse = self._rows(block)
            rows, columns = sparse.indices.numpy().T
            shape = sparse.dense_shape.numpy()
            blocks.append(scipy_sparse.csr_array((sparse.values.numpy(), (rows, columns)), shape))
        return scipy_sparse.csr_array(scipy_sparse.vstack(blocks))

    def call(self, features: Mapping[str, tf.Tensor]) -> tf.Tensor:
        sparse = self._sparse_rows(features)
        return tf.ensure_shape(
            tf.scatter_nd(sparse.indices, sparse.values, sparse.dense_shape), [None, self.width]
        )

    def _sparse_rows(self, features: Mapping[str, tf.Tensor]) -> tf.SparseTensor:
        terms = _terms(features)
        hashes = terms.flat_values
        known = tf.convert_to_tensor(self.hashes)
        width = known.shape[0]
        columns = tf.minimum(tf.searchsorted(known, hashes, out_type=tf.int64), width - 1)
        is_known = tf.gather(known, columns) == hashes
        cells = tf.boolean_mask(terms.value_rowids() * width + columns, is_known)
        cells, _, counts = tf.unique_with_counts(cells)
        rows, columns = cells // width, cells % width
        values = (1.0 + tf.math.log(tf.cast(counts, tf.float32))) * tf.gather(self.idf, columns)
        parts = 2 * rows + tf.gather(known, columns) % 2
        squares = tf.math.unsorted_segment_sum(tf.square(values), parts, 2 * terms.nrows())
        values /= tf.gather(tf.sqrt(squares), parts)
        return tf.SparseTensor(tf.stack([rows, columns], axis=1), values, [terms.nrows(), width])


def _terms(features: Mapping[str, tf.Tensor]) -> tf.RaggedTensor:
    """Returns the hashes of the terms of texts, ragged int64 `[B, terms]`, even ones of words."""
    texts = [features[name] for name in ("text", "text_pair") if name in features]
    tf_text = compat.import_extra("tensorflow_text", "data")
    folded = tf_text.case_fold_utf8(tf.strings.join(texts, separator=" "))
    spaced = tf.strings.regex_replace(folded, r"\p{Han}", r" \0 ")
    words = tf.strings.split(tf.strings.regex_replace(spaced, r"[^\p{L}\p{M}\p{N}_]+", " "))
    pairs = tf.strings.ngrams(words, (1, 2))
    runs = tf.strings.split(tf.strings.substr(folded, 0, _CHARACTERS, unit="UTF8_CHAR"))
    characters = tf.strings.unicode_split(tf.strings.join([" ", runs, " "]), "UTF-8")
    grams = tf.strings.ngrams(characters, (2, 3, 4), separator="").merge_dims(1, 2)

    def hashes(terms: tf.RaggedTensor, is_odd: int) -> tf.RaggedTensor:
        values = tf.strings.to_hash_bucket_fast(terms.flat_values, 2**62)
        return terms.with_flat_values(2 * values + is_odd)

    return tf.concat([hashes(pairs, 0), hashes(grams, 1)], axis=1)


def _blocks(features: Mapping[str, np.ndarray]) -> Iterator[dict[str, tf.Tensor]]:
    for i in range(math.ceil(len(features["text"]) / _BLOCK)):
        block = slice(i * _BLOCK, (i + 1) * _BLOCK)
        yield {name: tf.constant(values[block]) for name, values in features.items()}
