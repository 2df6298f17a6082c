"""Whether n-choose-k models can make something of the classes of the training examples."""

import numpy as np

CONDITIONED = ("n_choose_k", "top_k_gain")  # losses of which set an example has, given its size


def check(experiment, train):
    """Raises ValueError, naming the example and the remedy, where such a model cannot learn from it.

    Args:
      experiment: a checked `config.Experiment`.
      train: the `data.Split`.
    """
    section = experiment.count_prior
    if train.multi_label:
        _check_counts(experiment, train)
        if experiment.loss.name == "n_choose_k":
            _check_levels(experiment.loss.levels, train)
    elif section.name != "none":
        raise ValueError(
            f"count_prior.name {section.name!r} is for data of several classes an example; those of "
            f"{experiment.data.name!r} have one each"
        )


def _check_counts(experiment, train):
    section, sizes = experiment.count_prior, train.num_relevant()
    if section.name == "none":
        if experiment.loss.name in CONDITIONED and not sizes.all():
            origin, loss = train.origin(np.argmin(sizes)), experiment.loss.name
            raise ValueError(
                f"the example of {origin} has no class: loss {loss!r} is about which classes an example has, "
                "given how many, and nothing follows from none. Leave it out, or have the number learnt too: "
                "count_prior.name=learned"
            )
    elif section.name in ("learned", "fixed"):
        if section.name == "fixed":
            chances = np.array(section.probabilities)
        else:
            chances = np.ones((section.most or sizes.max()) + 1)
        knob = "probabilities" if section.name == "fixed" else "most"
        if len(chances) > train.labels.shape[1] + 1:
            raise ValueError(
                f"count_prior.{knob} goes up to {len(chances) - 1} classes, and there are "
                f"{train.labels.shape[1]}"
            )
        chances = np.append(chances, np.zeros(max(0, sizes.max() + 1 - len(chances))))
        if not chances[sizes].all():
            i = np.argmin(chances[sizes])
            raise ValueError(
                f"the example of {train.origin(i)} has {sizes[i]} classes, to which count_prior.{knob} "
                "leaves no chance"
            )


def _check_levels(levels, train):
    grades = train.labels.data
    outside = np.flatnonzero((grades != np.floor(grades)) | (grades >= levels))
    if outside.size:
        i = np.searchsorted(train.labels.indptr, outside[0], side="right") - 1
        raise ValueError(
            f"the example of {train.origin(i)} has a label of {grades[outside[0]]:g}, which is no whole "
            f"number below loss.levels {levels}: set it to {np.floor(grades.max()) + 1:g}, or number the "
            "levels from 0"
        )
    used = set(grades.astype(int))
    missing = sorted(set(range(1, max(used, default=0))) - used)
    if missing:
        raise ValueError(
            f"the training labels are {', '.join(map(str, sorted(used)))}, and none is {missing[0]}: number "
            "the levels without a gap"
        )
