r"""Shows the size of the cache of encoder outputs, which all runs share, or clears it.

    python -m rank4class.scripts.cache
    python -m rank4class.scripts.cache --clear

An encoder encodes each text or image once. No run needs these files: after `--clear` a training encodes its
texts or images again.
"""

from absl import flags

from rank4class.scripts import cli

cli.define_cache()
_CLEAR = flags.DEFINE_bool("clear", False, "Remove the files.")


def main() -> None:
    from rank4class.pipelines.storage import cache, files

    folder = cache.Cache("").folder
    found = cache.stored(folder)
    size = sum(size for _, size, _ in found) / 1e6
    most = cache.LARGEST / 1e6
    print(f"{folder or 'off'}: {len(found):,} files, {size:,.1f} MB of at most {most:,.0f} MB")
    if _CLEAR.value:
        files.remove(path for _, _, path in found)
        print(f"Removed: {len(found):,} files")


if __name__ == "__main__":
    cli.run(main)
