"""The ops that PyTorch knows by another name.

COUNTERPARTS maps an OpInfo's name (torch.testing._internal.common_methods_invocations) to a function
that writes the same program in our ops: it gets a Program and the sample, and returns the values to
compare with what PyTorch returns. It raises Skip with the reason where a sample asks for what the op
does not do.
"""

from math import prod

import torch

from program import Skip


def dims_of(dim, rank):
    """Which dims PyTorch means: None and () are all."""
    if dim is None or (isinstance(dim, (tuple, list)) and not dim):
        return list(range(rank))
    dims = [dim] if isinstance(dim, int) else list(dim)
    return sorted({d % max(rank, 1) for d in dims}) if rank else []


def arg(s, position, name, default=None):
    if name in s.kwargs:
        return s.kwargs[name]
    return s.args[position] if len(s.args) > position else default


def floats(t):
    """What PyTorch computes a float function of t in."""
    return t.dtype if t.dtype.is_floating_point else torch.get_default_dtype()


def refuse(s, *allowed):
    for k, v in s.kwargs.items():
        if k not in allowed and v not in (None, False):
            raise Skip(f"{k} has no counterpart")


COUNTERPARTS = {}


def counterpart(*names, variant=None):
    def add(f):
        for name in names:
            COUNTERPARTS[name, variant] = f
        return f
    return add


def unary(ours, int_too=False):
    def write(p, s):
        refuse(s, "inplace", "approximate")
        x = p.param(s.input)
        dtype = x.dtype if int_too else floats(s.input)
        return [p.elementwise(ours, [p.cast(x, dtype)])]
    return write


for _name in ["exp", "log", "sqrt", "rsqrt", "reciprocal", "tanh", "sigmoid", "erf", "sin", "cos",
              "log1p", "expm1", "exp2", "log2", "log10", "tan", "asin", "acos", "atan", "sinh",
              "cosh", "asinh", "acosh", "atanh", "erfc"]:
    COUNTERPARTS[_name, None] = unary(_name)
for _name in ["neg", "abs", "sign"]:
    COUNTERPARTS[_name, None] = unary(_name, int_too=True)
for _ours, _name in [("relu", "nn.functional.relu"), ("silu", "nn.functional.silu")]:
    COUNTERPARTS[_name, None] = unary(_ours, int_too=True)


@counterpart("floor", "trunc")
def whole(p, s):
    x = p.param(s.input)
    return [x if not x.dtype.is_floating_point else p.elementwise(p.torch_name, [x])]


@counterpart("round")
def half_to_even(p, s):
    refuse(s)
    return whole(p, s)


@counterpart("nn.functional.gelu")
def gelu(p, s):
    if s.kwargs.get("approximate", "none") != "tanh":
        raise Skip("gelu is the tanh form")
    return [p.elementwise("gelu", [p.param(s.input)])]


@counterpart("logical_not")
def logical_not(p, s):
    return [p.elementwise("logical_not", [p.cast(p.param(s.input), torch.bool)])]


BINARY = {"add": "add", "sub": "sub", "mul": "mul", "maximum": "max", "minimum": "min",
          "pow": "pow", "eq": "eq", "ne": "ne", "lt": "lt", "le": "le", "gt": "gt", "ge": "ge",
          "logical_and": "logical_and", "logical_or": "logical_or", "atan2": "atan2",
          "hypot": "hypot", "copysign": "copysign", "bitwise_and": "bitwise_and",
          "bitwise_or": "bitwise_or", "bitwise_xor": "bitwise_xor", "fmod": "fmod",
          "remainder": "remainder", "floor_divide": "floor_divide",
          "bitwise_left_shift": "shift_left", "bitwise_right_shift": "shift_right"}


