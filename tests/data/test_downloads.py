import dataclasses
import functools
import http.server
import io
import tarfile
import threading

import numpy as np
import pytest

from drjax.data import SOURCES, fetch, load
from drjax.data.checksums import ARRAYS, arrays_sha256, sha256
from drjax.data.readers import cifar10_from_archive


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        """Keeps the test output clean."""


@pytest.fixture
def server(tmp_path):
    """A folder and the address that serves it on this machine."""
    folder = tmp_path / "public"
    folder.mkdir()
    handler = functools.partial(_Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        thread = threading.Thread(target=running.serve_forever, daemon=True)
        thread.start()
        yield folder, f"http://127.0.0.1:{running.server_address[1]}/"
        running.shutdown()
        thread.join()


@pytest.fixture
def census(server, monkeypatch):
    """The census source, with a small file at a local address."""
    folder, url = server
    (folder / "Census.csv").write_text("AGI,FEDTAX\n100,10\n300,20\n200,40\n")
    checksum = {"Census.csv": sha256((folder / "Census.csv").read_bytes())}
    monkeypatch.delenv("DRJAX_DATA", raising=False)
    monkeypatch.setitem(
        SOURCES, "census", dataclasses.replace(SOURCES["census"], files=checksum, downloads=checksum, url=url)
    )
    return folder / "Census.csv"


def stored(root):
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())


@pytest.mark.usefixtures("census")
def test_downloads_verified_files_that_load_then_finds(tmp_path):
    data_dir = tmp_path / "data"
    assert fetch("census", data_dir) == data_dir / "census_casc"
    assert stored(data_dir) == ["census_casc/Census.csv"]
    np.testing.assert_array_equal(load("census", data_dir=data_dir).x, np.float32([[0, 0], [1, 1 / 3], [0.5, 1]]))


@pytest.mark.usefixtures("census")
def test_load_downloads_when_told_to_and_into_the_cache_by_default(tmp_path, monkeypatch):
    for module in ("downloads", "sources"):
        monkeypatch.setattr(f"drjax.data.{module}.cache_dir", lambda: tmp_path / "cache")
    with pytest.raises(FileNotFoundError, match="drjax data fetch census"):
        load("census")
    assert len(load("census", download=True).x) == 3
    assert stored(tmp_path / "cache") == ["census_casc/Census.csv"]


def test_files_that_are_there_and_intact_are_not_downloaded_again(census, tmp_path):
    fetch("census", tmp_path / "data")
    census.unlink()
    fetch("census", tmp_path / "data")


@pytest.mark.usefixtures("census")
def test_a_damaged_file_is_replaced(tmp_path):
    fetch("census", tmp_path / "data")
    (tmp_path / "data" / "census_casc" / "Census.csv").write_text("damaged")
    fetch("census", tmp_path / "data")
    assert len(load("census", data_dir=tmp_path / "data").x) == 3


def test_a_download_with_another_checksum_leaves_nothing_behind(census, tmp_path):
    census.write_text("AGI,FEDTAX\n1,2\n")
    with pytest.raises(ValueError, match="census was not stored") as error:
        fetch("census", tmp_path / "data")
    assert "\n" not in str(error.value)
    assert stored(tmp_path / "data") == []


def test_no_answer_is_one_line_that_says_what_to_do(census, tmp_path):
    census.unlink()
    with pytest.raises(OSError, match=r"could not be downloaded .* check the connection") as error:
        fetch("census", tmp_path / "data")
    assert "\n" not in str(error.value)
    assert stored(tmp_path / "data") == []


@pytest.mark.usefixtures("census")
def test_a_folder_that_cannot_be_written_to_is_named(tmp_path):
    (tmp_path / "data").write_text("a file, not a folder")
    with pytest.raises(OSError, match="data"):
        fetch("census", tmp_path / "data")


@pytest.mark.parametrize(("name", "where"), [("utkface", "susanqq"), ("digits", "scikit-learn"), ("gfe", "UCI")])
def test_sets_without_an_address_say_where_they_come_from(name, where, tmp_path):
    with pytest.raises(ValueError, match=f"{name} cannot be downloaded: .*{where}"):
        fetch(name, tmp_path)


def small_cifar_archive(rng):
    """An archive in the official binary layout with three records a file, and those records."""
    labels = rng.integers(0, 10, (2, 3), dtype=np.uint8)
    planes = rng.integers(0, 256, (2, 3, 3, 32, 32), dtype=np.uint8)
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        for file, y, x in zip(("data_batch_1.bin", "test_batch.bin"), labels, planes, strict=True):
            blob = b"".join(bytes([label]) + record.tobytes() for label, record in zip(y, x, strict=True))
            member = tarfile.TarInfo(f"cifar-10-batches-bin/{file}")
            member.size = len(blob)
            tar.addfile(member, io.BytesIO(blob))
    return archive.getvalue(), labels, planes


def test_cifar_is_converted_from_the_binary_archive_without_pickle(server, tmp_path, monkeypatch):
    folder, url = server
    blob, labels, planes = small_cifar_archive(np.random.default_rng(0))
    (folder / "cifar-10-binary.tar.gz").write_bytes(blob)
    expected = arrays_sha256(cifar10_from_archive({"archive": blob})["cifar10_10k_1k.npz"])
    source = dataclasses.replace(
        SOURCES["cifar10"],
        url=url,
        downloads={"cifar-10-binary.tar.gz": sha256(blob)},
        files={"cifar10_10k_1k.npz": ARRAYS + expected},
    )
    monkeypatch.setitem(SOURCES, "cifar10", source)
    fetch("cifar10", tmp_path / "data")
    assert stored(tmp_path / "data") == ["cifar10/cifar10_10k_1k.npz"]
    cifar = load("cifar10", data_dir=tmp_path / "data")
    np.testing.assert_array_equal(cifar.y, labels.ravel())
    red = cifar.x.reshape(6, 32, 32, 3)[..., 0]
    np.testing.assert_array_equal(np.round(red * 255), planes.reshape(6, 3, 32, 32)[:, 0])


def test_a_conversion_to_other_records_leaves_nothing_behind(server, tmp_path, monkeypatch):
    folder, url = server
    blob, _, _ = small_cifar_archive(np.random.default_rng(1))
    (folder / "cifar-10-binary.tar.gz").write_bytes(blob)
    source = dataclasses.replace(SOURCES["cifar10"], url=url, downloads={"cifar-10-binary.tar.gz": sha256(blob)})
    monkeypatch.setitem(SOURCES, "cifar10", source)
    with pytest.raises(ValueError, match=r"another cifar10_10k_1k\.npz than expected"):
        fetch("cifar10", tmp_path / "data")
    assert stored(tmp_path / "data") == []
