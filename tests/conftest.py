"""Two CPU devices for every test, so that sharding over a mesh is tested on any machine; and programs made quickly."""

import contextlib
import ctypes
import gc
import importlib
import importlib.metadata
import io
import os
import tempfile
from pathlib import Path

from packaging.version import Version

# Two thirds of the tests' time is tracing and compiling programs that run once or twice. So all are compiled with
# little optimisation, each by one thread and without notes of where in the source it came from; tests that work long
# are marked `optimised`. `DRJAX_TESTS=optimised pytest` compiles them as they are for users.
if os.environ.get("DRJAX_TESTS") != "optimised":
    _flags = ["--xla_cpu_parallel_codegen_split_count=1"]
    # XLA ends the process over a flag that it does not know, as later ones do not know this one.
    if Version(importlib.metadata.version("jaxlib")) < Version("0.11"):
        _flags.append("--xla_cpu_use_fusion_emitters=false")
    os.environ.setdefault("XLA_FLAGS", " ".join(_flags))
    os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
    os.environ.setdefault("JAX_TRACEBACK_IN_LOCATIONS_LIMIT", "0")
    os.environ.setdefault("NUMBA_OPT", "1")
# Commands that tests run would each compile every module of drjax.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# A process on every core: threads of a BLAS in each would only spin.
for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(_name, "1")
# The processes of a run and the commands that tests run share programs, of all sizes: in the folder that .ci/run names,
# or in one that goes with the run. Commands choose none of their own accord.
os.environ["DRJAX_KEEP_PROGRAMS"] = "0"
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    _programs = tempfile.TemporaryDirectory(prefix="drjax-tests-", ignore_cleanup_errors=True)
    os.environ["JAX_COMPILATION_CACHE_DIR"] = _programs.name

# Tracing makes many objects, and each walk over all that is alive takes long: walk rarely, never over what the modules
# of drjax and of the tests hold, and not while they are imported.
gc.set_threshold(50_000, 20, 20)
gc.disable()

import chex  # noqa: E402 (JAX reads its environment when it is imported)
import hypothesis  # noqa: E402
import jax  # noqa: E402
import pytest  # noqa: E402
from PIL import Image  # noqa: E402

from drjax.core import memory, platforms  # noqa: E402
from tests import kernels, lowering  # noqa: E402

# No test asserts a time; where processes share a processor, the first example may take any.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")

TESTS = Path(__file__).parent

N_PROCESSES = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
"""Processes of this run."""

PROCESS = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
"""Number of this one, from 0."""

jax.config.update("jax_num_cpu_devices", 2)

lowering.share_contexts()

# Before any library compiles one.
if "NUMBA_CACHE_DIR" in os.environ:
    kernels.keep()


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    # Who first imports a file of tests rewrites its assertions, for the other processes too: each begins elsewhere.
    report = yield
    if collector.path == TESTS and isinstance(collector, pytest.Directory) and report.result:
        first = len(report.result) * PROCESS // N_PROCESSES
        report.result = report.result[first:] + report.result[:first]
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    # All processes have to collect the same, in the same order.
    if N_PROCESSES > 1:
        items.sort(key=lambda item: item.path)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish():
    if "NUMBA_CACHE_DIR" in os.environ:
        kernels.keep_uncached()
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_sessionfinish():
    # What is left goes with the process: pytest would walk over all of it five times.
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    # Long work would lose by the little optimisation that the others are compiled with.
    asked = jax.config.values["jax_disable_most_optimizations"]
    if item.get_closest_marker("optimised") is not None:
        jax.config.update("jax_disable_most_optimizations", False)
    try:
        return (yield)
    finally:
        jax.config.update("jax_disable_most_optimizations", asked)


@pytest.fixture
def all_platforms():
    """Programs hold the branches of all platforms, to be exported to another one."""
    with platforms.for_all():
        yield


def _blank():
    file = io.BytesIO()
    Image.new("RGB", (8, 8), "white").save(file, format="png")
    return file.getvalue()


BLANK = _blank()
BLANK_DRAWING = b'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 8 8"/>'


def _pictures(figure):
    figure.subplots().imshow([[0]])
    return figure


@pytest.fixture(autouse=True)
def _blank_figures(request):
    # Drawing takes a second a figure: what draws them is tested where they are looked at, which the mark says.
    if request.node.get_closest_marker("figures") is not None:
        yield
        return
    plots = importlib.import_module("drjax.reports.plots")
    # Not by the fixture `monkeypatch`, which would end after what a test does with it.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plots, "png", lambda _: BLANK)
        patch.setattr(plots, "svg", lambda _: BLANK_DRAWING)
        for name in ("feature_errors", "ladder", "error_distribution"):
            patch.setattr(plots, name, lambda *_, **__: plots.Figure())
        patch.setattr(plots, "image_grid", lambda *_, **__: _pictures(plots.Figure()))
        yield


@pytest.fixture(params=["float32", "float64"])
def dtype(request):
    """Both working precisions; x64 is on while the float64 case runs."""
    with jax.enable_x64(request.param == "float64"):
        yield request.param


@pytest.fixture(autouse=True)
def _count_traces_anew():
    # chex counts by the text of a function: cases of one test would be counted together.
    chex.clear_trace_counter()


MOST_MAPS = 45_000
"""Maps of memory, of which Linux allows 65,530, that a process has before it forgets its programs; a file's programs
add a few thousand."""

MOST_BYTES = min(4 * 2**30, max(2**30, (memory.available() or 0) // 6))
"""Resident memory that it has then: of two processes a third of what there is."""


@pytest.fixture(scope="module", autouse=True)
def _forget_programs():
    # Every compiled program keeps a dozen maps of memory, and what was traced for it. The suite has thousands; the one
    # that goes over the limit takes its process down. Until then files share their programs.
    yield
    own = Path("/proc/self")
    if not own.exists() or _has_much(own):
        jax.clear_caches()
        _give_back()


def _has_much(own):
    resident = int((own / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return resident > MOST_BYTES or (own / "maps").read_bytes().count(b"\n") > MOST_MAPS


def _give_back():
    # glibc keeps what is freed: the process would have much for good, and forget its programs after every file.
    with contextlib.suppress(AttributeError, OSError, TypeError):  # another libc
        ctypes.CDLL(None).malloc_trim(0)
