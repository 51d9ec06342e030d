"""--input in all its forms: to tensors of the right shape, or to an error that names input, expected and given."""

import base64
import json
import struct
import tracemalloc
from typing import Any

import numpy as np
import pytest

from gpusize.base.errors import DatasetError, UsageError
from gpusize.targets.kserve.entries import parse_shapes
from gpusize.targets.kserve.inputs import TENSORS, read_inputs
from gpusize.targets.kserve.metadata import TensorSpec
from tests.kserve.models import BATCHED, FIXED, MATRIX, TEXTS, TWO, VARYING, model


def floats(*values):
    return struct.pack(f"<{len(values)}f", *values)


def b64(data):
    return {"b64": base64.b64encode(data).decode()}


def written(tmp_path, value, name="input.json"):
    path = tmp_path / name
    path.write_text(value if isinstance(value, str) else json.dumps(value, indent=1))
    return str(path)


def rows_of(dataset):
    return [row.value for row in dataset]


def tensors_of(tmp_path, value, wanted, **options):
    """The tensors of an input file of one entry, by name: shape and bytes."""
    [row] = rows_of(read_inputs([written(tmp_path, {"data": [value]})], wanted, **options))
    return {tensor.name: (tensor.shape, tensor.raw) for tensor in row.tensors}


ONE_TO_FOUR = floats(1, 2, 3, 4)


@pytest.mark.parametrize(
    "wanted,value,shape,raw",
    [
        (FIXED, [1.0, 2, 3, 4], (4,), ONE_TO_FOUR),
        (FIXED, [[1, 2], [3, 4]], (4,), ONE_TO_FOUR),
        (VARYING, [1, 2], (2,), floats(1, 2)),
        (MATRIX, [1, 2, 3, 4], (2, 2), struct.pack("<4i", 1, 2, 3, 4)),
        (MATRIX, [[1, 2], [3, 4], [5, 6]], (3, 2), struct.pack("<6i", *range(1, 7))),
        (VARYING, {"content": [1, 2], "shape": [2]}, (2,), floats(1, 2)),
        (MATRIX, {"content": [1, 2], "shape": [1, 2]}, (1, 2), struct.pack("<2i", 1, 2)),
        (MATRIX, {"content": [], "shape": [0, 2]}, (0, 2), b""),
        (FIXED, {"content": [1, 2, 3, 4]}, (4,), ONE_TO_FOUR),
        (FIXED, b64(ONE_TO_FOUR), (4,), ONE_TO_FOUR),
        (VARYING, b64(floats(5)), (1,), floats(5)),
        (VARYING, {"content": b64(floats(1, 2)), "shape": [2]}, (2,), floats(1, 2)),
        (TEXTS, ["a", "bc"], (2,), b"\1\0\0\0a\2\0\0\0bc"),
        (TEXTS, b64(b"\1\0\0\0a"), (1,), b"\1\0\0\0a"),
        (BATCHED, [1, 2, 3, 4], (1, 4), ONE_TO_FOUR),
        (BATCHED, {"content": [1, 2, 3, 4], "shape": [4]}, (1, 4), ONE_TO_FOUR),
        (BATCHED, {"content": [1, 2, 3, 4] * 2, "shape": [2, 4]}, (2, 4), ONE_TO_FOUR * 2),
    ],
)
def test_forms_of_a_value(tmp_path, wanted, value, shape, raw):
    assert tensors_of(tmp_path, {"IN": value}, wanted) == {"IN": (shape, raw)}


