"""Do the tests notice faults? Puts random one-line faults into modules and runs their tests.

    python -m benchmarks.testing.mutants --modules 'evaluation/*' data/formats/xc.py --count 50
        [--jobs 2] [--coverage .coverage]

The tests of a module a/b.py are tests/a/test_b.py, tests/test_a_b.py and tests/test_b.py, as far as
they exist, and its own doctests. What they do not notice is tried with tests that run the line, at
most 200; ``pytest --cov=labelgrove --cov-context=test`` (of pytest-cov) writes
their ``--coverage``. A test counts if it fails with the fault and passes without it.

A fault is a flipped comparison, ``+`` for ``-``, a constant off by one or with the other sign,
``min`` for ``max``, ``and`` for ``or``, a negated condition, an index off by one, or a removed
statement. Every fault goes into a copy of the checkout, never into the checkout itself. Faults
that change no behaviour are listed in mutants_equivalent.txt with their reasons and do not count.
The same seed draws the same faults. Tests run in forks of one process that has imported NumPy and
pytest already, so this does not work on Windows.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import difflib
import fnmatch
import importlib
import multiprocessing
import os
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = Path("src/labelgrove")
EQUIVALENT = Path(__file__).with_name("mutants_equivalent.txt")
NOT_COPIED = (".git", ".venv*", "build", "__pycache__", ".*_cache", ".hypothesis", "results")

MOST_TESTS = 200  # that run a line and are tried
SECONDS = 400.0  # that tests may take; with a fault they may never end

COMPARISONS = "Lt:LtE,GtE LtE:Lt,Gt Gt:GtE,LtE GtE:Gt,Lt Eq:NotEq NotEq:Eq Is:IsNot IsNot:Is"
OPERATORS = "Add:Sub Sub:Add Mult:Div Div:Mult FloorDiv:Mult Mod:FloorDiv Pow:Mult LShift:RShift"
OPERATORS += " RShift:LShift BitAnd:BitOr BitOr:BitAnd And:Or Or:And"
SWAPS = dict(pair.split(":") for pair in f"{COMPARISONS} In:NotIn NotIn:In {OPERATORS}".split())
# They compare settings and options with fixtures, and run no line of the modules that have them.
PINNED = (
    "tests/test_contract_settings.py::test_settings_have_the_defaults_bounds_and_help_that_they_had",
    "tests/cli/test_help.py::test_commands_take_what_they_took",
)
NAMES = {"min": "max", "minimum": "maximum", "any": "all", "argmin": "argmax", "floor": "ceil"}
NAMES |= {other: name for name, other in NAMES.items()}
REMOVABLE = (ast.AugAssign, ast.Raise, ast.Continue, ast.Break, ast.Delete)


class Fault(NamedTuple):
    """A text to put in the place of some bytes of a module; without a text there is no fault."""

    module: Path  # below the package
    line: int = 0
    start: int = 0
    end: int = 0
    text: str = ""

    def source(self) -> bytes:
        """The module with the fault in it."""
        source = source_of(self.module)
        return source[: self.start] + self.text.encode() + source[self.end :]

    def diff(self) -> str:
        """The changed lines, before (-) and after (+)."""
        old, new = (text.decode().splitlines() for text in (source_of(self.module), self.source()))
        lines = list(difflib.unified_diff(old, new, n=0))[2:]
        return "\n".join(f"{line[0]} {line[1:].strip()}" for line in lines if line[0] in "-+")

    def put_into(self, copy: Path) -> None:
        """Writes the module and removes its bytecode, which Python knows by second and size."""
        target = copy / PACKAGE / self.module
        target.write_bytes(self.source())
        for cached in (target.parent / "__pycache__").glob(f"{target.stem}.*.pyc"):
            cached.unlink()


@cache
def source_of(module: Path) -> bytes:
    return (ROOT / PACKAGE / module).read_bytes()


def faulty(node: ast.AST) -> Iterator[str]:
    """Source text of the faulty versions of one node."""
    match node:
        case ast.Compare(left, ops, right):
            for i, op in enumerate(ops):
                for other in swapped(op):
                    changed = [*ops[:i], other, *ops[i + 1 :]]
                    yield ast.unparse(ast.Compare(left, changed, right))
        case ast.BinOp(left, op, right):
            yield from (f"({ast.unparse(ast.BinOp(left, other, right))})" for other in swapped(op))
        case ast.BoolOp(op, values):
            yield from (f"({ast.unparse(ast.BoolOp(other, values))})" for other in swapped(op))
        case ast.AugAssign(target, op, value):
            yield from (ast.unparse(ast.AugAssign(target, other, value)) for other in swapped(op))
        case ast.UnaryOp(ast.USub() | ast.Not() | ast.Invert(), operand):
            yield f"({ast.unparse(operand)})"
        case ast.Constant(bool(value)):
            yield str(not value)
        case ast.Constant(int(value) | float(value)):
            numbers = dict.fromkeys((value + 1, value - 1, -value))
            yield from (f"({number!r})" for number in numbers if number != value)
        case ast.Name(name) | ast.Attribute(_, name) if name in NAMES:
            yield ast.unparse(node).removesuffix(name) + NAMES[name]
        case ast.Slice(lower, upper, None):
            before, after = (ast.unparse(bound) if bound else "" for bound in (lower, upper))
            if before and not isinstance(lower, ast.Constant):
                yield f"{before} + 1:{after}"
            if after and not isinstance(upper, ast.Constant):
                yield from (f"{before}:{after} + 1", f"{before}:{after} - 1")
    if isinstance(node, REMOVABLE) or _is_effect(node):
        yield "pass"


def swapped(operator: ast.AST) -> list[Any]:
    """The operators that replace this one in faults."""
    names = SWAPS.get(type(operator).__name__, "")
    return [getattr(ast, name)() for name in names.split(",") if name]


def _is_effect(node: ast.AST) -> bool:
    """Whether a statement only has an effect: a call, or assigning to an attribute or an item."""
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Call | ast.Yield | ast.YieldFrom)
    return isinstance(node, ast.Assign) and not isinstance(node.targets[0], ast.Name | ast.Tuple)


def _nodes(tree: ast.AST) -> Iterator[tuple[ast.AST, bool]]:
    """All nodes that run, and whether each is a condition; not annotations, not f-strings.

    The parts of an f-string have wrong positions before Python 3.12.
    """
    for field, value in ast.iter_fields(tree):
        if field in ("annotation", "returns", "decorator_list"):
            continue
        if isinstance(tree, ast.keyword) and tree.arg == "strict":
            continue  # zip(strict=True) only guards against other faults
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or isinstance(child, ast.JoinedStr):
                continue
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                continue
            yield child, field in ("test", "ifs")
            yield from _nodes(child)


def faults_of(module: Path) -> Iterator[Fault]:
    """All faults that can be put into a module."""
    source = source_of(module)
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for node, is_condition in _nodes(ast.parse(source)):
        if not isinstance(node, ast.expr | ast.stmt | ast.Slice):
            continue
        start = starts[node.lineno - 1] + node.col_offset
        end = starts[node.end_lineno - 1] + node.end_col_offset  # type: ignore[operator]
        texts = list(faulty(node))
        if is_condition and not isinstance(node, ast.UnaryOp):
            texts.append(f"(not ({ast.unparse(node)}))")
        yield from (Fault(module, node.lineno, start, end, text) for text in texts)


def equivalents(path: Path = EQUIVALENT) -> list[re.Pattern[str]]:
    """Patterns of diffs that change nothing: lines with - and +, * for any text, then a reason."""
    patterns, lines = [], list[str]()
    for line in path.read_text("utf-8").splitlines() if path.exists() else ():
        if line.startswith(("- ", "+ ")):
            lines.append(re.escape(line).replace(r"\*", ".*"))
        elif line.startswith("= "):
            patterns.append(re.compile("\n".join(lines)))
            lines.clear()
    return patterns


def tests_of(module: Path) -> list[str]:
    """Paths of the tests that should notice a fault in this module."""
    room, name, tests = module.parent.as_posix(), module.stem, ROOT / "tests"
    names = [f"{room}/test_{name}.py", f"test_{room.replace('/', '_')}_{name}.py"]
    names.append(f"test_{name}.py")
    paths = [tests / name for name in dict.fromkeys(names) if (tests / name).exists()]
    if b">>>" in source_of(module):
        paths.append(ROOT / PACKAGE / module)
    return [str(path.relative_to(ROOT)) for path in paths]


def covering(coverage: Any, fault: Fault) -> list[str]:
    """Tests that run the lines of the fault: those of its room first, then some of the others.

    Of a line that runs when the module is imported, those that run any line of the module, and
    those that look at what the module says.
    """
    lines = source_of(fault.module)[fault.start : fault.end].count(b"\n")
    contexts = coverage.contexts_by_lineno(str(ROOT / PACKAGE / fault.module))
    numbers = range(fault.line, fault.line + lines + 1)
    pinned: tuple[str, ...] = ()
    if all(contexts.get(line, [""]) == [""] for line in numbers):
        numbers, pinned = contexts, PINNED
    tests = {name.partition("|")[0] for line in numbers for name in contexts.get(line, ())} - {""}
    near = sorted(test for test in tests if test.startswith(f"tests/{fault.module.parts[0]}/"))
    far = sorted(tests.difference(near))
    room = MOST_TESTS - len(near)
    return [*pinned, *near[:MOST_TESTS]] + (
        far[:: -(-len(far) // room)] if far and room > 0 else []
    )


def passes(fault: Fault, copy: Path, tests: list[str]) -> bool:
    """Runs the tests in the copy, in a fork of this process; False if they take too long."""
    fault.put_into(copy)
    shutil.rmtree(copy / ".hypothesis", ignore_errors=True)
    pid = os.fork()
    if not pid:
        os.setsid()
        os.chdir(copy)
        with (copy / "log.txt").open("w") as log:
            for stream in (1, 2):
                os.dup2(log.fileno(), stream)
        resource.setrlimit(resource.RLIMIT_AS, (1 << 35, 1 << 35))
        os.environ["PYTHONPATH"] = f"{copy / 'site'}{os.pathsep}{copy / 'src'}"
        sys.path.insert(0, str(copy / "src"))
        import pytest

        options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--doctest-modules"]
        options.append("--timeout=60")  # of a test
        # 5 is that no test ran: nothing was noticed.
        os._exit(int(pytest.main([*options, "--hypothesis-seed=0", *tests])) % 5)
    started, done, status = time.monotonic(), 0, 1
    while not done and time.monotonic() < started + SECONDS:
        time.sleep(0.02)
        done, status = os.waitpid(pid, os.WNOHANG)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)  # with all that the tests may have started
    if not done:
        os.waitpid(pid, 0)
    Fault(fault.module).put_into(copy)
    return bool(done) and not status


def noticed(fault: Fault, copy: Path, tests: list[str]) -> bool:
    """Whether a test fails with the fault that passes without it."""
    broken: list[str] = []
    while tests and not passes(fault, copy, [*tests, *broken]):
        log = (copy / "log.txt").read_text(errors="replace")
        gone = re.findall(r"^ERROR: not found: (.*)$", log, re.M)  # since coverage was measured
        if gone:
            tests = [test for test in tests if f"{copy}/{test}" not in gone]
            continue
        failed = re.findall(r"^(?:FAILED|ERROR) (\S.*?)(?: - .*)?$", log, re.M)
        if passes(Fault(fault.module), copy, failed or tests):
            return True
        if not failed:
            return False  # they take too long without the fault, too
        broken += [f"--deselect={test}" for test in failed]
    return False


def make_copies(folder: Path, count: int) -> list[Path]:
    """Copies of the checkout that Python imports from, even if there is an editable install."""
    code = "sys.meta_path[:] = [f for f in sys.meta_path if 'Redirect' not in type(f).__name__]"
    exec(code)
    copies = [folder / str(number) for number in range(count)]
    for copy in copies:
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(*NOT_COPIED))
        (copy / "site").mkdir()
        (copy / "site" / "sitecustomize.py").write_text(f"import sys\n{code}\n")
        for native in (n for path in sys.path for n in Path(path).glob("labelgrove/_native*.so")):
            shutil.copy(native, copy / PACKAGE)
    return copies


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--modules", nargs="+", default=["*"], help="patterns, such as 'text/*'")
    parser.add_argument("--count", type=int, default=100, help="faults to draw")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--coverage", help="a file of coverage that knows the tests of each line")
    args: Any = parser.parse_args()
    paths = sorted(path.relative_to(ROOT / PACKAGE) for path in (ROOT / PACKAGE).rglob("*.py"))
    modules = [p for p in paths if any(fnmatch.fnmatch(p.as_posix(), m) for m in args.modules)]
    every = [fault for module in modules for fault in faults_of(module)]
    drawn = random.Random(args.seed).sample(every, min(args.count, len(every)))
    known = equivalents()
    faults = sorted(f for f in drawn if not any(p.fullmatch(f.diff()) for p in known))
    print(f"{len(every):,} possible faults in {len(modules)} modules, {len(drawn)} drawn,")
    print(f"{len(drawn) - len(faults)} of them known to change nothing", flush=True)
    for name in ("pytest", "numpy", "scipy.sparse", "hypothesis", "sklearn.model_selection"):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)  # once, here, instead of in every fork
    own = {fault: tests_of(fault.module) for fault in faults}
    others = {fault: list[str]() for fault in faults}
    if args.coverage:
        from coverage import CoverageData

        data = CoverageData(args.coverage)
        data.read()  # in a fork, it would begin anew
        others = {fault: covering(data, fault) for fault in faults}
    with tempfile.TemporaryDirectory(prefix="mutants") as folder:
        copies = make_copies(Path(folder), args.jobs)
        left = unnoticed(faults, copies, own)
        say("found by the modules' own tests", faults, left)
        if args.coverage:
            left = unnoticed(left, copies, others)
            say("found by these or others that run the line", faults, left)
    for fault in left:
        print(f"unnoticed: {fault.module}:{fault.line}\n{fault.diff()}")


def unnoticed(
    faults: list[Fault], copies: list[Path], tests: dict[Fault, list[str]]
) -> list[Fault]:
    """The faults that their tests do not notice; every copy has a process of its own."""
    shares = [faults[number :: len(copies)] for number in range(len(copies))]
    own = [[tests[fault] for fault in share] for share in shares]
    with ProcessPoolExecutor(len(copies), multiprocessing.get_context("fork")) as pool:
        left = [fault for part in pool.map(_unnoticed, shares, copies, own) for fault in part]
    return sorted(left)


def _unnoticed(faults: list[Fault], copy: Path, tests: list[list[str]]) -> list[Fault]:
    pairs = zip(faults, tests, strict=True)
    return [fault for fault, own in pairs if not noticed(fault, copy, own)]


def say(how: str, faults: list[Fault], left: list[Fault]) -> None:
    found = len(faults) - len(left)
    print(f"{found} of {len(faults)} {how}, {found / max(1, len(faults)):.1%}", flush=True)


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":  # the order of sets must not decide
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, *sys.argv])
    main()
