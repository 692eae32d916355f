"""Tables of benchmarks take the row that they say they take, and fail where there is none."""

import pytest

from bench import part_tables, scale_tables, speed_tables, tables

FIRST = {"utc": "2026-11-21T10:00:00+00:00", "n": 100, "cpu": tables.EPYC, "cores": 2, "device_kind": "cpu"}
FIRST |= {"commit": "aaaaaaaaaa", "dirty": False}
LATER = FIRST | {"utc": "2026-11-22T10:00:00+00:00", "commit": "bbbbbbbbbb", "dirty": True}
SCALED = LATER | {"utc": "2026-11-23T10:00:00+00:00", "scale": "standard"}


def test_the_newest_row_with_the_labels_stands_in_a_table():
    rows = [LATER, SCALED, FIRST]
    assert tables.newest(rows, n=100, scale=None) is LATER
    assert tables.newest(rows, n=100, scale="standard") is SCALED
    assert tables.newest([LATER, again := LATER | {"commit": "c"}], n=100) is again


def test_a_cell_without_a_row_is_an_error():
    with pytest.raises(LookupError, match="'n': 200"):
        tables.newest([FIRST, LATER], n=200)
    with pytest.raises(LookupError):
        speed_tables.shadow_row("pca", 100, threat_model="seed known")


def test_where_the_rows_of_a_table_are_from_is_said():
    said = tables.origin("x.jsonl", [LATER, FIRST, FIRST, LATER | {"cores": 1}])
    assert said.replace("\n", " ") == (
        "Rows of `bench/results/x.jsonl`: 2 cores of an AMD EPYC, 1 core of an AMD EPYC, commits aaaaaaa (2026-11-21), "
        "bbbbbbb with changes (2026-11-22)."
    )


def test_rows_of_another_machine_are_in_no_table_of_two_cores():
    for method in ("mds", "pca"):
        row = speed_tables.shadow_row(method, 1000)
        assert (row["device_kind"], row["cores"], row["data"]) == ("cpu", 2, "mnist")
        assert row["cpu"] == {"mds": tables.XEON, "pca": tables.EPYC}[method]


def test_figures_are_short():
    assert [tables.short(value) for value in (0.00897, 1.62, 107.4, 1234.5)] == ["0.0090", "1.6", "107", "1,234"]
    assert [tables.times(value) for value in (5.4, 87.86, 3093.0)] == ["5.4", "87.9", "3,090"]


def test_growth_says_what_was_not_run_and_takes_exponents_of_what_was(monkeypatch):
    rows = [
        FIRST | {"data": "generated", "method": method, "library": library, "n": n, "wall_s": n**2 / 1e6}
        for method, library in scale_tables.MAPS
        for n in (1000, 3000, 10_000, 30_000, 100_000)
        if (library, n) != ("scikit-learn", 100_000)
    ]
    slow = rows[0] | {"wall_s": 999.0, "utc": "2026-11-20T10:00:00+00:00"}
    other = rows[0] | {"data": "mnist", "wall_s": 999.0}
    monkeypatch.setattr(tables, "rows_of", lambda _: (*rows, slow, other))
    lines = [line.split(" | ") for line in scale_tables.block("growth").splitlines()]
    assert [line[6] for line in lines[2:7]] == ["1.0", "9.0", "100.0", "900.0", "not run"]
    assert all(cell.strip(" |") == "2.00" for line in lines[7:9] for cell in line[1:])
    assert "999.0" not in scale_tables.block("growth")


def test_models_on_a_card_and_on_two_cores_are_in_tables_of_their_own():
    cores, card = (part_tables.block(name) for name in ("shadow-models", "shadow-models-on-a-card"))
    assert "H100" in card
    assert "H100" not in cores
    assert "2 cores of an AMD EPYC" in cores


def test_audits_are_in_the_order_of_mu_and_the_last_of_each(monkeypatch):
    shares = {"mu_share_mean": 0.9, "mu_share_least": 0.8, "mu_share_largest": 1.0, "epsilon_share_mean": 0.5}
    rows = [
        of | shares | {"mu": mu, "audits": 40, "refuted": int(of is LATER)} for of in (LATER, FIRST) for mu in (2, 1)
    ]
    monkeypatch.setattr(tables, "rows_of", lambda _: rows)
    lines = part_tables.block("audits").splitlines()
    assert lines[2:4] == [f"| {mu} | 0.90 (0.80 to 1.00) | 0.50 | 1 of 40 |" for mu in (1, 2)]
