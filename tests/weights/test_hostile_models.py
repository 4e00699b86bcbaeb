"""Files of PyTorch, ONNX, TensorFlow 1 and safetensors that are made to harm their reader.

test_hostile_files.py has those of Keras and NumPy, test_fuzzed_files.py mutations of real ones.
"""

from __future__ import annotations

import os
import pathlib
import zipfile
from unittest import mock

import numpy as np
import onnx
import pytest
import safetensors.numpy
import tensorflow as tf
from helpers.tf1_tables import bundle, entry, field, shape, table
from onnx import TensorProto, helper, numpy_helper

from tf_blockrnn import weights
from tf_blockrnn.weights import _bounds

FILES = pathlib.Path(__file__).parent / "files"
pytestmark = pytest.mark.filterwarnings("ignore::tf_blockrnn.weights.AssumptionWarning")


def refused(path, words, **options) -> None:
    with pytest.raises(ValueError, match=words) as raised:
        weights.read(path, **options)
    assert str(path) in str(raised.value)


# ---- PyTorch


CALLS = [
    *("os system", "posix system", "nt system", "subprocess Popen", "builtins exec"),
    *("builtins eval", "__builtin__ getattr", "builtins __import__", "operator attrgetter"),
    *("torch load", "torch hub.load", "torch.storage _load_from_bytes", "torch.jit load"),
    *("numpy load", "numpy._core.multiarray _reconstruct", "torch._utils __builtins__.eval"),
    *("collections OrderedDict.fromkeys", "__main__ Tagger", "pickle loads", "runpy _run_code"),
]


def archive(path, pickled: bytes, like: str = "torch_state_dict.pt") -> None:
    """An archive of PyTorch with another pickle."""
    with zipfile.ZipFile(FILES / like) as good, zipfile.ZipFile(path, "w") as file:
        for name in good.namelist():
            file.writestr(name, pickled if name.endswith("data.pkl") else good.read(name))


