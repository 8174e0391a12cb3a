"""The page of the benchmarks: each command replaces its own part, and a missed bar is said plainly."""

from __future__ import annotations

import re
from pathlib import Path

from bench.report import Figure, Section, rendered, replaced, write

MET = Figure("requests", "70", "≤ 76", "80", True)
MISSED = Figure("pods | most", "12", "≤ 9", "14", False)
SECTION = Section("One promotion", ("8 replicas",), (MET, MISSED), ("A remark.",))


def test_a_part_is_replaced_and_the_others_are_left(tmp_path: Path) -> None:
    page = tmp_path / "docs" / "benchmarks.md"
    write("control", [SECTION], page)
    write("tuner", [Section("The tuner", (), ())], page)
    before = page.read_text()
    write("control", [Section("Another promotion", (), (MET,))], page)
    text = page.read_text()
    assert text.startswith("# Benchmarks\n")
    assert "One promotion" not in text
    assert "Another promotion" in text
    assert text.partition("<!-- control:end -->")[2] == before.partition("<!-- control:end -->")[2]
    assert text.count("<!-- control:begin -->") == text.count("<!-- tuner:begin -->") == 1


def test_what_a_person_wrote_around_a_part_stays() -> None:
    text = "# Title\n\nby hand\n<!-- a:begin -->\nold\n<!-- a:end -->\nafter\n"
    assert replaced(text, "a", "new\n") == "# Title\n\nby hand\n<!-- a:begin -->\nnew\n<!-- a:end -->\nafter\n"


def test_writing_the_same_twice_changes_nothing(tmp_path: Path) -> None:
    page = tmp_path / "benchmarks.md"
    once = write("control", [SECTION, SECTION], page).read_text()
    assert write("control", [SECTION, SECTION], page).read_text() == once


def test_a_missed_bar_is_marked_and_a_met_one_is_not() -> None:
    lines = rendered(SECTION).splitlines()
    assert next(line for line in lines if "requests" in line).split("|")[4].strip() == "met"
    assert next(line for line in lines if "most" in line).split("|")[-3].strip() == "**missed**"


def test_a_figure_without_a_bar_is_neither_met_nor_missed() -> None:
    row = rendered(Section("S", (), (Figure("CPU", "0.5 s", ""),))).splitlines()[-1]
    assert [cell.strip() for cell in row.split("|")[1:-1]] == ["CPU", "0.5 s", "-", ""]


def test_every_line_of_a_table_has_as_many_cells() -> None:
    table = [line for line in rendered(SECTION).splitlines() if line.startswith("|")]
    assert {line.replace("\\|", "").count("|") for line in table} == {6}
    assert len({len(line) for line in table}) == 1


def test_a_part_says_when_and_on_what_it_was_measured(tmp_path: Path) -> None:
    text = write("x", [SECTION], tmp_path / "page.md").read_text()
    assert re.search(r"^Measured on \d{4}-\d\d-\d\d, commit [0-9a-f]{7,}, .+, Python 3\.", text, re.MULTILINE)
