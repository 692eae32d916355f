"""UMAP's start on a CPU: leading eigenvectors of the normalised graph, and what is done where it falls apart."""

from __future__ import annotations

import numpy as np

from drjax.core.compiled import njit
from drjax.dr.umap import spectral_many

SMALL = 150
"""Components up to this size have their matrix decomposed, which is then faster than an iteration."""

MANY = 2048
"""Records of a component from which on its vectors are those of `spectral_many`."""

MAX_BASIS = 360
"""Most vectors of the iteration; a component that needs more has its matrix decomposed."""

SCALE = 10.0
NOISE = 1e-4
"""Largest coordinate of a spectral start, standard deviation of the noise on it; umap-learn's."""


@njit
def adjacency(head, tail, weight, n):
    """The graph record by record, from pairs (e,) listed once: neighbours of i are nodes[start[i] : start[i + 1]].

    Returns:
        start (n + 1,), nodes (2 e,), values (2 e,).
    """
    start = np.zeros(n + 1, np.int64)
    for e in range(len(head)):
        start[head[e] + 1] += 1
        start[tail[e] + 1] += 1
    for i in range(n):
        start[i + 1] += start[i]
    free = start[:-1].copy()
    nodes, values = np.empty(start[n], np.int64), np.empty(start[n])
    for e in range(len(head)):
        for i, j in ((head[e], tail[e]), (tail[e], head[e])):
            nodes[free[i]], values[free[i]] = j, weight[e]
            free[i] += 1
    return start, nodes, values


@njit
def components(start, nodes, values):
    """Number of connected components, and each record's (n,), numbered by their lowest record."""
    n = len(start) - 1
    label = np.full(n, -1)
    queue = np.empty(n, np.int64)
    count = 0
    for root in range(n):
        if label[root] >= 0:
            continue
        label[root] = count
        queue[0] = root
        low, high = 0, 1
        while low < high:
            i = queue[low]
            low += 1
            for e in range(start[i], start[i + 1]):
                j = nodes[e]
                if label[j] < 0 and values[e] > 0:
                    label[j] = count
                    queue[high] = j
                    high += 1
        count += 1
    return count, label


