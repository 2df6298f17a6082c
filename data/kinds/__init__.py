"""One kind of example per file; `kind.KINDS` imports the file of a kind."""
