"""Files that are made to exhaust memory or time, or to read other files, and damaged ones."""

from __future__ import annotations

import io
import json
import pathlib
import pickle
import zipfile

import h5py
import numpy as np
import pytest
from helpers.convert_command import damage

from tf_blockrnn import weights
from tf_blockrnn.weights import _bounds

FILES = pathlib.Path(__file__).parent / "files"
GRU_ARRAYS = {"kernel:0": (3, 9), "recurrent_kernel:0": (3, 9), "bias:0": (2, 9)}


def keras_2_model(path, layers, **graph) -> None:
    """A Keras 2 model of layers, with arrays for those that are a GRU."""
    class_name = "Functional" if graph else "Sequential"
    config = {"class_name": class_name, "config": {"name": "m", "layers": layers, **graph}}
    with h5py.File(path, "w") as file:
        file.attrs["keras_version"] = "2.11.0"
        file.attrs["model_config"] = json.dumps(config)
        group = file.create_group("model_weights")
        for one in layers:
            if one["class_name"] == "GRU":
                own = group.create_group(one["config"]["name"])
                own.attrs["weight_names"] = list(GRU_ARRAYS)
                for name, shape in GRU_ARRAYS.items():
                    own[name] = np.ones(shape, "f4")


def layer(class_name, name, *calls, **config):
    """The config of a layer that takes the outputs of other layers' calls."""
    nodes = [[[below, number, 0, {}]] for below, number in calls]
    config = {"name": name, **config}
    return {"class_name": class_name, "name": name, "config": config, "inbound_nodes": nodes}


def test_bidirectionals_in_one_another_are_refused(tmp_path):
    one = layer("LSTM", "lstm", units=2)
    for number in range(24):
        one = layer("Bidirectional", f"b{number}", layer=layer("Wrapper", "w", layer=one))
    keras_2_model(tmp_path / "m.h5", [one])
    with pytest.raises(weights.UnsupportedError, match="b22: a Bidirectional in another"):
        weights.read(tmp_path / "m.h5")


def functional(name, calls, inner, output):
    """A model that is a layer, with one input, `i`, and its layers."""
    layers = [layer("InputLayer", "i"), *inner]
    graph = {"input_layers": [["i", 0, 0]], "output_layers": [[output, 0, 0]]}
    return layer("Functional", name, *calls, layers=layers, **graph)


def one_after_another(below):
    """Each of two calls of a model takes either output of the model below it."""
    models = []
    for number in range(40):
        calls = [(models[-1]["name"], n) for n in (0, 1)] if models else [(below, 0)] * 2
        dropout = layer("Dropout", "d", ("i", 0))
        models.append(functional(f"m{number}", calls, [dropout], "d"))
    return models


def one_in_another(below):
    """Each model is called twice in the next one."""
    one = layer("Dropout", "d", ("i", 0))
    for number in range(40):
        calls = [("i", 0)] * 2 if number < 39 else [(below, 0)]
        one = functional(f"m{number}", calls, [one], one["name"])
    return [one]


@pytest.mark.parametrize("models", [one_after_another, one_in_another])
def test_graphs_with_more_paths_than_can_be_followed(models, tmp_path):
    between = models("below")
    options = {"units": 3, "return_sequences": True, "reset_after": True}
    layers = [
        layer("InputLayer", "x"),
        layer("GRU", "below", ("x", 0), **options),
        *between,
        layer("GRU", "above", (between[-1]["name"], 0), **options),
    ]
    graph = {"input_layers": [["x", 0, 0]], "output_layers": [["above", 0, 0]]}
    keras_2_model(tmp_path / "m.h5", layers, **graph)
    assert weights.read(tmp_path / "m.h5").num_layers == 2


def test_a_model_that_takes_its_own_outputs_is_refused(tmp_path):
    dropout = layer("Dropout", "d", ("i", 0))
    layers = [
        layer("InputLayer", "x"),
        layer("GRU", "below", ("x", 0), units=3, return_sequences=True),
        functional("twice", [("below", 0), ("twice", 0)], [dropout], "d"),
        layer("GRU", "above", ("twice", 1), units=3),
    ]
    graph = {"input_layers": [["x", 0, 0]], "output_layers": [["above", 0, 0]]}
    keras_2_model(tmp_path / "m.h5", layers, **graph)
    with pytest.raises(weights.UnsupportedError, match="not record which call of twice"):
        weights.read(tmp_path / "m.h5", layer="below,above")


