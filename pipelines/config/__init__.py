"""The typed description of an experiment, its parts, and its checks.

Importing this package imports no TensorFlow; `check` does when it is called.
"""

from rank4class.pipelines.config.checks import (
    CHECKPOINTS,
    DECAYS,
    EXPORT_FORMATS,
    EXPORT_INDICES,
    STRATEGIES,
    check,
    check_optimizer,
    check_seed,
)
from rank4class.pipelines.config.experiment import (
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
    value_of,
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
from rank4class.pipelines.config.user_modules import import_file, import_user_module

__all__ = [
    "CHECKPOINTS",
    "DECAYS",
    "EXPORT_FORMATS",
    "EXPORT_INDICES",
    "PARTS",
    "STRATEGIES",
    "ClassEncoder",
    "CountPrior",
    "Data",
    "Encoder",
    "Experiment",
    "Interaction",
    "Loss",
    "Optimizer",
    "Part",
    "changed_fields",
    "check",
    "check_field",
    "check_optimizer",
    "check_seed",
    "check_types",
    "first_difference",
    "from_json",
    "has_field",
    "import_file",
    "import_user_module",
    "override",
    "parse_value",
    "to_json",
    "user_parts",
    "value_of",
    "value_type",
    "values",
]