def test_pickles_that_call_functions(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    start = (FILES / "torch_0.pth").read_bytes()[:137]  # up to its object
    text = b"X\n\0\0\0touch ran."
    for call in CALLS:
        module, name = (part.encode() for part in call.split())
        short = b"".join(b"\x8c" + bytes([len(one)]) + one for one in (module, name))
        for function in (b"c%b\n%b\n" % (module, name), short + b"\x93"):
            ways = (b"(%btR" % text[:-1], b"(%bt\x81" % text[:-1], b")R%bb" % text[:-1])
            for way in ways:
                pickled = b"\x80\4%b%b." % (function, way)
                pathlib.Path("plain.pt").write_bytes(pickled)
                pathlib.Path("old.pt").write_bytes(start + pickled)
                archive("new.pt", pickled)
                archive("script.pt", pickled, "torch_script.pt")
                for path in ("plain.pt", "old.pt", "new.pt", "script.pt"):
                    refused(path, f"it names {'.'.join(call.split())}")
        inst = b"(i%b\n%b\n." % (module, name)
        archive("new.pt", inst)
        refused("new.pt", "has the opcode INST of pickles, which is not read: load it with PyT")
    assert sorted(os.listdir()) == ["new.pt", "old.pt", "plain.pt", "script.pt"]


def tensor(size, strides=None, offset=0) -> bytes:
    """The opcodes of a tensor in the storage of 21 floats."""
    numbers = b"".join(b"L%dL\n" % n for n in size)
    steps = b"".join(b"L%dL\n" % n for n in strides or [0] * len(size))
    storage = b"(X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0" + b"0X\3\0\0\0cpuK\25tQ"
    place = b"L%dL\n(%bt(%bt" % (offset, numbers, steps)
    return b"ctorch._utils\n_rebuild_tensor_v2\n(%b%b\x89}tR" % (storage, place)


def named(*pairs) -> bytes:
    """The pickle of a dict of names to opcodes."""
    items = b"".join(b"X" + len(name).to_bytes(4, "little") + name + value for name, value in pairs)
    return b"\x80\2}(%bu." % items


ONE = tensor([12, 1], [1, 1])
W_X, W_H = b"weight_ih_l0", b"weight_hh_l0"
MANY = [(b"weight_%s_l%d" % (kind, n), b"h\1") for n in range(99) for kind in (b"ih", b"hh")]


@pytest.mark.parametrize(
    ("pickled", "words"),
    [
        (named((W_X, tensor([2**40, 3])), (W_H, ONE)), "more than 1032 times its size"),
        (named((W_X, tensor([22], [1])), (W_H, ONE)), r"a tensor \[22\] is not in its storage"),
        (named((W_X, tensor([3], [2**62]))), "is not in its storage"),
        (named((W_X, tensor([-3]))), "sizes that are no sizes"),
        (named((W_X, tensor([3], offset=-1))), "sizes that are no sizes"),
        (named((W_X, tensor([0, 2**62], [1, 1])), (W_H, ONE)), "array is too big"),
        (named((W_X, tensor([1] * 99)), (W_H, ONE)), "sizes that are no sizes"),
        (named((b"a" * 10**7, b"N")), "^.{,500}$"),
        (named((W_X, ONE[:-40])), "not an intact PyTorch file"),
        # One tensor, counted as often as it is used.
        (named((b"one", tensor([2**18, 12]) + b"q\1"), *MANY), "more than 1032 times its size"),
        (b"\x80\2]q\0h\0a.", "no state dict, but an object of list"),
        (b"\x80\2}q\0X\1\0\0\0ah\0s.", "no recurrent layer"),
        (b"\x80\2}r\xff\xff\xff\x7f.", "no recurrent layer"),
        (b"\x80\2" + b"(" * 10**6 + b"t" * 10**6 + b".", "an object of tuple"),
        (b"\x80\2}" + b")" + b"\x85" * 10**6 + b"Ns.", "its keys are <builtins.tuple>"),
        (b"\x80\2}]Ns.", "unhashable"),
        (b"\x80\2\x8b\xff\xff\xff\x7f1.", "not an intact PyTorch file"),
        (b"\x80\2X\xff\xff\xff\xff1.", "not an intact PyTorch file"),
        (b"\x80\4\x8e" + b"\xff" * 8 + b"1.", "not an intact PyTorch file"),
        (
            b"\x80\2ctorch._tensor\n_rebuild_from_type_v2\nq\0(h\0NNNtR.",
            "torch._tensor._rebuild_fr",
        ),
    ],
    ids=str,
)
def test_pickles_of_impossible_tensors(pickled, words, tmp_path):
    archive(tmp_path / "m.pt", pickled)
    refused(tmp_path / "m.pt", words)


def test_torchscript_is_read_without_its_code(tmp_path):
    """Whatever the code of an archive is; also where modules are in one another, in a circle."""
    path = tmp_path / "m.pt"
    with zipfile.ZipFile(FILES / "torch_script.pt") as good, zipfile.ZipFile(path, "w") as file:
        for name in good.namelist():
            file.writestr(name, b"raise" if name.endswith(".py") else good.read(name))
    assert weights.read(path) == weights.read(FILES / "torch_script.pt")
    made = b"c__torch__\nM\n)\x81q\0"
    circle = b"\x80\2" + made + b"}(X\1\0\0\0ah\0ub."
    archive(path, circle, "torch_script.pt")
    refused(path, "no recurrent layer")
    deep = b"\x80\2" + (b"c__torch__\nM\n)\x81}X\1\0\0\0a") * 10**4 + b"N" + b"sb" * 10**4 + b"."
    archive(path, deep, "torch_script.pt")
    refused(path, "names of its tensors are too long")


@pytest.mark.parametrize("like", ["torch_state_dict.pt", "torch_export.pt2"])
def test_archives_of_another_order_or_two_folders(like, tmp_path):
    path, given = tmp_path / like, weights.read(FILES / like)
    with zipfile.ZipFile(FILES / like) as good:
        members = {name: good.read(name) for name in good.namelist()}
    byteorder = next(name for name in members if name.endswith("/byteorder"))

    def write(*parts) -> None:
        with zipfile.ZipFile(path, "w") as file:
            for name, content in (item for part in parts for item in part.items()):
                file.writestr(name, content)

    swapped = {
        name: np.frombuffer(content, "<f4").byteswap().tobytes() if name[-1].isdigit() else content
        for name, content in members.items()
    }
    write(swapped | {byteorder: b"big"})
    assert weights.read(path) == given
    for order in (b"big\n", b"BIG", b""):
        write(swapped | {byteorder: order})
        refused(path, "its byteorder is .*, neither little nor big")
    other = {f"other/{name.partition('/')[2]}": content for name, content in swapped.items()}
    for parts in ((members, other), (other, members)):
        write(*parts)
        refused(path, "it has 2 members data")


STATE = {"weight_ih_l0": np.ones([12, 2]), "weight_hh_l0": np.ones([12, 3])}


@pytest.mark.parametrize("prefix", ["", "rnn."])
@pytest.mark.parametrize("name", ["weight_ih_l00", "weight_ih_l\u0660", "weight_ih"])
def test_two_names_of_one_array(name, prefix, tmp_path):
    path = tmp_path / "m.safetensors"
    state = {prefix + one: array for one, array in {**STATE, name: np.zeros([12, 2])}.items()}
    safetensors.numpy.save_file(state, path)
    refused(path, "weight_ih, of a cell, beside weight_ih_l0|keys that are no recurrent weights")


@pytest.mark.parametrize(
    "state",
    [
        {f"a{end}{name}": array for end in "./" for name, array in STATE.items()},
        {"a": STATE, **{f"a.{name}": array for name, array in STATE.items()}},
        {1: STATE, "1": dict(STATE)},
    ],
)
def test_two_layers_of_one_name(state):
    with pytest.raises(ValueError, match="has several recurrent layers of the name '[a1]'"):
        weights.read(state)


# ---- safetensors


@pytest.mark.parametrize(
    "header",
    [
        b'{"a":' * 10**5,
        b'{"weight_ih_l0":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,4]}}',
        b'{"weight_ih_l0":{"dtype":"F32","shape":[1],"data_offsets":[0,18446744073709551615]}}',
        b'{"weight_ih_l0":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}}',
        b'{"weight_ih_l0":{"dtype":"F32","shape":["1"],"data_offsets":[0,4]}}',
        b'{"__metadata__":{"a":{}}}',
    ],
    ids=lambda header: header[:60],
)
def test_headers_of_safetensors(header, tmp_path):
    path = tmp_path / "m.safetensors"
    for size in (len(header), 2**63, 0):
        path.write_bytes(size.to_bytes(8, "little") + header + bytes(4))
        refused(path, "not an intact safetensors file")


@pytest.mark.parametrize("raised", ["PanicException", "KeyboardInterrupt"])
def test_panics_of_rust(raised, monkeypatch):
    """A panic is an exception of the file; others that are no Exception are not."""
    error = type(raised, (BaseException,), {})("index out of bounds")
    monkeypatch.setattr(safetensors.numpy, "load_file", mock.Mock(side_effect=error))
    with pytest.raises(BaseException, match="index out of bounds") as found:
        weights.read(FILES / "torch_bfloat16.safetensors")
    assert isinstance(found.value, ValueError) == (raised == "PanicException")


# ---- TensorFlow 1


@pytest.mark.parametrize(
    "kernel",
    [
        # TensorFlow ends the process for the first nine.
        entry(shape(-1, 12), 48, 240),
        entry(shape(2**40, 2**40), 48, 240),
        entry(shape(2**40, 2**40, 0), 48, 0),
        entry(shape(*[1] * 255), 48, 4),
        entry(shape(2**62, 4), 48, 0),
        entry(shape(5, 12), 48, 240, kind=0),
        entry(shape(5, 12), 48, 240, kind=101),
        entry(shape(2**40), 48, 240, more=field(2, shape(2**40))),
        entry(field(2, field(1, 5) + field(2, b"\xff")) + shape(12), 48, 240),
        entry(shape(2**36), 0, 2**38),
        entry(shape(5, 12), 2**63 - 1, 240),
        entry(shape(5, 12), 48, -240),
        entry(shape(5, 12), 0, 0, more=field(7, field(1, field(1, -7) + field(2, 2**62)))),
        entry(shape(2**40), 0, 48, kind=7),
        b"\xff" * 11,
        field(2, b"")[:-1],
    ],
    ids=str,
)
def test_checkpoints_of_impossible_tensors(kernel, tmp_path):
    names = b"rnn/lstm_cell/bias", b"rnn/lstm_cell/kernel"
    index = bundle([(names[0], entry(shape(12), 0, 48)), (names[1], kernel)])
    (tmp_path / "m.index").write_bytes(index)
    (tmp_path / "m.data-00000-of-00001").write_bytes(bytes(288))
    refused(tmp_path / "m", "not an intact TensorFlow checkpoint", cell="LSTMCell")


def test_tables_of_two_entries_of_one_name(tmp_path):
    """TensorFlow has the shape of one of them, and the elements of the other."""
    names = b"rnn/lstm_cell/bias", b"rnn/lstm_cell/kernel"
    twice = [(names[0], entry(shape(12), 0, 48)), (names[1], entry(shape(5, 12), 48, 240))] * 2
    (tmp_path / "m.data-00000-of-00001").write_bytes(bytes(288))
    for entries in (sorted(twice), twice):
        (tmp_path / "m.index").write_bytes(bundle(entries))
        refused(tmp_path / "m", "its keys are not sorted", cell="LSTMCell")


def test_entries_that_only_a_search_finds(tmp_path):
    """A search begins where the table says, which may be within the value of another entry."""
    names = b"rnn/lstm_cell/bias", b"rnn/lstm_cell/kernel"
    value = entry(shape(5, 12), 48, 240, kind=0)
    inside = b"\0" + bytes([len(names[1]), len(value)]) + names[1] + value
    entries = [
        (names[0], entry(shape(12), 0, 48, more=field(99, inside))),
        (names[1], entry(shape(5, 12), 48, 240)),
    ]
    (tmp_path / "m.data-00000-of-00001").write_bytes(bytes(288))
    (tmp_path / "m.index").write_bytes(bundle(entries, bundle(entries).index(inside)))
    refused(tmp_path / "m", "places where no key begins", cell="LSTMCell")


def lstm_cell(path, value, version=1) -> None:
    """A checkpoint of one cell, with this number in place of all weights."""
    names = [f"rnn/lstm_cell/{name}" for name in ("kernel", "bias")]
    tensors = [tf.fill([5, 12], float(value)), tf.fill([12], float(value))]
    if version == 1:
        tf.raw_ops.Save(filename=str(path), tensor_names=names, data=tensors)
    else:
        tf.raw_ops.SaveV2(
            prefix=str(path), tensor_names=names, shape_and_slices=["", ""], tensors=tensors
        )


def value_of(path) -> float:
    return weights.read(path, cell="LSTMCell").layers[0].forward.w_x.flat[0]


@pytest.mark.parametrize("name", ["m[1]", "m*", "m?", "m\\1", "m[!a]", "m{1}"])
def test_names_of_checkpoints_are_no_patterns(name, tmp_path):
    """Of files and of the folders that they are in."""
    folder = tmp_path / name
    folder.mkdir()
    lstm_cell(folder / "m1", 1)
    lstm_cell(folder / name, 7)
    assert value_of(folder / name) == 7
    escaped = name.replace("\\", "\\\\")
    (folder / "checkpoint").write_text(f'model_checkpoint_path: "{escaped}"')
    assert value_of(folder) == 7
    lstm_cell(tmp_path / "of_2", 5, version=2)
    for ending in ("index", "data-00000-of-00001"):
        (tmp_path / f"of_2.{ending}").rename(folder / f"{name}.{ending}")
    if "[" in name or "\\" in name:
        refused(folder / name, "TensorFlow finds none with", cell="LSTMCell")
    else:
        assert value_of(folder / name) == 5


@pytest.mark.parametrize("pattern", ["m\\\\1", "*m1", "m?", "[!n]1"])
def test_files_of_a_pattern_are_checked(pattern, tmp_path):
    """As TensorFlow finds them, which is not as Python does."""
    (tmp_path / "checkpoint").write_text(f'model_checkpoint_path: "{pattern}"')
    refused(tmp_path, "the folder has no checkpoint that is complete", cell="LSTMCell")
    (tmp_path / "m1").write_bytes(table([(b"", field(1, field(1, field(2, shape(-1)))))]))
    refused(tmp_path, "a tensor has a shape that is none", cell="LSTMCell")
    lstm_cell(tmp_path / "m1", 7)
    assert value_of(tmp_path) == 7


def test_a_checkpoint_beside_a_folder_of_its_name(tmp_path):
    lstm_cell(tmp_path / "m", 7, version=2)
    (tmp_path / "m").mkdir()
    lstm_cell(tmp_path / "m" / "n", 1)
    (tmp_path / "m" / "checkpoint").write_text('model_checkpoint_path: "n"')
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "m"')
    for path in ("m", "m.index", ""):
        assert value_of(tmp_path / path) == 7


@pytest.mark.parametrize("kind", ["pipe", "device"])
@pytest.mark.parametrize("name", ["m.index", "m.data-00000-of-00001", "checkpoint", "in_folder"])
def test_files_without_an_end(kind, name, tmp_path):
    lstm_cell(tmp_path / "m", 7, version=2)
    (tmp_path / "checkpoint").write_text(f'model_checkpoint_path: "{name.partition(".")[0]}"')
    (tmp_path / name).unlink(missing_ok=True)
    os.mkfifo(tmp_path / name) if kind == "pipe" else (tmp_path / name).symlink_to("/dev/zero")
    words = "data-00000-of-00001 is missing" if "data" in name else "it is not a regular file"
    refused(tmp_path, words, cell="LSTMCell")
    if name.startswith("m."):
        refused(tmp_path / "m", words, cell="LSTMCell")
    if name == "m.index":
        with pytest.raises(ValueError, match=words):
            weights.read(tmp_path / name, cell="LSTMCell")


def test_a_folder_whose_checkpoint_is_elsewhere(tmp_path):
    (tmp_path / "m.index").write_bytes(bundle([(b"a", entry(shape(1), 0, 4))]))
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "checkpoint").write_text(f'model_checkpoint_path: "{tmp_path}/m"')
    refused(tmp_path / "in", "names a checkpoint that is not in it", cell="LSTMCell")
    (tmp_path / "in" / "checkpoint").write_text("{" * 10**5)
    refused(tmp_path / "in", "no checkpoint", cell="LSTMCell")