def huge(group):
    group.create_dataset("kernel:0", (2**36,), "f4", chunks=(1000,), compression="gzip")


def external(group):
    group.create_dataset("kernel:0", (4,), "u1", external=[(__file__, 0, 4)])


def virtual(group):
    layout = h5py.VirtualLayout((4,), "f4")
    layout[:] = h5py.VirtualSource("another.h5", "x", (4,))
    group.create_virtual_dataset("kernel:0", layout)


def link(group):
    group["kernel:0"] = h5py.ExternalLink("another.h5", "x")


def text(group):
    group["kernel:0"] = np.array(["a", "b"], h5py.string_dtype())


@pytest.mark.parametrize("of_model", [False, True])
@pytest.mark.parametrize(
    ("add", "words"),
    [
        (huge, "declares arrays of 2748779"),
        (external, "kernel:0 has its values in another file"),
        (virtual, "kernel:0 has its values in another file"),
        (link, "kernel:0 is a link to another file"),
        (text, "kernel:0 must have numbers, got object"),
    ],
)
def test_hdf5_that_has_no_arrays_of_its_own(add, words, of_model, tmp_path):
    path = tmp_path / "m.h5"
    keras_2_model(path, [layer("GRU", "gru", units=3)])
    with h5py.File(path, "r+") as file:
        if not of_model:
            del file.attrs["model_config"]
        del file["model_weights/gru/kernel:0"]
        add(file["model_weights/gru"])
    with pytest.raises(ValueError, match=words):
        weights.read(path)


def keras_3_model(path, **members) -> None:
    config = layer("Sequential", "m", layers=[layer("GRU", "gru", units=3)])
    members = {"config": json.dumps(config), "metadata": '{"keras_version": "3.0.0"}', **members}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr("model.weights.h5" if name == "h5" else f"{name}.json", content)


def test_keras_archives_of_large_members(tmp_path):
    with h5py.File(tmp_path / "weights.h5", "w") as file:
        huge(file.create_group("layers/gru/cell/vars"))
    keras_3_model(tmp_path / "m.keras", h5=(tmp_path / "weights.h5").read_bytes())
    with pytest.raises(ValueError, match="declares arrays of 2748779"):
        weights.read(tmp_path / "m.keras")
    repeated = json.dumps([list(range(100))] * 15_000)  # which deflate makes 90 times smaller
    keras_3_model(tmp_path / "m.keras", config=repeated)
    with pytest.raises(ValueError, match="config.json has 5880000 bytes, more than 4194304"):
        weights.read(tmp_path / "m.keras")


def test_matrices_in_a_config(tmp_path):
    """As Keras has them for an embedding whose initializer is a constant."""
    with h5py.File(tmp_path / "weights.h5", "w") as file:
        for number, shape in enumerate(GRU_ARRAYS.values()):
            file[f"layers/gru/cell/vars/{number}"] = np.ones(shape, "f4")
    matrix = np.random.default_rng(0).random(900_000).tolist()
    gru = layer("GRU", "gru", units=3, reset_after=True)
    layers = [layer("Embedding", "e", matrix=matrix), gru]
    config = json.dumps(layer("Sequential", "m", layers=layers))
    keras_3_model(tmp_path / "m.keras", h5=(tmp_path / "weights.h5").read_bytes(), config=config)
    assert len(config) > 16 << 20
    assert weights.read(tmp_path / "m.keras").cell == "gru"