@counterpart(*BINARY)
def binary(p, s):
    refuse(s, "alpha")
    if s.kwargs.get("alpha", 1) != 1:
        raise Skip("alpha is a product of its own")
    name, other = BINARY[p.torch_name], s.args[0]
    dtype = torch.result_type(s.input, other)
    if name in ("atan2", "copysign"):
        dtype = dtype if dtype.is_floating_point else torch.get_default_dtype()
    if name.startswith("logical"):
        dtype = torch.bool
    out = torch.bool if name in ("eq", "ne", "lt", "le", "gt", "ge") else dtype
    return [p.elementwise(name, [p.value(s.input, dtype), p.value(other, dtype)], out)]


@counterpart("div", variant="no_rounding_mode")
def true_divide(p, s):
    dtype = torch.result_type(s.input, s.args[0])
    dtype = dtype if dtype.is_floating_point else torch.get_default_dtype()
    return [p.elementwise("div", [p.value(s.input, dtype), p.value(s.args[0], dtype)])]


@counterpart("div", variant="trunc_rounding")
def truncated_divide(p, s):
    dtype = torch.result_type(s.input, s.args[0])
    if dtype.is_floating_point or dtype == torch.bool:
        raise Skip("div of floats does not round")
    return [p.elementwise("div", [p.value(s.input, dtype), p.value(s.args[0], dtype)])]


@counterpart("where")
def where(p, s):
    condition, other = s.args
    dtype = torch.result_type(s.input, other)
    c = p.cast(p.param(condition), torch.bool)
    operands = [c, p.value(s.input, dtype), p.value(other, dtype)]
    return [p.elementwise("select", operands, dtype)]


@counterpart("float", "double", "bfloat16", "half", "long", "int", "char", "byte", "bool")
def cast(p, s):
    dtype = {"float": torch.float32, "double": torch.float64, "bfloat16": torch.bfloat16,
             "half": torch.float16, "long": torch.int64, "int": torch.int32, "char": torch.int8,
             "byte": torch.uint8, "bool": torch.bool}[p.torch_name]
    return [p.cast(p.param(s.input), dtype)]


@counterpart("sum", "prod", "amax", "amin", "mean")
def reduction(p, s):
    refuse(s, "dim", "keepdim")
    x = p.param(s.input)
    dims = dims_of(arg(s, 0, "dim"), x.rank)
    keep = bool(arg(s, 1, "keepdim", False))
    if p.torch_name != "mean":
        name = {"sum": "reduce_sum", "prod": "reduce_prod", "amax": "reduce_max",
                "amin": "reduce_min"}[p.torch_name]
        if p.torch_name in ("sum", "prod") and not x.dtype.is_floating_point:
            x = p.cast(x, torch.int64)
        return [p.reduce(name, x, dims, keep)]
    n = prod(x.shape[d] for d in dims)
    y = p.reduce("reduce_sum", x, dims, keep)
    return [p.elementwise("mul", [y, p.number(1 / n if n else float("nan"), x.dtype)])]


@counterpart("argmax", "argmin")
def arg_extremum(p, s):
    x, dim, keep = p.param(s.input), arg(s, 0, "dim"), bool(arg(s, 1, "keepdim", False))
    if p.torch_name == "argmin":
        x = p.elementwise("neg", [x])
        if not x.dtype.is_floating_point:
            raise Skip("the least integer has no negative")
    if dim is None:
        if keep:
            raise Skip("keepdim without a dim")
        x, dim = p.reshape(x, [prod(x.shape)]), 0
    y = p.along_last("argmax", x, dim, 1, [torch.int32], drop=True)[0]
    if keep and x.rank:
        y = p.reshape(y, [1 if d == dim % x.rank else n for d, n in enumerate(x.shape)])
    return [y]


@counterpart("cumsum")
def cumsum(p, s):
    refuse(s, "dim")
    x, dim = p.param(s.input), arg(s, 0, "dim")
    if x.rank == 0:
        return [x]
    return p.op("cumsum", [x], [x.shape], dim=dim % x.rank)


@counterpart("softmax", "log_softmax")
def softmax(p, s):
    refuse(s, "dim")
    x = p.param(s.input)
    return p.along_last(p.torch_name, x, arg(s, 0, "dim"))


