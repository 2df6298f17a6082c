"""Export of a run's text encoder in Hugging Face's layout."""

import os

from rank4class.models import checkpoints
from rank4class.models.encoders import Bert
from rank4class.pipelines.evaluation.trained_model import TrainedModel
from rank4class.pipelines.storage import files


def save(trained: TrainedModel, folder: str | os.PathLike) -> None:
    """Writes the encoder of a run, fine-tuned or frozen, with its tokenizer; the files appear all or none.

    Raises:
      ValueError: the encoder is not a BERT or an ELECTRA, or does not fit the layout.
    """
    inputs = trained.description.inputs
    encoder = inputs.encoder if inputs.encoder is not None else getattr(trained.model, "encoder", None)
    if not isinstance(encoder, Bert):
        raise ValueError(
            f"format='huggingface': the encoder {trained.experiment.encoder.name!r} is not a BERT or an "
            "ELECTRA. Set it to 'saved_model'."
        )
    settings = inputs.preprocess.settings
    contents = checkpoints.hugging_face_files(
        encoder, settings["vocab"], lower_case=settings["lower_case"], max_length=settings["max_length"]
    )
    with files.new_folder(folder) as partial:
        for name, content in contents.items():
            files.write(os.path.join(partial, name), content)
