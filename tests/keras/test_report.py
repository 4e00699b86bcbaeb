"""`tf_blockrnn.report`: each recurrent layer with its path, whether it is fused, and why not."""

from __future__ import annotations

import warnings

import keras
import numpy as np
import pytest
from helpers import switched

from tf_blockrnn.layers import _fusing

LAYERS = keras.layers
X, Y = np.ones((2, 5, 3), "float32"), np.ones((2, 4), "float32")
SWITCH, FUSE = "tf_blockrnn.enable_keras()", "tf_blockrnn.fuse_model(model)"


@pytest.fixture(autouse=True)
def _off_again(tfb):
    yield
    tfb.disable_keras()


class OwnCall(LAYERS.GRU):
    def call(self, sequences, initial_state=None, mask=None, training=False):
        return super().call(sequences, initial_state, mask, training)


class OwnCell(LAYERS.LSTMCell):
    def call(self, inputs, states, training=False):
        return super().call(inputs, states, training=training)


class Everything(keras.Model):
    """A layer in each place, none twice."""

    def __init__(self, tfb):
        super().__init__(name="everything")
        deep = LAYERS.GRU(4, return_sequences=True, name="deep")
        inner = keras.Sequential([keras.Input((None, 3)), deep], name="encoder")
        frames = LAYERS.TimeDistributed(LAYERS.LSTM(4, name="of_frames"), name="frames")
        self.blocks = [{"first": inner}, frames]
        self.both = LAYERS.Bidirectional(LAYERS.LSTM(4, name="lstm"), name="both")
        steps = [LAYERS.LSTMCell(4, name="a"), OwnCell(4, name="b")]
        self.stack = LAYERS.RNN(LAYERS.StackedRNNCells(steps, name="cells"), name="stack")
        self.cell = LAYERS.RNN(LAYERS.GRUCell(4, name="cell"), name="rnn")
        self.norm = LAYERS.RNN(tfb.layers.LayerNormLSTMCell(4, name="norm"), name="normal")
        self.image = LAYERS.ConvLSTM2D(2, 3, name="image")
        self.own = OwnCall(4, name="own")
        self.relu = LAYERS.GRU(4, activation="relu", name="relu")
        self.ours = tfb.layers.SimpleRNN(4, name="ours")
        self.untracked = {LAYERS.SimpleRNN(4, name="in_a_set")}


STEPS = "Keras' operations compute the cell, step by step"
# For each path: the class, and what is said while the switch is off, while it is on, and off after
# fuse_model; of each whether it is fused and a part of the reason.
EXPECTED = {
    "encoder/deep": ("GRU", "off", True, True),
    "frames/of_frames": ("LSTM", "off", True, True),
    "both/forward_lstm": ("LSTM", "off", True, True),
    "both/backward_lstm": ("LSTM", "off", True, True),
    "stack": ("RNN", *["b: there is no op for the cell OwnCell"] * 3),
    "stack/cells/a": ("LSTMCell", None, None, True),  # which is listed where it is on an op
    "rnn": ("RNN", "off", True, True),
    "normal": ("RNN", True, True, True),
    "image": ("ConvLSTM2D", *["there is no op for the cell ConvLSTMCell"] * 3),
    "own": ("OwnCall(GRU)", "off", None, "off"),
    "relu": ("GRU", *["activation is relu, the op has tanh"] * 3),
    "ours": ("SimpleRNN", True, True, True),
    "in_a_set": ("SimpleRNN", "off", True, True),
}


def test_all_places_and_states(tfb):
    model = Everything(tfb)
    found = [tfb.report(model)]
    with tfb.enable_keras():
        found.append(tfb.report(model))
    with pytest.warns(UserWarning, match="did not fuse"):
        tfb.fuse_model(model)
    found.append(tfb.report(model))
    assert [each.enabled for each in found] == [False, True, False]
    for state, report in enumerate(found):
        assert [row.path for row in report.rows] == [
            path for path in EXPECTED if path != "stack/cells/a" or state == 2
        ]
        for row in report.rows:
            name, *states = EXPECTED[row.path]
            simple = row.layer_class.replace("tf_blockrnn.layers.", "").replace("keras.layers.", "")
            assert simple == name
            want = states[state]
            assert row.fused is (want if want is None or want is True else False), row
            assert bool(row.reason) == (want is not True) and str(want or "") in row.reason or want
    changes = {row.path: row.change for row in found[0].rows}
    assert changes["own"] == SWITCH
    assert changes["both/forward_lstm"] == changes["rnn"] == f"{SWITCH}, or {FUSE}"


def test_text_and_html(tfb):
    model = Everything(tfb)
    model.relu.name = "a <b>bold</b> name " + 60 * "long "
    report = tfb.report(model)
    lines = str(report).splitlines()
    assert max(map(len, lines)) <= 100 and repr(report) == str(report)
    assert lines[0].startswith("Model 'everything' of Keras 3: 2 of 12 recurrent layers and cells")
    assert (
        lines[1] == "tf_blockrnn.enable_keras() is off." and "tf.function of your own" in lines[2]
    )
    columns = lines[4].index("class"), lines[4].index("fused")
    assert all(line[at - 1] == " " != line[at] for line in lines[5:7:2] for at in columns)
    page = report._repr_html_()
    assert "a &lt;b&gt;bold" in page and "<b>" not in page and page.count("<tr>") == 13


