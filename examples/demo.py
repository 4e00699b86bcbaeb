"""`make demo`: trains a character model on English text with the fused ops.

The text is CPython's own documentation (`pydoc_data.topics`). Each kind of model is trained with
our ops, step by step in a cell or with one call per sequence. For the first steps the same model
on Keras' own cell or layer is trained alternately with it, which measures both speeds and shows
that both compute the same losses. At the end the trained layers run in inference sessions, without
TensorFlow, with their weights in float32, bfloat16 and int8.

To add a kind of model, add an entry to `KINDS`.
"""

import argparse
import importlib.util
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import keras
import numpy as np
import tensorflow as tf

from tf_blockrnn import inference, layers
from tf_blockrnn._cli.progress import Progress

BATCH = 32
WINDOW = 64  # characters; the length of truncated backpropagation
EMBEDDING = 32
PEAK_LEARNING_RATE = 8e-3
WARMUP_STEPS = 60
HELD_OUT = 0.1  # share of the text
EVALUATIONS = 10  # per training
SPEED_ROUNDS = 8
STEPS_PER_ROUND = 5
PRECISIONS = ("float32", "bfloat16", "int8")
NO_PLOT = "none"


@dataclass(frozen=True)
class Kind:
    """A kind of model: functions that create its recurrent layer, ours and Keras', from the units.

    Layers take (x, initial_state) and return (outputs, *states); `cell.units` is their size.
    """

    name: str
    ours: Callable[[int], keras.layers.Layer]
    peer: Callable[[int], keras.layers.Layer]


def _over_time(cell: keras.layers.Layer) -> keras.layers.Layer:
    return keras.layers.RNN(cell, return_sequences=True, return_state=True)


def _layer(layer: type[keras.layers.RNN], units: int) -> keras.layers.Layer:
    return layer(units, return_sequences=True, return_state=True)


KINDS = (
    Kind(
        "GRU cell",
        lambda units: _over_time(layers.GRUCell(units, reset_after=False)),
        lambda units: _over_time(keras.layers.GRUCell(units, reset_after=False)),
    ),
    Kind(
        "LSTM cell",
        lambda units: _over_time(layers.LSTMCell(units)),
        lambda units: _over_time(keras.layers.LSTMCell(units)),
    ),
    Kind(
        "GRU",
        lambda units: _layer(layers.GRU, units),
        lambda units: _layer(keras.layers.GRU, units),
    ),
    Kind(
        "LSTM",
        lambda units: _layer(layers.LSTM, units),
        lambda units: _layer(keras.layers.LSTM, units),
    ),
)


@dataclass
class Outcome:
    """The results of one kind of model. Curves are (characters seen, bits per character)."""

    name: str
    ours_per_second: float = 0.0
    peer_per_second: float = 0.0
    difference: float = 0.0  # largest, between the losses of our model and Keras' over the rounds
    train: list[tuple[int, float]] = field(default_factory=list)
    held_out: list[tuple[int, float]] = field(default_factory=list)
    in_sessions: dict[str, float] = field(default_factory=dict)  # held out, by precision
    sample: str = ""

    @property
    def bits(self) -> float:
        return self.held_out[-1][1]


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


