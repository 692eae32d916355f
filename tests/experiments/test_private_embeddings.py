import numpy as np

from drjax.reports import records
from experiments import command, sweep
from experiments.private_embeddings import run

SMALL = ["--n-known", "40", "--n-shadow", "300", "--n-targets", "60", "--mu", "1.0", "40.0"]


def test_no_attack_is_above_the_bound_and_little_noise_hides_nothing(tmp_path, capsys):
    command.main(run.SWEEP, [*SMALL, "--out", str(tmp_path)])
    written = records.read_records(tmp_path / sweep.RESULTS)
    rows = written[1:]
    assert (tmp_path / "success.svg").is_file()
    # A line when it is done, and one in the table, before which a sentence of two lines stands.
    printed = capsys.readouterr().out.splitlines()
    assert len([line for line in printed if line.startswith("| ")]) == len(rows) + 2
    assert len(printed) == 2 * len(rows) + 5
    assert written[0]["provenance"]["commit"]
    for row in rows:
        # 60 targets: the lower end of the interval is what a bound can be held against.
        assert row["success"]["low"] <= row["estimate"] <= row["bound"]
    clear = [row for row in rows if row["mu"] == 40 and "Gaussian" in row["attack"]]
    assert [row["success"]["estimate"] for row in clear] == [1.0]


def test_the_posterior_is_over_public_records():
    public = np.array([[0.0, 0.0], [0.1, 0.0], [0.0, 0.1], [5.0, 5.0]])
    seen = np.array([[0.05, 0.05], [5.2, 5.0]])
    guess = run.most_likely(seen, public, 0.5, 0.12)
    # Within 0.12 of the first lie three records.
    np.testing.assert_array_equal(guess, public[[0, 3]])
