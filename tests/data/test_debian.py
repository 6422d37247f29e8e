"""Debian's index files: parsing made-up ones, and how apt is asked for real ones."""

from __future__ import annotations

import gzip
import lzma
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labelgrove.data import apt
from labelgrove.data.debian import (
    debian_documents,
    debian_label_rows,
    dependency_names,
    long_descriptions,
    parse_packages,
    parse_paragraphs,
    plain_description,
    tag_names,
)
from labelgrove.errors import ConfigError, DataError

PACKAGES = """\
Package: teapot
Source: tea-tools (2.1)
Version: 1.0-2
Architecture: amd64
Pre-Depends: base-water (>= 1)
Depends: libleaf2 (>= 2.0~), cup | mug, teapot, libleaf2 (<< 3), sugar:any
Description: pours tea
Description-md5: 11
Tag: role::program, use::{pouring,
 warming}, works-with::tea
Section: kitchen

Package: libleaf2
Source: leaf
Description: leaves as a library
 All about leaves,
 in one place.
 .
  * green
  * black
Description-md5: 22

Package: cup
Depends: clay
Description: vessel for drinks
Description-md5: 33
"""
TRANSLATION = """\
Package: teapot
Description-md5: 11
Description-en: pours tea
 It pours tea
 without a drop lost.
"""


def packages(text: str = PACKAGES, translation: str = TRANSLATION):
    described = long_descriptions(translation.splitlines())
    return {package.name: package for package in parse_packages(text.splitlines(), described)}


def test_packages_are_joined_with_their_descriptions():
    found = packages()
    assert list(found) == ["teapot", "libleaf2", "cup"]
    teapot = found["teapot"]
    assert teapot.text == "pours tea\nIt pours tea without a drop lost."
    assert teapot.source == "tea-tools"
    assert teapot.depends == ("base-water", "libleaf2", "cup", "sugar")
    assert teapot.tags == ("role::program", "use::pouring", "use::warming", "works-with::tea")
    # A description that is whole in the index itself needs no translation file.
    assert found["libleaf2"].description == "All about leaves, in one place.\n* green\n* black"
    assert found["cup"].text == "vessel for drinks"


def test_documents_hold_neither_name_nor_dependencies():
    documents = list(debian_documents(packages(), labels="depends"))
    assert [d.id for d in documents] == ["teapot", "cup"]
    assert documents[0].labels == ["base-water", "libleaf2", "cup", "sugar"]
    assert "teapot" not in documents[0].text and "libleaf2" not in documents[0].text
    tagged = list(debian_documents(packages(), labels="debtags"))
    assert [d.id for d in tagged] == ["teapot"]


def test_label_rows_tell_what_a_dependency_is():
    rows = {row[0]: row for row in debian_label_rows(packages())}
    assert rows["cup"] == ("cup", "cup", "vessel for drinks")
    assert rows["clay"] == ("clay", "clay", "")  # nobody packages it
    assert sorted(rows) == ["base-water", "clay", "cup", "libleaf2", "sugar"]
    tags = list(debian_label_rows(packages(), labels="debtags"))
    assert ("works-with::tea", "works-with::tea", "works with: tea") in tags


def test_wrong_kind_of_labels():
    with pytest.raises(ConfigError, match="depends, debtags"):
        list(debian_documents(packages(), labels="recommends"))


def test_the_first_index_wins(tmp_path):
    (tmp_path / "a_Packages").write_text(PACKAGES)
    (tmp_path / "b_Packages").write_text(PACKAGES.replace("pours tea", "pours coffee"))
    found = apt.read_packages(apt.find_indexes(tmp_path))
    assert found["teapot"].synopsis == "pours tea"
    assert len(found) == 3


@pytest.mark.parametrize(
    ("field", "names"),
    [
        ("", []),
        (" , ,", []),
        ("a (= 1.0), b [linux-any] <!nocheck>, c:native", ["a", "b", "c"]),
        ("libstdc++6, g++-12 | clang", ["libstdc++6", "g++-12"]),
        ("${misc:Depends}, x", ["x"]),
        ("a,\n b,\n c", ["a", "b", "c"]),
    ],
)
def test_dependency_fields(field, names):
    assert dependency_names(field) == names


@given(st.text(max_size=80))
def test_parsers_take_any_text(text):
    for name in dependency_names(text):
        assert name and not set(name) & set(" ,|()[]:<>")
    for tag in tag_names(text):
        assert tag and not set(tag) & set(" ,{}\n")
    synopsis, description = plain_description(text)
    assert "\n" not in synopsis and "\n\n" not in description
    list(parse_packages(text.splitlines()))


_NAME = st.text("abcXYZ-", min_size=1, max_size=8)
_VALUE = st.text("abc 1:#", max_size=10).map(str.strip)


@given(st.lists(st.dictionaries(_NAME, _VALUE, min_size=1, max_size=4), max_size=4))
def test_paragraphs_come_back(paragraphs):
    text = "\n\n".join("\n".join(f"{k}: {v}" for k, v in p.items()) for p in paragraphs)
    assert list(parse_paragraphs(text.split("\n"))) == paragraphs