def test_a_folder_by_a_symbolic_link(tmp_path):
    folder, link, prefix = tmp_path / "in", tmp_path / "link", str(tmp_path / "in" / "m")
    folder.mkdir()
    link.symlink_to(folder)
    lstm_cell(prefix, 1, version=2)
    (folder / "checkpoint").write_text(f'model_checkpoint_path: "{prefix}"')
    assert weights.read(link, cell="LSTMCell") == weights.read(prefix, cell="LSTMCell")


# ---- ONNX


def model(nodes=(), constants=(), functions=()):
    domains = [helper.make_opsetid(domain, 14) for domain in ("", "own", "own:f")]
    graph = helper.make_graph(nodes, "g", [], [], constants)
    return helper.make_model(graph, functions=functions, opset_imports=domains)


def function(name, *nodes, domain="own"):
    imports = [helper.make_opsetid(one, 14) for one in ("", "own")]
    return helper.make_function(domain, name, ["x"], ["y"], nodes, imports)


def call(name, domain="own", x="x", y="y"):
    return helper.make_node(name, [x], [y], domain=domain)


def in_body(node):
    body = helper.make_graph([node], "b", [], [])
    return helper.make_node("If", ["x"], ["y"], then_branch=body, else_branch=body)


DOUBLING = [
    function(f"f{n}", call(f"f{n - 1}", y="z"), call(f"f{n - 1}", x="z")) for n in range(1, 30)
]


