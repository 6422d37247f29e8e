"""``python -m labelgrove`` is the ``labelgrove`` command."""

from labelgrove.cli import main

if __name__ == "__main__":
    main()