@counterpart("logsumexp")
def logsumexp(p, s):
    x = p.cast(p.param(s.input), floats(s.input))
    dims, keep = dims_of(arg(s, 0, "dim"), x.rank), bool(arg(s, 1, "keepdim", False))
    if len(dims) > 1:
        raise Skip("over one dim")
    wide = torch.float64 if x.dtype == torch.float64 else torch.float32
    y = p.along_last("logsumexp", x, dims[0] if dims else 0, 1, [wide], drop=True)[0]
    if keep and x.rank:
        y = p.reshape(y, [1 if d in dims else n for d, n in enumerate(x.shape)])
    return [p.cast(y, x.dtype)]


@counterpart("sort")
def sort(p, s):
    refuse(s, "dim", "descending", "stable")
    if not s.kwargs.get("stable") and "stable" not in s.kwargs and s.args[2:]:
        raise Skip("positional stable")
    x, dim = p.param(s.input), arg(s, 0, "dim", -1)
    out = p.along_last("sort", x, dim, 2, [x.dtype, torch.int32],
                       descending=bool(arg(s, 1, "descending", False)))
    p.indices_of_ties = True
    return out


@counterpart("topk")
def topk(p, s):
    x, k, dim = p.param(s.input), arg(s, 0, "k"), arg(s, 1, "dim", -1)
    if not arg(s, 2, "largest", True):
        raise Skip("top_k is of the largest")
    p.indices_of_ties = True
    return p.along_last("top_k", x, dim, 2, [x.dtype, torch.int32], size=k, k=k)


@counterpart("reshape", "view", "flatten", "squeeze", "unsqueeze", "ravel")
def reshape(p, s):
    return [p.reshape(p.param(s.input), p.expected[0].shape)]


@counterpart("expand", "broadcast_to")
def expand(p, s):
    return [p.broadcast(p.param(s.input), p.expected[0].shape)]


@counterpart("permute", "transpose", "t")
def permute(p, s):
    x = p.param(s.input)
    if p.torch_name == "t":
        order = list(range(x.rank))[::-1]
    elif p.torch_name == "permute":
        order = [d % x.rank for d in (s.args[0] if len(s.args) == 1 and not isinstance(
            s.args[0], int) else s.args)] if x.rank else []
    else:
        order = list(range(x.rank))
        if x.rank:
            a, b = (d % x.rank for d in s.args)
            order[a], order[b] = order[b], order[a]
    return [p.permute(x, order)]


@counterpart("narrow")
def narrow(p, s):
    x, (dim, start, size) = p.param(s.input), s.args
    start = int(start)
    dim %= x.rank
    return [p.slice(x, dim, start % x.shape[dim] if start < 0 else start, size)]


@counterpart("flip")
def flip(p, s):
    x = p.param(s.input)
    dims = arg(s, 0, "dims", ())
    dims = (dims,) if isinstance(dims, int) else dims
    for d in dims_of(tuple(dims), x.rank) if dims else []:
        n = x.shape[d]
        x = p.slice(x, d, max(n - 1, 0), n, -1)
    return [x]