class CharacterModel:
    """Embedding, a recurrent layer, a dense layer; with its training and evaluation step."""

    def __init__(self, recurrent: keras.layers.Layer, alphabet: int):
        self.recurrent = recurrent
        self.embedding = keras.layers.Embedding(alphabet, EMBEDDING)
        self.dense = keras.layers.Dense(alphabet)
        self.embedding.build((None, None))
        self.recurrent.build((None, None, EMBEDDING))
        self.dense.build((None, None, recurrent.cell.units))
        self.parts = (self.embedding, self.recurrent, self.dense)
        self.variables = [v for part in self.parts for v in part.trainable_variables]
        self.optimizer = keras.optimizers.Adam(PEAK_LEARNING_RATE, global_clipnorm=1.0)
        self.optimizer.build(self.variables)
        self.train_step = tf.function(self._train_step)
        self.loss = tf.function(self._loss)
        self.predict = tf.function(self._predict)

    def zero_states(self, batch: int) -> list[tf.Tensor]:
        return self.recurrent.get_initial_state(batch)

    def copy_weights(self, other: "CharacterModel") -> None:
        for variable, value in zip(self.variables, other.variables, strict=True):
            variable.assign(value)

    def _predict(self, ids, states):
        hidden, *states = self.recurrent(self.embedding(ids), initial_state=states)
        return self.dense(hidden), states

    def _loss(self, window, states):
        """Returns the bits per character over a window, and the states after it."""
        logits, states = self._predict(window[:, :-1], states)
        nats = tf.nn.sparse_softmax_cross_entropy_with_logits(window[:, 1:], logits)
        return tf.reduce_mean(nats) / np.log(2.0), states

    def _train_step(self, window, states):
        with tf.GradientTape() as tape:
            bits, states = self._loss(window, states)
        self.optimizer.apply_gradients(
            zip(tape.gradient(bits, self.variables), self.variables, strict=True)
        )
        return bits, states

    def bits_per_character(self, ids: np.ndarray) -> float:
        states, bits = self.zero_states(BATCH), []
        for window in windows(ids):
            value, states = self.loss(window, states)
            bits.append(float(value))
        return float(np.mean(bits))

    def bits_in_session(self, ids: np.ndarray, precision: str) -> float:
        """As bits_per_character, in NumPy and with an inference session of the recurrent layer."""
        session = inference.Session(self.recurrent, precision)
        (table,) = self.embedding.get_weights()
        kernel, bias = self.dense.get_weights()
        state, bits = None, []
        for window in windows(ids):
            hidden, state = session.run(table[window[:, :-1]], state=state)
            logits = hidden @ kernel + bias
            logits -= logits.max(axis=-1, keepdims=True)
            of_next = np.take_along_axis(logits, window[:, 1:, None], axis=-1)[..., 0]
            nats = np.log(np.exp(logits).sum(axis=-1)) - of_next
            bits.append(nats.mean() / np.log(2.0))
        return float(np.mean(bits))

    def generate(self, prompt: Sequence[int], length: int, temperature: float, seed: int):
        """Yields the numbers of `length` characters after the prompt."""
        random = np.random.default_rng(seed)
        logits, states = self.predict(np.array([prompt], np.int32), self.zero_states(1))
        for _ in range(length):
            scaled = logits[0, -1].numpy().astype(np.float64) / temperature
            chances = np.exp(scaled - scaled.max())
            chosen = int(random.choice(len(chances), p=chances / chances.sum()))
            yield chosen
            logits, states = self.predict(np.array([[chosen]], np.int32), states)


class Trainer:
    """Trains a model on the text, window by window, in any number of passes."""

    def __init__(self, model: CharacterModel, ids: np.ndarray):
        self.model = model
        self.ids = ids
        self.steps = 0
        self._pass = iter(())
        self._states = None

    @property
    def characters(self) -> int:
        return self.steps * BATCH * WINDOW

    def step(self, share: float = 0.0) -> float:
        """One training step after the given share of the training; returns bits per character.

        The learning rate has a linear warm-up and a cosine decay.
        """
        rate = min(1.0, (self.steps + 1) / WARMUP_STEPS)
        rate *= 0.02 + 0.98 * 0.5 * (1.0 + np.cos(np.pi * min(1.0, share)))
        self.model.optimizer.learning_rate = PEAK_LEARNING_RATE * rate
        window = next(self._pass, None)
        if window is None:
            self._pass = windows(self.ids)
            self._states = self.model.zero_states(BATCH)
            window = next(self._pass)
        bits, self._states = self.model.train_step(window, self._states)
        self.steps += 1
        return float(bits)


def compare_speeds(ours: Trainer, peer: Trainer, seconds: float, outcome: Outcome) -> None:
    """Trains both models alternately; fills in the speeds (medians of rounds)."""
    progress = Progress(f"{outcome.name:9} against Keras'")
    deadline = time.monotonic() + seconds
    speeds, losses = {ours: [], peer: []}, {ours: [], peer: []}
    # Round 0 traces the functions and warms up; it does not count.
    for number in range(SPEED_ROUNDS + 1):
        # The order of the two alternates too.
        for trainer in (ours, peer) if number % 2 else (peer, ours):
            begin = time.monotonic()
            losses[trainer] += [trainer.step() for _ in range(STEPS_PER_ROUND)]
            spent = time.monotonic() - begin
            if number:
                speeds[trainer].append(STEPS_PER_ROUND * BATCH * WINDOW / spent)
        progress.show(number / SPEED_ROUNDS, f"{losses[ours][-1]:.2f} bits/char")
        if number >= 2 and time.monotonic() > deadline:
            break
    progress.done()
    outcome.ours_per_second = float(np.median(speeds[ours]))
    outcome.peer_per_second = float(np.median(speeds[peer]))
    outcome.difference = float(np.max(np.abs(np.subtract(losses[ours], losses[peer]))))


