"""The main program of every BUILD test: runs pytest on the files it is given."""

import sys

import pytest

if __name__ == "__main__":
    sys.exit(pytest.main(sys.argv[1:]))
