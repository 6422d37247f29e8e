"""What may import what: rooms import only downwards, and the light parts stay light."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import labelgrove
from labelgrove.methods import METHODS, method_class
from labelgrove.methods.base import Model
from labelgrove.methods.settings import groups_of

# Needs its extra on purpose; everything else must import without any optional package.
NEEDS_EXTRA = (
    "labelgrove.engines.ray",
    "labelgrove.exchange.export.encoder_graph",
    "labelgrove.methods.cascadexml.",
    "labelgrove.methods.dual.method",
    "labelgrove.methods.dual.net",
    "labelgrove.methods.lightxml.",
    "labelgrove.methods.linear.vectors",
    "labelgrove.methods.neighbours.reading",
    "labelgrove.methods.networks",
    "labelgrove.methods.neural",
    "labelgrove.methods.preparation",
    "labelgrove.methods.xrtransformer.",
    "labelgrove.methods.xtransformer.matching",
    "labelgrove.methods.xtransformer.method",
    "labelgrove.nn",
    "labelgrove.serve",
)

# The floors of the house, from the ground up: a room may import its own modules and rooms on lower
# floors, nothing else. Imports inside functions and under TYPE_CHECKING count.
FLOORS = (
    ("errors", "_native"),
    ("core",),
    ("disk", "engines"),
    ("data",),
    ("text", "labels"),
    ("evaluation",),
    ("ranking",),
    ("nn",),
    ("methods",),
    ("exchange",),
    ("experiments", "serve"),
    ("cli", ""),
    ("__main__",),
)
# An arrow is a room that imports another, however often. Think before you raise these numbers.
MOST_FLOORS, MOST_ARROWS = 13, 105
SOURCE = Path(labelgrove.__file__).parent

BLOCKER = """
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked!r}:
            raise ModuleNotFoundError(f"{{name}} is blocked in this test", name=name)
