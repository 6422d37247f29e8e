"""One of several processes that fit and save models; ``divided_models.py FOLDER SETTINGS.json``.

The file has pairs of a method and settings; number n of them is saved as ``FOLDER/n``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch

from labelgrove.core.processes import is_first_process, wait_for_all
from labelgrove.methods import create
from support.small_models import planted

if __name__ == "__main__":
    torch.set_num_threads(1)
    folder = Path(sys.argv[1])
    for number, (method, settings) in enumerate(json.loads(Path(sys.argv[2]).read_text())):
        model = create(method, settings).fit(*planted(40))
        if is_first_process():
            model.save(folder / str(number))
    wait_for_all("cpu")