@pytest.mark.parametrize(
    ("config", "arrays", "words"),
    [
        ({"units": 3, "use_bias": True}, "012", None),
        ({"units": 3, "use_bias": False}, "01", None),
        ({"units": 3, "use_bias": True}, "01", "use_bias=True, but arrays of 3 units without bias"),
        ({"units": 3, "use_bias": False}, "012", "use_bias=False, but arrays .* with a bias"),
        ({"units": 5}, "012", "units=5 and use_bias=True, but arrays of 3 units with a bias"),
        ({"units": "x"}, "012", "units='x' and use_bias=True, but"),
        ({"units": 3}, "123", "not an intact Keras model"),
        ({"units": 3}, "013", "not an intact Keras model"),
        ({"units": 3}, ["0", "1", "00"], "not an intact Keras model"),
    ],
)
def test_configs_that_are_not_of_the_arrays(config, arrays, words, tmp_path):
    gru = layer("GRU", "gru", reset_after=True, **config)
    with h5py.File(tmp_path / "weights.h5", "w") as file:
        for number, shape in zip(arrays, GRU_ARRAYS.values(), strict=False):
            file[f"layers/gru/cell/vars/{number}"] = np.ones(shape, "f4")
    keras_2_model(tmp_path / "m.h5", [gru])
    with h5py.File(tmp_path / "m.h5", "r+") as file:
        file["model_weights/gru"].attrs["weight_names"] = list(GRU_ARRAYS)[: len(arrays)]
    model = json.dumps(layer("Sequential", "m", layers=[gru]))
    keras_3_model(tmp_path / "m.keras", h5=(tmp_path / "weights.h5").read_bytes(), config=model)
    of_config = words is None or "use_bias" in words
    for name in ("m.keras", "m.h5")[: 1 + of_config]:
        if words is None:
            assert weights.read(tmp_path / name).layers[0].forward.units == 3
            continue
        with pytest.raises(ValueError, match=words):
            weights.read(tmp_path / name)


def test_names_that_are_there_twice(tmp_path):
    keras_2_model(tmp_path / "m.h5", [layer("GRU", "gru", units=3)])
    with h5py.File(tmp_path / "m.h5", "r+") as file:
        file["model_weights/gru"].attrs["weight_names"] = [*GRU_ARRAYS, "kernel:0"]
    with pytest.raises(ValueError, match="weight_names has one name twice"):
        weights.read(tmp_path / "m.h5")


def test_checksums_of_stored_members(tmp_path):
    """Keras does not compress the weights; Python 3.12 has no CRC of what is read in parts."""
    data = bytearray((FILES / "keras_3.15.1_hard_sigmoid.keras").read_bytes())
    with zipfile.ZipFile(FILES / "keras_3.15.1_hard_sigmoid.keras") as archive:
        info = archive.getinfo("model.weights.h5")
        content = archive.read(info)
    assert info.compress_type == zipfile.ZIP_STORED
    with h5py.File(io.BytesIO(content)) as file:
        place = file["layers/lstm/cell/vars/0"].id.get_offset()
    data[data.index(content) + place] ^= 1
    (tmp_path / "m.keras").write_bytes(data)
    with pytest.raises(ValueError, match="Bad CRC-32"):
        weights.read(tmp_path / "m.keras")


@pytest.mark.parametrize("ending", [".h5", ".weights.h5", ".keras", ".hdf5"])
@pytest.mark.parametrize("size", [0, 1000])
def test_files_without_their_end(ending, size, tmp_path):
    keras_2_model(tmp_path / "m.h5", [layer("GRU", "gru", units=3)])
    path = tmp_path / f"cut{ending}"
    path.write_bytes((tmp_path / "m.h5").read_bytes()[:size])
    with pytest.raises(ValueError, match="the file is not an intact (HDF5 file|Keras model): "):
        weights.read(path)


def with_member(path, name, content) -> None:
    weights.to_npz(
        weights.read({"weight_ih_l0": np.ones([9, 2]), "weight_hh_l0": np.ones([9, 3])}), path
    )
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, content)


@pytest.mark.filterwarnings("ignore::tf_blockrnn.weights.AssumptionWarning")
def test_npz_that_declares_more_than_it_has(tmp_path):
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (%d,)}\n" % 2**60
    array = b"\x93NUMPY\1\0" + len(header).to_bytes(2, "little") + header
    with_member(tmp_path / "m.npz", "layers.0.forward.h0.npy", array)
    with pytest.raises(
        ValueError, match=r"not an intact .*: layers.0.forward.h0.npy has 0 bytes for"
    ):
        weights.read(tmp_path / "m.npz")
    (tmp_path / "array.npz").write_bytes(array)
    with pytest.raises(ValueError, match="not an intact .npz file: "):
        weights.read(tmp_path / "array.npz")
    with_member(tmp_path / "m.npz", "layers.0.forward.h0.npy", b"")
    damage(tmp_path / "m.npz", b"PK\1\2", 27, 127)  # its size, when decompressed
    with pytest.raises(ValueError, match="bytes and declares arrays of 213"):
        weights.read(tmp_path / "m.npz")


