import io
import sys

import numpy as np
import pytest

from drjax.core import batching, memory, progress
from drjax.core.progress import Lines, announce, shown, track


class Clock:
    """Time that the test sets."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


def printed(capsys):
    out, err = capsys.readouterr()
    assert out == ""
    return err.splitlines()


def run(lines, clock, pieces):
    for seconds in pieces:
        clock.now += seconds
        lines(1)


def test_short_work_prints_nothing(capsys):
    clock = Clock()
    run(Lines("shadows", 9, clock=clock), clock, [1.0] * 9)
    assert printed(capsys) == []


def test_long_work_says_so_after_its_second_piece_and_then_every_thirty_seconds(capsys):
    clock, times = Clock(), []
    lines = Lines("shadows", 200, clock=clock)
    for _ in range(200):
        run(lines, clock, [1.0])
        times += [clock.now - 1000] * len(printed(capsys))
    assert times == [2.0, 32.0, 62.0, 92.0, 122.0, 152.0, 182.0]


def test_a_first_piece_that_compiles_does_not_count_for_the_others(capsys):
    clock = Clock()
    run(Lines("shadows", 10, clock=clock), clock, [20.0, *[0.1] * 9])
    assert printed(capsys) == []


def test_a_line_holds_what_is_done_the_rate_what_is_left_and_a_note(capsys):
    clock = Clock()
    lines = Lines("epochs", 1500, clock=clock)
    clock.now += 4
    lines(100, "best loss 0.5")
    clock.now += 2
    lines(50, "best loss 0.25")
    # 50 of them in 2 s: 1,350 in 54 s.
    assert printed(capsys) == ["drjax: epochs: 150 of 1,500 (10%), 25/s, about 54 s left, best loss 0.25"]


def test_work_that_was_done_before_a_restart_does_not_count_for_the_rate(capsys):
    clock = Clock()
    lines = Lines("models", 1000, 900, clock=clock)
    run(lines, clock, [2.0, 2.0])
    assert printed(capsys) == ["drjax: models: 902 of 1,000 (90%), 30/min, about 3 min 16 s left"]


def test_a_piece_that_takes_long_is_reported_while_it_runs(capsys):
    clock = Clock()
    lines = Lines("releases", 1, clock=clock)
    clock.now += 29
    lines.look()
    assert printed(capsys) == []
    clock.now += 1
    lines.look()
    assert printed(capsys) == ["drjax: releases: 0 of 1 (0%), none finished after 30 s"]


def test_lines_come_by_themselves_from_a_second_thread(capsys):
    with Lines("releases", 1, interval=0.01) as lines:
        for _ in range(500):
            if (seen := printed(capsys)) or lines._stop.wait(0.01):
                break
    assert seen[0].startswith("drjax: releases: 0 of 1")


def test_nothing_is_shown_where_it_is_not_wanted_and_a_bar_on_a_terminal(capsys, monkeypatch):
    with shown("shadows", 3, enabled=False) as advance:
        advance(3)
    assert printed(capsys) == []
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert list(track([1, 2, 3], "shadows")) == [1, 2, 3]
    assert "3/3" in "\n".join(printed(capsys))


def test_costs_are_said_beforehand_where_work_is_long_and_not_where_it_is_short(capsys):
    announce("9 releases", 9.0, 1e10)
    announce("9 releases", 3700.0, 2.5e9, enabled=False)
    assert printed(capsys) == []
    announce("9 releases of 5,001 records", 3700.0, 2.5e9)
    announce("9 releases", 75.0)
    announce("9 releases", 75.0, 1e8)
    announce("9 releases", 75.0, 9.99e7)
    assert printed(capsys) == [
        "drjax: 9 releases of 5,001 records take about 1 h 1 min and 2.5 GB of memory",
        "drjax: 9 releases take about 1 min 15 s",
        "drjax: 9 releases take about 1 min 15 s and 100 MB of memory",
        "drjax: 9 releases take about 1 min 15 s",
    ]


def test_what_lanes_return_is_counted_before_it_is_all_made(monkeypatch):
    calls = []

    def wide(context, x):
        return x[:, :1] * np.ones((1, 1000), np.float32) * context

    monkeypatch.setattr(memory, "available", lambda: calls.append(1) or 10**6)
    x = np.ones((1000, 2), np.float32)
    with pytest.raises(MemoryError, match=r"results of 1,000 lanes needs about 4\.0 MB of memory \(4 kB each\)"):
        batching.map_lanes(wide, np.float32(1), x, batch_size=10)
    assert len(calls) == 1
    assert batching.map_lanes(wide, np.float32(1), x[:100], batch_size=10).shape == (100, 1000)


def test_the_interval_is_that_of_the_module(monkeypatch):
    monkeypatch.setattr(progress, "INTERVAL", 5.0)
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    clock = Clock()
    lines = Lines("shadows", 100, clock=clock)
    clock.now += 5
    lines.look()
    assert "0 of 100" in sys.stderr.getvalue()


class Kernel:
    """IPython as it is in the kernel of a notebook, or in a terminal."""

    def __init__(self, config):
        self.config = config

    def get_ipython(self):
        return self


@pytest.mark.parametrize(("has_widgets", "is_bar"), [(True, True), (False, False)])
def test_a_notebook_with_widgets_gets_a_bar(monkeypatch, has_widgets, is_bar):
    assert not progress.in_notebook()
    monkeypatch.setitem(sys.modules, "IPython", Kernel({"TerminalIPythonApp": {}}))
    assert not progress.in_notebook()
    monkeypatch.setitem(sys.modules, "IPython", Kernel({"IPKernelApp": {}}))
    assert progress.in_notebook()
    bars = []

    class Bar(progress._Bar):
        def __init__(self, *args):
            bars.append(args)
            super().__init__(*args)

    monkeypatch.setattr(progress, "_Bar", Bar)
    monkeypatch.setattr(progress.importlib.util, "find_spec", lambda _: has_widgets or None)
    with shown("shadows", 3) as advance:
        advance(3)
    assert bool(bars) == is_bar