@pytest.mark.parametrize(
    "wanted,value,what",
    [
        (FIXED, [1, 2, 3], '"IN" has 3 elements; the shape [4] holds 4'),
        (FIXED, {"content": [1, 2, 3], "shape": [3]}, '"IN" has the shape [3]; m expects [4]'),
        (BATCHED, {"content": [1], "shape": [1]}, "m expects [4] (without the dimension of the batch)"),
        (BATCHED, {"content": [1] * 36, "shape": [9, 4]}, "a batch of 9; m takes 1 to 8"),
        (MATRIX, [1, 2, 3], 'the shape of "IN" is ambiguous: [-1, 2] from 3 elements'),
        (FIXED, ["1", "2", "3", "4"], '"IN" cannot be made FP32: 1 is not a number'),
        (FIXED, [[1, 2], [3]], '"IN" cannot be made FP32: the lists in it differ in length'),
        (FIXED, b64(b"123"), '"IN" is not FP32: 3 bytes are not a whole number'),
        (FIXED, {"b64": "!"}, '"IN" cannot be made FP32: this is not base64'),
        (FIXED, 3, '"IN" is 3'),
        (FIXED, {"value": [1]}, '"IN" has a value in an unknown form'),
        (FIXED, {"content": [1], "shape": "4"}, 'the shape of "IN" is 4'),
        (FIXED, {"content": [1], "shape": [-1]}, 'the shape of "IN" is [-1]'),
    ],
)
def test_values_that_do_not_fit(tmp_path, wanted, value, what):
    with pytest.raises(DatasetError) as caught:
        tensors_of(tmp_path, {"IN": value}, wanted)
    assert what in str(caught.value)
    assert str(tmp_path / "input.json") in str(caught.value.where)


def test_names_and_missing_inputs(tmp_path):
    a = struct.pack("<q", 7)
    assert tensors_of(tmp_path, {"A": [7]}, TWO) == {"A": ((1,), a)}
    both = tensors_of(tmp_path, {"B": [[1, 2]], "A": [7]}, TWO)
    assert list(both) == ["A", "B"]
    with pytest.raises(DatasetError, match='the input "A" of m is missing'):
        tensors_of(tmp_path, {"B": [1, 2]}, TWO)
    with pytest.raises(DatasetError, match='m has no input "C"'):
        tensors_of(tmp_path, {"A": [7], "C": [1]}, TWO)


def test_shapes_of_the_users(tmp_path):
    wanted = model(TensorSpec("IN", "FP32", (-1, -1)))
    shapes = parse_shapes(["IN:2,2"])
    assert tensors_of(tmp_path, {"IN": [1, 2, 3, 4]}, wanted, shapes=shapes)["IN"][0] == (2, 2)
    given = {"IN": {"content": [1, 2, 3, 4], "shape": [1, 4]}}
    assert tensors_of(tmp_path, given, wanted, shapes=shapes)["IN"][0] == (1, 4)
    with pytest.raises(DatasetError, match="--shape IN:N,N"):
        tensors_of(tmp_path, {"IN": [1, 2, 3, 4]}, wanted)
    with pytest.raises(UsageError, match='m has no input "X"'):
        tensors_of(tmp_path, {"IN": [1]}, wanted, shapes={"X": (1,)})
    assert parse_shapes(["a:b:3"]) == {"a:b": (3,)}
    for wrong in ("IN", "IN:", "IN:a", ":3", "IN:-1"):
        with pytest.raises(UsageError, match="is not a shape"):
            parse_shapes([wrong])
    with pytest.raises(UsageError, match="given twice"):
        parse_shapes(["a:1", "a:2"])


def test_entries_of_several_files_in_order(tmp_path):
    first = written(tmp_path, {"data": [{"IN": [1]}, {"IN": [2, 3]}]}, "a.json")
    second = written(tmp_path, {"data": [{"IN": [4]}]}, "b.json")
    dataset = read_inputs([first, second], VARYING)
    assert [row.tensors[0].raw for row in rows_of(dataset)] == [floats(1), floats(2, 3), floats(4)]
    assert (dataset.key, list(dataset.ids), dataset.source) == (TENSORS, ["0", "1", "2"], f"{first}, {second}")
    assert dataset.sha256 == read_inputs([first, second], VARYING).sha256
    assert dataset.sha256 != read_inputs([second, first], VARYING).sha256
    assert len(repr(dataset[0].value)) < 100
    assert "IN: FP32[1], 4 bytes" in dataset._repr_html_()


