"""Programs of ops, written by hand and run by build/release/run_ops: what the tests beside PyTorch ask with."""

import os
import subprocess
from math import prod

import torch

DTYPES = {torch.float64: "f64", torch.float32: "f32", torch.bfloat16: "bf16", torch.float16: "f16",
          torch.int64: "i64", torch.int32: "i32", torch.int8: "i8", torch.uint8: "u8",
          torch.bool: "bool", torch.float8_e4m3fn: "f8e4m3"}
TORCH = {ours: theirs for theirs, ours in DTYPES.items()}


class Skip(Exception):
    """A sample that asks for something else than the op does; the reason."""


class Refused(Exception):
    """The program is refused, with the message."""


class Tool:
    """The process that runs programs."""

    def __init__(self):
        path = os.environ.get("TEGULA_RUN_OPS", "build/release/run_ops")
        self.process = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.ask("ops")
        self.ops = self.line().split()

    def ask(self, *lines):
        self.process.stdin.write("".join(f"{line}\n" for line in lines).encode())
        self.process.stdin.flush()

    def line(self):
        line = self.process.stdout.readline().decode()
        if not line:
            raise RuntimeError(f"run_ops ended: {self.process.wait()}")
        return line.strip()

    def tensor(self):
        dtype, *shape = self.line().split()
        shape = [int(d) for d in shape]
        dtype = TORCH[dtype]
        n = prod(shape) * torch.empty((), dtype=dtype).element_size()
        data = bytearray(self.process.stdout.read(n))
        if n == 0:
            return torch.empty(shape, dtype=dtype)
        return torch.frombuffer(data, dtype=torch.uint8).view(dtype).reshape(shape)

    def run(self, lines, tensors):
        """(as compiled, by reference): lists of tensors."""
        self.ask(*lines, "run")
        answer = self.line()
        if answer == "data":
            for t in tensors:
                self.process.stdin.write(bytes_of(t))
            self.process.stdin.flush()
            answer = self.line()
        if answer.startswith("error"):
            raise Refused(answer[6:])
        out = [self.tensor() for _ in range(int(answer.split()[1]))]
        return out[:len(out) // 2], out[len(out) // 2:]


def bytes_of(t):
    t = t.detach().contiguous().reshape(-1)
    return bytes(t.view(torch.uint8).numpy()) if t.numel() else b""


class Value:
    def __init__(self, index, shape, dtype):
        self.index, self.shape, self.dtype = index, list(shape), dtype

    @property
    def rank(self):
        return len(self.shape)


def attribute(v):
    if isinstance(v, bool):
        return f"b {int(v)}"
    if isinstance(v, int):
        return f"i {v}"
    if isinstance(v, float):
        return f"f {v!r}"
    if isinstance(v, torch.dtype):
        return f"t {DTYPES[v]}"
    if isinstance(v, str):
        return "s " + v.replace(" ", "~")
    if isinstance(v, tuple):  # dims
        return " ".join(["ds", str(len(v)), *map(str, v)])
    return " ".join(["is", str(len(v)), *map(str, v)])


class Program:
    """Lines for the tool, and shapes beside them."""

    def __init__(self):
        self.lines, self.count, self.tensors, self.params = [], 0, [], {}

    def param(self, t):
        if not isinstance(t, torch.Tensor):
            raise Skip(f"an operand is a {type(t).__name__}")
        if t.dtype not in DTYPES:
            raise Skip(f"{t.dtype} is not a dtype here")
        if id(t) not in self.params:
            self.lines.append(" ".join(["param", DTYPES[t.dtype], *map(str, t.shape)]))
            self.tensors.append(t)
            self.params[id(t)] = self.new(t.shape, t.dtype)
        return self.params[id(t)]

    def new(self, shape, dtype):
        self.count += 1
        return Value(self.count - 1, shape, dtype)

    def op(self, name, operands, shapes, dtypes=None, **attrs):
        """One op with results of these shapes; dtypes: the first operand's if None."""
        self.lines.append(" ".join(
            ["op", name, str(len(operands)), *(str(x.index) for x in operands), str(len(attrs)),
             *(f"{k} {attribute(v)}" for k, v in attrs.items())]))
        dtypes = dtypes or [operands[0].dtype] * len(shapes)
        return [self.new(s, t) for s, t in zip(shapes, dtypes)]

    # What model code writes through ops/math.h.
    def number(self, value, dtype):
        return self.op("constant", [], [[]], [dtype], dtype=dtype, value=float(value))[0]

    def value(self, v, dtype):
        """A tensor or a number, as that dtype."""
        if isinstance(v, torch.Tensor):
            return self.cast(self.param(v), dtype)
        if isinstance(v, Value):
            return self.cast(v, dtype)
        if isinstance(v, complex):
            raise Skip("complex numbers are not a dtype here")
        return self.number(v, dtype)

    def cast(self, x, dtype):
        if dtype not in DTYPES:
            raise Skip(f"{dtype} is not a dtype here")
        return x if x.dtype == dtype else self.op("cast", [x], [x.shape], [dtype], dtype=dtype)[0]

    def broadcast(self, x, shape):
        shape = list(shape)
        return x if x.shape == shape else self.op("broadcast", [x], [shape], shape=tuple(shape))[0]

    def reshape(self, x, shape):
        shape = list(shape)
        return x if x.shape == shape else self.op("reshape", [x], [shape], shape=tuple(shape))[0]

    def permute(self, x, order):
        order = list(order)
        if order == list(range(x.rank)):
            return x
        return self.op("permute", [x], [[x.shape[d] for d in order]], order=order)[0]

    def slice(self, x, dim, start, size, step=1):
        shape = list(x.shape)
        shape[dim] = size
        return self.op("slice", [x], [shape], dim=dim, start=start, size=(size,), step=step)[0]

    def pad(self, x, dim, lo, hi, value=0.0):
        if lo == 0 and hi == 0:
            return x
        shape = list(x.shape)
        shape[dim] += lo + hi
        return self.op("pad", [x], [shape], dim=dim, lo=lo, hi=hi, interior=0, value=value)[0]

    def elementwise(self, name, operands, dtype=None):
        shape = torch.broadcast_shapes(*(x.shape for x in operands))
        operands = [self.broadcast(x, shape) for x in operands]
        return self.op(name, operands, [shape], [dtype or operands[0].dtype])[0]

    def reduce(self, name, x, dims, keep):
        if not dims:
            return x
        kept = [1 if d in dims else n for d, n in enumerate(x.shape)]
        shape = kept if keep else [n for d, n in enumerate(x.shape) if d not in dims]
        return self.op(name, [x], [shape], dims=dims, keep=keep)[0]

    def along_last(self, name, x, dim, n_results=1, dtypes=None, drop=False, size=None, **attrs):
        """An op over the last dim, along any; a 0-d value is taken as one element."""
        scalar = x.rank == 0
        if scalar:
            x, dim = self.reshape(x, [1]), 0
        dim %= x.rank
        order = [d for d in range(x.rank) if d != dim] + [dim]
        moved = self.permute(x, order)
        shape = moved.shape[:-1] + ([] if drop else [moved.shape[-1] if size is None else size])
        out = self.op(name, [moved], [shape] * n_results, dtypes, **attrs)
        if drop:
            return out
        back = [order.index(d) for d in range(x.rank)]
        out = [self.permute(y, back) for y in out]
        return [self.reshape(y, []) for y in out] if scalar and size in (None, 1) else out
