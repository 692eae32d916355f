"""Lanes and training over the devices of several processes: what one process makes, whole in each."""

import hashlib
import json
import socket
import subprocess
import sys
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from flax import nnx
from jax.sharding import Mesh

from drjax import dr
from drjax.attacks.shadow import shadow_embeddings
from drjax.core import processes
from drjax.nets.training import TrainConfig, train

X = np.random.default_rng(0).normal(size=(31, 6)).astype(np.float32)
KNOWN, TARGETS = X[:20], X[20:]
NETWORK = TrainConfig(epochs=4, batch_size=8, learning_rate=0.03, patience=4)


class Sparing(nnx.Module):
    """A network that leaves out some of what it sees."""

    def __init__(self, rngs):
        self.first, self.last = nnx.Linear(6, 4, use_bias=False, rngs=rngs), nnx.Linear(4, 2, rngs=rngs)
        self.norm, self.dropout = nnx.BatchNorm(4, rngs=rngs), nnx.Dropout(0.2)

    def __call__(self, x, key=None):
        x = jax.nn.gelu(self.norm(self.first(x)))
        return self.last(x if key is None else self.dropout(x, rngs=key))


def trained(seed=5, **options):
    """Two networks, and what their training was like."""
    keys = jax.random.split(jax.random.key(seed), 2)
    state, history = train(keys, Sparing, X, X[:, :2] ** 2, NETWORK, validation=(X, X[:, 2:4]), **options)
    return [np.asarray(leaf).tolist() for leaf in (*jax.tree.leaves(state), history.train_loss, history.best_epoch)]


JOB = """
import hashlib, json, pathlib, sys
import jax, numpy as np
from jax.sharding import Mesh

number, port = int(sys.argv[1]), sys.argv[2]
jax.config.update("jax_num_cpu_devices", 2)
jax.distributed.initialize(f"localhost:{port}", 2, number)
from drjax import dr
from drjax.attacks.shadow import iter_shadow_embeddings, shadow_embeddings
from tests.core.test_processes import KNOWN, TARGETS, trained

key, method, found = jax.random.key(3), dr.PCA(), {}
mesh = jax.make_mesh((4,), ("lanes",))

def digest(made):
    return [hashlib.sha256(np.ascontiguousarray(leaf).tobytes()).hexdigest() for leaf in jax.tree.leaves(made)]

whole = shadow_embeddings(key, method, KNOWN, TARGETS, mesh=mesh, batch_size=2)
found["whole"] = digest(whole)
found["chosen"] = digest(shadow_embeddings(key, method, KNOWN, TARGETS, mesh=mesh))
# One lane: the other process has none.
found["one"] = digest(shadow_embeddings(key, method, KNOWN, TARGETS[:1], mesh=mesh))
chunks = iter_shadow_embeddings(key, method, KNOWN, TARGETS, mesh=mesh, batch_size=2)
found["own"] = [
    [offset, len(made.coords), bool(np.array_equal(made.coords, whole.coords[offset : offset + len(made.coords)]))]
    for offset, made in chunks
]
found["trained"] = trained(mesh=mesh, checkpoint=pathlib.Path(sys.argv[3]) / "net.npz")
found["resumed"] = trained(mesh=mesh, checkpoint=pathlib.Path(sys.argv[3]) / "net.npz") == found["trained"]
found["refused"] = []
for refused in (
    lambda: shadow_embeddings(key, method, KNOWN, TARGETS[number:], mesh=mesh, batch_size=4),
    lambda: shadow_embeddings(jax.random.key(number), method, KNOWN, TARGETS, mesh=mesh, batch_size=4),
    lambda: shadow_embeddings(key, method, KNOWN, TARGETS, mesh=Mesh(np.array(jax.devices()[:3]), ("lanes",))),
    lambda: trained(number, mesh=mesh),
    *([lambda: trained(mesh=Mesh(np.array(jax.devices()[:2]), ("lanes",)))] if number else []),
):
    try:
        refused()
    except ValueError as error:
        found["refused"].append(str(error))
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("checkpoint"))
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = str(free.getsockname()[1])
    started = [
        subprocess.Popen(
            [sys.executable, "-c", JOB, str(i), port, folder], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        for i in range(2)
    ]
    ended = [process.communicate(timeout=300) for process in started]
    assert [process.returncode for process in started] == [0, 0], ended[0][1].decode()[-3000:]
    return [json.loads(out.decode().splitlines()[-1]) for out, _ in ended]


def digest(made):
    return [hashlib.sha256(np.ascontiguousarray(leaf).tobytes()).hexdigest() for leaf in jax.tree.leaves(made)]


@pytest.mark.parametrize(("name", "m", "batch_size"), [("whole", 11, 2), ("chosen", 11, 3), ("one", 1, None)])
def test_two_processes_have_the_bits_of_one(answers, name, m, batch_size):
    alone = shadow_embeddings(jax.random.key(3), dr.PCA(), KNOWN, TARGETS[:m], batch_size=batch_size)
    for answer in answers:
        assert answer[name] == digest(alone)


def test_each_process_yields_chunks_of_its_own(answers):
    # Three chunks of four for two processes.
    assert [answer["own"] for answer in answers] == [[[0, 4, True]], [[4, 4, True], [8, 3, True]]]


def test_what_differs_between_processes_is_refused_in_both(answers):
    for answer in answers:
        lanes, keys, mesh, training = answer["refused"][:4]
        assert lanes == "lanes must be the same in every process, got others in process 1 than in 0"
        assert keys == "keys must be the same in every process, got others in process 1 than in 0"
        assert mesh == "mesh must have as many devices of every process, got [2, 1]"
        assert training == keys
    assert answers[1]["refused"][4] == "mesh must have devices of every process, got none of process 1"


def test_training_over_two_processes_is_that_of_one_device(answers):
    alone = trained()
    assert answers[0]["trained"] == answers[1]["trained"]
    assert answers[0]["resumed"]
    assert answers[1]["resumed"]
    assert answers[0]["trained"][-1] == alone[-1]
    for a, b in zip(alone, answers[0]["trained"], strict=True):
        # Float32, 16 steps of Adam.
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("n_processes", "m", "size", "start"), [(3, 11, 2, 0), (3, 11, 2, 4), (4, 3, 2, 0), (1, 5, 2, 0)]
)
def test_ranges_cover_every_lane_once_in_whole_chunks(monkeypatch, n_processes, m, size, start):
    monkeypatch.setattr(processes.jax, "process_count", lambda: n_processes)
    found = processes.ranges(start, m, size)
    assert [lane for first, last in found for lane in range(first, last)] == list(range(start, m))
    assert len(found) == n_processes
    assert all(first % size == 0 or first == m for first, _ in found)


def test_a_mesh_of_this_process_alone_is_not_shared():
    assert not processes.is_shared(None)
    assert not processes.is_shared(Mesh(np.array(jax.devices()[:2]), ("lanes",)))
    two = SimpleNamespace(devices=np.array([SimpleNamespace(process_index=0), SimpleNamespace(process_index=1)]))
    assert processes.is_shared(two)
