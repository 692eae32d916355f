import json

import pytest

from drjax.core import json_files
from drjax.core.json_files import read_object


def _file(tmp_path, blob):
    path = tmp_path / "b.json"
    path.write_bytes(blob)
    return path


def test_an_object_is_read_as_json_reads_it_with_and_without_a_byte_order_mark(tmp_path):
    content = {"age": [0, 120], "größe": {"lower": -1.5e-3, "upper": 2**60}, "kind": None, "ok": True}
    blob = json.dumps(content, ensure_ascii=False).encode()
    assert read_object(_file(tmp_path, blob), "bounds") == content
    assert read_object(_file(tmp_path, b"\xef\xbb\xbf" + blob), "bounds") == content


@pytest.mark.parametrize(
    ("blob", "said"),
    [
        (b'{"age": [0, 1], "age": [0, 2]}', "key 'age' comes twice"),
        (b'{"a": {"b": [{"c": 1, "c": 1}]}}', "key 'c' comes twice"),
        (b"[" * 100_000 + b"]" * 100_000, "levels deep"),
        (b'{"a":' * 100_000, "levels deep"),
        (b'{"a":' + b"[" * 100 + b"]" * 100 + b"}", "levels deep"),
        (b'{"a": NaN}', "NaN is not JSON"),
        (b'{"a": -Infinity}', "-Infinity is not JSON"),
        (b'{"a": 1e400}', "1e400 is too large"),
        (b'{"a": 1' + b"0" * 400 + b"}", "is too large"),
        (b'{"a": 1' + b"0" * 5000 + b"}", "is too large"),
        (b'{"a": "\xff"}', "not UTF-8"),
        ('{"a": 1}'.encode("utf-16"), "not UTF-8"),
        (b'{"a": "\\ud800"}', "not UTF-8"),
        (b'{"\\ud800": 1}', "not UTF-8"),
        (b"[1, 2]", "must be a JSON object, got list"),
        (b"", "Expecting value"),
        (b"\x00", "Expecting value"),
    ],
)
def test_what_is_not_one_unambiguous_object_is_refused_in_one_sentence(tmp_path, blob, said):
    path = _file(tmp_path, blob)
    with pytest.raises(ValueError, match=r"^bounds must be a JSON ") as caught:
        read_object(path, "bounds")
    assert said in str(caught.value)
    assert str(path) in str(caught.value)
    assert len(str(caught.value)) < 400


def test_constants_are_taken_where_they_are_allowed(tmp_path):
    found = read_object(_file(tmp_path, b'{"a": Infinity}'), "bounds", allow_constants=True)
    assert found == {"a": float("inf")}


def test_nesting_to_the_limit_is_read(tmp_path):
    lists = json_files.MOST_DEPTH - 2  # the object is a level, and so is the number in the innermost list
    found = read_object(_file(tmp_path, b'{"a":' + b"[" * lists + b"1" + b"]" * lists + b"}"), "bounds")
    assert str(found["a"]).count("[") == lists


def test_a_missing_file_and_a_folder_name_the_option(tmp_path):
    for path in (tmp_path / "none.json", tmp_path):
        with pytest.raises(FileNotFoundError, match="check --known-features"):
            read_object(path, "known_features")
