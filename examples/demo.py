"""`make demo`: trains a character model on English text with the fused ops.

The text is CPython's own documentation (`pydoc_data.topics`). Each kind of model is trained with
our ops, step by step in a cell or with one call per sequence. For the first steps the same model
on Keras' own cell or layer is trained alternately with it, which measures both speeds and checks
that both compute the same losses. At the end the trained recurrent layers run in inference
sessions, which do not need TensorFlow, with their weights in float32, bfloat16 and int8.

To add a kind of model, add an entry to `KINDS`.
"""

import argparse
import os
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

# TensorFlow's notes about itself and its warnings; errors are still printed.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import tensorflow as tf

from tf_blockrnn import inference, layers

BATCH = 32
WINDOW = 64  # characters; the length of truncated backpropagation
EMBEDDING = 32
PEAK_LEARNING_RATE = 8e-3
WARMUP_STEPS = 60
HELD_OUT = 0.1  # share of the text
EVALUATIONS = 5  # per training
ROUNDS = 8  # of the comparison with Keras; another one before them traces the functions
STEPS_PER_ROUND = 5
COMPARED_STEPS = (1 + ROUNDS) * STEPS_PER_ROUND
# Bits per character by which a loss may differ from that with Keras' layer. Both models start from
# the same weights, so that only rounding differs: by some 1e-7 in float32, which the steps amplify
# to 1e-5 at most. TF32 on a GPU rounds to 5e-4, which becomes up to 6e-3. Two gates swapped or a
# gradient that omits an input change a loss by 0.05 to 1, with the default units.
LOSS_BOUND = 0.02
PRECISIONS = ("float32", "bfloat16", "int8")
SAMPLE_LENGTH = 270  # characters
TEMPERATURE = 0.6  # of the sample; at 0 it would be the most likely characters
NO_PLOT = "none"

# From character numbers [B, T] and the states before them to logits [B, T, alphabet] and states.
Predict = Callable[[np.ndarray, Any], tuple[tf.Tensor, Any]]


# The kinds of models: functions that create the recurrent layer, of so many units, from the layers
# and cells of a library, which is `tf_blockrnn.layers` or `keras.layers`.
SEQUENCES = {"return_sequences": True, "return_state": True}
KINDS = {
    "GRU cell": lambda library, units: keras.layers.RNN(
        library.GRUCell(units, reset_after=False), **SEQUENCES
    ),
    "LSTM cell": lambda library, units: keras.layers.RNN(library.LSTMCell(units), **SEQUENCES),
    "GRU": lambda library, units: library.GRU(units, **SEQUENCES),
    "LSTM": lambda library, units: library.LSTM(units, **SEQUENCES),
}


@dataclass
class Outcome:
    """The results of one kind of model. Curves are (characters seen, bits per character)."""

    name: str
    ours_per_second: float = 0.0
    peer_per_second: float = 0.0
    difference: float = 0.0  # largest, between the losses of our model and Keras' in a step
    train: list[tuple[int, float]] = field(default_factory=list)
    held_out: list[tuple[int, float]] = field(default_factory=list)
    in_sessions: dict[str, float] = field(default_factory=dict)  # held out, by precision
    sample: str = ""

    @property
    def bits(self) -> float:
        return self.held_out[-1][1]

    @property
    def error(self) -> str:
        """How the results are wrong; empty if they are correct."""
        if not self.difference <= LOSS_BOUND:  # also true of NaN
            return (
                f"its losses differ from those with Keras' layer by up to {self.difference:.2g} "
                f"bits per character; the bound is {LOSS_BOUND}"
            )
        return "" if np.isfinite(self.bits) else f"its held-out loss is {self.bits}"


class Text:
    """The text as character numbers: a training part and a held-out part."""

    def __init__(self, seed: int):
        from pydoc_data.topics import topics

        # Some topics contain others. Each paragraph is used once, so that no held-out text is seen
        # in training; and the topics are shuffled, so that both parts are similar.
        names = np.random.default_rng(seed).permutation(sorted(topics))
        paragraphs = {" ".join(p.split()): p for name in names for p in topics[name].split("\n\n")}
        text = "\n\n".join(p for key, p in paragraphs.items() if key)
        self.alphabet = sorted(set(text))
        number = {character: i for i, character in enumerate(self.alphabet)}
        ids = np.array([number[character] for character in text], np.int32)
        cut = int(len(ids) * (1 - HELD_OUT))
        self.train, self.held_out = ids[:cut], ids[cut:]

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(self.alphabet[i] for i in ids)


