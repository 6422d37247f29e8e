"""The end of a process that used the kernels: silent, whatever is still alive then."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow


# torch with CUDA keeps modules and a user's objects alive; a reference too many does the same.
SCRIPT = """
import atexit, ctypes, importlib.util, sys
if importlib.util.find_spec("torch"):
    import torch
atexit.register(lambda: print("tables at exit:", char_tables.cache_info().currsize))
import labelgrove
from labelgrove import _native
from labelgrove.text import field_terms
from labelgrove.text.tfidf import Tfidf
from labelgrove.text.unicode_tables import char_tables

tfidf = Tfidf().fit(["un été à la plage", "ΟΔΟΣ"])
print("tables:", char_tables.cache_info().currsize)
for reference in (char_tables, tfidf, sys.modules["labelgrove.text.field_terms"]):
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(reference))
classes = tuple(value for value in vars(_native).values() if isinstance(value, type))
modules = [module for name, module in sys.modules.items() if name.startswith("labelgrove")]
print("globals:", [n for m in modules for n, v in vars(m).items() if isinstance(v, classes)])
"""


def test_objects_that_outlive_python_are_not_reported_and_ours_are_freed():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True)
    assert done.stderr == ""
    assert done.stdout.splitlines() == ["tables: 1", "globals: []", "tables at exit: 0"]
