"""The table of what was timed on a card: made from rows, with a place for what was not run."""

import json

from bench import device_table, shadow_embeddings


def row(name, ms, *, device="a card", commit="abc", n=200, method="pca", **own):
    labels = {"method": method, "threat_model": "none", "n": n, "d": 784, "k": 2, "shadows": 9, "dtype": "float32"}
    found = {"schema": 1, "kind": "run", "name": name, **labels, "ms_per_shadow": ms, "compile_s": 1.25}
    found |= {"gemm_share": 0.0213, "commit": commit, "dirty": False, "utc": "2026-01-02T03:04:05+00:00", "x64": False}
    found |= {"device_kind": device, "cpu": "a host", "cores": 16, "versions": {"jax": "0.1"}}
    return found | {"config": {"naive_limit_s": 0.01}} | own


def written(folder, *rows):
    (folder / device_table.SHADOWS).write_text("".join(f"{json.dumps(r)}\n" for r in rows), encoding="utf-8")
    return device_table.measured(folder)


def cells(found):
    (line,) = device_table.table(found).splitlines()[2:]
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_a_line_has_ours_the_naive_vmap_and_the_host_of_the_same_run(tmp_path):
    ours, naive, peer = row("drjax", 0.5), row("naive", 1.0, shadows=3), row("sklearn/pca_full", 50.0)
    later = row("naive", 6.0, utc="2026-01-02T05:00:00+00:00")
    elsewhere = [later, row("naive", 7.0, commit="xyz"), row("naive", 8.0, n=100), row("naive", 9.0, device="another")]
    found = written(tmp_path, ours, *elsewhere, naive, peer, row("drjax", 3.0, device="cpu"), row("peak/gemm", 1.0))
    assert cells(found) == [
        "PCA",
        "200",
        "784",
        "float32",
        "0.5 (1.2)",
        "not run",
        "1 (1.2)",
        "2",
        "sklearn/pca_full 50",
        "2.1%",
        "abc, 2026-01-02, a card, JAX 0.1",
    ]


def test_what_was_not_run_says_so(tmp_path):
    skipped = row("naive", None, skipped="too slow")
    found = written(tmp_path, row("drjax", 0.5, dirty=True), skipped)
    assert cells(found)[6:9] == [device_table.NOT_RUN, "", device_table.NOT_RUN]
    assert cells(found)[10].startswith("abc with changes, ")
    told = device_table.gaps(found)
    assert "n = 10, 100, 500, 1000: PCA" in told[1]
    assert told[0].endswith("UMAP, at any size")
    assert told[2:] == ["precision float64", "d = 64, 4096", "the naive `vmap` beside PCA"]
    text = device_table.section(tmp_path)
    assert "the naive `vmap` beside PCA (the runs skipped it by `--naive-limit-s 0.01`)" in text
    assert device_table.section(tmp_path / "nothing") == "Nothing was measured on a card."
    small = row("drjax", 0.004, n=100), row("naive", 4.0, n=100)
    again = written(tmp_path, row("drjax", 0.5), skipped, *small)
    assert not [gap for gap in device_table.gaps(again) if gap.startswith("the naive")]
    assert cells(written(tmp_path, *small))[7] == "1,000"


def test_the_naive_vmap_is_compared_with_what_stays_on_the_card(tmp_path):
    found = written(tmp_path, row("drjax", 0.5, ms_left_on_device=0.2), row("naive", 1.0))
    assert cells(found)[4:8] == ["0.5 (1.2)", "0.2", "1 (1.2)", "5"]


def test_a_shadow_that_stays_on_the_device_is_timed():
    config = shadow_embeddings.Config(quick=True, method=["srp"], dtype=["float32"], repeats=1, budget_s=0.01)
    cell, _ = next(shadow_embeddings.cells(config, "float32"))
    assert shadow_embeddings.ms_left_on_device(cell, config) > 0
