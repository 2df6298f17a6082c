"""Pipelines: experiments of losses, models and data, from their config to their report."""

from rank4class import compat

compat.require_extra("train")
compat.choose_keras_2()
compat.require_keras_2("rank4class.pipelines")