def test_sequences(tmp_path):
    path = written(tmp_path, {"data": [[{"IN": [1]}, {"IN": [2]}, {"IN": [3]}], [{"IN": [4]}]]})
    dataset = read_inputs([path, path], VARYING)
    steps = [(row.step.id, row.step.turn, row.step.start, row.step.end) for row in rows_of(dataset)]
    assert steps[:4] == [(1, 0, True, False), (1, 1, False, False), (1, 2, False, True), (2, 0, True, True)]
    assert [step[0] for step in steps[4:]] == [3, 3, 3, 4]
    assert [(row.fields["session"], row.fields["turn"]) for row in dataset][:2] == [("1", 0), ("1", 1)]
    assert any("concurrency 1" in note for note in dataset.notes)
    with pytest.raises(DatasetError, match="part of a sequence"):
        read_inputs([written(tmp_path, {"data": [[{"IN": [1, 2, 3, 4]}]]})], BATCHED, batch=2)


def test_kinds_that_do_not_mix(tmp_path):
    with pytest.raises(DatasetError, match="mixed"):
        read_inputs([written(tmp_path, {"data": [[{"IN": [1]}], {"IN": [1]}]})], VARYING)
    single = written(tmp_path, {"data": [{"IN": [1]}]}, "a.json")
    sequences = written(tmp_path, {"data": [[{"IN": [1]}]]}, "b.json")
    with pytest.raises(DatasetError, match="mixed"):
        read_inputs([single, sequences], VARYING)


def test_validation_data_is_named_and_not_compared(tmp_path):
    path = written(tmp_path, {"data": [{"IN": [1]}], "validation_data": [{"OUT": [2]}], "more": 1})
    notes = read_inputs([path], VARYING).notes
    assert [note.removeprefix(f"{path}: ") for note in notes] == [
        "validation_data (1 entries) is not compared with the answers",
        '"more" is not read',
    ]


@pytest.mark.parametrize(
    "text,what",
    [
        ("", "the file is not an object"),
        ("[]", "the file is not an object"),
        ("{}", 'no entry under "data"'),
        ('{"data": []}', 'no entry under "data"'),
        ('{"data": {}}', '"data" is not a list'),
        ('{"data": [1]}', "this entry is 1"),
        ('{"data": [[1]]}', "step 0 of this sequence is 1"),
        ('{"data": [{"IN": [1]}', "the list is not closed"),
        ('{"data": [{"IN": [1]}]', "the object is not closed"),
        ('{"data": [{"IN": [1]}]} x', "there is more"),
        ('{"data" [1]}', "a colon is missing"),
        ("{3: 4}", "3 is not a key"),
        ('{"data": [{"IN": [1,]}]}', "not an input file"),
        ('{"payload": [{"messages": []}]}', "another kind of server"),
        ('{"a": ' + "[" * 100_000, "not an input file"),
    ],
)
def test_files_that_are_no_input(tmp_path, text, what):
    with pytest.raises(DatasetError, match=what):
        read_inputs([written(tmp_path, text)], VARYING)


def test_the_place_of_a_mistake(tmp_path):
    path = written(tmp_path, '{"data": [\n {"IN": [1]},\n {"IN": ["x"]}\n]}')
    with pytest.raises(DatasetError) as caught:
        read_inputs([path], VARYING)
    assert caught.value.where == f"{path}:3"
    path = written(tmp_path, '{"data": [\n {"IN": [1]},\n {"IN": [oops]}\n]}')
    with pytest.raises(DatasetError) as caught:
        read_inputs([path], VARYING)
    assert caught.value.where == f"{path}:3:10"


def test_batches_of_entries(tmp_path):
    path = written(tmp_path, {"data": [{"IN": [number] * 4} for number in range(3)]})

    def batches(count):
        rows = rows_of(read_inputs([path], BATCHED, batch=count))
        assert {row.batch for row in rows} == {count}
        assert {row.tensors[0].shape for row in rows} == {(count, 4)}
        return [struct.unpack(f"<{4 * count}f", row.tensors[0].raw)[::4] for row in rows]

    assert batches(1) == [(0,), (1,), (2,)]
    assert batches(2) == [(0, 1), (2, 0), (1, 2)]
    assert batches(3) == [(0, 1, 2)]
    assert batches(6) == [(0, 1, 2, 0, 1, 2)]