def test_index_files_of_every_compression(tmp_path, monkeypatch):
    (tmp_path / "a_Packages").write_text(PACKAGES)
    with gzip.open(tmp_path / "b_Packages.gz", "wt") as file:
        file.write(PACKAGES.replace("cup", "bowl"))
    with lzma.open(tmp_path / "c_i18n_Translation-en.xz", "wt") as file:
        file.write(TRANSLATION)
    (tmp_path / "d_Packages.lz4").write_text(PACKAGES.replace("cup", "jug"))
    (tmp_path / "a_InRelease").write_text("Origin: Debian")
    helper = _script(tmp_path / "apt-helper", 'test "$1" = cat-file && cat "$2"')
    monkeypatch.setattr(apt, "APT_HELPER", helper)
    indexes = apt.find_indexes(tmp_path)
    assert [path.name[0] for path in indexes.packages] == ["a", "b", "d"]
    found = apt.read_packages(indexes)
    assert sorted(found) == ["bowl", "cup", "jug", "libleaf2", "teapot"]
    assert found["teapot"].description
    assert indexes.notes == ["3 of 5 packages have only a synopsis"]


def test_synopses_alone_are_said_to_be_so(tmp_path):
    (tmp_path / "Packages").write_text(PACKAGES)
    indexes = apt.find_indexes(tmp_path)
    assert apt.read_packages(indexes)["teapot"].text == "pours tea"
    assert "no Translation-en" in indexes.notes[0]


def test_damaged_index_names_its_file(tmp_path):
    (tmp_path / "Packages.gz").write_bytes(b"no gzip")
    with pytest.raises(DataError, match=r"Packages\.gz: cannot be read"):
        apt.read_packages(apt.find_indexes(tmp_path))
    (tmp_path / "Packages.gz").rename(tmp_path / "Packages.xz")
    with pytest.raises(DataError, match=r"Packages\.xz: cannot be read"):
        apt.read_packages(apt.find_indexes(tmp_path))


def test_folders_without_indexes(tmp_path, monkeypatch):
    with pytest.raises(DataError, match="has no Packages files"):
        apt.find_indexes(tmp_path)
    with pytest.raises(DataError, match="not a folder"):
        apt.find_indexes(tmp_path / "nowhere")
    (tmp_path / "Packages.lz4").write_text("")
    monkeypatch.setattr(apt, "APT_HELPER", tmp_path / "nowhere")
    with pytest.raises(DataError, match=r"\.lz4 files need apt"):
        apt.read_packages(apt.find_indexes(tmp_path))


def test_no_apt_on_this_machine(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DataError, match="apt-get is not installed"):
        apt.fetch_indexes(tmp_path / "private")


# Stands in for apt-get: "update" writes lists of two vendors where it is told to, "indextargets"
# names them, and every call is written down.
FAKE_APT = """
echo "$@" >> {log}
for word in "$@"; do
  case "$word" in
    --option=Dir::State::lists=*) lists="${{word#--option=Dir::State::lists=}}" ;;
    --config-file=*) cat "${{word#--config-file=}}" >> {log} ;;
    update) printf 'Package: x\\nDescription: x\\n' > "$lists/deb_Packages"
            cp "$lists/deb_Packages" "$lists/vendor_Packages"
            echo "E: vendor is not signed" >&2; exit 100 ;;
    indextargets) printf 'Packages\\t{origin}\\ttrixie\\t%s\\n' "$lists/deb_Packages"
                  printf 'Packages\\tVendor\\tany\\t%s\\n' "$lists/vendor_Packages"
                  printf 'Translations\\t{origin}\\ttrixie\\t%s\\n' "$lists/absent" ;;
  esac
done
"""


@pytest.mark.parametrize("origin", ["Debian", "Raspbian"])
def test_apt_works_in_a_folder_of_its_own(tmp_path, monkeypatch, origin):
    log = tmp_path / "log"
    private = tmp_path / "private"
    private.mkdir()
    _script(tmp_path / "bin" / "apt-get", FAKE_APT.format(log=log, origin=origin))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    indexes = apt.fetch_indexes(private, arch="riscv64")
    names = [path.name for path in indexes.packages]
    if origin == "Debian":
        assert names == ["deb_Packages"]
        assert indexes.notes == ["package lists of Debian trixie"]
    else:
        assert names == ["deb_Packages", "vendor_Packages"]
        assert indexes.notes[1] == "Debian is not among apt's sources; used Raspbian, Vendor"
    assert indexes.translations == []
    assert all(private in path.parents for path in indexes.packages)
    told = log.read_text()
    assert f"Dir::Cache={private}/cache/" in told
    assert "APT::Architecture=riscv64" in told
    assert "Acquire::Languages=en" in told
    assert "#clear APT::Update::Post-Invoke;" in told


def test_apt_that_brings_nothing_is_quoted(tmp_path, monkeypatch):
    private = tmp_path / "private"
    private.mkdir()
    _script(tmp_path / "bin" / "apt-get", 'echo "E: mirror is down" >&2; exit 100')
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    with pytest.raises(DataError, match="downloaded no package lists: E: mirror is down"):
        apt.fetch_indexes(private)


def _script(path: Path, body: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path
