"""Calls on a number of threads."""

from labelgrove.core.resources import using


def on_threads(count, function, *arguments, **options):
    """What the function gives if it may use so many threads."""
    with using(threads=count):
        return function(*arguments, **options)
