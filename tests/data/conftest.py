import pytest

from drjax.data.sheets import read_sheet


@pytest.fixture
def read(tmp_path):
    def of(content, name="t.csv", **options):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode(**options))
        return read_sheet(path)

    return of
