"""Instance encoders: features to one vector per instance, `h` of shape `[B, d]`.

An encoder is a Keras layer that is called on the features of an instance, a dict of tensors. Its attribute
`FEATURES` names the features that it takes, and `width` is `d`.
"""

from rank4class.models.encoders.base import WithWeightDecay, check_features
from rank4class.models.encoders.images import ResNet50, SmallCnn, Vgg16
from rank4class.models.encoders.text import Bert, Electra
from rank4class.models.encoders.vectors import Identity, InstanceEmbedding, Mlp