def test_batches_that_a_model_does_not_take(tmp_path):
    path = written(tmp_path, {"data": [{"IN": [1, 2, 3, 4]}]})
    own = written(tmp_path, {"data": [{"IN": {"content": [1] * 8, "shape": [2, 4]}}]}, "own.json")
    for wanted, source, batch, what in (
        (FIXED, path, 2, "max_batch_size is 0"),
        (BATCHED, path, 9, "m takes up to 8"),
        (BATCHED, path, 0, "a batch of 0"),
        (BATCHED, own, 2, "brings its own batch"),
        (model(TensorSpec("IN", "FP32", (4,)), max_batch_size=None), path, 2, "does not say whether m takes batches"),
    ):
        with pytest.raises(UsageError, match=what):
            read_inputs([source], wanted, batch=batch)
    unknown = model(TensorSpec("IN", "FP32", (-1, 4)), max_batch_size=None)
    dataset = read_inputs([path], unknown, batch=2)
    assert rows_of(dataset)[0].tensors[0].shape == (2, 4)
    assert "first dimension" in dataset.notes[0]


def test_entries_of_two_shapes_cannot_share_a_request(tmp_path):
    wanted = model(TensorSpec("IN", "FP32", (-1, -1)), max_batch_size=8)
    path = written(tmp_path, {"data": [{"IN": [1, 2]}, {"IN": [1]}]})
    with pytest.raises(DatasetError, match=r'"IN" has the shape \[1\] here, another than in'):
        read_inputs([path], wanted, batch=2)


def test_inputs_that_disagree_on_the_batch(tmp_path):
    wanted = model(TensorSpec("A", "FP32", (-1, 1)), TensorSpec("B", "FP32", (-1, 1)), max_batch_size=8)
    value = {"A": {"content": [1, 2], "shape": [2, 1]}, "B": [1]}
    with pytest.raises(DatasetError, match="do not agree on the dimension of the batch"):
        tensors_of(tmp_path, value, wanted)


def test_folders_of_raw_tensors(tmp_path):
    folder = tmp_path / "one"
    folder.mkdir()
    (folder / "A").write_bytes(struct.pack("<2q", 1, 2))
    np.save(folder / "B.npy", np.array([[1.0, 2.0]]))
    (folder / "README").write_text("not an input")
    [row] = rows_of(read_inputs([str(folder)], TWO))
    assert [(tensor.shape, tensor.raw) for tensor in row.tensors] == [
        ((2,), struct.pack("<2q", 1, 2)),
        ((1, 2), floats(1, 2)),
    ]
    for number in (2, 10):
        (tmp_path / "many" / f"{number:02}").mkdir(parents=True)
        (tmp_path / "many" / f"{number:02}" / "A.bin").write_bytes(struct.pack("<q", number))
    rows = rows_of(read_inputs([str(tmp_path / "many")], TWO))
    assert [row.tensors[0].raw for row in rows] == [struct.pack("<q", 2), struct.pack("<q", 10)]


def test_folders_of_texts(tmp_path):
    (tmp_path / "IN.txt").write_bytes("a\r\nü\n\n".encode())
    [row] = rows_of(read_inputs([str(tmp_path)], TEXTS))
    assert row.tensors[0].shape == (3,)
    assert row.tensors[0].raw == b"\1\0\0\0a\2\0\0\0\xc3\xbc\0\0\0\0"


def test_folders_that_do_not_fit(tmp_path):
    with pytest.raises(DatasetError, match="no file here is named as an input"):
        read_inputs([str(tmp_path)], TWO)
    (tmp_path / "A").write_bytes(b"123")
    with pytest.raises(DatasetError, match='"A" is not INT64: 3 bytes'):
        read_inputs([str(tmp_path)], TWO)
    inner = tmp_path / "inner"
    inner.mkdir()
    (inner / "B").write_bytes(b"123")
    # A server names its inputs: none of them reaches out of the folder.
    outside = model(TensorSpec("../A", "INT8", (-1,)), TensorSpec("B", "INT8", (3,)))
    with pytest.raises(DatasetError, match=r'the input "\.\./A" of m is missing'):
        read_inputs([str(inner)], outside)


