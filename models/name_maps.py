"""How published checkpoints call the tensors of our variables: one declarative map a source."""

import dataclasses
import re


@dataclasses.dataclass(frozen=True)
class NameMap:
    """How a source calls the tensors of our variables.

    Attributes:
      names: pattern of our name -> template of the source's.
      unused: pattern of the source's tensors that no encoder takes.
      transposed: pattern of our names whose matrices the source keeps as [out, in].
    """

    names: dict
    unused: str
    transposed: str = ""

    def source(self, name):
        for pattern, template in self.names.items():
            match = re.fullmatch(pattern, name)
            if match:
                return match.expand(template)
        raise ValueError(f"the name map has no entry for the variable {name}")


_LAYER = r"transformer/layer_(\d+)"


def _google(scope):
    """google-research's TF1 checkpoints of BERT and ELECTRA."""
    layer = rf"{scope}/encoder/layer_\1"
    return {
        r"word_embeddings/embeddings": f"{scope}/embeddings/word_embeddings",
        r"position_embedding/embeddings": f"{scope}/embeddings/position_embeddings",
        r"type_embeddings/embeddings": f"{scope}/embeddings/token_type_embeddings",
        r"embeddings/layer_norm/(gamma|beta)": rf"{scope}/embeddings/LayerNorm/\1",
        r"embedding_projection/(kernel|bias)": rf"{scope}/embeddings_project/\1",
        rf"{_LAYER}/self_attention/(query|key|value)/(kernel|bias)": rf"{layer}/attention/self/\2/\3",
        rf"{_LAYER}/self_attention/attention_output/(kernel|bias)": rf"{layer}/attention/output/dense/\2",
        rf"{_LAYER}/self_attention_layer_norm/(gamma|beta)": rf"{layer}/attention/output/LayerNorm/\2",
        rf"{_LAYER}/(intermediate|output)/(kernel|bias)": rf"{layer}/\2/dense/\3",
        rf"{_LAYER}/output_layer_norm/(gamma|beta)": rf"{layer}/output/LayerNorm/\2",
        r"pooler_transform/(kernel|bias)": rf"{scope}/pooler/dense/\1",
    }


_SLOTS = r"global_step|.*/adam_[mv]"
GOOGLE_BERT = NameMap(_google("bert"), unused=rf"cls/.*|{_SLOTS}")
GOOGLE_ELECTRA = NameMap(
    _google("electra"), unused=rf"(generator|generator_predictions|discriminator_predictions)/.*|{_SLOTS}"
)

_VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"
_GARDEN_LAYER = r"encoder/_transformer_layers/\1"
MODEL_GARDEN_BERT = NameMap(
    {
        r"word_embeddings/embeddings": "encoder/_embedding_layer/embeddings" + _VALUE,
        r"position_embedding/embeddings": "encoder/_position_embedding_layer/embeddings" + _VALUE,
        r"type_embeddings/embeddings": "encoder/_type_embedding_layer/embeddings" + _VALUE,
        r"embeddings/layer_norm/(gamma|beta)": r"encoder/_embedding_norm_layer/\1" + _VALUE,
        r"embedding_projection/(kernel|bias)": r"encoder/_embedding_projection/\1" + _VALUE,
        rf"{_LAYER}/self_attention/(query|key|value)/(kernel|bias)": _GARDEN_LAYER
        + r"/_attention_layer/_\2_dense/\3"
        + _VALUE,
        rf"{_LAYER}/self_attention/attention_output/(kernel|bias)": _GARDEN_LAYER
        + r"/_attention_layer/_output_dense/\2"
        + _VALUE,
        rf"{_LAYER}/self_attention_layer_norm/(gamma|beta)": _GARDEN_LAYER
        + r"/_attention_layer_norm/\2"
        + _VALUE,
        rf"{_LAYER}/(intermediate|output)/(kernel|bias)": _GARDEN_LAYER + r"/_\2_dense/\3" + _VALUE,
        rf"{_LAYER}/output_layer_norm/(gamma|beta)": _GARDEN_LAYER + r"/_output_layer_norm/\2" + _VALUE,
        r"pooler_transform/(kernel|bias)": r"encoder/_pooler_layer/\1" + _VALUE,
    },
    # The rest of a training run: heads, optimizer, counters.
    unused=r"(?!encoder/).*|.*/\.OPTIMIZER_SLOT/.*",
)
MODEL_GARDEN_RESNET = NameMap(
    {
        r"layer_(\d+)/(kernel|gamma|beta|moving_mean|moving_variance)": r"backbone/layer_with_weights-\1/\2"
        + _VALUE,
        r"layer_(\d+)/(\w+)/(\w+)": r"backbone/layer_with_weights-\1/_\2/\3" + _VALUE,
    },
    unused=r"(?!backbone/).*|.*/\.OPTIMIZER_SLOT/.*",
)

_TORCH_LAYER = r"encoder.layer.\1"
HUGGING_FACE = NameMap(
    {
        r"word_embeddings/embeddings": "embeddings.word_embeddings.weight",
        r"position_embedding/embeddings": "embeddings.position_embeddings.weight",
        r"type_embeddings/embeddings": "embeddings.token_type_embeddings.weight",
        r"embeddings/layer_norm/gamma": "embeddings.LayerNorm.weight",
        r"embeddings/layer_norm/beta": "embeddings.LayerNorm.bias",
        r"embedding_projection/kernel": "embeddings_project.weight",
        r"embedding_projection/bias": "embeddings_project.bias",
        rf"{_LAYER}/self_attention/(query|key|value)/kernel": rf"{_TORCH_LAYER}.attention.self.\2.weight",
        rf"{_LAYER}/self_attention/(query|key|value)/bias": rf"{_TORCH_LAYER}.attention.self.\2.bias",
        rf"{_LAYER}/self_attention/attention_output/kernel": rf"{_TORCH_LAYER}.attention.output.dense.weight",
        rf"{_LAYER}/self_attention/attention_output/bias": rf"{_TORCH_LAYER}.attention.output.dense.bias",
        rf"{_LAYER}/self_attention_layer_norm/gamma": rf"{_TORCH_LAYER}.attention.output.LayerNorm.weight",
        rf"{_LAYER}/self_attention_layer_norm/beta": rf"{_TORCH_LAYER}.attention.output.LayerNorm.bias",
        rf"{_LAYER}/(intermediate|output)/kernel": rf"{_TORCH_LAYER}.\2.dense.weight",
        rf"{_LAYER}/(intermediate|output)/bias": rf"{_TORCH_LAYER}.\2.dense.bias",
        rf"{_LAYER}/output_layer_norm/gamma": rf"{_TORCH_LAYER}.output.LayerNorm.weight",
        rf"{_LAYER}/output_layer_norm/beta": rf"{_TORCH_LAYER}.output.LayerNorm.bias",
        r"pooler_transform/kernel": "pooler.dense.weight",
        r"pooler_transform/bias": "pooler.dense.bias",
    },
    # A buffer that only counts the positions, and the heads of models saved for pre-training.
    unused=r"embeddings\.position_ids|cls\..*|discriminator_predictions\..*",
    transposed=r".*/kernel",
)
KERAS_RESNET = NameMap({r"(.*)": r"\1"}, unused=r"predictions/.*")
OWN = NameMap({r"(.*)": r"\1"}, unused="")
