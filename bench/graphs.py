#!/usr/bin/env python3
"""Writes blocks of published networks as graphs for `tegula bench graph`.

    bench/graphs.py nasrnn > nasrnn.tg
    tegula bench graph nasrnn.tg --superopt 2

nasrnn: the cell of Zoph and Le 2017 (appendix A), unrolled. inception: the module of Szegedy et al. 2015
(figure 2b), with the batch norms of inference behind each convolution. resnext: the block of Xie et
al. 2017 (figure 3a), its paths written out, as published. attention: q, k and v of one value.
"""

import argparse


class Graph:
    def __init__(self, name):
        self.name, self.lines, self.types, self.results = name, [], [], []

    def add(self, text, shape):
        self.lines.append(f"  %{len(self.types)} {text}")
        self.types.append(shape)
        return len(self.types) - 1

    def type(self, shape):
        return "f32[" + ",".join(map(str, shape)) + "]"

    def param(self, name, shape, role="weight"):
        self.lines.append(f'  param %{len(self.types)} {role} "{name}" {self.type(shape)}')
        self.types.append(tuple(shape))
        return len(self.types) - 1

    def op(self, name, xs, shape, attrs=""):
        operands = ", ".join(f"%{x}" for x in xs)
        attrs = f" {{{attrs}}}" if attrs else ""
        return self.add(f"= {name}({operands}){attrs} : {self.type(shape)}", tuple(shape))

    def unary(self, name, x):
        return self.op(name, [x], self.types[x])

    def binary(self, name, x, y):
        return self.op(name, [x, y], self.types[x])

    def dot(self, x, w):
        return self.op("dot", [x, w], (self.types[x][0], self.types[w][1]), 'dims = "m k, k n -> m n"')

    def conv(self, x, w, pad=0, stride=1):
        n, _, h, width = self.types[x]
        co, _, kh, kw = self.types[w]
        size = [(s + 2 * pad - k) // stride + 1 for s, k in ((h, kh), (width, kw))]
        return self.op("conv", [x, w], (n, co, *size),
                       f"dilation = [1,1], groups = 1, hi = [{pad},{pad}], lo = [{pad},{pad}], stride = [{stride},{stride}]")

    def max_pool(self, x):
        """3 × 3, padded to the same size."""
        y, shape = len(self.types), self.type(self.types[x])
        attrs = "dilation = [1,1], hi = [1,1], kernel = [3,3], lo = [1,1], stride = [1,1]"
        self.lines.append(f"  %{y}, %{y + 1} = max_pool(%{x}) {{{attrs}}} : {shape}, {shape.replace('f32', 'i32')}")
        self.types += [self.types[x]] * 2
        return y

    def broadcast(self, x, shape):
        return self.op("broadcast", [x], shape, f"shape = ({','.join(map(str, shape))})")

    def norm(self, name, x):
        """(x − mean) · scale + shift, a channel each."""
        shape = self.types[x]
        mean, scale, shift = (self.broadcast(self.p[f"{name}.{k}"], shape) for k in ("mean", "scale", "shift"))
        return self.binary("add", self.binary("mul", self.binary("sub", x, mean), scale), shift)

    def result(self, x):
        self.results.append(x)

    def text(self):
        results = [f'  result "y{k}" %{x}' for k, x in enumerate(self.results)]
        return f'func 0 "{self.name}" {{\n' + "\n".join(self.lines + results) + "\n}\n"


def nasrnn(steps=4, batch=16, width=512):
    g = Graph("nasrnn")
    w = [g.param(f"w{i}", (width, width)) for i in range(8)]
    u = [g.param(f"u{i}", (width, width)) for i in range(8)]
    xs = [g.param(f"x{t}", (batch, width), "input") for t in range(steps)]
    h = g.param("h", (batch, width), "input")
    c = g.param("c", (batch, width), "input")
    first = ["sigmoid", "relu", "sigmoid", "relu", "tanh", "sigmoid", "tanh", "sigmoid"]
    for x in xs:
        n = []
        for i in range(8):
            a, b = g.dot(x, w[i]), g.dot(h, u[i])
            n.append(g.unary(first[i], g.binary("max" if i == 3 else "add", a, b)))
        m = [g.unary("tanh", g.binary("mul", n[0], n[1])), g.unary("sigmoid", g.binary("add", n[2], n[3])),
             g.unary("tanh", g.binary("mul", n[4], n[5])), g.unary("relu", g.binary("add", n[6], n[7]))]
        m[0] = g.unary("tanh", g.binary("add", m[0], c))
        c = g.binary("mul", m[0], m[1])
        h = g.unary("tanh", g.binary("mul", c, g.unary("tanh", g.binary("add", m[2], m[3]))))
    g.result(h)
    g.result(c)
    return g


def conv_norm_relu(g, name, x, pad):
    return g.unary("relu", g.norm(name, g.conv(x, g.p[name], pad)))


def add_conv(g, name, co, ci, k):
    g.p[name] = g.param(name, (co, ci, k, k))
    for part in ("mean", "scale", "shift"):
        g.p[f"{name}.{part}"] = g.param(f"{name}.{part}", (1, co, 1, 1))


def inception(batch=1, size=14, channels=480):
    """Module 4a: 192, 96-208, 16-48 and a projection of 64 channels."""
    g = Graph("inception")
    g.p = {}
    for name, co, ci, k in (("b1", 192, channels, 1), ("b2.reduce", 96, channels, 1), ("b2", 208, 96, 3),
                            ("b3.reduce", 16, channels, 1), ("b3", 48, 16, 5), ("b4", 64, channels, 1)):
        add_conv(g, name, co, ci, k)
    x = g.param("x", (batch, channels, size, size), "input")
    b1 = conv_norm_relu(g, "b1", x, 0)
    b2 = conv_norm_relu(g, "b2", conv_norm_relu(g, "b2.reduce", x, 0), 1)
    b3 = conv_norm_relu(g, "b3", conv_norm_relu(g, "b3.reduce", x, 0), 2)
    pooled = g.max_pool(x)
    b4 = conv_norm_relu(g, "b4", pooled, 0)
    g.result(g.op("concat", [b1, b2, b3, b4], (batch, 512, size, size), "dim = 1"))
    return g


def resnext(batch=1, size=14, channels=512, paths=32, width=8):
    """Figure 3a: every path of 1 × 1, 3 × 3 and 1 × 1 on its own; their sum and x."""
    g = Graph("resnext")
    g.p = {}
    for i in range(paths):
        add_conv(g, f"a{i}", width, channels, 1)
        add_conv(g, f"b{i}", width, width, 3)
        g.p[f"c{i}"] = g.param(f"c{i}", (channels, width, 1, 1))
    x = g.param("x", (batch, channels, size, size), "input")
    y = x
    for i in range(paths):
        inner = conv_norm_relu(g, f"b{i}", conv_norm_relu(g, f"a{i}", x, 0), 1)
        z = g.conv(inner, g.p[f"c{i}"])
        y = z if i == 0 else g.binary("add", y, z)
    g.result(g.unary("relu", g.binary("add", y, x)))
    return g


def attention(rows=256, width=256, head=64):
    g = Graph("attention")
    w = [g.param(name, (width, head)) for name in "qkv"]
    x = g.param("x", (rows, width), "input")
    for each in w:
        g.result(g.dot(x, each))
    return g


GRAPHS = {f.__name__: f for f in (nasrnn, inception, resnext, attention)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graph", choices=sorted(GRAPHS))
    parser.add_argument("sizes", nargs="*", help="batch=8 width=256: sizes other than the function's own")
    options = parser.parse_args()
    sizes = {key: int(value) for key, value in (s.split("=") for s in options.sizes)}
    print(GRAPHS[options.graph](**sizes).text(), end="")


if __name__ == "__main__":
    main()
