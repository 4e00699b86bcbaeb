"""Writes the files of PyTorch: with PyTorch 2.13.0 and safetensors 0.8.0.

python tests/weights/files/make_torch.py
"""

import pathlib
import re
import zipfile

import numpy as np
import safetensors.torch
import torch

FOLDER = pathlib.Path(__file__).parent
torch.manual_seed(48)
X = torch.randn(2, 5, 3)


class Tagger(torch.nn.Module):
    """As people write them: an embedding, a recurrent layer, a projection of its outputs."""

    def __init__(self, rnn):
        super().__init__()
        self.embedding = torch.nn.Embedding(7, 3)
        self.rnn = rnn
        self.output = torch.nn.Linear(4, 2)

    def forward(self, words):
        return self.output(self.rnn(self.embedding(words))[0])


def path(name):
    return str(FOLDER / name)


def outputs(name, rnn, x=X):
    """Writes what the layer, which is batch-first, computes from x."""
    with torch.no_grad():
        y = rnn(x.to(next(rnn.parameters()).dtype))[0]
    np.savez(path(f"{name}.npz"), x=x.numpy(), y=y.float().numpy())


def without_source_paths(name):
    """Removes where the source of this program and of PyTorch lay, which an archive has."""
    with zipfile.ZipFile(path(name)) as file:
        members = {member: file.read(member) for member in file.namelist()}
    with zipfile.ZipFile(path(name), "w") as file:
        for member, data in members.items():
            if not member.endswith(".debug_pkl"):
                file.writestr(
                    member, re.sub(rb'"stack_trace": "(\\.|[^"\\])*"', b'"stack_trace": ""', data)
                )


def write():
    rnn = torch.nn.LSTM(3, 4, batch_first=True)
    torch.save(Tagger(rnn).state_dict(), path("torch_state_dict.pt"))
    outputs("torch_state_dict.pt", rnn)

    rnn = torch.nn.GRU(3, 4, num_layers=2, bidirectional=True, batch_first=True)
    # As Lightning, ESPnet and others: the model at some depth, beside the state of an optimizer.
    checkpoint = {
        "epoch": 3,
        "hyper_parameters": {"lr": 0.1},
        "state": {"modules": {"encoder": rnn.state_dict()}},
        "optimizer": {"state": {0: {"step": torch.tensor(1.0)}}, "param_groups": [{"lr": 0.1}]},
    }
    torch.save(checkpoint, path("torch_nested.ckpt"))
    outputs("torch_nested.ckpt", rnn)

    ema = torch.nn.LSTM(3, 4, proj_size=2, batch_first=True)
    torch.save({"now": rnn.state_dict(), "ema": ema.state_dict()}, path("torch_two_states.pt"))
    outputs("torch_two_states.pt", ema)

    rnn = torch.nn.RNN(3, 4, nonlinearity="relu", bias=False, batch_first=True)
    # The format of PyTorch before 1.6.
    torch.save(rnn.state_dict(), path("torch_0.pth"), _use_new_zipfile_serialization=False)
    outputs("torch_0.pth", rnn)

    rnn = torch.nn.LSTM(3, 4, bidirectional=True, batch_first=True)
    safetensors.torch.save_file(
        {f"encoder.{name}": one for name, one in rnn.state_dict().items()},
        path("torch_lstm.safetensors"),
    )
    outputs("torch_lstm.safetensors", rnn)

    rnn = torch.nn.GRU(3, 4, batch_first=True).to(torch.bfloat16)
    safetensors.torch.save_file(rnn.state_dict(), path("torch_bfloat16.safetensors"))
    outputs("torch_bfloat16.safetensors", rnn.float())

    rnn = torch.nn.GRU(3, 4, batch_first=True)
    torch.jit.script(Tagger(rnn)).save(path("torch_script.pt"))
    without_source_paths("torch_script.pt")
    outputs("torch_script.pt", rnn)

    rnn = torch.nn.LSTM(3, 4, batch_first=True)
    program = torch.export.export(Tagger(rnn), (torch.zeros(1, 2, dtype=torch.long),))
    torch.export.save(program, path("torch_export.pt2"))
    without_source_paths("torch_export.pt2")
    outputs("torch_export.pt2", rnn)

    torch.save(Tagger(rnn), path("torch_pickled_module.pt"))
    rnn = torch.nn.utils.parametrizations.weight_norm(torch.nn.LSTM(3, 4), "weight_hh_l0")
    torch.save(rnn.state_dict(), path("torch_weight_norm.pt"))
    torch.save(torch.nn.TransformerEncoderLayer(4, 1, 4).state_dict(), path("torch_transformer.pt"))


if __name__ == "__main__":
    write()
