"""Export of a run's text encoder in Hugging Face's layout."""

import os

from rank4class.models import checkpoints
from rank4class.pipelines.evaluation.trained_model import TrainedModel
from rank4class.pipelines.storage import files


def save(trained: TrainedModel, folder: str | os.PathLike) -> None:
    """Writes the encoder of a run, fine-tuned or frozen, with its tokenizer; the files appear all or none.

    Raises:
      ValueError: the encoder is none of `checkpoints.HUGGING_FACE`, or does not fit the layout.
    """
    inputs = trained.description.inputs
    name = trained.experiment.encoder.name
    if name not in checkpoints.HUGGING_FACE:
        known = " or ".join(map(repr, checkpoints.HUGGING_FACE))
        raise ValueError(
            f"format='huggingface': the encoder {name!r} is not {known}. Set it to 'saved_model'."
        )
    encoder = inputs.encoder or trained.model.encoder
    tokenizer = inputs.preprocess
    contents = checkpoints.hugging_face_files(encoder, tokenizer.special.padding) | tokenizer.assets
    with files.new_folder(folder) as partial:
        for name, content in contents.items():
            files.write(os.path.join(partial, name), content)