@pytest.mark.filterwarnings("ignore::tf_blockrnn.weights.AssumptionWarning")
def test_archives_whose_directory_hides_members(tmp_path):
    """The length of a comment, extra fields or a name that has the next entry in it."""
    for length in (29, 31, 33):
        with_member(tmp_path / "m.npz", "layers.0.forward.h0.npy", b"")
        data = bytearray((tmp_path / "m.npz").read_bytes())
        data[data.rindex(b"PK\1\2", 0, data.rindex(b"PK\1\2")) + length] ^= 1
        (tmp_path / "m.npz").write_bytes(data)
        with pytest.raises(ValueError, match="not an intact .npz file: (its directory|Corrupt ex)"):
            weights.read(tmp_path / "m.npz")


@pytest.mark.parametrize("comment", [b"", b"a comment"])
def test_archives_of_more_members_than_16_bits_count(comment, tmp_path):
    for number in (65_534, 65_535, 65_536):
        with zipfile.ZipFile(tmp_path / "m.zip", "w") as archive:
            archive.comment = comment
            for name in range(number):
                archive.writestr(f"{name}", b"")
        with _bounds.open_archive(tmp_path / "m.zip") as archive:
            assert len(archive.namelist()) == number


def test_the_pickles_in_an_exported_archive_are_not_read(tmp_path):
    class Ran:
        def __reduce__(self):
            return (pathlib.Path.touch, (tmp_path / "ran",))

    path = tmp_path / "e.pt2"
    with zipfile.ZipFile(FILES / "torch_export.pt2") as good, zipfile.ZipFile(path, "w") as file:
        for member in good.namelist():
            is_pickle = member.endswith("sample_inputs/model.pt")
            file.writestr(member, pickle.dumps(Ran()) if is_pickle else good.read(member))
    with pytest.warns(weights.AssumptionWarning):
        assert weights.read(path).layers == weights.read(FILES / "torch_export.pt2").layers
    assert not (tmp_path / "ran").exists()


# ---- what has no end


def in_one_another(depth, class_name="Sequential"):
    """The config of that many models, as json.dumps would write it."""
    start = f'{{"class_name": "{class_name}", "config": {{"name": "m", "layers": ['
    return start * depth + json.dumps(layer("GRU", "gru", units=3)) + "]}}" * depth


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (in_one_another(10**4), "maximum recursion depth"),
        (in_one_another(10**4, "Wrapper"), "maximum recursion depth"),
        ("[" * 10**6, "maximum recursion depth"),
        ('{"a":' * 10**5, "maximum recursion depth"),
        (in_one_another(1, "m" * 1001), "a name of more than 1000 characters"),
        ("9" * 5000, "4300 digits"),
        ('"\\ud800"', "not an intact Keras model"),
        ("[]", "not an intact Keras model"),
        ("{}", "not an intact Keras model: class_name"),
        ('{"class_name": 1, "config": 2}', "not an intact Keras model"),
        ('{"class_name": "Sequential", "config": {"layers": {"a": 1}}}', "not an intact Keras"),
        (in_one_another(1).replace('"gru"', "1e999"), "not an intact Keras model"),
    ],
    ids=lambda one: one[:30],
)
def test_configs_that_describe_no_model(config, words, tmp_path):
    keras_3_model(tmp_path / "m.keras", config=config)
    keras_2_model(tmp_path / "m.h5", [layer("GRU", "gru", units=3)])
    with h5py.File(tmp_path / "m.h5", "r+") as file:
        file["model_weights"].attrs["more"] = 1
        del file.attrs["model_config"]
        if len(config) < 60_000:  # the most in an attribute
            file.attrs["model_config"] = config
    for name in ("m.keras", "m.h5")[: 1 + (len(config) < 60_000)]:
        with pytest.raises(ValueError, match=words) as raised:
            weights.read(tmp_path / name)
        assert str(tmp_path / name) in str(raised.value)


RUNS = {"class_name": "system", "module": "os", "registered_name": "os>system", "config": "touch r"}