sys.meta_path.insert(0, Blocker())
"""


def run(source: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, check=False, timeout=120
    )


@cache
def imports() -> dict[str, set[str]]:
    """For each module of the package, the modules of the package that it imports anywhere."""
    files = {
        ".".join(("labelgrove", *path.relative_to(SOURCE).with_suffix("").parts)): path
        for path in SOURCE.rglob("*.py")
    }
    files = {name.removesuffix(".__init__"): path for name, path in files.items()}
    files["labelgrove._native"] = SOURCE / "_native.pyi"
    found: dict[str, set[str]] = {}
    for module, path in files.items():
        targets = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                targets |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{module}: imports are absolute"
                base = node.module or ""
                names = {f"{base}.{alias.name}" for alias in node.names}
                targets |= {name if name in files else base for name in names}
        found[module] = {t for t in targets if t in files and t != module}
    found["labelgrove._native"] = set()  # the stub file names types; the extension imports nothing
    return found


def room(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def test_rooms_import_only_downwards() -> None:
    floors = {name: height for height, names in enumerate(FLOORS) for name in names}
    upward = [
        f"{module} imports {target}"
        for module, targets in imports().items()
        for target in targets
        if room(target) != room(module) and floors[room(target)] >= floors[room(module)]
    ]
    assert not upward, "\n".join(sorted(upward))


def test_the_house_stays_small() -> None:
    arrows = {
        (room(module), room(target))
        for module, targets in imports().items()
        for target in targets
        if room(target) != room(module)
    }
    assert len(FLOORS) <= MOST_FLOORS
    assert len(arrows) <= MOST_ARROWS


def test_a_method_has_one_class_above_it() -> None:
    pytest.importorskip("torch")
    for name in METHODS:
        own, *above, top = method_class(name).__mro__
        assert (above, top) == ([Model], object), f"{name}: {own} is over {above}"


def test_every_room_has_a_floor() -> None:
    rooms = {path.name for path in SOURCE.iterdir() if (path / "__init__.py").exists()}
    rooms |= {path.stem for path in SOURCE.glob("*.py")} - {"__init__"}
    assert rooms == {name for names in FLOORS for name in names} - {"", "_native"}


def test_no_module_imports_itself_through_others() -> None:
    graph = imports()
    done: set[str] = set()

    def visit(module: str, path: tuple[str, ...]) -> None:
        assert module not in path, " -> ".join((*path[path.index(module) :], module))
        if module in done:
            return
        for target in graph[module]:
            visit(target, (*path, module))
        done.add(module)

    for module in graph:
        visit(module, ())


@pytest.mark.slow
def test_everything_imports_without_torch_and_the_other_extras() -> None:
    modules = [
        module.name
        for module in pkgutil.walk_packages(labelgrove.__path__, "labelgrove.")
        if not module.name.startswith(NEEDS_EXTRA) and not module.name.endswith("__main__")
    ]
    modules.append("labelgrove.serve.client")  # works without the extra of the service
    assert "labelgrove.methods.linear.method" in modules
    blocked = {"torch", "transformers", "fastapi", "pyarrow", "optuna"}
    blocked |= {"onnx", "onnxruntime", "onnxscript", "huggingface_hub", "tokenizers"}
    blocked |= {"matplotlib", "jinja2", "prometheus_client", "safetensors"}
    blocked |= {"openpyxl", "pandas", "polars"}
    source = BLOCKER.format(blocked=blocked)
    source += "\n".join(f"import {name}" for name in modules)
    done = run(source)
    assert done.returncode == 0, done.stderr


def test_a_neural_method_without_torch_says_what_to_install() -> None:
    done = run(
        BLOCKER.format(blocked={"torch"}) + "from labelgrove.methods import create\n"
        "from labelgrove.errors import MissingExtraError\n"
        "try:\n    create('lightxml')\n"
        "except MissingExtraError as error:\n    print(error)\n"
    )
    assert "pip install 'torch>=" in done.stdout, done.stderr


@pytest.mark.slow
def test_training_and_prediction_use_no_library_that_is_slow_to_import() -> None:
    blocked = {"torch", "pydantic", "pydantic_core", "pyarrow", "pandas", "sklearn"}
    source = BLOCKER.format(blocked=blocked) + (
        "import labelgrove\n"
        "model = labelgrove.Linear().fit(['red shoe', 'blue hat'], [['a'], ['b']])\n"
        "assert model.predict(['hat'], k=1).names() == [['b']]\n"
    )
    done = run(source)
    assert done.returncode == 0, done.stderr


def test_importing_labelgrove_loads_nothing_heavy() -> None:
    done = run(
        "import sys, labelgrove\n"
        "heavy = {'numpy', 'scipy', 'sklearn', 'typer', 'rich', 'torch', 'difflib'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    assert done.stdout.strip() == "[]", done.stderr


def test_public_names_all_resolve() -> None:
    for name in labelgrove.__all__:
        assert getattr(labelgrove, name) is not None
    assert set(labelgrove.__all__) <= set(dir(labelgrove))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = labelgrove.nothing


def test_every_method_and_its_groups_are_public() -> None:
    for name in METHODS:
        kind = method_class(name)
        assert getattr(labelgrove, kind.__name__) is kind
        for group in groups_of(kind).values():
            assert getattr(labelgrove, group.kind.__name__) is group.kind


def test_type_checkers_see_every_public_name() -> None:
    tree = ast.parse((SOURCE / "__init__.py").read_text(encoding="utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    imported = {
        alias.asname: node.module
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.name == alias.asname
    }
    assert imported == labelgrove._HOME


def test_integrations_import_names_that_exist() -> None:
    """Their own tests need other software, so `make test` does not run them."""
    for file in (SOURCE.parents[1] / "integrations").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("labelgrove"):
                module = importlib.import_module(node.module or "")
                for alias in node.names:
                    assert hasattr(module, alias.name), f"{file}: {node.module}.{alias.name}"


def test_help_loads_nothing_heavy() -> None:
    heavy = {"numpy", "scipy", "sklearn", "torch", "fastapi", "matplotlib", "jinja2", "pydantic"}
    done = run(
        "import sys\nsys.argv = ['labelgrove', '--help']\n"
        "from labelgrove.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        f"print(sorted({heavy!r} & set(sys.modules)), file=sys.stderr)"
    )
    assert "train" in done.stdout
    assert done.stderr.strip() == "[]"


# What no prediction of a linear model needs: libraries, and our own rooms.
SLOW = {"scipy", "sklearn", "torch", "pandas", "pyarrow", "rich", "jinja2", "huggingface_hub"}
SLOW |= {"safetensors", "matplotlib"}
OTHERS = {"evaluation.metrics", "exchange.annif", "exchange.export", "exchange.hub", "experiments"}
OTHERS |= {"methods.updating.update"}
UNUSED = SLOW | {f"labelgrove.{name}" for name in OTHERS}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved") / "model"
    labelgrove.Linear().fit(["red shoe", "blue hat"], [["a"], ["b"]]).save(folder)
    return folder


def called(before: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command line, which then prints what it imported without need to standard error."""
    return run(
        f"import io, sys\nsys.argv = {['labelgrove', *arguments]!r}\n{before}\n"
        "from labelgrove.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        f"print(sorted({UNUSED!r} & set(sys.modules)), file=sys.stderr)"
    )


@pytest.mark.slow
def test_predicting_loads_only_what_it_uses(saved: Path) -> None:
    stdin = "sys.stdin = io.TextIOWrapper(io.BytesIO('Hüte: a hat'.encode()))"
    done = called(stdin, "predict", str(saved), "-", "-k1")
    assert '["b"]' in done.stdout
    assert done.stderr.strip() == "[]"


@pytest.mark.slow
def test_serving_loads_only_what_it_uses(saved: Path) -> None:
    no_server = "import uvicorn\nuvicorn.Server.run = lambda self, sockets: print('ready')"
    done = called(no_server, "serve", str(saved), "--port", "0")
    assert done.stdout.strip() == "ready", done.stderr
    assert done.stderr.splitlines()[-1] == "[]"


def test_the_package_is_typed() -> None:
    assert (Path(labelgrove.__file__).parent / "py.typed").exists()