@pytest.mark.parametrize(
    ("functions", "words"),
    [
        ([function("f", call("f"))], "own::f of the model calls itself"),
        ([function("f", call("g")), function("g", call("f"))], "calls itself"),
        ([function("f", in_body(call("f")))], "calls itself"),
        ([function("f", call("f")), function("f", call("Identity", ""))], "two functions of one"),
        ([function(f"f{n}", call(f"f{n + 1}")) for n in range(200)], "calls itself"),
        ([function("f", call("g", "own:f")), function("f:g", call("f"))], "calls itself"),
        ([*DOUBLING, function("f0", call("Identity", ""))], "the functions of the model make"),
    ],
    ids=[*("itself", "each_other", "in_a_body", "twice", "long", "colons", "doubling")],
)
def test_functions_that_have_no_end(functions, words, tmp_path):
    name = functions[-2 if len(functions) == 30 else 0].name
    onnx.save(model([call(name)], functions=functions), tmp_path / "m.onnx")
    refused(tmp_path / "m.onnx", words)


def external(**place):
    made = TensorProto(name="W", dims=[1, 12, 2], data_type=TensorProto.FLOAT)
    made.data_location = TensorProto.EXTERNAL
    for key, value in place.items():
        made.external_data.add(key=key, value=str(value))
    return made