def test_arrays(tmp_path):
    one, many = str(tmp_path / "one.npy"), str(tmp_path / "many.npy")
    np.save(one, np.arange(4.0))
    np.save(many, np.arange(8).reshape(2, 4))
    assert [row.tensors[0].shape for row in rows_of(read_inputs([one], BATCHED))] == [(1, 4)]
    assert [row.tensors[0].raw for row in rows_of(read_inputs([many], BATCHED))] == [
        floats(0, 1, 2, 3),
        floats(4, 5, 6, 7),
    ]
    assert [row.tensors[0].shape for row in rows_of(read_inputs([many], BATCHED, batch=2))] == [(2, 4)]
    assert [row.tensors[0].shape for row in rows_of(read_inputs([many], FIXED))] == [(4,), (4,)]
    np.save(one, np.array(["a", "b"]))
    assert rows_of(read_inputs([one], TEXTS))[0].tensors[0].raw == b"\1\0\0\0a\1\0\0\0b"


def test_archives_of_arrays(tmp_path):
    path = str(tmp_path / "a.npz")
    np.savez(path, A=np.array([[1], [2]]), B=np.ones((2, 1, 2)))
    rows = rows_of(read_inputs([path], TWO))
    assert [[tensor.shape for tensor in row.tensors] for row in rows] == [[(1,), (1, 2)]] * 2
    assert rows[1].tensors[0].raw == struct.pack("<q", 2)


def save(path: str, arrays: dict[str, Any]) -> None:
    np.savez(path, **arrays)


def test_archives_of_groups_are_one_entry_each_in_order(tmp_path):
    path = str(tmp_path / "a.npz")
    shapes = {"00001": (3,), "00000": (2,), "00010": (1,)}
    columns = {f"{group}/A": np.ones(shape, dtype=int) for group, shape in shapes.items()}
    save(path, {**columns, **{f"{group}/B": np.ones((1, 2)) for group in shapes}})
    rows = rows_of(read_inputs([path], TWO))
    assert [[tensor.shape for tensor in row.tensors] for row in rows] == [[(n,), (1, 2)] for n in (2, 3, 1)]
    save(path, {"0/A": np.ones(1, dtype=int), "0/B": np.ones((1, 2)), "1/B": np.ones((1, 2))})
    with pytest.raises(DatasetError, match='the input "A" of m is missing') as caught:
        read_inputs([path], TWO)
    assert caught.value.where == f"{path}, 1"
    save(path, {"0/A": np.ones(1, dtype=int), "0/C": np.ones(1)})
    with pytest.raises(DatasetError, match='m has no input "C"'):
        read_inputs([path], TWO)
    np.savez(path)
    with pytest.raises(DatasetError, match="no array"):
        read_inputs([path], TWO)


@pytest.mark.parametrize(
    "arrays,what",
    [
        ({"A": np.ones(1)}, '"A" cannot be made INT64'),
        ({"C": np.ones(1)}, 'm has no input "C"'),
        ({"B": np.ones((1, 2))}, 'the input "A" of m is missing'),
        ({"A": np.ones((1, 1, 1), dtype=int)}, r'"A" has the shape \[1, 1, 1\]; m expects \[-1\]'),
        ({"A": np.ones((2, 1), dtype=int), "B": np.ones((3, 1, 2))}, "the arrays have 2, 3 rows"),
    ],
)
def test_archives_that_do_not_fit(tmp_path, arrays, what):
    path = str(tmp_path / "a.npz")
    np.savez(path, **arrays)
    with pytest.raises(DatasetError, match=what):
        read_inputs([path], TWO)


def test_objects_are_not_unpickled(tmp_path):
    path = str(tmp_path / "a.npy")
    np.save(path, np.array([{"a": 1}], dtype=object))
    with pytest.raises(DatasetError, match="not a file of NumPy"):
        read_inputs([path], VARYING)
    (tmp_path / "b.npz").write_bytes(b"PK\x03\x04 broken")
    with pytest.raises(DatasetError, match="not a file of NumPy"):
        read_inputs([str(tmp_path / "b.npz")], VARYING)
    with pytest.raises(DatasetError, match="has 2 inputs"):
        read_inputs([path], model(TensorSpec("A", "INT8", (1,)), TensorSpec("B", "INT8", (1,))))