@pytest.mark.parametrize(
    ("make", "paths"),
    [
        (lambda: LAYERS.LSTM(4, name="one"), ["one"]),
        (lambda: LAYERS.GRUCell(4, name="one"), ["one"]),
        (lambda: LAYERS.RNN(LAYERS.GRUCell(4), name="rnn"), ["rnn"]),
        (lambda: LAYERS.Bidirectional(LAYERS.GRU(4, name="x")), ["forward_x", "backward_x"]),
        (lambda: LAYERS.Dense(4), []),
        (lambda: keras.Sequential([LAYERS.Dense(4)]), []),
    ],
)
def test_single_layers(tfb, make, paths):
    report = tfb.report(make())
    assert [row.path for row in report.rows] == paths
    assert paths or "no recurrent layers or cells" in str(report)


def test_a_shared_layer_has_its_shortest_path_once(tfb):
    shared, x = LAYERS.GRU(3, return_sequences=True, name="shared"), keras.Input((None, 3))
    inner = keras.Model(x, shared(x), name="inner")
    rows = tfb.report(keras.Model(x, shared(inner(x)))).rows
    assert [row.path for row in rows] == ["shared"]


@pytest.mark.parametrize("given", [3, None, LAYERS.LSTM, "model"])
def test_what_is_no_model(tfb, given):
    with pytest.raises(TypeError, match="report: model must be a model or layer of .* got"):
        tfb.report(given)


# ---- what it says comes true


CHANGES = {
    'use_cudnn="auto"': {"use_cudnn": True},
    "recurrent_activation='sigmoid'": {"recurrent_activation": "hard_sigmoid"},
    "activation='tanh'": {"activation": "relu"},
}


@pytest.mark.filterwarnings("ignore:.*falls back")
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("package", ["keras", "tf_blockrnn"])
def test_the_change_lets_the_layer_run_on_the_op(tfb, package, change):
    tfb.enable_keras()
    layers = LAYERS if package == "keras" else tfb.layers
    (row,) = tfb.report(layers.LSTM(4, **CHANGES[change])).rows
    assert row.fused is False and row.change.startswith(change)
    assert tfb.report(eval(f"layers.LSTM(4, {change})")).rows[0].fused is True


def test_a_cell_by_itself(tfb):
    (row,) = tfb.report(LAYERS.LSTMCell(4)).rows
    assert row.reason == STEPS
    assert row.change == f"keras.layers.RNN(LSTMCell) and {SWITCH}, or {FUSE}"
    (row,) = tfb.report(tfb.layers.LayerNormGRUCell(4)).rows
    assert (row.reason, row.change) == (STEPS, "keras.layers.RNN(LayerNormGRUCell)")
    cell = tfb.layers.LayerNormGRUCell(4)
    assert (cell.fused, cell.why_not_fused) == (False, STEPS)
    (row,) = tfb.report(tfb.layers.LayerNormLSTMCell(4, activation="elu")).rows
    assert "activation is elu" in row.reason
    tfb.enable_keras()
    for around in (LAYERS.RNN(LAYERS.LSTMCell(4)), LAYERS.RNN(tfb.layers.LayerNormGRUCell(4))):
        assert tfb.report(around).rows[0].fused


@pytest.mark.parametrize("use", switched.USES)
def test_functions_that_are_traced_again(tfb, use):
    model = keras.Sequential([keras.Input((5, 3)), LAYERS.GRU(4)])
    model.compile("sgd", "mse")
    given, options = (X,) if "predict" in use else (X, Y), {} if "batch" in use else {"verbose": 0}
    kind = {"fit": "train", "evaluate": "test", "train_on_batch": "train"}.get(use, "predict")
    for switch in (tfb.enable_keras, tfb.disable_keras):
        getattr(model, use)(*given, **options)
        assert tfb.report(model).traced_again == ()
        switch()
        assert tfb.report(model).traced_again == (kind,)
        assert f"Traced before the last switch: {kind}." in str(tfb.report(model))


def test_a_model_that_xla_compiles_without_its_library(tfb, monkeypatch):
    model = keras.Sequential([keras.Input((5, 3)), LAYERS.GRU(4)])
    model.compile("sgd", "mse", jit_compile=True)
    monkeypatch.setattr(tfb._loader, "missing_xla", lambda: "there is no library")
    tfb.enable_keras()
    (row,) = tfb.report(model).rows
    assert not row.fused and "there is no library" in row.reason and "jit_compile=F" in row.change


def test_the_warning_of_a_fallback_names_the_layer_and_the_report(tfb, monkeypatch):
    monkeypatch.setattr(_fusing, "_warned", set())
    words = r"keras's GRU 'which' falls back .*: activation is relu.*tf_blockrnn.report\(model\)"
    made = [LAYERS.GRU(4, activation="relu", name=name) for name in ("which", "other")]
    with tfb.enable_keras():
        with pytest.warns(UserWarning, match=words):
            made[0](X)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            made[1](X)