def train(trainer: Trainer, text: Text, steps: int, deadline: float, outcome: Outcome) -> None:
    """Trains for up to the given number of steps, or fewer if the deadline requires it."""
    progress = Progress(f"{outcome.name:9} training      ")
    recent: list[float] = []

    def evaluate() -> None:
        bits = trainer.model.bits_per_character(text.held_out)
        outcome.held_out.append((trainer.characters, bits))
        if recent:
            outcome.train.append((trainer.characters, float(np.mean(recent))))
            recent.clear()

    evaluate()  # traces the function, so that the next one can be timed
    begin = time.monotonic()
    evaluate()
    outcome.held_out.pop()
    deadline -= time.monotonic() - begin
    per_step = BATCH * WINDOW / outcome.ours_per_second
    per_step += EVALUATIONS * (time.monotonic() - begin) / steps
    possible = int((deadline - time.monotonic()) / per_step)
    planned = trainer.steps + max(1, min(steps - trainer.steps, possible))
    evaluate_at = set(np.linspace(trainer.steps, planned, EVALUATIONS + 1).astype(int)[1:])
    begin, begin_steps, share = time.monotonic(), trainer.steps, 0.0
    while share < 1.0:
        bits = trainer.step(share)
        recent.append(bits)
        # By steps, so that the results do not depend on the clock; by the clock only if the machine
        # is slower than estimated.
        share = max(
            (trainer.steps - begin_steps) / (planned - begin_steps),
            (time.monotonic() - begin) / max(1e-3, deadline - begin),
        )
        if trainer.steps in evaluate_at or share >= 1.0:
            evaluate()
        progress.show(share, f"{outcome.bits:.2f} bits/char held out, {bits:.2f} in training")
    progress.done()


def run_kind(kind: Kind, text: Text, units: int, steps: int, deadline: float, seed: int) -> Outcome:
    """Compares, trains and samples one kind of model; ends before the deadline."""
    keras.utils.set_random_seed(seed)
    outcome = Outcome(kind.name)
    ours = CharacterModel(kind.ours(units), len(text.alphabet))
    peer = CharacterModel(kind.peer(units), len(text.alphabet))
    peer.copy_weights(ours)
    trainer = Trainer(ours, text.train)
    share = 0.2 * (deadline - time.monotonic())
    compare_speeds(trainer, Trainer(peer, text.train), share, outcome)
    train(trainer, text, steps, deadline - 3.0, outcome)  # what follows takes about two seconds
    for precision in PRECISIONS:
        outcome.in_sessions[precision] = ours.bits_in_session(text.held_out, precision)
    outcome.sample = text.decode(list(ours.generate(text.held_out[:200], 320, 0.6, seed)))
    return outcome


