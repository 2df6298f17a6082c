"""The typed description of an experiment, and its checks."""

from rank4class.pipelines.config.experiment import (
    AUGMENTATIONS as AUGMENTATIONS,
)
from rank4class.pipelines.config.experiment import (
    CHECKPOINTS as CHECKPOINTS,
)
from rank4class.pipelines.config.experiment import (
    CLASS_ENCODERS as CLASS_ENCODERS,
)
from rank4class.pipelines.config.experiment import (
    COUNT_PRIORS as COUNT_PRIORS,
)
from rank4class.pipelines.config.experiment import (
    DECAYS as DECAYS,
)
from rank4class.pipelines.config.experiment import (
    LARGEST as LARGEST,
)
from rank4class.pipelines.config.experiment import (
    OPTIMIZERS as OPTIMIZERS,
)
from rank4class.pipelines.config.experiment import (
    POSITIVE as POSITIVE,
)
from rank4class.pipelines.config.experiment import (
    PRECISIONS as PRECISIONS,
)
from rank4class.pipelines.config.experiment import (
    SMALLEST as SMALLEST,
)
from rank4class.pipelines.config.experiment import (
    STRATEGIES as STRATEGIES,
)
from rank4class.pipelines.config.experiment import (
    ClassEncoder as ClassEncoder,
)
from rank4class.pipelines.config.experiment import (
    CountPrior as CountPrior,
)
from rank4class.pipelines.config.experiment import (
    Data as Data,
)
from rank4class.pipelines.config.experiment import (
    Encoder as Encoder,
)
from rank4class.pipelines.config.experiment import (
    Experiment as Experiment,
)
from rank4class.pipelines.config.experiment import (
    Interaction as Interaction,
)
from rank4class.pipelines.config.experiment import (
    Loss as Loss,
)
from rank4class.pipelines.config.experiment import (
    Optimizer as Optimizer,
)
from rank4class.pipelines.config.experiment import (
    changed_fields as changed_fields,
)
from rank4class.pipelines.config.experiment import (
    check as check,
)
from rank4class.pipelines.config.experiment import (
    check_field as check_field,
)
from rank4class.pipelines.config.experiment import (
    check_optimizer as check_optimizer,
)
from rank4class.pipelines.config.experiment import (
    check_seed as check_seed,
)
from rank4class.pipelines.config.experiment import (
    check_types as check_types,
)
from rank4class.pipelines.config.experiment import (
    dataset_knobs as dataset_knobs,
)
from rank4class.pipelines.config.experiment import (
    first_difference as first_difference,
)
from rank4class.pipelines.config.experiment import (
    foreign_fields as foreign_fields,
)
from rank4class.pipelines.config.experiment import (
    from_json as from_json,
)
from rank4class.pipelines.config.experiment import (
    knobs as knobs,
)
from rank4class.pipelines.config.experiment import (
    number_type as number_type,
)
from rank4class.pipelines.config.experiment import (
    override as override,
)
from rank4class.pipelines.config.experiment import (
    parse_number as parse_number,
)
from rank4class.pipelines.config.experiment import (
    parse_title as parse_title,
)
from rank4class.pipelines.config.experiment import (
    title as title,
)
from rank4class.pipelines.config.experiment import (
    to_json as to_json,
)
from rank4class.pipelines.config.experiment import (
    value_of as value_of,
)
from rank4class.pipelines.config.experiment import (
    values as values,
)