@pytest.mark.parametrize("class_name", ["GRU", "Lambda", "RNN", "Custom>GRU"])
def test_nothing_that_a_config_names_is_imported(class_name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = {"units": 3, "activation": RUNS, "cell": RUNS, "layer": RUNS, "function": RUNS}
    keras_3_model("m.keras", config=json.dumps(layer(class_name, "gru", **config)))
    keras_2_model("m.h5", [layer(class_name, "gru", **config)])
    for name in ("m.keras", "m.h5"):
        with pytest.raises(ValueError, match="system|no recurrent layer|not an intact Keras"):
            weights.read(name)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.h5", "m.keras"]


def hard_circle(file):
    file["model_weights/gru/circle"] = file["model_weights"]


def soft_circle(file):
    file["a"], file["b"] = h5py.SoftLink("/b"), h5py.SoftLink("/a")
    del file["model_weights/gru/bias:0"]
    file["model_weights/gru/bias:0"] = h5py.SoftLink("/a")


def texts(file):
    del file["model_weights/gru"].attrs["weight_names"]
    texts = np.array(["kernel:0"] * 257, h5py.string_dtype())
    file["model_weights/gru"].attrs["weight_names"] = texts


def deep_groups(file):
    group = file
    for _ in range(3000):
        group = group.create_group("g")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (hard_circle, None),
        (soft_circle, "not an intact Keras model: "),
        (texts, "weight_names has 257 texts, more than 256"),
        (deep_groups, "groups in more than 100 others"),
    ],
)
def test_hdf5_in_circles(change, words, tmp_path):
    path = tmp_path / "m.h5"
    keras_2_model(path, [layer("GRU", "gru", units=3, reset_after=True)])
    good = weights.read(path)
    with h5py.File(path, "r+") as file:
        change(file)
    if words is None:
        assert weights.read(path) == good
        return
    with pytest.raises(ValueError, match=words):
        weights.read(path)


def test_paths_of_long_names(tmp_path, monkeypatch):
    """Many groups in one with a long path have that path each."""
    with h5py.File(tmp_path / "m.h5", "w") as file:
        group = file.create_group("/".join(["g" * 10_000] * 3))
        for number in range(100):
            group.create_group(str(number))
    monkeypatch.setattr(_bounds, "_LEAST_BOUND", 10**6)
    monkeypatch.setattr(_bounds, "_MOST_EXPANSION", 1)
    with pytest.raises(ValueError, match="makes paths of more than"):
        weights.read(tmp_path / "m.h5")


@pytest.mark.parametrize("size", [2**64 - 16, 2**64 - 1, 2**63, 4096])
def test_collections_of_texts_that_libhdf5_does_not_end_with(size, tmp_path):
    path = tmp_path / "m.h5"
    keras_2_model(path, [layer("GRU", "gru", units=3)])
    data = bytearray(path.read_bytes())
    place = data.index(b"GCOL") + 24  # the size of the first text
    data[place : place + 8] = size.to_bytes(8, "little")
    path.write_bytes(data)
    with pytest.raises(ValueError, match="a collection of texts has an object that is not in it"):
        weights.read(path)


@pytest.mark.filterwarnings("ignore::tf_blockrnn.weights.AssumptionWarning", "ignore:Duplicate")
def test_archives_of_archives_objects_and_two_of_one_name(tmp_path):
    class Ran:
        def __reduce__(self):
            return (pathlib.Path.touch, (tmp_path / "ran",))

    path = tmp_path / "m.npz"
    objects = io.BytesIO()
    np.save(objects, np.array([Ran()], object), allow_pickle=True)
    with_member(path, "layers.0.forward.h0.npy", objects.getvalue())
    with pytest.raises(ValueError, match="Object arrays cannot be loaded"):
        weights.read(path)
    with_member(path, "layers.0.forward.w_x.npy", b"")
    with pytest.raises(ValueError, match="two members 'layers.0.forward.w_x.npy'"):
        weights.read(path)
    with_member(path, "layers.0.forward.h0.npy", (FILES / "torch_state_dict.pt").read_bytes())
    with pytest.raises(ValueError, match="h0 is not an array"):
        weights.read(path)
    with zipfile.ZipFile(tmp_path / "m.keras", "w") as archive:
        for name in ("config.json", "metadata.json", "model.weights.h5"):
            archive.write(path, name)
    with pytest.raises(ValueError, match="not that of a Keras model: UnicodeDecodeError"):
        weights.read(tmp_path / "m.keras")
    assert not (tmp_path / "ran").exists()