@pytest.mark.parametrize(
    ("tensors", "words"),
    [
        ([external(location="../m.bin")], "outside of that folder"),
        ([external(location="/etc/passwd")], "outside of that folder"),
        ([external(location="link/m.bin")], "outside of that folder"),
        ([external(location="none.bin")], "'none.bin', which is not there"),
        ([external(location="")], "outside of that folder"),
        ([external(location="m.bin", offset=2**40)], "is not in its file"),
        ([external(location="m.bin", offset=-1)], "is not in its file"),
        ([external(location="m.bin", length=2**40)], "is not in its file"),
        ([external(location="m.bin", length="many")], "invalid literal"),
        ([external(location="m.bin")] * 2000, "declares arrays of"),
    ],
    ids=lambda one: str(one)[:50],
)
def test_tensors_in_other_files(tensors, words, tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "link").symlink_to(tmp_path)
    for place in (folder, tmp_path):
        (place / "m.bin").write_bytes(bytes(2**20))
    (folder / "m.onnx").write_bytes(model(constants=tensors).SerializeToString())
    refused(folder / "m.onnx", words)
    inner = helper.make_node("Constant", [], ["y"], value=tensors[0])
    for node in (inner, in_body(inner)):  # where a model has tensors, too
        found = model([node], tensors[1:])
        (folder / "m.onnx").write_bytes(found.SerializeToString())
        refused(folder / "m.onnx", words)


