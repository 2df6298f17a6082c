"""Texts of the classes, from a file."""

from rank4class.data import sources


def class_descriptions(path, class_names):
    """Reads a description for every class.

    Args:
      path: UTF-8 file, a class a line: its name, a tab, its description.
      class_names: all of them.

    Returns:
      The descriptions, in the order of the names.

    Raises:
      FileNotFoundError: no file.
      ValueError: a line of another form, a name that is unknown or comes twice, a class without a line.
    """
    descriptions = {}
    for where, line in sources.lines(path):
        name, tab, description = line.partition("\t")
        if not tab or not description.strip():
            raise ValueError(f"{where} is not a class name, a tab and a description")
        if name not in class_names:
            raise ValueError(f"{where} describes {name!r}, which is none of {', '.join(class_names)}")
        if name in descriptions:
            raise ValueError(f"{where} describes {name!r} again")
        descriptions[name] = description
    missing = [name for name in class_names if name not in descriptions]
    if missing:
        raise ValueError(f"{path} has no description of {', '.join(missing)}")
    return [descriptions[name] for name in class_names]