@counterpart("nn.functional.pad", variant="constant")
def pad(p, s):
    x, pads = p.param(s.input), s.args[0]
    value = arg(s, 2, "value", 0.0) or 0.0
    if any(n < 0 for n in pads):
        raise Skip("a negative pad is a slice")
    for i in range(len(pads) // 2):
        x = p.pad(x, x.rank - 1 - i, pads[2 * i], pads[2 * i + 1], float(value))
    return [x]


@counterpart("cat")
def cat(p, s):
    xs = [p.param(t) for t in s.input]
    if any(x.shape == [0] for x in xs) and any(x.rank != 1 for x in xs):
        raise Skip("a tensor of shape [0] fits beside any")
    if len({x.dtype for x in xs}) > 1:
        raise Skip("operands of several dtypes")
    dim = arg(s, 0, "dim", 0) % max(xs[0].rank, 1)
    shape = list(xs[0].shape)
    shape[dim] = sum(x.shape[dim] for x in xs)
    return p.op("concat", xs, [shape], dim=dim)


@counterpart("index_select")
def index_select(p, s):
    x, dim, ids = p.param(s.input), s.args[0], p.param(s.args[1])
    if x.rank == 0:
        raise Skip("of a 0-d value")
    dim %= x.rank
    ids = p.reshape(ids, [prod(ids.shape)])
    shape = [ids.shape[0] if d == dim else n for d, n in enumerate(x.shape)]
    return p.op("gather", [x, ids], [shape], dim=dim)


def line_up(p, x, ids, dim):
    """x cut to ids' shape but for dim, both with dim moved last."""
    if x.rank == 0 or ids.rank == 0:
        raise Skip("of a 0-d value")
    if x.rank != ids.rank:
        raise Skip("no ids, of another rank")
    if ids.dtype not in (torch.int32, torch.int64):
        ids = p.cast(ids, torch.int64)
    dim %= x.rank
    for d in range(x.rank):
        if d != dim and x.shape[d] != ids.shape[d]:
            x = p.slice(x, d, 0, ids.shape[d])
    order = [d for d in range(x.rank) if d != dim] + [dim]
    back = [order.index(d) for d in range(x.rank)]
    return p.permute(x, order), p.permute(ids, order), back


@counterpart("gather")
def gather(p, s):
    dim, ids = s.args[0], p.param(s.args[1])
    x, ids, back = line_up(p, p.param(s.input), ids, dim)
    y = p.op("gather", [x, ids], [ids.shape], dim=x.rank - 1, batch=x.rank - 1)[0]
    return [p.permute(y, back)]


@counterpart("scatter_add")
def scatter_add(p, s):
    dim, ids, y = s.args
    x, ids = p.param(s.input), p.param(ids)
    if x.rank == 0 or any(d != dim % x.rank and n != m
                          for d, (n, m) in enumerate(zip(x.shape, ids.shape))):
        raise Skip("ids that are smaller than x")
    y, moved, back = line_up(p, p.param(y), ids, dim)
    if y.shape[-1] != moved.shape[-1]:
        y = p.slice(y, y.rank - 1, 0, moved.shape[-1])
    n = x.shape[dim % x.rank]
    sums = p.op("scatter", [y, moved], [y.shape[:-1] + [n]], dim=y.rank - 1, batch=y.rank - 1,
                size=(n,), mode="add")[0]
    return [p.elementwise("add", [x, p.permute(sums, back)])]


@counterpart("nn.functional.embedding")
def embedding(p, s):
    refuse(s)
    table, ids = p.param(s.input), p.param(s.args[0])
    return p.op("embedding", [table, ids], [ids.shape + table.shape[1:]])


@counterpart("nn.functional.one_hot")
def one_hot(p, s):
    n = arg(s, 0, "num_classes", -1)
    if n < 0:
        raise Skip("the number of classes is looked up")
    ids = p.param(s.input)
    shape = ids.shape + [n]
    classes = p.op("iota", [], [shape], [ids.dtype], shape=tuple(shape), dim=len(shape) - 1,
                   dtype=ids.dtype)[0]
    same = p.elementwise("eq", [p.broadcast(p.reshape(ids, ids.shape + [1]), shape), classes],
                         torch.bool)
    return [p.cast(same, torch.int64)]


@counterpart("unfold", "unfold_copy")
def unfold(p, s):
    x, (dim, size, step) = p.param(s.input), s.args
    if x.rank == 0:
        raise Skip("of a 0-d value")
    if size == 0:
        raise Skip("a window has an element")
    dim %= x.rank
    n = (x.shape[dim] - size) // step + 1
    shape = x.shape[:dim] + [n, size] + x.shape[dim + 1:]
    if n <= 1:
        step = 1
    y = p.op("unfold", [x], [shape], dim=dim, size=(n,), kernel=size, stride=step, dilation=1)[0]
    order = [d for d in range(y.rank) if d != dim + 1] + [dim + 1]
    return [p.permute(y, order)]


@counterpart("mm", "bmm", "mv", "dot")
def product(p, s):
    dims = {"mm": "m k, k n -> m n", "bmm": "b m k, b k n -> b m n", "mv": "m k, k -> m",
            "dot": "k, k -> "}[p.torch_name]
    a, b = p.param(s.input), p.param(s.args[0])
    return p.op("dot", [a, b], [list(p.expected[0].shape)], dims=dims)


@counterpart("nn.functional.conv1d", "nn.functional.conv2d", "nn.functional.conv3d")
def conv(p, s):
    x, w = p.param(s.input), p.param(s.args[0])
    bias = arg(s, 1, "bias")
    n = w.rank - 2
    if x.rank != w.rank:
        raise Skip("a batch has its dim")
    groups = arg(s, 5, "groups", 1)

    def per_dim(position, name, default):
        v = arg(s, position, name, default)
        return [v] * n if isinstance(v, int) else list(v) * (n if len(v) == 1 else 1)
    stride, dilation = per_dim(2, "stride", 1), per_dim(4, "dilation", 1)
    padding = arg(s, 3, "padding", 0)
    if padding == "valid":
        padding = 0
    if padding == "same":
        total = [d * (k - 1) for d, k in zip(dilation, w.shape[2:])]
        lo, hi = [t // 2 for t in total], [t - t // 2 for t in total]
    else:
        lo = hi = [padding] * n if isinstance(padding, int) else list(padding) * (
            n if len(padding) == 1 else 1)
    y = p.op("conv", [x, w], [list(p.expected[0].shape)], stride=stride, lo=lo, hi=hi,
             dilation=dilation, groups=groups)[0]
    if bias is not None:
        y = p.elementwise("add", [y, p.reshape(p.param(bias), [1, y.shape[1]] + [1] * n)])
    return [y]


@counterpart("nn.functional.max_pool1d", "nn.functional.max_pool2d", "nn.functional.max_pool3d")
def max_pool(p, s):
    x, n = p.param(s.input), int(p.torch_name[-2])
    if x.rank != n + 2:
        raise Skip("a batch has its dim")
    if arg(s, 4, "ceil_mode", False):
        raise Skip("ceil_mode has no counterpart")

    def per_dim(v):
        return [v] * n if isinstance(v, int) else list(v) * (n if len(v) == 1 else 1)
    kernel = per_dim(arg(s, 0, "kernel_size"))
    stride = arg(s, 1, "stride")
    stride = kernel if stride in (None, ()) else per_dim(stride)
    lo, dilation = per_dim(arg(s, 2, "padding", 0)), per_dim(arg(s, 3, "dilation", 1))
    shape = list(p.expected[0].shape)
    return p.op("max_pool", [x], [shape, shape], [x.dtype, torch.int32], kernel=kernel,
                stride=stride, lo=lo, hi=lo, dilation=dilation)[:1]


@counterpart("nn.functional.layer_norm")
def layer_norm(p, s):
    x, shape = p.param(s.input), list(s.args[0])
    w, b, eps = arg(s, 1, "weight"), arg(s, 2, "bias"), arg(s, 3, "eps", 1e-5)
    d = prod(shape)
    rows = p.reshape(x, x.shape[:x.rank - len(shape)] + [d])
    w = p.reshape(p.param(w), [d]) if w is not None else p.broadcast(p.number(1, x.dtype), [d])
    b = p.reshape(p.param(b), [d]) if b is not None else p.broadcast(p.number(0, x.dtype), [d])
    stats = torch.float64 if x.dtype == torch.float64 else torch.float32
    y = p.op("layer_norm", [rows, w, b], [rows.shape, rows.shape[:-1], rows.shape[:-1]],
             [x.dtype, stats, stats], eps=float(eps), bias=True)[0]
    return [p.reshape(y, x.shape)]


@counterpart("nn.functional.rms_norm")
def rms_norm(p, s):
    x, shape = p.param(s.input), list(s.args[0])
    w, eps = arg(s, 1, "weight"), arg(s, 2, "eps")
    d = prod(shape)
    rows = p.reshape(x, x.shape[:x.rank - len(shape)] + [d])
    w = p.reshape(p.param(w), [d]) if w is not None else p.broadcast(p.number(1, x.dtype), [d])
    stats = torch.float64 if x.dtype == torch.float64 else torch.float32
    eps = torch.finfo(p.dtype).eps if eps is None else eps
    y = p.op("rms_norm", [rows, w], [rows.shape, rows.shape[:-1]], [x.dtype, stats],
             eps=float(eps))[0]
    return [p.reshape(y, x.shape)]


@counterpart("nn.functional.scaled_dot_product_attention")
def attention(p, s):
    refuse(s, "is_causal", "scale", "dropout_p", "enable_gqa", "attn_mask")
    if s.kwargs.get("dropout_p", 0.0):
        raise Skip("dropout draws its own numbers")
    if arg(s, 2, "attn_mask") is not None:
        raise Skip("a mask of bools or sums is `bias`, tried in tests/kernels")
    q, k, v = p.param(s.input), p.param(s.args[0]), p.param(s.args[1])
    if q.rank != 4 or k.rank != 4:
        raise Skip("[batch, heads, rows, d]")
    causal = bool(s.kwargs.get("is_causal", False))
    if causal and q.shape[2] != k.shape[2]:
        raise Skip("a causal mask is aligned at the bottom right, PyTorch's at the top left")
    turned = [p.permute(t, [0, 2, 1, 3]) for t in (q, k, v)]
    stats = torch.float64 if q.dtype == torch.float64 else torch.float32
    scale = s.kwargs.get("scale")
    attrs = {"scale": float(scale if scale is not None else q.shape[3] ** -0.5)}
    if causal:
        attrs["is_causal"] = True
    b, h, n, _ = q.shape
    y = p.op("attention", turned, [[b, n, h, v.shape[3]], [b, h, n]], [q.dtype, stats], **attrs)[0]
    return [p.permute(y, [0, 2, 1, 3])]


# Ops that no OpInfo stands for, and what tries them instead.
NO_COUNTERPART = {
    "barrier": "changes no value", "call": "control flow: tests/ops/control_test.cpp",
    "cond": "control flow", "scan": "control flow", "while_loop": "control flow",
    "fused": "made by a pass: tests/passes", "copy": "changes no value",
    "constant": "in most programs here", "extent": "a constant but for symbolic sizes",
    "attention_bwd": "the gradient of attention, here with it",
    "conv_bwd_data": "the gradient of conv, here with it",
    "conv_bwd_filter": "the gradient of conv, here with it",
    "embedding_bwd": "the gradient of embedding, here with it",
    "layer_norm_bwd": "the gradient of layer_norm, here with it",
    "rms_norm_bwd": "the gradient of rms_norm, here with it",
    "softmax_bwd": "the gradient of softmax, here with it",
    "linear_cross_entropy": "in the gradients of models: gradients_test.py",
    "linear_cross_entropy_bwd": "in the gradients of models",
    "linear_cross_entropy_grads": "in the gradients of models",
    "rope": "in the gradients of llama: gradients_test.py",
    "dynamic_slice": "PyTorch slices at places known before the run",
    "dynamic_update_slice": "PyTorch slices at places known before the run",
    "expert_combine": "in the gradients of moe: gradients_test.py",
    "expert_combine_bwd": "in the gradients of moe", "expert_dispatch": "in the gradients of moe",
    "fma": "PyTorch rounds the product, too", "cummax": "tests/ops", "linear_recurrence": "tests/ops",
    "searchsorted": "tests/ops/sugar_test.cpp", "expert_dispatch_bwd": "in the gradients of moe", "random_uniform": "numbers of its own",
    "quantise": "PyTorch's quantisation has other scales", "dequantise": "likewise",
    "dot_i8": "likewise", "dot_quantised": "likewise",
}