def filled(name, value=1.0, dims=(1, 9, 2), **fields):
    made = TensorProto(name=name, dims=dims, data_type=TensorProto.FLOAT, **fields)
    made.raw_data = np.full(18, value, "f4").tobytes()
    return made


def constant(name, value=2.0, **fields):
    return helper.make_node("Constant", [], [name], value=filled("", value, **fields))


def gru(output="y", **attributes):
    return helper.make_node("GRU", ["x", "W", "R"], [output], hidden_size=3, **attributes)


def gru_model(*nodes, constants=(), inputs=("x",), version=8):
    """A model that has W and R, and whose first nodes are these."""
    recurrent = np.full([1, 9, 3], 1, "f4")
    known = [numpy_helper.from_array(recurrent, "R"), *constants]
    infos = [helper.make_tensor_value_info(name, 1, [None] * 3) for name in inputs]
    graph = helper.make_graph(nodes, "g", infos, [], known)
    imports = [helper.make_opsetid("", 14)]
    return helper.make_model(graph, opset_imports=imports, ir_version=version)


def choice(*nodes, other=(), **body):
    """An If of the value c, with a body of these nodes, and one of others."""
    bodies = [helper.make_graph(each, "b", [], [], **body) for each in (nodes, other or nodes)]
    return helper.make_node("If", ["c"], ["z"], then_branch=bodies[0], else_branch=bodies[1])