def windows(ids: np.ndarray) -> Iterator[np.ndarray]:
    """One pass over the text as [BATCH, WINDOW + 1]; each row continues in the next window."""
    row = (len(ids) - 1) // BATCH
    starts = np.arange(BATCH)[:, None] * row
    for begin in range(0, row - WINDOW + 1, WINDOW):
        yield ids[starts + begin + np.arange(WINDOW + 1)]


def bits_per_character(logits: tf.Tensor, window: np.ndarray) -> tf.Tensor:
    """The mean loss of the predictions of all characters of a window but the first."""
    nats = tf.nn.sparse_softmax_cross_entropy_with_logits(window[:, 1:], logits)
    return tf.reduce_mean(nats) / np.log(2.0)


class CharacterModel:
    """Embedding, a recurrent layer, a dense layer; with its training."""

    def __init__(self, recurrent: keras.layers.Layer, alphabet: int, steps: int):
        self.recurrent = recurrent
        self.embedding = keras.layers.Embedding(alphabet, EMBEDDING)
        self.dense = keras.layers.Dense(alphabet)
        self.embedding.build((None, None))
        self.recurrent.build((None, None, EMBEDDING))
        self.dense.build((None, None, recurrent.cell.units))
        self.parts = (self.embedding, self.recurrent, self.dense)
        self.variables = [v for part in self.parts for v in part.trainable_variables]
        schedule = keras.optimizers.schedules.CosineDecay(
            PEAK_LEARNING_RATE / WARMUP_STEPS,
            decay_steps=max(1, steps - WARMUP_STEPS),
            alpha=0.02,
            warmup_target=PEAK_LEARNING_RATE,
            warmup_steps=WARMUP_STEPS,
        )
        self.optimizer = keras.optimizers.Adam(schedule, global_clipnorm=1.0)
        self.optimizer.build(self.variables)

    def zero_states(self) -> list[tf.Tensor]:
        return self.recurrent.get_initial_state(BATCH)

    def copy_weights(self, other: "CharacterModel") -> None:
        for variable, value in zip(self.variables, other.variables, strict=True):
            variable.assign(value)

    @tf.function
    def predict(self, ids, states):
        """Returns the logits of the next characters, and the states after them."""
        hidden, *states = self.recurrent(self.embedding(ids), initial_state=states)
        return self.dense(hidden), states

    def predict_in_session(self, precision: str) -> Predict:
        """Returns a function like `predict` that runs the recurrent layer in a session."""
        session = inference.Session(self.recurrent, precision)

        def predict(ids, state):
            hidden, state = session.run(self.embedding(ids).numpy(), state=state)
            return self.dense(hidden), state

        return predict

    @tf.function
    def train_step(self, window, states):
        with tf.GradientTape() as tape:
            logits, states = self.predict(window[:, :-1], states)
            bits = bits_per_character(logits, window)
        self.optimizer.apply_gradients(
            zip(tape.gradient(bits, self.variables), self.variables, strict=True)
        )
        return bits, states

    def train(self, ids: np.ndarray) -> Iterator[float]:
        """Trains in endless passes over the text; yields the bits per character of each step."""
        while True:
            states = self.zero_states()
            for window in windows(ids):
                bits, states = self.train_step(window, states)
                yield float(bits)


def evaluate(predict: Predict, states: Any, ids: np.ndarray) -> float:
    """Returns the bits per character over a text."""
    bits = []
    for window in windows(ids):
        logits, states = predict(window[:, :-1], states)
        bits.append(float(bits_per_character(logits, window)))
    return float(np.mean(bits))


def generate(predict: Predict, prompt: np.ndarray, length: int, seed: int) -> list[int]:
    """Returns `length` characters that a model draws after the prompt, as numbers."""
    random = np.random.default_rng(seed)
    ids, state, drawn = prompt, None, []
    for _ in range(length):
        logits, state = predict(ids[None, :], state)
        scaled = logits[0, -1].numpy().astype(np.float64) / TEMPERATURE
        chances = np.exp(scaled - scaled.max())
        drawn.append(int(random.choice(len(chances), p=chances / chances.sum())))
        ids = np.array(drawn[-1:])
    return drawn


