"""Commands print what they printed: fixtures/transcripts has sessions of a user, folder by folder.

``support/pages.py`` says how outputs are compared; ``--update-pages`` writes what is printed now.
Besides ``labelgrove``, a session knows ``cat FILE`` (its first lines, or the words of a page),
``write FILE TEXT``, ``<<< TEXT``, and ``silently`` before what prints something else each time.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from support.pages import shows

SESSIONS = sorted((Path(__file__).parents[1] / "fixtures" / "transcripts").glob("*.txt"))


def printed(command, folder, run):
    """All that a command of a session prints, and its exit status if that is not 0."""
    line, _, given = command.partition(" <<< ")
    if line.startswith("write "):
        _, file, text = line.split(" ", 2)
        (folder / file).write_text(text.replace(r"\n", "\n") + "\n", "utf-8")
        return ""
    program, *arguments = shlex.split(line.removeprefix("silently "))
    if program == "cat":
        if not (folder / arguments[0]).is_file():
            return "no such file\n"
        text = (folder / arguments[0]).read_text("utf-8")
        if arguments[0].endswith(".html"):
            words = re.sub(r"(?s)<style.*?</style>|<script.*?</script>|<[^>]*>", " ", text)
            return " ".join(words.rpartition("Time and memory")[0].split()) + "\n"
        return "".join(text.splitlines(keepends=True)[:8])
    done = run(*arguments, check=False, stdin=given + "\n", cwd=folder)
    if line.startswith("silently "):
        return f"exit {done.returncode}\n"
    return done.stdout + done.stderr + (f"exit {done.returncode}\n" if done.returncode else "")


@pytest.mark.slow
@pytest.mark.parametrize("session", SESSIONS, ids=lambda path: path.stem)
def test_commands_print_what_they_printed(session, run, tmp_path, request, monkeypatch):
    monkeypatch.setenv("COLUMNS", "98")
    before = re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", session.read_text("utf-8"), re.M)
    now = []
    for command, shown in before:
        text = printed(command, tmp_path, run).replace("python -m pytest.", "")
        text = re.sub(r"^(?=\$ )", " ", text, flags=re.M)
        now.append((command, shown if shows(shown, text) else text))
    if request.config.getoption("--update-pages"):
        session.write_text("".join(f"$ {command}\n{text}" for command, text in now), "utf-8")
    assert now == before