ONE_W, WITH_C = [filled("W")], ("x", "c")


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (gru_model(gru(), constants=[filled("W"), filled("W", 2)]), "two initializers 'W'"),
        (gru_model(constant("W"), gru(), constants=ONE_W), "two values of one name, 'W'"),
        (gru_model(constant("W"), constant("W", 3), gru()), "two values of one name, 'W'"),
        (gru_model(constant("x"), gru(), constants=ONE_W), "two values of one name, 'x'"),
        (gru_model(gru(), constants=ONE_W, inputs="xx"), "two values of one name, 'x'"),
        (
            gru_model(choice(constant("W"), gru()), constants=ONE_W, inputs=WITH_C),
            "two values of one name, 'W'",
        ),
        (
            gru_model(choice(gru(), initializer=[filled("W"), filled("W", 2)]), inputs=WITH_C),
            "two initializers 'W'",
        ),
        (gru_model(gru(), constants=[filled("W", dims=(1, 9, -1))]), "'W' has a negative dim"),
        (gru_model(gru(), constants=[filled("W", dims=(1, -9, 2))]), "'W' has a negative dim"),
        (gru_model(constant("W", dims=(1, 9, -1)), gru()), "has a negative dim"),
        (
            gru_model(gru(), constants=[filled("W", float_data=[2] * 18)]),
            "'W' has both float_data and raw_data",
        ),
        (gru_model(constant("W", int32_data=[2]), gru()), "has both int32_data and raw_data"),
        (
            gru_model(gru(), constants=[filled("W", data_location=1)]),
            "'W' has both raw_data and external_data",
        ),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_models_of_two_values_for_one(made, words, tmp_path):
    """ONNX's checker refuses them, too."""
    with pytest.raises(onnx.checker.ValidationError):
        onnx.checker.check_model(made)
    (tmp_path / "m.onnx").write_bytes(made.SerializeToString())
    refused(tmp_path / "m.onnx", words)


def test_two_attributes_and_two_places_of_one_name(tmp_path):
    node = gru(direction="forward")
    node.attribute.append(helper.make_attribute("direction", "reverse"))
    onnx.save(gru_model(node, constants=ONE_W), tmp_path / "m.onnx")
    refused(tmp_path / "m.onnx", "the node GRU of 'y' has two attributes of one name")
    (tmp_path / "m.bin").write_bytes(bytes(1000))
    tensor = external(location="m.bin", offset=0)
    tensor.external_data.add(key="offset", value="4")
    (tmp_path / "m.onnx").write_bytes(gru_model(gru(), constants=[tensor]).SerializeToString())
    refused(tmp_path / "m.onnx", "'W' has two places in files")


@pytest.mark.parametrize(
    "made",
    [
        gru_model(gru(), constants=ONE_W),
        gru_model(constant("W", 1.0), gru()),
        # An input with a default, as the first versions have each initializer.
        gru_model(gru(), constants=ONE_W, inputs=("x", "W", "R"), version=3),
        # Bodies that do not see each other's values, nor those of later nodes.
        gru_model(choice(constant("W", 1.0), gru(), other=[constant("W")]), inputs=WITH_C),
        gru_model(choice(gru("z"), other=[constant("z")]), constants=ONE_W, inputs=WITH_C),
    ],
    ids=["initializer", "constant", "default", "branches", "output"],
)
def test_models_of_one_value_for_each_name(made, tmp_path):
    onnx.checker.check_model(made)
    onnx.save(made, tmp_path / "m.onnx")
    assert weights.read(tmp_path / "m.onnx").layers[0].forward.w_x.tolist() == [[[1] * 3] * 2] * 3


def deep(depth):
    node = helper.make_node("Identity", ["x"], ["y"])
    data = node.SerializeToString()
    for _ in range(depth):  # node { attribute { g { node
        data = field(1, data)
        data = field(5, field(1, b"b") + field(6, data) + field(20, 5)) + field(4, b"If")
    return field(1, 7) + field(7, field(1, data))


def test_graphs_in_one_another(tmp_path):
    (tmp_path / "m.onnx").write_bytes(deep(10))
    refused(tmp_path / "m.onnx", "no recurrent node")
    (tmp_path / "m.onnx").write_bytes(deep(10**4))
    refused(tmp_path / "m.onnx", "is not an ONNX model")


def test_arrays_of_all_layers_are_counted(tmp_path, monkeypatch):
    """Nodes may share their weights, and each layer has its own copy of them."""
    monkeypatch.setattr(_bounds, "_MOST_EXPANSION", 0)
    monkeypatch.setattr(_bounds, "_LEAST_BOUND", 1000)
    one = weights.read(FILES / "onnx_ours_h0.onnx", layer="lstm_1")
    refused(FILES / "onnx_ours_h0.onnx", "makes arrays of more than", layer="lstm_0,lstm_1")
    assert sum(array.nbytes for array in one.layers[0].forward.arrays.values()) < 1000