def compare(
    ours: Iterator[float], peer: Iterator[float], outcome: Outcome, show: Callable[[int, str], None]
) -> None:
    """Trains both models alternately; fills in their speeds and the difference of their losses."""
    speeds, losses = {ours: [], peer: []}, {ours: [], peer: []}
    for number in range(1 + ROUNDS):
        # The order of the two alternates too.
        for training in (ours, peer) if number % 2 else (peer, ours):
            begin = time.monotonic()
            losses[training] += islice(training, STEPS_PER_ROUND)
            speeds[training].append(STEPS_PER_ROUND * BATCH * WINDOW / (time.monotonic() - begin))
        show(len(losses[ours]), f"{losses[ours][-1]:.2f} bits/char, next to Keras")
    # Medians of the rounds; the first one, which traces the functions, does not count.
    outcome.ours_per_second = float(np.median(speeds[ours][1:]))
    outcome.peer_per_second = float(np.median(speeds[peer][1:]))
    outcome.difference = float(np.max(np.abs(np.subtract(losses[ours], losses[peer]))))


class Progress:
    """Prints a line for each tenth of the work."""

    def __init__(self, label: str):
        self._label, self._tenths = label, -1

    def show(self, share: float, note: str) -> None:
        """Given the share of the work that is done, 0..1."""
        if int(share * 10) > self._tenths:
            self._tenths = int(share * 10)
            print(f"{self._label} {share:4.0%}  {note}", flush=True)


def run_kind(name: str, text: Text, settings: argparse.Namespace, progress: Progress) -> Outcome:
    """Compares, trains and samples one kind of model."""

    def show(step: int, note: str) -> None:
        progress.show(step / settings.steps, note)

    keras.utils.set_random_seed(settings.seed)
    outcome = Outcome(name)
    ours, peer = (
        CharacterModel(KINDS[name](library, settings.units), len(text.alphabet), settings.steps)
        for library in (layers, keras.layers)
    )
    peer.copy_weights(ours)
    show(0, "creating the graphs")
    training = ours.train(text.train)
    compare(training, peer.train(text.train), outcome, show)

    recent: list[float] = []
    evaluate_at = set(np.linspace(0, settings.steps, EVALUATIONS + 1).astype(int))
    for step in range(COMPARED_STEPS + 1, settings.steps + 1):
        recent.append(next(training))
        show(step - 1, f"{recent[-1]:.2f} bits/char")
        if step in evaluate_at:
            bits = evaluate(ours.predict, ours.zero_states(), text.held_out)
            outcome.held_out.append((step * BATCH * WINDOW, bits))
            middle = step - len(recent) // 2
            outcome.train.append((middle * BATCH * WINDOW, float(np.mean(recent))))
            recent.clear()

    if not outcome.error:  # a model of NaN could not write a sample
        for precision in PRECISIONS:
            predict = ours.predict_in_session(precision)
            outcome.in_sessions[precision] = evaluate(predict, None, text.held_out)
        predict, prompt = ours.predict_in_session("float32"), text.held_out[:200]
        outcome.sample = text.decode(generate(predict, prompt, SAMPLE_LENGTH, settings.seed))
    show(settings.steps, f"{outcome.bits:.2f} bits/char held out")
    return outcome


