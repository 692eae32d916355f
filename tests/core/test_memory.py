import numpy as np
import pytest

from drjax.attacks.shadow import shadow_needs
from drjax.core import host, memory
from drjax.defenses import defend
from drjax.dr import METHODS


@pytest.fixture
def system(tmp_path, monkeypatch):
    """A machine whose files say what the test writes; no file means that the system does not have it."""
    monkeypatch.setattr(memory, "MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(memory, "CGROUP", tmp_path / "cgroup")
    monkeypatch.setattr(memory, "OWN_CGROUP", tmp_path / "own")

    def write(name, text):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    write("meminfo", "MemTotal:       8000000 kB\nMemFree:  1 kB\nMemAvailable:    4000000 kB\n")
    return write


def test_the_kernels_figure_counts_where_no_cgroup_limits_the_process(system):
    system("own", "0::/user.slice\n")
    system("cgroup/user.slice/memory.max", "max\n")
    system("cgroup/user.slice/memory.current", "123\n")
    assert memory.available() == 4_000_000 * 1024


def test_the_least_of_all_limits_above_the_process_counts_less_what_is_used_and_cannot_be_given_back(system):
    system("own", "0::/slurm/job\n")
    for name, most, used, cached in (("slurm/job", 900_000, 500_000, 100_000), ("slurm", 700_000, 600_000, 50_000)):
        system(f"cgroup/{name}/memory.max", f"{most}\n")
        system(f"cgroup/{name}/memory.current", f"{used}\n")
        system(f"cgroup/{name}/memory.stat", f"anon 7\ninactive_file {cached}\n")
    assert memory.available() == 700_000 - 600_000 + 50_000


def test_a_container_sees_its_own_limit_at_the_root_and_version_1_is_understood(system):
    system("own", "5:cpu,memory:/docker/abc\n4:pids:/x\n")
    system("cgroup/memory/memory.limit_in_bytes", "1000000\n")
    system("cgroup/memory/memory.usage_in_bytes", "400000\n")
    assert memory.available() == 600_000
    system("cgroup/memory/memory.limit_in_bytes", f"{2**63 - 4096}\n")  # how version 1 writes that there is none
    assert memory.available() == 4_000_000 * 1024


@pytest.mark.parametrize(
    ("n_bytes", "words"),
    [(9.96e9, "10.0 GB"), (10.4e9, "10 GB"), (1.04e6, "1.0 MB"), (999e3, "999 kB"), (2.5e15, "2,500 TB")],
)
def test_sizes_have_two_digits_below_ten(n_bytes, words):
    assert memory.in_words(n_bytes) == words


def test_a_system_that_says_nothing_refuses_nothing(monkeypatch):
    monkeypatch.setattr(memory, "available", lambda: None)
    memory.require(1e30, "this audit", "everything", "lower it")


def test_what_fits_is_done_and_what_does_not_is_refused_with_both_figures(monkeypatch):
    monkeypatch.setattr(memory, "available", lambda: 23_000_000_000)
    memory.require(23_000_000_000, "this audit", "a matrix", "lower --n-known")
    with pytest.raises(MemoryError) as caught:
        memory.require(60.4e9, "this audit", "a matrix", lambda: "lower --n-known")
    assert str(caught.value) == (
        "this audit needs about 60 GB of memory (a matrix), and 23 GB are available: lower --n-known"
    )


def test_a_task_remembers_only_the_largest_work_that_it_let_begin(monkeypatch):
    monkeypatch.setattr(memory, "available", lambda: 10**9)
    with memory.task():
        memory.require(8e8, "the work before", "a matrix", "lower it")
        with memory.task():
            assert memory.expected() == ""
            memory.require(3e8, "this audit", "a matrix", "lower it")
            memory.require(2e8, "a part of it", "a matrix", "lower it")
            with pytest.raises(MemoryError):
                memory.require(2e9, "what was refused", "a matrix", "lower it")
            assert memory.expected() == "this audit was expected to need about 300 MB"
        assert memory.expected().startswith("the work before")


def test_the_count_that_would_fit_fits_and_a_tenth_more_does_not(monkeypatch):
    monkeypatch.setattr(memory, "available", lambda: 10**9)
    words = memory.would_fit(lambda n: 8.0 * n**2, 50_000)
    count = int(words.removeprefix("about ").removesuffix(" would fit").replace(",", ""))
    assert 8 * count**2 <= 10**9 < 8 * (1.1 * count) ** 2
    assert count == 11_000  # two digits of 11,180
    assert "not even" in memory.would_fit(lambda _: 2e9, 50_000)
    monkeypatch.setattr(memory, "available", lambda: 57)
    assert memory.would_fit(lambda n: n, 1000) == "about 57 would fit"


@pytest.mark.parametrize("name", sorted(METHODS))
def test_every_method_and_every_defence_of_it_says_what_it_costs(name):
    method = METHODS[name]()
    for made in (method, *(defend(defence, method, 0.1) for defence in ("input-noise", "output-noise", "rounding"))):
        small, large = made.cost(100, 10), made.cost(1000, 10)
        assert all(np.isfinite(small))
        assert min(small) >= 0
        assert all(after >= before for before, after in zip(small, large, strict=True))
        assert made.cost(1000, 10, itemsize=8).shared_bytes >= large.shared_bytes
    # Records and coordinates are held by every method, whatever else.
    assert method.cost(1000, 10).shared_bytes >= 4 * 1000 * 10


# Peaks of `shadow_embeddings` of two data sets beyond what the process held before, in MB, measured on two cores with
# VmHWM (Linux, jax 0.10): n, d, MB. The estimate has to lie within a factor of two. A method that was never measured is
# held to the test above alone.
MEASURED = {
    "pca": [(20_000, 784, 559), (2_000, 3_000, 382)],
    "classical_mds": [(20_000, 784, 559)],
    "srp": [(20_000, 784, 188)],
    "mds": [(4_000, 20, 346), (8_000, 20, 1307)],
    "isomap": [(3_000, 20, 672), (4_500, 20, 1493)],
    "tsne": [(4_000, 20, 364), (7_000, 20, 141), (20_000, 50, 274)],
    "umap": [(20_000, 20, 191)],
}


@pytest.mark.parametrize("name", sorted(MEASURED))
def test_estimates_are_within_a_factor_of_two_of_measured_peaks(name, monkeypatch):
    monkeypatch.setattr(host, "n_cores", lambda: 2)
    for n, d, measured in MEASURED[name]:
        assert 0.5 <= shadow_needs(METHODS[name](), n, d, 2).bytes / 1e6 / measured <= 2


def test_a_method_that_does_not_say_what_it_costs_is_taken_to_need_its_records():
    class Own:
        name = "own"

    assert shadow_needs(Own(), 100, 10, 5).bytes == 8 * 100 * 10
