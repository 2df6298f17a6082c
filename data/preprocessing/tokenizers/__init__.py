"""Texts to the inputs of text encoders, in the graph: tokenizers by name."""

from rank4class.data.preprocessing.tokenizers.base import TOKENIZERS, SpecialTokens, Tokenizer
