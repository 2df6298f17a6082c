"""One kind of example per file. Importing this package registers all of them."""

import importlib
import pkgutil

for _module in pkgutil.iter_modules(__path__):
    if not _module.name.endswith("_test"):
        importlib.import_module(f"rank4class.data.kinds.{_module.name}")