def plot(outcomes: Sequence[Outcome], path: str) -> None:
    """Writes both learning curves and the speeds as an image."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    curves, bars = figure.subplots(1, 2)
    for number, outcome in enumerate(outcomes):
        color, width = f"C{number}", len(outcomes) - number  # curves of two models may coincide
        for points, style, label in (
            (outcome.held_out, "-", outcome.name),
            (outcome.train, ":", None),
        ):
            seen, bits = np.array(points).T
            curves.plot(seen / 1e6, bits, style, color=color, label=label, linewidth=width)
        for offset, speed, shade in (
            (-0.2, outcome.ours_per_second, 1.0),
            (0.2, outcome.peer_per_second, 0.4),
        ):
            drawn = bars.bar(number + offset, speed / 1e3, 0.38, color=color, alpha=shade)
            bars.bar_label(drawn, fmt="%.0f")
    curves.set(xlabel="million characters seen", ylabel="bits per character")
    curves.set_title("Held out (solid) and training (dotted)")
    curves.grid(alpha=0.3)
    curves.legend()
    bars.set_title("tf_blockrnn (full) and Keras (pale)")
    bars.set_ylabel("thousand characters per second")
    bars.set_xticks(range(len(outcomes)), [outcome.name for outcome in outcomes])
    bars.margins(y=0.1)
    figure.savefig(path, dpi=150)


def report(outcomes: Sequence[Outcome]) -> None:
    """Prints how well and how fast the models learned."""
    print("\nmodel      bits/char held out    chars/s    with Keras   ratio   same losses within")
    for o in outcomes:
        print(
            f"{o.name:9}  {o.bits:18.3f}   {o.ours_per_second:8,.0f}   {o.peer_per_second:11,.0f}"
            f"   {o.ours_per_second / o.peer_per_second:5.2f}   {o.difference:18.1e}"
        )


def report_sessions(outcomes: Sequence[Outcome]) -> None:
    """Prints what inference sessions of the trained layers reach and write."""
    print("\nBits per character held out, in inference sessions:\n")
    print("precision" + "".join(f"   {o.name:>9}" for o in outcomes))
    for precision in PRECISIONS:
        print(f"{precision:9}" + "".join(f"   {o.in_sessions[precision]:9.4f}" for o in outcomes))
    for o in outcomes:
        lines = textwrap.wrap(" ".join(o.sample.split()), 96)
        print(f"\n{o.name} writes:", *lines, sep="\n    ")


def _at_least(lowest: int) -> Callable[[str], int]:
    def integer(text: str) -> int:  # argparse uses the name: "invalid integer value"
        value = int(text)
        if value < lowest:
            raise argparse.ArgumentTypeError(f"must be at least {lowest}, got {value}")
        return value

    return integer


def _plot_path(path: str) -> str:
    """The path of the plot, checked before the models are trained, which takes minutes."""
    if path == NO_PLOT:
        return path
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
    except ImportError:
        raise argparse.ArgumentTypeError(
            "the plot needs matplotlib, which is not installed. Either install it "
            f"(pip install matplotlib) or run the demo with --out {NO_PLOT}"
        ) from None
    folder, ending = os.path.dirname(path), os.path.splitext(path)[1].lower().removeprefix(".")
    if not os.path.isdir(folder or "."):
        raise argparse.ArgumentTypeError(f"no such folder: {folder}")
    if os.path.isdir(path):
        raise argparse.ArgumentTypeError(f"is a folder: {path}")
    known = sorted(FigureCanvasAgg.get_supported_filetypes())
    if ending not in known:
        raise argparse.ArgumentTypeError(f"must end in one of .{', .'.join(known)}, got {path!r}")
    return path


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    description = __doc__.partition("\n\nTo add a kind of model")[0]
    parser = argparse.ArgumentParser("demo.py", description=description)
    add = parser.add_argument
    add("--out", type=_plot_path, default="demo.png", help=f"the plot; {NO_PLOT!r} for no plot")
    steps = "training steps per model, which determine how long it takes (default: %(default)s)"
    add("--steps", type=_at_least(COMPARED_STEPS + 1), default=250, help=steps)
    add("--units", type=_at_least(1), default=192, help="size of the recurrent layer")
    add("--seed", type=_at_least(0), default=1)
    add("--models", nargs="+", choices=KINDS, default=list(KINDS))
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the demo; 0 unless results are wrong, which is 1; argparse exits with 2."""
    settings = _arguments(argv)
    text = Text(settings.seed)
    print(
        f"{len(text.train) + len(text.held_out):,} characters of CPython's own documentation, "
        f"{len(text.held_out):,} of them held out; {settings.units} units, {settings.steps} steps "
        f"of {BATCH * WINDOW:,} characters."
    )
    names = [name for name in KINDS if name in settings.models]
    outcomes = []
    for number, name in enumerate(names, 1):
        progress = Progress(f"{number} of {len(names)}  {name:9}")
        outcomes.append(run_kind(name, text, settings, progress))
    report(outcomes)
    if settings.out != NO_PLOT:
        plot(outcomes, settings.out)
        print(f"\nPlot: {os.path.abspath(settings.out)}")
    wrong = [outcome for outcome in outcomes if outcome.error]
    if len(wrong) < len(outcomes):
        report_sessions([outcome for outcome in outcomes if not outcome.error])
    for outcome in wrong:
        print(f"\nWrong results of {outcome.name}: {outcome.error}.", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
