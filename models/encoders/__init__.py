"""Instance encoders: features to one vector per instance, `h` of shape `[B, d]`.

An encoder is a Keras layer that is called on the features of an instance, a dict of tensors. Its attribute
`FEATURES` names the features that it takes, and `width` is `d`.
"""

from rank4class.models.encoders.base import WithWeightDecay, check_features
from rank4class.models.encoders.bert import Bert
from rank4class.models.encoders.efficientnet import EfficientNetLite0
from rank4class.models.encoders.electra import Electra
from rank4class.models.encoders.mpnet import Mpnet
from rank4class.models.encoders.resnet50 import ResNet50
from rank4class.models.encoders.small_cnn import SmallCnn
from rank4class.models.encoders.static import Static
from rank4class.models.encoders.vectors import Identity, InstanceEmbedding, Mlp
from rank4class.models.encoders.vgg16 import Vgg16
from rank4class.models.encoders.words import Words
from rank4class.models.encoders.xlm_roberta import XlmRoberta