EVERY = model(
    TensorSpec("F", "FP32", (-1, 3)),
    TensorSpec("H", "BF16", (-1, 3)),
    TensorSpec("I", "INT8", (-1, 3)),
    TensorSpec("U", "UINT64", (-1, 3)),
    TensorSpec("O", "BOOL", (-1, 3)),
    TensorSpec("T", "BYTES", (-1, 3)),
    max_batch_size=4,
)


def test_random_inputs_are_sane_and_repeatable():
    dataset = read_inputs(["random"], EVERY, seed=3)
    rows = rows_of(dataset)
    assert len(rows) == 64
    assert len({row.tensors[0].raw for row in rows}) == 64
    assert read_inputs(["random"], EVERY, seed=3).sha256 == dataset.sha256
    assert read_inputs(["random"], EVERY, seed=4).sha256 != dataset.sha256
    by_name = {tensor.name: tensor for tensor in rows[0].tensors}
    assert {tensor.shape for tensor in by_name.values()} == {(1, 3)}
    assert all(0 <= value < 1 for value in struct.unpack("<3f", by_name["F"].raw))
    assert all(0 <= value < 100 for value in struct.unpack("<3Q", by_name["U"].raw))
    assert set(by_name["O"].raw) <= {0, 1}
    assert by_name["T"].raw[4:36].decode().isalnum()
    assert [len(read_inputs([f"random:{count}"], EVERY)) for count in (1, 5)] == [1, 5]
    assert rows_of(read_inputs(["random:2"], EVERY, batch=2))[0].tensors[0].shape == (2, 3)


def test_zeros():
    [row] = rows_of(read_inputs(["zero"], EVERY))
    assert all(set(tensor.raw) <= {0} for tensor in row.tensors)


def test_large_random_inputs_stay_few():
    large = model(TensorSpec("IN", "FP32", (3_000_000,)))
    assert 1 <= len(read_inputs(["random"], large)) <= 3


def test_random_inputs_need_shapes():
    with pytest.raises(UsageError, match="--shape IN:N"):
        read_inputs(["random"], VARYING)
    assert rows_of(read_inputs(["random:1"], VARYING, shapes={"IN": (5,)}))[0].tensors[0].shape == (5,)
    with pytest.raises(UsageError, match="is not a number of rows"):
        read_inputs(["random:0"], FIXED)


def test_inputs_that_are_none(tmp_path):
    with pytest.raises(UsageError, match="nothing to send"):
        read_inputs([], FIXED)
    (tmp_path / "x.csv").write_text("")
    for name, what in (("x.csv", "cannot tell"), ("no.json", "no such file"), ("random:x", "no such file")):
        with pytest.raises(DatasetError, match=what):
            read_inputs([str(tmp_path / name) if "." in name else name], FIXED)


@pytest.mark.parametrize(
    "shape,rows",
    [((10**9,), ""), ((2**31 - 1, 2**31 - 1), ""), ((1000, 1000, 1000), ":3"), ((10**6,), ":10000")],
)
@pytest.mark.parametrize("kind", ["random", "zero"])
@pytest.mark.parametrize("datatype", ["FP32", "BYTES"])
def test_made_up_values_of_absurd_sizes_are_refused_before_memory_is_taken(shape, rows, kind, datatype):
    wanted = model(TensorSpec("IN", datatype, shape))
    tracemalloc.start()
    with pytest.raises(UsageError, match=r"made-up values would take [\d,.]+ GiB of memory: IN \["):
        read_inputs([f"{kind}{rows}"], wanted)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 1 << 20


@pytest.mark.parametrize("name", ["random:" + "9" * 5000, "random:0", "zero:99999999"])
def test_numbers_of_rows_that_cannot_be_meant(name):
    with pytest.raises(UsageError, match="is not a number of rows"):
        read_inputs([name], FIXED)


def test_sizes_of_shapes_that_cannot_be_meant():
    with pytest.raises(UsageError, match="is not a shape of a tensor"):
        parse_shapes(["IN:" + "9" * 5000])