def plot(outcomes: Sequence[Outcome], path: str) -> None:
    """Writes both learning curves and the speeds as a PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    curves, bars = figure.subplots(1, 2, width_ratios=(3, 2))
    for number, outcome in enumerate(outcomes):
        for points, style, part in (
            (outcome.held_out, "-", "held out"),
            (outcome.train, ":", "training"),
        ):
            seen, bits = np.array(points).T
            curves.plot(
                seen / 1e6, bits, style, color=f"C{number}", label=f"{outcome.name}, {part}"
            )
        for offset, speed, shade, whose in (
            (-0.2, outcome.ours_per_second, 1.0, "tf_blockrnn"),
            (0.2, outcome.peer_per_second, 0.4, "Keras' own"),
        ):
            drawn = bars.bar(number + offset, speed / 1e3, 0.38, color=f"C{number}", alpha=shade)
            bars.bar_label(drawn, [f"{whose}\n{speed / 1e3:.0f}"], fontsize=8)
    curves.set(xlabel="million characters seen", ylabel="bits per character", title="Learning")
    curves.grid(alpha=0.3)
    curves.legend()
    bars.set(ylabel="thousand characters per second", title="Training speed")
    bars.set_xticks(range(len(outcomes)), [outcome.name for outcome in outcomes])
    bars.margins(y=0.15)
    figure.savefig(path, dpi=120)


def report(outcomes: Sequence[Outcome], goal: float) -> bool:
    """Prints samples and a table; returns whether every model reached the goal."""
    for outcome in outcomes:
        print(f"\n{outcome.name} writes:\n")
        print("\n".join(f"    {line}" for line in outcome.sample.strip().splitlines()))
    print(
        "\nmodel      bits/char held out   chars/s here   with Keras' own   ratio"
        "   same loss within"
    )
    for o in outcomes:
        print(
            f"{o.name:9}  {o.bits:18.3f}   {o.ours_per_second:12,.0f}   {o.peer_per_second:15,.0f}"
            f"   {o.ours_per_second / o.peer_per_second:5.2f}   {o.difference:16.1e}"
        )
    missed = [outcome.name for outcome in outcomes if not outcome.bits < goal]
    if missed:
        print(f"\nNot below the goal of {goal} bits per character: {', '.join(missed)}.")
    return not missed


def report_precisions(outcomes: Sequence[Outcome]) -> None:
    """Prints what inference sessions of the trained layers reach, by their precision."""
    print("\nBits per character held out, in inference sessions:\n")
    print("precision" + "".join(f"   {o.name:>9}" for o in outcomes))
    for precision in PRECISIONS:
        print(f"{precision:9}" + "".join(f"   {o.in_sessions[precision]:9.4f}" for o in outcomes))


def _at_least(lowest: int) -> Callable[[str], int]:
    def integer(text: str) -> int:  # argparse uses the name: "invalid integer value"
        value = int(text)
        if value < lowest:
            raise argparse.ArgumentTypeError(f"must be at least {lowest}, got {value}")
        return value

    return integer


def _plot_path(text: str) -> str:
    """The path of the plot, checked before the models are trained, which takes minutes."""
    if text == NO_PLOT:
        return text
    if not os.path.isdir(os.path.dirname(text) or "."):
        raise argparse.ArgumentTypeError(f"no such folder: {os.path.dirname(text)}")
    if os.path.isdir(text):
        raise argparse.ArgumentTypeError(f"is a folder: {text}")
    if _has_matplotlib():  # main reports it if it is missing
        from matplotlib.backends.backend_agg import FigureCanvasAgg

        known = FigureCanvasAgg.get_supported_filetypes()
        if os.path.splitext(text)[1].lower().removeprefix(".") not in known:
            raise argparse.ArgumentTypeError(
                f"must end in one of .{', .'.join(sorted(known))}, got {text!r}"
            )
    return text


def _has_matplotlib() -> bool:
    return importlib.util.find_spec("matplotlib") is not None


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    description = __doc__.partition("\n\nTo add a kind of model")[0]
    parser = argparse.ArgumentParser("demo.py", description=description)
    add = parser.add_argument
    add("--out", type=_plot_path, default="demo.png", help=f"the plot; {NO_PLOT!r} for no plot")
    add("--seconds", type=_at_least(1), default=160, help="approximate total time")
    add("--steps", type=_at_least(1), default=1200, help="maximum of training steps per model")
    add("--units", type=_at_least(1), default=192, help="size of the recurrent layer")
    add("--goal", type=float, default=2.6, help="bits per character; exit with 1 unless below")
    add("--seed", type=_at_least(0), default=1)
    names = [kind.name for kind in KINDS]
    add("--models", nargs="+", choices=names, default=names)
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the demo; 0 if every model got below the goal, 1 if not, 2 if it could not start."""
    start = time.monotonic()
    arguments = _arguments(argv)
    end = start + arguments.seconds
    if arguments.out != NO_PLOT and not _has_matplotlib():
        print(
            "The plot needs matplotlib, which is not installed. Either install it "
            f"(pip install matplotlib) or run the demo with --out {NO_PLOT}.",
            file=sys.stderr,
        )
        return 2
    text = Text(arguments.seed)
    print(
        f"{len(text.train) + len(text.held_out):,} characters of CPython's own documentation, "
        f"{len(text.held_out):,} of them held out; {arguments.units} units."
    )
    kinds = [kind for kind in KINDS if kind.name in arguments.models]
    outcomes = []
    for number, kind in enumerate(kinds):
        now = time.monotonic()
        deadline = now + (end - now) / (len(kinds) - number)
        outcomes.append(
            run_kind(kind, text, arguments.units, arguments.steps, deadline, arguments.seed)
        )
    reached = report(outcomes, arguments.goal)
    report_precisions(outcomes)
    if arguments.out != NO_PLOT:
        plot(outcomes, arguments.out)
        print(f"\nPlot: {os.path.abspath(arguments.out)}")
    print(f"Took {time.monotonic() - start:.0f} s.")
    return 0 if reached else 1


if __name__ == "__main__":
    sys.exit(main())
