from ritornello.core.markdown import table


def test_a_table_has_a_line_for_each_row_whatever_is_in_its_cells():
    assert table(["name", "score"], [["a|b", "1 ± 2"], ["c\nd", "\x1b[31m"]]) == [
        "| name | score |",
        "| --- | --- |",
        "| a\\|b | 1 ± 2 |",
        r"| c\nd | \x1b[31m |",
    ]
