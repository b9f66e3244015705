"""Reports that the page does not know: every shape of file that could hold a table, and those that do not."""

import json
from pathlib import Path
from typing import Any

import pytest

from geo_assets.reports.site.credits import VIEW_CHANGE, credit_of, credits_table
from geo_assets.reports.site.tables import MAX_ROWS, Table, cell, heading, table_of, tables_in


def read(tmp_path: Path, body: Any) -> list[Table]:
    path = tmp_path / "some_report.json"
    path.write_text(body if isinstance(body, str) else json.dumps(body))
    return tables_in(path, "Some report")


def test_a_list_of_rows_is_a_table_without_its_versions(tmp_path: Path) -> None:
    (table,) = read(
        tmp_path, [{"arm": "a", "country_pct": 12.5, "sweep_version": "x"}, {"arm": "b", "note": "n"}]
    )
    assert (table.caption, list(table.columns)) == ("Some report", ["arm", "country %", "note"])
    assert [list(row) for row in table.rows] == [["a", "12.5", "–"], ["b", "–", "n"]]
    assert table.texts == {0, 2}


def test_title_note_columns_and_rows_are_taken_as_they_are_said(tmp_path: Path) -> None:
    body = {
        "title": "T",
        "note": "N",
        "columns": [{"name": "x", "label": "the x"}, "y_km"],
        "rows": [{"x": 1, "y_km": -2.0}],
    }
    (table,) = read(tmp_path, body)
    assert (table.caption, table.note, list(table.columns), list(table.rows[0])) == (
        "T",
        "N",
        ["the x", "y km"],
        ["1", "−2"],
    )
    (table,) = read(tmp_path, {"columns": {"x": "Ex"}, "rows": [{"x": None}]})
    assert (list(table.columns), list(table.rows[0])) == (["Ex"], ["–"])
    (table,) = read(tmp_path, {"columns": ["a", "b"], "rows": [[1, True]]})
    assert list(table.rows[0]) == ["1", "yes"]


@pytest.mark.parametrize("key", ["tables", "sections", "findings"])
def test_several_tables_in_one_file(tmp_path: Path, key: str) -> None:
    body = {
        key: [
            {"title": "A", "rows": [{"v": 1}]},
            {"title": "B", "rows": []},
            {"title": "C", "rows": ["word"]},
        ]
    }
    assert [(table.caption, list(table.rows[0])) for table in read(tmp_path, body)] == [
        ("A", ["1"]),
        ("C", ["word"]),
    ]


@pytest.mark.parametrize("body", ["{", '"words"', "[]", '{"rows": 3}', '{"figures": {"a": 1}}', "[1, 2]"])
def test_what_is_no_table_is_left_out(tmp_path: Path, body: str) -> None:
    assert read(tmp_path, body) == []


def test_a_long_table_says_how_much_is_left_out(tmp_path: Path) -> None:
    (table,) = read(tmp_path, [{"a": at} for at in range(MAX_ROWS + 5)])
    assert (len(table.rows), table.note) == (MAX_ROWS, "5 more rows in the file.")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, "–"),
        (True, "yes"),
        (1234, "1,234"),
        (-0.123456, "−0.123"),
        (1234.56, "1,235"),
        (0.0, "0"),
        ([1, None], "1, –"),
        ({"a": 0.5}, "a 0.5"),
        ("ten-turn", "ten-turn"),
    ],
)
def test_cells(value: Any, said: str) -> None:
    assert cell(value) == said


def test_headings_and_formats() -> None:
    assert (heading("within_200_pct"), heading("arm")) == ("within 200 %", "arm")
    table = table_of("T", [{"a": "x", "b": -0.5}, {"a": "y", "b": None}], {"a": "{a}", "b": "{b:+.2f}"})
    assert [list(row) for row in table.rows] == [["x", "−0.50"], ["y", "–"]]


def test_credits_name_contributor_licence_source_and_change() -> None:
    from sweeps_lab import make_tasks

    task = make_tasks(1)[0]
    said = {"creator_username": "ana", "licence": "CC-BY-SA-4.0", "source": "Mapillary"}
    credit = credit_of(task.model_copy(update={"attribution": said}))
    assert (credit.contributor, credit.licence, credit.source) == ("ana", "CC BY-SA 4.0", "Mapillary")
    assert credit.licence_url == "https://creativecommons.org/licenses/by-sa/4.0/"
    assert credit.change.startswith("modified")
    unknown = credit_of(task)
    assert (unknown.contributor, unknown.licence) == ("contributor unknown", "licence unknown")
    two = [task, task.model_copy(update={"attribution": said}), task.model_copy(update={"attribution": said})]
    assert [list(row) for row in credits_table(two).rows] == [
        ["ana", "CC BY-SA 4.0", "Mapillary", VIEW_CHANGE, "2"],
        ["contributor unknown", "licence unknown", "mapillary", VIEW_CHANGE, "1"],
    ]
