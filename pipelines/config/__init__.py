"""The typed description of an experiment and its parts. Importing this package imports no TensorFlow."""

from rank4class.pipelines.config.experiment import (
    ALTERNATIVES,
    CHECKPOINTS,
    DECAYS,
    EXPORT_FORMATS,
    EXPORT_INDICES,
    STRATEGIES,
    Experiment,
    changed_fields,
    check_field,
    check_types,
    first_difference,
    from_json,
    has_field,
    override,
    parse_value,
    to_json,
    user_parts,
    value_type,
    values,
)
from rank4class.pipelines.config.parts import (
    PARTS,
    ClassEncoder,
    CountPrior,
    Data,
    Encoder,
    Interaction,
    Loss,
    Optimizer,
    Part,
)