def spectral_start(
    start: np.ndarray,
    nodes: np.ndarray,
    values: np.ndarray,
    n_parts: int,
    label: np.ndarray,
    k: int,
    noise: np.ndarray,
    places: np.ndarray,
    centres: np.ndarray,
    tolerance: float,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """The start of umap-learn's `init="spectral"`, not yet rescaled.

    A connected graph gives the k leading eigenvectors after the trivial one, each of norm 1 and its largest |entry|
    positive. Otherwise each component has a centre of its own, and its eigenvectors, or random places if it has at
    most k + 1 or fewer than 2 k records, reach half way to the nearest other centre. Centres are the 2 k points
    +-e_c, or random ones if there are more components than that (umap-learn embeds their means instead).

    Args:
        start, nodes, values: Graph as of `adjacency`.
        n_parts, label: Components as of `components`.
        k: Columns.
        noise, places, centres: (n, k) each, see `cpu.Draws`.
        tolerance: Largest residual of an eigenvector.

    Returns:
        coords (n, k); the k + 2 largest eigenvalues (0 if not connected); the margin of the sign of each column (k,);
        the number of components whose eigenvectors were not found to the tolerance.
    """
    n = len(label)
    top, margin = np.zeros(k + 2), np.ones(k)
    coords = np.empty((n, k))
    n_missed = 0
    if n_parts == 1:
        vectors, found, n_missed = _leading(start, nodes, values, k, tolerance)
        top[: len(found)] = found
        for c in range(k):
            margin[c] = _orient(vectors[c])
            coords[:, c] = vectors[c]
    else:
        middle, reach = _centres(n_parts, centres)
        order = np.argsort(label, kind="stable")
        ends = np.cumsum(np.bincount(label))
        number = np.empty(n, np.int64)
        for part in range(n_parts):
            members = order[ends[part - 1] if part else 0 : ends[part]]
            size = len(members)
            if size < 2 * k or size <= k + 1:
                coords[members] = middle[part] + reach[part] * places[members]
                continue
            own: tuple[np.ndarray, np.ndarray, np.ndarray] = _part(start, nodes, values, members, number)
            vectors, _, is_missed = _leading(*own, k, tolerance)
            n_missed += is_missed
            for c in range(k):
                _orient(vectors[c])
            coords[members] = middle[part] + vectors.T * (reach[part] / np.abs(vectors).max())
    largest = np.abs(coords).max()
    return coords * (SCALE / largest) + NOISE * noise, top, margin, n_missed


@njit
def rescaled(coords):
    """Every column stretched to [0, 10]; (n, k)."""
    out = np.empty_like(coords)
    for c in range(coords.shape[1]):
        low, high = coords[:, c].min(), coords[:, c].max()
        out[:, c] = SCALE * (coords[:, c] - low) / (high - low)
    return out


@njit
def _centres(n_parts, centres):
    """Centre of every component (n_parts, k), and half its distance to the nearest other one (n_parts,)."""
    k = centres.shape[1]
    middle, reach = np.zeros((n_parts, k)), np.full(n_parts, np.inf)
    half = (n_parts + 1) // 2
    for part in range(n_parts):
        if n_parts > 2 * k:
            middle[part] = centres[part]
        else:
            middle[part, part % half] = 1.0 if part < half else -1.0
    for part in range(n_parts):
        for other in range(n_parts):
            square = 0.0
            for c in range(k):
                square += (middle[part, c] - middle[other, c]) ** 2
            if other != part:
                reach[part] = min(reach[part], np.sqrt(square) / 2)
    return middle, reach


@njit
def _part(start, nodes, values, members, number):
    """The graph of one component, laid out as the whole; overwrites number (n,) at its members."""
    size = len(members)
    for place in range(size):
        number[members[place]] = place
    own_start = np.zeros(size + 1, np.int64)
    for place in range(size):
        i = members[place]
        own_start[place + 1] = own_start[place] + start[i + 1] - start[i]
    own_nodes, own_values = np.empty(own_start[size], np.int64), np.empty(own_start[size])
    for place in range(size):
        i = members[place]
        for e in range(start[i + 1] - start[i]):
            own_nodes[own_start[place] + e] = number[nodes[start[i] + e]]
            own_values[own_start[place] + e] = values[start[i] + e]
    return own_start, own_nodes, own_values


@njit
def _orient(vector):
    """Makes the largest |entry| positive; by how much it is the largest of its sign."""
    top, bottom = vector.max(), -vector.min()
    if bottom > top:
        vector *= -1.0
    return abs(top - bottom)


def _leading(
    start: np.ndarray, nodes: np.ndarray, values: np.ndarray, k: int, tolerance: float
) -> tuple[np.ndarray, np.ndarray, int]:
    """Eigenvectors (k, n) of D^-1/2 W D^-1/2 after the trivial one; its min(k + 2, n) largest eigenvalues, decreasing.

    From a start that depends on n alone: the same graph has the same bits. The last is 1 if the tolerance was missed,
    which happens to many records only, else 0.
    """
    root, scaled = _normalised(start, nodes, values)
    if len(root) < max(MANY, spectral_many.WIDEST * (k + 1)):
        return *_of_few(start, nodes, scaled, root, k, tolerance), 0
    found = spectral_many.leading(start, nodes, scaled, root, k, tolerance)
    return found.vectors, found.values, int(not found.is_converged)


@njit
def _normalised(start, nodes, values):
    """Square roots of the degrees (n,), and the entries of D^-1/2 W D^-1/2."""
    n = len(start) - 1
    root = np.zeros(n)
    for i in range(n):
        for e in range(start[i], start[i + 1]):
            root[i] += values[e]
        root[i] = np.sqrt(root[i])
    scaled = np.empty_like(values)
    for i in range(n):
        for e in range(start[i], start[i + 1]):
            scaled[e] = values[e] / (root[i] * root[nodes[e]])
    return root, scaled


@njit
def _of_few(start, nodes, scaled, root, k, tolerance):
    """Block Lanczos with full orthogonalisation. A block as wide as the number of vectors sought finds eigenvalues of
    that multiplicity."""
    n = len(root)
    width = k + 1
    if n <= max(SMALL, 8 * width):
        return _decomposed(start, nodes, scaled, k)
    most = min(MAX_BASIS, n // 2)
    basis, images = np.empty((most, n)), np.zeros((most, n))
    inner = np.empty((most, most))
    # The trivial vector is known, and its image is itself.
    basis[0] = root / np.sqrt(np.sum(root**2))
    state = np.uint64(1)
    for c in range(1, width + 1):
        for i in range(n):
            state = state * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)
            basis[c, i] = float(state >> np.uint64(11)) / 2.0**53 - 0.5
    low, high = 1, _orthonormalize(basis, 1, width + 1)
    images[0] = basis[0]
    inner[0, 0] = 1.0
    look_at = 12 * width
    while True:
        for c in range(low, high):
            vector, image = basis[c], images[c]
            for i in range(n):
                total = 0.0
                for e in range(start[i], start[i + 1]):
                    total += scaled[e] * vector[nodes[e]]
                image[i] = total
        block = np.dot(images[low:high], basis[:high].T)
        for c in range(low, high):
            for e in range(high):
                inner[c, e] = inner[e, c] = block[c - low, e]
        if high >= look_at:
            look_at = high + max(high // 4, width)
            ritz, weights = np.linalg.eigh(np.ascontiguousarray(inner[:high, :high]))
            sought = np.ascontiguousarray(weights[:, ::-1].T[: k + 2])
            vectors, moved = np.dot(sought, basis[:high]), np.dot(sought, images[:high])
            is_done = True
            for c in range(k + 2):
                residual = np.sqrt(np.sum((moved[c] - ritz[high - 1 - c] * vectors[c]) ** 2))
                # The value after the last serves the gap alone, and its error is the square of its residual.
                is_done = is_done and residual <= (tolerance if c <= k else np.sqrt(tolerance))
            if is_done:
                return vectors[1 : k + 1].copy(), ritz[::-1][: k + 2].copy()
        upto = min(high + high - low, most)
        basis[high:upto] = images[low : low + upto - high]
        low, high = high, _orthonormalize(basis, high, upto)
        if low == high:
            return _decomposed(start, nodes, scaled, k)


@njit
def _decomposed(start, nodes, scaled, k):
    n = len(start) - 1
    matrix = np.zeros((n, n))
    for i in range(n):
        for e in range(start[i], start[i + 1]):
            matrix[i, nodes[e]] = scaled[e]
    values, vectors = np.linalg.eigh(matrix)
    return np.ascontiguousarray(vectors[:, ::-1].T[1 : k + 1]), values[::-1][: min(k + 2, n)].copy()


@njit
def _orthonormalize(basis, low, high):
    """Makes rows low..high of the basis orthonormal to it and each other; drops those that depend; the new end."""
    end = low
    for c in range(low, high):
        own = basis[c].copy()
        before = np.sqrt(np.sum(own**2))
        norm = 0.0
        for _ in range(2):  # what cancellation leaves of the basis in the first pass is gone after the second
            own -= np.dot(np.dot(basis[:end], own), basis[:end])
            norm = np.sqrt(np.sum(own**2))
            if not norm > 1e-13 * before:
                break
            own /= norm
            before = 1.0
        if norm > 1e-13 * before:
            basis[end] = own
            end += 1
    return end
